/** One call: its deadline, its tries, and what an ERROR's action makes it do. */

import { type Deadline, PASSED } from "./deadline.js";
import { closed, type RefusalCode, SnowbankError } from "./errors.js";
import { Rounds } from "./greet.js";
import type { Settings } from "./options.js";
import { type Endpoint, Endpoints } from "./rest.js";
import type { Row } from "./row.js";
import type { Emit, Stats } from "./stats.js";
import { Next, Ping, type Request } from "./wire.js";

/** How long a buffer's request lets a daemon gather IDs. */
const GATHERING_MS = 50;

/** The shortest wait before the same daemon is asked again. */
const SHORTEST_PAUSE_MS = 1;

/** What a fetch brings to a buffer. */
export interface Delivery {
  ids: bigint[];
  /** When it was asked for, or the reply before it ended: its IDs are younger. */
  began: number;
  beganWall: number;
  goodForMs: number;
}

/** The calls of one client. It does not know the client, so that one can be collected. */
export class Calls {
  readonly endpoints: Endpoints;
  readonly counters = {
    calls: 0,
    retries: 0,
    refusals: 0,
    failures: 0,
    ids: 0,
    dropped: 0,
    oldestMs: 0,
  };
  isClosed = false;
  collision: SnowbankError | undefined;
  /** IDs that buffers had before this changed are void: a collision was found, or a close came. */
  age = 0;
  readonly #inFlight = new Set<Deadline>();
  #rounds: Rounds | undefined;

  constructor(
    readonly settings: Settings,
    readonly emit: Emit,
  ) {
    this.endpoints = new Endpoints(settings);
  }

