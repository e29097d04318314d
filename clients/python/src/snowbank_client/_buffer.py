"""IDs one by one, from a buffer that is filled ahead: when to fetch, how many, when to drop.

```text
  next() ─▶ stock: half of a batch ─▶ second half ─▶ the batch of a fetch, one at a time
            a pop, then the clocks    when the first   which starts when half is used
            and the era               is used up
```
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from itertools import chain, islice
from time import monotonic
from time import time as wall
from typing import Callable, Generic, TypeVar

from ._call import Calls, Deadline
from ._errors import ClosedError, DeadlineError
from ._shared import Shared
from ._wire import Next

C = TypeVar("C")

#: The IDs of the first fetch and at least, and at most.
_FIRST, _MOST = 16, 10_000

#: A batch whose half went within this part of its time is too small.
_QUICK_PART = 4


class Stock:
    """IDs that `next` takes. Any thread may take one."""

    def __init__(self, batch: Next, ids: deque[int]) -> None:
        self.batch, self.ids, self.size, self.era = batch, ids, len(ids), batch.era
        #: Takes one ID. It is one step of the interpreter, so that threads share a stock.
        self.pop: Callable[[], int] = ids.popleft
        self.until = batch.began + batch.good_for_s
        self.wall_until = batch.began_wall + batch.good_for_s
        self.opened = monotonic()
        #: When the last ID was handed out, and how many were taken that are not good any more.
        self.used, self.skipped = batch.began, 0

    @property
    def handed_out(self) -> int:
        return self.size - len(self.ids) - self.skipped

    @property
    def oldest_ms(self) -> float:
        return 1000 * (self.used - self.batch.began)


EMPTY = Stock(Next(1, b"", 0.0), deque())


class Buffer(Generic[C]):
    """What `Ids` and `AsyncIds` are. All but `_stock` belongs to the client's event loop."""

    def __init__(self, client: C, shared: Shared, source: bytes, timeout: float) -> None:
        #: The client lives as long as its buffers.
        self._client, self._shared, self._source, self._timeout = client, shared, source, timeout
        self.reset()
        with shared.lock:
            shared.buffers.add(self)

    def __del__(self) -> None:
        self._leave(self._stock)

    def reset(self) -> None:
        """Forgets everything, as a child does."""
        self._stock = EMPTY
        self._second: deque[int] = deque()
        #: What was handed out of the batch, and how many the next one has.
        self._handed_out, self._size = 0, _FIRST
        #: The fetch in flight, or one whose IDs were not opened yet.
        self._fetch: asyncio.Task[Next] | None = None
        self._fetch_deadline = Deadline(0.0)
        self._waiting = 0

    def _take(self) -> int | None:
        """Takes an ID from the stock. Returns None if there is none, or it is not good any more."""
        stock = self._stock
        try:
            taken = stock.pop()
        except IndexError:
            return None
        now = monotonic()
        # The era last: a signal handler may have forked since the ID was taken. Since Python 3.11
        # no handler runs between this look and the caller's return.
        if now < stock.until and wall() < stock.wall_until and stock.era is self._shared.era:
            stock.used = now
            return taken
        stock.skipped += 1
        return None

    async def _next(self, calls: Calls, deadline: Deadline) -> tuple[int, Stock]:
        """Returns the next ID after the stock had none, and the stock that it is from."""
        self._shared.check(is_new=True)
        calls.in_flight += 1
        self._waiting += 1
        try:
            while deadline.left:
                taken = self._take()
                if taken is not None:
                    return taken, self._stock
                fetch = self._refill(calls)
                if fetch is not None:
                    # A fetch ends before no call that waits for it, nor with one that leaves.
                    self._fetch_deadline.at = max(self._fetch_deadline.at, deadline.at)
                    await asyncio.wait({fetch}, timeout=deadline.left)
                    error = _failure(fetch)
                    # The deadline of a fetch is none of the call.
                    if error is not None and not isinstance(error, DeadlineError):
                        raise copy.copy(error)
                self._shared.check()
            raise calls.passed(deadline)
        finally:
            self._waiting -= 1
            calls.in_flight -= 1

    def _refill(self, calls: Calls) -> asyncio.Task[Next] | None:
        """Opens the next stock. Returns a fetch if that is to be waited for."""
        stock, second = self._stock, self._second
        self._leave(stock)
        self._stock, self._second = EMPTY, deque()
        if second and not stock.skipped:
            # Half is used.
            is_quick = stock.used - stock.opened <= stock.batch.good_for_s / _QUICK_PART
            self._size = (4 if is_quick else 2) * self._handed_out
            self._stock = Stock(stock.batch, second)
            self._begin(calls)
            return None
        if stock.skipped:
            # They are too old, or void.
            self._size = 2 * self._handed_out
            self._shared.counters.dropped += len(second)
        fetch = self._begin(calls)
        if not fetch.done():
            return fetch
        batch, self._fetch = fetch.result(), None
        ids = chain.from_iterable(batch.runs)
        self._stock = Stock(batch, deque(islice(ids, (batch.found + 1) // 2)))
        self._second, self._handed_out = deque(ids), 0
        return None

    def _begin(self, calls: Calls) -> asyncio.Task[Next]:
        """Begins a fetch, unless there is one."""
        if self._fetch is None or _failure(self._fetch) is not None:
            count = min(max(self._size, self._waiting, _FIRST), _MOST)
            self._fetch_deadline = Deadline(self._timeout)
            self._fetch = calls.start(calls.fetch(count, self._source, self._fetch_deadline))
        return self._fetch

    def _leave(self, stock: Stock) -> None:
        """Adds the figures of a stock that is left."""
        counters = self._shared.counters
        self._handed_out += stock.handed_out
        counters.ids += stock.handed_out
        counters.dropped += stock.size - stock.handed_out
        counters.oldest_ms = max(counters.oldest_ms, stock.oldest_ms)


def _failure(fetch: asyncio.Task[Next]) -> BaseException | None:
    if not fetch.done():
        return None
    return ClosedError() if fetch.cancelled() else fetch.exception()
