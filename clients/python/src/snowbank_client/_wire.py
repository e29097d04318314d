"""The wire protocol, version 1: requests as bytes, and the frames of replies."""

from __future__ import annotations

import operator
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ._batch import Runs

MAX_COUNT = 2**32 - 1
MAX_TOKEN_SIZE = 512
MAX_REPLY_LENGTH = 65_536
MAX_INFO_SIZE = 4 << 20
MAX_MESSAGE_SIZE = 1_024
#: The `max_wait_ms` that means the daemon's own default.
DEFAULT_WAIT = 65_535

#: The body of the PING that begins a connection. A server of HTTP waits for the end of a line
#: before it answers. These line ends make it answer at once, and the client can name it.
PROBE = b"\r\n\r\n"

RUNS, LIST, INFO, PONG, OK, ERROR = 0x81, 0x82, 0x83, 0x84, 0x85, 0xFF
_MORE = 0x01
#: The flags that each kind of frame defines.
_FLAGS = {RUNS: _MORE, LIST: _MORE, INFO: _MORE, PONG: 0, OK: 0, ERROR: 0}

_HEADER = struct.Struct("<IBBH")
_NEXT = struct.Struct("<IBBHIHH")
_RUN = struct.Struct("<QII")
_ERROR_HEAD = struct.Struct("<HHI")
_ID_LIMIT = 2**64


class BadReplyError(Exception):
    """Bytes that break the protocol. The other side is at fault."""


@dataclass(frozen=True)
class Next:
    """A request for IDs."""

    count: int
    #: The index of the source, or its name.
    source: int | str = 0
    #: `max_wait_ms` on the wire.
    wait_ms: int = DEFAULT_WAIT
    explicit: bool = False
    partial: bool = False


def encode_next(tag: int, request: Next, index: int) -> bytes:
    flags = request.explicit | request.partial << 1
    return _NEXT.pack(12, 0x01, flags, tag, request.count, index, request.wait_ms)


def encode_info(tag: int) -> bytes:
    return _HEADER.pack(4, 0x02, 0, tag)


def encode_ping(tag: int, body: bytes) -> bytes:
    return _HEADER.pack(4 + len(body), 0x03, 0, tag) + body


def encode_auth(tag: int, token: bytes) -> bytes:
    return _HEADER.pack(4 + len(token), 0x04, 0, tag) + token


class Frame(NamedTuple):
    """One frame of a reply, of a kind, flags and size that fit each other."""

    kind: int
    flags: int
    tag: int
    body: bytes

    @property
    def has_more(self) -> bool:
        """Returns whether another frame of the same reply follows."""
        return bool(self.flags & _MORE)


class Refusal(NamedTuple):
    """The content of an ERROR frame."""

    code: int
    retry_after: float | None
    message: str


class FrameReader:
    """Cuts the bytes of a connection into frames."""

    def __init__(self) -> None:
        self._input = bytearray()

    def feed(self, data: bytes) -> None:
        """Adds bytes."""
        self._input += data

    def next(self) -> Frame | None:
        """Returns the next whole frame, or None until more bytes come."""
        if len(self._input) < 4:
            return None
        length = int.from_bytes(self._input[:4], "little")
        if not 4 <= length <= MAX_REPLY_LENGTH:
            raise BadReplyError(_bad_length(length, bytes(self._input[:200])))
        if len(self._input) < 4 + length:
            return None
        _, kind, flags, tag = _HEADER.unpack_from(self._input)
        body = bytes(self._input[_HEADER.size : 4 + length])
        del self._input[: 4 + length]
        _check(kind, flags, len(body))
        return Frame(kind, flags, tag, body)


def _check(kind: int, flags: int, size: int) -> None:
    if kind not in _FLAGS:
        raise BadReplyError(f"frame kind 0x{kind:02x} is unknown to protocol version 1")
    if flags & ~_FLAGS[kind]:
        raise BadReplyError(f"flags 0x{flags:02x} do not fit frame kind 0x{kind:02x}")
    fits = {
        RUNS: size > 0 and size % _RUN.size == 0,
        LIST: size > 0 and size % 8 == 0,
        INFO: size > 0,
        PONG: size <= 64,
        OK: size == 0,
        ERROR: size >= _ERROR_HEAD.size,
    }
    if not fits[kind]:
        raise BadReplyError(f"a body of {size} bytes does not fit frame kind 0x{kind:02x}")


