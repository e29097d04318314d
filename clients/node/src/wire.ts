/** The wire protocol, version 1: requests as bytes, and replies from bytes. */

import { plain, REFUSALS, SnowbankError } from "./errors.js";

const VERSION = 1;
const MAX_REPLY_LENGTH = 65_536;
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
export class Request {
  /** The time that the daemon may take before it answers. */
  waitMs = 0;
  /** When it was sent, or the reply before it ended: by the monotonic clock, and by the wall. */
  began = 0;
  beganWall = 0;
  /** How long a buffer may hand out the IDs of its reply. */
  goodForMs = Number.POSITIVE_INFINITY;
  /** The kind of the reply's first frame, and the bodies of all. */
  begun = 0;
  reply: Buffer = Buffer.alloc(0);

  constructor(
    private readonly kind: number,
    private readonly replies: readonly number[],
    private readonly body: Buffer = Buffer.alloc(0),
    private readonly flags = 0,
  ) {}

  get isGreeting(): boolean {
    return this.kind === HELLO;
  }

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
    if ((flags & MORE) !== 0 && [RUNS, LIST, INFO_REPLY].includes(kind)) {
      return false;
    }
    this.finish();
    return true;
  }

  /** Reads the body of a frame. */
  protected read(body: Buffer): void {
    this.reply = Buffer.concat([this.reply, body]);
    if (this.reply.length > MAX_INFO_BYTES) {
      throw new BadReply(`the reply exceeds ${MAX_INFO_BYTES} bytes`);
    }
  }

  /** Checks the whole reply. */
  protected finish(): void {
    if (this.kind === PING && !this.reply.equals(this.body)) {
      throw new BadReply("the reply to PING has other bytes");
    }
  }
}

/** Asks whether the daemon answers. */
export function ping(): Request {
  return new Request(PING, [PONG], Buffer.from("snowbank"));
}

/** Asks for the daemon's own words about itself, as JSON. */
export function info(): Request {
  return new Request(INFO, [INFO_REPLY]);
}

/** The first request of a connection, and what WELCOME says. Who connects has a limit for it. */
export class Hello extends Request {
  override waitMs = 3_600_000;
  maxCount = 0;
  /** Another one with each start of a daemon. */
  instance = 0n;
  /** One number for each worker ID that the daemon uses. */
  readonly claims = new Set<bigint>();

  constructor(token: Buffer) {
    super(HELLO, [WELCOME], Buffer.concat([MAGIC, Buffer.from([VERSION, 0]), token]));
  }

  protected override finish(): void {
    const body = this.reply;
    if (body.length < WELCOME_BYTES || body.length % 8 !== 0) {
      throw new BadReply(`a body of ${body.length} bytes is no WELCOME`);
    }
    const version = body.readUInt8(0);
    if (version !== VERSION) {
      throw new BadReply(`it speaks version ${version}, and this client ${VERSION}`);
    }
    this.goodForMs = body.readUInt16LE(2);
    this.maxCount = body.readUInt32LE(4);
    this.instance = body.readBigUInt64LE(8);
    if (this.goodForMs === 0 || this.maxCount === 0) {
      throw new BadReply(`it allows ${this.maxCount} IDs, for ${this.goodForMs} ms`);
    }
    for (let at = WELCOME_BYTES; at < body.length; at += 8) {
      this.claims.add(body.readBigUInt64LE(at));
    }
  }
}

/** Asks for IDs, and checks the promises that a client can check. */
export class Next extends Request {
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
    super(NEXT, [RUNS, LIST], Buffer.concat([head, source]), partial ? PARTIAL : 0);
  }

  protected override read(body: Buffer): void {
    const isRuns = this.begun === RUNS;
    const size = isRuns ? RUN_BYTES : 8;
    if (body.length === 0 || body.length % size !== 0) {
      throw new BadReply(`a body of ${body.length} bytes does not hold IDs`);
    }
    for (let at = 0; at < body.length; at += size) {
      const run = isRuns ? [body.readUInt32LE(at + 8), body.readUInt32LE(at + 12)] : [1, 1];
      this.#addRun(body.readBigUInt64LE(at), run[0]!, run[1]!);
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

/** Returns the frame at the front, and the bytes behind it, or undefined until one is whole. */
export function split(data: Buffer) {
  const length = data.length < 4 ? 4 : data.readUInt32LE(0);
  if (length < 4 || length > MAX_REPLY_LENGTH) {
    throw new BadReply(whatAnswers(data));
  }
  if (data.length < 4 + length) {
    return undefined;
  }
  const [kind, flags, tag] = [data.readUInt8(4), data.readUInt8(5), data.readUInt16LE(6)];
  const [body, rest] = [data.subarray(HEADER_BYTES, 4 + length), data.subarray(4 + length)];
  return { kind, flags, tag, body, rest };
}

/** Reads the body of an ERROR frame. */
export function refusal(endpoint: string, body: Buffer): SnowbankError {
  if (body.length < ERROR_BYTES) {
    throw new BadReply(`an ERROR of ${body.length} bytes; it has at least ${ERROR_BYTES}`);
  }
  const [number, waitMs] = [body.readUInt16LE(0), body.readUInt32LE(4)];
  const action = (["tell", "stay", "leave"] as const)[body.readUInt8(2)] ?? "tell";
  const code = REFUSALS[number - 1];
  const message = body.subarray(ERROR_BYTES, ERROR_BYTES + MAX_MESSAGE_BYTES).toString();
  const again = waitMs > 0 ? ` (try again in ${waitMs / 1000} s)` : "";
  const text = `${endpoint} refused: ${code ?? `code ${number}`}: ${plain(message)}${again}`;
  const details = { endpoint, number, action, retryAfterMs: waitMs || undefined };
  return new SnowbankError(code ?? "refused", text, details);
}

/** Describes an answer that cannot be a frame, in the words of the server that sent it. */
export function whatAnswers(start: Buffer): string {
  const text = start.subarray(0, 200).toString("latin1");
  if (text.startsWith("\x15\x03")) {
    return "it speaks TLS: write tls:host:port";
  }
  if (/^[\r\n -~]{4}/.test(text)) {
    const line = JSON.stringify(/[^\r\n]{1,60}/.exec(text)?.[0] ?? "");
    return `it answers ${line}: is this the port of a web server, of a Redis, or of the daemon's admin listener?`;
  }
  return `a frame with a length of ${start.readUInt32LE(0)}; 4 to ${MAX_REPLY_LENGTH} are allowed`;
}
