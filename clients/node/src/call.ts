/** One call: its deadline, its tries, and what an ERROR's action makes it do. */

import { setMaxListeners } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { type Deadline, PASSED } from "./deadline.js";
import { closed, failed, type RefusalCode, SnowbankError } from "./errors.js";
import { keepGreeting } from "./greet.js";
import type { Settings } from "./options.js";
import { type Endpoint, Endpoints } from "./rest.js";
import type { Row } from "./row.js";
import type { Emit, Stats } from "./stats.js";
import { Next, ping, type Request } from "./wire.js";

/** How long a buffer's request lets a daemon gather IDs. */
const GATHERING_MS = 50;

/** The shortest wait before the same daemon is asked again. */
const SHORTEST_PAUSE_MS = 1;

const ZEROS = { calls: 0, retries: 0, refusals: 0, failures: 0, ids: 0, dropped: 0, oldestMs: 0 };

/** The calls of one client. It does not know the client, so that one can be collected. */
export class Calls {
  readonly endpoints: Endpoints;
  readonly counters = { ...ZEROS };
  collision: SnowbankError | undefined;
  /** IDs that buffers had before this changed are void: a collision was found, or a close came. */
  era = 0;
  /** Ends the rounds and the buffers' fetches. */
  readonly closing = new AbortController();
  #isClosed = false;
  #hasConnected = false;
  readonly #inFlight = new Set<Deadline>();

  constructor(
    readonly settings: Settings,
    readonly emit: Emit,
  ) {
    this.endpoints = new Endpoints(settings);
    // Each connection that is made and each pause listens to it.
    setMaxListeners(0, this.closing.signal);
  }

