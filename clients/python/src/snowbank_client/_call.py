"""One call: its deadline, its tries, and what an ERROR's action makes it do."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
from collections.abc import Coroutine
from itertools import chain
from time import monotonic
from time import time as wall
from typing import Any, Callable, TypeVar

from . import _shared
from ._errors import ClosedError, DeadlineError, EndpointError, RefusedError, SnowbankError
from ._greet import keep_greeting
from ._rest import Endpoint, Endpoints
from ._row import Row
from ._shared import Shared
from ._stats import Collision, Connected, Event, Failed, Refused, log
from ._wire import Hello, Next, Request, ping

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


class Calls:
    """The calls of one client, on one event loop of one process."""

    loop: asyncio.AbstractEventLoop | None = None

    def __init__(self, shared: Shared) -> None:
        self.generation = _shared.generation
        self.shared, self._times = shared, shared.options.times
        #: What other threads wait for.
        self.pending: set[Any] = set()
        self.endpoints = Endpoints(shared.options)
        #: The calls of the application.
        self.in_flight = 0
        #: What calls in flight wait for.
        self._waiting: set[asyncio.Future[Any]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._has_connected = False

    @property
    def is_inherited(self) -> bool:
        """Returns true in a forked child."""
        return self.generation != _shared.generation

    async def batch(self, count: int, source: bytes, deadline: Deadline) -> list[int]:
        """Fetches IDs for a caller."""

        def make(_: Hello) -> Next:
            return Next(count, source, min(self._times.wait, deadline.left))

        found = await self.counted(self._call(make, deadline))
        self.shared.counters.ids += count
        return list(chain.from_iterable(found.runs))

    async def fetch(self, count: int, source: bytes, deadline: Deadline) -> Next:
        """Fetches IDs for a buffer."""
        era = self.shared.era

        def make(welcome: Hello) -> Next:
            wait = min(_GATHERING_S, deadline.left)
            request = Next(min(count, welcome.max_count), source, wait, partial=True)
            request.good_for_s, request.era = welcome.good_for_s, era
            return request

        return await self._call(make, deadline)

    async def ping(self, deadline: Deadline) -> None:
        """Asks whether a daemon answers."""
        await self.counted(self._call(lambda _: ping(), deadline))

    async def counted(self, call: Coroutine[Any, Any, T]) -> T:
        """Runs a call of the application, whose end a close may wait for."""
        self.in_flight += 1
        try:
            return await call
        finally:
            self.in_flight -= 1

    def passed(self, deadline: Deadline) -> DeadlineError:
        """Returns the error of a passed deadline."""
        return DeadlineError(deadline.allowed, {one.name: one.heard for one in self.endpoints.all})

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs a task that ends with the client."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Nobody may ever ask for its error.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def drain(self, deadline: Deadline) -> None:
        """Waits until the calls in flight have ended, and ends the connections."""
        try:
            while self.in_flight and deadline.left:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        finally:
            self.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # The sockets are closed in the loop's next turn.
        await asyncio.sleep(0)

    def abandon(self) -> None:
        """Frees the sockets of a client that nobody can reach any more. Any thread may call it."""
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.close)

    def close(self) -> None:
        """Ends the connections. Calls in flight fail."""
        for task in list(self._tasks):
            task.cancel()
        for endpoint in self.endpoints.all:
            if endpoint.connection is not None:
                endpoint.connection.end(ClosedError())
        for future in self._waiting:
            future.cancel()

    # One call.

    async def _call(self, make: Callable[[Hello], R], deadline: Deadline) -> R:
        counters, tries = self.shared.counters, 0
        while True:
            endpoint = await self._pick(deadline)
            row = endpoint.connection
            try:
                if row is None:
                    row = await self._wait(asyncio.shield(self.dial(endpoint)), deadline)
                if not deadline.left:
                    # The loop was busy, or the time short: nobody waits for the IDs.
                    raise self.passed(deadline)
                request = make(row.welcome)
                counters.retries += tries > 0
                tries += 1
                await self._wait(row.send(request), deadline)
                age = max(monotonic() - request.began, wall() - request.began_wall)
                if age >= request.good_for_s:
                    late = f"its IDs were too old when they came, after {age:.3g} s"
                    row.end(EndpointError(endpoint.name, late))
                    continue
            except EndpointError:
                continue
            except RefusedError as error:
                await self._obey(error, endpoint, row, deadline)
                continue
            self.shared.check()
            endpoint.failures = 0
            endpoint.note(None)
            counters.calls += 1
            return request

    async def _obey(
        self, error: RefusedError, endpoint: Endpoint, row: Row | None, deadline: Deadline
    ) -> None:
        """Does what an ERROR says: raises it, stays, or leaves."""
        if row is not None:
            self._report_refusal(error)
        if error.action == "tell":
            raise copy.copy(error)
        if row is not None:
            endpoint.note(error)
        first = min(self.endpoints.all, key=lambda one: one.serves_at)
        told = first.error if first.serves_at > deadline.at else None
        stays = error.action == "stay" and (told or endpoint.serves_at <= deadline.at)
        if row is not None and not stays and endpoint.connection is row:
            # First of all, because the caller's next call must not use this connection.
            endpoint.connection = None
            self.endpoints.failed(endpoint, error)
            # It still answers the other calls.
            row.finish()
        pause = max(self.endpoints.pause(error.retry_after), _SHORTEST_PAUSE_S)
        if row is not None and stays and self.endpoints.takes_turns:
            # Others have their turn meanwhile.
            endpoint.rests_until, pause = monotonic() + pause, 0.0
        if told is not None:
            raise copy.copy(told)
        if row is not None and stays:
            await self._pause(pause, deadline)

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
        with contextlib.suppress(DeadlineError):
            end = Deadline(min(seconds, deadline.left))
            await self._wait(asyncio.get_running_loop().create_future(), end)
        if not deadline.left:
            raise self.passed(deadline)

    async def _wait(self, future: asyncio.Future[T], deadline: Deadline) -> T:
        """Waits for a future of this call alone, until the deadline."""
        self._waiting.add(future)
        try:
            # The deadline moves when a further call waits for this fetch.
            while deadline.left and not future.done():
                await asyncio.wait({future}, timeout=deadline.left)
            if not future.done():
                raise self.passed(deadline)
            if future.cancelled():
                # The client is closed. A caller that cancels leaves without it.
                raise ClosedError
            return future.result()
        finally:
            future.cancel()
            self._waiting.discard(future)

    # Connections.

    def dial(self, endpoint: Endpoint) -> asyncio.Task[Row]:
        """Connects to an endpoint, once for all calls that wait for it."""
        # One that fails at once is done before it is known here, if the loop's tasks begin eagerly.
        if endpoint.dialing is None or endpoint.dialing.done():
            endpoint.dialing = self.start(self._connect(endpoint))
        return endpoint.dialing

    async def _connect(self, endpoint: Endpoint) -> Row:
        try:
            row = await endpoint.dial()
        except RefusedError as error:
            self.endpoints.failed(endpoint, error)
            self._report_refusal(error)
            raise
        except SnowbankError as error:
            self._failed(endpoint, error)
            raise
        endpoint.connection, endpoint.rests_until = row, 0.0
        # Before a failure of it is told.
        self.report(Connected(endpoint.name))
        row.on_end = lambda error: self._ended(endpoint, row, error)
        if row.ended is not None:
            row.on_end(row.ended)
        if not self._has_connected and not self.endpoints.is_lone:
            self.start(keep_greeting(self))
        self._has_connected = True
        return row

    def _ended(self, endpoint: Endpoint, row: Row, error: SnowbankError) -> None:
        if endpoint.connection is row:
            endpoint.connection = None
            if isinstance(error, RefusedError):
                self._report_refusal(error)
            if not (row.ended_idle or isinstance(error, ClosedError)):
                self._failed(endpoint, error)

    def _failed(self, endpoint: Endpoint, error: SnowbankError) -> None:
        self.endpoints.failed(endpoint, error)
        self.shared.counters.failures += 1
        self.report(Failed(endpoint.name, error.reason))

    def _report_refusal(self, error: RefusedError) -> None:
        self.shared.counters.refusals += 1
        self.report(Refused(error.endpoint, error.code, error.action, error.message))

    # Events.

    def report(self, event: Event) -> None:
        """Logs an event, and hands it to the application, where no call waits for either."""
        level = logging.WARNING if isinstance(event, (Failed, Collision)) else logging.DEBUG
        on_event = self.shared.options.on_event

        def hear() -> None:
            try:
                log.log(level, "%s", event)
                if on_event is not None:
                    on_event(event)
            except KeyboardInterrupt:
                raise
            except BaseException:
                log.exception("on_event failed")

        if on_event is not None or log.isEnabledFor(level):
            self.tell(hear)

    def tell(self, work: Callable[[], None]) -> None:
        """Runs what hears of an event: in a turn of the event loop of its own."""
        asyncio.get_running_loop().call_soon(work)
