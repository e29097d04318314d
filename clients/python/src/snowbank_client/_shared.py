"""What a client, its buffers and its connections share."""

from __future__ import annotations

import copy
import weakref
from typing import TYPE_CHECKING

from . import _fork
from ._errors import ClosedError, CollisionError
from ._options import Options
from ._stats import Counters, Event, Stats, report

if TYPE_CHECKING:
    from ._buffer import Buffer


class Shared:
    """Says whether buffered IDs may be handed out, and keeps the figures."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.counters = Counters()
        self.is_closed = False
        self.collision: CollisionError | None = None
        #: Buffered IDs that came under another token are void: of a parent process, or from before
        #: a collision or a close.
        self.token = object()
        self._buffers: list[weakref.ref[Buffer]] = []
        _fork.register(self)

    def add(self, buffer: Buffer) -> None:
        """Records a buffer, for the figures."""
        alive = [one for one in self._buffers if one() is not None]
        self._buffers = [*alive, weakref.ref(buffer)]

    def close(self) -> None:
        """Lets further calls fail."""
        self.is_closed = True

    def void(self) -> None:
        """Lets buffers forget their IDs."""
        self.token = object()

    def check(self) -> None:
        """Raises why a new call fails."""
        if self.is_closed:
            raise ClosedError
        self.check_collision()

    def check_collision(self) -> None:
        """Raises the error of two endpoints that hand out the same IDs."""
        if self.collision is not None:
            raise copy.copy(self.collision)

    def report(self, event: Event) -> None:
        """Logs an event, and hands it to the application."""
        report(event, self.options.on_event)

    def stats(self, endpoint: str | None) -> Stats:
        """Returns the figures of now, with those of the IDs that buffers still have."""
        found = self.counters
        buffers = [buffer for buffer in (one() for one in self._buffers) if buffer is not None]
        return Stats(
            calls=found.calls,
            retries=found.retries,
            refusals=found.refusals,
            failures=found.failures,
            ids=found.ids + sum(buffer._stock.handed_out for buffer in buffers),
            dropped=found.dropped,
            oldest_ms=1000 * max([found.oldest_s, *(one._stock.oldest_s for one in buffers)]),
            endpoint=endpoint,
        )

    def after_fork(self) -> None:
        """Begins anew in a child."""
        self.void()
        self.collision = None
        self.counters = Counters()