  /** Fetches IDs for a caller. */
  async batch(count: number, source: Buffer, deadline: Deadline): Promise<bigint[]> {
    const { waitMs } = this.settings.times;
    const request = await this.#call(
      () => new Next(count, source, Math.min(waitMs, deadline.leftMs), false),
      deadline,
    );
    this.counters.ids += count;
    return request.ids;
  }

  /** Fetches IDs for a buffer. */
  fetch(count: number, source: Buffer, deadline: Deadline): Promise<Next> {
    return this.#call(({ welcome: { maxCount, goodForMs } }) => {
      const waitMs = Math.min(GATHERING_MS, deadline.leftMs);
      const request = new Next(Math.min(count, maxCount), source, waitMs, true);
      request.goodForMs = goodForMs;
      return request;
    }, deadline);
  }

  /** Asks whether a daemon answers. */
  async ping(deadline: Deadline): Promise<void> {
    await this.#call(ping, deadline);
  }

  /** Throws why calls fail, or a new call does. */
  check(isNew = false): void {
    if (isNew && this.#isClosed) {
      throw closed();
    }
    if (this.collision !== undefined) {
      throw this.collision;
    }
  }

  /** Runs a call of the application to its end. */
  async run<T>(work: (deadline: Deadline) => Promise<T>, deadline: Deadline): Promise<T> {
    this.#inFlight.add(deadline);
    try {
      this.check(true);
      deadline.signal?.throwIfAborted();
      return await work(deadline);
    } catch (error) {
      throw error === PASSED ? this.#passed(deadline) : error;
    } finally {
      deadline.end();
      this.#inFlight.delete(deadline);
    }
  }

  stats(): Stats {
    const connected = this.endpoints.all.find((one) => one.connection !== undefined);
    return { ...this.counters, endpoint: connected?.name };
  }

  /** Lets calls in flight end within a time, and then ends the connections. */
  async close(withinMs: number): Promise<void> {
    this.#isClosed = true;
    this.era += 1;
    const end = performance.now() + withinMs;
    while (this.#inFlight.size > 0 && performance.now() < end) {
      await sleep(5);
    }
    this.era += 1;
    this.closing.abort(closed());
    for (const deadline of this.#inFlight) {
      deadline.fail(closed());
    }
    for (const endpoint of this.endpoints.all) {
      endpoint.connection?.end(closed());
    }
  }

  // One call.

  #passed(deadline: Deadline): SnowbankError {
    const heard = this.endpoints.all.map((one) => [one.name, one.heard]);
    const words = heard.map((one) => `; ${one.join(": ")}`).join("");
    const text = `no answer within ${deadline.allowedMs} ms${words}`;
    return new SnowbankError("timeout", text, { reasons: Object.fromEntries(heard) });
  }

  async #call<R extends Request>(make: (row: Row) => R, deadline: Deadline): Promise<R> {
    for (let tries = 0; ; ) {
      const endpoint = await this.#pick(deadline);
      let row = endpoint.connection;
      try {
        row ??= await deadline.wait(this.dial(endpoint));
        if (deadline.leftMs === 0) {
          // The loop was blocked: nobody waits for the IDs.
          throw PASSED;
        }
        const request = make(row);
        this.counters.retries += tries > 0 ? 1 : 0;
        tries += 1;
        await deadline.wait(row.send(request));
        const age = Math.max(performance.now() - request.began, Date.now() - request.beganWall);
        if (age >= request.goodForMs) {
          const late = `its IDs were too old when they came, after ${(age / 1000).toFixed(2)} s`;
          row.end(failed(endpoint.name, late));
          continue;
        }
        this.check();
        endpoint.failures = 0;
        endpoint.note(undefined);
        this.counters.calls += 1;
        return request;
      } catch (error) {
        if (!(error instanceof SnowbankError) || (error.code !== "failed" && !error.action)) {
          throw error;
        }
        if (error.action !== undefined) {
          await this.#obey(error, endpoint, row, deadline);
        }
      }
    }
  }

  /** Does what an ERROR says: throws it, stays, or leaves. */
  async #obey(
    error: SnowbankError,
    endpoint: Endpoint,
    row: Row | undefined,
    deadline: Deadline,
  ): Promise<void> {
    if (row !== undefined) {
      this.#reportRefusal(error);
    }
    if (error.action === "tell") {
      throw error;
    }
    if (row !== undefined) {
      endpoint.note(error);
    }
    const first = this.endpoints.all.reduce((a, b) => (b.servesAt < a.servesAt ? b : a));
    const told = first.servesAt > deadline.at ? first.error : undefined;
    const stays = error.action === "stay" && (told || endpoint.servesAt <= deadline.at);
    if (row !== undefined && !stays && endpoint.connection === row) {
      // First of all, because the caller's next call must not use this connection.
      endpoint.connection = undefined;
      this.endpoints.failed(endpoint, error);
      // It still answers the other calls.
      row.finish();
    }
    let pauseMs = Math.max(this.endpoints.pauseMs(error), SHORTEST_PAUSE_MS);
    if (row !== undefined && stays && this.endpoints.takesTurns) {
      // Others have their turn meanwhile.
      endpoint.restsUntil = performance.now() + pauseMs;
      pauseMs = 0;
    }
    if (told !== undefined) {
      throw told;
    }
    if (row !== undefined && stays) {
      await this.#pause(pauseMs, deadline);
    }
  }

  /** Returns an endpoint whose rest is over. */
  async #pick(deadline: Deadline): Promise<Endpoint> {
    for (;;) {
      this.check();
      const endpoint = this.endpoints.pick();
      const restMs = endpoint.restsUntil - performance.now();
      if (restMs <= 0) {
        return endpoint;
      }
      await this.#pause(restMs, deadline);
    }
  }

  /** Waits. The deadline's timer keeps the process alive. */
  #pause(ms: number, deadline: Deadline): Promise<void> {
    return deadline.wait(sleep(ms, undefined, { ref: false }));
  }

  // Connections.

  /** Connects to an endpoint, once for all calls that wait for it. */
  readonly dial = (endpoint: Endpoint): Promise<Row> => {
    endpoint.dialing ??= this.#connect(endpoint).finally(() => {
      endpoint.dialing = undefined;
    });
    return endpoint.dialing;
  };

  async #connect(endpoint: Endpoint): Promise<Row> {
    const row = await endpoint.dial(this.closing.signal).catch((error) => {
      if (error.action !== undefined) {
        this.endpoints.failed(endpoint, error);
        this.#reportRefusal(error);
      } else if (!this.closing.signal.aborted) {
        this.#failed(endpoint, error);
      }
      throw error;
    });
    if (this.closing.signal.aborted) {
      row.end(closed());
      throw closed();
    }
    endpoint.connection = row;
    endpoint.restsUntil = 0;
    // Before a failure of it is told.
    this.emit("connected", { endpoint: endpoint.name });
    row.onEnd = (error) => this.#ended(endpoint, row, error);
    if (row.ended !== undefined) {
      this.#ended(endpoint, row, row.ended);
    }
    if (!this.#hasConnected && !this.endpoints.isLone) {
      keepGreeting(this).catch(() => {});
    }
    this.#hasConnected = true;
    return row;
  }

  #ended(endpoint: Endpoint, row: Row, error: SnowbankError): void {
    if (endpoint.connection === row) {
      endpoint.connection = undefined;
      if (error.action !== undefined) {
        this.#reportRefusal(error);
      }
      if (!row.endedIdle && error.code !== "closed") {
        this.#failed(endpoint, error);
      }
    }
  }

  #failed(endpoint: Endpoint, error: SnowbankError): void {
    this.endpoints.failed(endpoint, error);
    this.counters.failures += 1;
    this.emit("failed", { endpoint: endpoint.name, reason: error.message });
  }

  #reportRefusal(error: SnowbankError): void {
    const { endpoint = "", action = "tell", message } = error;
    this.counters.refusals += 1;
    this.emit("refused", { endpoint, code: error.code as RefusalCode, action, message });
  }
}
