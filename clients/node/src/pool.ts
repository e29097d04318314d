/**
 * The daemons of a client: which one serves the next call, which rest after a failure, and which
 * addresses the names stand for.
 *
 * ```text
 *   endpoint ─▶ target, one for each address of a name ─▶ connection, at most one
 *   "ids:7660"  health: failures, rest, last error
 * ```
 */

import { lookup } from "node:dns/promises";
import { performance } from "node:perf_hooks";
import type { Endpoint } from "./address.js";
import { Connection } from "./connection.js";
import { PatientTimer, type Step } from "./deadline.js";
import { describe, dial } from "./dial.js";
import { isFinal, joined, lost, type SnowbankError, unreachable } from "./errors.js";
import type { Info } from "./info.js";
import type { Settings } from "./options.js";

/** How long the addresses of a name count while connections last, in ms. */
const LOOKUP_MS = 30_000;

/** The shortest time between two look-ups of a name without a connection, in ms. */
const RELOOKUP_MS = 1000;

/** The limits of the random pause after the first failure of a daemon, and after many, in ms. */
const MIN_BACKOFF_MS = 50;
const MAX_BACKOFF_MS = 5000;

/** One daemon, as far as an address tells. */
export class Target {
  readonly endpoint: Endpoint;
  /** The IP address, empty for a Unix socket. Undefined for a name that is not looked up yet. */
  readonly address: string | undefined;
  /** The name in errors and on batches. */
  name: string;
  connection: Connection | undefined;
  connecting: Promise<Connection> | undefined;
  /** The failures since it last answered. */
  failures = 0;
  /** The earliest time for the next try. */
  notBefore = 0;
  /** The time until which another target is preferred, because this one has no IDs. */
  exhaustedUntil = 0;
  /** The error since it last served. */
  error: SnowbankError | undefined;

  constructor(endpoint: Endpoint, address: string | undefined) {
    this.endpoint = endpoint;
    this.address = address;
    this.name = endpoint.text;
  }

  get live(): Connection | undefined {
    return this.connection?.isUsable === true ? this.connection : undefined;
  }
}

/** A connection, with the target that it belongs to. */
export interface Served {
  target: Target;
  connection: Connection;
}

interface Waiter {
  resolve: (served: Served) => void;
  reject: (error: unknown) => void;
}

export class Pool {
  readonly #settings: Settings;
  readonly #onGreeted: () => void;
  #targets: Target[];
  /** When each name was last looked up. */
  readonly #lookedUp = new Map<Endpoint, number>();
  /** The preferred target, and for calls that take turns the last one. */
  #current: Target;
  readonly #waiting = new Set<Waiter>();
  /** The calls that pause between two tries. */
  readonly #pausing = new Set<(error: SnowbankError) => void>();
  #isDriving = false;
  #isClosed = false;

