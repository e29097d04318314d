"""The connections of one client: which daemon to ask, and when to try the next.

```text
  call ─▶ waiting ─▶ connection of a target ─▶ daemon
            │  ▲
            ▼  │ opened or failed
          dial: a task for each target that is being connected
```

An endpoint is what the application wrote. A target is one socket address of it: a name that
resolves to many addresses has many targets. All of it runs on one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Coroutine
from typing import Any, Callable

from . import _dial, _same_workers, _wire
from ._address import Address
from ._batch import Batch
from ._connection import (
    Connection,
    Exchange,
    IdsExchange,
    InfoExchange,
    describe,
    is_exhausted_beyond,
)
from ._dial import SocketAddress
from ._errors import (
    ClosedError,
    DeadlineError,
    LostError,
    ProtocolError,
    RefusedError,
    SnowbankError,
    UnreachableError,
    join,
)
from ._info import Info
from ._options import Options

log = logging.getLogger("snowbank_client")

#: A lookup younger than this is used again for an address that has not failed.
_LOOKUP_AGE_S = 1.0

#: The time after which a client that takes turns looks a name up again, to find new addresses.
_TURNS_LOOKUP_AGE_S = 30.0

#: What connecting can raise: the system's reasons, files that do not fit, and no thread left.
_SYSTEM = (OSError, ValueError, RuntimeError)

_SILENT = "does another program listen there, such as a Redis?"


class Deadline:
    """The time at which a call must end, over connecting and all tries."""

    def __init__(self, loop: asyncio.AbstractEventLoop, allowed: float) -> None:
        self._loop = loop
        self.allowed = allowed
        self.at = self._loop.time() + allowed

    @property
    def left(self) -> float:
        """Returns the seconds that are left."""
        return self.at - self._loop.time()


class Endpoint:
    """An address that the application gave, and when it was looked up."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.looked_up_at: float | None = None


class Target:
    """One socket address of an endpoint, its connection, and its recent failures."""

    def __init__(self, endpoint: Endpoint, where: SocketAddress | None, name: str) -> None:
        self.endpoint = endpoint
        #: None until a name is looked up.
        self.where = where
        self.name = name
        self.connection: Connection | None = None
        self.dialing = False
        #: Whether it is dialed while another target serves, so that no call waits for it.
        self.in_background = False
        #: What the client waits for, if it dials.
        self.stage = "the client had no time to connect"
        #: The error since it last served.
        self.error: SnowbankError | None = None
        self.failures = 0
        #: The earliest time for the next try.
        self.not_before = 0.0
        #: Until then other targets are tried first.
        self.exhausted_until = 0.0

    def due_at(self) -> float:
        """Returns when it may be tried again."""
        return max(self.not_before, self.exhausted_until)


