/** The JSON of an INFO reply, and the test whether two daemons hand out the same IDs. */

import { Breach } from "./protocol.js";

/** A source of a daemon, with the protocol's own names. Only the first two are always there. */
export interface SourceInfo {
  index: number;
  name: string;
  kind?: string;
  layout?: string;
  worker_ids?: number[];
  per_second?: number;
}

/** A daemon's version, limits and sources, with the protocol's own names. */
export interface Info {
  protocol: number;
  max_count: number;
  sources: SourceInfo[];
  version?: string;
  /** The name of this start of the daemon. */
  instance?: string;
  order?: string;
  burst_window_ms?: number;
  max_ahead_ms?: number;
  clock_unix_ms?: number;
}

/** Reads the JSON. Throws {@link Breach} if a required key is missing. */
export function parseInfo(json: string): Info {
  const info = tryJson(json) as Partial<Info> | null;
  if (typeof info !== "object" || info === null) {
    throw new Breach("the INFO reply cannot be read: it is no JSON object");
  }
  if (info.protocol !== 1) {
    throw new Breach(
      `it speaks version ${String(info.protocol)} of the protocol; this client speaks 1`,
    );
  }
  if (!isCount(info.max_count) || !Array.isArray(info.sources)) {
    throw new Breach("the INFO reply cannot be read: max_count or sources is missing");
  }
  if (!info.sources.every((source) => isCount(source?.index) && typeof source.name === "string")) {
    throw new Breach("the INFO reply cannot be read: a source has no index or no name");
  }
  return info as Info;
}

function tryJson(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch (error) {
    throw new Breach(`the INFO reply cannot be read: ${(error as Error).message}`);
  }
}

function isCount(value: unknown): boolean {
  return Number.isInteger(value) && (value as number) >= 0;
}

/**
 * The longest time that a daemon holds a request without a wait of its own, or two ticks if longer.
 */
const DEFAULT_WAIT_MS = 1000;

/** Returns how long the daemon may hold a request of that source that leaves the wait to it. */
export function defaultWaitMs(source: SourceInfo | undefined): number {
  const tick = /;tick=(\d+)(ms|s)(;|$)/.exec(String(source?.layout));
  const tickMs = tick === null ? 0 : Number(tick[1]) * (tick[2] === "s" ? 1000 : 1);
  return Math.max(DEFAULT_WAIT_MS, 2 * tickMs);
}

/** A worker ID that two daemons have in one layout. */
export interface SharedWorkerId {
  workerId: number;
  layout: string;
}

/**
 * Returns how two daemons can hand out the same ID: they have a worker ID of one layout in common.
 * Returns undefined if the two are one daemon, or do not tell who they are.
 */
export function sharedWorkerId(one: Info, other: Info): SharedWorkerId | undefined {
  const instances = [one.instance, other.instance];
  if (!instances.every((name) => typeof name === "string") || instances[0] === instances[1]) {
    return undefined;
  }
  const theirs = new Set(other.sources.flatMap(workersOf).map(keyOf));
  return one.sources.flatMap(workersOf).find((worker) => theirs.has(keyOf(worker)));
}

function workersOf({ layout, worker_ids: workers }: SourceInfo): SharedWorkerId[] {
  const isReadable = typeof layout === "string" && Array.isArray(workers) && workers.every(isCount);
  return isReadable ? workers.map((workerId) => ({ workerId, layout })) : [];
}

function keyOf({ workerId, layout }: SharedWorkerId): string {
  return `${workerId} of ${layout}`;
}
