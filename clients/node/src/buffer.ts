/** IDs one by one, from a buffer that is filled ahead: when to fetch, how many, when to drop. */

import type { Calls, Delivery } from "./call.js";
import type { CallOptions, Client } from "./client.js";
import { Deadline } from "./deadline.js";
import { checkMs } from "./options.js";

/** The IDs of the first fetch and at least, and at most. */
const [FIRST, MOST] = [16, 10_000];

/** A batch whose half went within this part of its time is too small. */
const QUICK_PART = 4;

const NOTHING: Delivery = { ids: [], began: 0, beganWall: 0, goodForMs: 0 };

/** A buffer that hands out IDs one at a time. It is refilled before it is empty. */
export class Ids {
  /** Keeps the client from being collected. */
  readonly client: Client;
  readonly #calls: Calls;
  readonly #source: Buffer;
  readonly #timeoutMs: number;
  #batch: Delivery = NOTHING;
  #ids: bigint[] = NOTHING.ids;
  /** The place of the next ID, and that of the first behind the half. */
  #at = 0;
  #half = 0;
  #opened = 0;
  #until = 0;
  #wallUntil = 0;
  #age = 0;
  #size = FIRST;
  /** The batch of a fetch, once it is here. */
  #ahead: (Delivery & { age: number }) | undefined;
  #fetch: Promise<void> | undefined;
  #fetchDeadline: Deadline | undefined;
  #waiting = 0;

  /** @internal */
  constructor(client: Client, calls: Calls, source: Buffer, timeoutMs: number) {
    this.client = client;
    this.#calls = calls;
    this.#source = source;
    this.#timeoutMs = timeoutMs;
  }

  /**
   * Returns the next ID if the buffer has one. Else it returns undefined, and a fetch is under way.
   *
   * @throws {SnowbankError} `closed`, or `collision`.
   */
  tryNext(): bigint | undefined {
    const id = this.#ids[this.#at];
    const now = performance.now();
    if (
      id === undefined ||
      now >= this.#until ||
      Date.now() >= this.#wallUntil ||
      this.#age !== this.#calls.age
    ) {
      return this.#refill();
    }
    this.#at += 1;
    const { counters } = this.#calls;
    counters.ids += 1;
    const ageMs = now - this.#batch.began;
    if (ageMs > counters.oldestMs) {
      counters.oldestMs = ageMs;
    }
    if (this.#at === this.#half) {
      this.#fetchAhead(now);
    }
    return id;
  }

  /**
   * Returns the next ID: from the buffer, or with the next reply if it is empty.
   *
   * @throws {SnowbankError} As every call does, at its deadline at the latest.
   */
  next(options?: CallOptions): Promise<bigint> {
    if (options === undefined) {
      try {
        const id = this.tryNext();
        if (id !== undefined) {
          return Promise.resolve(id);
        }
      } catch (error) {
        return Promise.reject(error);
      }
    }
    return this.#wait(options ?? {});
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<bigint, void, void> {
    for (;;) {
      yield this.tryNext() ?? (await this.next());
    }
  }

  async #wait(options: CallOptions): Promise<bigint> {
    const deadline = new Deadline(checkMs(options.timeoutMs ?? this.#timeoutMs), options.signal);
    return this.#calls.run(async () => {
      this.#waiting += 1;
      try {
        for (;;) {
          const id = this.tryNext();
          if (id !== undefined) {
            return id;
          }
          // A fetch does not end before a call that waits for it, nor with one that leaves.
          this.#fetchDeadline?.extend(deadline);
          const fetch = this.#fetch ?? Promise.resolve();
          await deadline.wait<void>((resolve, reject) => {
            // A deadline of the fetch is none of the call.
            fetch.then(resolve, (error) => (error.code === "timeout" ? resolve() : reject(error)));
          });
          this.#calls.check();
        }
      } finally {
        this.#waiting -= 1;
      }
    }, deadline);
  }

  /** Opens the batch that was fetched, or begins a fetch. */
  #refill(): bigint | undefined {
    this.#calls.check(this.#waiting === 0);
    for (;;) {
      const left = this.#ids.length - this.#at;
      if (left > 0) {
        // They are too old.
        this.#calls.counters.dropped += left;
        this.#size = 2 * this.#at;
      }
      const ahead = this.#ahead;
      this.#ahead = undefined;
      this.#open(ahead ?? { ...NOTHING, age: 0 });
      if (ahead === undefined) {
        this.#begin();
        return undefined;
      }
      const isYoung = performance.now() < this.#until && Date.now() < this.#wallUntil;
      if (isYoung && this.#age === this.#calls.age) {
        return this.tryNext();
      }
    }
  }

  #open(batch: Delivery & { age: number }): void {
    this.#batch = batch;
    this.#ids = batch.ids;
    this.#age = batch.age;
    this.#at = 0;
    this.#half = Math.ceil(batch.ids.length / 2);
    this.#opened = performance.now();
    this.#until = batch.began + batch.goodForMs;
    this.#wallUntil = batch.beganWall + batch.goodForMs;
  }

  #fetchAhead(now: number): void {
    const isQuick = now - this.#opened <= this.#batch.goodForMs / QUICK_PART;
    this.#size = isQuick ? 2 * this.#ids.length : 2 * this.#at;
    if (this.#ahead === undefined) {
      this.#begin();
    }
  }

  #begin(): void {
    if (this.#fetch !== undefined) {
      return;
    }
    const count = Math.min(Math.max(this.#size, this.#waiting, FIRST), MOST);
    const { age } = this.#calls;
    const deadline = new Deadline(this.#timeoutMs);
    this.#fetchDeadline = deadline;
    const fetch = this.#calls
      .run((by) => this.#calls.fetch(count, this.#source, by), deadline, false)
      .then((batch) => {
        this.#ahead = { ...batch, age };
      })
      .finally(() => {
        this.#fetch = undefined;
      });
    this.#fetch = fetch;
    // Nobody may wait for it.
    fetch.catch(() => {});
  }
}
