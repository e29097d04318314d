/** Several daemons: names with many addresses, turns, rest and return. */

import assert from "node:assert/strict";
import dns from "node:dns/promises";
import { once } from "node:events";
import { syncBuiltinESMExports } from "node:module";
import { createServer } from "node:net";
import { afterEach, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Client } from "../dist/index.js";
import { Settings } from "../dist/options.js";
import { Pool } from "../dist/pool.js";
import { InfoRequest } from "../dist/requests.js";
import { withClock } from "./support/clock.js";
import { FakeDaemon } from "./support/fake.js";

const realLookup = dns.lookup;
let daemons = [];
const clients = [];

afterEach(async () => {
  resolveTo(realLookup);
  for (const client of clients.splice(0)) {
    client.close();
  }
  await Promise.all(daemons.splice(0).map((daemon) => daemon.stop()));
});

/** Makes every name resolve as `lookup` says. */
function resolveTo(lookup) {
  dns.lookup = lookup;
  syncBuiltinESMExports();
}

function addresses(...hosts) {
  return async () => hosts.map((address) => ({ address, family: 4 }));
}

/** Starts daemons on one port of several loopback addresses. Their IDs begin at 1000, 2000, … */
async function startAll(...hosts) {
  const started = [];
  for (const [index, host] of hosts.entries()) {
    const port = started[0]?.port ?? 0;
    started.push(await FakeDaemon.start({ host, port, first: BigInt(index + 1) * 1000n }));
  }
  daemons = [...daemons, ...started];
  return started;
}

function connect(endpoints, options) {
  // Limits that even a busy machine meets.
  const patient = { timeoutMs: 20_000, connectTimeoutMs: 60_000, answerTimeoutMs: 60_000 };
  const client = new Client(endpoints, { ...patient, ...options });
  clients.push(client);
  return client;
}

test("a name with two addresses is two daemons", async () => {
  const [one, other] = await startAll("127.0.0.1", "127.0.0.2");
  resolveTo(addresses("127.0.0.1", "127.0.0.2"));
  const client = connect(`ids.test:${one.port}`);
  const first = (await client.batch(1)).endpoint;
  const server = first.includes("127.0.0.1") ? one : other;
  await server.stop();
  daemons = daemons.filter((daemon) => daemon !== server);
  const second = (await client.batch(1)).endpoint;
  const names = [one, other].map(({ host, port }) => `ids.test:${port} (${host})`);
  assert.deepEqual([first, second].sort(), names);
});

test("a name is looked up again after a failure", async () => {
  const [one, other] = await startAll("127.0.0.1", "127.0.0.2");
  resolveTo(addresses("127.0.0.1"));
  const client = connect(`ids.test:${one.port}`);
  assert.deepEqual([...(await client.batch(1))], [1000n]);
  resolveTo(addresses("127.0.0.2"));
  await one.stop();
  daemons = [other];
  assert.deepEqual([...(await client.batch(1))], [2000n]);
});

test("a name that cannot be looked up is an error that says so", async () => {
  resolveTo(async () => {
    throw Object.assign(new Error("getaddrinfo"), { code: "ENOTFOUND" });
  });
  const call = connect("ids.test:7660").batch(1, { timeoutMs: 4000 });
  await assert.rejects(call, {
    code: "timeout",
    message: /ids\.test:7660: the name has no address/,
  });
});

test("clients of one name spread over its daemons", async () => {
  const [one] = await startAll("127.0.0.1", "127.0.0.2", "127.0.0.3");
  resolveTo(addresses("127.0.0.1", "127.0.0.2", "127.0.0.3"));
  const served = new Set();
  for (let count = 0; count < 30; count += 1) {
    served.add((await connect(`ids.test:${one.port}`).batch(1)).endpoint);
  }
  assert.equal(served.size, 3);
});

