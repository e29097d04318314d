/** Real daemons for tests: started on free loopback ports, killed, and started again. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** The daemon's program: $SNOWBANK_DAEMON, else the debug build of this checkout. */
export const PROGRAM =
  process.env.SNOWBANK_DAEMON ??
  fileURLToPath(new URL("../../../../target/debug/snowbank", import.meta.url));

/** The reason to skip a test that needs the daemon, or false. */
export const withoutDaemon = existsSync(PROGRAM)
  ? false
  : `there is no ${PROGRAM}: build it with cargo build, or give it as $SNOWBANK_DAEMON`;

/** Returns a port of the loopback address that nobody listens on. */
export async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

export class Daemon {
  #child;
  #home = mkdtempSync(join(tmpdir(), "snowbank-node-"));

  constructor(workerId, port, options) {
    this.workerId = workerId;
    this.address = `127.0.0.1:${port}`;
    this.options = options;
  }

  static async start(workerId, options = []) {
    const daemon = new Daemon(workerId, await freePort(), options);
    await daemon.begin();
    return daemon;
  }

  /** Starts the process, and waits until it listens. */
  async begin() {
    const places = [
      "--state-dir",
      join(this.#home, "state"),
      "--lock-dir",
      join(this.#home, "locks"),
    ];
    const rest = ["--worker-id", String(this.workerId), "--stop-at-stdin-eof", ...this.options];
    this.#child = spawn(PROGRAM, ["serve", "--listen", this.address, ...places, ...rest], {
      stdio: ["pipe", "ignore", "pipe"],
    });
    let log = "";
    this.#child.stderr.on("data", (text) => {
      log += text;
    });
    const [host, port] = this.address.split(":");
    const end = Date.now() + 20_000;
    for (;;) {
      if (this.#child.exitCode !== null || Date.now() > end) {
        throw new Error(`the daemon does not listen on ${this.address}: ${log}`);
      }
      const socket = connect({ host, port });
      const isThere = await new Promise((done) => {
        socket.once("connect", () => done(true)).once("error", () => done(false));
      });
      socket.destroy();
      if (isThere) {
        return;
      }
      await new Promise((done) => setTimeout(done, 10));
    }
  }

  signal(name) {
    this.#child.kill(name);
  }

  /** Ends the process with kill -9. */
  async kill() {
    if (this.#child.exitCode === null && this.#child.signalCode === null) {
      const ended = once(this.#child, "exit");
      this.#child.kill("SIGKILL");
      await ended;
    }
  }

  /** Ends the process, and removes its files. */
  async end() {
    await this.kill();
    rmSync(this.#home, { recursive: true, force: true });
  }
}
