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

/** The longest time that a daemon holds a request without a wait of its own, or two ticks if longer. */
const DEFAULT_WAIT_MS = 1000;

/** Returns how long the daemon may hold a request of that source that leaves the wait to it. */
export function defaultWaitMs(source: SourceInfo | undefined): number {
  const layout = parseLayout(source?.layout);
  return Math.max(DEFAULT_WAIT_MS, layout === undefined ? 0 : 2 * layout.tickMs);
}

/** A worker ID that two daemons have in one ID space. */
export interface SharedWorkerId {
  workerId: number;
  layout: string;
}

/**
 * Returns how two daemons can hand out the same ID: two sources have the same worker ID of one ID
 * space. Returns undefined if the two are one daemon, or do not tell who they are.
 */
export function sharedWorkerId(one: Info, other: Info): SharedWorkerId | undefined {
  const instances = [one.instance, other.instance];
  if (!instances.every((name) => typeof name === "string") || instances[0] === instances[1]) {
    return undefined;
  }
  const others = other.sources.map(spaceOf);
  for (const source of one.sources) {
    const mine = spaceOf(source);
    const theirs = others.filter((space) => mine !== undefined && isSame(mine, space));
    const numbers = new Set(theirs.flatMap((space) => space!.numbers.map(({ number }) => number)));
    const shared = mine?.numbers.find(({ number }) => numbers.has(number));
    if (shared !== undefined) {
      return { workerId: shared.workerId, layout: source.layout ?? "" };
    }
  }
  return undefined;
}

type FieldKind = "node" | "sequence" | "random";

interface Field {
  kind: FieldKind;
  values: bigint;
  /** The value of a node field that holds one value. */
  constant: bigint | undefined;
}

interface Layout {
  /** The fields below the time, most significant first. */
  fields: Field[];
  tickMs: number;
  epochMs: number;
}

/** A source's IDs without the names of their fields. */
interface Space {
  shape: string;
  epochMs: number;
  numbers: { workerId: number; number: bigint }[];
}

/** Epochs closer than this count as equal: it exceeds the error of any clock. */
const YEAR_MS = 365 * 86_400_000;

function isSame(one: Space, other: Space | undefined): boolean {
  return one.shape === other?.shape && Math.abs(one.epochMs - other.epochMs) < YEAR_MS;
}

function spaceOf(source: SourceInfo): Space | undefined {
  const layout = parseLayout(source.layout);
  const workers = source.worker_ids;
  if (layout === undefined || !Array.isArray(workers) || !workers.every(isCount)) {
    return undefined;
  }
  const parts: { kind: FieldKind; values: bigint }[] = [];
  for (const { kind, values } of layout.fields) {
    const above = parts.at(-1);
    if (above?.kind === kind) {
      above.values *= values;
    } else {
      parts.push({ kind, values });
    }
  }
  const shape = `${parts.map((part) => `${part.kind}${part.values}`).join()};${layout.tickMs}`;
  const numbers = workers.map((workerId) => ({ workerId, number: numberOf(layout, workerId) }));
  return { shape, epochMs: layout.epochMs, numbers };
}

/** Returns the node fields and constants of a worker ID as one number. */
function numberOf(layout: Layout, workerId: number): bigint {
  let [rest, number, scale] = [BigInt(workerId), 0n, 1n];
  for (const field of [...layout.fields].reverse()) {
    if (field.kind !== "node") {
      continue;
    }
    number += (field.constant ?? rest % field.values) * scale;
    rest = field.constant === undefined ? rest / field.values : rest;
    scale *= field.values;
  }
  return number;
}

/** Reads a layout's text, such as `time:41,worker:10,sequence:12;tick=1ms;epoch=1288834974657`. */
function parseLayout(text: unknown): Layout | undefined {
  if (typeof text !== "string") {
    return undefined;
  }
  const [list = "", ...settings] = text.split(";").map((part) => part.trim());
  const fields = list.split(",").map(parseField);
  const [time, ...below] = fields;
  const tick = /^tick=(\d+)(ms|s)$/.exec(
    settings.find((part) => part.startsWith("tick=")) ?? "tick=1ms",
  );
  const epochMs = parseEpoch(settings.find((part) => part.startsWith("epoch=")) ?? "epoch=0");
  if (time === undefined || tick === null || Number.isNaN(epochMs)) {
    return undefined;
  }
  const known = below.filter((field) => field !== undefined);
  const tickMs = Number(tick[1]) * (tick[2] === "s" ? 1000 : 1);
  return known.length === below.length ? { fields: known, tickMs, epochMs } : undefined;
}

function parseEpoch(setting: string): number {
  const value = setting.slice("epoch=".length);
  return /^-?\d+$/.test(value) ? Number(value) : Date.parse(value);
}

function parseField(text: string): Field | undefined {
  const match = /^([a-z]\w*):(=?)(\d{1,19})(d?)(?::(random)|:constant\((\d{1,19})\))?$/.exec(
    text.trim(),
  );
  if (match === null) {
    return undefined;
  }
  const [, name, isCounted, size, isDecimal, random, constant] = match;
  const base = isDecimal === "d" ? 10n : 2n;
  if (isCounted === "" && Number(size) > 63) {
    return undefined;
  }
  const values = isCounted === "=" ? BigInt(size!) : base ** BigInt(size!);
  const kind = random === "random" ? "random" : name === "sequence" ? "sequence" : "node";
  return { kind, values, constant: constant === undefined ? undefined : BigInt(constant) };
}
