"""One call: its deadline, its tries, and what an ERROR's action makes it do."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Coroutine
from itertools import chain
from time import monotonic
from typing import Any, Callable, TypeVar

from . import _shared
from ._errors import ClosedError, DeadlineError, EndpointError, RefusedError, SnowbankError
from ._greet import keep_greeting
from ._rest import Endpoint, Endpoints
from ._row import Row
from ._shared import Shared
from ._stats import Connected, Failed, Refused
from ._wire import Next, Ping, Request, Welcome

T = TypeVar("T")
R = TypeVar("R", bound=Request)

#: How long a buffer's request lets a daemon gather IDs.
_GATHERING_S = 0.05

#: The shortest wait before the same daemon is asked again.
_SHORTEST_PAUSE_S = 0.001


class Deadline:
    """The end of a call. A fetch that several calls wait for ends with the last of them."""

    def __init__(self, allowed: float) -> None:
        self.allowed = allowed
        self.at = monotonic() + allowed

    @property
    def left(self) -> float:
        """Returns the seconds until then."""
        return max(self.at - monotonic(), 0.0)


class _PassedError(Exception):
    """The deadline passed."""


class Calls:
    """The calls of one client, on one event loop of one process."""

    #: The thread of the loop, if it is the client's own.
    thread: threading.Thread | None = None

    def __init__(self, shared: Shared, loop: asyncio.AbstractEventLoop) -> None:
        self.shared, self._times, self.loop = shared, shared.options.times, loop
        self.generation = _shared.generation
        #: What frees the sockets of a client that nobody can reach any more.
        self.abandon: Callable[[], None] = self.close
        #: What other threads wait for.
        self.pending: set[Any] = set()
        self.endpoints = Endpoints(shared.options)
        self.in_flight = 0
        #: What calls in flight wait for.
        self._waiting: set[asyncio.Future[Any]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._has_connected = False

    async def batch(self, count: int, source: bytes, deadline: Deadline) -> list[int]:
        """Fetches IDs for a caller."""

        def make(_: Welcome) -> Next:
            return Next(count, source, min(self._times.wait, deadline.left))

        found = await self._call(make, deadline)
        self.shared.counters.ids += count
        return list(chain.from_iterable(found.runs))

    async def fetch(self, count: int, source: bytes, deadline: Deadline) -> Next:
        """Fetches IDs for a buffer."""
        token = self.shared.token

        def make(welcome: Welcome) -> Next:
            made = Next(min(count, welcome.max_count), source, _GATHERING_S, partial=True)
            made.token, made.good_for_s = token, welcome.good_for_s
            return made

        return await self._call(make, deadline)

    async def ping(self, deadline: Deadline) -> None:
        """Asks whether a daemon answers."""
        await self._call(lambda _: Ping(), deadline)

    def passed(self, deadline: Deadline) -> DeadlineError:
        """Returns the error of a passed deadline."""
        return DeadlineError(deadline.allowed, {one.name: one.heard for one in self.endpoints.all})

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs a task that ends with the client."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Nobody may ever ask for its error.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def drain(self, deadline: Deadline) -> None:
        """Waits until the calls in flight have ended."""
        while self.in_flight and deadline.left:  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    def close(self) -> None:
        """Ends the connections. Calls in flight fail."""
        for task in list(self._tasks):
            task.cancel()
        for endpoint in self.endpoints.all:
            if endpoint.connection is not None:
                endpoint.connection.end(ClosedError())
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(ClosedError())

    def release(self) -> None:
        """Closes the sockets of a client whose event loop is gone."""
        for endpoint in self.endpoints.all:
            if endpoint.connection is not None:
                endpoint.connection.release()

    # One call.

    async def _call(self, make: Callable[[Welcome], R], deadline: Deadline) -> R:
        counters = self.shared.counters
        #: When an endpoint that refused this call could serve it.
        serves_at: dict[Endpoint, float] = {}
        tries = 0
        self.in_flight += 1
        try:
            while True:
                endpoint = await self._pick(deadline)
                counters.retries += tries > 0
                tries += 1
                row = endpoint.connection
                try:
                    if row is None:
                        row = await self._wait(asyncio.shield(self.dial(endpoint)), deadline)
                    answered = await self._wait(row.send(make(row.welcome)), deadline)
                except EndpointError:
                    continue
                except RefusedError as error:
                    await self._obey(error, endpoint, row, serves_at, deadline)
                    continue
                self.shared.check()
                endpoint.failures, endpoint.error = 0, None
                counters.calls += 1
                return answered
        except _PassedError:
            raise self.passed(deadline) from None
        finally:
            self.in_flight -= 1

    async def _obey(
        self,
        error: RefusedError,
        endpoint: Endpoint,
        row: Row | None,
        serves_at: dict[Endpoint, float],
        deadline: Deadline,
    ) -> None:
        """Does what an ERROR says: raises it, stays, or leaves."""
        if row is not None:
            self._report_refusal(error)
        serves_at[endpoint] = monotonic() + error.retry_after
        is_hopeless = serves_at[endpoint] > deadline.at
        if error.action == "tell" or all(
            serves_at.get(one, 0.0) > deadline.at for one in self.endpoints.all
        ):
            raise copy.copy(error)
        if error.action == "stay" and row is not None and not is_hopeless:
            pause = max(self.endpoints.pause(error.retry_after), _SHORTEST_PAUSE_S)
            await self._pause(pause, deadline)
        elif row is not None and endpoint.connection is row:
            endpoint.connection = None
            self.endpoints.failed(endpoint, error, error.retry_after)
            # It still answers the other calls.
            row.finish()

    async def _pick(self, deadline: Deadline) -> Endpoint:
        """Returns an endpoint whose rest is over."""
        while True:
            self.shared.check()
            endpoint = self.endpoints.pick()
            rest = endpoint.rests_until - monotonic()
            if rest <= 0:
                return endpoint
            await self._pause(rest, deadline)

    async def _pause(self, seconds: float, deadline: Deadline) -> None:
        future: asyncio.Future[None] = self.loop.create_future()
        timer = self.loop.call_later(seconds, _wake, future)
        try:
            await self._wait(future, deadline)
        finally:
            timer.cancel()

    async def _wait(self, future: asyncio.Future[T], deadline: Deadline) -> T:
        """Waits for a future of this call alone, until the deadline."""

        def ring() -> None:
            if deadline.left:
                # A further call waits for this fetch.
                timers.append(self.loop.call_later(deadline.left, ring))
            elif not future.done():
                future.set_exception(_PassedError())

        timers = [self.loop.call_later(deadline.left, ring)]
        self._waiting.add(future)
        try:
            return await future
        finally:
            timers[-1].cancel()
            self._waiting.discard(future)

    # Connections.

    def dial(self, endpoint: Endpoint) -> asyncio.Task[Row]:
        """Connects to an endpoint, once for all calls that wait for it."""
        if endpoint.dialing is None:
            endpoint.dialing = self.start(self._connect(endpoint))
        return endpoint.dialing

    async def _connect(self, endpoint: Endpoint) -> Row:
        try:
            row = await endpoint.dial()
        except RefusedError as error:
            self._report_refusal(error)
            if error.action != "tell":
                self._failed(endpoint, error)
            raise
        except EndpointError as error:
            self._failed(endpoint, error)
            raise
        finally:
            endpoint.dialing = None
        endpoint.connection = row
        row.on_end = lambda error: self._ended(endpoint, row, error)
        self.shared.report(Connected(endpoint.name))
        if not self._has_connected and not self.endpoints.is_lone:
            self.start(keep_greeting(self))
        self._has_connected = True
        return row

    def _ended(self, endpoint: Endpoint, row: Row, error: SnowbankError) -> None:
        if endpoint.connection is row:
            endpoint.connection = None
            if isinstance(error, RefusedError):
                self._report_refusal(error)
            if not isinstance(error, ClosedError):
                self._failed(endpoint, error)

    def _failed(self, endpoint: Endpoint, error: SnowbankError) -> None:
        self.shared.counters.failures += 1
        self.shared.report(Failed(endpoint.name, getattr(error, "reason", str(error))))
        self.endpoints.failed(endpoint, error, getattr(error, "retry_after", 0.0))

    def _report_refusal(self, error: RefusedError) -> None:
        self.shared.counters.refusals += 1
        self.shared.report(Refused(error.endpoint, error.code, error.action, error.message))


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
