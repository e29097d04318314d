import { Batch } from "./batch.js";
import { Deadline, PASSED } from "./deadline.js";
import { badArgument, isRetried, movesOn, SnowbankError } from "./errors.js";
import { Ids, type IdsOptions } from "./ids.js";
import type { Info } from "./info.js";
import {
  type ClientOptions,
  checkMs,
  checkNumber,
  MAX_CALLS,
  MAX_COUNT,
  Settings,
} from "./options.js";
import { Pool, type Served, type Target } from "./pool.js";
import { type Ask, InfoRequest, NextRequest, type Request } from "./requests.js";
import { WorkerCheck } from "./same-workers.js";

/** The options of one call. */
export interface CallOptions {
  /** Ends the call early, with the signal's reason as its error. */
  signal?: AbortSignal | undefined;
  /** The deadline of this call, instead of the client's. */
  timeoutMs?: number | undefined;
}

/** The options of a batch. */
export interface BatchOptions extends CallOptions {
  /** The source's name. By default the daemon's default source. */
  source?: string | undefined;
  /** How long the daemon may wait for IDs that its layout does not allow yet. */
  maxWaitMs?: number | undefined;
  /** Accepts fewer IDs, at least one, if that wait ends first. */
  partial?: boolean | undefined;
  /** @internal Asks for every ID instead of runs, to test readers of such replies. */
  explicit?: boolean | undefined;
}

/** A try that was answered, and by whom. */
interface Answered<T> {
  target: Target;
  value: T;
}

/**
 * A client of one daemon, or of several of which one is used at a time. Make one for a process or
 * thread, and share it: its calls go over one connection without waiting for each other.
 */
export class Client {
  readonly #settings: Settings;
  readonly #pool: Pool;
  readonly #check: WorkerCheck;
  #calls = 0;
  #closed: SnowbankError | undefined;

  /**
   * Creates a client of the daemons at these addresses: `host:port`, `[IPv6]:port`, `tls:host:port`
   * or `unix:PATH`. A host name may stand for several daemons. The first call connects.
   *
   * @throws {SnowbankError} `bad_argument` for an address or option that is not allowed.
   */
  constructor(addresses: string | readonly string[], options: ClientOptions = {}) {
    this.#settings = new Settings(addresses, options);
    this.#pool = new Pool(this.#settings, () => this.#check.start());
    this.#check = new WorkerCheck(this.#pool);
  }

