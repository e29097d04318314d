/** Why calls fail. */

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

/** The parts of an error besides its code and text. */
export interface ErrorDetails {
  endpoint?: string;
  number?: number;
  action?: Action;
  retryAfterMs?: number | undefined;
  reasons?: Record<string, string>;
}

/** The reason why a call failed. `code` tells programs, `message` tells people what to do. */
export class SnowbankError extends Error {
  override readonly name = "SnowbankError";
  readonly code: SnowbankErrorCode;
  /** The endpoint at fault, if it is a single one. */
  readonly endpoint: string | undefined;
  /** A refusal's code on the wire, and what the daemon told the client to do. */
  readonly number: number | undefined;
  readonly action: Action | undefined;
  /** The time after which the same call may succeed, if a daemon named one. */
  readonly retryAfterMs: number | undefined;
  /** The last that was heard of each endpoint, if the deadline passed. */
  readonly reasons: Readonly<Record<string, string>>;

  constructor(code: SnowbankErrorCode, message: string, details: ErrorDetails = {}) {
    super(message);
    this.code = code;
    this.endpoint = details.endpoint;
    this.number = details.number;
    this.action = details.action;
    this.retryAfterMs = details.retryAfterMs;
    this.reasons = details.reasons ?? {};
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

/** Creates the error of a daemon's refusal. */
export function refused(
  endpoint: string,
  number: number,
  actionNumber: number,
  waitMs: number,
  message: string,
): SnowbankError {
  const code = REFUSALS[number - 1] ?? "refused";
  const name = code === "refused" ? `code ${number}` : code;
  const again = waitMs > 0 ? ` (try again in ${waitMs / 1000} s)` : "";
  const text = `${endpoint} refused: ${name}: ${plain(message)}${again}`;
  const action = actionNumber === 1 ? "stay" : actionNumber === 2 ? "leave" : "tell";
  const retryAfterMs = waitMs > 0 ? waitMs : undefined;
  return new SnowbankError(code, text, { endpoint, number, action, retryAfterMs });
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
