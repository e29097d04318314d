"""What a client, its buffers and its connections share, and what a fork makes new."""

from __future__ import annotations

import copy
import os
import threading
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ._errors import ClosedError, CollisionError
from ._options import Options
from ._stats import Stats

if TYPE_CHECKING:
    from ._buffer import Buffer
    from ._call import Calls

#: The number of forks between the process that imported this module and this one.
generation = 0

_all: weakref.WeakSet[Shared] = weakref.WeakSet()

#: Connections of parents. Nothing may close them.
_inherited: list[Calls] = []


class Shared:
    """Says whether buffered IDs may be handed out, keeps the figures, and has the connections."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.is_closed = False
        self.calls: Calls | None = None
        self.buffers: weakref.WeakSet[Buffer[Any]] = weakref.WeakSet()
        self.begin()
        _all.add(self)

    def begin(self) -> None:
        """Sets what is new in a child. A lock may be held by a thread that is not there."""
        #: Buffered IDs that came in another era are void: of a parent process, or from before
        #: a collision or a close.
        self.era = object()
        self.lock = threading.RLock()
        self.counters = Stats()
        self.collision: CollisionError | None = None

    def void(self) -> None:
        """Lets buffers forget their IDs."""
        self.era = object()

    def check(self, is_new: bool = False) -> None:
        """Raises why calls fail, or a new call does."""
        if is_new and self.is_closed:
            raise ClosedError
        if self.collision is not None:
            raise copy.copy(self.collision)

    def stats(self) -> Stats:
        """Returns the figures of now, with those of the IDs that buffers still have."""
        with self.lock:
            stocks = [buffer._stock for buffer in self.buffers]
        calls = self.calls
        endpoints = calls.endpoints.all if calls is not None else []
        return replace(
            self.counters,
            ids=self.counters.ids + sum(stock.handed_out for stock in stocks),
            oldest_ms=max([self.counters.oldest_ms, *(stock.oldest_ms for stock in stocks)]),
            endpoint=next((one.name for one in endpoints if one.connection is not None), None),
        )

    def after_fork(self) -> None:
        """Begins anew in a child."""
        self.begin()
        for buffer in list(self.buffers):
            buffer.reset()
        if self.calls is not None:
            _inherited.append(self.calls)
            for result in list(self.calls.pending):
                result.end()


def _in_child() -> None:
    global generation  # noqa: PLW0603
    generation += 1
    for shared in list(_all):
        shared.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
