/**
 * IDs one at a time, from a buffer that is refilled in the background.
 *
 * ```text
 *   next() ─▶ slice of IDs ─▶ current stock ─▶ next stock ─▶ fetch, one at a time
 * ```
 */

import { performance } from "node:perf_hooks";
import type { Batch } from "./batch.js";
import type { CallOptions, Client } from "./client.js";
import { Deadline, LONGEST_MS, PASSED } from "./deadline.js";
import { SnowbankError } from "./errors.js";
import { checkMs, checkNumber, MAX_CALLS, MAX_COUNT } from "./options.js";
import type { RunReader } from "./runs.js";

/** The options of a buffer. */
export interface IdsOptions {
  /** The source's name. By default the daemon's default source. */
  source?: string | undefined;
  /** The most IDs of one fetch (10,000). Fetches begin small and follow the demand up to this. */
  maxBatch?: number | undefined;
  /** How long an ID may stay in the buffer, in ms (1,000). */
  maxAgeMs?: number | undefined;
  /** The deadline of a call that finds no ID in the buffer, instead of the client's, in ms. */
  timeoutMs?: number | undefined;
}

/** The IDs between two looks at the monotonic clock, and at how many are left. */
const SLICE = 256;

/** The most IDs of the first fetch. The demand is not known yet. */
const FIRST_FETCH = 16;

/** The most by which one fetch may exceed the one before it. */
const GROWTH = 4;

/** The part of the maximum age that a stock should last, so that few of its IDs get too old. */
const LASTING_PART = 4;

/** The time that a daemon may take to gather a batch, in ms. Then it sends a part. */
const GATHERING_MS = 10;

/** The pauses after batches without a usable ID, in ms: the first, and the longest. */
const PAUSES_MS = [1, 64] as const;

/** How long a fetch asks again if its IDs are lower, in ms. It exceeds any common burst window. */
const LOWER_FOR_MS = 1000;

/** The most IDs of a request that follows a batch of lower IDs. All of them may be skipped. */
const RETRY_COUNT = 16;

/** A batch in the buffer, and its age by two clocks. */
interface Stock {
  reader: RunReader;
  /** The number of usable IDs at the start. */
  count: number;
  /** When its first IDs were taken. */
  openedAt: number | undefined;
  /** `performance.now()` and `Date.now()` of the request. */
  asked: Instant;
}

/** An instant by two clocks, in ms: one that nobody sets, and one that goes on in sleep. */
interface Instant {
  monotonic: number;
  wall: number;
}

/** A call of {@link Ids.next} that waits for a fetch. */
interface Waiter {
  resolve: (id: bigint) => void;
  reject: (error: unknown) => void;
}

/**
 * A buffer that hands out IDs one at a time. Waiting calls are served in their order. IDs increase
 * while they come from one endpoint.
 *
 * No ID is handed out later than `maxAgeMs` after it was requested. The age counts by the wall
 * clock for each ID, because that goes on while the machine sleeps, and by the monotonic clock with
 * a timer and every 256 IDs. A wall clock that is set back beyond the request drops the buffer.
 */
export class Ids {
  readonly #client: Client;
  readonly #source: string | undefined;
  readonly #maxAgeMs: number;
  readonly #timeoutMs: number;
  #maxBatch: number;
  /** The IDs that were taken from the current stock. Those before `#at` are handed out. */
  readonly #slice = new BigUint64Array(SLICE);
  #at = 0;
  #end = 0;
  /** The wall clock's readings between which the slice is usable. */
  #usableFrom = 0;
  #usableUntil = 0;
  /**
   * Ends the slice's use when its stock is too old, in case the wall clock stands or was set back.
   */
  #ageTimer: NodeJS.Timeout | undefined;
  #current: Stock | undefined;
  #next: Stock | undefined;
  #isFetching = false;
  #fetchCount: number;
  /** The highest ID of the newest batch, and its endpoint. */
  #highest: { endpoint: string; id: bigint } | undefined;
  readonly #waiting = new Set<Waiter>();
  /** The error of the latest fetch, for a call whose deadline passes. */
  #lastError: SnowbankError | undefined;

  /** @internal */
  constructor(client: Client, options: IdsOptions, timeoutMs: number) {
    this.#client = client;
    this.#source = options.source;
    this.#maxBatch = checkNumber("maxBatch", options.maxBatch ?? 10_000, 1, MAX_COUNT);
    this.#maxAgeMs = checkNumber("maxAgeMs", options.maxAgeMs ?? 1000, 1, LONGEST_MS);
    this.#timeoutMs = checkMs("timeoutMs", options.timeoutMs ?? timeoutMs);
    this.#fetchCount = Math.min(FIRST_FETCH, this.#maxBatch);
  }

