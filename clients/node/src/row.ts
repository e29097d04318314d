/**
 * One connection, and its row of expected replies.
 *
 * Replies come in the order of the requests. A call that its caller has left keeps its place in the
 * row: its reply is read and dropped.
 */

import type { Socket } from "node:net";
import { describe, failed, type SnowbankError } from "./errors.js";
import {
  BadReply,
  ERROR,
  Hello,
  MAX_REPLY_LENGTH,
  type Request,
  refusal,
  type Welcome,
  whatAnswers,
} from "./wire.js";

/** The most requests that are sent ahead of their replies. A daemon reads some 500 in a turn. */
const MAX_IN_FLIGHT = 1_024;

/** How long a reply that may have come already is looked for before the connection has failed. */
const LAST_LOOK_MS = 10;

interface Expected {
  request: Request;
  tag: number;
  resolve: (value?: unknown) => void;
  reject: (error: SnowbankError) => void;
}

/** A connection to one daemon. */
export class Row {
  welcome!: Welcome;
  ended: SnowbankError | undefined;
  /** Is called with the reason when the connection ends. */
  onEnd: (error: SnowbankError) => void = () => {};
  #input: Buffer = Buffer.alloc(0);
  readonly #expected: Expected[] = [];
  /** Requests whose turn has not come. */
  readonly #queue: Expected[] = [];
  #tag = 0;
  #isFinishing = false;
  #isLookingAgain = false;
  #due = 0;
  #ringsAt = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly name: string,
    private readonly socket: Socket,
    private readonly answerMs: number,
  ) {
    socket
      .on("data", (chunk: Buffer) => this.#take(chunk))
      .on("end", () => this.end(failed(name, "it closed the connection")))
      .on("error", (error) => this.end(failed(name, describe(error))))
      .on("close", () => this.end(failed(name, "it closed the connection")));
  }

  /** Sends a request in its turn. `resolve` is called once its reply is whole. */
  send(
    request: Request,
    resolve: (value?: unknown) => void,
    reject: (error: SnowbankError) => void,
  ) {
    if (this.ended !== undefined) {
      reject(this.ended);
      return;
    }
    // Tags count from 1 to 65535 and start again. Far fewer requests are in flight.
    this.#tag = (this.#tag % 0xffff) + 1;
    this.#queue.push({ request, tag: this.#tag, resolve, reject });
    this.#sendQueue();
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
    const isRefusal = error.number !== undefined;
    const lost = failed(this.name, `the connection was lost: ${error.message}`);
    this.ended = isRefusal ? lost : error;
    clearTimeout(this.#timer);
    this.socket.destroy();
    // A refusal without a tag answers the greeting alone.
    for (const { request, reject } of [...this.#expected.splice(0), ...this.#queue.splice(0)]) {
      reject(request instanceof Hello ? error : this.ended);
    }
    this.onEnd(error);
  }

  #sendQueue(): void {
    const sent: Buffer[] = [];
    while (this.#queue.length > 0 && this.#expected.length < MAX_IN_FLIGHT) {
      const expected = this.#queue.shift()!;
      this.#expected.push(expected);
      this.#begin(expected.request);
      sent.push(expected.request.encode(expected.tag));
    }
    if (sent.length > 0) {
      this.socket.ref();
      this.socket.write(Buffer.concat(sent));
    }
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
    this.#input = this.#input.length === 0 ? chunk : Buffer.concat([this.#input, chunk]);
    if (this.#expected.length > 0) {
      this.#expectWithin(this.answerMs);
    }
    try {
      while (this.ended === undefined && this.#takeFrame()) {}
    } catch (error) {
      if (!(error instanceof BadReply)) {
        throw error;
      }
      this.end(failed(this.name, `it breaks Snowbank's protocol: ${error.message}`));
    }
  }

  /** Hands a frame to the request that it answers. Returns false until one is whole. */
  #takeFrame(): boolean {
    const input = this.#input;
    if (input.length < 4) {
      return false;
    }
    const length = input.readUInt32LE(0);
    if (length < 4 || length > MAX_REPLY_LENGTH) {
      throw new BadReply(whatAnswers(input));
    }
    if (input.length < 4 + length) {
      return false;
    }
    const [kind, flags, tag] = [input.readUInt8(4), input.readUInt8(5), input.readUInt16LE(6)];
    const body = input.subarray(8, 4 + length);
    this.#input = input.subarray(4 + length);
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
    } else if (!front.request.add(kind, flags, body)) {
      return true;
    } else {
      front.resolve();
    }
    this.#expected.shift();
    this.#sendQueue();
    if (this.#expected.length > 0) {
      // The daemon may read the next request only now.
      this.#begin(this.#expected[0]!.request);
    } else {
      // An idle connection does not keep the process alive.
      this.socket.unref();
      clearTimeout(this.#timer);
      this.#timer = undefined;
      if (this.#isFinishing) {
        this.finish();
      }
    }
    return true;
  }

  // A daemon that stays silent.

  /** Sets the time by which bytes of the front's reply must come. */
  #expectWithin(ms: number): void {
    this.#due = performance.now() + ms;
    this.#isLookingAgain = false;
    // A timer that rings early is set again then.
    if (this.#timer === undefined || this.#ringsAt > this.#due) {
      this.#ringIn(ms);
    }
  }

  #ringIn(ms: number): void {
    clearTimeout(this.#timer);
    this.#ringsAt = performance.now() + ms;
    this.#timer = setTimeout(() => this.#look(), ms);
  }

  #look(): void {
    this.#timer = undefined;
    const left = this.#due - performance.now();
    const front = this.#expected[0];
    if (front === undefined) {
      return;
    }
    if (left > 0) {
      this.#ringIn(left);
    } else if (!this.#isLookingAgain) {
      // A program that was blocked or stopped has not read yet what came meanwhile.
      this.#isLookingAgain = true;
      this.#ringIn(LAST_LOOK_MS);
    } else {
      const waited = (front.request.waitMs + this.answerMs) / 1000;
      this.end(failed(this.name, `it did not answer within ${waited} s`));
    }
  }
}
