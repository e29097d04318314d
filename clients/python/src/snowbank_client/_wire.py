"""The wire protocol, version 1: requests as bytes, and replies from bytes."""

from __future__ import annotations

import operator
import struct
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from ._batch import Run

T = TypeVar("T")

VERSION = 1
MAX_COUNT = 2**32 - 1
MAX_TOKEN_BYTES = 512
MAX_SOURCE_BYTES = 64
_MAX_REPLY_LENGTH = 65_536
_MAX_INFO_BYTES = 4 << 20
_MAX_MESSAGE_BYTES = 1_024

_MAGIC = b"SNOW\r\n\r\n"
_RUNS, _LIST, _INFO, _PONG, _WELCOME, ERROR = 0x81, 0x82, 0x83, 0x84, 0x85, 0xFF
_MORE = 0x01

_HEADER = struct.Struct("<IBBH")
_NEXT = struct.Struct("<IH")
_RUN = struct.Struct("<QII")
_WELCOME_HEAD = struct.Struct("<BBHIQ")
_ERROR_HEAD = struct.Struct("<HBBI")
_ID_MAX = 2**63 - 1

#: The actions of an ERROR. Any other is TELL.
TELL, STAY, LEAVE = 0, 1, 2


class BadReplyError(Exception):
    """Bytes that break the protocol. The other side is at fault."""


class Frame(NamedTuple):
    """One frame of a reply."""

    kind: int
    flags: int
    tag: int
    body: bytes

    @property
    def has_more(self) -> bool:
        """Returns whether another frame of the same reply follows."""
        return bool(self.flags & _MORE)


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
        if not 4 <= length <= _MAX_REPLY_LENGTH:
            raise BadReplyError(_what_answers(length, bytes(self._input[:200])))
        if len(self._input) < 4 + length:
            return None
        _, kind, flags, tag = _HEADER.unpack_from(self._input)
        body = bytes(self._input[_HEADER.size : 4 + length])
        del self._input[: 4 + length]
        return Frame(kind, flags, tag, body)


def _what_answers(length: int, start: bytes) -> str:
    """Describes an answer that cannot be a frame, in the words of the server that sent it."""
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
    return f"a frame with a length of {length}; 4 to {_MAX_REPLY_LENGTH} are allowed"


class Refusal(NamedTuple):
    """The content of an ERROR frame."""

    code: int
    action: int
    retry_after: float
    message: str


def parse_refusal(body: bytes) -> Refusal:
    """Reads the body of an ERROR frame. The message becomes one printable line."""
    if len(body) < _ERROR_HEAD.size:
        raise BadReplyError(f"an ERROR of {len(body)} bytes; it has at least {_ERROR_HEAD.size}")
    code, action, _, retry_after_ms = _ERROR_HEAD.unpack_from(body)
    shown = body[_ERROR_HEAD.size :][:_MAX_MESSAGE_BYTES].decode("utf-8", "replace")
    message = "".join(c if c.isprintable() else " " for c in shown)
    return Refusal(code, action, retry_after_ms / 1000, message)


class Request(Generic[T]):
    """A request, and its reply while that comes."""

    #: The time that the daemon may take before it answers.
    wait_s = 0.0
    #: When it was sent, or the reply before it ended: by the monotonic clock, and by the wall.
    began = began_wall = 0.0

    def __init__(self, kind: int, flags: int = 0, body: bytes = b"") -> None:
        self._kind, self._flags, self._body = kind, flags, body

    def encode(self, tag: int) -> bytes:
        """Returns the bytes of the request."""
        body = self._body
        return _HEADER.pack(4 + len(body), self._kind, self._flags, tag) + body

    def add(self, frame: Frame) -> T | None:
        """Adds a frame of the reply. Returns the result with the last one."""
        raise NotImplementedError


class Welcome(NamedTuple):
    """What a daemon says in its greeting."""

    #: How long an ID may be handed out after its reply.
    good_for_s: float
    max_count: int
    #: Another one with each start of a daemon.
    instance: int
    #: One number for each worker ID that the daemon uses.
    claims: frozenset[int]


