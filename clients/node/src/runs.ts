/** IDs as runs, and the reader that turns runs into single IDs. */

/** The place of the lower half of a 64-bit element, which depends on the processor's byte order. */
const LOW = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1 ? 0 : 1;
const HIGH = 1 - LOW;

const TWO_POW_32 = 2 ** 32;

/** Runs of IDs: `first`, `first + stride`, … of each. They take 16 bytes a run. */
export class Runs {
  #firsts = new BigUint64Array(1);
  #counts = new Uint32Array(1);
  #strides = new Uint32Array(1);
  /** The number of runs. */
  size = 0;
  /** The number of IDs. */
  length = 0;
  /** The highest ID, once there is one. */
  last: bigint | undefined;

  /** Adds a run of at least one ID above all earlier ones. */
  add(first: bigint, count: number, stride: number): void {
    if (this.size === this.#counts.length) {
      this.#grow();
    }
    this.#firsts[this.size] = first;
    this.#counts[this.size] = count;
    this.#strides[this.size] = stride;
    this.size += 1;
    this.length += count;
    this.last = first + BigInt(count - 1) * BigInt(stride);
  }

  #grow(): void {
    const firsts = new BigUint64Array(this.size * 2);
    const counts = new Uint32Array(this.size * 2);
    const strides = new Uint32Array(this.size * 2);
    firsts.set(this.#firsts);
    counts.set(this.#counts);
    strides.set(this.#strides);
    this.#firsts = firsts;
    this.#counts = counts;
    this.#strides = strides;
  }

  first(run: number): bigint {
    return this.#firsts[run]!;
  }

  count(run: number): number {
    return this.#counts[run]!;
  }

  stride(run: number): number {
    return this.#strides[run]!;
  }
}

/** Reads the IDs of runs in their order. */
export class RunReader {
  readonly #runs: Runs;
  /** The current run, and how many of its IDs were read. */
  #run = -1;
  #read = 0;
  /** The halves of the next ID. Halves of 32 bits are exact, and need no BigInt for each ID. */
  #low = 0;
  #high = 0;
  /** The number of IDs that are not read yet. */
  left: number;

  constructor(runs: Runs) {
    this.#runs = runs;
    this.left = runs.length;
    this.#enter(0, 0);
  }

  /** Skips the IDs that are not above `bound`. */
  skipTo(bound: bigint): void {
    const runs = this.#runs;
    for (let run = 0; run < runs.size; run += 1) {
      const first = runs.first(run);
      const count = runs.count(run);
      const low = bound < first ? 0n : (bound - first) / BigInt(runs.stride(run) || 1) + 1n;
      if (low < BigInt(count)) {
        this.left -= Number(low);
        this.#enter(run, Number(low));
        return;
      }
      this.left -= count;
    }
    this.#enter(runs.size, 0);
  }

  /** Writes up to `most` IDs to the start of `slice`. Returns how many. */
  fill(slice: BigUint64Array, most: number): number {
    const halves = new Uint32Array(slice.buffer, slice.byteOffset, slice.length * 2);
    let at = 0;
    while (at < most && this.#run < this.#runs.size) {
      const end = at + Math.min(most - at, this.#runs.count(this.#run) - this.#read);
      const stride = this.#runs.stride(this.#run);
      let [low, high] = [this.#low, this.#high];
      this.#read += end - at;
      for (; at < end; at += 1) {
        halves[2 * at + LOW] = low;
        halves[2 * at + HIGH] = high;
        low += stride;
        if (low >= TWO_POW_32) {
          low -= TWO_POW_32;
          high += 1;
        }
      }
      [this.#low, this.#high] = [low, high];
      if (this.#read === this.#runs.count(this.#run)) {
        this.#enter(this.#run + 1, 0);
      }
    }
    this.left -= at;
    return at;
  }

  #enter(run: number, read: number): void {
    this.#run = run;
    this.#read = read;
    if (run < this.#runs.size) {
      const next = this.#runs.first(run) + BigInt(read) * BigInt(this.#runs.stride(run));
      this.#low = Number(next & 0xffff_ffffn);
      this.#high = Number(next >> 32n);
    }
  }
}
