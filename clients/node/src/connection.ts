/**
 * One connection: greeting, pipelining, and matching replies to calls.
 *
 * Replies come in the order of the requests, so the calls in flight form a queue. The tag only
 * proves that both sides count alike. A call that was abandoned leaves its entry in the queue: its
 * reply is read and dropped, so that later replies still match.
 */

import type { Socket } from "node:net";
import { performance } from "node:perf_hooks";
import { PatientTimer } from "./deadline.js";
import { describe } from "./dial.js";
import {
  broken,
  closes,
  IS_IT_OURS,
  lost,
  movesOn,
  refused,
  type SnowbankError,
  unreachable,
} from "./errors.js";
import type { Info, SourceInfo } from "./info.js";
import {
  AUTH,
  Breach,
  ERROR,
  encodeRequest,
  type Frame,
  FrameReader,
  OK,
  PING,
  PONG,
} from "./protocol.js";
import { InfoRequest, type Request } from "./requests.js";

/** The most requests that are sent ahead of their replies. A daemon reads some 500 in a turn. */
const MAX_IN_FLIGHT = 1024;

/** The tag of the greeting, and of frames that answer no request. Calls count from 1. */
const GREETING_TAG = 0;

/**
 * The body of the PING that a connection begins with. A server of HTTP waits for the end of a line
 * before it answers, so these make it answer at once, and the client can name it.
 */
const PROBE = Buffer.from("\r\n\r\n");

/** The parts of a connection's greeting, in the order of their replies. */
type Awaited = "pong" | "ok" | "info";

/** A call that waits for its reply. */
interface Entry {
  request: Request<unknown>;
  resolve: (value: unknown) => void;
  reject: (error: SnowbankError) => void;
  isAbandoned: boolean;
  tag: number;
  /** How long the daemon may hold the request once it has read it. */
  holdMs: number;
  /** When the daemon had answered the earlier requests, and so may read this one. */
  readBy: number;
  /** When the latest frame of the reply came while the caller still waited. */
  progressAt: number;
  hasBegun: boolean;
}

/** What a connection is made with. */
export interface ConnectionOptions {
  /** The endpoint's name in errors. */
  endpoint: string;
  token: Buffer | undefined;
  connectTimeoutMs: number;
  answerTimeoutMs: number;
  /**
   * False if this endpoint is the only one: a daemon in a bad state is kept, as there is no better.
   */
  hasOthers: () => boolean;
  /** Called once when a connection that has greeted ends by itself. */
  onEnd: (connection: Connection, error: SnowbankError) => void;
}

/** A connection to one daemon. */
export class Connection {
  readonly #socket: Socket;
  readonly #options: ConnectionOptions;
  readonly #reader = new FrameReader();
  #awaited: Awaited[];
  #greeting: { resolve: (info: Info) => void; reject: (error: SnowbankError) => void } | undefined;
  readonly #greetingInfo = new InfoRequest();
  #sources: readonly SourceInfo[] = [];
  readonly #inFlight: Entry[] = [];
  /** Calls behind {@link MAX_IN_FLIGHT}. */
  readonly #line = new Set<Entry>();
  #lastTag = GREETING_TAG;
  /** Ends when the oldest call counts as stalled, or earlier. */
  #stall: PatientTimer | undefined;
  #stallAt = 0;
  #isRetired = false;
  #isEnded = false;
  /** True once the daemon has answered a call, besides the greeting. */
  hasAnswered = false;

