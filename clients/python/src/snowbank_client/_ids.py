"""IDs one at a time, from a buffer that is refilled ahead.

```text
  next() ─▶ slice: half of a batch ─▶ current batch ─▶ next batch ─▶ fetch, one at a time
            a check of fork and age   when a slice     when a batch
            and a pop for each ID     is used up       is used up
```
"""

from __future__ import annotations

import copy
from collections import deque
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Callable, NamedTuple

from . import _fork, _wire
from ._batch import Batch, Runs, above, halves
from ._clock import CLOCK, clock_ns
from ._errors import ClosedError, RefusedError, WentBackError
from ._options import seconds
from ._pool import Deadline, Pool

#: The most IDs of the first fetch. The demand is not known yet.
_FIRST_FETCH = 16

#: The most by which one fetch may exceed the one before it.
_GROWTH = 4

#: The part of the maximum age that a batch should last, so that few of its IDs get too old.
_LASTING_PART = 4

#: The time that a daemon may take to gather a batch. Then it sends a part.
_GATHERING_MS = 10

#: The pause after the first batch without a usable ID, and the longest. It doubles between them.
_PAUSE_S, _MAX_PAUSE_S = 0.001, 0.064

#: The time for which a fetch asks again if its IDs are lower. Within it a shard that is behind
#: catches up.
_LOWER_FOR_S = 1.0

#: The most IDs of a request that follows a batch of lower IDs. All of them may be skipped again.
_RETRY_COUNT = 16


class IdsOptions(NamedTuple):
    """The options of a buffer."""

    source: int | str
    max_batch: int
    max_age: float
    timeout: float

    @classmethod
    def make(cls, source: int | str, max_batch: int, max_age: float, timeout: float) -> IdsOptions:
        """Checks the options."""
        return cls(
            check_source(source),
            check_count("max_batch", max_batch),
            seconds("max_age", max_age),
            seconds("timeout", timeout),
        )


