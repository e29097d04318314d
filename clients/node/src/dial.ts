/**
 * A name, an address, a socket, TLS, HELLO, WELCOME: each with its limit. What answers otherwise is
 * the endpoint's failure, in its words.
 */

import { lookup } from "node:dns/promises";
import { connect, isIP, type Socket } from "node:net";
import * as tls from "node:tls";
import type { Address } from "./address.js";
import { describe, failed, SnowbankError } from "./errors.js";
import type { Settings } from "./options.js";
import { Row } from "./row.js";
import { Hello } from "./wire.js";

/** What a dial has come to, for the one who gives it up. */
interface Made {
  row?: Row;
  isLate: boolean;
}

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

  /** Connects and greets. Rejects with a refusal if a daemon answers so, else with `failed`. */
  async dial(): Promise<Row> {
    const { connectMs } = this.settings.times;
    const made: Made = { isLate: false };
    const late = failed(this.name, `it does not greet within ${connectMs / 1000} s`);
    try {
      return await within(this.#dial(made), connectMs, late);
    } catch (error) {
      const reason =
        error instanceof SnowbankError && error.code !== "bad_argument"
          ? error
          : failed(this.name, describe(error as NodeJS.ErrnoException));
      made.isLate = true;
      made.row?.end(reason);
      throw reason;
    }
  }

  async #dial(made: Made): Promise<Row> {
    const { settings } = this;
    const token = await settings.readToken();
    const socket = await this.#open(await this.#resolve());
    if (made.isLate) {
      socket.destroy();
    }
    const row = new Row(this.name, socket, settings.times.answerMs);
    made.row = row;
    const hello = new Hello(token);
    await new Promise<unknown>((resolve, reject) => row.send(hello, resolve, reject));
    row.welcome = hello.welcome;
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
  async #open(found: string[]): Promise<Socket> {
    const last = found.indexOf(this.#last);
    const start = last < 0 ? Math.floor(Math.random() * found.length) : last + 1;
    const files = this.address.isTls ? await this.settings.readTls() : undefined;
    const reasons: string[] = [];
    for (const host of [...found.slice(start), ...found.slice(0, start)]) {
      this.#last = host;
      try {
        return await this.#connect(host, files);
      } catch (error) {
        reasons.push(describe(error as NodeJS.ErrnoException));
      }
    }
    throw failed(this.name, `cannot connect: ${reasons.join(", ")}`);
  }

  async #connect(host: string, files: tls.SecureContextOptions | undefined): Promise<Socket> {
    const { port, path } = this.address;
    const opened = path === "" ? connect({ host, port, noDelay: true }) : connect({ path });
    opened.on("error", () => {});
    const { acceptMs, connectMs } = this.settings.times;
    const late = failed(this.name, "no answer in time");
    try {
      await within(once(opened, "connect"), acceptMs, late);
      if (files === undefined) {
        return opened;
      }
      const name = this.settings.options.serverName ?? this.address.host.replace(/%.*/, "");
      const secure = tls.connect({
        socket: opened,
        ...(isIP(name) === 0 ? { servername: name } : {}),
        ...files,
        checkServerIdentity: (_, certificate) => tls.checkServerIdentity(name, certificate),
      });
      await within(once(secure, "secureConnect"), connectMs, late);
      return secure;
    } catch (error) {
      opened.destroy();
      throw error;
    }
  }
}

/** The name service. Tests put another one in its place. */
export const resolver = {
  async lookup(host: string): Promise<string[]> {
    return (await lookup(host, { all: true })).map(({ address }) => address);
  },
};

/** Waits until a socket is ready. */
function once(socket: Socket, event: "connect" | "secureConnect"): Promise<unknown> {
  return new Promise((resolve, reject) => {
    socket.once(event, resolve).once("error", reject);
    socket.once("close", () => reject(new Error("it closed the connection")));
  });
}

/** Waits for a promise, at most for a time. */
async function within<T>(work: Promise<T>, ms: number, late: SnowbankError): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<never>((_, reject) => {
    timer = setTimeout(reject, ms, late);
  });
  // Whichever is second has nobody who waits.
  work.catch(() => {});
  try {
    return await Promise.race([work, limit]);
  } finally {
    clearTimeout(timer);
  }
}
