/** The end of a call: its deadline, its caller's signal, or the close of the client. */

/** The reason of a wait whose deadline passed. */
export const PASSED = Symbol("the deadline passed");

/** What waits for each signal. One listener serves all calls, so that Node does not warn. */
const watched = new WeakMap<AbortSignal, Set<Deadline>>();

export class Deadline {
  #at: number;
  #fail: (reason: unknown) => void = () => {};
  #failure: { reason: unknown } | undefined;
  #timer: NodeJS.Timeout;

  constructor(
    readonly allowedMs: number,
    private readonly signal?: AbortSignal | undefined,
  ) {
    this.#at = performance.now() + allowedMs;
    this.#timer = setTimeout(() => this.#ring(), allowedMs);
    if (signal?.aborted) {
      this.fail(signal.reason);
    } else if (signal !== undefined) {
      watch(signal).add(this);
    }
  }

  get at(): number {
    return this.#at;
  }

  get leftMs(): number {
    return Math.max(this.#at - performance.now(), 0);
  }

  /** Moves the end back: a fetch that several calls wait for ends with the last of them. */
  extend(other: Deadline): void {
    this.#at = Math.max(this.#at, other.#at);
  }

  /** Waits for one step of the call. */
  wait<T>(
    step: (resolve: (value: T) => void, reject: (error: unknown) => void) => void,
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.#failure !== undefined) {
        reject(this.#failure.reason);
        return;
      }
      this.#fail = reject;
      step(resolve, reject);
    });
  }

  /** Fails the call's present step, and later ones. */
  fail(reason: unknown): void {
    this.#failure ??= { reason };
    this.#fail(reason);
  }

  /** Frees what the call has. */
  end(): void {
    clearTimeout(this.#timer);
    if (this.signal !== undefined) {
      watched.get(this.signal)?.delete(this);
    }
  }

  #ring(): void {
    if (this.leftMs > 0) {
      this.#timer = setTimeout(() => this.#ring(), this.leftMs);
    } else {
      this.fail(PASSED);
    }
  }
}

function watch(signal: AbortSignal): Set<Deadline> {
  let waiting = watched.get(signal);
  if (waiting === undefined) {
    const made = new Set<Deadline>();
    waiting = made;
    watched.set(signal, made);
    const abort = () => {
      for (const deadline of [...made]) {
        deadline.fail(signal.reason);
      }
    };
    signal.addEventListener("abort", abort, { once: true });
  }
  return waiting;
}
