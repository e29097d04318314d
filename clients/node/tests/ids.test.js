/** The buffer, signals, and the life of the process. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { test } from "node:test";
import { Client } from "../dist/index.js";
import { withClock } from "./support/clock.js";
import { FakeDaemon } from "./support/fake.js";

async function started(t, options) {
  const daemon = await FakeDaemon.start(options);
  const client = new Client(daemon.address, { timeoutMs: 60_000 });
  t.after(async () => {
    await client.close();
    await daemon.stop();
  });
  return { daemon, client };
}

test("IDs that either clock calls old are dropped", async (t) => {
  for (const owner of [Date, performance]) {
    const { daemon, client } = await started(t);
    daemon.goodForMs = 60_000;
    const ids = client.ids();
    assert.equal(await ids.next(), 1n);
    await withClock(owner, 60_001, async () => {
      assert.equal(ids.tryNext(), undefined);
      assert.ok((await ids.next()) > 16n);
    });
    assert.equal(client.stats().dropped, 15);
    assert.equal(client.stats().ids, 2);
  }
});

test("tryNext gives an ID or undefined, and batches double while they are drawn quickly", async (t) => {
  const { daemon, client } = await started(t);
  const ids = client.ids();
  assert.equal(ids.tryNext(), undefined);
  for (let id = 1n; id <= 40_000n; id += 1n) {
    assert.equal(ids.tryNext() ?? (await ids.next()), id);
  }
  assert.equal(daemon.asked[0], 16);
  assert.ok(daemon.asked.length < 20, `${daemon.asked}`);
});

test("for await draws one ID after the other", async (t) => {
  const { client } = await started(t);
  const drawn = [];
  for await (const id of client.ids()) {
    drawn.push(id);
    if (drawn.length === 100) {
      break;
    }
  }
  assert.equal(new Set(drawn).size, 100);
});

test("any number of calls on one signal end with it, without a warning", async (t) => {
  const { daemon, client } = await started(t);
  daemon.onNext = () => true;
  const warnings = [];
  const warned = (warning) => warnings.push(warning);
  process.on("warning", warned);
  t.after(() => process.off("warning", warned));
  const controller = new AbortController();
  const options = { signal: controller.signal };
  const ids = client.ids();
  const calls = Array.from({ length: 200 }, (_, at) =>
    at % 2 === 0 ? client.batch(1, options) : ids.next(options),
  );
  const ended = Promise.allSettled(calls);
  await new Promise((resolve) => setTimeout(resolve, 50));
  controller.abort();
  for (const { reason } of await ended) {
    assert.equal(reason?.name, "AbortError");
  }
  await assert.rejects(client.batch(1, options), { name: "AbortError" });
  // Also if the buffer has an ID.
  daemon.onNext = () => false;
  const full = client.ids();
  await full.next();
  await assert.rejects(full.next(options), { name: "AbortError" });
  assert.deepEqual(warnings, []);
});

test("a client is disposed of", async (t) => {
  const { client } = await started(t);
  await client.ping();
  await client[Symbol.asyncDispose ?? Symbol.for("nodejs.asyncDispose")]();
  await assert.rejects(client.ping(), { code: "closed" });
});

test("an idle client does not keep the process alive, in both kinds of modules", async (t) => {
  const { daemon } = await started(t);
  const index = JSON.stringify(new URL("../dist/index", import.meta.url).pathname);
  const body = `new Client("${daemon.address}").ids().next().then((id) => console.log(String(id)));`;
  for (const [kind, load] of [
    ["commonjs", `const { Client } = require(${index} + ".js");`],
    ["module", `const { Client } = await import(${index} + ".mjs");`],
  ]) {
    const flags = kind === "module" ? ["--input-type=module", "-e"] : ["-e"];
    const child = spawn(process.execPath, [...flags, load + body]);
    let output = "";
    child.stdout.on("data", (text) => {
      output += text;
    });
    child.stderr.on("data", (text) => {
      output += text;
    });
    const [code] = await new Promise((resolve) => child.on("close", (...ended) => resolve(ended)));
    assert.equal(code, 0, output);
    assert.match(output, /^\d+\n$/);
  }
});

test("a fetch that no call waits for does not keep the process alive", async (t) => {
  const { daemon } = await started(t);
  daemon.onNext = () => daemon.asked.length > 1;
  const index = JSON.stringify(new URL("../dist/index.js", import.meta.url).pathname);
  // Half of 16 IDs are drawn, so that a fetch begins, which the daemon never answers.
  const body = `const { Client } = require(${index});
    const ids = new Client("${daemon.address}", { timeoutMs: 60_000 }).ids();
    (async () => { for (let n = 0; n < 9; n += 1) await ids.next(); })();`;
  const child = spawn(process.execPath, ["-e", body], { timeout: 20_000 });
  const [code] = await new Promise((resolve) => child.on("close", (...ended) => resolve(ended)));
  assert.deepEqual([code, daemon.asked.length > 1], [0, true]);
});
