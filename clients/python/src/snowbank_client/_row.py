"""One connection, and its row of expected replies.

Replies come in the order of the requests. A call that its caller has left keeps its place in the
row: its reply is read and dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from time import monotonic
from time import time as wall
from typing import Any, Callable, NamedTuple, TypeVar

from . import _wire
from ._errors import EndpointError, RefusedError, SnowbankError, describe
from ._wire import BadReplyError, Hello, Request, Welcome

R = TypeVar("R", bound=Request)

#: The most requests that are sent ahead of their replies. A daemon reads some 500 in a turn.
MAX_IN_FLIGHT = 1_024

#: How long a reply that may have come already is looked for before the connection has failed.
_LAST_LOOK_S = 0.01


class _Expected(NamedTuple):
    """A request, its tag, and the future of its reply. The caller leaves by ending the future."""

    request: Request
    tag: int
    reply: asyncio.Future[Any]

    def fail(self, error: SnowbankError) -> None:
        if not self.reply.done():
            self.reply.set_exception(error)


class Row(asyncio.Protocol):
    """A connection to one daemon, on asyncio's own event loop or uvloop's."""

    welcome: Welcome
    #: Is called with the reason when the connection ends.
    on_end: Callable[[SnowbankError], None] | None = None
    ended: SnowbankError | None = None

    def __init__(self, name: str, opened: socket.socket, answer_s: float) -> None:
        self._name, self._socket, self._answer_s = name, opened, answer_s
        self._loop = asyncio.get_running_loop()
        self._input = bytearray()
        self._expected: deque[_Expected] = deque()
        #: Requests whose turn has not come.
        self._queue: deque[_Expected] = deque()
        self._tag = 0
        self._transport: Any = None
        self._is_finishing = self._is_looking_again = False
        self._due = self._rings_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def send(self, request: R) -> asyncio.Future[R]:
        """Sends a request in its turn. The future gives it back with its reply."""
        reply: asyncio.Future[R] = self._loop.create_future()
        # Tags count from 1 to 65535 and start again. Far fewer requests are in flight.
        self._tag = self._tag % 0xFFFF + 1
        self._queue.append(_Expected(request, self._tag, reply))
        if self.ended is not None:
            self._fail_all(self.ended)
        else:
            self._send_queue()
        return reply

    def finish(self) -> None:
        """Ends the connection once the requests in flight are answered."""
        self._is_finishing = True
        if not self._expected:
            self.end(EndpointError(self._name, "the connection is not needed any more"))

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
        self._fail_all(error)
        if self.on_end is not None:
            self.on_end(error)

    def release(self) -> None:
        """Closes the socket of a connection whose event loop is gone."""
        self._socket.close()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._input += data
        if self._expected:
            self._expect_within(self._answer_s)
        try:
            while self.ended is None and self._take_frame():
                pass
        except BadReplyError as error:
            self.end(EndpointError(self._name, f"it breaks Snowbank's protocol: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        reason = "it closed the connection" if exc is None else describe(exc)
        self.end(EndpointError(self._name, reason))

    # Steps.

    def _send_queue(self) -> None:
        sent = b""
        while self._queue and len(self._expected) < MAX_IN_FLIGHT:
            expected = self._queue.popleft()
            if not expected.reply.done():
                self._expected.append(expected)
                self._begin(expected.request)
                sent += expected.request.encode(expected.tag)
        if sent:
            self._transport.write(sent)

    def _begin(self, request: Request) -> None:
        """Counts the time of a request from now on."""
        request.began, request.began_wall = monotonic(), wall()
        if request is self._expected[0].request:
            self._expect_within(request.wait_s + self._answer_s)

    def _take_frame(self) -> bool:
        """Hands a frame to the request that it answers. Returns false until one is whole."""
        if len(self._input) < 4:
            return False
        length = int.from_bytes(self._input[:4], "little")
        if not 4 <= length <= _wire.MAX_REPLY_LENGTH:
            raise BadReplyError(_wire.what_answers(length, bytes(self._input[:200])))
        if len(self._input) < 4 + length:
            return False
        _, kind, flags, tag = _wire.HEADER.unpack_from(self._input)
        body = bytes(self._input[_wire.HEADER.size : 4 + length])
        del self._input[: 4 + length]
        if kind == _wire.ERROR and tag == 0:
            self.end(_wire.refusal(self._name, body))
            return False
        front = self._expected[0] if self._expected else None
        if front is None or tag != front.tag:
            raise BadReplyError(f"a reply with tag {tag} that is not due")
        if kind == _wire.ERROR and not front.request.begun:
            front.fail(_wire.refusal(self._name, body))
        elif not front.request.add(kind, flags, body):
            return True
        elif not front.reply.done():
            front.reply.set_result(front.request)
        self._expected.popleft()
        self._send_queue()
        if self._expected:
            # The daemon may read the next request only now.
            self._begin(self._expected[0].request)
        elif self._is_finishing:
            self.finish()
        return True

    def _fail_all(self, error: SnowbankError) -> None:
        """Fails what waits. A refusal without a tag answers the greeting alone."""
        for waiting in (self._expected, self._queue):
            while waiting:
                one = waiting.popleft()
                if isinstance(error, RefusedError) and not isinstance(one.request, Hello):
                    one.fail(EndpointError(self._name, f"the connection was lost: {error}"))
                else:
                    one.fail(error.__class__(*error.args))

    # A daemon that stays silent.

    def _expect_within(self, seconds: float) -> None:
        """Sets the time by which bytes of the front's reply must come."""
        self._due, self._is_looking_again = monotonic() + seconds, False
        # A timer that rings early is set again then.
        if self._timer is None or self._rings_at > self._due:
            self._ring_in(seconds)

    def _ring_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = monotonic() + seconds
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        left = self._due - monotonic()
        if not self._expected:
            return
        if left > 0:
            self._ring_in(left)
        elif not self._is_looking_again:
            # A program that was blocked or stopped has not read yet what came meanwhile.
            self._is_looking_again = True
            self._ring_in(_LAST_LOOK_S)
        else:
            waited = self._expected[0].request.wait_s + self._answer_s
            self.end(EndpointError(self._name, f"it did not answer within {waited:g} s"))
