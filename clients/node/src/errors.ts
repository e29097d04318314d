/** The names of the protocol's error codes, by their numbers from 1. */
const REFUSALS = [
  "malformed",
  "unsupported",
  "bad_count",
  "unknown_source",
  "unauthorized",
  "exhausted",
  "clock_behind",
  "no_ceiling",
  "shutting_down",
  "too_busy",
] as const;

/** The daemon's own reasons. `refused` is a code that this version does not know. */
export type RefusalCode = (typeof REFUSALS)[number] | "refused";

/** Why a call failed. */
export type SnowbankErrorCode =
  | RefusalCode
  /** The call's deadline passed. `cause` is the error of its last try. */
  | "timeout"
  /** The endpoint cannot be resolved or connected to, or sends no greeting in time. */
  | "unreachable"
  /** The connection ended before the reply was complete. */
  | "lost"
  /** The other side is no Snowbank daemon, or has a defect. */
  | "foreign_protocol"
  /** The IDs of an endpoint went back. The next call continues from the lower ones. */
  | "went_back"
  /** Two endpoints are daemons that hand out the same IDs. */
  | "same_worker_ids"
  /** An option or argument has a value that is not allowed. */
  | "bad_argument"
  /** A certificate or key file does not fit. */
  | "tls"
  /** More calls wait than the client keeps. */
  | "too_many_calls"
  /** The client was closed. */
  | "closed";

/** The parts of an error besides its code and text. */
export interface ErrorDetails {
  endpoint?: string;
  number?: number;
  retryAfterMs?: number | undefined;
  errors?: readonly SnowbankError[];
  cause?: unknown;
}

/** The reason why a call failed. `code` tells programs, `message` tells people what to do. */
export class SnowbankError extends Error {
  override readonly name = "SnowbankError";
  readonly code: SnowbankErrorCode;
  /** The endpoint at fault, if it is a single one. */
  readonly endpoint: string | undefined;
  /** The code's number on the wire, for a refusal. */
  readonly number: number | undefined;
  /** The time after which the same call may succeed, if a daemon named one. */
  readonly retryAfterMs: number | undefined;
  /** The errors of the endpoints, if several failed. */
  readonly errors: readonly SnowbankError[];

  constructor(code: SnowbankErrorCode, message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.code = code;
    this.endpoint = details.endpoint;
    this.number = details.number;
    this.retryAfterMs = details.retryAfterMs;
    this.errors = details.errors ?? [];
  }
}

/** The hint on a server that stays silent, as a Redis at a wrong port does. */
export const IS_IT_OURS = ": does another program listen there, such as a Redis?";

/** Creates the error of an option or argument that is not allowed. */
export function badArgument(text: string): SnowbankError {
  return new SnowbankError("bad_argument", text);
}

/** Creates the error of an endpoint that cannot be reached. */
export function unreachable(endpoint: string, reason: string): SnowbankError {
  return new SnowbankError("unreachable", `cannot reach ${endpoint}: ${reason}`, { endpoint });
}

/** Creates the error of a connection that ended. */
export function lost(endpoint: string, reason: string): SnowbankError {
  const text = `lost the connection to ${endpoint}: ${reason}`;
  return new SnowbankError("lost", text, { endpoint });
}

/** Creates the error of an endpoint that breaks the protocol. */
export function broken(endpoint: string, reason: string): SnowbankError {
  const text = `${endpoint} does not speak Snowbank's protocol: ${reason}`;
  return new SnowbankError("foreign_protocol", text, { endpoint });
}

/** A daemon's ERROR reply. */
export interface Refusal {
  number: number;
  /** 0: the daemon named no time. */
  retryAfterMs: number;
  message: string;
}

/** Creates the error of a daemon's refusal. */
export function refused(endpoint: string, refusal: Refusal): SnowbankError {
  const { number, message } = refusal;
  const code = REFUSALS[number - 1] ?? "refused";
  const name = code === "refused" ? `code ${number}` : code;
  const retryAfterMs = refusal.retryAfterMs > 0 ? refusal.retryAfterMs : undefined;
  const why = message === "" ? "" : `: ${plain(message)}`;
  const again = retryAfterMs === undefined ? "" : ` (try again in ${readable(retryAfterMs)})`;
  const text = `${endpoint} refused: ${name}${why}${again}`;
  return new SnowbankError(code, text, { endpoint, number, retryAfterMs });
}

/** Joins the errors of several endpoints. Returns undefined without an error. */
export function joined(errors: readonly SnowbankError[]): SnowbankError | undefined {
  if (errors.length < 2) {
    return errors[0];
  }
  const waits = errors.map((error) => error.retryAfterMs).filter((wait) => wait !== undefined);
  const retryAfterMs = waits.length === 0 ? undefined : Math.min(...waits);
  const text = errors.map((error) => error.message).join("; ");
  const code = errors.every((error) => error.code === errors[0]?.code)
    ? errors[0]!.code
    : "unreachable";
  return new SnowbankError(code, text, { errors, retryAfterMs });
}

/** Returns whether the refusal is a state of that daemon alone, so that another one may serve. */
export function movesOn(error: SnowbankError): boolean {
  return ["clock_behind", "no_ceiling", "shutting_down", "too_busy"].includes(error.code);
}

/** Returns whether the daemon closes the connection after this refusal. */
export function closes(error: SnowbankError): boolean {
  return ["unauthorized", "shutting_down", "too_busy"].includes(error.code);
}

/** Returns whether the client retries a call after this error, within its deadline. */
export function isRetried(error: SnowbankError): boolean {
  return error.code === "lost" || movesOn(error);
}

/** Returns whether an error while connecting would repeat on any endpoint. */
export function isFinal(error: SnowbankError): boolean {
  const isLocal = error.code === "bad_argument" || error.code === "tls";
  return isLocal || (error.number !== undefined && !movesOn(error));
}

/** Returns the text without control characters. */
export function plain(text: string): string {
  return text.replace(/\p{Cc}/gu, " ");
}

/** Returns a time as people write it, rounded up so that nobody who waits that long is early. */
function readable(ms: number): string {
  const seconds = Math.ceil(ms / 1000);
  if (seconds <= 10) {
    return ms < 1000 ? `${ms} ms` : `${ms / 1000} s`;
  }
  return seconds < 120 ? `${seconds} s` : `${Math.ceil(seconds / 60)} min`;
}
