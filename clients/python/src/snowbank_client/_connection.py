"""One connection: greeting, pipelining, and matching replies to requests.

Replies come in the order of the requests, so the requests in flight form a queue. The tag only
proves that both sides count alike. A call that its caller has abandoned stays in the queue: its
reply is read and dropped, so that later replies still match.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections import deque
from typing import Any, Callable

from . import _wire
from ._batch import Batch
from ._errors import (
    CLOSING,
    MOVING_ON,
    LostError,
    NoSuchSourceError,
    ProtocolError,
    RefusedError,
    SnowbankError,
)
from ._info import Info, tick_s
from ._wire import BadReplyError, Frame

#: The most requests that are sent ahead of their replies. A daemon reads some 500 in a turn.
MAX_IN_FLIGHT = 1_024

#: The tag of the greeting, and of frames that answer no request. Requests count from 1.
GREETING_TAG = 0

#: The longest time that a daemon holds a request that names no wait, unless two ticks are longer.
_DEFAULT_WAIT_S = 1.0


class Exchange:
    """A request and the future of its reply. The caller abandons it by ending the future."""

    #: The time that the daemon may hold the request.
    wait_s = 0.0
    #: The caller's deadline, if another endpoint is left to ask for IDs that come only after it.
    moves_on_by: float | None = None

    def __init__(self, reply: asyncio.Future[Any]) -> None:
        self.reply = reply
        self.tag = GREETING_TAG
        self.begun = False
        self.read_by = 0.0
        self.progress_at = 0.0

    def encode(self, tag: int, connection: Connection) -> bytes:
        """Returns the request's bytes, or raises an error for the caller alone."""
        raise NotImplementedError

    def add(self, frame: Frame, connection: Connection) -> Any:
        """Adds a frame of the reply. Returns the result with the last one, else None."""
        raise NotImplementedError

    def fail(self, error: SnowbankError) -> None:
        """Fails the caller, unless it abandoned its call."""
        if not self.reply.done():
            self.reply.set_exception(error)

    def stalls_at(self, limit_s: float) -> float:
        """Returns when the daemon counts as stalled. A reply of many frames moves it on."""
        return max(self.progress_at, self.read_by + self.wait_s) + limit_s


class IdsExchange(Exchange):
    """Asks for IDs."""

    def __init__(self, reply: asyncio.Future[Any], request: _wire.Next) -> None:
        super().__init__(reply)
        self.request = request
        self._ids = _wire.IdCollector(request)

    def encode(self, tag: int, connection: Connection) -> bytes:
        index = connection.index_of(self.request.source)
        wait_ms = self.request.wait_ms
        is_default = wait_ms == _wire.DEFAULT_WAIT
        self.wait_s = connection.default_wait_s(index) if is_default else wait_ms / 1000
        return _wire.encode_next(tag, self.request, index)

    def add(self, frame: Frame, connection: Connection) -> Batch | None:
        runs = self._ids.add(frame)
        return None if runs is None else Batch(runs, connection.name)


class InfoExchange(Exchange):
    """Asks for the daemon's limits and sources."""

    def __init__(self, reply: asyncio.Future[Any]) -> None:
        super().__init__(reply)
        self._json = _wire.InfoCollector()

    def encode(self, tag: int, connection: Connection) -> bytes:
        return _wire.encode_info(tag)

    def add(self, frame: Frame, connection: Connection) -> Info | None:
        json = self._json.add(frame)
        if json is None:
            return None
        info = Info.from_json(json)
        connection.info = info
        return info


class _Handshake(Exchange):
    """A request of the greeting that has one short answer: PING or AUTH."""

    def __init__(self, reply: asyncio.Future[Any], request: bytes, answer: Frame) -> None:
        super().__init__(reply)
        self._request = request
        self._answer = answer

    def encode(self, tag: int, connection: Connection) -> bytes:
        return self._request

    def add(self, frame: Frame, connection: Connection) -> bool:
        if frame != self._answer:
            raise BadReplyError("the reply has a frame of the wrong kind")
        return True


