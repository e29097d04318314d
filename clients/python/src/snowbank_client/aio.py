"""The client for asyncio."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Iterable
from typing import Any

from . import _fork, _options
from ._batch import Batch
from ._clock import CLOCK, clock_ns
from ._errors import ClosedError, DeadlineError, ForkedError, SnowbankError, WrongLoopError, join
from ._ids import EMPTY, Buffer, FetchRequest, IdsOptions, fetch
from ._info import Info
from ._pool import Deadline, Pool
from .client import batch_request, call_timeout


class AsyncClient:
    """A client for asyncio. Any number of tasks of one event loop may share it.

    The arguments are those of `Client`. It belongs to the loop and the process of its first call.
    Close it with `aclose`, or use `async with`.
    """

    def __init__(
        self,
        addresses: str | Iterable[str] = "127.0.0.1:7660",
        *,
        token: str | bytes | None = None,
        token_file: str | None = None,
        ca_file: str | None = None,
        cert_file: str | None = None,
        key_file: str | None = None,
        server_name: str | None = None,
        timeout: float = 5.0,
        connect_timeout: float = 2.0,
        answer_timeout: float = 1.0,
        backoff: tuple[float, float] = (0.05, 5.0),
        take_turns: bool = False,
        prefer_first: bool = False,
    ) -> None:
        self._options = _options.make(
            addresses,
            token=token,
            token_file=token_file,
            ca_file=ca_file,
            cert_file=cert_file,
            key_file=key_file,
            server_name=server_name,
            timeout=timeout,
            connect_timeout=connect_timeout,
            answer_timeout=answer_timeout,
            backoff=backoff,
            take_turns=take_turns,
            prefer_first=prefer_first,
        )
        self._generation = _fork.generation
        self._pool: Pool | None = None
        self._is_closed = False
        self._buffers: weakref.WeakSet[AsyncIds] = weakref.WeakSet()

    async def batch(
        self,
        count: int,
        *,
        source: int | str = 0,
        max_wait: float | None = None,
        partial: bool = False,
        explicit: bool = False,
        timeout: float | None = None,
    ) -> Batch:
        """Fetches `count` IDs, as `Client.batch` does."""
        request, allowed = batch_request(
            self._options,
            count,
            source=source,
            max_wait=max_wait,
            partial=partial,
            explicit=explicit,
            timeout=timeout,
        )
        pool = self._get()
        return await pool.batch(request, Deadline(pool.loop, allowed))

    def ids(
        self,
        *,
        source: int | str = 0,
        max_batch: int = 10_000,
        max_age: float = 1.0,
        timeout: float | None = None,
    ) -> AsyncIds:
        """Makes a buffer that hands out IDs one at a time, as `Client.ids` does."""
        allowed = self._options.timeout if timeout is None else timeout
        return AsyncIds(self, IdsOptions.make(source, max_batch, max_age, allowed))

    async def info(self, *, timeout: float | None = None) -> Info:
        """Asks the daemon in use for its version, limits and sources."""
        pool = self._get()
        return await pool.info(Deadline(pool.loop, call_timeout(self._options, timeout)))

    def endpoint_errors(self) -> list[SnowbankError]:
        """Returns the error of each endpoint that has failed since it last served."""
        return [] if self._pool is None else self._pool.errors()

    async def aclose(self) -> None:
        """Closes the connections. Calls that wait, and later ones, raise `ClosedError`."""
        self._is_closed = True
        _drop(self._buffers)
        if self._pool is not None and self._generation == _fork.generation:
            self._check_loop(self._pool)
            await self._pool.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<AsyncClient of {', '.join(a.text for a in self._options.addresses)}>"

    def _get(self) -> Pool:
        if self._is_closed:
            raise ClosedError
        if self._pool is None:
            self._generation = _fork.generation
            loop, buffers = asyncio.get_running_loop(), self._buffers
            self._pool = Pool(self._options, loop, lambda: _drop(buffers))
        elif self._generation != _fork.generation:
            raise ForkedError
        self._check_loop(self._pool)
        return self._pool

    def _check_loop(self, pool: Pool) -> None:
        if asyncio.get_running_loop() is not pool.loop:
            raise WrongLoopError

    def _start(self, request: FetchRequest) -> Any:
        pool = self._get()
        task = pool.loop.create_task(fetch(pool, request))
        # Nobody may ever ask for the error of a fetch ahead.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task


def _drop(buffers: Iterable[AsyncIds]) -> None:
    for ids in list(buffers):
        ids._slice = EMPTY
        ids._buffer.drop()


class AsyncIds:
    """A buffer that hands out IDs one at a time, as `Ids` does, to the tasks of one event loop."""

    def __init__(self, client: AsyncClient, options: IdsOptions) -> None:
        self._client = client
        self._options = options
        self._slice = EMPTY
        self._buffer = Buffer(options, client._start)
        client._buffers.add(self)

    async def next(self) -> int:
        """Returns the next ID: from the buffer, or with the next reply if it is empty."""
        current = self._slice
        if current.generation == _fork.generation and clock_ns(CLOCK) < current.good_until_ns:
            try:
                return current.pop()
            except IndexError:
                pass
        return await self._restock()

    def __aiter__(self) -> AsyncIterator[int]:
        return self

    __anext__ = next

    async def _restock(self) -> int:
        loop = self._client._get().loop
        deadline = loop.time() + self._options.timeout
        while True:
            if self._client._is_closed:
                raise ClosedError
            # Another task may have restocked meanwhile.
            current = self._slice
            is_good = clock_ns(CLOCK) < current.good_until_ns
            if not (is_good and current.ids):
                cut = self._buffer.cut(len(current.ids))
                current = self._slice = EMPTY if cut is None else cut
            try:
                return current.pop()
            except IndexError:
                pass
            left = deadline - loop.time()
            if left <= 0:
                last = join(self._client.endpoint_errors())
                raise DeadlineError(self._options.timeout, None, last)
            pending = self._buffer.fetch
            if pending is not None:
                # A caller that is cancelled leaves the fetch to the others.
                await asyncio.wait({pending}, timeout=left)
                if self._buffer.failed(pending):
                    raise self._buffer.error(pending)
