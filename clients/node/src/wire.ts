/** The wire protocol, version 1: requests as bytes, and replies from bytes. */

import { refused, type SnowbankError } from "./errors.js";

const VERSION = 1;
export const MAX_REPLY_LENGTH = 65_536;
const MAX_INFO_BYTES = 4 << 20;
const MAX_MESSAGE_BYTES = 1_024;
const MAX_ID = 2n ** 63n - 1n;

const MAGIC = Buffer.from("SNOW\r\n\r\n");
const [NEXT, INFO, PING, HELLO] = [0x01, 0x02, 0x03, 0x04];
const [RUNS, LIST, INFO_REPLY, PONG, WELCOME] = [0x81, 0x82, 0x83, 0x84, 0x85];
export const ERROR = 0xff;
const [PARTIAL, MORE] = [0x02, 0x01];
const HEADER_BYTES = 8;
const WELCOME_BYTES = 16;
const RUN_BYTES = 16;
const ERROR_BYTES = 8;

/** Bytes that break the protocol. The other side is at fault. */
export class BadReply extends Error {}

/** A request, and its reply while that comes. */
export abstract class Request {
  /** The kinds of frames of its reply. */
  protected abstract readonly replies: readonly number[];
  /** The time that the daemon may take before it answers. */
  waitMs = 0;
  /** When it was sent, or the reply before it ended: by the monotonic clock, and by the wall. */
  began = 0;
  beganWall = 0;
  /** The kind of the reply's first frame. */
  begun = 0;

  constructor(
    private readonly kind: number,
    protected readonly body: Buffer = Buffer.alloc(0),
    private readonly flags = 0,
  ) {}

  /** Returns the bytes of the request. */
  encode(tag: number): Buffer {
    const head = Buffer.alloc(HEADER_BYTES);
    head.writeUInt32LE(4 + this.body.length, 0);
    head.writeUInt8(this.kind, 4);
    head.writeUInt8(this.flags, 5);
    head.writeUInt16LE(tag, 6);
    return Buffer.concat([head, this.body]);
  }

  /** Adds a frame of the reply. Returns true with the last one. */
  add(kind: number, flags: number, body: Buffer): boolean {
    if (!this.replies.includes(kind) || (this.begun !== 0 && this.begun !== kind)) {
      throw new BadReply(`a frame of kind 0x${kind.toString(16)} is no reply to the request`);
    }
    this.begun = kind;
    this.read(body);
    if ((flags & MORE) !== 0) {
      return false;
    }
    this.finish();
    return true;
  }

  /** Reads the body of a frame. */
  protected abstract read(body: Buffer): void;

  /** Checks the whole reply. */
  protected finish(): void {}
}

/** What a daemon says in its greeting. */
export interface Welcome {
  /** How long an ID may be handed out after its reply. */
  goodForMs: number;
  maxCount: number;
  /** Another one with each start of a daemon. */
  instance: bigint;
  /** One number for each worker ID that the daemon uses. */
  claims: ReadonlySet<bigint>;
}

/** The first request of a connection. Who connects has a limit for its reply. */
export class Hello extends Request {
  protected readonly replies = [WELCOME];
  override waitMs = 3_600_000;
  welcome!: Welcome;

  constructor(token: string) {
    super(HELLO, Buffer.concat([MAGIC, Buffer.from([VERSION, 0]), Buffer.from(token)]));
  }

  protected read(body: Buffer): void {
    if (body.length < WELCOME_BYTES || body.length % 8 !== 0) {
      throw new BadReply(`a body of ${body.length} bytes is no WELCOME`);
    }
    const version = body.readUInt8(0);
    if (version !== VERSION) {
      throw new BadReply(`it speaks version ${version}, and this client ${VERSION}`);
    }
    const [goodForMs, maxCount] = [body.readUInt16LE(2), body.readUInt32LE(4)];
    if (goodForMs === 0 || maxCount === 0) {
      throw new BadReply(`it allows ${maxCount} IDs, for ${goodForMs} ms`);
    }
    const claims = new Set<bigint>();
    for (let at = WELCOME_BYTES; at < body.length; at += 8) {
      claims.add(body.readBigUInt64LE(at));
    }
    this.welcome = { goodForMs, maxCount, instance: body.readBigUInt64LE(8), claims };
  }
}