class Connection(asyncio.Protocol):
    """A connection to one daemon.

    `on_end` is called once, when it takes no further calls, with the reason. `on_room` is called
    when replies have come.
    """

    def __init__(
        self,
        name: str,
        token: bytes | None,
        answer_timeout: float,
        on_end: Callable[[Connection, SnowbankError], None],
        on_room: Callable[[], None],
    ) -> None:
        self.name = name
        self.info: Info | None = None
        #: Whether the daemon has answered any request after the greeting.
        self.has_answered = False
        #: Whether more daemons are left, so that this one is left if its clock or ceiling fails.
        self.leaves_easily = False
        self._token = token
        self._answer_timeout = answer_timeout
        self._on_end = on_end
        self._on_room = on_room
        self._loop = asyncio.get_running_loop()
        self._greeted: asyncio.Future[Info] = self._loop.create_future()
        self._reader = _wire.FrameReader()
        self._in_flight: deque[Exchange] = deque()
        self._last_tag = GREETING_TAG
        self._transport: asyncio.Transport | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._ended: SnowbankError | None = None
        self._is_finishing = False
        self._indices: dict[str, int] = {}

    # What the pool calls.

    @property
    def has_room(self) -> bool:
        """Returns whether it takes a further request."""
        is_open = self._ended is None and not self._is_finishing
        return is_open and len(self._in_flight) < MAX_IN_FLIGHT

    async def greet(self) -> Info:
        """Sends the first requests, and returns the daemon's INFO."""
        ping = Frame(_wire.PONG, 0, GREETING_TAG, _wire.PROBE)
        first: list[Exchange] = [self._handshake(_wire.encode_ping(0, _wire.PROBE), ping)]
        if self._token is not None:
            accepted = Frame(_wire.OK, 0, GREETING_TAG, b"")
            first.append(self._handshake(_wire.encode_auth(0, self._token), accepted))
        first.append(InfoExchange(self._greeted))
        self._in_flight.extend(first)
        if self._ended is None:
            self._write(b"".join(exchange.encode(GREETING_TAG, self) for exchange in first))
        else:
            self._fail_greeting(self._ended)
        return await self._greeted

    def send(self, exchange: Exchange) -> None:
        """Sends a request, unless its caller abandoned it."""
        if exchange.reply.done():
            return
        # Tags count from 1 to 65535 and start again. Far fewer requests are in flight.
        tag = self._last_tag % 0xFFFF + 1
        try:
            data = exchange.encode(tag, self)
        except SnowbankError as error:
            exchange.fail(error)
            return
        self._last_tag = exchange.tag = tag
        exchange.read_by = exchange.progress_at = self._loop.time()
        self._in_flight.append(exchange)
        self._write(data)
        self._watch()

    def finish(self) -> None:
        """Takes no further requests, and closes once those in flight are answered."""
        self._is_finishing = True
        self._close_if_finished()

    def close(self, error: SnowbankError) -> None:
        """Ends the connection now."""
        self._end(error)

    def index_of(self, source: object) -> int:
        """Returns the index of a source on this daemon. Another daemon may count differently."""
        if isinstance(source, int):
            return source
        sources = () if self.info is None else self.info.sources
        for candidate in sources:
            if candidate.name == source:
                return candidate.index
        shown = sorted(candidate.name for candidate in sources)
        more = ", …" if len(shown) > 20 else ""
        known = "".join(c if c.isprintable() else " " for c in ", ".join(shown[:20]))
        raise NoSuchSourceError(self.name, str(source), known + more)

    def default_wait_s(self, index: int) -> float:
        """Returns how long the daemon holds a request that names no wait."""
        sources = () if self.info is None else self.info.sources
        ticks = (2 * tick_s(source) for source in sources if source.index == index)
        return max(_DEFAULT_WAIT_S, *ticks, 0.0)

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while self._ended is None:
                frame = self._reader.next()
                if frame is None:
                    break
                self._take(frame)
        except BadReplyError as error:
            self._break(str(error))
        self._on_room()

    def eof_received(self) -> None:
        # The transport closes by itself then.
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        if self.info is None and exc is None:
            reason = "it closed the connection before its greeting"
        elif exc is None:
            reason = "closed by the daemon"
        else:
            reason = describe(exc)
        self._end(LostError(self.name, reason))

    # Steps.

    def _handshake(self, request: bytes, answer: Frame) -> _Handshake:
        reply: asyncio.Future[Any] = self._loop.create_future()
        # INFO, the last request of the greeting, has a waiter. The others have none.
        reply.add_done_callback(lambda done: done.cancelled() or done.exception())
        return _Handshake(reply, request, answer)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _take(self, frame: Frame) -> None:
        """Hands a frame to the request that it answers."""
        if frame.kind == _wire.ERROR and frame.tag == GREETING_TAG:
            self._end(self._refused(frame))
            return
        if not self._in_flight:
            raise BadReplyError("a frame that answers no request")
        front = self._in_flight[0]
        if frame.tag != front.tag:
            raise BadReplyError(f"a reply with tag {frame.tag} where {front.tag} is due")
        if frame.kind == _wire.ERROR:
            if front.begun:
                raise BadReplyError("the reply has a frame of the wrong kind")
            self._refuse_front(self._refused(frame))
            return
        front.begun = True
        if not front.reply.done():
            front.progress_at = self._loop.time()
        result = front.add(frame, self)
        if result is not None:
            self._pop_front()
            self.has_answered = self.has_answered or front.tag != GREETING_TAG
            if not front.reply.done():
                front.reply.set_result(result)
            self._close_if_finished()

    def _refused(self, frame: Frame) -> RefusedError:
        refusal = _wire.parse_refusal(frame.body)
        return RefusedError(self.name, refusal.code, refusal.retry_after, refusal.message)

    def _pop_front(self) -> None:
        self._in_flight.popleft()
        if self._in_flight:
            # The daemon may read the next request only now.
            self._in_flight[0].read_by = self._loop.time()
        self._watch()

    def _refuse_front(self, error: RefusedError) -> None:
        front = self._in_flight[0]
        self._pop_front()
        front.fail(error)
        # A single daemon whose clock or ceiling fails is kept: there is no better one.
        if error.code in CLOSING or (error.code in MOVING_ON and self.leaves_easily):
            self._end(error)
        elif is_exhausted_beyond(error, front.moves_on_by, self._loop.time()):
            # Another daemon is asked, and this one still answers the other calls.
            self._on_end(self, error)
            self.finish()
        else:
            self._close_if_finished()

    def _break(self, reason: str) -> None:
        """Fails the oldest request with a breach of the protocol, which ends the connection."""
        error = ProtocolError(self.name, reason)
        if self._in_flight:
            self._in_flight.popleft().fail(error)
        self._end(error)

    def _close_if_finished(self) -> None:
        if self._is_finishing and not self._in_flight:
            self._end(LostError(self.name, "it is no longer needed"))

    def _end(self, error: SnowbankError) -> None:
        if self._ended is not None:
            return
        self._ended = error
        if self._stall is not None:
            self._stall.cancel()
        if self._transport is not None:
            self._hang_up(self._transport)
        self._fail_greeting(error)
        reason = error.reason if isinstance(error, LostError) else str(error)
        while self._in_flight:
            self._in_flight.popleft().fail(LostError(self.name, reason))
        if not self._is_finishing:
            self._on_end(self, error)

    def _hang_up(self, transport: asyncio.Transport) -> None:
        # A forked child may hold a copy of the socket, which would keep the connection open.
        sock = transport.get_extra_info("socket")
        with contextlib.suppress(OSError, AttributeError):
            sock.shutdown(socket.SHUT_RDWR)
        transport.abort()

    def _fail_greeting(self, error: SnowbankError) -> None:
        if not self._greeted.done():
            self._greeted.set_exception(error)
            # Its waiter may be gone.
            self._greeted.exception()

    # A daemon that stays silent.

    def _watch(self) -> None:
        """Sets the timer for the oldest request in flight. It can ring early, and is set again."""
        if not self._in_flight:
            return
        stalls_at = self._in_flight[0].stalls_at(self._answer_timeout)
        if self._stall is not None:
            if self._stall.when() <= stalls_at:
                return
            self._stall.cancel()
        self._stall = self._loop.call_at(stalls_at, self._check_stall)

    def _check_stall(self) -> None:
        self._stall = None
        if not self._in_flight or self._in_flight[0].tag == GREETING_TAG:
            return
        front = self._in_flight[0]
        if front.stalls_at(self._answer_timeout) > self._loop.time():
            self._watch()
            return
        waited = front.wait_s + self._answer_timeout
        self._end(LostError(self.name, f"it did not answer within {waited:g} s"))


def is_exhausted_beyond(error: SnowbankError, deadline: float | None, now: float) -> bool:
    """Returns whether a daemon has no IDs before the deadline. Another daemon may have some."""
    if deadline is None or not isinstance(error, RefusedError) or error.code != "exhausted":
        return False
    return error.retry_after is not None and error.retry_after > deadline - now


def describe(error: BaseException) -> str:
    """Returns the reason that TLS or the operating system gave, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            return "it does not speak TLS: write the address without tls:"
        return f"TLS failed: {error.reason or error}"
    if isinstance(error, ConnectionResetError):
        return "the connection was reset"
    if isinstance(error, socket.gaierror) and error.strerror:
        return error.strerror
    if isinstance(error, OSError) and error.errno:
        # Without the event loop's own words.
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
