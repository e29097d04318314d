"""One call: its deadline, its tries, and what an ERROR's action makes it do."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Coroutine
from time import monotonic
from typing import Any, Callable, NamedTuple, TypeVar

from ._batch import Batch, Run
from ._dial import Connection
from ._errors import ClosedError, DeadlineError, EndpointError, RefusedError, SnowbankError
from ._greet import Rounds
from ._rest import Endpoint, Endpoints
from ._shared import Shared
from ._stats import Connected, Failed, Refused
from ._wire import Next, Ping, Request

T = TypeVar("T")

#: What a buffer's request allows a daemon to gather IDs.
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
        return self.at - monotonic()


class _PassedError(Exception):
    """The deadline passed."""


class Delivery(NamedTuple):
    """What a fetch brings to a buffer."""

    runs: list[Run]
    #: When it was asked for, or the reply before it ended: its IDs are younger.
    began: float
    #: Until when they may be handed out: by the monotonic clock, and by the wall.
    until: float
    wall_until: float
    good_for_s: float
    #: What `Shared.token` was when it was asked for.
    token: object


class _Answer(NamedTuple):
    """An answered request, and who answered it."""

    request: Request[Any]
    result: Any
    endpoint: Endpoint
    connection: Connection


class Calls:
    """The calls of one client, on one event loop."""

    def __init__(self, shared: Shared) -> None:
        self.shared, self._options = shared, shared.options
        self.loop = asyncio.get_running_loop()
        self.endpoints = Endpoints(shared.options)
        #: The calls that wait for a connection, by their endpoint.
        self._dialing: dict[Endpoint, list[asyncio.Future[Connection]]] = {}
        #: What calls in flight wait for.
        self._waiting: set[asyncio.Future[Any]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_flight = 0
        self._drained: asyncio.Future[None] = self.loop.create_future()
        self._rounds: Rounds | None = None

    async def batch(self, count: int, source: bytes, deadline: Deadline) -> Batch:
        """Fetches IDs for a caller."""

        def make() -> Next:
            wait_s = max(0.0, min(self._options.times.wait, deadline.left))
            return Next(count, source, wait_s, partial=False)

        answer = await self._call(make, deadline)
        self.shared.counters.ids += count
        return Batch(answer.result, answer.endpoint.name)

    async def fetch(self, count: int, source: bytes, deadline: Deadline) -> Delivery:
        """Fetches IDs for a buffer."""
        token = self.shared.token
        answer = await self._call(lambda: Next(count, source, _GATHERING_S, partial=True), deadline)
        request, good_for_s = answer.request, answer.connection.welcome.good_for_s
        until, wall_until = request.began + good_for_s, request.began_wall + good_for_s
        return Delivery(answer.result, request.began, until, wall_until, good_for_s, token)

    async def ping(self, deadline: Deadline) -> None:
        """Asks whether a daemon answers."""
        await self._call(Ping, deadline)

    def passed(self, allowed: float) -> DeadlineError:
        """Returns the error of a passed deadline."""
        return DeadlineError(allowed, {one.name: one.heard for one in self.endpoints.all})

    @property
    def endpoint(self) -> str | None:
        """Returns the endpoint that the client is connected to."""
        endpoints = [self.endpoints.current, *self.endpoints.all]
        return next((one.name for one in endpoints if one.connection is not None), None)

    async def drain(self, allowed: float) -> None:
        """Waits until the calls in flight have ended, at most for a time."""
        if self._in_flight:
            await asyncio.wait({self._drained}, timeout=allowed)

    def close(self) -> None:
        """Ends the connections. Calls in flight fail."""
        for task in self._tasks:
            task.cancel()
        for endpoint in self.endpoints.all:
            if endpoint.connection is not None:
                endpoint.connection.row.end(ClosedError())
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(ClosedError())

    def release(self) -> None:
        """Closes the sockets of a client whose event loop is gone."""
        for endpoint in self.endpoints.all:
            if endpoint.connection is not None:
                endpoint.connection.row.release()

    # One call.

    async def _call(self, make: Callable[[], Request[Any]], deadline: Deadline) -> _Answer:
        self._in_flight += 1
        try:
            return await self._try_until(make, deadline)
        except _PassedError:
            raise self.passed(deadline.allowed) from None
        finally:
            self._in_flight -= 1
            if not self._in_flight and self.shared.is_closed and not self._drained.done():
                self._drained.set_result(None)

    async def _try_until(self, make: Callable[[], Request[Any]], deadline: Deadline) -> _Answer:
        counters = self.shared.counters
        #: When an endpoint that refused this call could serve it.
        serves_at: dict[Endpoint, float] = {}
        tries = 0
        while True:
            endpoint = await self._pick(deadline)
            counters.retries += tries > 0
            tries += 1
            connection = endpoint.connection
            try:
                if connection is None:
                    connection = await self._wait(self._dial(endpoint), deadline)
                request = make()
                if isinstance(request, Next):
                    request.limit(connection.welcome.max_count)
                result = await self._wait(connection.row.send(request), deadline)
            except EndpointError:
                continue
            except RefusedError as error:
                await self._obey(error, endpoint, connection, serves_at, deadline)
                continue
            self.shared.check_collision()
            self.endpoints.answered(endpoint)
            counters.calls += 1
            return _Answer(request, result, endpoint, connection)

    async def _obey(
        self,
        error: RefusedError,
        endpoint: Endpoint,
        connection: Connection | None,
        serves_at: dict[Endpoint, float],
        deadline: Deadline,
    ) -> None:
        """Does what an ERROR says: raises it, stays, or leaves."""
        if connection is not None:
            self._report_refusal(error)
        retry_after = error.retry_after or 0.0
        serves_at[endpoint] = monotonic() + retry_after
        others = (one for one in self.endpoints.all if one is not endpoint)
        is_hopeless = serves_at[endpoint] > deadline.at
        if error.action == "tell" or (
            is_hopeless and all(serves_at.get(one, 0.0) > deadline.at for one in others)
        ):
            raise error
        if error.action == "stay" and not is_hopeless:
            await self._pause(max(self.endpoints.pause(retry_after), _SHORTEST_PAUSE_S), deadline)
        elif connection is not None and endpoint.connection is connection:
            endpoint.connection = None
            self.endpoints.failed(endpoint, error, retry_after)
            # It still answers the other calls.
            connection.row.finish()

    async def _pick(self, deadline: Deadline) -> Endpoint:
        """Returns an endpoint whose rest is over."""
        while True:
            self.shared.check_collision()
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
            if future.done():
                return
            if deadline.left <= 0:
                future.set_exception(_PassedError())
            else:
                # A further call waits for this fetch.
                timers.append(self.loop.call_later(deadline.left, ring))

        timers = [self.loop.call_later(max(deadline.left, 0.0), ring)]
        self._waiting.add(future)
        try:
            return await future
        finally:
            timers[-1].cancel()
            self._waiting.discard(future)

    # Connections.

    def _dial(self, endpoint: Endpoint) -> asyncio.Future[Connection]:
        """Connects to an endpoint, once for all calls that wait for it."""
        future: asyncio.Future[Connection] = self.loop.create_future()
        waiting = self._dialing.setdefault(endpoint, [])
        waiting.append(future)
        if len(waiting) == 1:
            self.start(self._connect(endpoint))
        return future

    async def _connect(self, endpoint: Endpoint) -> None:
        failure: SnowbankError | None = None
        connection: Connection | None = None
        try:
            connection = await endpoint.dialer.dial()
            failure = connection.row.ended
        except SnowbankError as error:
            failure = error
        waiting = self._dialing.pop(endpoint)
        if failure is not None:
            self._failed(endpoint, failure)
        elif connection is not None:
            endpoint.connection = connection
            connection.row.on_end = lambda error: self._ended(endpoint, connection, error)
            self.shared.report(Connected(endpoint.name))
            if self._rounds is None and not self.endpoints.is_lone:
                self._rounds = Rounds(self)
                self.start(self._rounds.run())
        for future in waiting:
            if not future.done():
                if failure is not None:
                    future.set_exception(copy.copy(failure))
                elif connection is not None:
                    future.set_result(connection)

    def _ended(self, endpoint: Endpoint, connection: Connection, error: SnowbankError) -> None:
        if endpoint.connection is connection:
            endpoint.connection = None
            self._failed(endpoint, error)

    def _failed(self, endpoint: Endpoint, error: SnowbankError) -> None:
        if isinstance(error, ClosedError):
            return
        self.shared.counters.failures += 1
        retry_after = 0.0
        if isinstance(error, RefusedError):
            self._report_refusal(error)
            retry_after = error.retry_after or 0.0
        else:
            self.shared.report(Failed(endpoint.name, getattr(error, "reason", str(error))))
        self.endpoints.failed(endpoint, error, retry_after)

    def _report_refusal(self, error: RefusedError) -> None:
        self.shared.counters.refusals += 1
        self.shared.report(Refused(error.endpoint, error.code, error.action, error.message))

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a task that ends with the client."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