  constructor(socket: Socket, options: ConnectionOptions) {
    this.#socket = socket;
    this.#options = options;
    this.#awaited = options.token === undefined ? ["pong", "info"] : ["pong", "ok", "info"];
    // Waiting calls keep the process alive by their timers, and an idle connection does not.
    socket.unref();
    socket.on("data", (chunk: Buffer) => this.#take(chunk));
    socket.on("error", (error) => this.#fail(error));
    socket.on("close", () => this.#fail(undefined));
  }

  /** True if it takes calls. */
  get isUsable(): boolean {
    return !this.#isEnded && !this.#isRetired;
  }

  /** Greets the daemon and returns its INFO, within what is left of the time to connect. */
  greet(limitMs: number): Promise<Info> {
    return new Promise((resolve, reject) => {
      let connected = false;
      const timer = new PatientTimer(limitMs, () => {
        const { endpoint, connectTimeoutMs } = this.#options;
        const within = `within ${connectTimeoutMs} ms`;
        const reason = connected
          ? `it accepted the connection and sent no greeting ${within}${IS_IT_OURS}`
          : `not connected ${within}`;
        this.#end(unreachable(endpoint, reason));
      });
      const once =
        <V>(settle: (value: V) => void) =>
        (value: V) => {
          timer.cancel();
          this.#greeting = undefined;
          settle(value);
        };
      this.#greeting = { resolve: once(resolve), reject: once(reject) };
      const isTls = "encrypted" in this.#socket;
      this.#socket.once(isTls ? "secureConnect" : "connect", () => {
        connected = true;
        this.#sendGreeting();
      });
    });
  }

  #sendGreeting(): void {
    const { token } = this.#options;
    const parts = [encodeRequest(PING, GREETING_TAG, PROBE)];
    if (token !== undefined) {
      parts.push(encodeRequest(AUTH, GREETING_TAG, token));
    }
    parts.push(this.#greetingInfo.encode(GREETING_TAG).bytes);
    this.#socket.write(Buffer.concat(parts));
  }

  /** Sends a call. Returns the function that gives it up. */
  send<T>(
    request: Request<T>,
    resolve: (value: T) => void,
    reject: (error: SnowbankError) => void,
  ): () => void {
    if (this.#isEnded) {
      reject(lost(this.#options.endpoint, "it ended before the call was sent"));
      return () => {};
    }
    const now = performance.now();
    const entry: Entry = {
      request,
      resolve: resolve as (value: unknown) => void,
      reject,
      isAbandoned: false,
      tag: 0,
      holdMs: 0,
      readBy: now,
      progressAt: now,
      hasBegun: false,
    };
    this.#line.add(entry);
    this.#sendLine();
    return () => {
      this.#line.delete(entry);
      entry.isAbandoned = true;
    };
  }

  /** Takes no further calls, and closes once those in flight are answered. */
  retire(): void {
    this.#isRetired = true;
    this.#closeIfDone();
  }

  /** Closes at once. The calls in flight fail with this error. */
  close(error: SnowbankError): void {
    this.#end(error);
  }

  #closeIfDone(): void {
    if (this.#isRetired && this.#inFlight.length === 0 && this.#line.size === 0) {
      this.#end(lost(this.#options.endpoint, "the client left it"));
    }
  }

  /** Sends calls from the line while there is room. */
  #sendLine(): void {
    const frames: Buffer[] = [];
    for (const entry of this.#line) {
      if (this.#inFlight.length >= MAX_IN_FLIGHT) {
        break;
      }
      this.#line.delete(entry);
      const bytes = this.#encode(entry);
      if (bytes !== undefined) {
        frames.push(bytes);
      }
    }
    if (frames.length > 0) {
      this.#socket.write(frames.length === 1 ? frames[0]! : Buffer.concat(frames));
      this.#watch();
    }
    this.#closeIfDone();
  }

  /** Puts a call in flight. Returns its bytes, unless the daemon lacks the source. */
  #encode(entry: Entry): Buffer | undefined {
    const tag = this.#lastTag === 0xffff ? 1 : this.#lastTag + 1;
    try {
      const { bytes, holdMs } = entry.request.encode(tag, this.#options.endpoint, this.#sources);
      const now = performance.now();
      Object.assign(entry, { tag, holdMs, readBy: now, progressAt: now });
      this.#lastTag = tag;
      this.#inFlight.push(entry);
      return bytes;
    } catch (error) {
      entry.reject(error as SnowbankError);
      return undefined;
    }
  }

  #take(chunk: Buffer): void {
    this.#reader.push(chunk);
    try {
      for (let frame = this.#next(); frame !== undefined; frame = this.#next()) {
        if (this.#awaited.length > 0) {
          this.#takeGreeting(frame);
        } else {
          this.#takeReply(frame);
        }
      }
    } catch (error) {
      if (!(error instanceof Breach)) {
        throw error;
      }
      const breach = broken(this.#options.endpoint, error.message);
      this.#inFlight.shift()?.reject(breach);
      this.#end(breach);
    }
  }

  #next(): Frame | undefined {
    return this.#isEnded ? undefined : this.#reader.next();
  }

