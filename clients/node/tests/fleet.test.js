/** Several addresses of a name, and rests. */

import assert from "node:assert/strict";
import { once } from "node:events";
import net from "node:net";
import { afterEach, test } from "node:test";
import { Dialer, resolver } from "../dist/dial.js";
import { Client, SnowbankError } from "../dist/index.js";
import { Settings, TIMES } from "../dist/options.js";
import { Endpoints } from "../dist/rest.js";
import { FakeDaemon, refusal } from "./support/fake.js";

const realLookup = resolver.lookup;
const daemons = [];

afterEach(async () => {
  resolver.lookup = realLookup;
  await Promise.all(daemons.splice(0).map((daemon) => daemon.stop()));
});

/** Blocks the program. */
function block(ms) {
  for (const end = performance.now() + ms; performance.now() < end; );
}

async function started(options) {
  const daemon = await FakeDaemon.start(options);
  daemons.push(daemon);
  return daemon;
}

test("a name's further address serves when one dies, and the name is looked up again", async () => {
  const one = await started({ host: "127.0.0.1" });
  await started({ host: "127.0.0.2", port: one.port, first: 1000n });
  let lookups = 0;
  resolver.lookup = async () => {
    lookups += 1;
    return ["127.0.0.1", "127.0.0.2"];
  };
  const client = new Client(`ids.example:${one.port}`, { timeoutMs: 20_000 });
  await client.batch(1);
  await client.batch(1);
  assert.equal(lookups, 1);
  await one.stop();
  daemons.splice(daemons.indexOf(one), 1);
  const [id] = await client.batch(1);
  assert.ok(id >= 1000n);
  await client.close();
});

test("a look-up that hangs is given up, and not joined by others", async () => {
  let lookups = 0;
  resolver.lookup = () => {
    lookups += 1;
    return new Promise(() => {});
  };
  const client = new Client("ids.example:7660");
  const pattern = /ids.example:7660: its name was not resolved within 1 s/;
  await assert.rejects(client.batch(1, { timeoutMs: 2500 }), pattern);
  assert.equal(lookups, 1);
  await client.close();
});

test("a dial that is given up connects no more", async () => {
  const daemon = await started();
  const { connectMs } = TIMES;
  TIMES.connectMs = 50;
  resolver.lookup = () => new Promise((resolve) => setTimeout(resolve, 200, ["127.0.0.1"]));
  const client = new Client(`ids.example:${daemon.port}`);
  TIMES.connectMs = connectMs;
  const late = /it does not greet within 0.05 s/;
  await assert.rejects(client.batch(1, { timeoutMs: 100 }), late);
  await new Promise((resolve) => setTimeout(resolve, 400));
  assert.equal(daemon.greetings, 0);
  await client.close();
});

test("an address for which no time is left is not tried", async () => {
  const { connect } = net;
  const tried = [];
  net.connect = (where) => {
    tried.push(where.host);
    // The program is blocked for longer than the limits of the address and of the connection.
    queueMicrotask(() => block(60));
    return connect(where);
  };
  resolver.lookup = async () => ["127.0.0.1", "127.0.0.2", "127.0.0.3"];
  const settings = new Settings("ids.example:1", {});
  Object.assign(settings.times, { acceptMs: 20, connectMs: 50 });
  const dialer = new Dialer(settings.addresses[0], settings);
  await assert.rejects(dialer.dial(new AbortController().signal), { code: "failed" });
  await new Promise((resolve) => setTimeout(resolve, 50));
  net.connect = connect;
  assert.equal(tried.length, 1, `${tried}`);
});

test("a call that is late before it asks draws nothing", async () => {
  const daemon = await started();
  const client = new Client(daemon.address);
  await client.ping();
  const late = client.batch(1000, { timeoutMs: 20 });
  block(50);
  await assert.rejects(late, { code: "timeout" });
  assert.deepEqual(await client.batch(1), [1n]);
  await client.close();
});

test("connected is told before failed", async () => {
  const daemon = await started();
  daemon.extra = refusal(99, 2);
  const client = new Client(daemon.address);
  const events = [];
  for (const event of ["connected", "failed"]) {
    client.on(event, () => events.push(event));
  }
  await assert.rejects(client.ping({ timeoutMs: 2000 }), { code: "timeout" });
  assert.deepEqual(events.slice(0, 2), ["connected", "failed"]);
  await client.close();
});

test("a collision whose daemons refuse INFO leaves no connection open", async () => {
  const claim = 7n;
  const both = [await started({ claim }), await started({ claim })];
  const times = { ...TIMES };
  Object.assign(TIMES, { firstRoundMs: 10, roundMs: 100, nextLookMs: 20 });
  const client = new Client(both.map(({ address }) => address));
  Object.assign(TIMES, times);
  await client.ping();
  await once(client, "collision");
  await new Promise((resolve) => setTimeout(resolve, 200));
  await client.close();
  for (let wait = 0; wait < 100 && both.some(({ open }) => open > 0); wait += 1) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.deepEqual(
    both.map(({ open }) => open),
    [0, 0],
  );
});

test("in turns an endpoint that says stay rests, also if that is told", async () => {
  const both = [await started(), await started()];
  for (const daemon of both) {
    daemon.onNext = ({ socket, tag }) => socket.write(refusal(tag, 6, 1, 50_000)) || true;
  }
  const client = new Client(
    both.map(({ address }) => address),
    { takeTurns: true },
  );
  await assert.rejects(client.batch(1), { code: "exhausted" });
  await assert.rejects(client.batch(1, { timeoutMs: 200 }), SnowbankError);
  await assert.rejects(client.batch(1, { timeoutMs: 200 }), SnowbankError);
  assert.deepEqual(
    both.map(({ asked }) => asked.length),
    [1, 1],
  );
  await client.close();
});

test("a client begins with a random endpoint, or with the first", () => {
  const names = Array.from({ length: 8 }, (_, at) => `ids-${at}:7660`);
  const firsts = (options) =>
    new Set(
      Array.from({ length: 64 }, () => new Endpoints(new Settings(names, options)).pick().name),
    );
  assert.ok(firsts({}).size > 1);
  assert.deepEqual([...firsts({ preferFirst: true })], [names[0]]);
});

test("the back-off grows to a second, and varies", () => {
  const endpoints = new Endpoints(new Settings("ids-1:7660", {}));
  for (const [failures, limit] of [
    [1, 50],
    [2, 100],
    [5, 800],
    [6, 1000],
    [10_000, 1000],
  ]) {
    const rests = Array.from({ length: 300 }, () => endpoints.backoffMs(failures));
    assert.ok(Math.max(...rests) > limit / 2 && Math.max(...rests) <= limit);
    assert.ok(Math.min(...rests) < limit / 4);
  }
});

test("a lone endpoint is asked again at once, but once", () => {
  const error = new SnowbankError("no_ceiling", "", { action: "leave", retryAfterMs: 60_000 });
  const [lone, two] = [["ids-1:7660"], ["ids-1:7660", "ids-2:7660"]].map(
    (names) => new Endpoints(new Settings(names, {})),
  );
  lone.failed(lone.all[0], error);
  assert.equal(lone.all[0].restsUntil, 0);
  lone.failed(lone.all[0], error);
  const rest = lone.all[0].restsUntil - performance.now();
  assert.ok(rest > 900 && rest <= 2000, `${rest}`);
  const first = two.pick();
  two.failed(first, error);
  assert.notEqual(two.pick(), first);
});
