/** Endpoints as text: `host:port`, `[IPv6]:port`, `tls:host:port` and `unix:PATH`. */

import { isIP } from "node:net";
import { badArgument } from "./errors.js";

/** The longest path of a Unix socket: `sun_path` of Linux without its closing zero. */
const UNIX_PATH_BYTES_MAX = 107;
const FORM = /^(?:tls:)?(?:\[([\dA-Fa-f:.]+(?:%\w+)?)\]|([\w.-]{1,253})):0*(\d{1,5})$/;

/** One endpoint, as the application wrote it. */
export interface Address {
  text: string;
  host: string;
  port: number;
  /** The path of a Unix socket, or empty. */
  path: string;
  isTls: boolean;
}

/** Parses an endpoint. Throws `bad_argument`. */
export function parseAddress(text: unknown): Address {
  if (typeof text !== "string") {
    throw badArgument(`an endpoint is a text such as "ids-1:7660", and this is ${String(text)}`);
  }
  const shown = JSON.stringify(text);
  if (text.startsWith("unix:")) {
    const path = text.slice("unix:".length);
    const bytes = Buffer.byteLength(path);
    if (bytes < 1 || bytes > UNIX_PATH_BYTES_MAX || path.endsWith("/") || /\p{Cc}/u.test(path)) {
      const form = `write unix:PATH with at most ${UNIX_PATH_BYTES_MAX} printable bytes`;
      throw badArgument(`${shown} is no Unix socket: ${form}`);
    }
    return { text, host: "", port: 0, path, isTls: false };
  }
  const [, ipv6, name, digits] = FORM.exec(text) ?? [];
  const host = ipv6 ?? name ?? "";
  const port = Number(digits);
  const isNumber = /^[\d.]+$/.test(host);
  if (!(port >= 1 && port <= 65_535) || ((ipv6 !== undefined || isNumber) && isIP(host) === 0)) {
    const scheme = text.includes("://") ? "; leave out the scheme" : "";
    const forms = "write host:port, [IPv6]:port, tls:host:port or unix:PATH";
    throw badArgument(`${shown} is no endpoint: ${forms}, with a port from 1 to 65535${scheme}`);
  }
  return { text, host, port, path: "", isTls: text.startsWith("tls:") };
}
