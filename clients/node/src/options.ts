/** The options of a client, checked once. */

import { readFileSync } from "node:fs";
import { createSecureContext, type SecureContextOptions } from "node:tls";
import { type Address, parseAddress } from "./address.js";
import { badArgument } from "./errors.js";

/** The options of a client. */
export interface ClientOptions {
  /** The name of the source. By default the daemon's first one. */
  source?: string | undefined;
  /** The deadline of a call, over connecting and all tries (5,000). */
  timeoutMs?: number | undefined;
  /** The token, if the daemons ask for one: 1 to 512 bytes. */
  token?: string | undefined;
  /** A file with the token. Each connection reads it again. */
  tokenFile?: string | undefined;
  /** TLS: the authorities to trust, instead of Node's (PEM). Each connection reads it again. */
  caFile?: string | undefined;
  /** TLS: the client's own certificate and its key (PEM). Each connection reads them again. */
  certFile?: string | undefined;
  keyFile?: string | undefined;
  /** TLS: the name that the daemon's certificate has, if it is not the host of the endpoint. */
  serverName?: string | undefined;
  /** The endpoints are in order of preference: the client goes back to an earlier one. */
  preferFirst?: boolean | undefined;
  /** Calls use the endpoints in turn, for pairs of ticket servers. */
  takeTurns?: boolean | undefined;
}

/** The times of the protocol's page. They are no options; tests put others in their place. */
export const TIMES = {
  resolveMs: 1_000,
  acceptMs: 1_000,
  connectMs: 2_000,
  /** What NEXT allows a daemon to wait, and how long that may be silent beyond it. */
  waitMs: 1_000,
  answerMs: 1_000,
  backoffMs: 50,
  maxBackoffMs: 1_000,
  /** The longest wait that a daemon's `retry_after` makes, before the random part. */
  maxPauseMs: 1_000,
  firstRoundMs: 10_000,
  roundMs: 60_000,
  nextLookMs: 1_000,
};
export type Times = typeof TIMES;

const MAX_TOKEN_BYTES = 512;
const [LF, CR] = [0x0a, 0x0d];
const MAX_SOURCE_BYTES = 64;
const MAX_COUNT = 2 ** 32 - 1;
/** The longest time of a timer. A longer deadline is cut to it. */
const LONGEST_MS = 2 ** 31 - 1;
const FILES = ["tokenFile", "caFile", "certFile", "keyFile"] as const;
const NAMES = ["source", "timeoutMs", "token", ...FILES, "serverName", "preferFirst", "takeTurns"];

/** Returns the options that have a value: null counts as none. Throws `bad_argument`. */
export function given<T extends object>(
  options: T | null | undefined,
  names: string[],
): Partial<T> {
  if (typeof (options ?? {}) !== "object") {
    const needed = `an object is needed, which may have ${names.join(", ")}`;
    throw badArgument(`the options are ${JSON.stringify(options)}; ${needed}`);
  }
  const unknown = Object.keys(options ?? {}).find((name) => !names.includes(name));
  if (unknown !== undefined) {
    throw badArgument(`there is no option ${unknown}; there are ${names.join(", ")}`);
  }
  const found = Object.entries(options ?? {}).filter(([, value]) => value !== null);
  return Object.fromEntries(found) as Partial<T>;
}

/** The checked options. */
export class Settings {
  readonly addresses: readonly Address[];
  readonly times: Times = { ...TIMES };
  readonly timeoutMs: number;
  readonly options: ClientOptions;
  /** Not shown by `inspect`. */
  readonly #token: Buffer | undefined;

