/**
 * The requests of calls: how each is encoded, and how its reply's frames are joined and checked.
 */

import { plain, SnowbankError } from "./errors.js";
import { defaultWaitMs, type Info, parseInfo, type SourceInfo } from "./info.js";
import {
  Breach,
  DEFAULT_WAIT,
  EXPLICIT,
  encodeNext,
  encodeRequest,
  type Frame,
  INFO,
  INFO_REPLY,
  LIST,
  PARTIAL,
  RUNS,
} from "./protocol.js";
import { Runs } from "./runs.js";

/** The most bytes of JSON that a client accepts. Some hundred thousand worker IDs fit. */
const MAX_INFO_BYTES = 4 << 20;

/** The most names that an error lists. */
const NAMES_SHOWN = 20;

const MAX_ID = 2n ** 64n - 1n;

/** One try of a request. */
export interface Request<T> {
  /** Encodes it for the daemon with these sources. Throws `unknown_source`. */
  encode(tag: number, endpoint: string, sources: readonly SourceInfo[]): Encoded;
  /** Adds a frame of the reply. Returns true once it is complete. Throws {@link Breach}. */
  add(frame: Frame): boolean;
  /** Returns the complete reply. Throws {@link Breach}. */
  finish(): T;
}

/** A request as bytes, and how long the daemon may hold it. */
export interface Encoded {
  bytes: Buffer;
  holdMs: number;
}

/** What a call asks of a source. */
export interface Ask {
  count: number;
  /** The source's name. Without it, the daemon's default source. */
  source: string | undefined;
  /** How long the daemon may wait for IDs. Without it, the daemon's own default. */
  maxWaitMs: number | undefined;
  partial: boolean;
  /** Asks for every ID instead of runs. */
  explicit?: boolean | undefined;
}

/** A request for IDs. It never keeps more than it asked for. */
export class NextRequest implements Request<Runs> {
  readonly #ask: Ask;
  readonly #runs = new Runs();
  #kind: number | undefined;

  constructor(ask: Ask) {
    this.#ask = ask;
  }

  encode(tag: number, endpoint: string, sources: readonly SourceInfo[]): Encoded {
    const { count, source: name, maxWaitMs, partial } = this.#ask;
    const source = name === undefined ? undefined : sources.find((source) => source.name === name);
    if (name !== undefined && source === undefined) {
      throw noSuchSource(endpoint, name, sources);
    }
    const index = source?.index ?? 0;
    const wait = maxWaitMs === undefined ? DEFAULT_WAIT : Math.min(maxWaitMs, DEFAULT_WAIT - 1);
    const flags = (partial ? PARTIAL : 0) | (this.#ask.explicit === true ? EXPLICIT : 0);
    const bytes = encodeNext(tag, { count, source: index, maxWaitMs: wait, flags });
    const asked = source ?? sources.find((source) => source.index === 0);
    return { bytes, holdMs: maxWaitMs ?? defaultWaitMs(asked) };
  }

  add(frame: Frame): boolean {
    if ((frame.kind !== RUNS && frame.kind !== LIST) || frame.kind !== (this.#kind ?? frame.kind)) {
      throw new Breach("the reply has a frame of the wrong kind");
    }
    if (frame.kind === RUNS && this.#ask.explicit === true) {
      throw new Breach("the reply has runs, and single IDs were asked for");
    }
    this.#kind = frame.kind;
    const { body } = frame;
    if (frame.kind === RUNS) {
      for (let at = 0; at < body.length; at += 16) {
        this.#add(body.readBigUInt64LE(at), body.readUInt32LE(at + 8), body.readUInt32LE(at + 12));
      }
    } else {
      for (let at = 0; at < body.length; at += 8) {
        this.#add(body.readBigUInt64LE(at), 1, 1);
      }
    }
    if (!frame.more && this.#runs.length < this.#ask.count && !this.#ask.partial) {
      throw new Breach(
        `the reply has ${this.#runs.length} IDs and ${this.#ask.count} were asked for`,
      );
    }
    return !frame.more;
  }

  finish(): Runs {
    return this.#runs;
  }

  #add(first: bigint, count: number, stride: number): void {
    if (count === 0) {
      throw new Breach("the reply has a run of no IDs");
    }
    const previous = this.#runs.last;
    if ((previous !== undefined && first <= previous) || (count > 1 && stride === 0)) {
      throw new Breach(`the reply's IDs do not increase: ${first} follows ${previous ?? first}`);
    }
    if (this.#runs.length + count > this.#ask.count) {
      throw new Breach(`the reply has more than the ${this.#ask.count} IDs asked for`);
    }
    if (first + BigInt(count - 1) * BigInt(stride) > MAX_ID) {
      throw new Breach(`the reply has a run from ${first} that ends beyond 64 bits`);
    }
    this.#runs.add(first, count, stride);
  }
}

/** A request for the daemon's INFO. */
export class InfoRequest implements Request<Info> {
  readonly #parts: Buffer[] = [];
  #size = 0;

  encode(tag: number): Encoded {
    return { bytes: encodeRequest(INFO, tag, Buffer.alloc(0)), holdMs: 0 };
  }

  add(frame: Frame): boolean {
    if (frame.kind !== INFO_REPLY) {
      throw new Breach("the reply has a frame of the wrong kind");
    }
    this.#size += frame.body.length;
    if (this.#size > MAX_INFO_BYTES) {
      throw new Breach(`the INFO reply exceeds ${MAX_INFO_BYTES} bytes`);
    }
    this.#parts.push(frame.body);
    return !frame.more;
  }

  finish(): Info {
    return parseInfo(Buffer.concat(this.#parts).toString("utf8"));
  }
}

function noSuchSource(
  endpoint: string,
  name: string,
  sources: readonly SourceInfo[],
): SnowbankError {
  const names = sources.map((source) => source.name).sort();
  const more = names.length > NAMES_SHOWN ? ", …" : "";
  const known = plain(names.slice(0, NAMES_SHOWN).join(", ")) + more;
  const text = `${endpoint} has no source named ${JSON.stringify(name)}; it has ${known}`;
  return new SnowbankError("unknown_source", text, { endpoint });
}
