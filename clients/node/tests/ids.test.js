/** The buffer: age, order, waiting calls, and the life of the process. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { Worker } from "node:worker_threads";
import { Client } from "../dist/index.js";
import { withClock } from "./support/clock.js";
import { FakeDaemon, refusal, run } from "./support/fake.js";

/** Limits that even a busy machine meets. */
const PATIENT = { timeoutMs: 60_000, connectTimeoutMs: 60_000, answerTimeoutMs: 60_000 };

async function started(t, options) {
  const daemon = await FakeDaemon.start(options);
  const client = new Client(daemon.address, PATIENT);
  t.after(async () => {
    client.close();
    await daemon.stop();
  });
  return { daemon, client };
}

test("an ID is dropped after a step of the wall clock, either way", async (t) => {
  for (const aheadMs of [1001, -3_600_000]) {
    const { client } = await started(t);
    const ids = client.ids();
    const before = await ids.next();
    await withClock(Date, aheadMs, async () => {
      assert.equal(ids.tryNext(), undefined, `${aheadMs} ms ahead`);
      assert.ok((await ids.next()) > before + 1n, "IDs were skipped");
    });
  }
});

test("IDs too old by the monotonic clock go with the next slice", async (t) => {
  const { daemon, client } = await started(t);
  const ids = client.ids({ maxAgeMs: 60_000 });
  // 8 of the first 16 IDs are the first slice.
  for (let id = 1n; id <= 8n; id += 1n) {
    assert.equal(await ids.next(), id);
  }
  await withClock(performance, 60_001, async () => {
    assert.ok((await ids.next()) > 16n, "the rest of the first batch was skipped");
  });
  assert.ok(daemon.asked.length >= 2);
});

test("an ID gets too old while the wall clock stands still", async (t) => {
  const { client } = await started(t);
  const ids = client.ids({ maxAgeMs: 100 });
  const stands = { now: Date.now() };
  t.mock.method(Date, "now", () => stands.now);
  await ids.next();
  await new Promise((resolve) => setTimeout(resolve, 200));
  assert.equal(ids.tryNext(), undefined);
});

test("tryNext gives an ID or undefined, and never waits", async (t) => {
  const { client } = await started(t);
  const ids = client.ids({ maxAgeMs: 60_000 });
  assert.equal(ids.tryNext(), undefined);
  const id = ids.tryNext() ?? (await ids.next());
  assert.equal(typeof id, "bigint");
  assert.equal(ids.tryNext(), id + 1n);
  assert.equal(await ids.nextString(), String(id + 2n));
});

test("waiting calls are served in order, each with its own ID", async (t) => {
  const { client } = await started(t);
  const ids = client.ids();
  const drawn = await Promise.all(Array.from({ length: 5000 }, () => ids.next()));
  assert.ok(drawn.every((id, index) => index === 0 || drawn[index - 1] < id));
});

test("fetches follow the demand, up to the daemon's max_count", async (t) => {
  const { daemon, client } = await started(t, { max_count: 100 });
  daemon.onNext = ({ socket, tag, count }) => {
    if (count > 100) {
      socket.write(refusal(tag, 3));
    }
    return count > 100;
  };
  const ids = client.ids();
  const seen = new Set();
  for (let count = 0; count < 3000; count += 1) {
    seen.add(await ids.next());
  }
  assert.equal(seen.size, 3000);
  assert.equal(daemon.asked[0], 16);
  assert.ok(Math.max(...daemon.asked) > 100 && daemon.asked.at(-1) <= 100);
});

test("an aborted next loses no ID", async (t) => {
  const { daemon, client } = await started(t);
  let held;
  daemon.onNext = ({ socket, tag, count }) => {
    held ??= { socket, tag, count };
    return held.tag === tag;
  };
  const ids = client.ids({ maxAgeMs: 60_000 });
  const controller = new AbortController();
  const aborted = ids.next({ signal: controller.signal });
  const patient = ids.next();
  controller.abort(new Error("enough"));
  await assert.rejects(aborted, /enough/);
  while (held === undefined) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  const { socket, tag, count } = held;
  socket.write(run(tag, 500n, count));
  assert.equal(await patient, 500n);
  await assert.rejects(ids.next({ signal: AbortSignal.abort(new Error("before")) }), /before/);
  assert.equal(await ids.next(), 501n);
});

test("JSON has the IDs as strings", async (t) => {
  const { client } = await started(t, { first: 2n ** 60n + 1n });
  const batch = await client.batch(2);
  assert.equal(JSON.stringify(batch), '["1152921504606846977","1152921504606846978"]');
});

test("an answer counts that arrived while the loop was blocked", async (t) => {
  const fake = new URL("./support/fake.js", import.meta.url);
  const answers = new Int32Array(new SharedArrayBuffer(4));
  // In a thread of its own, because this one is blocked.
  const thread = new Worker(
    `const { parentPort, workerData } = require("node:worker_threads");
    import(${JSON.stringify(fake.href)}).then(async ({ FakeDaemon }) => {
      const daemon = await FakeDaemon.start();
      daemon.onNext = () => {
        setImmediate(() => Atomics.add(workerData, 0, 1));
      };
      parentPort.postMessage(daemon.address);
    })`,
    { eval: true, workerData: answers },
  );
  const [address] = await once(thread, "message");
  const client = new Client(address, PATIENT);
  t.after(async () => {
    client.close();
    await thread.terminate();
  });
  await client.batch(1);
  const called = client.batch(1, { timeoutMs: 300 });
  // The request leaves in this turn of the loop.
  await Promise.resolve();
  for (const end = Date.now() + 500; Date.now() < end || Atomics.load(answers, 0) < 2; ) {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 10);
  }
  assert.equal((await called).length, 1);
});

/**
 * Runs a program with a client of that address. Returns its output, once it has ended by itself.
 */
async function runProgram(address, timeoutMs, body) {
  const index = new URL("../dist/index.js", import.meta.url);
  const program = `import { Client } from ${JSON.stringify(index.href)};
    const client = new Client(${JSON.stringify(address)}, { timeoutMs: ${timeoutMs} });
    ${body}`;
  const options = { timeout: 60_000, stdio: ["ignore", "pipe", "inherit"] };
  const child = spawn(process.execPath, ["--input-type=module", "--eval", program], options);
  let output = "";
  child.stdout.on("data", (text) => {
    output += text;
  });
  const [code] = await once(child, "close");
  assert.equal(code, 0, `it ended by a signal or with an error: ${output}`);
  return output;
}

test("a waiting call keeps the process alive until its deadline", async () => {
  const body = "await client.batch(1).catch((error) => console.log(error.code));";
  assert.equal(await runProgram("127.0.0.1:1", 500, body), "timeout\n");
});

test("an idle client does not keep the process alive", async (t) => {
  const { daemon } = await started(t);
  const body = "console.log(String(await client.ids().next()));";
  assert.match(await runProgram(daemon.address, 50_000, body), /^[0-9]+\n$/);
});
