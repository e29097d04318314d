/** Why calls fail. */

/** The names of the protocol's error codes, by their numbers from 1. */
const OF_REQUESTS = ["malformed", "unsupported", "bad_count", "unknown_source"] as const;
const OF_CLIENTS = ["unauthorized", "exhausted", "clock_behind"] as const;
const OF_DAEMONS = ["no_ceiling", "shutting_down", "too_busy"] as const;
export const REFUSALS = [...OF_REQUESTS, ...OF_CLIENTS, ...OF_DAEMONS] as const;

/** The daemon's own reasons. `refused` is a code that this version does not know. */
export type RefusalCode = (typeof REFUSALS)[number] | "refused";

/** What a daemon's refusal tells the client to do. */
export type Action = "tell" | "stay" | "leave";

/** Why a call failed. */
export type SnowbankErrorCode =
  | RefusalCode
  /** The call's deadline passed. `reasons` has the last that was heard of each endpoint. */
  | "timeout"
  /** Two endpoints are daemons that hand out the same IDs. */
  | "collision"
  /** An option or argument has a value that is not allowed. */
  | "bad_argument"
  /** The client was closed. */
  | "closed"
  /** An endpoint failed. Calls try again, so it is only the reason of others. */
  | "failed";

type Details = Pick<SnowbankError, "endpoint" | "number" | "action" | "retryAfterMs" | "reasons">;

/** The reason why a call failed. `code` tells programs, `message` tells people what to do. */
export class SnowbankError extends Error {
  override readonly name = "SnowbankError";
  /** The endpoint at fault, if it is a single one. */
  readonly endpoint: string | undefined;
  /** A refusal's code on the wire, and what the daemon told the client to do. */
  readonly number: number | undefined;
  readonly action: Action | undefined;
  /** The time after which the same call may succeed, if a daemon named one. */
  readonly retryAfterMs: number | undefined;
  /** The last that was heard of each endpoint, if the deadline passed. */
  readonly reasons: Readonly<Record<string, string>> = {};

  constructor(
    readonly code: SnowbankErrorCode,
    message: string,
    details: Partial<Details> = {},
  ) {
    super(message);
    Object.assign(this, details);
  }
}

/** Creates the error of an option or argument that is not allowed. */
export function badArgument(text: string): SnowbankError {
  return new SnowbankError("bad_argument", text);
}

/** Creates the error of an endpoint that failed. */
export function failed(endpoint: string, reason: string): SnowbankError {
  return new SnowbankError("failed", reason, { endpoint });
}

/** Creates the error of a closed client. */
export function closed(): SnowbankError {
  return new SnowbankError("closed", "the client is closed: create another one");
}

/** Returns the text without control characters. */
export function plain(text: string): string {
  return text.replace(/\p{Cc}/gu, " ");
}

/** What to do about faults of TLS. */
const WORDS: Record<string, string> = {
  EPROTO: "the TLS handshake failed: if it is a plain listener, leave out tls:",
  ERR_SSL_WRONG_VERSION_NUMBER: "it does not speak TLS: leave out tls:",
  ERR_TLS_CERT_ALTNAME_INVALID: "its certificate is for another name",
  ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED: "it asks for a client certificate",
};

/** Describes an error of a socket: what was found and, for TLS, what to do. */
export function describe(error: NodeJS.ErrnoException): string {
  const words = WORDS[error.code ?? ""];
  return words === undefined ? plain(error.message) : `${words} (${plain(error.message)})`;
}
