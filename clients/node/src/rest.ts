/** The endpoints: which one is next, and how long each rests after a failure. */

import { Dialer } from "./dial.js";
import type { SnowbankError } from "./errors.js";
import type { Settings, Times } from "./options.js";
import type { Row } from "./row.js";

/** One name with a port, or a Unix socket. */
export class Endpoint extends Dialer {
  connection: Row | undefined;
  /** The dial that all calls wait for. */
  dialing: Promise<Row> | undefined;
  /** The failures since it last answered, and the last of them. */
  failures = 0;
  error: SnowbankError | undefined;
  /** When it may be connected again, and when it could serve, as its daemon says. */
  restsUntil = 0;
  servesAt = 0;

  /** Keeps what it said to a call. Without an error, that was an answer. */
  note(error: SnowbankError | undefined): void {
    this.error = error;
    this.servesAt = error === undefined ? 0 : performance.now() + (error.retryAfterMs ?? 0);
  }

  /** The last that was heard of it. */
  get heard(): string {
    const silent = this.connection === undefined ? "not connected yet" : "connected, no answer yet";
    return this.error?.message ?? silent;
  }
}

/** The endpoints of a client. It stays at one while that serves, or takes them in turn. */
export class Endpoints {
  readonly all: readonly Endpoint[];
  readonly isLone: boolean;
  readonly #times: Times;
  readonly takesTurns: boolean;
  index: number;

  constructor(settings: Settings) {
    const { takeTurns = false, preferFirst } = settings.options;
    this.#times = settings.times;
    this.takesTurns = takeTurns;
    this.all = settings.addresses.map((address) => new Endpoint(address, settings));
    this.isLone = this.all.length === 1;
    this.index = preferFirst ? 0 : Math.floor(Math.random() * this.all.length);
  }

  /** Returns the endpoint of the next try: one that does not rest, or the first to be back. */
  pick(): Endpoint {
    const now = performance.now();
    const order = [...this.all.slice(this.index), ...this.all.slice(0, this.index)];
    const rest = (one: Endpoint) => Math.max(one.restsUntil, now);
    const best = order.reduce((a, b) => (rest(b) < rest(a) ? b : a));
    const turn = this.takesTurns && best.restsUntil <= now ? 1 : 0;
    this.index = (this.all.indexOf(best) + turn) % this.all.length;
    return best;
  }

  /** Lets an endpoint rest, and goes on to the next one. */
  failed(endpoint: Endpoint, error: SnowbankError): void {
    endpoint.failures += 1;
    endpoint.note(error);
    // A lone one is asked again at once: it may be a balancer's name.
    if (!this.isLone || endpoint.failures > 1) {
      const restMs = Math.max(this.backoffMs(endpoint.failures), this.pauseMs(error));
      endpoint.restsUntil = performance.now() + restMs;
    }
    if (endpoint === this.all[this.index] && !this.takesTurns) {
      this.index = (this.index + 1) % this.all.length;
    }
  }

  /** Returns a random rest. Its limit doubles with each failure but the first. */
  backoffMs(failures: number): number {
    const doubled = this.#times.backoffMs * 2 ** Math.min(failures - 1, 60);
    return Math.random() * Math.min(doubled, this.#times.maxBackoffMs);
  }

  /** Returns how long to wait after a daemon's words. The random part spreads a herd. */
  pauseMs(error: SnowbankError): number {
    return Math.min(error.retryAfterMs ?? 0, this.#times.maxPauseMs) * (1 + Math.random());
  }
}
