/** Opening a socket to a daemon: TCP, TLS or a Unix socket. */

import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { connect, isIP, type Socket } from "node:net";
import * as tls from "node:tls";
import type { Endpoint } from "./address.js";
import { plain, SnowbankError } from "./errors.js";

/** The files of TLS, all in PEM. Each connection reads them again, so they can be renewed. */
export interface TlsOptions {
  /** The authorities to trust, instead of Node's. */
  caFile?: string | undefined;
  /** The client's own certificate, with those that lead to its authority. */
  certificateFile?: string | undefined;
  /** The private key of that certificate. */
  keyFile?: string | undefined;
  /** The name or IP address that the daemon's certificate must have. By default the host. */
  serverName?: string | undefined;
}

/** Opens a socket. `address` is the IP address to connect to. It emits its errors as an event. */
export async function dial(
  endpoint: Endpoint,
  address: string,
  options: TlsOptions,
): Promise<Socket> {
  if (endpoint.kind === "unix") {
    return connect({ path: endpoint.path });
  }
  if (endpoint.kind === "tcp") {
    return connect({ host: address, port: endpoint.port, noDelay: true });
  }
  const [ca, cert, key] = await Promise.all(
    [options.caFile, options.certificateFile, options.keyFile].map((path) =>
      path === undefined ? undefined : readFile(path),
    ),
  );
  const name = options.serverName ?? endpoint.host.replace(/%.*/, "");
  const socket = tls.connect({
    host: address,
    port: endpoint.port,
    ...(isIP(name) === 0 ? { servername: name } : {}),
    ...pemOptions(ca, cert, key),
    checkServerIdentity: (_, certificate) => tls.checkServerIdentity(name, certificate),
  });
  return socket.setNoDelay(true);
}

function pemOptions(ca?: Buffer, cert?: Buffer, key?: Buffer): tls.SecureContextOptions {
  return { ...(ca && { ca }), ...(cert && { cert }), ...(key && { key }) };
}

/** Reads the files of TLS and holds them against each other. Throws `tls`. */
export function checkTls(options: TlsOptions): void {
  const { caFile, certificateFile, keyFile } = options;
  if ((certificateFile === undefined) !== (keyFile === undefined)) {
    const [given, missing] =
      keyFile === undefined ? ["certificateFile", "keyFile"] : ["keyFile", "certificateFile"];
    throw badFile(`tls.${given} is given without tls.${missing}; give both, or neither`);
  }
  const ca = read("caFile", caFile, "CERTIFICATE");
  const cert = read("certificateFile", certificateFile, "CERTIFICATE");
  const key = read("keyFile", keyFile, "PRIVATE KEY");
  try {
    tls.createSecureContext(pemOptions(ca, cert, key));
  } catch (error) {
    throw unusable(error as NodeJS.ErrnoException, certificateFile, keyFile);
  }
}

function badFile(text: string): SnowbankError {
  return new SnowbankError("tls", text);
}

function read(option: string, path: string | undefined, kind: string): Buffer | undefined {
  if (path === undefined) {
    return undefined;
  }
  let text: Buffer;
  try {
    text = readFileSync(path);
  } catch (error) {
    throw badFile(`tls.${option} ${path} cannot be read: ${(error as Error).message}`);
  }
  if (!text.includes(`${kind}-----`)) {
    const advice = `allowed: PEM with a line -----BEGIN ${kind}-----`;
    throw badFile(`tls.${option} ${path}: found no ${kind.toLowerCase()}, ${advice}`);
  }
  return text;
}

function unusable(error: NodeJS.ErrnoException, certificate?: string, key?: string): SnowbankError {
  if (error.code === "ERR_OSSL_X509_KEY_VALUES_MISMATCH") {
    const advice = "give the two that were made together, the key's certificate first in its file";
    return badFile(
      `tls.keyFile ${key}: found a key that is not that of the certificate ${certificate}; ${advice}`,
    );
  }
  const files = [certificate, key].filter((path) => path !== undefined).join(" and ");
  return badFile(`the files of TLS cannot be used (${files || "tls.caFile"}): ${error.message}`);
}

/** The words for errors of the operating system, and for faults of TLS with what to do. */
const WORDS: Record<string, string> = {
  ECONNREFUSED: "connection refused",
  ECONNRESET: "connection reset",
  EPIPE: "closed by the daemon",
  ENOENT: "there is no such socket or file",
  EACCES: "permission denied",
  EHOSTUNREACH: "no route to the host",
  ENETUNREACH: "no route to the network",
  ENOTFOUND: "the name has no address",
  EAI_AGAIN: "the name cannot be looked up now",
  ETIMEDOUT: "no answer from the network",
  CERT_HAS_EXPIRED: "its certificate has expired: renew it, or set this machine's clock",
  CERT_NOT_YET_VALID: "its certificate is not valid yet: is this machine's clock behind?",
  EPROTO: "the TLS handshake failed: if it is a plain listener, leave out tls:",
  ERR_SSL_WRONG_VERSION_NUMBER:
    "it answered with something that is not TLS: if it is a plain listener, leave out tls:",
  ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED:
    "it asks for a client certificate: give one (tls.certificateFile, tls.keyFile)",
  ERR_SSL_TLSV1_ALERT_UNKNOWN_CA:
    "it does not know the authority of this client's certificate: give one that it trusts",
};

/** The codes of a certificate whose authority is not among the trusted ones. */
const UNTRUSTED = [
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
  "INVALID_CA",
];

/** Describes an error of a socket: what was found and, for TLS, what to do. */
export function describe(error: NodeJS.ErrnoException): string {
  const code = error.code ?? "";
  if (UNTRUSTED.includes(code)) {
    return "its certificate is not of a trusted authority: give that authority's (tls.caFile)";
  }
  if (code === "ERR_TLS_CERT_ALTNAME_INVALID") {
    const reason = (error as { reason?: string }).reason ?? error.message;
    return `its certificate is for another name: ${plain(reason)}; use that name, or give tls.serverName`;
  }
  return WORDS[code] ?? plain(error.message);
}
