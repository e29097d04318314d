/** The addresses of daemons: `host:port`, `[IPv6]:port`, `tls:host:port` and `unix:PATH`. */

import { isIP, isIPv6 } from "node:net";
import { badArgument } from "./errors.js";

/** The longest path of a Unix socket, in bytes: what Linux holds, without the closing zero. */
const UNIX_PATH_BYTES_MAX = 107;

/** The longest host name, in bytes (RFC 1035). */
const HOST_BYTES_MAX = 253;

/** A daemon's address. A host name may stand for several daemons. */
export interface Endpoint {
  /** The address as it was written. */
  readonly text: string;
  readonly kind: "tcp" | "tls" | "unix";
  /** An IP address without brackets or a host name. Empty for a Unix socket. */
  readonly host: string;
  readonly port: number;
  /** The path of a Unix socket. */
  readonly path: string;
  /** True if the host is a name, which must be looked up. */
  readonly isName: boolean;
}

/** Reads an address. Throws `bad_argument` if the text is none. */
export function parseAddress(text: string): Endpoint {
  if (typeof text !== "string") {
    throw badArgument(`an address is a text such as "127.0.0.1:7660", not ${typeof text}`);
  }
  const fail = (reason: string): never => {
    throw badArgument(`${JSON.stringify(text)} is not an address: ${reason}`);
  };
  if (text.startsWith("unix:")) {
    return { text, kind: "unix", host: "", port: 0, path: unixPath(text, fail), isName: false };
  }
  const kind = text.startsWith("tls:") ? "tls" : "tcp";
  const rest = kind === "tls" ? text.slice("tls:".length) : text;
  if (rest.startsWith("/") || rest.startsWith("unix:")) {
    fail(
      kind === "tls"
        ? "a Unix socket takes no TLS; write unix:/run/snowbank/snowbank.sock"
        : `the path of a Unix socket is written unix:${rest}`,
    );
  }
  if (rest.includes("://")) {
    fail("leave out the scheme; write host:port or tls:host:port");
  }
  const [host, port] = rest.startsWith("[") ? bracketed(rest, fail) : plainHost(rest, fail);
  return { text, kind, host, port, path: "", isName: isIP(host) === 0 };
}

type Fail = (reason: string) => never;

function unixPath(text: string, fail: Fail): string {
  const path = text.slice("unix:".length);
  if (path === "" || path.endsWith("/")) {
    fail("unix: wants the path of a socket, as in unix:/run/snowbank/snowbank.sock");
  }
  if (/\p{Cc}/u.test(path)) {
    fail("the path of a socket holds no control characters");
  }
  const size = Buffer.byteLength(path);
  if (size > UNIX_PATH_BYTES_MAX) {
    fail(`the path of a socket has at most ${UNIX_PATH_BYTES_MAX} bytes, and this one has ${size}`);
  }
  return path;
}

function bracketed(rest: string, fail: Fail): [string, number] {
  const end = rest.indexOf("]");
  if (end < 0) {
    fail("the bracket is never closed; write [::1]:7660");
  }
  const host = rest.slice(1, end);
  if (!isIPv6(host)) {
    fail(`${JSON.stringify(host)} in brackets is not an IPv6 address`);
  }
  if (rest[end + 1] !== ":") {
    fail(`the port is missing; write [${host}]:7660`);
  }
  return [host, parsePort(rest.slice(end + 2), fail)];
}

function plainHost(rest: string, fail: Fail): [string, number] {
  if (rest === "") {
    fail("it is empty; write 127.0.0.1:7660");
  }
  const colon = rest.lastIndexOf(":");
  if (colon < 0) {
    const isPort = /^\d+$/.test(rest);
    fail(
      isPort
        ? `the host is missing; write 127.0.0.1:${rest}`
        : `the port is missing; write ${rest}:7660`,
    );
  }
  const host = rest.slice(0, colon);
  if (isIPv6(rest) || isIPv6(host)) {
    fail("an IPv6 address stands in brackets before its port, as in [::1]:7660");
  }
  const port = parsePort(rest.slice(colon + 1), fail);
  checkHost(host, port, fail);
  return [host, port];
}

function parsePort(text: string, fail: Fail): number {
  if (!/^\d+$/.test(text)) {
    fail(`the port ${JSON.stringify(text)} is not a number from 1 to 65535`);
  }
  const port = Number(text);
  if (port === 0) {
    fail("nobody listens on port 0; give the daemon's port");
  }
  if (port > 65535) {
    fail(`the port ${text} is above 65535`);
  }
  return port;
}

function checkHost(host: string, port: number, fail: Fail): void {
  if (host === "" || host === "*") {
    fail(`the host is missing; 127.0.0.1:${port} is this machine`);
  }
  if (/^[\d.]+$/.test(host) && isIP(host) === 0) {
    fail(`${host} is not an IPv4 address`);
  }
  if (host.length > HOST_BYTES_MAX) {
    fail(`a host name has at most ${HOST_BYTES_MAX} bytes, and this one has ${host.length}`);
  }
  const wrong = /[^A-Za-z0-9._-]/u.exec(host);
  if (wrong !== null) {
    fail(`${JSON.stringify(wrong[0])} cannot be part of a host name`);
  }
}