/** Asks whether the daemon answers. */
export class Ping extends Request {
  protected readonly replies = [PONG];

  constructor() {
    super(PING, Buffer.from("snowbank"));
  }

  protected read(body: Buffer): void {
    if (!body.equals(this.body)) {
      throw new BadReply("the reply to PING has other bytes");
    }
  }
}

/** Asks for the daemon's own words about itself, as JSON. */
export class Info extends Request {
  protected readonly replies = [INFO_REPLY];
  json = "";

  constructor() {
    super(INFO);
  }

  protected read(body: Buffer): void {
    this.json += body.toString();
    if (this.json.length > MAX_INFO_BYTES) {
      throw new BadReply(`the INFO reply exceeds ${MAX_INFO_BYTES} bytes`);
    }
  }
}

/** Asks for IDs, and checks the promises that a client can check. */
export class Next extends Request {
  protected readonly replies = [RUNS, LIST];
  readonly ids: bigint[] = [];
  #highest = -1n;

  constructor(
    private readonly count: number,
    source: Buffer,
    override readonly waitMs: number,
    private readonly partial: boolean,
  ) {
    const head = Buffer.alloc(6);
    head.writeUInt32LE(count, 0);
    head.writeUInt16LE(Math.floor(waitMs), 4);
    super(NEXT, Buffer.concat([head, source]), partial ? PARTIAL : 0);
  }

  protected read(body: Buffer): void {
    const size = this.begun === RUNS ? RUN_BYTES : 8;
    if (body.length === 0 || body.length % size !== 0) {
      throw new BadReply(`a body of ${body.length} bytes does not hold IDs`);
    }
    for (let at = 0; at < body.length; at += size) {
      const first = body.readBigUInt64LE(at);
      const isRun = this.begun === RUNS;
      this.#addRun(
        first,
        isRun ? body.readUInt32LE(at + 8) : 1,
        isRun ? body.readUInt32LE(at + 12) : 1,
      );
    }
  }

  #addRun(first: bigint, count: number, stride: number): void {
    if (count === 0 || stride === 0) {
      throw new BadReply(`a run of ${count} IDs with a stride of ${stride}`);
    }
    const last = first + BigInt(count - 1) * BigInt(stride);
    if (first <= this.#highest || last > MAX_ID) {
      throw new BadReply(`IDs from ${first} to ${last} came after ${this.#highest}`);
    }
    if (this.ids.length + count > this.count) {
      throw new BadReply(`more than the ${this.count} IDs came that were asked for`);
    }
    const step = BigInt(stride);
    for (let id = first; id <= last; id += step) {
      this.ids.push(id);
    }
    this.#highest = last;
  }

  protected override finish(): void {
    if (this.ids.length < this.count && !this.partial) {
      throw new BadReply(`${this.ids.length} IDs came, and ${this.count} were asked for`);
    }
  }
}

/** Reads the body of an ERROR frame. */
export function refusal(endpoint: string, body: Buffer): SnowbankError {
  if (body.length < ERROR_BYTES) {
    throw new BadReply(`an ERROR of ${body.length} bytes; it has at least ${ERROR_BYTES}`);
  }
  const message = body.subarray(ERROR_BYTES, ERROR_BYTES + MAX_MESSAGE_BYTES).toString();
  return refused(endpoint, body.readUInt16LE(0), body.readUInt8(2), body.readUInt32LE(4), message);
}

/** Describes an answer that cannot be a frame, in the words of the server that sent it. */
export function whatAnswers(start: Buffer): string {
  const text = start.subarray(0, 200).toString("latin1");
  const line = JSON.stringify(
    text
      .trim()
      .split(/[\r\n]/)[0]
      ?.slice(0, 60) ?? "",
  );
  if (text.startsWith("\x15\x03")) {
    return "it speaks TLS: write tls:host:port";
  }
  if (/^HTTP|^</.test(text)) {
    return `it answers in HTTP (${line}): is this a web server, or the admin listener?`;
  }
  if (/^-[A-Z]/.test(text)) {
    return `it answers as Redis does (${line}): is this the port of a Redis server?`;
  }
  if (/^[\r\n -~]{4}/.test(text)) {
    return `it answers in text (${line})`;
  }
  return `a frame with a length of ${start.readUInt32LE(0)}; 4 to ${MAX_REPLY_LENGTH} are allowed`;
}
