/** The cases of clients/conformance, which every client plays. Its README describes the steps. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { resolver } from "../dist/dial.js";
import { Client } from "../dist/index.js";
import { TIMES } from "../dist/options.js";

/**
 * The program that plays the daemons of a case. `clients/node/test` builds it if this is not set.
 */
const program = process.env.SNOWBANK_CONFORMANCE;
const skip = program ? false : "no $SNOWBANK_CONFORMANCE";

const file = new URL("../../conformance/cases.json", import.meta.url);
const only = process.env.SNOWBANK_CONFORMANCE_CASE;
const cases = JSON.parse(readFileSync(file, "utf8")).cases.filter(
  ({ name }) => only === undefined || name === only,
);
assert.ok(cases.length > 0, `there is no case ${only}`);

/** How many cases are played at a time: most of their time is waiting. */
const AT_A_TIME = 4;

/** The pause between two tries of `until` and `keep`, in ms. */
const PAUSE_MS = 50;

/** Steps that change the whole process, so that no other case may be played meanwhile. */
const ALONE = ["advance_clock", "block", "stop"];

/** The client's figures that the suite may count. */
const FIGURES = ["calls", "retries", "refusals", "failures", "ids"];

const EVENTS = ["connected", "failed", "refused", "collision", "collision_over"];

const realLookup = resolver.lookup;
resolver.lookup = async (host) =>
  host === "ids.example" ? ["127.0.0.1", "127.0.0.2", "127.0.0.3"] : realLookup(host);

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc");

function isAlone({ steps }) {
  return steps.some((step) => ALONE.includes(step.do));
}

async function playAll(t, chosen) {
  const played = chosen.map(({ name, needs = [] }) => {
    const lacks =
      (needs.includes("fork") && "Node never forks without starting a program") ||
      (needs.includes("failing_events") && "an error of a listener is an uncaught exception");
    return t.test(name, { skip: lacks }, () => play(name));
  });
  await Promise.all(played);
}

async function play(name) {
  const player = new Player(name);
  try {
    await player.begin();
    for (const step of player.case.steps) {
      await player.play(step);
    }
  } finally {
    await player.end();
  }
  assert.equal(player.faults, "", "what the daemons noticed");
}

/** One case: the program that plays its daemons, and the client that is tested. */
class Player {
  faults = "";
  #events = [];
  #wake = () => {};
  #seen = new Set();
  #started = new Map();
  /** The names of the client's events. */
  heard = new Set();
  #last = -1n;

  constructor(name) {
    this.name = name;
    this.realNow = Date.now;
  }

  async begin() {
    this.process = spawn(program, [this.name], { stdio: ["pipe", "pipe", "pipe"] });
    this.process.stderr.on("data", (text) => {
      this.faults += text;
    });
    createInterface(this.process.stdout).on("line", (line) => {
      this.#events.push(JSON.parse(line));
      this.#wake();
    });
    this.process.once("exit", () => this.#wake());
    this.case = await this.#event((line) => line.steps !== undefined);
    this.client = this.#connect(this.case.endpoints, this.case.options);
    this.ids = this.client.ids();
  }

  #connect(endpoints, options) {
    Object.assign(TIMES, times(options.limits));
    const client = new Client(endpoints, clientOptions(options));
    for (const name of EVENTS) {
      // The listener must not keep the client.
      const { heard } = this;
      client.on(name, () => heard.add(name));
      if (options.on_event === "closes") {
        client.on(name, () => client.close());
      }
    }
    return client;
  }