class Hello(Request[Welcome]):
    """The first request of a connection. Who connects has a limit for its reply."""

    wait_s = 3_600.0

    def __init__(self, token: bytes | None) -> None:
        super().__init__(0x04, 0, _MAGIC + bytes([VERSION, 0]) + (token or b""))

    def add(self, frame: Frame) -> Welcome:
        body = _body_of(frame, _WELCOME)
        if len(body) < _WELCOME_HEAD.size or len(body) % 8:
            raise BadReplyError(f"a body of {len(body)} bytes is no WELCOME")
        version, _, good_for_ms, max_count, instance = _WELCOME_HEAD.unpack_from(body)
        if version != VERSION:
            raise BadReplyError(
                f"the daemon speaks protocol version {version}, and this client {VERSION}"
            )
        if not good_for_ms or not max_count:
            raise BadReplyError(f"it allows {max_count} IDs, for {good_for_ms} ms")
        claims = struct.unpack_from(f"<{len(body) // 8 - 2}Q", body, _WELCOME_HEAD.size)
        return Welcome(good_for_ms / 1000, max_count, instance, frozenset(claims))


class Ping(Request[bool]):
    """Asks whether the daemon answers."""

    def __init__(self) -> None:
        super().__init__(0x03, 0, b"snowbank")

    def add(self, frame: Frame) -> bool:
        if _body_of(frame, _PONG) != self._body:
            raise BadReplyError("the reply to PING has other bytes")
        return True


class Info(Request[bytes]):
    """Asks for the daemon's own words about itself, as JSON."""

    def __init__(self) -> None:
        super().__init__(0x02)
        self._json = bytearray()

    def add(self, frame: Frame) -> bytes | None:
        self._json += _body_of(frame, _INFO)
        if len(self._json) > _MAX_INFO_BYTES:
            raise BadReplyError(f"the INFO reply exceeds {_MAX_INFO_BYTES} bytes")
        return None if frame.has_more else bytes(self._json)


class Next(Request["list[Run]"]):
    """Asks for IDs, and checks the promises that a client can check."""

    #: The highest ID that this connection had of the source.
    highest = -1

    def __init__(self, count: int, source: bytes, wait_s: float, partial: bool) -> None:
        super().__init__(0x01, partial << 1)
        self.source, self.wait_s, self._partial = source, wait_s, partial
        self._count = count
        self._body = _NEXT.pack(count, int(wait_s * 1000)) + source
        self._seen_kind = self._found = 0
        self._runs: list[Run] = []

    def limit(self, max_count: int) -> None:
        """Lowers the count to what the daemon allows, if fewer are welcome."""
        if self._partial and self._count > max_count:
            self._count = max_count
            self._body = _NEXT.pack(max_count, int(self.wait_s * 1000)) + self.source

    def add(self, frame: Frame) -> list[Run] | None:
        if frame.kind not in (_RUNS, _LIST) or self._seen_kind not in (0, frame.kind):
            raise BadReplyError(_wrong_kind(frame))
        self._seen_kind, body = frame.kind, frame.body
        size = _RUN.size if frame.kind == _RUNS else 8
        if not body or len(body) % size:
            raise BadReplyError(f"a body of {len(body)} bytes does not hold IDs")
        if frame.kind == _RUNS:
            for first, count, stride in _RUN.iter_unpack(body):
                if not count or not stride:
                    raise BadReplyError(f"a run of {count} IDs with a stride of {stride}")
                self._add(range(first, first + count * stride, stride))
        else:
            ids = struct.unpack(f"<{len(body) // 8}Q", body)
            if not all(map(operator.lt, ids, ids[1:])):
                raise BadReplyError("the reply's IDs do not increase within a frame")
            self._add(ids)
        if frame.has_more:
            return None
        if self._found < self._count and not self._partial:
            raise BadReplyError(f"{self._found} IDs came, and {self._count} were asked for")
        return self._runs

    def _add(self, run: Sequence[int]) -> None:
        if run[0] <= self.highest:
            raise BadReplyError(f"its IDs do not increase: {run[0]} follows {self.highest}")
        if run[-1] > _ID_MAX:
            raise BadReplyError(f"the ID {run[-1]} is above 2^63 - 1")
        self.highest = run[-1]
        self._found += len(run)
        if self._found > self._count:
            raise BadReplyError(f"more than the {self._count} IDs came that were asked for")
        self._runs.append(run)


def _body_of(frame: Frame, kind: int) -> bytes:
    if frame.kind != kind:
        raise BadReplyError(_wrong_kind(frame))
    return frame.body


def _wrong_kind(frame: Frame) -> str:
    return f"a frame of kind 0x{frame.kind:02x} is no reply to the request"
