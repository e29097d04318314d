/** The cases of clients/conformance, which every client plays. Its README describes the steps. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Client } from "../dist/index.js";

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

/** How many cases are played at a time: most of their time is waiting. */
const AT_A_TIME = 4;

/** The pause between two tries of `until` and `keep`, in ms. */
const PAUSE_MS = 50;

/** Returns whether a case moves the clock of the whole process. */
function movesClock({ steps }) {
  return steps.some((step) => step.do === "advance_clock");
}

async function playAll(t, chosen) {
  const played = chosen.map(({ name, needs = [] }) => {
    const lacks = needs.includes("fork") && "Node never forks without starting a program";
    return t.test(name, { skip: lacks }, () => play(name));
  });
  await Promise.all(played);
}

test("cases", { skip, concurrency: AT_A_TIME }, (t) =>
  playAll(
    t,
    cases.filter((found) => !movesClock(found)),
  ),
);

test("cases that move the clock", { skip, concurrency: 1 }, (t) =>
  playAll(t, cases.filter(movesClock)),
);

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
  #clients = [];

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
    this.ids = this.client.ids(bufferOptions(this.case.options));
  }

  #connect(endpoints, options) {
    const client = new Client(endpoints, clientOptions(options));
    this.#clients.push(client);
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
    for (const client of this.#clients) {
      client.close();
    }
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

  #fetch(step, signal) {
    const { source, explicit, partial, max_wait_ms: maxWaitMs, timeout_ms: timeoutMs } = step;
    const fetched = this.client.batch(step.count, {
      source,
      explicit,
      partial,
      maxWaitMs,
      timeoutMs,
      signal,
    });
    return fetched.then((batch) => [...batch]);
  }

  async next(step) {
    const drawn = [];
    const draw = async () => {
      for (let count = 0; count < (step.times ?? 1); count += 1) {
        drawn.push(await this.ids.next());
      }
      return drawn;
    };
    await this.#expect(step, draw(), step.increasing === true);
    if (step.error !== undefined) {
      drawn.forEach((id) => {
        this.#record(id);
      });
    }
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
    const fetched =
      step.count === undefined
        ? this.ids.next().then((id) => [id])
        : this.#fetch(step, controller.signal);
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
    for (;;) {
      const failure = await this.batch(step).catch((error) => error);
      if (failure === undefined) {
        return;
      }
      assert.equal(this.process.exitCode, null, `until: ${failure.message}`);
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
      this.#connect(endpoints, { ...this.case.options, ...step.options }).close();
      return [];
    };
    await this.#expect(step, create());
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

  async sleep(step) {
    await sleep(step.ms);
  }

  /** The client measures ages by the wall clock too, which goes on in sleep. */
  async advance_clock(step) {
    const before = Date.now;
    Date.now = () => before() + step.ms;
  }

  async close() {
    this.client.close();
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
      const place = /^\$(\d+)$/.exec(text);
      const endpoint = place && this.case.endpoints[place[1]].replace(/^(tls|unix):/, "");
      assert.ok(error.message.includes(endpoint ?? text), `${text} is missing: ${error.message}`);
    }
    if (step.retry_after_ms !== undefined) {
      assert.equal(error.retryAfterMs, step.retry_after_ms);
    }
  }
}

function clientOptions(options) {
  const { ca_file: caFile, cert_file: certificateFile, key_file: keyFile } = options;
  return {
    token: options.token,
    tls: { caFile, certificateFile, keyFile },
    timeoutMs: options.timeout_ms ?? 20_000,
    connectTimeoutMs: options.connect_timeout_ms,
    answerTimeoutMs: options.answer_timeout_ms,
    takeTurns: options.take_turns,
    preferFirst: options.prefer_first,
  };
}

function bufferOptions(options) {
  return { maxAgeMs: options.max_age_ms ?? 60_000, maxBatch: options.max_batch };
}