  constructor(endpoints: string | readonly string[], all: ClientOptions) {
    const options = given(all, NAMES);
    const { token, ...rest } = options;
    this.options = rest;
    if (token !== undefined && typeof token !== "string") {
      throw badArgument(`a token is a text, not ${typeof token}`);
    }
    this.#token = token === undefined ? undefined : Buffer.from(token);
    const texts = [endpoints ?? []].flat();
    const parsed = texts.map(parseAddress);
    this.addresses = parsed.filter((one, at) => texts.indexOf(one.text) === at);
    if (this.addresses.length === 0) {
      throw badArgument("no endpoint is given; at least one is needed");
    }
    this.timeoutMs = checkMs(options.timeoutMs ?? 5_000);
    sourceBytes(options.source);
    for (const name of [...FILES, "serverName"] as const) {
      const value = options[name];
      if (value !== undefined && (typeof value !== "string" || value === "")) {
        throw badArgument(`${name} is ${JSON.stringify(value)}; a text is needed`);
      }
    }
    for (const [one, other] of [
      ["token", "tokenFile"],
      ["takeTurns", "preferFirst"],
    ] as const) {
      if (options[one] && options[other]) {
        throw badArgument(`both ${one} and ${other} are given; give one of them`);
      }
    }
    if ((options.certFile === undefined) !== (options.keyFile === undefined)) {
      throw badArgument("one of certFile and keyFile is given; give both, or neither");
    }
    // Each connection reads the files again. Reading them here shows a mistake at once.
    this.readToken();
    if (this.addresses.some((address) => address.isTls)) {
      checkContext(this.readTls());
    } else if (options.caFile ?? options.certFile ?? options.serverName) {
      throw badArgument("options for TLS are given, and no endpoint begins with tls:");
    }
  }

  /** Returns the bytes of the token of now, or none. Its errors do not show it. */
  readToken(): Buffer {
    const { tokenFile } = this.options;
    const text = tokenFile ? read(tokenFile) : this.#token;
    if (text === undefined) {
      return Buffer.alloc(0);
    }
    // An editor ends a file with a newline.
    const token = tokenFile && text.at(-1) === LF ? text.subarray(0, -1) : text;
    if (token.includes(LF) || token.includes(CR)) {
      throw badArgument("the token has a newline; strip it");
    }
    if (token.length < 1 || token.length > MAX_TOKEN_BYTES) {
      throw badArgument(`the token has ${token.length} bytes; 1 to ${MAX_TOKEN_BYTES} are allowed`);
    }
    return token;
  }

  /** Returns the files of TLS of now. */
  readTls(): SecureContextOptions {
    const { caFile, certFile, keyFile } = this.options;
    return {
      ...(caFile && { ca: read(caFile) }),
      ...(certFile && keyFile && { cert: read(certFile), key: read(keyFile) }),
    };
  }
}

/** Reads a small file. */
function read(file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (error) {
    throw badArgument(`a file cannot be read: ${(error as Error).message}`);
  }
}

function checkContext(files: SecureContextOptions): void {
  // OpenSSL takes a file without a certificate for none.
  if (files.ca && !files.ca.includes("CERTIFICATE-----")) {
    throw badArgument("caFile has no line -----BEGIN CERTIFICATE-----; give a file in PEM");
  }
  try {
    createSecureContext(files);
  } catch (error) {
    throw badArgument(`the files of TLS do not fit each other: ${(error as Error).message}`);
  }
}

/** Returns a time above 0. Throws `bad_argument` for any other. */
export function checkMs(value: number): number {
  if (typeof value !== "number" || !(value > 0)) {
    throw badArgument(`timeoutMs is ${String(value)}; a number above 0 is needed`);
  }
  return Math.min(value, LONGEST_MS);
}

/** Checks how many IDs a call asks for. Throws `bad_argument`. */
export function checkCount(count: number): void {
  if (!Number.isInteger(count) || count < 1 || count > MAX_COUNT) {
    const allowed = `a whole number from 1 to ${MAX_COUNT} is allowed`;
    throw badArgument(`the count is ${String(count)}; ${allowed}`);
  }
}

/** Returns a source's name as the protocol has it: without one, the daemon's first source. */
export function sourceBytes(source: string | undefined): Buffer {
  if (source === undefined) {
    return Buffer.alloc(0);
  }
  const bytes = typeof source === "string" ? Buffer.from(source) : Buffer.alloc(0);
  if (bytes.length < 1 || bytes.length > MAX_SOURCE_BYTES) {
    const allowed = `a name of 1 to ${MAX_SOURCE_BYTES} bytes is allowed`;
    throw badArgument(`the source is ${JSON.stringify(source)}; ${allowed}`);
  }
  return bytes;
}
