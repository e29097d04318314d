/** The end of a call: its deadline, its caller's signal, or the close of the client. */

import { setMaxListeners } from "node:events";

/** What a call fails with when its deadline passes. */
export const PASSED = Symbol("the deadline passed");

export class Deadline {
  at: number;
  /** Fails the call's present step, and later ones. */
  fail!: (reason: unknown) => void;
  readonly #failure: Promise<never>;
  readonly #abort = () => this.fail(this.signal?.reason);
  #timer: NodeJS.Timeout;

  constructor(
    readonly allowedMs: number,
    readonly signal?: AbortSignal | undefined,
    private readonly passed: unknown = PASSED,
    private readonly keepsAlive = true,
  ) {
    this.at = performance.now() + allowedMs;
    this.#failure = new Promise((_, reject) => {
      this.fail = reject;
    });
    this.#failure.catch(() => {});
    if (signal?.aborted) {
      this.#abort();
    } else if (signal !== undefined) {
      // Node warns of more than ten listeners, and any number of calls may have one signal.
      setMaxListeners(0, signal);
      signal.addEventListener("abort", this.#abort);
    }
    this.#timer = this.#ringIn(allowedMs);
  }

  get leftMs(): number {
    return Math.max(this.at - performance.now(), 0);
  }

  /** Waits for one step of the call. */
  wait<T>(step: Promise<T>): Promise<T> {
    return Promise.race([this.#failure, step]);
  }

  /** Frees what the call has. */
  end(): void {
    clearTimeout(this.#timer);
    this.signal?.removeEventListener("abort", this.#abort);
  }

  #ring(): void {
    if (this.leftMs > 0) {
      // A further call waits for this fetch.
      this.#timer = this.#ringIn(this.leftMs);
    } else {
      this.fail(this.passed);
    }
  }

  #ringIn(ms: number): NodeJS.Timeout {
    const timer = setTimeout(() => this.#ring(), ms);
    return this.keepsAlive ? timer : timer.unref();
  }
}

/** Waits for work, at most for a time. */
export async function within<T>(work: Promise<T>, ms: number, late: Error): Promise<T> {
  const limit = new Deadline(ms, undefined, late);
  try {
    return await limit.wait(work);
  } finally {
    limit.end();
  }
}
