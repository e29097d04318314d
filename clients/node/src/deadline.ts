/** The time at which a call must end, and the caller's own way to end it. */

import { performance } from "node:perf_hooks";

/** The reason of a step that the deadline ended. */
export const PASSED = Symbol("the deadline has passed");

/** Starts one step of a call. Returns the function that gives the step up. */
export type Step<T> = (resolve: (value: T) => void, reject: (error: unknown) => void) => () => void;

/** The longest time that a timer of Node can wait, in ms: some 24 days. */
export const LONGEST_MS = 2 ** 31 - 1;

/**
 * A timer that lets the event loop read its sockets before it acts. A program that blocked the loop
 * finds its timers due first, and answers that have long arrived would come too late.
 */
export class PatientTimer {
  readonly #timeout: NodeJS.Timeout;
  #immediate: NodeJS.Immediate | undefined;

  /** Starts the timer, which does not keep the process alive by itself. */
  constructor(ms: number, act: () => void) {
    const patiently = () => {
      this.#immediate = setImmediate(act);
    };
    this.#timeout = setTimeout(patiently, Math.min(Math.max(0, ms), LONGEST_MS)).unref();
  }

  /** Keeps the process alive until the timer acts or is cancelled. */
  ref(): void {
    this.#timeout.ref();
  }

  cancel(): void {
    clearTimeout(this.#timeout);
    clearImmediate(this.#immediate);
  }
}

/** One deadline over all steps of a call. */
export class Deadline {
  readonly allowedMs: number;
  /** The instant of `performance.now()` at which the call ends. */
  readonly at: number;
  readonly #timer: PatientTimer;
  readonly #signal: AbortSignal | undefined;
  readonly #onAbort = () => this.#interrupt?.(this.#signal?.reason);
  #interrupt: ((reason: unknown) => void) | undefined;
  /** Set by the timer, which may be a fraction of a millisecond early. */
  #hasPassed = false;

  /**
   * Begins the time of a call. The process stays alive until `end`, except for a call in the
   * background.
   */
  constructor(allowedMs: number, signal?: AbortSignal, inBackground = false) {
    this.allowedMs = allowedMs;
    this.at = performance.now() + allowedMs;
    this.#timer = new PatientTimer(allowedMs, () => {
      this.#hasPassed = true;
      this.#interrupt?.(PASSED);
    });
    if (!inBackground) {
      this.#timer.ref();
    }
    this.#signal = signal;
    signal?.addEventListener("abort", this.#onAbort);
  }

  /** The time that is left, in ms. */
  get leftMs(): number {
    return Math.max(0, this.at - performance.now());
  }

  /** Runs one step. Rejects with PASSED, or with the signal's reason, and abandons the step. */
  step<T>(start: Step<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (this.#signal?.aborted === true) {
        reject(this.#signal.reason);
        return;
      }
      if (this.#hasPassed || this.leftMs === 0) {
        reject(PASSED);
        return;
      }
      const abandon = start(resolve, reject);
      this.#interrupt = (reason) => {
        abandon();
        reject(reason);
      };
    });
  }

  /** Ends the deadline. */
  end(): void {
    this.#interrupt = undefined;
    this.#timer.cancel();
    this.#signal?.removeEventListener("abort", this.#onAbort);
  }
}
