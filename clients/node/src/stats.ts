/** Figures of a client, and the events that its application may hear of. */

import type { Action, RefusalCode } from "./errors.js";

/** What a client did. */
export interface Stats {
  /** Calls that were answered. */
  calls: number;
  /** Requests after the first of a call. */
  retries: number;
  /** ERROR replies. */
  refusals: number;
  /** Failures of endpoints. */
  failures: number;
  /** IDs that were handed out. */
  ids: number;
  /** Buffered IDs that were too old, or skipped. */
  dropped: number;
  /** The highest age at which a buffer handed out an ID. */
  oldestMs: number;
  /** The endpoint that the client is connected to. */
  endpoint: string | undefined;
}

/** The events of a client, and what their listeners get. */
export interface ClientEvents {
  connected: [event: { endpoint: string }];
  failed: [event: { endpoint: string; reason: string }];
  refused: [event: { endpoint: string; code: RefusalCode; action: Action; message: string }];
  collision: [event: { endpoints: [string, string]; claim: bigint }];
  collision_over: [event: { endpoints: [string, string] }];
}

/** Hands an event to the listeners. */
export type Emit = <K extends keyof ClientEvents>(name: K, ...event: ClientEvents[K]) => void;
