"""The client for asyncio, on its own event loop or uvloop's."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Iterable
from time import monotonic
from time import time as wall
from typing import Any

from . import _fork, _options
from ._batch import Batch
from ._buffer import Buffer, error_of, failed
from ._call import Calls, Deadline
from ._errors import ForkedError, WrongLoopError
from ._options import Options, check_count, seconds
from ._shared import Shared
from ._stats import OnEvent, Stats
from .client import call_options


class _State:
    """The connections of a client. The finalizer of the client holds it, and not the client."""

    def __init__(self, options: Options) -> None:
        self.shared = Shared(options)
        self.calls: Calls | None = None
        self._generation = _fork.generation

    def get(self) -> Calls:
        """Returns the connections, which belong to the loop and the process of the first call."""
        self.shared.check()
        if self.calls is None:
            self.calls = Calls(self.shared)
            self._generation = _fork.generation
        self.check(self.calls)
        return self.calls

    def check(self, calls: Calls) -> None:
        """Raises an error in a child, and on another loop."""
        if self._generation != _fork.generation:
            raise ForkedError
        if asyncio.get_running_loop() is not calls.loop:
            raise WrongLoopError

    def abandon(self) -> None:
        """Closes the connections of a client that nobody can reach any more."""
        if self.calls is None or self._generation != _fork.generation:
            return
        try:
            self.calls.loop.call_soon_threadsafe(self.calls.close)
        except RuntimeError:
            self.calls.release()


class AsyncClient:
    """A client for asyncio. Any number of tasks of one event loop may share it.

    The arguments are those of `Client`. It belongs to the loop and the process of its first call.
    Close it with `aclose`, or use `async with`.
    """

    def __init__(
        self,
        endpoints: str | Iterable[str] = "127.0.0.1:7660",
        *,
        source: str | None = None,
        timeout: float = 5.0,
        token: str | bytes | None = None,
        token_file: str | None = None,
        ca_file: str | None = None,
        cert_file: str | None = None,
        key_file: str | None = None,
        server_name: str | None = None,
        prefer_first: bool = False,
        take_turns: bool = False,
        on_event: OnEvent | None = None,
    ) -> None:
        options = _options.make(
            endpoints,
            source=source,
            timeout=timeout,
            token=token,
            token_file=token_file,
            ca_file=ca_file,
            cert_file=cert_file,
            key_file=key_file,
            server_name=server_name,
            prefer_first=prefer_first,
            take_turns=take_turns,
            on_event=on_event,
        )
        self._state = _State(options)
        weakref.finalize(self, self._state.abandon)

    async def batch(
        self, count: int, *, source: str | None = None, timeout: float | None = None
    ) -> Batch:
        """Fetches `count` IDs, as `Client.batch` does."""
        name, allowed = call_options(self._state.shared.options, source, timeout)
        check_count(count)
        return await self._state.get().batch(count, name, Deadline(allowed))

    def ids(self, *, source: str | None = None, timeout: float | None = None) -> AsyncIds:
        """Makes a buffer that hands out IDs one at a time, as `Client.ids` does."""
        return AsyncIds(self, *call_options(self._state.shared.options, source, timeout))

    async def ping(self, *, timeout: float | None = None) -> None:
        """Raises an error unless a daemon answers."""
        _, allowed = call_options(self._state.shared.options, None, timeout)
        await self._state.get().ping(Deadline(allowed))

    def stats(self) -> Stats:
        """Returns what the client did, at once."""
        calls = self._state.calls
        return self._state.shared.stats(None if calls is None else calls.endpoint)

    async def aclose(self, timeout: float | None = None) -> None:
        """Closes the connections, as `Client.close` does."""
        drains_for = None if timeout is None else seconds("timeout", timeout)
        shared, calls = self._state.shared, self._state.calls
        if calls is not None:
            self._state.check(calls)
        shared.close()
        if calls is not None:
            if drains_for is not None:
                await calls.drain(drains_for)
            calls.close()
            # The sockets are closed in the loop's next turn.
            await asyncio.sleep(0)
        shared.void()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<AsyncClient of {', '.join(map(str, self._state.shared.options.endpoints))}>"


class AsyncIds(Buffer):
    """A buffer that hands out IDs one at a time, as `Ids` does, to the tasks of one event loop."""

    def __init__(self, client: AsyncClient, source: bytes, timeout: float) -> None:
        self._client, self._source = client, source
        super().__init__(client._state.shared, timeout)

    async def next(self) -> int:
        """Returns the next ID: from the buffer, or with the next reply if it is empty."""
        stock = self._stock
        try:
            taken = stock.pop()
        except IndexError:
            return await self._refill(False)
        stock.used = now = monotonic()
        # The token last: a signal handler may have forked since the ID was taken.
        if now < stock.until and wall() < stock.wall_until and stock.token is self._shared.token:
            return taken
        return await self._refill(True)

    def __aiter__(self) -> AsyncIterator[int]:
        return self

    __anext__ = next

    def _begin_fetch(self, count: int, deadline: Deadline) -> asyncio.Task[Any]:
        calls = self._client._state.get()
        task = calls.loop.create_task(calls.fetch(count, self._source, deadline))
        # Nobody may ever ask for the error of a fetch ahead.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _refill(self, is_skipped: bool) -> int:
        calls = self._client._state.get()
        deadline = Deadline(self._timeout)
        while True:
            self._shared.check()
            is_filled = self._fill(is_skipped)
            is_skipped = False
            stock, fetch = self._stock, self._join(deadline)
            if is_filled:
                taken = stock.pop()
                stock.used = monotonic()
                if stock.is_good(self._shared.token):
                    return taken
                is_skipped = True
                continue
            self._waiting += 1
            try:
                # A caller that is cancelled leaves the fetch to the others.
                await asyncio.wait({fetch}, timeout=deadline.left)
            finally:
                self._waiting -= 1
            if not fetch.done() and deadline.left <= 0:
                raise calls.passed(self._timeout)
            if failed(fetch):
                error = error_of(fetch)
                if error is not None:
                    raise error
