/** The wire format: requests to bytes, bytes to reply frames. */

export const NEXT = 0x01;
export const INFO = 0x02;
export const PING = 0x03;
export const AUTH = 0x04;
export const RUNS = 0x81;
export const LIST = 0x82;
export const INFO_REPLY = 0x83;
export const PONG = 0x84;
export const OK = 0x85;
export const ERROR = 0xff;

/** The flag of NEXT that asks for every ID instead of runs. */
export const EXPLICIT = 0x01;

/** The flag of NEXT that welcomes fewer IDs. */
export const PARTIAL = 0x02;

/** The flag of a reply frame that another one follows. */
const MORE = 0x01;

/** The wait of a request that leaves it to the daemon. */
export const DEFAULT_WAIT = 0xffff;

const HEADER_BYTES = 8;
const MIN_LENGTH = 4;
const MAX_REPLY_LENGTH = 65_536;

/** The most bytes of a foreign answer that an error shows. */
const SHOWN = 60;

/** One frame of a reply. */
export interface Frame {
  kind: number;
  more: boolean;
  tag: number;
  body: Buffer;
}

/** The request of a NEXT, as it is sent. */
export interface NextBody {
  count: number;
  source: number;
  maxWaitMs: number;
  flags: number;
}

/** Encodes a request with that body. */
export function encodeRequest(kind: number, tag: number, body: Uint8Array, flags = 0): Buffer {
  const frame = Buffer.allocUnsafe(HEADER_BYTES + body.length);
  frame.writeUInt32LE(MIN_LENGTH + body.length, 0);
  frame.writeUInt8(kind, 4);
  frame.writeUInt8(flags, 5);
  frame.writeUInt16LE(tag, 6);
  frame.set(body, HEADER_BYTES);
  return frame;
}

/** Encodes a request for IDs. */
export function encodeNext(tag: number, next: NextBody): Buffer {
  const body = Buffer.allocUnsafe(8);
  body.writeUInt32LE(next.count, 0);
  body.writeUInt16LE(next.source, 4);
  body.writeUInt16LE(next.maxWaitMs, 6);
  return encodeRequest(NEXT, tag, body, next.flags);
}

/** A breach of the protocol by the other side. */
export class Breach extends Error {}

/** Cuts the bytes of a connection into frames. */
export class FrameReader {
  #bytes: Buffer = Buffer.alloc(0);

  push(chunk: Buffer): void {
    this.#bytes = this.#bytes.length === 0 ? chunk : Buffer.concat([this.#bytes, chunk]);
  }

  /** Returns the next frame, or undefined while it is incomplete. Throws {@link Breach}. */
  next(): Frame | undefined {
    const bytes = this.#bytes;
    if (bytes.length < 4) {
      return undefined;
    }
    const length = bytes.readUInt32LE(0);
    if (length < MIN_LENGTH || length > MAX_REPLY_LENGTH) {
      throw new Breach(foreign(length, bytes));
    }
    const end = 4 + length;
    if (bytes.length < end) {
      return undefined;
    }
    this.#bytes = bytes.subarray(end);
    const [kind, flags] = [bytes.readUInt8(4), bytes.readUInt8(5)];
    const body = bytes.subarray(HEADER_BYTES, end);
    checkFrame(kind, flags, body.length);
    return { kind, more: (flags & MORE) !== 0, tag: bytes.readUInt16LE(6), body };
  }
}

/** Checks the flags and the size of a reply's body. */
function checkFrame(kind: number, flags: number, size: number): void {
  const known = [RUNS, LIST, INFO_REPLY, PONG, OK, ERROR];
  if (!known.includes(kind)) {
    throw new Breach(`a frame of the unknown kind 0x${kind.toString(16)}`);
  }
  const mayHaveMore = kind === RUNS || kind === LIST || kind === INFO_REPLY;
  if ((flags & ~(mayHaveMore ? MORE : 0)) !== 0) {
    throw new Breach(`a frame of kind 0x${kind.toString(16)} with the unknown flags ${flags}`);
  }
  const unit = kind === RUNS ? 16 : 8;
  const isOdd = (kind === RUNS || kind === LIST) && (size === 0 || size % unit !== 0);
  if (isOdd || (kind === OK && size !== 0) || (kind === ERROR && size < 8)) {
    throw new Breach(`a frame of kind 0x${kind.toString(16)} with a body of ${size} bytes`);
  }
}

/** Names the protocol of an answer that cannot be a frame. */
function foreign(length: number, bytes: Buffer): string {
  const line =
    bytes
      .toString("latin1")
      .split(/[\r\n]/)
      .find((part) => part !== "") ?? "";
  const shown = JSON.stringify(line.slice(0, SHOWN));
  if (bytes[0] === 0x15 && bytes[1] === 0x03) {
    return "it speaks TLS: write tls:host:port";
  }
  if (line.startsWith("HTTP") || line.startsWith("<")) {
    return `it answers in HTTP (${shown}): is this the port of a web server, or of the daemon's admin listener?`;
  }
  if (/^-[A-Z]/.test(line)) {
    return `it answers as Redis does (${shown}): is this the port of a Redis server?`;
  }
  if (/^[ -~\r\n]{4}/.test(bytes.toString("latin1", 0, 4))) {
    return `it answers in text (${shown})`;
  }
  return `a frame with a length of ${length}; ${MIN_LENGTH} to ${MAX_REPLY_LENGTH} are allowed`;
}
