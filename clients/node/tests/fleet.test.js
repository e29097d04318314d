/** Several addresses of a name, and rests. */

import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { resolver } from "../dist/dial.js";
import { Client, SnowbankError } from "../dist/index.js";
import { Settings, TIMES } from "../dist/options.js";
import { Endpoints } from "../dist/rest.js";
import { FakeDaemon } from "./support/fake.js";

const realLookup = resolver.lookup;
const daemons = [];

afterEach(async () => {
  resolver.lookup = realLookup;
  await Promise.all(daemons.splice(0).map((daemon) => daemon.stop()));
});

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
