/**
 * One connection, and its row of expected replies.
 *
 * Replies come in the order of the requests. A call that its caller has left keeps its place in the
 * row: its reply is read and dropped.
 */

import type { Socket } from "node:net";
import { describe, failed, type SnowbankError } from "./errors.js";
import { BadReply, ERROR, type Hello, type Request, refusal, split } from "./wire.js";

/** How long a reply that may have come already is looked for before the connection has failed. */
const LAST_LOOK_MS = 10;

interface Expected {
  request: Request;
  tag: number;
  resolve: () => void;
  reject: (error: SnowbankError) => void;
}

/** A connection to one daemon. */
export class Row {
  welcome!: Hello;
  ended: SnowbankError | undefined;
  /** True if the daemon closed it while no call used it. */
  endedIdle = false;
  /** Is called with the reason when the connection ends. */
  onEnd: (error: SnowbankError) => void = () => {};
  #input: Buffer = Buffer.alloc(0);
  readonly #expected: Expected[] = [];
  #tag = 0;
  #isFinishing = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly name: string,
    private readonly socket: Socket,
    private readonly answerMs: number,
  ) {
    const close = (reason = "it closed the connection") => {
      // A daemon that greets and closes at once has failed.
      this.endedIdle ||= this.ended === undefined && this.#expected.length === 0 && this.#tag > 1;
      this.end(failed(name, reason));
    };
    socket
      .on("data", (chunk: Buffer) => this.#take(chunk))
      .on("error", (error) => close(describe(error)))
      .on("end", () => close())
      .on("close", () => close());
  }

  /** Sends a request in its turn, and waits until its reply is whole. */
  send(request: Request): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.ended !== undefined) {
        reject(this.ended);
        return;
      }
      // Tags count from 1 to 65535 and start again.
      this.#tag = (this.#tag % 0xffff) + 1;
      this.#expected.push({ request, tag: this.#tag, resolve, reject });
      this.#begin(request);
      this.socket.ref();
      this.socket.write(request.encode(this.#tag));
    });
  }

  /** Ends the connection once the requests in flight are answered. */
  finish(): void {
    this.#isFinishing = true;
    if (this.#expected.length === 0) {
      this.end(failed(this.name, "the connection is not needed any more"));
    }
  }

  /** Ends the connection. Calls in flight fail. */
  end(error: SnowbankError): void {
    if (this.ended !== undefined) {
      return;
    }
    const lost = failed(this.name, `the connection was lost: ${error.message}`);
    this.ended = error.number === undefined ? error : lost;
    clearTimeout(this.#timer);
    this.socket.destroy();
    for (const { request, reject } of this.#expected.splice(0)) {
      // A refusal without a tag answers the greeting alone.
      reject(request.isGreeting ? error : this.ended);
    }
    this.onEnd(error);
  }

  /** Counts the time of a request from now on. */
  #begin(request: Request): void {
    request.began = performance.now();
    request.beganWall = Date.now();
    if (request === this.#expected[0]?.request) {
      this.#expectWithin(request.waitMs + this.answerMs);
    }
  }

  #take(chunk: Buffer): void {
    let isBegun = this.#input.length > 0;
    this.#input = isBegun ? Buffer.concat([this.#input, chunk]) : chunk;
    try {
      while (this.ended === undefined && this.#takeFrame()) {
        isBegun = false;
      }
    } catch (error) {
      if (!(error instanceof BadReply)) {
        throw error;
      }
      this.end(failed(this.name, `it breaks Snowbank's protocol: ${error.message}`));
    }
    const front = this.#expected[0];
    if (front && !isBegun && (this.#input.length > 0 || front.request.begun !== 0)) {
      // A frame that has begun must be whole in time, and another one of its reply begin.
      this.#expectWithin(this.answerMs);
    }
  }

  /** Hands a frame to the request that it answers. Returns false until one is whole. */
  #takeFrame(): boolean {
    const frame = split(this.#input);
    if (frame === undefined) {
      return false;
    }
    const { kind, flags, tag, body } = frame;
    this.#input = frame.rest;
    if (kind === ERROR && tag === 0) {
      this.end(refusal(this.name, body));
      return false;
    }
    const front = this.#expected[0];
    if (front === undefined || tag !== front.tag) {
      throw new BadReply(`a reply with tag ${tag} that is not due`);
    }
    if (kind === ERROR && front.request.begun === 0) {
      front.reject(refusal(this.name, body));
    } else if (front.request.add(kind, flags, body)) {
      front.resolve();
    } else {
      return true;
    }
    this.#expected.shift();
    clearTimeout(this.#timer);
    if (this.#expected.length > 0) {
      // The daemon may read the next request only now.
      this.#begin(this.#expected[0]!.request);
    } else if (this.#isFinishing) {
      this.finish();
    } else {
      // An idle connection does not keep the process alive.
      this.socket.unref();
    }
    return true;
  }

  /** Sets the time by which the front's reply must go on. */
  #expectWithin(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      const what = this.#input.length > 0 ? "its answer was not whole" : "it did not answer";
      const late = failed(this.name, `${what} within ${ms / 1000} s`);
      // A program that was blocked or stopped has not read yet what came meanwhile.
      this.#timer = setTimeout(() => this.end(late), LAST_LOOK_MS);
    }, ms);
  }
}