  /** Fetches IDs for a caller. */
  async batch(count: number, source: Buffer, deadline: Deadline): Promise<bigint[]> {
    const { waitMs } = this.settings.times;
    const { request } = await this.#call(
      () => new Next(count, source, Math.min(waitMs, deadline.leftMs), false),
      deadline,
    );
    this.counters.ids += count;
    return request.ids;
  }

  /** Fetches IDs for a buffer. */
  async fetch(count: number, source: Buffer, deadline: Deadline): Promise<Delivery> {
    const { request, row } = await this.#call(
      ({ welcome }) => new Next(Math.min(count, welcome.maxCount), source, GATHERING_MS, true),
      deadline,
    );
    const { ids, began, beganWall } = request;
    return { ids, began, beganWall, goodForMs: row.welcome.goodForMs };
  }

  /** Asks whether a daemon answers. */
  async ping(deadline: Deadline): Promise<void> {
    await this.#call(() => new Ping(), deadline);
  }

  /** Throws why calls fail, or a new call does. */
  check(isNew = false): void {
    if (isNew && this.isClosed) {
      throw closed();
    }
    if (this.collision !== undefined) {
      throw this.collision;
    }
  }

  /** Runs a call to its end. */
  async run<T>(
    work: (deadline: Deadline) => Promise<T>,
    deadline: Deadline,
    isNew = true,
  ): Promise<T> {
    this.#inFlight.add(deadline);
    try {
      this.check(isNew);
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
    this.isClosed = true;
    for (const end = performance.now() + withinMs; performance.now() < end; ) {
      if (this.#inFlight.size === 0) {
        break;
      }
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    this.age += 1;
    this.#rounds?.stop();
    for (const deadline of this.#inFlight) {
      deadline.fail(closed());
    }
    for (const endpoint of this.endpoints.all) {
      endpoint.connection?.end(closed());
    }
  }

  // One call.

  #passed(deadline: Deadline): SnowbankError {
    const reasons = Object.fromEntries(this.endpoints.all.map((one) => [one.name, one.heard]));
    const words = Object.entries(reasons).map(([name, heard]) => `; ${name}: ${heard}`);
    const text = `no answer within ${deadline.allowedMs} ms${words.join("")}`;
    return new SnowbankError("timeout", text, { reasons });
  }

  async #call<R extends Request>(
    make: (row: Row) => R,
    deadline: Deadline,
  ): Promise<{ request: R; row: Row }> {
    /** When an endpoint that refused this call could serve it. */
    const servesAt = new Map<Endpoint, number>();
    for (let tries = 0; ; tries += 1) {
      const endpoint = await this.#pick(deadline);
      this.counters.retries += tries > 0 ? 1 : 0;
      let row = endpoint.connection;
      try {
        row ??= await deadline.wait<Row>((resolve, reject) => {
          this.dial(endpoint).then(resolve, reject);
        });
        const request = make(row);
        const asked = row;
        await deadline.wait((resolve, reject) => asked.send(request, resolve, reject));
        this.check();
        endpoint.failures = 0;
        endpoint.error = undefined;
        this.counters.calls += 1;
        return { request, row };
      } catch (error) {
        if (!(error instanceof SnowbankError) || (error.code !== "failed" && !error.action)) {
          throw error;
        }
        if (error.action !== undefined) {
          await this.#obey(error, endpoint, row, servesAt, deadline);
        }
      }
    }
  }

  /** Does what an ERROR says: throws it, stays, or leaves. */
  async #obey(
    error: SnowbankError,
    endpoint: Endpoint,
    row: Row | undefined,
    servesAt: Map<Endpoint, number>,
    deadline: Deadline,
  ): Promise<void> {
    if (row !== undefined) {
      this.#reportRefusal(error);
    }
    servesAt.set(endpoint, performance.now() + (error.retryAfterMs ?? 0));
    const isHopeless = (one: Endpoint) => (servesAt.get(one) ?? 0) > deadline.at;
    if (error.action === "tell" || this.endpoints.all.every(isHopeless)) {
      throw error;
    }
    if (error.action === "stay" && row !== undefined && !isHopeless(endpoint)) {
      await this.#pause(Math.max(this.endpoints.pauseMs(error), SHORTEST_PAUSE_MS), deadline);
    } else if (row !== undefined && endpoint.connection === row) {
      endpoint.connection = undefined;
      this.endpoints.failed(endpoint, error);
      // It still answers the other calls.
      row.finish();
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

  async #pause(ms: number, deadline: Deadline): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    try {
      await deadline.wait<void>((resolve) => {
        timer = setTimeout(resolve, ms);
      });
    } finally {
      clearTimeout(timer);
    }
  }

  // Connections.

  /** Connects to an endpoint, once for all calls that wait for it. */
  dial(endpoint: Endpoint): Promise<Row> {
    endpoint.dialing ??= this.#connect(endpoint).finally(() => {
      endpoint.dialing = undefined;
    });
    return endpoint.dialing;
  }

  async #connect(endpoint: Endpoint): Promise<Row> {
    let row: Row;
    try {
      row = await endpoint.dial();
    } catch (reason) {
      const error = reason as SnowbankError;
      if (error.action !== undefined) {
        this.#reportRefusal(error);
      }
      if (error.action !== "tell") {
        this.#failed(endpoint, error);
      }
      throw error;
    }
    if (this.isClosed && this.#inFlight.size === 0) {
      row.end(closed());
      throw closed();
    }
    endpoint.connection = row;
    row.onEnd = (error) => this.#ended(endpoint, row, error);
    if (row.ended !== undefined) {
      this.#ended(endpoint, row, row.ended);
    }
    this.emit("connected", { endpoint: endpoint.name });
    if (this.#rounds === undefined && !this.endpoints.isLone) {
      this.#rounds = new Rounds(this);
      void this.#rounds.run();
    }
    return row;
  }

  #ended(endpoint: Endpoint, row: Row, error: SnowbankError): void {
    if (endpoint.connection === row) {
      endpoint.connection = undefined;
      if (error.action !== undefined) {
        this.#reportRefusal(error);
      }
      if (error.code !== "closed") {
        this.#failed(endpoint, error);
      }
    }
  }

  #failed(endpoint: Endpoint, error: SnowbankError): void {
    this.counters.failures += 1;
    this.emit("failed", { endpoint: endpoint.name, reason: error.message });
    this.endpoints.failed(endpoint, error);
  }

  #reportRefusal(error: SnowbankError): void {
    const { endpoint = "", action = "tell", message } = error;
    this.counters.refusals += 1;
    this.emit("refused", { endpoint, code: error.code as RefusalCode, action, message });
  }
}