def _bad_length(length: int, start: bytes) -> str:
    """Describes an answer that cannot be a frame, and names the server that sent it."""
    line = next((line for line in start.replace(b"\r", b"\n").split(b"\n") if line), b"")
    shown = line[:60].decode("utf-8", "replace")
    if start[:2] == b"\x15\x03":
        return "it speaks TLS: write tls:host:port"
    if start[:4] == b"HTTP" or start[:1] == b"<":
        return (
            f"it answers in HTTP ({shown!r}): is this the port of a web server, "
            "or of the daemon's admin listener?"
        )
    if start[:1] == b"-" and start[1:2].isupper():
        return f"it answers as Redis does ({shown!r}): is this the port of a Redis server?"
    if all(32 <= byte < 127 or byte in b"\r\n" for byte in start[:4]):
        return f"it answers in text ({shown!r})"
    return f"a frame with a length of {length}; 4 to {MAX_REPLY_LENGTH} are allowed"


def parse_refusal(body: bytes) -> Refusal:
    """Reads the body of an ERROR frame."""
    code, _, retry_after_ms = _ERROR_HEAD.unpack_from(body)
    shown = body[_ERROR_HEAD.size :][:MAX_MESSAGE_SIZE].decode("utf-8", "replace")
    message = "".join(" " if ord(c) < 32 or 127 <= ord(c) < 160 else c for c in shown)
    return Refusal(code, retry_after_ms / 1000 if retry_after_ms else None, message)


class IdCollector:
    """Joins the frames of a reply to NEXT, and checks the promises that a client can check."""

    def __init__(self, asked: Next) -> None:
        self._asked = asked
        self._kind = 0
        self._runs: Runs = []
        self._found = 0
        self._last = -1

    def add(self, frame: Frame) -> Runs | None:
        """Adds the next frame. Returns the IDs with the last one."""
        is_wanted = frame.kind == LIST or (frame.kind == RUNS and not self._asked.explicit)
        if not is_wanted or self._kind not in (0, frame.kind):
            raise BadReplyError("the reply has a frame of the wrong kind")
        self._kind = frame.kind
        if frame.kind == RUNS:
            for first, count, stride in _RUN.iter_unpack(frame.body):
                self._add_run(first, count, stride)
        else:
            self._add_list(struct.unpack(f"<{len(frame.body) // 8}Q", frame.body))
        if frame.has_more:
            return None
        if self._found < self._asked.count and not self._asked.partial:
            raise BadReplyError(
                f"the reply has {self._found} IDs and {self._asked.count} were asked for"
            )
        return self._runs

    def _add_run(self, first: int, count: int, stride: int) -> None:
        if count == 0:
            raise BadReplyError("the reply has a run of no IDs")
        if stride == 0 and count > 1:
            raise BadReplyError(f"the reply's IDs do not increase: {first} follows {first}")
        if first + (count - 1) * stride >= _ID_LIMIT:
            raise BadReplyError(f"the reply has a run from {first} that ends beyond 64 bits")
        step = stride or 1
        self._add(range(first, first + count * step, step))

    def _add_list(self, ids: tuple[int, ...]) -> None:
        if not all(map(operator.lt, ids, ids[1:])):
            raise BadReplyError("the reply's IDs do not increase within a frame")
        self._add(ids)

    def _add(self, run: Sequence[int]) -> None:
        if run[0] <= self._last:
            raise BadReplyError(f"the reply's IDs do not increase: {run[0]} follows {self._last}")
        self._last = run[-1]
        self._found += len(run)
        if self._found > self._asked.count:
            raise BadReplyError(f"the reply has more than the {self._asked.count} IDs asked for")
        self._runs.append(run)


class InfoCollector:
    """Joins the frames of a reply to INFO."""

    def __init__(self) -> None:
        self._json = bytearray()

    def add(self, frame: Frame) -> bytes | None:
        """Adds the next frame. Returns the JSON with the last one."""
        if frame.kind != INFO:
            raise BadReplyError("the reply has a frame of the wrong kind")
        self._json += frame.body
        if len(self._json) > MAX_INFO_SIZE:
            raise BadReplyError(f"the INFO reply exceeds {MAX_INFO_SIZE} bytes")
        return None if frame.has_more else bytes(self._json)
