/** Rounds over all endpoints: do two daemons hand out the same IDs? Is an earlier one back? */

import type { Calls } from "./call.js";
import { failed, plain, SnowbankError } from "./errors.js";
import type { Endpoint } from "./rest.js";
import { Info, type Welcome } from "./wire.js";

/** The most of a daemon's INFO that an error shows. */
const SHOWN_CHARACTERS = 1_000;

interface Pair {
  /** The instances of both daemons, and the claim that they share. */
  key: string;
  claim: bigint;
  endpoints: [Endpoint, Endpoint];
}

export class Rounds {
  #timer: NodeJS.Timeout | undefined;
  #collision: Pair | undefined;
  #isStopped = false;

  constructor(private readonly calls: Calls) {}

  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#timer);
  }

  /** Makes rounds until they are stopped. */
  async run(): Promise<void> {
    const { firstRoundMs, roundMs, nextLookMs } = this.calls.settings.times;
    let before = new Map<string, Pair>();
    await this.#sleep(Math.random() * firstRoundMs);
    while (!this.#isStopped) {
      const { found, first } = await this.#greetAll();
      if (this.#collision !== undefined && !found.has(this.#collision.key)) {
        const endpoints = names(this.#collision);
        this.#collision = this.calls.collision = undefined;
        this.calls.emit("collision_over", { endpoints });
      }
      const again = [...found.values()].find(({ key }) => before.has(key));
      if (this.#collision === undefined && again !== undefined) {
        await this.#collide(again);
      }
      if (this.calls.settings.options.preferFirst && first >= 0) {
        await this.#moveBack(first);
      }
      before = found;
      await this.#sleep(found.size > 0 ? nextLookMs : roundMs);
    }
  }

  /** Waits, without keeping the process alive. */
  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.#timer = setTimeout(resolve, ms).unref();
    });
  }

  /** Returns the pairs that share a claim, and the first endpoint that greets, or -1. */
  async #greetAll(): Promise<{ found: Map<string, Pair>; first: number }> {
    const { all } = this.calls.endpoints;
    const welcomes = await Promise.all(all.map(greet));
    const found = new Map<string, Pair>();
    welcomes.forEach((one, index) => {
      for (let next = index + 1; one !== undefined && next < all.length; next += 1) {
        const other = welcomes[next];
        if (other === undefined || other.instance === one.instance) {
          continue;
        }
        for (const claim of one.claims) {
          if (other.claims.has(claim)) {
            const key = [...[one.instance, other.instance].sort(), claim].join();
            found.set(key, { key, claim, endpoints: [all[index]!, all[next]!] });
          }
        }
      }
    });
    return { found, first: welcomes.findIndex((one) => one !== undefined) };
  }

  /** Lets calls fail, and buffers forget their IDs. The daemons' own words come later. */
  async #collide(pair: Pair): Promise<void> {
    this.#collision = pair;
    this.calls.collision = collision(pair, []);
    this.calls.age += 1;
    this.calls.emit("collision", { endpoints: names(pair), claim: pair.claim });
    this.calls.collision = collision(pair, await Promise.all(pair.endpoints.map(info)));
  }

  /** Connects to an earlier endpoint, and then leaves a later one for it. */
  async #moveBack(index: number): Promise<void> {
    const { endpoints } = this.calls;
    const earlier = endpoints.all[index]!;
    if (index >= endpoints.index) {
      return;
    }
    try {
      await (earlier.connection ?? this.calls.dial(earlier));
    } catch {
      return;
    }
    const left = endpoints.all[endpoints.index]!;
    if (index < endpoints.index) {
      endpoints.index = index;
      const row = left.connection;
      left.connection = undefined;
      row?.finish();
    }
  }
}

function names({ endpoints: [one, other] }: Pair): [string, string] {
  return [one.name, other.name];
}

function collision(pair: Pair, said: string[]): SnowbankError {
  const [one, other] = names(pair);
  const advice = "stop one of them, and start it with worker IDs that no other daemon has";
  const info = said.map((words, at) => `; ${names(pair)[at]} says ${words}`).join("");
  const text = `${one} and ${other} are two daemons that hand out the same IDs: ${advice}${info}`;
  return new SnowbankError("collision", text);
}

/** Greets as for any connection, and closes it. */
async function greet(endpoint: Endpoint): Promise<Welcome | undefined> {
  try {
    const row = await endpoint.dial();
    row.end(failed(endpoint.name, "the greeting is over"));
    return row.welcome;
  } catch {
    return undefined;
  }
}

/** Returns what a daemon says of itself. */
async function info(endpoint: Endpoint): Promise<string> {
  try {
    const row = await endpoint.dial();
    const request = new Info();
    await new Promise<unknown>((resolve, reject) => row.send(request, resolve, reject));
    row.end(failed(endpoint.name, "the greeting is over"));
    return plain(request.json).replace(/\s+/g, " ").slice(0, SHOWN_CHARACTERS);
  } catch (error) {
    return `nothing (${(error as Error).message})`;
  }
}
