/** The options of a client, checked once. */

import { readFileSync } from "node:fs";
import { type Endpoint, parseAddress } from "./address.js";
import { LONGEST_MS } from "./deadline.js";
import { checkTls, type TlsOptions } from "./dial.js";
import { badArgument } from "./errors.js";

/** The options of a client. Times are in milliseconds. */
export interface ClientOptions {
  /** The token, if the daemons ask for one: 1 to 512 bytes. */
  token?: string | undefined;
  /** A file with the token in its first line. Each connection reads it again. */
  tokenFile?: string | undefined;
  /** The files of TLS, for addresses such as `tls:host:port`. */
  tls?: TlsOptions | undefined;
  /** The deadline of a call over everything: look-ups, connecting, all tries (5,000). */
  timeoutMs?: number | undefined;
  /** The time for one endpoint to be looked up, to connect and to greet (2,000). */
  connectTimeoutMs?: number | undefined;
  /** The time for a connected daemon to answer, beyond the wait that a request allows (1,000). */
  answerTimeoutMs?: number | undefined;
  /** Makes calls take turns over all endpoints, each with a connection of its own (false). */
  takeTurns?: boolean | undefined;
  /**
   * Says that the addresses are in order of preference, the nearest daemon first. The client goes
   * back to an earlier one that serves again. By default it stays where it is (false).
   */
  preferFirst?: boolean | undefined;
}

/** The most calls that wait at a time. A further one fails at once. */
export const MAX_CALLS = 100_000;

/** The most IDs that the protocol can ask for. */
export const MAX_COUNT = 2 ** 32 - 1;

/** The longest token, in bytes. */
const MAX_TOKEN_BYTES = 512;

/** The options as a client uses them. */
export class Settings {
  readonly endpoints: readonly Endpoint[];
  readonly tls: TlsOptions;
  readonly timeoutMs: number;
  readonly connectTimeoutMs: number;
  readonly answerTimeoutMs: number;
  readonly takeTurns: boolean;
  readonly preferFirst: boolean;
  /** Private, so that no log of a client shows it. */
  readonly #token: Buffer | undefined;
  readonly #tokenFile: string | undefined;

  /** Checks the options. Throws `bad_argument`. */
  constructor(addresses: string | readonly string[], options: ClientOptions) {
    // A variable of the environment that is not set is undefined.
    const list = typeof addresses === "string" ? [addresses] : [...(addresses ?? [])];
    if (list.length === 0) {
      throw badArgument('no address is given; at least one is needed, such as "127.0.0.1:7660"');
    }
    this.endpoints = list.map(parseAddress);
    checkNames(options);
    this.timeoutMs = checkMs("timeoutMs", options.timeoutMs ?? 5000);
    this.connectTimeoutMs = checkMs("connectTimeoutMs", options.connectTimeoutMs ?? 2000);
    this.answerTimeoutMs = checkMs("answerTimeoutMs", options.answerTimeoutMs ?? 1000);
    this.takeTurns = options.takeTurns ?? false;
    this.preferFirst = options.preferFirst ?? false;
    if (this.takeTurns && this.preferFirst) {
      throw badArgument("takeTurns and preferFirst are both given; give one of them");
    }
    this.tls = { ...options.tls };
    if (this.endpoints.some((endpoint) => endpoint.kind === "tls")) {
      checkTls(this.tls);
    }
    if (options.token !== undefined && options.tokenFile !== undefined) {
      throw badArgument("token and tokenFile are both given; give one of them");
    }
    this.#token = options.token === undefined ? undefined : checkToken("the token", options.token);
    this.#tokenFile = options.tokenFile;
    this.token();
  }

  /** Returns the token of the next connection, if there is one. Throws `bad_argument`. */
  token(): Buffer | undefined {
    if (this.#tokenFile === undefined) {
      return this.#token;
    }
    let text: string;
    try {
      text = readFileSync(this.#tokenFile, "utf8");
    } catch (error) {
      throw badArgument(`tokenFile ${this.#tokenFile} cannot be read: ${(error as Error).message}`);
    }
    return checkToken(`the first line of ${this.#tokenFile}`, text.split(/\r?\n/, 1)[0]!);
  }
}

/** Checks a token without repeating it. */
function checkToken(what: string, token: string): Buffer {
  if (typeof token !== "string") {
    throw badArgument(`${what} is a string, not ${typeof token}`);
  }
  if (/[\r\n]/.test(token)) {
    throw badArgument(`${what} has a newline; give it without one, or give its file as tokenFile`);
  }
  const bytes = Buffer.from(token, "utf8");
  if (bytes.length < 1 || bytes.length > MAX_TOKEN_BYTES) {
    throw badArgument(`${what} has ${bytes.length} bytes; 1 to ${MAX_TOKEN_BYTES} are allowed`);
  }
  return bytes;
}

const NAMES = [
  "token",
  "tokenFile",
  "tls",
  "timeoutMs",
  "connectTimeoutMs",
  "answerTimeoutMs",
  "takeTurns",
  "preferFirst",
];

/** Refuses an option that does not exist: its misspelt name would have no effect. */
function checkNames(options: ClientOptions): void {
  const unknown = Object.keys(options).find((name) => !NAMES.includes(name));
  if (unknown !== undefined) {
    throw badArgument(`there is no option ${unknown}; there are ${NAMES.join(", ")}`);
  }
}

/** Checks a time in ms. */
export function checkMs(name: string, value: number): number {
  return checkNumber(name, value, 1, LONGEST_MS);
}

/** Checks a whole number. Throws `bad_argument`. */
export function checkNumber(name: string, value: unknown, least: number, most: number): number {
  if (typeof value !== "number" || !Number.isInteger(value) || value < least || value > most) {
    const found = typeof value === "string" ? JSON.stringify(value) : String(value);
    throw badArgument(`${name} is ${found}; a whole number from ${least} to ${most} is allowed`);
  }
  return value;
}
