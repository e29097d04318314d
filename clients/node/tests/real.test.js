/** Real daemons: killed and stopped while processes and threads draw IDs. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { Client } from "../dist/index.js";
import { Daemon, PROGRAM, withoutDaemon } from "./support/daemon.js";

const SUITE = process.env.SNOWBANK_CONFORMANCE;

/** The deadline of calls between faults, in ms. */
const TIMEOUT_MS = 5000;

/** What a busy machine may add to a deadline before a test calls the call endless, in ms. */
const SLACK_MS = 20_000;

async function twoDaemons(t) {
  const daemons = [await Daemon.start(1), await Daemon.start(2)];
  t.after(() => Promise.all(daemons.map((daemon) => daemon.end())));
  return daemons;
}

test("no ID of a buffer comes twice over a kill of a daemon", {
  skip: withoutDaemon,
}, async (t) => {
  const daemons = await twoDaemons(t);
  const client = new Client(
    daemons.map((daemon) => daemon.address),
    { timeoutMs: 30_000 },
  );
  t.after(() => client.close());
  const ids = client.ids();
  const seen = new Set();
  let longest = 0;
  const draw = async (forMs) => {
    const enough = seen.size + 200;
    for (const end = performance.now() + forMs; performance.now() < end || seen.size < enough; ) {
      const began = performance.now();
      const id = await ids.next();
      longest = Math.max(longest, performance.now() - began);
      assert.ok(!seen.has(id), `${id} came twice`);
      seen.add(id);
      if (seen.size % 50 === 0) {
        await sleep(1);
      }
    }
  };
  for (let round = 0; round < 4; round += 1) {
    const daemon = daemons[round % 2];
    await draw(300);
    daemon.signal("SIGKILL");
    await draw(300);
    await daemon.kill();
    await daemon.begin();
  }
  t.diagnostic(`${seen.size} IDs, the longest next() took ${longest.toFixed(1)} ms`);
  assert.ok(seen.size > 1000);
});

/**
 * Draws IDs for a thread or a process, in batches and one by one, and hands them out as strings.
 * Calls `begun` after a quarter of them.
 */
async function drawIn(addresses, begun) {
  const client = new Client(addresses, { timeoutMs: 30_000 });
  const buffer = client.ids();
  const drawn = [];
  for (let round = 0; round < 40; round += 1) {
    if (round === 10) {
      begun?.();
    }
    drawn.push(...(await client.batch(100)).map(String));
    for (let count = 0; count < 100; count += 1) {
      drawn.push(String(await buffer.next()));
    }
  }
  await client.close();
  return drawn;
}

function program(deliver) {
  const index = JSON.stringify(new URL("../dist/index.js", import.meta.url).href);
  return `import(${index}).then(async ({ Client }) => {
    ${drawIn}
    const addresses = JSON.parse(process.env.ADDRESSES);
    ${deliver};
  });`;
}

function expectDistinct(lists) {
  const all = lists.flat();
  assert.equal(all.length, lists.length * 8000);
  assert.equal(new Set(all).size, all.length, "IDs came twice");
}

test("4 threads with a client each draw no ID twice, over a kill", {
  skip: withoutDaemon,
}, async (t) => {
  const daemons = await twoDaemons(t);
  const env = { ...process.env, ADDRESSES: JSON.stringify(daemons.map(({ address }) => address)) };
  const source = program(
    `const { parentPort } = require("node:worker_threads");
    const begun = () => parentPort.postMessage("begun");
    parentPort.postMessage(await drawIn(addresses, begun));`,
  );
  const drawn = Array.from({ length: 4 }, async () => {
    const worker = new Worker(source, { eval: true, env });
    await once(worker, "message");
    daemons[0].signal("SIGKILL");
    const [ids] = await once(worker, "message");
    return ids;
  });
  expectDistinct(await Promise.all(drawn));
});

test("4 processes draw no ID twice, over a kill, and each ends", {
  skip: withoutDaemon,
}, async (t) => {
  const daemons = await twoDaemons(t);
  const env = { ...process.env, ADDRESSES: JSON.stringify(daemons.map(({ address }) => address)) };
  const source = program(`
    const { default: cluster } = await import("node:cluster");
    if (cluster.isPrimary) {
      // A client of the primary has a buffer before the workers start.
      await drawIn(addresses).then((drawn) => console.log(JSON.stringify(drawn)));
      for (let count = 0; count < 4; count += 1) {
        cluster.fork().on("message", (drawn) => console.log(JSON.stringify(drawn)));
      }
    } else {
      process.send(await drawIn(addresses), () => process.disconnect());
    }`);
  const file = fileURLToPath(new URL("support/run-source.js", import.meta.url));
  const primary = spawn(process.execPath, [file], { env: { ...env, SOURCE: source } });
  let errors = "";
  primary.stderr.on("data", (text) => {
    errors += text;
  });
  const lists = [];
  createInterface(primary.stdout).on("line", (line) => {
    lists.push(JSON.parse(line));
    if (lists.length === 1) {
      daemons[0].signal("SIGKILL");
    }
  });
  const [code] = await once(primary, "close");
  assert.equal(code, 0, errors);
  assert.equal(lists.length, 5, errors);
  expectDistinct(lists);
});

const withoutSuite = SUITE ? withoutDaemon : "no $SNOWBANK_CONFORMANCE";

test("no ID comes twice in 20 s of faults, and calls end in time", {
  skip: withoutSuite,
}, async (t) => {
  const seconds = process.env.SNOWBANK_FAULT_SECONDS ?? "20";
  const faults = spawn(SUITE, ["against_daemons", "--daemon", PROGRAM, "--seconds", seconds]);
  t.after(() => faults.stdin.end());
  const lines = createInterface(faults.stdout);
  const { endpoints } = JSON.parse((await once(lines, "line"))[0]);
  let isCalm = false;
  lines.on("line", (line) => {
    isCalm ||= JSON.parse(line).event === "calm";
  });
  const client = new Client(endpoints, { timeoutMs: TIMEOUT_MS });
  t.after(() => client.close());
  const ids = client.ids();
  const seen = new Set();
  const longest = { batch: 0, next: 0 };
  const failed = [];
  const record = (id) => {
    assert.ok(!seen.has(id), `${id} came twice`);
    seen.add(id);
  };
  const draw = async (kind, call) => {
    while (!isCalm) {
      const began = performance.now();
      try {
        const found = await call();
        assert.ok(found.every((id, index) => index === 0 || found[index - 1] < id));
        found.forEach(record);
      } catch (error) {
        assert.equal(error.name, "SnowbankError", error.stack);
        failed.push(error.code);
      }
      longest[kind] = Math.max(longest[kind], performance.now() - began);
      await sleep(1);
    }
  };
  const batches = () => draw("batch", () => client.batch(50));
  const singles = () => draw("next", async () => [await ids.next()]);
  await Promise.all([batches(), batches(), singles(), singles(), singles(), singles()]);
  assert.equal((await client.batch(10)).length, 10);
  record(await ids.next());
  const words = `longest batch ${longest.batch.toFixed(1)} ms, next ${longest.next.toFixed(1)} ms`;
  t.diagnostic(`${seen.size} IDs, ${words}, failed: ${failed.join() || "none"}`);
  assert.ok(Math.max(longest.batch, longest.next) < TIMEOUT_MS + SLACK_MS, words);
});
