/**
 * Measures the client beside Redis clients in one run. After `npm run build`:
 *
 *     tests/clients/install     # at the root: ioredis and node-redis, into target/clients
 *     SNOWBANK_DAEMON=target/release/snowbank node clients/node/bench/bench.js
 *
 * It needs redis-server. Every row is the best of three rounds.
 */

import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { Client } from "../dist/index.js";
import { Daemon, freePort } from "../tests/support/daemon.js";

const ROUNDS = 3;
const BATCH = 1000;

/** The modules of Redis clients. */
const modules =
  process.env.REDIS_CLIENTS ?? new URL("../../../target/clients/", import.meta.url).pathname;
const load = createRequire(`${modules}/`);

async function row(name, count, work) {
  const rounds = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const began = process.hrtime.bigint();
    const waitedNs = (await work(count)) ?? 0;
    rounds.push((Number(process.hrtime.bigint() - began) - waitedNs) / count);
  }
  console.log(
    `${name.padEnd(44)} ${Math.min(...rounds)
      .toFixed(1)
      .padStart(9)} ns an ID`,
  );
}

/** Draws IDs by `tryNext` alone. Returns the time in which the buffer was empty, in ns. */
async function tryNext(ids, count) {
  let waitedNs = 0;
  for (let drawn = 0; drawn < count; drawn += 1) {
    if (ids.tryNext() === undefined) {
      const began = process.hrtime.bigint();
      await ids.next();
      waitedNs += Number(process.hrtime.bigint() - began);
    }
  }
  return waitedNs;
}

async function snowbank(client) {
  const ids = client.ids();
  await row("Snowbank, tryNext with IDs in the buffer", 2_000_000, (count) => tryNext(ids, count));
  await row("Snowbank, tryNext and the waits for refills", 2_000_000, async (count) => {
    await tryNext(ids, count);
  });
  await row("Snowbank, await next()", 500_000, async (count) => {
    for (let drawn = 0; drawn < count; drawn += 1) {
      await ids.next();
    }
  });
  await row(`Snowbank, batch(${BATCH}), iterated`, 1_000_000, async (count) => {
    for (let drawn = 0; drawn < count; ) {
      for (const id of await client.batch(BATCH)) {
        drawn += id > 0n ? 1 : 0;
      }
    }
  });
  await row("Snowbank, batch(1), one after the other", 10_000, async (count) => {
    for (let drawn = 0; drawn < count; drawn += 1) {
      await client.batch(1);
    }
  });
}

/** `increase` is INCR by one, or INCRBY with a number. */
async function redis(name, increase) {
  await row(`${name}, INCR`, 10_000, async (count) => {
    for (let drawn = 0; drawn < count; drawn += 1) {
      await increase(1);
    }
  });
  await row(`${name}, INCRBY ${BATCH}`, 1_000_000, async (count) => {
    for (let drawn = 0; drawn < count; ) {
      const last = BigInt(await increase(BATCH));
      for (let id = last - BigInt(BATCH - 1); id <= last; id += 1n) {
        drawn += id > 0n ? 1 : 0;
      }
    }
  });
}

/** Measures the longest wait for an ID while one of two daemons gets a signal. */
async function longest(signal) {
  const daemons = [await Daemon.start(1), await Daemon.start(2)];
  const client = new Client(daemons.map((daemon) => daemon.address));
  const ids = client.ids();
  let longestMs = 0;
  const end = performance.now() + 2500;
  for (let isDone = false; performance.now() < end; ) {
    const began = performance.now();
    await ids.next();
    longestMs = Math.max(longestMs, performance.now() - began);
    if (!isDone && end - performance.now() < 2000) {
      isDone = true;
      daemons[0].signal(signal);
    }
    await sleep(0.2);
  }
  console.log(`the longest next() over a ${signal}: ${longestMs.toFixed(1)} ms`);
  client.close();
  await Promise.all(daemons.map((daemon) => daemon.end()));
}

const port = await freePort();
const server = spawn("redis-server", [
  ...["--port", String(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
]);
const daemon = await Daemon.start(1);
try {
  const client = new Client(daemon.address);
  await snowbank(client);
  client.close();
  await isListening(port);
  const Redis = load("ioredis");
  const io = new Redis(port, "127.0.0.1");
  await redis("ioredis", (by) => (by === 1 ? io.incr("ids") : io.incrby("ids", by)));
  io.disconnect();
  const node = load("redis").createClient({ url: `redis://127.0.0.1:${port}` });
  await node.connect();
  await redis("node-redis", (by) => (by === 1 ? node.incr("ids") : node.incrBy("ids", by)));
  node.destroy();
  await longest("SIGKILL");
  await longest("SIGSTOP");
} finally {
  server.kill();
  await daemon.end();
}

async function isListening(port) {
  for (let isThere = false; !isThere; await sleep(10)) {
    const socket = connect(port, "127.0.0.1");
    isThere = await new Promise((done) => {
      socket.once("connect", () => done(true)).once("error", () => done(false));
    });
    socket.destroy();
  }
}
