"""The row of expected replies of one connection.

Replies come in the order of the requests, so that the requests in flight form a row. A call that
its caller has left keeps its place there. Its reply is read and dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from time import monotonic
from time import time as wall
from typing import Any, Callable, TypeVar

from . import _wire
from ._errors import EndpointError, RefusedError, SnowbankError, describe
from ._wire import BadReplyError, Frame, Hello, Next, Request

T = TypeVar("T")

#: The most requests that are sent ahead of their replies. A daemon reads some 500 in a turn.
MAX_IN_FLIGHT = 1_024

#: How long a reply that may have come already is looked for before the connection has failed.
_LAST_LOOK_S = 0.01


class _Expected:
    """A request, and the future of its reply. The caller leaves by ending the future."""

    __slots__ = ("begun", "reply", "request", "tag")

    def __init__(self, request: Request[Any], reply: asyncio.Future[Any]) -> None:
        self.request, self.reply = request, reply
        self.tag = 0
        self.begun = False

    def fail(self, error: SnowbankError) -> None:
        if not self.reply.done():
            self.reply.set_exception(error)


class Row(asyncio.Protocol):
    """A connection to one daemon, of plain asyncio or uvloop."""

    #: Is called once, with the reason, when the connection ends.
    on_end: Callable[[SnowbankError], None] | None = None

    def __init__(self, name: str, opened: socket.socket, answer_s: float) -> None:
        self._name, self._socket, self._answer_s = name, opened, answer_s
        self._loop = asyncio.get_running_loop()
        self._reader = _wire.FrameReader()
        self._expected: deque[_Expected] = deque()
        self._queue: deque[_Expected] = deque()
        self._tag = 0
        #: The highest ID of each source.
        self._highest: dict[bytes, int] = {}
        self._transport: Any = None
        self._is_finishing = False
        self._is_looking_again = False
        self._due = self._rings_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.ended: SnowbankError | None = None

    def send(self, request: Request[T]) -> asyncio.Future[T]:
        """Sends a request when its turn in the row has come. Returns the future of its reply."""
        reply: asyncio.Future[T] = self._loop.create_future()
        expected = _Expected(request, reply)
        if self.ended is not None:
            expected.fail(self._lost(self.ended))
        else:
            self._queue.append(expected)
            self._send_queue()
        return reply

    def finish(self) -> None:
        """Ends the connection once the requests in flight are answered."""
        self._is_finishing = True
        self._end_if_finished()

    def end(self, error: SnowbankError) -> None:
        """Ends the connection. Calls in flight fail."""
        if self.ended is not None:
            return
        self.ended = error
        if self._timer is not None:
            self._timer.cancel()
        # A forked child may hold a copy of the socket, which would keep the connection open.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._transport is not None:
            self._transport.abort()
        for waiting in (self._expected, self._queue):
            while waiting:
                waiting.popleft().fail(self._lost(error))
        if self.on_end is not None:
            self.on_end(error)

    def release(self) -> None:
        """Closes the socket of a connection whose event loop is gone."""
        self._socket.close()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        if self._expected:
            self._expect_by(self._answer_s)
        try:
            while self.ended is None:
                frame = self._reader.next()
                if frame is None:
                    break
                self._take(frame)
        except BadReplyError as error:
            self.end(EndpointError(self._name, f"it breaks Snowbank's protocol: {error}"))

    def eof_received(self) -> None:
        # The transport closes by itself then.
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        reason = "it closed the connection" if exc is None else describe(exc)
        if self._expected and isinstance(self._expected[0].request, Hello):
            reason += " before its greeting"
        self.end(EndpointError(self._name, reason))

    # Steps.

    def _send_queue(self) -> None:
        sent = []
        while self._queue and len(self._expected) < MAX_IN_FLIGHT:
            expected = self._queue.popleft()
            if expected.reply.done():
                continue
            # Tags count from 1 to 65535 and start again. Far fewer requests are in flight.
            self._tag = expected.tag = self._tag % 0xFFFF + 1
            self._expected.append(expected)
            if len(self._expected) == 1:
                self._expect_by(expected.request.wait_s + self._answer_s)
            expected.request.began, expected.request.began_wall = monotonic(), wall()
            sent.append(expected.request.encode(expected.tag))
        if sent:
            self._transport.write(b"".join(sent))

    def _take(self, frame: Frame) -> None:
        """Hands a frame to the request that it answers."""
        if frame.kind == _wire.ERROR and frame.tag == 0:
            self.end(RefusedError(self._name, *_wire.parse_refusal(frame.body)))
            return
        if not self._expected:
            raise BadReplyError("a frame that answers no request")
        front = self._expected[0]
        request = front.request
        if frame.tag != front.tag:
            raise BadReplyError(f"a reply with tag {frame.tag} where {front.tag} is due")
        if frame.kind == _wire.ERROR:
            if front.begun:
                raise BadReplyError("an ERROR within a reply")
            front.fail(RefusedError(self._name, *_wire.parse_refusal(frame.body)))
            self._pop_front()
            return
        if isinstance(request, Next) and not front.begun:
            request.highest = self._highest.get(request.source, -1)
        front.begun = True
        result = request.add(frame)
        if result is None:
            return
        if isinstance(request, Next):
            self._highest[request.source] = request.highest
        if not front.reply.done():
            front.reply.set_result(result)
        self._pop_front()

    def _pop_front(self) -> None:
        self._expected.popleft()
        self._send_queue()
        if self._expected:
            # The daemon may read the next request only now.
            front = self._expected[0]
            front.request.began, front.request.began_wall = monotonic(), wall()
            self._expect_by(front.request.wait_s + self._answer_s)
        self._end_if_finished()

    def _end_if_finished(self) -> None:
        if self._is_finishing and not self._expected and not self._queue:
            self.end(EndpointError(self._name, "the connection is no longer needed"))

    def _lost(self, error: SnowbankError) -> SnowbankError:
        """Returns the error of a call that was in flight. Only its own reply may be a refusal."""
        if isinstance(error, RefusedError):
            return EndpointError(self._name, f"the connection was lost: {error}")
        return error.__class__(*error.args)

    # A daemon that stays silent.

    def _expect_by(self, seconds: float) -> None:
        """Sets the time by which bytes of the front's reply must come."""
        self._due, self._is_looking_again = monotonic() + seconds, False
        if self._timer is not None:
            # One that rings early is set again then.
            if self._rings_at <= self._due:
                return
            self._timer.cancel()
        self._ring_in(seconds)

    def _ring_in(self, seconds: float) -> None:
        self._rings_at = monotonic() + seconds
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._expected:
            return
        left = self._due - monotonic()
        if left <= 0:
            if self._is_looking_again:
                waited = self._expected[0].request.wait_s + self._answer_s
                self.end(EndpointError(self._name, f"it did not answer within {waited:g} s"))
                return
            # A program that was blocked or stopped has not read yet what came meanwhile.
            self._is_looking_again, left = True, _LAST_LOOK_S
        self._ring_in(left)
