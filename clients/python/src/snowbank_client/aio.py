"""The client for asyncio, on its own event loop or uvloop's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from ._buffer import Buffer
from ._call import Calls
from ._errors import ForkedError, WrongLoopError
from ._options import seconds
from .client import BaseClient


class AsyncClient(BaseClient):
    """A client for asyncio. Any number of tasks of one event loop may share it.

    It belongs to the loop and the process of its first call.
    """

    async def batch(
        self, count: int, *, source: str | None = None, timeout: float | None = None
    ) -> list[int]:
        """Fetches `count` IDs, as `Client.batch` does."""
        work, _ = self._batch(count, source, timeout)
        return await work(self._calls())

    def ids(self, *, source: str | None = None, timeout: float | None = None) -> AsyncIds:
        """Makes a buffer that hands out IDs one at a time, as `Client.ids` does."""
        return AsyncIds(self, self._shared, self._source(source), self._deadline(timeout).allowed)

    async def ping(self, *, timeout: float | None = None) -> None:
        """Raises an error unless a daemon answers."""
        by = self._deadline(timeout)
        await self._calls().ping(by)

    async def aclose(self, timeout: float | None = None) -> None:
        """Closes the connections, as `Client.close` does."""
        by, calls = self._deadline(timeout, default=0.0), self._shared.calls
        if calls is not None:
            _check(calls)
        self._shared.is_closed = True
        self._shared.void()
        if calls is not None:
            await calls.drain(by)
        self._shared.void()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _calls(self) -> Calls:
        shared = self._shared
        shared.check(is_new=True)
        if shared.calls is None:
            shared.calls = Calls(shared)
            shared.calls.loop = asyncio.get_running_loop()
        _check(shared.calls)
        return shared.calls


def _check(calls: Calls) -> None:
    if calls.is_inherited:
        raise ForkedError
    if calls.loop is not asyncio.get_running_loop():
        raise WrongLoopError


class AsyncIds(Buffer[AsyncClient]):
    """A buffer that hands out IDs one at a time, as `Ids` does, to the tasks of one event loop."""

    async def next(self, *, timeout: float | None = None) -> int:
        """Returns the next ID: from the buffer, or with the next reply if it is empty.

        `timeout`: the seconds for this call, instead of the buffer's.
        """
        if timeout is not None:
            seconds("timeout", timeout)
        taken = self._take()
        if taken is not None:
            return taken
        by = self._client._deadline(timeout, self._timeout)
        taken, _ = await self._next(self._client._calls(), by)
        return taken

    def __aiter__(self) -> AsyncIterator[int]:
        return self

    async def __anext__(self) -> int:
        return await self.next()