test("preferFirst keeps the order of a name's addresses", async () => {
  const [one] = await startAll("127.0.0.1", "127.0.0.2", "127.0.0.3");
  resolveTo(addresses("127.0.0.2", "127.0.0.1", "127.0.0.3"));
  for (let count = 0; count < 20; count += 1) {
    const client = connect(`ids.test:${one.port}`, { preferFirst: true });
    assert.equal((await client.batch(1)).endpoint, `ids.test:${one.port} (127.0.0.2)`);
  }
});

test("preferFirst uses an earlier name once it can be looked up", async () => {
  const [one, other] = await startAll("127.0.0.1", "127.0.0.2");
  resolveTo(async () => {
    throw Object.assign(new Error("getaddrinfo"), { code: "ENOTFOUND" });
  });
  const client = connect([`ids.test:${one.port}`, other.address], { preferFirst: true });
  assert.equal((await client.batch(1)).endpoint, other.address);
  resolveTo(addresses("127.0.0.1"));
  const end = Date.now() + 20_000;
  while ((await client.batch(1)).endpoint === other.address) {
    assert.ok(Date.now() < end, "the first endpoint was never used");
    await sleep(10);
  }
});

test("preferFirst uses an earlier name at its new address", async () => {
  const [old, moved, other] = await startAll("127.0.0.1", "127.0.0.2", "127.0.0.3");
  resolveTo(addresses(old.host));
  const client = connect([`ids.test:${old.port}`, other.address], { preferFirst: true });
  assert.deepEqual([...(await client.batch(1))], [1000n]);
  await old.stop();
  daemons = [moved, other];
  assert.equal((await client.batch(1)).endpoint, other.address);
  resolveTo(addresses(moved.host));
  const end = Date.now() + 20_000;
  while ((await client.batch(1)).endpoint === other.address) {
    assert.ok(Date.now() < end, "the first endpoint was never used again");
    await sleep(10);
  }
});

test("calls take turns, pass a daemon that is down, and return", async () => {
  const started = await startAll("127.0.0.1", "127.0.0.2");
  const [one, other] = started;
  const client = connect([one.address, other.address], { takeTurns: true });
  const draw = async () => (await client.batch(1)).endpoint;
  const until = async (isDone) => {
    const end = Date.now() + 20_000;
    for (let served = []; !isDone(served); served = await drawSome()) {
      assert.ok(Date.now() < end, `served: ${served}`);
      await sleep(10);
    }
  };
  const drawSome = async () => [await draw(), await draw(), await draw(), await draw()];
  const takesTurns = ([a, b, c, d]) => a !== undefined && a !== b && a === c && b === d;
  await until(takesTurns);
  await one.stop();
  assert.deepEqual(new Set(await drawSome()), new Set([other.address]));
  await one.listen(one.host, one.port);
  await until(takesTurns);
});

test("a client that takes turns finds the new addresses of a name", async () => {
  const [one, other] = await startAll("127.0.0.1", "127.0.0.2");
  resolveTo(addresses("127.0.0.1"));
  const client = connect(`ids.test:${one.port}`, { takeTurns: true });
  await client.batch(1);
  // The look for equal worker IDs looks names up too, a second after the first connection.
  await sleep(1500);
  resolveTo(addresses("127.0.0.1", "127.0.0.2"));
  await withClock(performance, 31_000, async () => {
    for (const end = Date.now() + 20_000; other.asked.length === 0; await sleep(10)) {
      assert.ok(Date.now() < end, "the other daemon was never asked");
      await client.batch(1);
    }
  });
});

/** Returns the connections behind a client. */
function poolOf(address) {
  const patient = { connectTimeoutMs: 60_000, answerTimeoutMs: 60_000 };
  return new Pool(new Settings(address, patient), () => {});
}

test("the back-off grows to its limit and varies", () => {
  const pool = poolOf("127.0.0.1:7660");
  for (const [failures, limitMs] of [
    [1, 50],
    [2, 100],
    [5, 800],
    [8, 5000],
    [2000, 5000],
  ]) {
    const pauses = Array.from({ length: 300 }, () => pool.backoffMs(failures));
    const [least, most] = [Math.min(...pauses), Math.max(...pauses)];
    assert.ok(most <= limitMs && most > limitMs / 2, `${failures} failures: up to ${most} ms`);
    assert.ok(least < limitMs / 4, `${failures} failures: from ${least} ms on`);
  }
});

