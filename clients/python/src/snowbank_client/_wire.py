"""The wire protocol, version 1: requests as bytes, and replies from bytes."""

from __future__ import annotations

import operator
import struct
from collections.abc import Sequence
from typing import NamedTuple

from ._errors import RefusedError

VERSION = 1
MAX_COUNT = 2**32 - 1
MAX_TOKEN_BYTES = 512
MAX_SOURCE_BYTES = 64
MAX_REPLY_LENGTH = 65_536
_MAX_INFO_BYTES = 4 << 20
_MAX_MESSAGE_BYTES = 1_024
_MAX_ID = 2**63 - 1

_MAGIC = b"SNOW\r\n\r\n"
_NEXT, _INFO, _PING, _HELLO = 0x01, 0x02, 0x03, 0x04
_RUNS, _LIST, _INFO_REPLY, _PONG, _WELCOME, ERROR = 0x81, 0x82, 0x83, 0x84, 0x85, 0xFF
_PARTIAL, _MORE = 0x02, 0x01

HEADER = struct.Struct("<IBBH")
_NEXT_HEAD = struct.Struct("<IH")
_RUN = struct.Struct("<QII")
_WELCOME_HEAD = struct.Struct("<BBHIQ")
_ERROR_HEAD = struct.Struct("<HBBI")


class BadReplyError(Exception):
    """Bytes that break the protocol. The other side is at fault."""


class Request:
    """A request, and its reply while that comes."""

    #: The kinds of frames of its reply.
    replies: tuple[int, ...] = ()
    #: The time that the daemon may take before it answers.
    wait_s = 0.0
    #: When it was sent, or the reply before it ended: by the monotonic clock, and by the wall.
    began = began_wall = 0.0
    #: The kind of the reply's first frame.
    begun = 0

    def __init__(self, kind: int, body: bytes = b"", flags: int = 0) -> None:
        self.kind, self.body, self.flags = kind, body, flags

    def encode(self, tag: int) -> bytes:
        """Returns the bytes of the request."""
        return HEADER.pack(4 + len(self.body), self.kind, self.flags, tag) + self.body

    def add(self, kind: int, flags: int, body: bytes) -> bool:
        """Adds a frame of the reply. Returns true with the last one."""
        if kind not in self.replies or self.begun not in (0, kind):
            raise BadReplyError(f"a frame of kind 0x{kind:02x} is no reply to the request")
        self.begun = kind
        self.read(body)
        if flags & _MORE:
            return False
        self.finish()
        return True

    def read(self, body: bytes) -> None:
        """Reads the body of a frame."""

    def finish(self) -> None:
        """Checks the whole reply."""


class Hello(Request):
    """The first request of a connection. Who connects has a limit for its reply."""

    replies = (_WELCOME,)
    wait_s = 3_600.0

    def __init__(self, token: bytes | None) -> None:
        super().__init__(_HELLO, _MAGIC + bytes([VERSION, 0]) + (token or b""))

    def read(self, body: bytes) -> None:
        if len(body) < _WELCOME_HEAD.size or len(body) % 8:
            raise BadReplyError(f"a body of {len(body)} bytes is no WELCOME")
        version, _, good_for_ms, max_count, instance = _WELCOME_HEAD.unpack_from(body)
        if version != VERSION:
            raise BadReplyError(f"it speaks version {version}, and this client {VERSION}")
        if not good_for_ms or not max_count:
            raise BadReplyError(f"it allows {max_count} IDs, for {good_for_ms} ms")
        claims = struct.unpack_from(f"<{len(body) // 8 - 2}Q", body, _WELCOME_HEAD.size)
        self.welcome = Welcome(good_for_ms / 1000, max_count, instance, frozenset(claims))


class Welcome(NamedTuple):
    """What a daemon says in its greeting."""

    #: How long an ID may be handed out after its reply.
    good_for_s: float
    max_count: int
    #: Another one with each start of a daemon.
    instance: int
    #: One number for each worker ID that the daemon uses.
    claims: frozenset[int]


