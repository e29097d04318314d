"""One connection, and its row of expected replies.

Replies come in the order of the requests. A call that its caller has left keeps its place in the
row: its reply is read and dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import socket
from collections import deque
from time import monotonic
from time import time as wall
from typing import Any, Callable, NamedTuple, TypeVar

from . import _wire
from ._errors import EndpointError, RefusedError, SnowbankError, describe
from ._wire import BadReplyError, Hello, Request

R = TypeVar("R", bound=Request)

#: How long a reply that may have come already is looked for before the connection has failed.
_LAST_LOOK_S = 0.01


class _Expected(NamedTuple):
    """A request, its tag, and the future of its reply. The caller leaves by ending the future."""

    request: Request
    tag: int
    reply: asyncio.Future[Any]

    def end(self, error: SnowbankError | None = None) -> None:
        if self.reply.done():
            return
        if error is None:
            self.reply.set_result(self.request)
        else:
            self.reply.set_exception(error)


class Row(asyncio.Protocol):
    """A connection to one daemon, on asyncio's own event loop or uvloop's."""

    welcome: Hello
    #: Is called with the reason when the connection ends.
    on_end: Callable[[SnowbankError], None] | None = None
    ended: SnowbankError | None = None
    #: True if the daemon closed it while no call used it.
    ended_idle = False

    def __init__(self, name: str, opened: socket.socket, answer_s: float) -> None:
        self._name, self._socket, self._answer_s = name, opened, answer_s
        self._loop = asyncio.get_running_loop()
        self._input = bytearray()
        self._expected: deque[_Expected] = deque()
        self._tag = 0
        self._transport: Any = None
        self._is_finishing = False
        self._timer: asyncio.TimerHandle | None = None

    def send(self, request: R) -> asyncio.Future[R]:
        """Sends a request in its turn. The future gives it back with its reply."""
        reply: asyncio.Future[R] = self._loop.create_future()
        # Tags count from 1 to 65535 and start again.
        self._tag = self._tag % 0xFFFF + 1
        self._expected.append(_Expected(request, self._tag, reply))
        if self.ended is None:
            self._begin(request)
            self._transport.write(request.encode(self._tag))
        else:
            self._fail_all(self.ended)
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
        self._expect_within(None)
        # A forked child may hold a copy of the socket, which would keep the connection open.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._transport is not None:
            self._transport.abort()
        else:
            self._socket.close()
        self._fail_all(error)
        if self.on_end is not None:
            self.on_end(error)

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        is_begun = bool(self._input)
        self._input += data
        try:
            while self.ended is None and self._take_frame():
                is_begun = False
        except BadReplyError as error:
            self.end(EndpointError(self._name, f"it breaks Snowbank's protocol: {error}"))
        if self._expected and not is_begun and (self._input or self._expected[0].request.begun):
            # A frame that has begun must be whole in time, and another one of its reply begin.
            self._expect_within(self._answer_s)

    def connection_lost(self, exc: Exception | None) -> None:
        # A daemon that greets and closes at once has failed.
        self.ended_idle = self.ended is None and not self._expected and self._tag > 1
        reason = "it closed the connection" if exc is None else describe(exc)
        self.end(EndpointError(self._name, reason))

    # Steps.

    def _begin(self, request: Request) -> None:
        """Counts the time of a request from now on."""
        request.began, request.began_wall = monotonic(), wall()
        if request is self._expected[0].request:
            self._expect_within(request.wait_s + self._answer_s)

    def _take_frame(self) -> bool:
        """Hands a frame to the request that it answers. Returns false until one is whole."""
        frame = _wire.split(self._input)
        if frame is None:
            return False
        kind, flags, tag, body = frame
        if kind == _wire.ERROR and tag == 0:
            self.end(_wire.refusal(self._name, body))
            return False
        front = self._expected[0] if self._expected else None
        if front is None or tag != front.tag:
            raise BadReplyError(f"a reply with tag {tag} that is not due")
        if kind == _wire.ERROR and not front.request.begun:
            front.end(_wire.refusal(self._name, body))
        elif front.request.add(kind, flags, body):
            front.end()
        else:
            return True
        self._expected.popleft()
        self._expect_within(None)
        if self._expected:
            # The daemon may read the next request only now.
            self._begin(self._expected[0].request)
        elif self._is_finishing:
            self.finish()
        return True

    def _fail_all(self, error: SnowbankError) -> None:
        """Fails what waits. A refusal without a tag answers the greeting alone."""
        while self._expected:
            one = self._expected.popleft()
            if isinstance(error, RefusedError) and not isinstance(one.request, Hello):
                one.end(EndpointError(self._name, f"the connection was lost: {error}"))
            else:
                one.end(copy.copy(error))

    def _expect_within(self, seconds: float | None) -> None:
        """Sets the time by which the front's reply must go on. None: none is due."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if seconds is not None:
            self._timer = self._loop.call_later(seconds, self._look, seconds)

    def _look(self, seconds: float) -> None:
        what = "its answer was not whole" if self._input else "it did not answer"
        late = EndpointError(self._name, f"{what} within {seconds:g} s")
        # A program that was blocked or stopped has not read yet what came meanwhile.
        self._timer = self._loop.call_later(_LAST_LOOK_S, self.end, late)
