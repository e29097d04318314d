/**
 * Measures an ID with the client, and with ioredis. `clients/bench` runs it after `npm run build`.
 */

import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";
import { Client } from "../dist/index.js";

const ROUNDS = 7;
const STRETCHES = 500;
/** Enough for the clock's grain, and so few that most stretches see no refill. */
const STRETCH = 1000;
const CALLS = 2000;

/** Keeps a call from being optimised away. */
function use(id) {
  if (id < 1n) {
    throw new Error(`no ID: ${id}`);
  }
}

/** Prints a row: whose it is, what was measured, and the time for each of `count` IDs. */
async function measure(handle, what, count, work) {
  const began = process.hrtime.bigint();
  await work();
  console.log(`${handle}\t${what}\t${Number(process.hrtime.bigint() - began) / count}`);
}

async function measureIds(address, redis) {
  const client = new Client(address);
  const ids = client.ids();
  const tryNext = async () => {
    for (let drawn = 0; drawn < STRETCH; drawn += 1) {
      use(ids.tryNext() ?? (await ids.next()));
    }
  };
  const next = async () => {
    for (let drawn = 0; drawn < STRETCH; drawn += 1) {
      use(await ids.next());
    }
  };
  for (let round = 0; round < ROUNDS; round += 1) {
    for (let stretch = 0; stretch < STRETCHES; stretch += 1) {
      await measure("tryNext", "buffer", STRETCH, tryNext);
    }
    for (let stretch = 0; stretch < STRETCHES; stretch += 1) {
      await measure("await next", "buffer", STRETCH, next);
    }
    await measure("tryNext", "one", CALLS, () => batches(client, 1));
    await measure("tryNext", "batch", CALLS * STRETCH, () => batches(client, STRETCH));
    await measureRedis(redis);
  }
  client.close();
}

async function batches(client, count) {
  for (let call = 0; call < CALLS; call += 1) {
    for (const id of await client.batch(count)) {
      use(id);
    }
  }
}

async function measureRedis(redis) {
  await measure("redis", "incr", CALLS, async () => {
    for (let call = 0; call < CALLS; call += 1) {
      use(BigInt(await redis.incr("ids")));
    }
  });
  await measure("redis", "incrby", CALLS * STRETCH, async () => {
    for (let call = 0; call < CALLS; call += 1) {
      const last = BigInt(await redis.incrby("ids", STRETCH));
      for (let id = last - BigInt(STRETCH - 1); id <= last; id += 1n) {
        use(id);
      }
    }
  });
}

/** Draws 100 IDs each millisecond, and prints the longest `next()` in ms. */
async function longest(addresses, seconds) {
  const client = new Client(addresses);
  const ids = client.ids();
  await ids.next();
  console.log("drawing");
  let longestMs = 0;
  for (const end = performance.now() + seconds * 1000; performance.now() < end; await sleep(1)) {
    for (let drawn = 0; drawn < 100; drawn += 1) {
      const began = performance.now();
      await ids.next();
      longestMs = Math.max(longestMs, performance.now() - began);
    }
  }
  console.log(longestMs);
  client.close();
}

/** Makes clients with a buffer each, and keeps them until it is killed. */
async function clients(address, count) {
  const kept = [];
  for (let made = 0; made < count; made += 1) {
    const client = new Client(address);
    const ids = client.ids();
    await ids.next();
    kept.push({ client, ids });
  }
  console.log("ready");
  await sleep(60_000);
}

const [what, first, second] = process.argv.slice(2);
if (what === "ids") {
  const Redis = createRequire(`${process.env.LIBRARIES}/`)("ioredis");
  const [host, port] = second.split(":");
  const redis = new Redis(Number(port), host);
  await measureIds(first, redis);
  redis.disconnect();
} else if (what === "longest") {
  await longest(first.split(","), Number(second));
} else if (what === "clients") {
  await clients(first, Number(second));
} else {
  throw new Error("usage: ids ADDRESS REDIS | longest ADDRESSES SECONDS | clients ADDRESS COUNT");
}