class Ping(Request):
    """Asks whether the daemon answers."""

    replies = (_PONG,)

    def __init__(self) -> None:
        super().__init__(_PING, b"snowbank")

    def read(self, body: bytes) -> None:
        if body != self.body:
            raise BadReplyError("the reply to PING has other bytes")


class Info(Request):
    """Asks for the daemon's own words about itself, as JSON."""

    replies = (_INFO_REPLY,)

    def __init__(self) -> None:
        super().__init__(_INFO)
        self.json = bytearray()

    def read(self, body: bytes) -> None:
        self.json += body
        if len(self.json) > _MAX_INFO_BYTES:
            raise BadReplyError(f"the INFO reply exceeds {_MAX_INFO_BYTES} bytes")


class Next(Request):
    """Asks for IDs, and checks the promises that a client can check."""

    replies = (_RUNS, _LIST)
    #: For a buffer: how long its IDs may be handed out, and the token under which they came.
    good_for_s = 0.0
    token: object = None

    def __init__(self, count: int, source: bytes, wait_s: float, partial: bool = False) -> None:
        body = _NEXT_HEAD.pack(count, int(wait_s * 1000)) + source
        super().__init__(_NEXT, body, _PARTIAL if partial else 0)
        self.wait_s, self._count, self._partial = wait_s, count, partial
        #: The IDs: ranges, or tuples where the daemon listed single ones.
        self.runs: list[Sequence[int]] = []
        self.found, self._highest = 0, -1

    def read(self, body: bytes) -> None:
        if not body or len(body) % (_RUN.size if self.begun == _RUNS else 8):
            raise BadReplyError(f"a body of {len(body)} bytes does not hold IDs")
        if self.begun == _RUNS:
            for first, count, stride in _RUN.iter_unpack(body):
                if not count or not stride:
                    raise BadReplyError(f"a run of {count} IDs with a stride of {stride}")
                self._add(range(first, first + count * stride, stride))
        else:
            ids = struct.unpack(f"<{len(body) // 8}Q", body)
            if not all(map(operator.lt, ids, ids[1:])):
                raise BadReplyError("its IDs do not increase within a frame")
            self._add(ids)

    def _add(self, run: Sequence[int]) -> None:
        if not self._highest < run[0] <= run[-1] <= _MAX_ID:
            raise BadReplyError(f"IDs from {run[0]} to {run[-1]} came after {self._highest}")
        self._highest = run[-1]
        self.runs.append(run)
        self.found += len(run)
        if self.found > self._count:
            raise BadReplyError(f"more than the {self._count} IDs came that were asked for")

    def finish(self) -> None:
        if self.found < self._count and not self._partial:
            raise BadReplyError(f"{self.found} IDs came, and {self._count} were asked for")


def refusal(endpoint: str, body: bytes) -> RefusedError:
    """Reads the body of an ERROR frame. The message becomes one printable line."""
    if len(body) < _ERROR_HEAD.size:
        raise BadReplyError(f"an ERROR of {len(body)} bytes; it has at least {_ERROR_HEAD.size}")
    code, action, _, retry_after_ms = _ERROR_HEAD.unpack_from(body)
    shown = body[_ERROR_HEAD.size :][:_MAX_MESSAGE_BYTES].decode("utf-8", "replace")
    message = "".join(c if c.isprintable() else " " for c in shown)
    return RefusedError(endpoint, code, action, retry_after_ms / 1000, message)


def what_answers(length: int, start: bytes) -> str:
    """Describes an answer that cannot be a frame, in the words of the server that sent it."""
    shown = start.strip().partition(b"\n")[0][:60].decode("utf-8", "replace").strip()
    if start[:2] == b"\x15\x03":
        return "it speaks TLS: write tls:host:port"
    if start[:4] == b"HTTP" or start[:1] == b"<":
        return f"it answers in HTTP ({shown!r}): is this a web server, or the admin listener?"
    if start[:1] == b"-" and start[1:2].isupper():
        return f"it answers as Redis does ({shown!r}): is this the port of a Redis server?"
    if all(32 <= byte < 127 or byte in b"\r\n" for byte in start[:4]):
        return f"it answers in text ({shown!r})"
    return f"a frame with a length of {length}; 4 to {MAX_REPLY_LENGTH} are allowed"