def check_count(name: str, count: int) -> int:
    """Returns a count that fits the protocol."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"{name} is {count!r}; a whole number is needed")
    if not 1 <= count <= _wire.MAX_COUNT:
        raise ValueError(f"{name} is {count}; 1 to {_wire.MAX_COUNT} are allowed")
    return count


def check_source(source: int | str) -> int | str:
    """Returns the name or index of a source."""
    if isinstance(source, str):
        return source
    if isinstance(source, bool) or not isinstance(source, int):
        raise TypeError(f"source is {source!r}; a name or an index is needed")
    if not 0 <= source <= 0xFFFF:
        raise ValueError(f"source is {source}; an index is 0 to 65535")
    return source


class Slice:
    """IDs that are ready to be handed out, and how long they may be."""

    __slots__ = ("generation", "good_until_ns", "ids", "pop")

    def __init__(self, runs: Runs, good_until_ns: int) -> None:
        self.ids: deque[int] = deque(chain.from_iterable(runs))
        #: Takes one ID. It is one step of the interpreter, so that threads share a slice.
        self.pop: Callable[[], int] = self.ids.popleft
        self.good_until_ns = good_until_ns
        self.generation = _fork.generation


EMPTY = Slice([], 0)


class Delivery(NamedTuple):
    """The result of a fetch."""

    batch: Batch
    good_until_ns: int
    #: The most IDs that the daemon sends at once, as far as is known.
    max_batch: int


@dataclass(frozen=True)
class FetchRequest:
    """What a fetch brings."""

    options: IdsOptions
    count: int
    #: The endpoint of the newest batch and its highest ID. Lower IDs from there are not usable.
    highest: tuple[str, int] | None


async def fetch(pool: Pool, request: FetchRequest) -> Delivery:
    """Returns a batch with at least one usable ID, before the deadline."""
    options = request.options
    deadline = Deadline(pool.loop, options.timeout)
    ask = _wire.Next(request.count, options.source, _GATHERING_MS, partial=True)
    began: float | None = None
    max_batch = options.max_batch
    pause = _PAUSE_S
    while True:
        try:
            batch = await pool.batch(ask, deadline)
        except RefusedError as error:
            if error.code == "bad_count" and ask.count > 1:
                # The daemon's `max_count` is below it.
                ask = replace(ask, count=ask.count // 2)
                max_batch = ask.count
                continue
            # The request allowed a short wait alone. This deadline may allow a longer one.
            wait = error.retry_after
            if error.code != "exhausted" or wait is None or wait >= deadline.left:
                raise
            await pool.pause(max(wait, _PAUSE_S))
            continue
        # Another daemon may hand out the IDs of this batch, too.
        pool.check()
        lower = _went_back(batch, request.highest)
        if lower is None:
            good_until_ns = clock_ns(CLOCK) + int(options.max_age * 1e9)
            return Delivery(batch, good_until_ns, max_batch)
        now = pool.loop.time()
        began = now if began is None else began
        if now - began + pause > min(_LOWER_FOR_S, options.timeout / 2):
            raise lower
        if deadline.left <= pause:
            raise pool.passed(deadline, lower)
        await pool.pause(pause)
        pause = min(pause * 2, _MAX_PAUSE_S)
        ask = replace(ask, count=min(ask.count, _RETRY_COUNT))


def _went_back(batch: Batch, highest: tuple[str, int] | None) -> WentBackError | None:
    """Returns an error if all IDs of the batch are below one that came from the same endpoint."""
    found = batch.runs[-1][-1]
    if highest is None or highest[0] != batch.endpoint or found > highest[1]:
        return None
    return WentBackError(batch.endpoint, highest[1], found)


class _Stock:
    """One batch in the buffer, cut into two slices."""

    def __init__(self, delivery: Delivery, lowest: int | None) -> None:
        runs = list(delivery.batch.runs) if lowest is None else above(delivery.batch.runs, lowest)
        self.good_until_ns = delivery.good_until_ns
        self.count = sum(len(run) for run in runs)
        self._halves = [half for half in halves(runs) if half]
        self.opened_at_ns: int | None = None
        self.cut_count = 0

    @property
    def is_low(self) -> bool:
        """Returns whether its last slice is the next one."""
        return len(self._halves) <= 1

    def cut(self, now_ns: int) -> Slice | None:
        """Returns the next slice, or None after the last."""
        if not self._halves:
            return None
        if self.opened_at_ns is None:
            self.opened_at_ns = now_ns
        cut = Slice(self._halves.pop(0), self.good_until_ns)
        self.cut_count += len(cut.ids)
        return cut


class Buffer:
    """The batches behind the slice. The caller lets one thread at a time in."""

    def __init__(self, options: IdsOptions, start: Callable[[FetchRequest], Any]) -> None:
        self._options = options
        #: Starts a fetch. Returns a future.
        self._start = start
        self._current: _Stock | None = None
        self._next: _Stock | None = None
        #: The fetch in flight, or one whose result was not taken yet.
        self.fetch: Any = None
        self._fetch_count = min(_FIRST_FETCH, options.max_batch)
        self._max_batch = options.max_batch
        self._highest: tuple[str, int] | None = None

    def cut(self, unused: int) -> Slice | None:
        """Cuts the next slice, and starts a fetch if it is time for one.

        `unused` IDs of the slice before were not handed out. Returns None while a fetch is awaited.
        """
        while True:
            now_ns = clock_ns(CLOCK)
            current = self._current
            if current is not None and now_ns < current.good_until_ns:
                # Before the cut: all IDs that were cut earlier are handed out by now.
                if current.is_low and self._next is None:
                    self._fetch_ahead(current, now_ns)
                cut = current.cut(now_ns)
                if cut is not None:
                    return cut
            elif current is not None and current.opened_at_ns is not None:
                used = max(current.cut_count - unused, 1)
                self._fetch_count = min(used, self._max_batch)
            self._current, self._next = self._next, None
            if self._current is None and not self._take():
                return None

    def _fetch_ahead(self, current: _Stock, now_ns: int) -> None:
        """Starts the next fetch. It repeats one that failed: no caller waited for that."""
        if self.fetch is None:
            self._fetch_count = self._next_count(current, now_ns)
        elif not self.fetch.done():
            return
        elif not self.failed(self.fetch):
            self._keep(self.fetch.result())
            return
        self._begin()

    def _next_count(self, current: _Stock, now_ns: int) -> int:
        """Returns how many IDs to fetch. At the pace of now they last for a part of the age."""
        if current.opened_at_ns is None:
            return self._fetch_count
        pace_ns = max(now_ns - current.opened_at_ns, 1)
        lasting_ns = int(self._options.max_age * 1e9) // _LASTING_PART
        wanted = current.cut_count * lasting_ns // pace_ns
        return max(1, min(wanted, self._fetch_count * _GROWTH, self._max_batch))

    def _take(self) -> bool:
        """Takes the result of the fetch, or starts one. Returns whether a result came."""
        if self.fetch is not None and not self.fetch.done():
            return False
        if self.fetch is None or self.failed(self.fetch):
            self._begin()
            return False
        self._keep(self.fetch.result())
        self._current, self._next = self._next, None
        return True

    def drop(self) -> None:
        """Drops all IDs, and those of the fetch in flight."""
        self._current = self._next = self.fetch = None

    @staticmethod
    def failed(fetch: Any) -> bool:
        """Returns whether a fetch has ended without IDs."""
        return fetch.done() and (fetch.cancelled() or fetch.exception() is not None)

    def error(self, fetch: Any) -> BaseException:
        """Returns the error of a failed fetch, for a caller that waited for it."""
        error = ClosedError() if fetch.cancelled() else fetch.exception()
        if self.fetch is fetch:
            self.fetch = None
            if isinstance(error, WentBackError):
                # The caller learns of it, so the next fetch takes lower IDs.
                self._highest = None
        # Several callers may have waited, and each gets an error of its own.
        return copy.copy(error)

    def _keep(self, delivery: Delivery) -> None:
        self.fetch = None
        endpoint, highest = delivery.batch.endpoint, self._highest
        same = highest is not None and highest[0] == endpoint
        self._max_batch = delivery.max_batch
        self._fetch_count = min(self._fetch_count, self._max_batch)
        self._next = _Stock(delivery, highest[1] if highest is not None and same else None)
        self._highest = (endpoint, delivery.batch.runs[-1][-1])

    def _begin(self) -> None:
        self.fetch = self._start(FetchRequest(self._options, self._fetch_count, self._highest))
