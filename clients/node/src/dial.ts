/**
 * A name, an address, a socket, TLS, HELLO, WELCOME: each with its limit. What answers otherwise is
 * the endpoint's failure, in its words.
 */

import { lookup } from "node:dns/promises";
import { connect, isIP, type Socket } from "node:net";
import * as tls from "node:tls";
import type { Address } from "./address.js";
import { within } from "./deadline.js";
import { describe, failed, SnowbankError } from "./errors.js";
import type { Settings } from "./options.js";
import { Row } from "./row.js";
import { Hello } from "./wire.js";

/** Makes the connections of one endpoint. */
export class Dialer {
  readonly name: string;
  /** A look-up that does not end is not joined by further ones. */
  #resolving: Promise<string[]> | undefined;
  #last = "";

  constructor(
    private readonly address: Address,
    private readonly settings: Settings,
  ) {
    this.name = address.text;
  }

  /**
   * Connects and greets, unless the client closes. Rejects with a refusal if a daemon answers so,
   * else with `failed`.
   */
  async dial(closing: AbortSignal): Promise<Row> {
    const { connectMs } = this.settings.times;
    const end = performance.now() + connectMs;
    const late = failed(this.name, `it does not greet within ${connectMs / 1000} s`);
    const givingUp = new AbortController();
    const giveUp = () => givingUp.abort();
    closing.addEventListener("abort", giveUp);
    try {
      return await within(this.#dial(givingUp.signal, end), connectMs, late);
    } catch (error) {
      giveUp();
      const isOurs = error instanceof SnowbankError && error.code !== "bad_argument";
      throw isOurs ? error : failed(this.name, describe(error as NodeJS.ErrnoException));
    } finally {
      closing.removeEventListener("abort", giveUp);
    }
  }

  async #dial(signal: AbortSignal, end: number): Promise<Row> {
    const { settings } = this;
    const hello = new Hello(settings.readToken());
    const socket = await this.#open(await this.#resolve(), signal, end);
    const row = new Row(this.name, socket, settings.times.answerMs);
    await row.send(hello);
    row.welcome = hello;
    return row;
  }

  /** Returns the addresses of the endpoint. */
  async #resolve(): Promise<string[]> {
    const { host, path } = this.address;
    if (path !== "" || isIP(host.replace(/%.*/, "")) !== 0) {
      return [path || host];
    }
    this.#resolving ??= resolver.lookup(host).finally(() => {
      this.#resolving = undefined;
    });
    const { resolveMs } = this.settings.times;
    const late = failed(this.name, `its name was not resolved within ${resolveMs / 1000} s`);
    return within(this.#resolving, resolveMs, late);
  }

  /** Connects to the first address that accepts, from the one behind the last on. */
  async #open(found: string[], signal: AbortSignal, end: number): Promise<Socket> {
    const last = found.indexOf(this.#last);
    const start = last < 0 ? Math.floor(Math.random() * found.length) : last + 1;
    const files = this.address.isTls ? this.settings.readTls() : undefined;
    const reasons: string[] = [];
    for (const host of [...found.slice(start), ...found.slice(0, start)]) {
      // If both limits end in one turn of the loop, the signal does not say it yet.
      if (signal.aborted || performance.now() >= end) {
        break;
      }
      this.#last = host;
      try {
        return await this.#connect(host, files, signal);
      } catch (error) {
        reasons.push(describe(error as NodeJS.ErrnoException));
      }
    }
    throw failed(this.name, `cannot connect: ${reasons.join(", ")}`);
  }

  async #connect(
    host: string,
    files: tls.SecureContextOptions | undefined,
    signal: AbortSignal,
  ): Promise<Socket> {
    const { port, path } = this.address;
    const where = path === "" ? { host, port, noDelay: true } : { path };
    // The signal destroys the socket, also one that is made later.
    const socket = connect({ ...where, signal });
    const late = failed(this.name, "no answer in time");
    try {
      await within(once(socket, "connect"), this.settings.times.acceptMs, late);
    } catch (error) {
      socket.destroy();
      throw error;
    }
    if (files === undefined) {
      return socket;
    }
    const name = this.settings.options.serverName ?? this.address.host.replace(/%.*/, "");
    const secure = tls.connect({
      socket,
      ...(isIP(name) === 0 ? { servername: name } : {}),
      ...files,
      checkServerIdentity: (_, certificate) => tls.checkServerIdentity(name, certificate),
    });
    await once(secure, "secureConnect");
    return secure;
  }
}

/** The name service. Tests put another one in its place. */
export const resolver = {
  async lookup(host: string): Promise<string[]> {
    // Resolvers change the order from one answer to the next.
    return (await lookup(host, { all: true })).map(({ address }) => address).sort();
  },
};

/** Waits until a socket is ready. */
function once(socket: Socket, event: "connect" | "secureConnect"): Promise<unknown> {
  return new Promise((resolve, reject) => {
    // It stays, so that a later error is not thrown.
    socket.on("error", reject).once(event, resolve);
    socket.once("close", () => reject(new Error("it closed the connection")));
  });
}