  /**
   * Fetches IDs in one round trip.
   *
   * @throws {SnowbankError} As every call does, at its deadline at the latest.
   */
  async batch(count: number, options: BatchOptions = {}): Promise<Batch> {
    const timeoutMs = checkMs("timeoutMs", options.timeoutMs ?? this.#settings.timeoutMs);
    const { source, partial = false, explicit } = options;
    checkSource(source);
    let { maxWaitMs } = options;
    if (maxWaitMs !== undefined) {
      maxWaitMs = Math.min(checkNumber("maxWaitMs", maxWaitMs, 0, 2 ** 31 - 1), timeoutMs);
    }
    const ask: Ask = { count: checkCount(count), source, maxWaitMs, partial, explicit };
    const deadline = new Deadline(timeoutMs, options.signal);
    try {
      return await this.fetch(ask, deadline);
    } finally {
      deadline.end();
    }
  }

  /**
   * Creates a buffer that hands out IDs one at a time and is refilled in the background.
   *
   * @throws {SnowbankError} `bad_argument` for an option that is not allowed.
   */
  ids(options: IdsOptions = {}): Ids {
    checkSource(options.source);
    return new Ids(this, options, this.#settings.timeoutMs);
  }

  /** Fetches the daemon's version, limits and sources. */
  async info(options: CallOptions = {}): Promise<Info> {
    const timeoutMs = checkMs("timeoutMs", options.timeoutMs ?? this.#settings.timeoutMs);
    const deadline = new Deadline(timeoutMs, options.signal);
    try {
      return (await this.#call(() => new InfoRequest(), deadline)).value;
    } finally {
      deadline.end();
    }
  }

  /** Returns the error of each endpoint that failed when it was last tried. */
  endpointErrors(): SnowbankError[] {
    return this.#pool.errors();
  }

  /** Closes the connections. Waiting calls fail with `closed`, and so do later ones. */
  close(): void {
    this.#closed ??= new SnowbankError("closed", "the client is closed: create another one");
    this.#check.stop();
    this.#pool.close(this.#closed);
  }

  /** @internal Returns the error of every call, if there is one. */
  get stopped(): SnowbankError | undefined {
    return this.#closed ?? this.#check.error;
  }

  /** @internal Fetches IDs within a deadline. */
  async fetch(ask: Ask, deadline: Deadline): Promise<Batch> {
    const { target, value } = await this.#call(() => new NextRequest(ask), deadline);
    return new Batch(target.name, value);
  }

  /** @internal Waits between two tries. Rejects with PASSED, or with the error of a close. */
  pause(ms: number, deadline: Deadline): Promise<void> {
    return deadline.step(this.#pool.pause(ms));
  }

  /** @internal Returns the error of a call whose deadline has passed. */
  passed(allowedMs: number, last: SnowbankError | undefined): SnowbankError {
    const { connected } = this.#pool;
    const cause = connected === undefined ? this.#pool.failure() : last;
    const why = cause === undefined ? "" : `; last: ${cause.message}`;
    const from = connected === undefined ? "" : ` from ${connected}`;
    const text = `no answer${from} within ${allowedMs} ms${why}`;
    return new SnowbankError("timeout", text, { cause, retryAfterMs: cause?.retryAfterMs });
  }

  /** Sends a call until it is answered, with another try where that may help. */
  async #call<T>(make: () => Request<T>, deadline: Deadline): Promise<Answered<T>> {
    if (this.#calls >= MAX_CALLS) {
      const advice = "ask for more IDs at a time, or take them from ids()";
      throw new SnowbankError("too_many_calls", `${MAX_CALLS} calls wait already; ${advice}`);
    }
    this.#calls += 1;
    try {
      return await this.#try(make, deadline);
    } finally {
      this.#calls -= 1;
    }
  }

  async #try<T>(make: () => Request<T>, deadline: Deadline): Promise<Answered<T>> {
    const tries: Tries = { count: 0, last: undefined, exhausted: [], served: undefined };
    for (;;) {
      if (this.stopped !== undefined) {
        throw this.stopped;
      }
      try {
        return await this.#tryOnce(make, deadline, tries);
      } catch (error) {
        if (error === PASSED) {
          throw soonest(tries.exhausted) ?? this.passed(deadline.allowedMs, tries.last);
        }
        if (!(error instanceof SnowbankError) || error === this.#closed) {
          throw error;
        }
        const pauseMs = this.#pauseAfter(error, deadline, tries);
        if (pauseMs > 0) {
          await this.pause(pauseMs, deadline).catch((reason) => {
            throw reason === PASSED ? error : reason;
          });
        }
      }
    }
  }

  async #tryOnce<T>(
    make: () => Request<T>,
    deadline: Deadline,
    tries: Tries,
  ): Promise<Answered<T>> {
    tries.served = undefined;
    const { target, connection } = await deadline.step(this.#pool.acquire);
    tries.served = { target, connection };
    const request = make();
    const value = await deadline.step<T>((resolve, reject) =>
      connection.send(request, resolve, reject),
    );
    return { target, value };
  }

  /** Returns the pause before the next try. Throws the error of a call that has none. */
  #pauseAfter(error: SnowbankError, deadline: Deadline, tries: Tries): number {
    tries.count += 1;
    tries.last = error;
    const isAlone = this.#pool.targets.length === 1;
    const waitMs = error.retryAfterMs;
    if (error.code === "exhausted" && waitMs !== undefined && waitMs > deadline.leftMs) {
      return this.#leaveExhausted(error, waitMs, tries);
    }
    if (!isRetried(error)) {
      throw error;
    }
    // A single daemon that refuses because of its state keeps its connection, and is asked again.
    const pauseMs =
      movesOn(error) && isAlone ? (waitMs ?? 0) + this.#pool.backoffMs(tries.count) : 0;
    // The refusal with its time to wait helps the caller more than an error about the deadline.
    if (deadline.leftMs <= pauseMs) {
      throw movesOn(error) ? error : this.passed(deadline.allowedMs, error);
    }
    return pauseMs;
  }

  /** Goes on to the next daemon, unless each has said that it has no IDs in time. */
  #leaveExhausted(error: SnowbankError, waitMs: number, tries: Tries): number {
    const isFirst = tries.exhausted.every((earlier) => earlier.endpoint !== error.endpoint);
    tries.exhausted.push(error);
    if (!isFirst || tries.exhausted.length >= this.#pool.targets.length) {
      throw soonest(tries.exhausted) ?? error;
    }
    if (tries.served !== undefined) {
      this.#pool.preferOthers(tries.served.target, waitMs);
    }
    return 0;
  }
}

/** The tries of one call so far. */
interface Tries {
  count: number;
  last: SnowbankError | undefined;
  /** The `exhausted` refusals that outlast the deadline. */
  exhausted: SnowbankError[];
  /** The connection of the latest try. */
  served: Served | undefined;
}

/** Returns the refusal with the shortest time to wait. */
function soonest(exhausted: readonly SnowbankError[]): SnowbankError | undefined {
  const least = Math.min(...exhausted.map((error) => error.retryAfterMs ?? 0));
  return exhausted.find((error) => error.retryAfterMs === least);
}

/** Checks how many IDs a call asks for. Throws `bad_count`. */
function checkCount(count: number): number {
  if (!Number.isInteger(count) || count < 1 || count > MAX_COUNT) {
    const advice = `a whole number from 1 to ${MAX_COUNT} is allowed, and the daemon's max_count`;
    throw new SnowbankError("bad_count", `the count is ${String(count)}; ${advice}`);
  }
  return count;
}

function checkSource(source: unknown): void {
  if (source !== undefined && typeof source !== "string") {
    const advice = "a source has a name, because its index differs from daemon to daemon";
    throw badArgument(`the source is ${String(source)}; ${advice}`);
  }
}
