/** IDs one by one, from a buffer that is filled ahead: when to fetch, how many, when to drop. */

import type { Calls } from "./call.js";
import type { CallOptions, Client } from "./client.js";
import { Deadline, PASSED } from "./deadline.js";
import { checkMs, given } from "./options.js";

/** The IDs of the first fetch and at least, and at most. */
const [FIRST, MOST] = [16, 10_000];

/** A batch whose half went within this part of its time is too small. */
const QUICK_PART = 4;

/** What a fetch brought. */
interface Batch {
  readonly ids: readonly bigint[];
  /** The place of the next ID. */
  at: number;
  /** When it was asked for, or the reply before it ended: its IDs are younger. */
  readonly began: number;
  readonly goodForMs: number;
  /** Until when its IDs may be handed out, by the monotonic clock and by the wall. */
  readonly until: number;
  readonly wallUntil: number;
  readonly era: number;
  opened: number;
}

const NONE = { ids: [], at: 0, began: 0, goodForMs: 0, until: 0, wallUntil: 0, era: 0, opened: 0 };

/** A buffer that hands out IDs one at a time. It is refilled before it is empty. */
export class Ids {
  /** Keeps the client from being collected. */
  readonly client: Client;
  readonly #calls: Calls;
  readonly #source: Buffer;
  readonly #timeoutMs: number;
  #batch: Batch = NONE;
  #size = FIRST;
  /** The batch of a fetch, once it is here. */
  #ahead: Batch | undefined;
  #fetching: Promise<void> | undefined;
  #deadline: Deadline | undefined;
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
    const batch = this.#batch;
    const id = batch.ids[batch.at];
    const now = performance.now();
    if (
      id === undefined ||
      now >= batch.until ||
      Date.now() >= batch.wallUntil ||
      batch.era !== this.#calls.era
    ) {
      return this.#refill();
    }
    batch.at += 1;
    const { counters } = this.#calls;
    counters.ids += 1;
    counters.oldestMs = Math.max(counters.oldestMs, now - batch.began);
    if (batch.at === (batch.ids.length + 1) >> 1) {
      // Half is used.
      const isQuick = now - batch.opened <= batch.goodForMs / QUICK_PART;
      this.#size = 2 * (isQuick ? batch.ids.length : batch.at);
      this.#fetch();
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
    return this.#wait(options);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<bigint, void, void> {
    for (;;) {
      yield this.tryNext() ?? (await this.next());
    }
  }

  async #wait(options?: CallOptions): Promise<bigint> {
    const { timeoutMs = this.#timeoutMs, signal } = given(options, ["signal", "timeoutMs"]);
    const deadline = new Deadline(checkMs(timeoutMs), signal);
    return this.#calls.run(async () => {
      this.#waiting += 1;
      try {
        for (;;) {
          const id = this.tryNext();
          if (id !== undefined) {
            return id;
          }
          const fetching = this.#fetch();
          // A fetch ends before no call that waits for it, nor with one that leaves.
          this.#deadline!.at = Math.max(this.#deadline!.at, deadline.at);
          await deadline.wait(fetching);
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
    const left = this.#batch.ids.length - this.#batch.at;
    if (left > 0) {
      // They are too old, or void.
      this.#calls.counters.dropped += left;
      this.#size = 2 * this.#batch.at;
    }
    const ahead = this.#ahead;
    this.#batch = ahead ?? NONE;
    this.#ahead = undefined;
    if (ahead === undefined) {
      this.#fetch();
      return undefined;
    }
    ahead.opened = performance.now();
    return this.tryNext();
  }

  /** Begins a fetch, unless there is one or its batch. */
  #fetch(): Promise<void> {
    if (this.#ahead !== undefined || this.#fetching !== undefined) {
      return this.#fetching ?? Promise.resolve();
    }
    const count = Math.min(Math.max(this.#size, this.#waiting, FIRST), MOST);
    const { era, closing } = this.#calls;
    // Calls that wait for it keep the process alive.
    const deadline = new Deadline(this.#timeoutMs, closing.signal, PASSED, false);
    this.#deadline = deadline;
    this.#fetching = this.#calls
      .fetch(count, this.#source, deadline)
      .then(({ ids, began, beganWall, goodForMs }) => {
        const [until, wallUntil] = [began + goodForMs, beganWall + goodForMs];
        this.#ahead = { ids, at: 0, began, goodForMs, until, wallUntil, era, opened: 0 };
      })
      .catch((error) => {
        // The deadline of a fetch is none of the calls that wait for it.
        if (error !== PASSED) {
          throw error;
        }
      })
      .finally(() => {
        deadline.end();
        this.#fetching = undefined;
      });
    // Nobody may wait for it.
    this.#fetching.catch(() => {});
    return this.#fetching;
  }
}
