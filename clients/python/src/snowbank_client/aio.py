"""The client for asyncio, on its own event loop or uvloop's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import monotonic
from time import time as wall

from . import _shared
from ._buffer import Buffer
from ._call import Calls, Deadline
from ._errors import ForkedError, WrongLoopError
from ._options import check_count
from .client import BaseClient


class AsyncClient(BaseClient):
    """A client for asyncio. Any number of tasks of one event loop may share it.

    It belongs to the loop and the process of its first call.
    """

    async def batch(
        self, count: int, *, source: str | None = None, timeout: float | None = None
    ) -> list[int]:
        """Fetches `count` IDs, as `Client.batch` does."""
        check_count(count)
        name, by = self._source(source), self._deadline(timeout)
        return await self._calls().batch(count, name, by)

    def ids(self, *, source: str | None = None, timeout: float | None = None) -> AsyncIds:
        """Makes a buffer that hands out IDs one at a time, as `Client.ids` does."""
        allowed = self._deadline(timeout).allowed
        return AsyncIds(self, Buffer(self._shared, self._source(source), allowed))

    async def ping(self, *, timeout: float | None = None) -> None:
        """Raises an error unless a daemon answers."""
        by = self._deadline(timeout)
        await self._calls().ping(by)

    async def aclose(self, timeout: float | None = None) -> None:
        """Closes the connections, as `Client.close` does."""
        by = Deadline(0.0) if timeout is None else self._deadline(timeout)
        calls = self._shared.calls
        if calls is not None:
            self._check(calls)
        self._shared.is_closed = True
        if calls is not None:
            await calls.drain(by)
            calls.close()
            # The sockets are closed in the loop's next turn.
            await asyncio.sleep(0)
        self._shared.void()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _calls(self) -> Calls:
        shared = self._shared
        shared.check(is_new=True)
        if shared.calls is None:
            shared.calls = Calls(shared, asyncio.get_running_loop())
        self._check(shared.calls)
        return shared.calls

    def _check(self, calls: Calls) -> None:
        if calls.generation != _shared.generation:
            raise ForkedError
        if calls.loop is not asyncio.get_running_loop():
            raise WrongLoopError


class AsyncIds:
    """A buffer that hands out IDs one at a time, as `Ids` does, to the tasks of one event loop."""

    def __init__(self, client: AsyncClient, buffer: Buffer) -> None:
        self._client, self._buffer, self._shared = client, buffer, client._shared

    async def next(self, *, timeout: float | None = None) -> int:
        """Returns the next ID: from the buffer, or with the next reply if it is empty.

        `timeout`: the seconds for this call, instead of the buffer's.
        """
        stock = self._buffer.stock
        try:
            taken = stock.pop()
        except IndexError:
            return await self._wait(timeout)
        stock.used = now = monotonic()
        # The token last: a signal handler may have forked since the ID was taken.
        if now < stock.until and wall() < stock.wall_until and stock.token is self._shared.token:
            return taken
        stock.skipped += 1
        return await self._wait(timeout)

    def __aiter__(self) -> AsyncIterator[int]:
        return self

    async def __anext__(self) -> int:
        return await self.next()

    async def _wait(self, timeout: float | None) -> int:
        by = self._buffer.deadline(timeout)
        return await self._buffer.next(self._client._calls(), by)