  /** `onGreeted` is called after each greeting of a connection for calls. */
  constructor(settings: Settings, onGreeted: () => void) {
    this.#settings = settings;
    this.#onGreeted = onGreeted;
    this.#targets = settings.endpoints.map((endpoint) => {
      return new Target(endpoint, endpoint.isName ? undefined : endpoint.host);
    });
    this.#current = this.#targets[0]!;
  }

  get targets(): readonly Target[] {
    return this.#targets;
  }

  /** Returns a connection for a call, in one step. */
  readonly acquire: Step<Served> = (resolve, reject) => {
    if (this.#settings.takeTurns) {
      this.#current = this.#nextInTurn();
    }
    const target = this.#current;
    if (target.live !== undefined) {
      this.#tryEarlier(target);
      resolve({ target, connection: target.live });
      return () => {};
    }
    const waiter = { resolve, reject };
    this.#waiting.add(waiter);
    if (this.#settings.takeTurns && target.address !== undefined) {
      // The driver may be busy with another target.
      this.#connect(target).catch(() => {});
    }
    void this.#drive();
    return () => this.#waiting.delete(waiter);
  };

  /** Waits between two tries, in one step. Closing the pool ends the wait with its error. */
  pause(ms: number): Step<void> {
    return (resolve, reject) => {
      const end = () => {
        clearTimeout(timer);
        this.#pausing.delete(reject);
      };
      const timer = setTimeout(() => {
        end();
        resolve();
      }, ms).unref();
      this.#pausing.add(reject);
      return end;
    };
  }

  /**
   * Returns the next target that serves, or has not failed yet. Tries the failed ones meanwhile.
   */
  #nextInTurn(): Target {
    const now = performance.now();
    for (const endpoint of this.#settings.endpoints) {
      if (this.#isLookupDue(endpoint, LOOKUP_MS)) {
        void this.lookUp(endpoint);
      }
    }
    for (const target of this.#targets) {
      const isDue = target.error !== undefined && target.notBefore <= now;
      if (isDue && target.live === undefined && target.address !== undefined) {
        this.#connect(target).catch(() => {});
      }
    }
    const ready = this.#inOrder(1).filter((target) => target.live ?? target.error === undefined);
    return ready.find((target) => target.exhaustedUntil <= now) ?? ready[0] ?? this.#current;
  }

  /** Connects to the endpoints before that of the target that serves, if they are preferred. */
  #tryEarlier(serving: Target): void {
    if (!this.#settings.preferFirst) {
      return;
    }
    const now = performance.now();
    for (const target of this.#before(serving)) {
      if (target.notBefore > now || target.exhaustedUntil > now) {
        continue;
      }
      // A daemon may come back at another address. This try does not wait for the look-up.
      if (this.#isLookupDue(target.endpoint, RELOOKUP_MS)) {
        void this.lookUp(target.endpoint);
      }
      if (target.address !== undefined) {
        this.#connect(target).catch(() => {});
      }
    }
  }

  /** Returns the targets of the endpoints before that of this one. */
  #before(target: Target): Target[] {
    const first = this.#targets.findIndex(({ endpoint }) => endpoint === target.endpoint);
    return this.#targets.slice(0, Math.max(0, first));
  }

  /** Connects while calls wait for it. */
  async #drive(): Promise<void> {
    if (this.#isDriving) {
      return;
    }
    this.#isDriving = true;
    while (this.#waiting.size > 0) {
      const target = this.#pick();
      if (target.live !== undefined) {
        this.#serveWaiting({ target, connection: target.live });
        break;
      }
      await pauseUntil(target.notBefore);
      if (this.#waiting.size === 0) {
        break;
      }
      if (target.address === undefined || this.#isLookupDue(target.endpoint, RELOOKUP_MS)) {
        await this.lookUp(target.endpoint);
        continue;
      }
      await this.#connect(target).catch((error: SnowbankError) => this.#recordFailure(error));
    }
    this.#isDriving = false;
  }

  /**
   * Returns the target that may be tried soonest. Of several it prefers those that have not failed,
   * and of these the next in the circle, or the first if that is preferred.
   */
  #pick(): Target {
    const now = performance.now();
    const key = (target: Target) => [
      Math.max(target.notBefore, now),
      Math.max(target.exhaustedUntil, now),
      Math.min(target.failures, 1),
    ];
    const order = this.#settings.preferFirst ? this.#targets : this.#inOrder(0);
    return order.reduce((best, target) => (isBelow(key(target), key(best)) ? target : best));
  }

  /** Returns the targets in their circle, from the current one on. */
  #inOrder(from: number): Target[] {
    const at = Math.max(0, this.#targets.indexOf(this.#current) + from);
    return [...this.#targets.slice(at), ...this.#targets.slice(0, at)];
  }

  /** Connects to a target for calls, once at a time. */
  #connect(target: Target): Promise<Connection> {
    target.connecting ??= this.#greet(target).finally(() => {
      target.connecting = undefined;
    });
    return target.connecting;
  }

  async #greet(target: Target): Promise<Connection> {
    try {
      const { connection } = await this.open(target, (ended, error) => {
        this.#ended(target, ended, error);
      });
      if (this.#isClosed || !this.#targets.includes(target)) {
        connection.retire();
        throw lost(target.name, "nobody needs the connection any more");
      }
      target.connection = connection;
      target.error = undefined;
      const served = this.#settings.takeTurns ? target : this.#goOver(target);
      this.#onGreeted();
      this.#serveWaiting({ target: served, connection: served.live ?? connection });
      return connection;
    } catch (error) {
      this.#rest(target, (error as SnowbankError).retryAfterMs);
      target.error = error as SnowbankError;
      throw error;
    }
  }

  /**
   * Lets a target serve. The calls in flight on the one that it replaces are still answered.
   * Returns the target that serves.
   */
  #goOver(target: Target): Target {
    const current = this.#current;
    // An earlier endpoint may have connected meanwhile.
    const keepsCurrent = current.live !== undefined && this.#before(target).includes(current);
    const left = keepsCurrent ? target : current;
    if (!keepsCurrent) {
      this.#current = target;
    }
    if (left !== this.#current && left.connection !== undefined) {
      const { connection } = left;
      left.connection = undefined;
      connection.retire();
    }
    return this.#current;
  }

  #serveWaiting(served: Served): void {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const { resolve } of waiting) {
      resolve(served);
    }
  }

  /** Opens a connection to a target and greets it. Throws a SnowbankError. */
  async open(
    target: Target,
    onEnd: (connection: Connection, error: SnowbankError) => void,
  ): Promise<{ connection: Connection; info: Info }> {
    const { connectTimeoutMs, answerTimeoutMs, tls } = this.#settings;
    const began = performance.now();
    if (target.address === undefined) {
      throw target.error ?? unreachable(target.name, "the name has no address");
    }
    const token = this.#settings.token();
    const socket = await dial(target.endpoint, target.address, tls).catch((error) => {
      throw unreachable(target.name, describe(error));
    });
    const hasOthers = () => this.#targets.length > 1;
    const names = { endpoint: target.name, token, hasOthers, onEnd };
    const connection = new Connection(socket, { ...names, connectTimeoutMs, answerTimeoutMs });
    const info = await connection.greet(connectTimeoutMs - (performance.now() - began));
    return { connection, info };
  }

  /** Records the end of a connection that served. */
  #ended(target: Target, connection: Connection, error: SnowbankError): void {
    if (connection.hasAnswered) {
      target.failures = 0;
    }
    if (target.connection === connection) {
      target.connection = undefined;
      this.#rest(target, error.retryAfterMs);
      target.error = error;
    }
  }

  /** Leaves a target alone for its back-off, and for the time that it asked for. */
  #rest(target: Target, askedMs: number | undefined): void {
    target.failures += 1;
    const pause = this.#atMostMaxBackoff(askedMs) + this.backoffMs(target.failures);
    target.notBefore = performance.now() + pause;
  }

  /** Prefers others to a target that has no IDs in time for one call. */
  preferOthers(target: Target, askedMs: number): void {
    const now = performance.now();
    target.exhaustedUntil = now + this.#atMostMaxBackoff(askedMs);
    if (this.#settings.takeTurns) {
      return;
    }
    target.notBefore = now + this.backoffMs(1);
    target.connection?.retire();
    target.connection = undefined;
  }

  #atMostMaxBackoff(askedMs: number | undefined): number {
    return Math.min(askedMs ?? 0, MAX_BACKOFF_MS);
  }

  /** Returns a random pause below a limit that doubles with each failure but the first. */
  backoffMs(failures: number): number {
    const limit = Math.min(MIN_BACKOFF_MS * 2 ** (Math.max(1, failures) - 1), MAX_BACKOFF_MS);
    return Math.random() * limit;
  }

  /** Fails the waiting calls if no further try can help them. */
  #recordFailure(error: SnowbankError): void {
    const errors = this.errors();
    const isAllForeign =
      errors.length === this.#targets.length &&
      errors.every(({ code }) => code === "foreign_protocol");
    if (isFinal(error)) {
      this.fail(error);
    } else if (isAllForeign) {
      this.fail(joined(errors) ?? error);
    }
  }

  /** Returns the error of each target that has failed since it last served. */
  errors(): SnowbankError[] {
    return this.#targets.map((target) => target.error).filter((error) => error !== undefined);
  }

  /** The name of a target that is connected. */
  get connected(): string | undefined {
    return this.#inOrder(0).find((target) => target.live !== undefined)?.name;
  }

  /** Returns why no target serves. */
  failure(): SnowbankError | undefined {
    const errors = this.#targets.map((target) => {
      const reason =
        target.connecting === undefined
          ? "the client had no time to connect"
          : "it has not answered the greeting, or not accepted the connection";
      return target.error ?? unreachable(target.name, reason);
    });
    return joined(errors);
  }

  /** Fails the calls that wait for a connection. */
  fail(error: SnowbankError): void {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const { reject } of waiting) {
      reject(error);
    }
  }

  /** Closes all connections. */
  close(error: SnowbankError): void {
    this.#isClosed = true;
    this.fail(error);
    for (const reject of this.#pausing) {
      reject(error);
    }
    for (const target of this.#targets) {
      target.connection?.close(error);
    }
  }

  #isLookupDue(endpoint: Endpoint, afterMs: number): boolean {
    const lookedUp = this.#lookedUp.get(endpoint) ?? Number.NEGATIVE_INFINITY;
    return endpoint.isName && performance.now() - lookedUp >= afterMs;
  }

  /** Looks a name up, if it is due. */
  async lookUpIfDue(endpoint: Endpoint): Promise<void> {
    if (this.#isLookupDue(endpoint, LOOKUP_MS)) {
      await this.lookUp(endpoint);
    }
  }

  /**
   * Looks a name up, and gives each of its addresses a target. Keeps the old ones if that fails.
   */
  async lookUp(endpoint: Endpoint): Promise<void> {
    this.#lookedUp.set(endpoint, performance.now());
    try {
      const limitMs = this.#settings.connectTimeoutMs;
      const found = await within(limitMs, lookup(endpoint.host, { all: true, verbatim: true }));
      this.#setAddresses(
        endpoint,
        (this.#settings.preferFirst ? found : spread(found)).map(({ address }) => address),
      );
    } catch (error) {
      const unresolved = this.#targets.find(
        (target) => target.endpoint === endpoint && target.address === undefined,
      );
      if (unresolved !== undefined) {
        this.#rest(unresolved, undefined);
        unresolved.error = unreachable(endpoint.text, describe(error as Error));
        this.#recordFailure(unresolved.error);
      }
    }
  }

  #setAddresses(endpoint: Endpoint, addresses: readonly string[]): void {
    const old = this.#targets.filter((target) => target.endpoint === endpoint);
    const kept = old.filter((target) => target.address && addresses.includes(target.address));
    const known = kept.map((target) => target.address);
    const added = addresses
      .filter((address) => !known.includes(address))
      .map((address) => new Target(endpoint, address));
    for (const gone of old.filter((target) => !kept.includes(target))) {
      gone.connection?.retire();
    }
    const targets = [...kept, ...added];
    for (const target of targets) {
      target.name = targets.length > 1 ? `${endpoint.text} (${target.address})` : endpoint.text;
    }
    const at = this.#targets.indexOf(old[0]!);
    const wasCurrent = old.includes(this.#current) && !kept.includes(this.#current);
    this.#targets.splice(at, old.length, ...targets);
    if (wasCurrent) {
      this.#current = targets[0]!;
    }
  }
}

/** Shuffles the addresses within each family, so that clients spread over the daemons of a name. */
function spread<A extends { family: number }>(addresses: readonly A[]): A[] {
  const first = addresses[0]?.family;
  const shuffled = addresses.map((address) => ({ address, key: Math.random() }));
  const rank = ({ address, key }: { address: A; key: number }) =>
    (address.family === first ? 0 : 1) + key;
  return shuffled.sort((one, other) => rank(one) - rank(other)).map(({ address }) => address);
}

/** Compares two keys of equal length, member by member. */
function isBelow(one: readonly number[], other: readonly number[]): boolean {
  const at = one.findIndex((value, index) => value !== other[index]);
  return at >= 0 && one[at]! < other[at]!;
}

/** Waits without keeping the process alive. */
function pauseUntil(at: number): Promise<void> {
  const ms = at - performance.now();
  return ms <= 0 ? Promise.resolve() : new Promise((resolve) => setTimeout(resolve, ms).unref());
}

/** Rejects if the promise is not settled in time. */
function within<T>(ms: number, promise: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const late = () => reject(new Error(`the name was not looked up within ${ms} ms`));
    const timer = new PatientTimer(ms, late);
    promise.then(resolve, reject).finally(() => timer.cancel());
  });
}
