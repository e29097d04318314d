import { RunReader, type Runs } from "./runs.js";

/** The number of IDs that an iterator makes at a time. */
const CHUNK = 256;

/** The IDs of one reply: strictly increasing, and no other client has one of them. */
export class Batch implements Iterable<bigint> {
  /** The address of the daemon that handed out the IDs. */
  readonly endpoint: string;
  /** The number of IDs, at least one. */
  readonly length: number;
  readonly #runs: Runs;

  /** @internal */
  constructor(endpoint: string, runs: Runs) {
    this.endpoint = endpoint;
    this.length = runs.length;
    this.#runs = runs;
  }

  /** Returns the IDs as bigints, in increasing order. Each call begins with the first ID. */
  *[Symbol.iterator](): IterableIterator<bigint> {
    const reader = this.reader();
    const chunk = new BigUint64Array(CHUNK);
    for (let size = reader.fill(chunk, CHUNK); size > 0; size = reader.fill(chunk, CHUNK)) {
      for (let at = 0; at < size; at += 1) {
        yield chunk[at]!;
      }
    }
  }

  /** Returns the IDs as decimal strings, for JSON and for drivers that take no bigint. */
  toStrings(): string[] {
    return Array.from(this, String);
  }

  /**
   * Makes `JSON.stringify` write the IDs as strings. As numbers they would lose their last digits.
   */
  toJSON(): string[] {
    return this.toStrings();
  }

  /** @internal Returns a reader of the IDs. */
  reader(): RunReader {
    return new RunReader(this.#runs);
  }

  /** @internal Returns the highest ID. */
  get last(): bigint {
    return this.#runs.last ?? 0n;
  }
}