  /**
   * Returns the next ID if the buffer has one, and undefined while it is refilled. It never waits.
   * `ids.tryNext() ?? (await ids.next())` is the fast way to an ID.
   *
   * @throws {SnowbankError} `closed` or `same_worker_ids`.
   */
  tryNext(): bigint | undefined {
    const at = this.#at;
    if (at < this.#end && this.#client.stopped === undefined) {
      const now = Date.now();
      if (now < this.#usableUntil && now >= this.#usableFrom) {
        this.#at = at + 1;
        return this.#slice[at];
      }
    }
    return this.#takeSlow();
  }

  /**
   * Returns the next ID: at once from the buffer, or with the next reply.
   *
   * @throws {SnowbankError} If the buffer is empty and could not be refilled in time. The next call
   * tries again.
   */
  async next(options: CallOptions = {}): Promise<bigint> {
    options.signal?.throwIfAborted();
    const timeoutMs = checkMs("timeoutMs", options.timeoutMs ?? this.#timeoutMs);
    const id = this.#waiting.size === 0 ? this.tryNext() : undefined;
    return id ?? this.#wait(timeoutMs, options.signal);
  }

  /** Returns the next ID as a decimal string, for JSON and for drivers that take no bigint. */
  async nextString(options: CallOptions = {}): Promise<string> {
    return String(await this.next(options));
  }

  async #wait(timeoutMs: number, signal: AbortSignal | undefined): Promise<bigint> {
    if (this.#waiting.size >= MAX_CALLS) {
      const text = `${MAX_CALLS} calls wait for an ID already; wait for some of them first`;
      throw new SnowbankError("too_many_calls", text);
    }
    const deadline = new Deadline(timeoutMs, signal);
    try {
      return await deadline.step<bigint>((resolve, reject) => {
        const waiter = { resolve, reject };
        this.#waiting.add(waiter);
        this.#fetchMore();
        return () => this.#waiting.delete(waiter);
      });
    } catch (error) {
      throw error === PASSED ? this.#client.passed(timeoutMs, this.#lastError) : error;
    } finally {
      deadline.end();
    }
  }