  /** Waits for an event, and takes it. */
  async #event(matches) {
    for (;;) {
      const at = this.#events.findIndex(matches);
      if (at >= 0) {
        return this.#events.splice(at, 1)[0];
      }
      assert.equal(this.process.exitCode, null, `${this.name} ended: ${this.faults}`);
      await new Promise((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  async end() {
    Date.now = this.realNow;
    await this.client?.close();
    this.process.stdin.end();
    if (this.process.exitCode === null) {
      await once(this.process, "exit");
    }
    if (this.process.exitCode !== 0 && this.faults === "") {
      this.faults = `exit code ${this.process.exitCode}`;
    }
  }

  async play(step) {
    const act = this[step.do];
    assert.ok(act, `the step ${step.do} is unknown`);
    await act.call(this, step);
  }

  async batch(step) {
    await this.#expect(step, this.#fetch(step));
  }

  /** Begins the batch of a step, or draws an ID without a count. */
  #fetch({ count, timeout_ms: timeoutMs }, signal) {
    const options = { timeoutMs, signal };
    return count === undefined
      ? this.ids.next(options).then((id) => [id])
      : this.client.batch(count, options);
  }

  async next(step) {
    const { times = 1, timeout_ms: timeoutMs } = step;
    const options = timeoutMs === undefined ? undefined : { timeoutMs };
    const drawn = [];
    const draw = async () => {
      while (drawn.length < times) {
        drawn.push(await this.ids.next(options));
      }
      return drawn;
    };
    await this.#expect(step, draw(), false);
    if (step.error !== undefined) {
      drawn.forEach((id) => {
        this.#record(id);
      });
    }
    if (step.increasing) {
      for (const id of drawn) {
        assert.ok(id > this.#last, `${id} came after ${this.#last}`);
        this.#last = id;
      }
    }
  }

  async ping({ timeout_ms: timeoutMs, ...step }) {
    await this.#expect(
      step,
      this.client.ping({ timeoutMs }).then(() => []),
    );
  }

  async parallel_next(step) {
    const draw = async () => {
      for (let count = 0; count < step.count; count += 1) {
        this.#record(await this.ids.next());
      }
    };
    await Promise.all(Array.from({ length: step.threads }, draw));
  }

  async start(step) {
    const controller = new AbortController();
    const fetched = this.#fetch(step, controller.signal);
    fetched.catch(() => {});
    this.#started.set(step.as, { controller, fetched });
  }

  async join(step) {
    await this.#expect(step, this.#started.get(step.as).fetched);
  }

  async cancel(step) {
    const { controller, fetched } = this.#started.get(step.as);
    controller.abort();
    await assert.rejects(fetched, { name: "AbortError" });
  }

  async until(step) {
    const end = performance.now() + (step.within_ms ?? 20_000);
    for (;;) {
      const failure = await this.batch(step).catch((error) => error);
      if (failure === undefined) {
        return;
      }
      assert.ok(performance.now() < end, `until: ${failure.message}`);
      await sleep(PAUSE_MS);
    }
  }

  async keep(step) {
    const end = performance.now() + step.for_ms;
    while (performance.now() < end) {
      await this.batch(step);
      await sleep(PAUSE_MS);
    }
  }

  async new(step) {
    const endpoints = step.endpoints ?? this.case.endpoints;
    const create = async () => {
      const client = this.#connect(endpoints, { ...this.case.options, ...step.options });
      try {
        return step.count === undefined ? [] : await client.batch(step.count);
      } finally {
        await client.close();
      }
    };
    for (let made = 0; made < (step.times ?? 1); made += 1) {
      await this.#expect(step, create());
    }
  }

  async life(step) {
    this.process.stdin.write(`life ${step.daemon}\n`);
    await this.#event(({ event, daemon }) => event === "life" && daemon === step.daemon);
  }

  async wait_held() {
    await this.#event(({ event }) => event === "held");
  }

  async release(step) {
    this.process.stdin.write(`release ${step.daemon}\n`);
  }

  async idle(step) {
    this.process.stdin.write(`idle ${step.daemon}\n`);
    await this.#event(({ event }) => event === "idle");
  }

  async sleep(step) {
    await sleep(step.ms);
  }

  async block(step) {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, step.ms);
  }

  async stop(step) {
    this.process.stdin.write(`stop ${step.ms}\n`);
    await this.#event(({ event }) => event === "stopped");
  }

  async stats(step) {
    const found = this.client.stats();
    for (const figure of FIGURES.filter((name) => step[name] !== undefined)) {
      assert.equal(found[figure], step[figure], figure);
    }
    if (step.endpoint !== undefined) {
      const { endpoint = "none" } = found;
      assert.ok(endpoint.includes(this.#named(step.endpoint || "none")), endpoint);
    }
  }

  async events(step) {
    for (const name of step.has ?? []) {
      assert.ok(this.heard.has(name), name);
    }
    for (const name of step.has_not ?? []) {
      assert.ok(!this.heard.has(name), name);
    }
  }

  async drop() {
    this.client = this.ids = undefined;
    // Promises of earlier steps go with the turns of the event loop.
    for (let turn = 0; turn < 5; turn += 1) {
      await sleep(10);
      collectGarbage();
    }
  }

  /** The client measures ages by the wall clock too, which goes on in sleep. */
  async advance_clock(step) {
    const before = Date.now;
    Date.now = () => before() + step.ms;
  }

  async close(step) {
    const closed = this.client.close({ timeoutMs: step.timeout_ms });
    if (step.as === undefined) {
      await closed;
    } else {
      this.#started.set(step.as, { fetched: closed.then(() => []) });
    }
  }

  /** Returns a text with the endpoints' addresses. */
  #named(text) {
    return text.replace(/\$(\d)/g, (_, at) => this.case.endpoints[at].replace(/^(tls|unix):/, ""));
  }

  /** Records an ID. None may come twice in a case. */
  #record(id) {
    assert.equal(typeof id, "bigint");
    assert.ok(!this.#seen.has(id), `the ID ${id} came twice`);
    this.#seen.add(id);
  }

  async #expect(step, outcome, increases = step.do !== "next") {
    const began = performance.now();
    let ids = [];
    let error;
    try {
      ids = await outcome;
    } catch (caught) {
      error = caught;
    }
    if (step.within_ms !== undefined) {
      const took = performance.now() - began;
      assert.ok(took <= step.within_ms, `it took ${took} ms, and ${step.within_ms} are allowed`);
    }
    if (step.error === undefined) {
      assert.ifError(error);
      this.#expectIds(step, ids, increases);
    } else {
      assert.ok(error, `the error ${step.error} was expected, and ${ids.length} IDs came`);
      this.#expectError(step, error);
    }
  }

  #expectIds(step, ids, increases) {
    for (const [index, id] of ids.entries()) {
      this.#record(id);
      assert.ok(
        !increases || index === 0 || ids[index - 1] < id,
        `${id} came after ${ids[index - 1]}`,
      );
      assert.ok(
        step.above === undefined || id > BigInt(step.above),
        `${id} is not above ${step.above}`,
      );
    }
    if (step.ids !== undefined) {
      assert.deepEqual(ids.map(String), step.ids);
    }
    assert.equal(ids.length, step.length ?? ids.length);
  }

