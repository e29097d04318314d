/** Rounds over all endpoints: do two daemons hand out the same IDs? Is an earlier one back? */

import { setTimeout as sleep } from "node:timers/promises";
import type { Calls } from "./call.js";
import { Dialer } from "./dial.js";
import { failed, plain, SnowbankError } from "./errors.js";
import { type Hello, info, type Request } from "./wire.js";

/** The most of a daemon's INFO that an error shows. */
const SHOWN_CHARACTERS = 1_000;

/** Two endpoints whose daemons share a claim. */
interface Pair {
  /** The instances of both daemons, and the claim. */
  key: string;
  claim: bigint;
  endpoints: [Dialer, Dialer];
  names: [string, string];
}

/** Makes rounds until the client is closed. */
export async function keepGreeting(calls: Calls): Promise<void> {
  const { firstRoundMs, roundMs, nextLookMs } = calls.settings.times;
  // Their own, because calls remember which address they used last.
  const all = calls.settings.addresses.map((one) => new Dialer(one, calls.settings));
  // A round does not keep the process alive.
  const options = { ref: false, signal: calls.closing.signal };
  let before: Pair[] = [];
  let collision: Pair | undefined;
  await sleep(Math.random() * firstRoundMs, undefined, options);
  for (;;) {
    const { found, first } = await greetAll(all, calls.closing.signal);
    if (collision !== undefined && found.length === 0) {
      calls.emit("collision_over", { endpoints: collision.names });
      collision = calls.collision = undefined;
    }
    const again = found.find(({ key }) => before.some((one) => one.key === key));
    if (collision === undefined && again !== undefined) {
      collision = again;
      await collide(calls, again);
    }
    if (calls.settings.options.preferFirst && first >= 0) {
      await moveBack(calls, first);
    }
    before = found;
    await sleep(found.length > 0 ? nextLookMs : roundMs, undefined, options);
  }
}

/** Returns the pairs that share a claim, and the index of the first endpoint that greets. */
async function greetAll(
  all: readonly Dialer[],
  closing: AbortSignal,
): Promise<{ found: Pair[]; first: number }> {
  const welcomes = await Promise.all(all.map((one) => greet(one, closing)));
  const found: Pair[] = [];
  for (const [first, one] of welcomes.entries()) {
    for (const [second, other] of welcomes.entries()) {
      if (first < second && one && other && one.instance !== other.instance) {
        const endpoints: [Dialer, Dialer] = [all[first]!, all[second]!];
        const names: [string, string] = [endpoints[0].name, endpoints[1].name];
        for (const claim of [...one.claims].filter((shared) => other.claims.has(shared))) {
          const key = [...[one.instance, other.instance].sort(), claim].join();
          found.push({ key, claim, endpoints, names });
        }
      }
    }
  }
  return { found, first: welcomes.findIndex((one) => one !== undefined) };
}

/** Greets as for any connection, asks a question if there is one, and closes it. */
async function greet(
  endpoint: Dialer,
  closing: AbortSignal,
  question?: Request,
): Promise<Hello | undefined> {
  try {
    const row = await endpoint.dial(closing);
    try {
      if (question !== undefined) {
        await row.send(question);
      }
      return row.welcome;
    } finally {
      row.end(failed(endpoint.name, "the greeting is over"));
    }
  } catch {
    return undefined;
  }
}

/** Lets calls fail, and buffers forget their IDs. The daemons' own words come later. */
async function collide(calls: Calls, { claim, endpoints, names }: Pair): Promise<void> {
  const advice = "stop one of them, and start it with worker IDs that no other daemon has";
  const text = `${names.join(" and ")} are two daemons that hand out the same IDs: ${advice}`;
  calls.collision = new SnowbankError("collision", text);
  calls.era += 1;
  calls.emit("collision", { endpoints: names, claim });
  const said = await Promise.all(
    endpoints.map(async (endpoint) => {
      const question = info();
      await greet(endpoint, calls.closing.signal, question);
      const words = plain(question.reply.toString()).replace(/\s+/g, " ");
      return `; ${endpoint.name} says ${words.slice(0, SHOWN_CHARACTERS) || "nothing"}`;
    }),
  );
  calls.collision = new SnowbankError("collision", text + said.join(""));
}

/** Connects to an earlier endpoint, and then leaves a later one for it. */
async function moveBack({ dial, endpoints }: Calls, index: number): Promise<void> {
  const first = endpoints.all[index]!;
  if (index >= endpoints.index) {
    return;
  }
  try {
    await (first.connection ?? dial(first));
  } catch {
    return;
  }
  endpoints.index = Math.min(index, endpoints.index);
  for (const later of endpoints.all.slice(endpoints.index + 1)) {
    const row = later.connection;
    later.connection = undefined;
    row?.finish();
  }
}
