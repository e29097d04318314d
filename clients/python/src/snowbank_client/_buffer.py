"""IDs one by one, from a buffer that is filled ahead: when to fetch, how many, when to drop.

```text
  next() ─▶ stock: half of a batch ─▶ second half ─▶ the batch of a fetch, one at a time
            a pop, then the clocks    when the first   which starts when half is used
            and the token             is used up
```
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from itertools import chain, islice
from time import monotonic
from time import time as wall
from typing import Callable

from ._call import Calls, Deadline
from ._errors import ClosedError, DeadlineError
from ._options import seconds
from ._shared import Shared
from ._wire import Next

#: The IDs of the first fetch and at least, and at most.
_FIRST, _MOST = 16, 10_000

#: A batch whose half went within this part of its time is too small.
_QUICK_PART = 4


class Stock:
    """IDs that `next` takes. Any thread may take one."""

    __slots__ = (
        "batch",
        "ids",
        "opened",
        "pop",
        "size",
        "skipped",
        "token",
        "until",
        "used",
        "wall_until",
    )

    def __init__(self, batch: Next, ids: deque[int]) -> None:
        self.batch, self.ids, self.size, self.token = batch, ids, len(ids), batch.token
        #: Takes one ID. It is one step of the interpreter, so that threads share a stock.
        self.pop: Callable[[], int] = ids.popleft
        self.until = batch.began + batch.good_for_s
        self.wall_until = batch.began_wall + batch.good_for_s
        self.opened = monotonic()
        #: When the last ID was taken, and how many were taken that are not good any more.
        self.used, self.skipped = batch.began, 0

    @property
    def handed_out(self) -> int:
        return self.size - len(self.ids) - self.skipped

    @property
    def oldest_s(self) -> float:
        return self.used - self.batch.began


EMPTY = Stock(Next(1, b"", 0.0), deque())


class Buffer:
    """The IDs of `Ids` and `AsyncIds`. All but `stock` belongs to the client's event loop."""

    def __init__(self, shared: Shared, source: bytes, timeout: float) -> None:
        self._shared, self._source, self._timeout = shared, source, timeout
        self.reset()
        with shared.lock:
            shared.buffers.add(self)

    def __del__(self) -> None:
        self._count(self.stock)

    def reset(self) -> None:
        """Forgets everything, as a child does."""
        self.stock = EMPTY
        self._second: deque[int] = deque()
        #: What was handed out of the batch, and how many the next one has.
        self._handed_out, self._size = 0, _FIRST
        #: The fetch in flight, or one whose IDs were not opened yet.
        self._fetch: asyncio.Task[Next] | None = None
        self._deadline = Deadline(0.0)
        self._waiting = 0

    def deadline(self, timeout: float | None) -> Deadline:
        """Returns the end of a call. None stands for the buffer's own time."""
        return Deadline(self._timeout if timeout is None else seconds("timeout", timeout))

    async def next(self, calls: Calls, deadline: Deadline) -> int:
        """Returns the next ID after `stock` had none."""
        self._shared.check(is_new=True)
        calls.in_flight += 1
        self._waiting += 1
        try:
            while deadline.left:
                fetch = self._fill(calls)
                if fetch is None:
                    taken = self._take()
                    if taken is not None:
                        return taken
                    continue
                # A fetch does not end before a call that waits for it, nor with one that leaves.
                self._deadline.at = max(self._deadline.at, deadline.at)
                await asyncio.wait({fetch}, timeout=deadline.left)
                if fetch.done() and (fetch.cancelled() or fetch.exception()):
                    self._raise(fetch)
                self._shared.check()
            raise calls.passed(deadline)
        finally:
            self._waiting -= 1
            calls.in_flight -= 1

    def _take(self) -> int | None:
        stock = self.stock
        try:
            taken = stock.pop()
        except IndexError:
            # Other threads were faster.
            return None
        stock.used = monotonic()
        if self._is_good(stock):
            return taken
        stock.skipped += 1
        return None

    def _is_good(self, stock: Stock) -> bool:
        is_young = monotonic() < stock.until and wall() < stock.wall_until
        return is_young and stock.token is self._shared.token

    def _raise(self, fetch: asyncio.Task[Next]) -> None:
        """Raises the error of a fetch, unless its deadline passed: the call has its own."""
        error = ClosedError() if fetch.cancelled() else fetch.exception()
        if error is not None and not isinstance(error, DeadlineError):
            raise copy.copy(error)

    def _fill(self, calls: Calls) -> asyncio.Task[Next] | None:
        """Puts IDs into the stock. Returns a fetch if that is to be waited for."""
        while True:
            stock = self.stock
            is_good = self._is_good(stock)
            if is_good and stock.ids:
                return None
            self._count(stock)
            if is_good and self._second:
                # Half is used.
                is_quick = stock.used - stock.opened <= stock.batch.good_for_s / _QUICK_PART
                self._size = (4 if is_quick else 2) * self._handed_out
                self.stock, self._second = Stock(stock.batch, self._second), deque()
                if self._fetch is None or self._has_failed(self._fetch):
                    self._begin(calls)
                return None
            if not is_good and stock is not EMPTY:
                self._size = 2 * self._handed_out
                self._shared.counters.dropped += len(self._second)
            self.stock, self._second = EMPTY, deque()
            if self._fetch is None or self._has_failed(self._fetch):
                self._begin(calls)
            fetch = self._fetch
            if fetch is None or not fetch.done():
                return fetch
            self._fetch = None
            self._open(fetch.result())

    def _count(self, stock: Stock) -> None:
        """Adds the figures of a stock that is left."""
        counters = self._shared.counters
        self._handed_out += stock.handed_out
        counters.ids += stock.handed_out
        counters.dropped += stock.size - stock.handed_out
        counters.oldest_s = max(counters.oldest_s, stock.oldest_s)

    def _open(self, batch: Next) -> None:
        ids = chain.from_iterable(batch.runs)
        self.stock = Stock(batch, deque(islice(ids, (batch.found + 1) // 2)))
        self._second, self._handed_out = deque(ids), 0

    def _begin(self, calls: Calls) -> None:
        count = min(max(self._size, self._waiting, _FIRST), _MOST)
        self._deadline = Deadline(self._timeout)
        self._fetch = calls.start(calls.fetch(count, self._source, self._deadline))

    @staticmethod
    def _has_failed(fetch: asyncio.Task[Next]) -> bool:
        return fetch.done() and (fetch.cancelled() or fetch.exception() is not None)
