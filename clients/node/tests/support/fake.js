/** A scripted daemon inside the test's own process. */

import { once } from "node:events";
import { createServer } from "node:net";

const [NEXT, INFO, PING, HELLO] = [0x01, 0x02, 0x03, 0x04];
const [RUNS, PONG, WELCOME, ERROR] = [0x81, 0x84, 0x85, 0xff];

export class FakeDaemon {
  #sockets = new Set();
  /** The next ID. */
  next = 1n;
  /** The requests for IDs so far, as their counts. */
  asked = [];
  greetings = 0;
  /** Answers a request for IDs itself if it returns true. */
  onNext = () => false;
  /** What comes in one packet with WELCOME. */
  extra = Buffer.alloc(0);
  /** The connections that are open. */
  get open() {
    return this.#sockets.size;
  }

  goodForMs = 1000;

  static async start({ host = "127.0.0.1", port = 0, first = 1n, claim } = {}) {
    const daemon = new FakeDaemon();
    daemon.claim = claim;
    daemon.next = first;
    await daemon.listen(host, port);
    return daemon;
  }

  async listen(host, port) {
    this.server = createServer((socket) => this.#serve(socket)).listen(port, host);
    await once(this.server, "listening");
    this.host = host;
    this.port = this.server.address().port;
    this.address = `${host}:${this.port}`;
  }

  /** Ends it as kill -9 does. */
  async stop() {
    const closed = new Promise((done) => this.server.close(done));
    this.hangUp();
    await closed;
  }

  /** Ends its connections. */
  hangUp() {
    for (const socket of this.#sockets) {
      socket.destroy();
    }
  }

  #serve(socket) {
    this.#sockets.add(socket);
    socket.on("close", () => this.#sockets.delete(socket)).on("error", () => {});
    let input = Buffer.alloc(0);
    socket.on("data", (chunk) => {
      input = Buffer.concat([input, chunk]);
      while (input.length >= 4 && input.length >= 4 + input.readUInt32LE(0)) {
        const end = 4 + input.readUInt32LE(0);
        this.#answer(socket, input.subarray(0, end));
        input = input.subarray(end);
      }
    });
  }

  #answer(socket, request) {
    const [kind, tag, body] = [request[4], request.readUInt16LE(6), request.subarray(8)];
    if (kind === PING) {
      socket.write(frame(PONG, tag, body));
    } else if (kind === HELLO) {
      this.greetings += 1;
      const body = Buffer.alloc(this.claim === undefined ? 16 : 24, "\0");
      if (this.claim !== undefined) {
        body.writeUInt32LE(this.port, 8);
        body.writeBigUInt64LE(this.claim, 16);
      }
      body.writeUInt8(1, 0);
      body.writeUInt16LE(this.goodForMs, 2);
      body.writeUInt32LE(1_000_000, 4);
      socket.write(Buffer.concat([frame(WELCOME, tag, body), this.extra]));
    } else if (kind === INFO) {
      socket.write(refusal(tag, 2));
    } else if (kind === NEXT) {
      const count = body.readUInt32LE(0);
      this.asked.push(count);
      if (!this.onNext({ socket, tag, count })) {
        socket.write(run(tag, this.next, count));
        this.next += BigInt(count);
      }
    }
  }
}

function frame(kind, tag, body) {
  const head = Buffer.alloc(8);
  head.writeUInt32LE(4 + body.length, 0);
  head.writeUInt8(kind, 4);
  head.writeUInt16LE(tag, 6);
  return Buffer.concat([head, body]);
}

/** The reply of one run. */
export function run(tag, first, count) {
  const body = Buffer.alloc(16);
  body.writeBigUInt64LE(first, 0);
  body.writeUInt32LE(count, 8);
  body.writeUInt32LE(1, 12);
  return frame(RUNS, tag, body);
}

/** An ERROR reply. */
export function refusal(tag, code, action = 0, retryAfterMs = 0) {
  const body = Buffer.alloc(8);
  body.writeUInt16LE(code, 0);
  body.writeUInt8(action, 2);
  body.writeUInt32LE(retryAfterMs, 4);
  return frame(ERROR, tag, body);
}
