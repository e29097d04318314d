"""IDs one by one, from a buffer that is filled ahead: when to fetch, how many, when to drop.

```text
  next() ─▶ stock: half of a batch ─▶ second half ─▶ the batch of a fetch, one at a time
            a pop, then the clocks    when the first   which starts when half is used
            and the token             is used up
```
"""

from __future__ import annotations

import copy
from collections import deque
from itertools import chain, islice
from time import monotonic
from time import time as wall
from typing import Any, Callable

from ._call import Deadline, Delivery
from ._errors import ClosedError, DeadlineError
from ._shared import Shared

#: The IDs of the first fetch and at least, and at most.
_FIRST, _MOST = 16, 10_000

#: A batch whose half went within this part of its time is too small.
_QUICK_PART = 4


class Stock:
    """IDs that `next` takes."""

    __slots__ = ("began", "ids", "opened", "pop", "size", "token", "until", "used", "wall_until")

    def __init__(self, delivery: Delivery, ids: deque[int]) -> None:
        self.ids = ids
        #: Takes one ID. It is one step of the interpreter, so that threads share a stock.
        self.pop: Callable[[], int] = ids.popleft
        self.size = len(ids)
        self.until, self.wall_until = delivery.until, delivery.wall_until
        self.began, self.token = delivery.began, delivery.token
        self.opened = monotonic()
        #: When the last ID was taken.
        self.used = self.began

    @property
    def handed_out(self) -> int:
        """Returns how many IDs were taken."""
        return self.size - len(self.ids)

    @property
    def oldest_s(self) -> float:
        """Returns the highest age at which it handed out an ID."""
        return self.used - self.began

    def is_good(self, token: object) -> bool:
        """Returns whether its IDs may be handed out."""
        return monotonic() < self.until and wall() < self.wall_until and self.token is token


EMPTY = Stock(Delivery([], 0.0, 0.0, 0.0, 0.0, None), deque())


class Buffer:
    """The IDs of `Ids` and `AsyncIds`. The caller lets one thread at a time in."""

    def __init__(self, shared: Shared, timeout: float) -> None:
        self._shared, self._timeout = shared, timeout
        self._reset()
        shared.add(self)

    def _begin_fetch(self, count: int, deadline: Deadline) -> Any:
        """Begins a fetch. Returns its future."""
        raise NotImplementedError

    def _reset(self) -> None:
        """Forgets everything, as a child does."""
        self._stock = EMPTY
        self._second: deque[int] = deque()
        self._batch: Delivery | None = None
        self._handed_out = 0
        self._size = _FIRST
        #: The calls that wait for a fetch.
        self._waiting = 0
        #: The fetch in flight, or one whose IDs were not opened yet.
        self._fetch: Any = None
        self._deadline = Deadline(0.0)

    def _fill(self, is_skipped: bool) -> bool:
        """Puts IDs where `next` takes them. Returns False if a fetch is to be waited for.

        `is_skipped` says that an ID was taken, and was too old.
        """
        while True:
            stock, batch = self._stock, self._batch
            is_good = stock.is_good(self._shared.token)
            if is_good and stock.ids:
                # Another call filled it.
                return True
            self._count(stock, is_skipped)
            is_skipped = False
            if batch is not None and is_good and self._second:
                self._stock = Stock(batch, self._second)
                self._second = deque()
                self._ahead(stock, batch)
                return True
            if batch is not None and not is_good:
                self._size = 2 * self._handed_out
                self._shared.counters.dropped += len(self._second)
            self._stock, self._batch, self._second = EMPTY, None, deque()
            if not self._open():
                return False

    def _count(self, stock: Stock, is_skipped: bool) -> None:
        """Adds the figures of a stock that is left."""
        counters, handed_out = self._shared.counters, stock.handed_out - is_skipped
        self._handed_out += handed_out
        counters.ids += handed_out
        counters.dropped += stock.size - handed_out
        counters.oldest_s = max(counters.oldest_s, stock.oldest_s)

    def _ahead(self, first: Stock, batch: Delivery) -> None:
        """Fetches the next batch, now that half of this one is used."""
        is_quick = first.used - first.opened <= batch.good_for_s / _QUICK_PART
        self._size = 2 * self._handed_out * (2 if is_quick else 1)
        if self._fetch is None or failed(self._fetch):
            self._begin()

    def _open(self) -> bool:
        """Opens the batch of the fetch, or begins one."""
        if self._fetch is None or failed(self._fetch):
            self._begin()
        if not self._fetch.done():
            return False
        batch: Delivery = self._fetch.result()
        self._fetch = None
        ids = chain.from_iterable(batch.runs)
        count = sum(map(len, batch.runs))
        self._batch, self._handed_out = batch, 0
        self._stock = Stock(batch, deque(islice(ids, (count + 1) // 2)))
        self._second = deque(ids)
        return True

    def _begin(self) -> None:
        count = min(max(self._size, self._waiting, _FIRST), _MOST)
        self._deadline = Deadline(self._timeout)
        self._fetch = self._begin_fetch(count, self._deadline)

    def _join(self, deadline: Deadline) -> Any:
        """Returns the fetch, which does not end before this call."""
        self._deadline.at = max(self._deadline.at, deadline.at)
        return self._fetch


def failed(fetch: Any) -> bool:
    """Returns whether a fetch has ended without IDs."""
    return bool(fetch.done() and (fetch.cancelled() or fetch.exception() is not None))


def error_of(fetch: Any) -> BaseException | None:
    """Returns what a call raises that waited for this fetch."""
    error = ClosedError() if fetch.cancelled() else fetch.exception()
    # A deadline of the fetch is none of the call.
    return None if isinstance(error, DeadlineError) else copy.copy(error)