  #takeGreeting(frame: Frame): void {
    if (frame.kind === ERROR) {
      this.#end(this.#refusal(frame));
      return;
    }
    if (frame.tag !== GREETING_TAG) {
      throw new Breach(`a reply with tag ${frame.tag} where ${GREETING_TAG} is due`);
    }
    const isPong = frame.kind === PONG && frame.body.equals(PROBE);
    switch (this.#awaited[0]) {
      case "pong":
        if (!isPong) {
          throw new Breach("the reply has a frame of the wrong kind");
        }
        break;
      case "ok":
        if (frame.kind !== OK) {
          throw new Breach("the reply has a frame of the wrong kind");
        }
        break;
      default:
        if (!this.#greetingInfo.add(frame)) {
          return;
        }
    }
    this.#awaited.shift();
    if (this.#awaited.length === 0) {
      const info = this.#greetingInfo.finish();
      this.#sources = info.sources;
      this.#greeting?.resolve(info);
    }
  }

  #takeReply(frame: Frame): void {
    if (frame.kind === ERROR && frame.tag === GREETING_TAG) {
      this.#end(this.#refusal(frame));
      return;
    }
    const front = this.#inFlight[0];
    if (front === undefined) {
      throw new Breach("a frame that answers no request");
    }
    if (frame.tag !== front.tag) {
      throw new Breach(`a reply with tag ${frame.tag} where ${front.tag} is due`);
    }
    if (frame.kind === ERROR) {
      this.#refuse(front, frame);
      return;
    }
    front.hasBegun = true;
    if (!front.isAbandoned) {
      front.progressAt = performance.now();
    }
    if (!front.request.add(frame)) {
      return;
    }
    const answer = front.request.finish();
    if (front.request instanceof InfoRequest) {
      this.#sources = (answer as Info).sources;
    }
    this.#takeFront();
    this.hasAnswered = true;
    front.resolve(answer);
    this.#sendLine();
  }

  #refuse(front: Entry, frame: Frame): void {
    if (front.hasBegun) {
      throw new Breach("the reply has a frame of the wrong kind");
    }
    const error = this.#refusal(frame);
    this.#takeFront();
    front.reject(error);
    if (closes(error) || (movesOn(error) && this.#options.hasOthers())) {
      this.#end(error);
    } else {
      this.#sendLine();
    }
  }

  #refusal(frame: Frame): SnowbankError {
    const { body } = frame;
    return refused(this.#options.endpoint, {
      number: body.readUInt16LE(0),
      retryAfterMs: body.readUInt32LE(4),
      message: body.toString("utf8", 8),
    });
  }

  /** Takes the oldest call. The daemon may read the next one now. */
  #takeFront(): void {
    this.#inFlight.shift();
    const next = this.#inFlight[0];
    if (next !== undefined) {
      next.readBy = performance.now();
    }
    this.#watch();
  }

  /** Sets the timer that ends a connection whose daemon does not answer. */
  #watch(): void {
    const front = this.#inFlight[0];
    if (front === undefined) {
      return;
    }
    const at = this.#stallsAt(front);
    if (this.#stall === undefined || at < this.#stallAt) {
      this.#stall?.cancel();
      this.#stall = new PatientTimer(at - performance.now(), () => this.#checkStall());
      this.#stallAt = at;
    }
  }

  #stallsAt(front: Entry): number {
    const from = Math.max(front.progressAt, front.readBy + front.holdMs);
    return from + this.#options.answerTimeoutMs;
  }

  /** Ends a connection that has stalled. The timer can be early: replies do not move it. */
  #checkStall(): void {
    this.#stall = undefined;
    const front = this.#inFlight[0];
    if (front === undefined) {
      return;
    }
    if (this.#stallsAt(front) > performance.now()) {
      this.#watch();
      return;
    }
    const waited = front.holdMs + this.#options.answerTimeoutMs;
    this.#end(lost(this.#options.endpoint, `it did not answer within ${waited} ms`));
  }

  /** Ends the connection after an event of the socket. */
  #fail(error: NodeJS.ErrnoException | undefined): void {
    const { endpoint } = this.#options;
    if (error === undefined) {
      const isGreeted = this.#awaited.length === 0;
      const reason = isGreeted
        ? "closed by the daemon"
        : "it closed the connection before its greeting";
      this.#end(lost(endpoint, reason));
    } else if (this.#socket.bytesWritten === 0) {
      this.#end(unreachable(endpoint, describe(error)));
    } else {
      this.#end(lost(endpoint, describe(error)));
    }
  }

  #end(error: SnowbankError): void {
    if (this.#isEnded) {
      return;
    }
    this.#isEnded = true;
    this.#stall?.cancel();
    this.#socket.destroy();
    const { endpoint, onEnd } = this.#options;
    const reason =
      error.code === "lost" || error.code === "closed" ? error : lost(endpoint, error.message);
    const waiting = [...this.#inFlight.splice(0), ...this.#line];
    this.#line.clear();
    for (const entry of waiting) {
      entry.reject(reason);
    }
    if (this.#greeting !== undefined) {
      this.#greeting.reject(error);
    } else {
      onEnd(this, error);
    }
  }
}