test("others come first, however short the back-off is", async (t) => {
  t.mock.method(Math, "random", () => 0);
  const [silent, other] = await startAll("127.0.0.1", "127.0.0.2");
  silent.onNext = () => true;
  const client = connect([silent.address, other.address], { answerTimeoutMs: 5000 });
  assert.equal((await client.batch(1, { maxWaitMs: 0 })).endpoint, other.address);
  assert.equal(silent.asked.length, 1);
});

test("an answer sets the back-off back", async () => {
  const [daemon] = await startAll("127.0.0.1");
  const pool = poolOf(daemon.address);
  for (let round = 0; round < 5; round += 1) {
    const { connection } = await new Promise(pool.acquire);
    await new Promise((resolve, reject) => connection.send(new InfoRequest(), resolve, reject));
    daemon.hangUp();
    while (connection.isUsable) {
      await sleep(5);
    }
  }
  assert.equal(pool.targets[0].failures, 1);
});

/** Starts two daemons with one worker ID of one layout. */
async function startColliding() {
  const sources = [{ index: 0, name: "default", layout: "time:41,worker:10", worker_ids: [7] }];
  daemons = [
    await FakeDaemon.start({ instance: "one", sources }),
    await FakeDaemon.start({ instance: "other", sources }),
  ];
  return daemons;
}

test("a buffer stops once two daemons have the same worker IDs", async () => {
  const colliding = await startColliding();
  const client = connect(colliding.map(({ address }) => address));
  const ids = client.ids({ maxAgeMs: 60_000 });
  const collision = { code: "same_worker_ids", message: /worker ID 7 of the layout time:41/ };
  for (let drawn = 0; drawn < 100; drawn += 1) {
    await ids.next();
  }
  const end = Date.now() + 20_000;
  for (let error; error === undefined; await sleep(20)) {
    assert.ok(Date.now() < end, "no collision was found");
    error = await client.batch(1).catch((caught) => caught.code);
    error = typeof error === "string" ? error : undefined;
  }
  assert.throws(() => ids.tryNext(), collision);
  await assert.rejects(client.batch(1), collision);
});

test("daemons that look the same once are no collision", async () => {
  const [one, other] = await startColliding();
  const client = connect([one.address, other.address]);
  await client.batch(1);
  const end = Date.now() + 20_000;
  for (let looks = 0, lastAt = end; looks < 2 || Date.now() < lastAt; await sleep(20)) {
    assert.ok(Date.now() < end, "no second look");
    if (other.greetings > looks) {
      looks = other.greetings;
      lastAt = Date.now() + 500;
      other.info.sources = [{ index: 0, name: "default", layout: "time:41", worker_ids: [8] }];
    }
    await client.batch(1);
  }
});

test("a source that the daemon does not have is refused by name", async () => {
  const [daemon] = await startAll("127.0.0.1");
  const client = connect(daemon.address);
  const missing = { code: "unknown_source", message: /no source named "orders"; it has default/ };
  await assert.rejects(client.batch(1, { source: "orders" }), missing);
});

test("a server that accepts and never greets is left for the next", async (t) => {
  const silent = createServer(() => {}).listen(0, "127.0.0.1");
  await once(silent, "listening");
  t.after(() => silent.close());
  const [daemon] = await startAll("127.0.0.1");
  const addresses = [`127.0.0.1:${silent.address().port}`, daemon.address];
  const client = connect(addresses, { connectTimeoutMs: 100, timeoutMs: 10_000 });
  assert.equal((await client.batch(1)).endpoint, daemon.address);
  assert.match(
    String(client.endpointErrors()[0]),
    /(sent no greeting|not connected) within 100 ms/,
  );
});