class Pool:
    """The connections of one client, on one event loop."""

    def __init__(
        self,
        options: Options,
        loop: asyncio.AbstractEventLoop,
        drop_buffers: Callable[[], None] = lambda: None,
    ) -> None:
        self.options = options
        self.loop = loop
        #: Drops what was fetched, once two endpoints turn out to hand out the same IDs.
        self._drop_buffers = drop_buffers
        self.targets: list[Target] = [
            Target(Endpoint(address), None, address.text) for address in options.addresses
        ]
        #: Two endpoints that hand out the same IDs.
        self.collision: SnowbankError | None = None
        self._current = self.targets[0]
        self._turn = 0
        #: What waits for a connection: the calls of callers that still wait, oldest first.
        self._waiting: OrderedDict[Exchange, None] = OrderedDict()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._check = _same_workers.Check(self)
        #: Done once the pool is closed.
        self._closing: asyncio.Future[None] = loop.create_future()

    # Calls.

    async def batch(self, request: _wire.Next, deadline: Deadline) -> Batch:
        """Fetches IDs."""

        def make(reply: asyncio.Future[Any]) -> Exchange:
            return IdsExchange(reply, request)

        batch: Batch = await self._call(deadline, make)
        return batch

    async def info(self, deadline: Deadline) -> Info:
        """Asks the daemon in use for its limits and sources."""
        info: Info = await self._call(deadline, InfoExchange)
        return info

    async def _call(
        self, deadline: Deadline, make: Callable[[asyncio.Future[Any]], Exchange]
    ) -> Any:
        """Sends a request until it is answered, and retries where that may help."""
        last: SnowbankError | None = None
        tries = 0
        exhausted: dict[str, SnowbankError] = {}
        while True:
            self.check()
            exchange = make(self.loop.create_future())
            moves_on = len(exhausted) + 1 < len(self.targets)
            exchange.moves_on_by = deadline.at if moves_on else None
            try:
                return await self._try(exchange, deadline)
            except _PassedError:
                raise _soonest(exhausted) or self.passed(deadline, last) from None
            except SnowbankError as error:
                last = error
            tries += 1
            if is_exhausted_beyond(last, deadline.at, self.loop.time()):
                assert isinstance(last, RefusedError)
                asks_next = moves_on and last.endpoint not in exhausted
                exhausted[last.endpoint] = last
                if asks_next:
                    continue
                raise _soonest(exhausted) or last
            pause = self._pause(last, tries)
            # The refusal with its time to wait helps more than an error about the deadline.
            if pause is None or 0 < pause >= deadline.left:
                raise last
            if deadline.left <= 0:
                raise self.passed(deadline, last)
            await self.pause(pause)

    async def _try(self, exchange: Exchange, deadline: Deadline) -> Any:
        timer = self.loop.call_at(deadline.at, _expire, exchange.reply)
        self._waiting[exchange] = None
        self.flush()
        try:
            return await exchange.reply
        finally:
            timer.cancel()
            self._waiting.pop(exchange, None)

    def check(self) -> None:
        """Raises an error if no call can be served."""
        if self._closing.done():
            raise ClosedError
        if self.collision is not None:
            raise self.collision

    async def pause(self, seconds: float) -> None:
        """Waits between two tries. Raises an error if the pool is closed meanwhile."""
        await asyncio.wait({self._closing}, timeout=seconds)
        self.check()

    def set_collision(self, found: SnowbankError | None) -> None:
        """Records that two endpoints hand out the same IDs, or that none do."""
        self.collision = found
        if found is not None:
            self._drop_buffers()

    def _pause(self, error: SnowbankError, tries: int) -> float | None:
        """Returns the pause before the next try, or None for no retry.

        With several targets the next one is asked at once. A single daemon that refuses because of
        its state is asked again after the time that it named.
        """
        if not error.is_retried:
            return None
        if not isinstance(error, RefusedError) or len(self.targets) > 1:
            return 0.0
        return (error.retry_after or 0.0) + self._backoff(tries)

    def passed(self, deadline: Deadline, last: SnowbankError | None) -> DeadlineError:
        """Returns the error of a call that has reached its deadline."""
        for target in self.targets:
            if target.connection is not None:
                return DeadlineError(deadline.allowed, target.name, last)
        errors = [
            target.error or UnreachableError(target.name, target.stage) for target in self.targets
        ]
        return DeadlineError(deadline.allowed, None, join(errors) or last)

    # From waiting calls to connections.

    def flush(self) -> None:
        """Sends what waits, and dials if nothing can be sent."""
        while self._waiting:
            connection = self._usable()
            if connection is None:
                break
            connection.send(self._waiting.popitem(last=False)[0])
        is_eager = self.options.take_turns or self.options.prefer_first
        if not self._closing.done() and (self._waiting or is_eager):
            self._dial_some()

    def _usable(self) -> Connection | None:
        if not self.options.take_turns:
            connection = self._current.connection
            return connection if connection is not None and connection.has_room else None
        for step in range(len(self.targets)):
            target = self.targets[(self._turn + step) % len(self.targets)]
            connection = target.connection
            if connection is not None and connection.has_room:
                self._turn = (self._turn + step + 1) % len(self.targets)
                return connection
            if target.dialing and target.failures == 0:
                # It is this one's turn, and nothing says that it is sick.
                return None
        return None

    def _dial_some(self) -> None:
        now = self.loop.time()
        idle = [target for target in self.targets if target.connection is None]
        if self.options.take_turns:
            is_served = len(idle) < len(self.targets)
            for target in idle:
                if not target.dialing and (target.due_at() <= now or not is_served):
                    self._dial(target)
            self._look_up_again(now)
        elif self._current.connection is not None:
            if self.options.prefer_first:
                for target in self._before(self._current):
                    if not target.dialing and target.due_at() <= now:
                        self._dial(target, in_background=True)
        elif self._waiting and not any(one.dialing and not one.in_background for one in idle):
            target = self._pick(now)
            # The end of a dial picks again.
            if not target.dialing:
                self._dial(target)

    def _before(self, target: Target) -> list[Target]:
        """Returns the targets of the endpoints before that of this one."""
        endpoints = [one.endpoint for one in self.targets]
        return self.targets[: endpoints.index(target.endpoint)]

    def _pick(self, now: float) -> Target:
        """Returns the target that may be tried soonest, in a circle from the current one."""
        start = 0
        if not self.options.prefer_first and self._current in self.targets:
            start = self.targets.index(self._current)
        circle = self.targets[start:] + self.targets[:start]
        return min(
            circle,
            key=lambda target: (
                max(target.not_before, now),
                max(target.exhausted_until, now),
                # Its random pause may have been as good as none.
                target.failures > 0,
            ),
        )

    def _dial(self, target: Target, *, in_background: bool = False) -> None:
        target.dialing, target.in_background = True, in_background
        self.start(self._dial_one(target))

    async def _dial_one(self, target: Target) -> None:
        try:
            await asyncio.sleep(max(0.0, target.not_before - self.loop.time()))
            target.stage = "its name service has not answered"
            found = await self._find(target)
            if found is not None:
                target.dialing, found.dialing = False, True
                found.in_background = target.in_background
                target = found
                self._opened(target, await self.connect(target))
        except SnowbankError as error:
            self._failed(target, error)
        finally:
            target.dialing = False
        self.flush()

    async def connect(self, target: Target) -> Connection:
        """Connects to a target and greets its daemon, before `connect_timeout`."""
        where = target.where
        assert where is not None
        address = target.endpoint.address
        try:
            token = self.options.read_token()
        except ValueError as error:
            raise UnreachableError(target.name, str(error)) from None
        connection = Connection(
            target.name, token, self.options.answer_timeout, self._ended, self.flush
        )

        async def greet() -> None:
            target.stage = (
                "it has not finished the TLS handshake, or not accepted the connection"
                if address.tls
                else "it has not accepted the connection"
            )
            await _dial.open_connection(address, where, self.options, lambda: connection)
            target.stage = f"it accepted the connection and has sent no greeting ({_SILENT})"
            await connection.greet()

        try:
            await self._within(self.options.connect_timeout, greet(), target)
        except BaseException as error:
            connection.close(LostError(target.name, "it was abandoned"))
            if isinstance(error, _SYSTEM) and not isinstance(error, SnowbankError):
                raise UnreachableError(target.name, describe(error)) from None
            raise
        return connection

    async def _within(self, limit: float, work: Coroutine[Any, Any, Any], target: Target) -> Any:
        """Runs work with a time limit. Python 3.9 has no `asyncio.timeout`."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task}, timeout=limit)
        finally:
            late = not task.done()
            if late:
                task.cancel()
        if late:
            raise UnreachableError(target.name, f"{target.stage}, within {limit:g} s")
        return task.result()

    # Names.

    async def _find(self, target: Target) -> Target | None:
        """Looks the target's name up if that was not done just now. Returns a target to dial.

        Returns None if the name has lost the target's address, and the others are connected or
        being dialed: a call may have dialed them since the lookup ended.
        """
        endpoint = target.endpoint
        age = self.loop.time() - (endpoint.looked_up_at or 0.0)
        is_fresh = age < _LOOKUP_AGE_S and target.failures == 0
        if target.where is not None and (is_fresh or not endpoint.address.is_name):
            return target
        limit = self.options.connect_timeout
        try:
            if target.where is None:
                await self._within(limit, self._look_up(endpoint), target)
            else:
                # The known address is good enough where the name service is slow.
                await self._within(limit / 4, self._look_up(endpoint), target)
        except UnreachableError:
            if target.where is None:
                raise
        siblings = [one for one in self.targets if one.endpoint is endpoint]
        if target in siblings and target.where is not None:
            return target
        idle = [one for one in siblings if one.connection is None and not one.dialing]
        return min(idle, key=Target.due_at, default=None)

    def _update(self, endpoint: Endpoint, found: tuple[SocketAddress, ...]) -> None:
        """Replaces the addresses of the earlier lookup. Those that remain keep their state."""
        endpoint.looked_up_at = self.loop.time()
        known = {one.where: one for one in self.targets if one.endpoint is endpoint}
        text = endpoint.address.text

        def named(where: SocketAddress) -> str:
            return text if len(found) == 1 else f"{text} ({where.ip})"

        new = [Target(endpoint, where, named(where)) for where in found if where not in known]
        if not self.options.prefer_first:
            # Clients of one name spread over its addresses.
            random.shuffle(new)
        # A daemon that serves is kept, until a client that takes turns finds its address gone.
        serving = {one for one in known.values() if one.connection and not self.options.take_turns}
        kept = [one for where, one in known.items() if where in found or one in serving]
        gone = [one for one in known.values() if one not in kept]
        at = min(self.targets.index(one) for one in known.values())
        rest = [one for one in self.targets if one.endpoint is not endpoint]
        self.targets = rest[:at] + kept + new + rest[at:]
        for target in gone:
            if target.connection is not None:
                target.connection.finish()
        if self._current in gone:
            self._current = self.targets[at]

    def _look_up_again(self, now: float) -> None:
        endpoints = {id(target.endpoint): target.endpoint for target in self.targets}
        for endpoint in endpoints.values():
            looked_up_at = endpoint.looked_up_at
            is_old = looked_up_at is not None and now - looked_up_at > _TURNS_LOOKUP_AGE_S
            if endpoint.address.is_name and is_old:
                endpoint.looked_up_at = now
                self.start(self._refresh(endpoint))

    async def _look_up(self, endpoint: Endpoint) -> None:
        try:
            found = await _dial.look_up(endpoint.address)
        except _SYSTEM as error:
            reason = f"its lookup failed: {describe(error)}"
            raise UnreachableError(endpoint.address.text, reason) from None
        self._update(endpoint, found)

    async def _refresh(self, endpoint: Endpoint) -> None:
        try:
            await self._look_up(endpoint)
        except UnreachableError as error:
            log.warning("%s", error)

    async def look_up_all(self) -> None:
        """Looks up the names that are not known yet, for the check of worker IDs."""
        for target in [one for one in self.targets if one.where is None]:
            if target in self.targets and not target.dialing:
                await self._refresh(target.endpoint)

    # The ends of dials and connections.

    def _opened(self, target: Target, connection: Connection) -> None:
        target.connection = connection
        target.error = None
        target.exhausted_until = 0.0
        connection.leaves_easily = len(self.targets) > 1
        if not connection.has_room:
            # It ended between the greeting and this line.
            self._ended(connection, LostError(target.name, "closed by the daemon"))
            return
        if not self.options.take_turns:
            self._go_over(target)
        log.info("connected to %s", target.name)
        self._check.start()

    def _go_over(self, target: Target) -> None:
        """Lets a target serve. Calls in flight on the one that it replaces are still answered."""
        current = self._current
        # An earlier endpoint may have connected meanwhile.
        keeps_current = current.connection is not None and current in self._before(target)
        if not keeps_current:
            self._current = target
        left = target if keeps_current else current
        if left is self._current or left.connection is None:
            return
        connection, left.connection = left.connection, None
        if connection.has_answered:
            left.failures = 0
        connection.finish()

    def _failed(self, target: Target, error: SnowbankError) -> None:
        """Records a failed try, and fails the waiting calls if no further try can help them."""
        self._rest(target, error)
        log.warning("%s", error)
        if target.in_background:
            return
        is_final = isinstance(error, RefusedError) and not error.is_retried
        errors = [one.error for one in self.targets if one.error is not None]
        are_foreign = len(errors) == len(self.targets) and all(
            isinstance(one, ProtocolError) for one in errors
        )
        if is_final or are_foreign:
            final = error if is_final else join(errors) or error
            self._fail_waiting(final)

    def _fail_waiting(self, error: SnowbankError) -> None:
        while self._waiting:
            self._waiting.popitem(last=False)[0].fail(error)

    def _ended(self, connection: Connection, error: SnowbankError) -> None:
        """Takes a target out of use, for a time that grows with its failures."""
        target = next((one for one in self.targets if one.connection is connection), None)
        if target is None:
            return
        target.connection = None
        if connection.has_answered:
            target.failures = 0
        if isinstance(error, RefusedError) and error.code == "exhausted":
            now = self.loop.time()
            target.error = error
            target.not_before = now + self._backoff(1)
            target.exhausted_until = now + min(error.retry_after or 0.0, self.options.max_backoff)
        else:
            self._rest(target, error)
            if not self._closing.done():
                log.warning("%s", error)
        self.loop.call_soon(self.flush)

    def _rest(self, target: Target, error: SnowbankError) -> None:
        target.error = error
        target.failures += 1
        # A restart can bring the daemon back earlier than it said.
        asked = min(error.retry_after or 0.0, self.options.max_backoff)
        target.not_before = self.loop.time() + asked + self._backoff(target.failures)

    def _backoff(self, failures: int) -> float:
        """Returns a random pause. Its limit doubles with each failure but the first.

        The randomness spreads the clients of a daemon that comes back.
        """
        doubled = self.options.min_backoff * 2.0 ** min(failures - 1, 60)
        return random.random() * min(doubled, self.options.max_backoff)

    # Tasks and the end.

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs a task that ends with the pool."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def errors(self) -> list[SnowbankError]:
        """Returns the error of each target that has failed since it last served."""
        return [target.error for target in self.targets if target.error is not None]

    async def close(self) -> None:
        """Closes every connection, and fails the calls that wait."""
        if not self._closing.done():
            self._closing.set_result(None)
        for task in list(self._tasks):
            task.cancel()
        for target in self.targets:
            if target.connection is not None:
                target.connection.close(ClosedError())
        self._fail_waiting(ClosedError())
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _PassedError(Exception):
    """The deadline of a call passed."""


def _expire(reply: asyncio.Future[Any]) -> None:
    if not reply.done():
        reply.set_exception(_PassedError())


def _soonest(exhausted: dict[str, SnowbankError]) -> SnowbankError | None:
    """Returns the refusal with the shortest time to wait."""
    return min(exhausted.values(), key=lambda error: error.retry_after or 0.0, default=None)
