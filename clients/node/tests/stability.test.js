/** The names of 0.1.0, which docs/stability.md promises. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, SnowbankError } from "../dist/index.js";

const OPTIONS = {
  source: "orders",
  timeoutMs: 1_000,
  token: "token",
  tokenFile: "/nowhere",
  caFile: "/nowhere",
  certFile: "/nowhere",
  keyFile: "/nowhere",
  serverName: "host",
  preferFirst: true,
  takeTurns: true,
};

test("the options of 0.1.0 are known", () => {
  for (const [name, value] of Object.entries(OPTIONS)) {
    try {
      new Client("tls:host:1", { [name]: value });
    } catch (error) {
      assert.ok(error instanceof SnowbankError && error.code === "bad_argument");
      assert.doesNotMatch(error.message, /no option/);
    }
  }
});

test("clients, buffers and figures have the members of 0.1.0", async () => {
  const client = new Client(["127.0.0.1:1", "127.0.0.1:2"]);
  for (const name of ["batch", "ids", "ping", "stats", "close", "on", "once", "off"]) {
    assert.equal(typeof client[name], "function", name);
  }
  const ids = client.ids({ source: "orders", timeoutMs: 10 });
  for (const name of ["next", "tryNext", Symbol.asyncIterator]) {
    assert.equal(typeof ids[name], "function", String(name));
  }
  const stats = client.stats();
  for (const name of [
    "calls",
    "retries",
    "refusals",
    "failures",
    "ids",
    "dropped",
    "oldestMs",
    "endpoint",
  ]) {
    assert.ok(name in stats, name);
  }
  await client.close({ timeoutMs: 10 });
  await assert.rejects(client.batch(3, { source: "orders", timeoutMs: 10, signal: undefined }), {
    name: "SnowbankError",
    code: "closed",
  });
  await assert.rejects(client.ping({ timeoutMs: 10 }), { code: "closed" });
});

test("events have the fields of 0.1.0", async () => {
  const client = new Client("127.0.0.1:1");
  const failed = new Promise((resolve) => client.once("failed", resolve));
  await assert.rejects(client.batch(1, { timeoutMs: 100 }), (error) => {
    return error.code === "timeout" && typeof error.reasons["127.0.0.1:1"] === "string";
  });
  const { endpoint, reason } = await failed;
  assert.deepEqual([endpoint, typeof reason], ["127.0.0.1:1", "string"]);
  await client.close();
});
