import { EventEmitter } from "node:events";
import { Ids } from "./buffer.js";
import { Calls } from "./call.js";
import { Deadline } from "./deadline.js";
import {
  type ClientOptions,
  checkCount,
  checkMs,
  given,
  Settings,
  sourceBytes,
} from "./options.js";
import type { ClientEvents, Stats } from "./stats.js";

/** The options of a batch. */
export interface BatchOptions {
  /** Ends the call early, with the signal's reason as its error. */
  signal?: AbortSignal | undefined;
  /** The deadline of this call, instead of the client's. */
  timeoutMs?: number | undefined;
  /** The source's name, instead of the client's. */
  source?: string | undefined;
}

/** The options of one call. */
export type CallOptions = Omit<BatchOptions, "source">;

/** The options of a buffer. `timeoutMs` is the deadline of `next`. */
export type IdsOptions = Omit<BatchOptions, "signal">;

/** Frees the sockets of clients that nobody can reach any more. */
const dropped = new FinalizationRegistry<Calls>((calls) => void calls.close(0));

/** Node 18.13 has no `Symbol.asyncDispose`. */
const asyncDispose = (Symbol.asyncDispose ??
  Symbol.for("nodejs.asyncDispose")) as typeof Symbol.asyncDispose;

export interface Client {
  on<K extends keyof ClientEvents>(name: K, listener: (...event: ClientEvents[K]) => void): this;
  once<K extends keyof ClientEvents>(name: K, listener: (...event: ClientEvents[K]) => void): this;
  off<K extends keyof ClientEvents>(name: K, listener: (...event: ClientEvents[K]) => void): this;
}

/**
 * A client of one daemon, or of several of which one is used at a time. Make one for a process or
 * thread, and share it: its calls go over one connection without waiting for each other.
 *
 * Its events are `connected`, `failed`, `refused`, `collision` and `collision_over`.
 */
// biome-ignore lint/suspicious/noUnsafeDeclarationMerging: the interface types inherited methods.
export class Client extends EventEmitter {
  readonly #settings: Settings;
  readonly #calls: Calls;

  /**
   * Creates a client of the daemons at these endpoints: `host:port`, `[IPv6]:port`, `tls:host:port`
   * or `unix:PATH`. It begins with a random one. The first call connects.
   *
   * @throws {SnowbankError} `bad_argument` for an endpoint or option that is not allowed.
   */
  constructor(endpoints: string | readonly string[], options: ClientOptions = {}) {
    super();
    this.#settings = new Settings(endpoints, options);
    const client = new WeakRef(this);
    this.#calls = new Calls(this.#settings, (name, ...event) => {
      try {
        (client.deref() as EventEmitter | undefined)?.emit(name, ...event);
      } catch (error) {
        // A listener's error is its own.
        queueMicrotask(() => {
          throw error;
        });
      }
    });
    dropped.register(this, this.#calls);
  }

  /**
   * Fetches IDs in one round trip: increasing, and no other client has them.
   *
   * @throws {SnowbankError} As every call does, at its deadline at the latest.
   */
  async batch(count: number, options: BatchOptions = {}): Promise<bigint[]> {
    checkCount(count);
    const { source, ...call } = given(options, ["signal", "timeoutMs", "source"]);
    const name = this.#source(source);
    return this.#run((by) => this.#calls.batch(count, name, by), call);
  }

  /**
   * Creates a buffer that hands out IDs one at a time. Make one, and share it.
   *
   * @throws {SnowbankError} `bad_argument` for an option that is not allowed.
   */
  ids(options: IdsOptions = {}): Ids {
    const { source, timeoutMs = this.#settings.timeoutMs } = given(options, [
      "timeoutMs",
      "source",
    ]);
    return new Ids(this, this.#calls, this.#source(source), checkMs(timeoutMs));
  }

  /** Rejects unless a daemon answers. */
  async ping(options: CallOptions = {}): Promise<void> {
    await this.#run((by) => this.#calls.ping(by), given(options, ["signal", "timeoutMs"]));
  }

  /** Returns what the client did so far. */
  stats(): Stats {
    return this.#calls.stats();
  }

  /**
   * Closes the connections. Later calls fail with `closed`. With `timeoutMs`, calls in flight have
   * so long to end. Without, they fail with `closed` at once.
   */
  async close(options: { timeoutMs?: number | undefined } = {}): Promise<void> {
    const { timeoutMs } = given(options, ["timeoutMs"]);
    await this.#calls.close(timeoutMs === undefined ? 0 : checkMs(timeoutMs));
  }

  [asyncDispose](): Promise<void> {
    return this.close();
  }

  #source(source: string | undefined): Buffer {
    return sourceBytes(source ?? this.#settings.options.source);
  }

  #run<T>(work: (deadline: Deadline) => Promise<T>, options: CallOptions): Promise<T> {
    const timeoutMs = checkMs(options.timeoutMs ?? this.#settings.timeoutMs);
    return this.#calls.run(work, new Deadline(timeoutMs, options.signal));
  }
}
