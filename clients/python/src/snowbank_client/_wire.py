"""The wire protocol, version 1: requests as bytes, and replies from bytes."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Sequence

from ._errors import RefusedError

VERSION = 1
MAX_COUNT = 2**32 - 1
MAX_TOKEN_BYTES = 512
MAX_SOURCE_BYTES = 64
_MAX_REPLY_LENGTH = 65_536
_MAX_INFO_BYTES = 4 << 20
_MAX_MESSAGE_BYTES = 1_024
_MAX_ID = 2**63 - 1

_MAGIC = b"SNOW\r\n\r\n"
_NEXT, _INFO, _PING, _HELLO = 0x01, 0x02, 0x03, 0x04
_RUNS, _LIST, _INFO_REPLY, _PONG, _WELCOME, ERROR = 0x81, 0x82, 0x83, 0x84, 0x85, 0xFF
_PARTIAL, _MORE = 0x02, 0x01

_HEADER = struct.Struct("<IBBH")
_NEXT_HEAD = struct.Struct("<IH")
_RUN = struct.Struct("<QII")
_WELCOME_HEAD = struct.Struct("<BBHIQ")
_ERROR_HEAD = struct.Struct("<HBBI")


class BadReplyError(Exception):
    """Bytes that break the protocol. The other side is at fault."""


class Request:
    """A request, and its reply while that comes."""

    #: The time that the daemon may take before it answers.
    wait_s = 0.0
    #: When it was sent, or the reply before it ended: by the monotonic clock, and by the wall.
    began = began_wall = 0.0
    #: How long a buffer may hand out the IDs of its reply.
    good_for_s = math.inf
    #: The kind of the reply's first frame, and the bodies of all.
    begun, reply = 0, b""

    def __init__(
        self, kind: int, replies: tuple[int, ...], body: bytes = b"", flags: int = 0
    ) -> None:
        self._kind, self._replies, self._body, self._flags = kind, replies, body, flags

    def encode(self, tag: int) -> bytes:
        """Returns the bytes of the request."""
        return _HEADER.pack(4 + len(self._body), self._kind, self._flags, tag) + self._body

    def add(self, kind: int, flags: int, body: bytes) -> bool:
        """Adds a frame of the reply. Returns true with the last one."""
        if kind not in self._replies or self.begun not in (0, kind):
            raise BadReplyError(f"a frame of kind 0x{kind:02x} is no reply to the request")
        self.begun = kind
        self.read(body)
        if flags & _MORE and kind in (_RUNS, _LIST, _INFO_REPLY):
            return False
        self.finish()
        return True

    def read(self, body: bytes) -> None:
        """Reads the body of a frame."""
        self.reply += body
        if len(self.reply) > _MAX_INFO_BYTES:
            raise BadReplyError(f"the reply exceeds {_MAX_INFO_BYTES} bytes")

    def finish(self) -> None:
        """Checks the whole reply."""
        if self._kind == _PING and self.reply != self._body:
            raise BadReplyError("the reply to PING has other bytes")


class Hello(Request):
    """The first request of a connection, and what WELCOME says."""

    max_count = 0
    #: Another one with each start of a daemon.
    instance = 0
    #: One number for each worker ID that the daemon uses.
    claims: frozenset[int] = frozenset()

    def __init__(self, token: bytes) -> None:
        super().__init__(_HELLO, (_WELCOME,), _MAGIC + bytes([VERSION, 0]) + token)

    def finish(self) -> None:
        body = self.reply
        if len(body) < _WELCOME_HEAD.size or len(body) % 8:
            raise BadReplyError(f"a body of {len(body)} bytes is no WELCOME")
        version, _, good_for_ms, self.max_count, self.instance = _WELCOME_HEAD.unpack_from(body)
        if version != VERSION:
            raise BadReplyError(f"it speaks version {version}, and this client {VERSION}")
        if not good_for_ms or not self.max_count:
            raise BadReplyError(f"it allows {self.max_count} IDs, for {good_for_ms} ms")
        self.good_for_s = good_for_ms / 1000
        claims = struct.unpack_from(f"<{len(body) // 8 - 2}Q", body, _WELCOME_HEAD.size)
        self.claims = frozenset(claims)


def ping() -> Request:
    """Asks whether the daemon answers."""
    return Request(_PING, (_PONG,), b"snowbank")


def info() -> Request:
    """Asks for the daemon's own words about itself, as JSON."""
    return Request(_INFO, (_INFO_REPLY,))


class Next(Request):
    """Asks for IDs, and checks the promises that a client can check."""

    #: For a buffer: the client's era in which it asked.
    era: object = None

    def __init__(self, count: int, source: bytes, wait_s: float, partial: bool = False) -> None:
        body = _NEXT_HEAD.pack(count, int(wait_s * 1000)) + source
        super().__init__(_NEXT, (_RUNS, _LIST), body, _PARTIAL if partial else 0)
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


def split(data: bytearray) -> tuple[int, int, int, bytes] | None:
    """Takes a frame from the front: its kind, flags, tag and body. None: it is not whole yet."""
    length = int.from_bytes(data[:4], "little")
    if len(data) >= 4 and not 4 <= length <= _MAX_REPLY_LENGTH:
        raise BadReplyError(what_answers(length, bytes(data[:200])))
    if len(data) < 4 + max(length, 4):
        return None
    _, kind, flags, tag = _HEADER.unpack_from(data)
    body = bytes(data[_HEADER.size : 4 + length])
    del data[: 4 + length]
    return kind, flags, tag, body


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
    if start[:2] == b"\x15\x03":
        return "it speaks TLS: write tls:host:port"
    if all(32 <= byte < 127 or byte in b"\r\n" for byte in start[:4]):
        shown = start.strip().partition(b"\n")[0][:60].decode("utf-8", "replace").strip()
        ports = "of a web server, of a Redis, or of the daemon's admin listener"
        return f"it answers {shown!r}: is this the port {ports}?"
    return f"a frame with a length of {length}; 4 to {_MAX_REPLY_LENGTH} are allowed"