  /** Takes the first ID of the next slice, or starts a fetch. */
  #takeSlow(): bigint | undefined {
    if (this.#client.stopped !== undefined) {
      this.#drop();
      throw this.#client.stopped;
    }
    // IDs remain if they got too old.
    const unused = this.#end - this.#at;
    this.#at = 0;
    this.#end = 0;
    while (this.#current !== undefined || this.#next !== undefined) {
      const current = this.#current;
      if (current !== undefined && this.#cut(current, unused)) {
        this.#at = 1;
        return this.#slice[0];
      }
      this.#current = this.#next;
      this.#next = undefined;
    }
    this.#fetchMore();
    return undefined;
  }

  /** Cuts the next slice from a stock. Returns false if it is used up or too old. */
  #cut(stock: Stock, unused: number): boolean {
    const monotonic = performance.now();
    const wall = Date.now();
    const { asked } = stock;
    const ageMs = Math.max(monotonic - asked.monotonic, wall - asked.wall);
    if (ageMs >= this.#maxAgeMs || wall < asked.wall) {
      if (stock.openedAt !== undefined) {
        const used = stock.count - stock.reader.left - unused;
        this.#fetchCount = Math.min(Math.max(1, used), this.#maxBatch);
      }
      return false;
    }
    if (stock.reader.left <= stock.count / 2 && this.#next === undefined && !this.#isFetching) {
      this.#fetchCount = this.#nextCount(stock, monotonic);
      void this.#fetch();
    }
    if (stock.openedAt === undefined) {
      stock.openedAt = monotonic;
      clearTimeout(this.#ageTimer);
      this.#ageTimer = setTimeout(() => {
        this.#usableUntil = 0;
      }, this.#maxAgeMs - ageMs).unref();
    }
    // It ends where half of the stock is used, so that the next fetch starts in time.
    const untilHalf = stock.reader.left - Math.floor(stock.count / 2);
    this.#end = stock.reader.fill(this.#slice, untilHalf > 0 ? Math.min(SLICE, untilHalf) : SLICE);
    this.#usableFrom = asked.wall;
    this.#usableUntil = asked.wall + this.#maxAgeMs;
    return this.#end > 0;
  }

  /** Returns how many IDs last for a part of the maximum age, at the pace of this stock. */
  #nextCount(stock: Stock, now: number): number {
    if (stock.openedAt === undefined) {
      return this.#fetchCount;
    }
    const paceMs = Math.max(now - stock.openedAt, 0.001);
    const used = stock.count - stock.reader.left;
    const wanted = Math.floor((used * this.#maxAgeMs) / LASTING_PART / paceMs);
    const most = Math.min(this.#fetchCount * GROWTH, this.#maxBatch);
    return Math.max(1, Math.min(wanted, most));
  }

  /** Starts a fetch for the calls that wait, unless one is in flight. */
  #fetchMore(): void {
    if (!this.#isFetching) {
      this.#fetchCount = Math.min(Math.max(this.#fetchCount, this.#waiting.size), this.#maxBatch);
      void this.#fetch();
    }
  }

  /** Fetches a stock, hands its IDs to the calls that wait, and goes on while some are left. */
  async #fetch(): Promise<void> {
    this.#isFetching = true;
    const deadline = new Deadline(this.#timeoutMs, undefined, true);
    try {
      this.#keep(await this.#usableBatch(deadline));
      this.#lastError = undefined;
    } catch (error) {
      this.#failed(error as SnowbankError);
    }
    deadline.end();
    this.#isFetching = false;
    this.#serveWaiting();
  }

  #serveWaiting(): void {
    try {
      for (const waiter of this.#waiting) {
        const id = this.tryNext();
        if (id === undefined) {
          break;
        }
        this.#waiting.delete(waiter);
        waiter.resolve(id);
      }
    } catch (error) {
      this.#rejectWaiting(error as SnowbankError);
    }
    if (this.#waiting.size > 0) {
      this.#fetchMore();
    }
  }

  /** Fails the waiting calls, unless another fetch may help them before their own deadlines. */
  #failed(error: SnowbankError): void {
    this.#lastError = error;
    if (error.code === "bad_count" && this.#fetchCount > 1) {
      // The daemon's max_count is below the fetch.
      this.#fetchCount = Math.floor(this.#fetchCount / 2);
      this.#maxBatch = this.#fetchCount;
    } else if (error.code !== "timeout") {
      if (error.code === "went_back") {
        // The caller learns of it, so the next fetch takes lower IDs.
        this.#highest = undefined;
      }
      this.#rejectWaiting(error);
    }
  }

  #rejectWaiting(error: SnowbankError): void {
    for (const waiter of this.#waiting) {
      this.#waiting.delete(waiter);
      waiter.reject(error);
    }
  }

  /** Makes a batch the next stock, without the IDs that are not above the earlier ones. */
  #keep({ batch, asked }: { batch: Batch; asked: Instant }): void {
    const reader = batch.reader();
    if (this.#highest?.endpoint === batch.endpoint) {
      reader.skipTo(this.#highest.id);
    }
    this.#highest = { endpoint: batch.endpoint, id: batch.last };
    this.#next = { reader, count: reader.left, openedAt: undefined, asked };
  }

  /** Returns a batch with at least one usable ID, before the deadline. */
  async #usableBatch(deadline: Deadline): Promise<{ batch: Batch; asked: Instant }> {
    const ask = { source: this.#source, maxWaitMs: GATHERING_MS, partial: true };
    let count = this.#fetchCount;
    let descendedAt: number | undefined;
    let pauseMs: number = PAUSES_MS[0];
    for (;;) {
      const asked = { monotonic: performance.now(), wall: Date.now() };
      const outcome = await this.#client.fetch({ ...ask, count }, deadline).catch((error) => {
        return this.#waitIfExhausted(error, deadline);
      });
      if (typeof outcome === "number") {
        await this.#pause(deadline, outcome);
        continue;
      }
      const error = this.#wentBack(outcome);
      if (error === undefined) {
        return { batch: outcome, asked };
      }
      count = Math.min(count, RETRY_COUNT);
      descendedAt ??= asked.monotonic;
      const limitMs = Math.min(LOWER_FOR_MS, this.#timeoutMs / 2);
      if (performance.now() - descendedAt + pauseMs > limitMs) {
        throw error;
      }
      await this.#pause(deadline, pauseMs);
      pauseMs = Math.min(pauseMs * 2, PAUSES_MS[1]);
    }
  }

  /**
   * Returns how long to wait for IDs. The request allowed a short wait; the deadline may be longer.
   */
  #waitIfExhausted(error: unknown, deadline: Deadline): number {
    const { code, retryAfterMs = Number.POSITIVE_INFINITY } = error as Partial<SnowbankError>;
    if (code !== "exhausted" || retryAfterMs >= deadline.leftMs) {
      throw error;
    }
    return Math.max(retryAfterMs, PAUSES_MS[0]);
  }

  async #pause(deadline: Deadline, ms: number): Promise<void> {
    await this.#client.pause(ms, deadline).catch((reason) => {
      throw reason === PASSED ? this.#client.passed(deadline.allowedMs, this.#lastError) : reason;
    });
  }

  /** Returns an error if all IDs of the batch are below one that came from the same endpoint. */
  #wentBack(batch: Batch): SnowbankError | undefined {
    const { endpoint, last } = batch;
    const highest = this.#highest;
    if (highest === undefined || highest.endpoint !== endpoint || last > highest.id) {
      return undefined;
    }
    const found = `the IDs of ${endpoint} went back: ${last} came after ${highest.id}`;
    const reason =
      "from another daemon or layout at the same address; the next call goes on from there";
    return new SnowbankError("went_back", `${found}, ${reason}`, { endpoint });
  }

  #drop(): void {
    this.#at = 0;
    this.#end = 0;
    this.#current = undefined;
    this.#next = undefined;
  }
}