  #expectError(step, error) {
    assert.equal(error.name, "SnowbankError", error.stack);
    assert.ok([step.error].flat().includes(error.code), `${error.code}: ${error.message}`);
    for (const text of step.mentions ?? []) {
      assert.ok(error.message.includes(this.#named(text)), `${text}: ${error.message}`);
    }
    if (step.retry_after_ms !== undefined) {
      assert.equal(error.retryAfterMs, step.retry_after_ms);
    }
  }
}

function clientOptions(options) {
  return {
    source: options.source,
    timeoutMs: options.timeout_ms,
    token: options.token,
    tokenFile: options.token_file,
    caFile: options.ca_file,
    certFile: options.cert_file,
    keyFile: options.key_file,
    serverName: options.server_name,
    preferFirst: options.prefer_first,
    takeTurns: options.take_turns,
  };
}

/** Returns the suite's limits as the times of a client. */
function times(limits) {
  return {
    resolveMs: limits.connect_ms,
    acceptMs: limits.connect_ms,
    connectMs: limits.connect_ms,
    answerMs: limits.answer_ms,
    firstRoundMs: limits.first_round_ms,
    roundMs: limits.round_ms,
  };
}

// Node 18.13 begins them at once, so all that they use stands above.
test("cases", { skip, concurrency: AT_A_TIME }, (t) =>
  playAll(
    t,
    cases.filter((found) => !isAlone(found)),
  ),
);

for (const { name } of cases.filter(isAlone)) {
  test(`alone: ${name}`, { skip }, () => play(name));
}
