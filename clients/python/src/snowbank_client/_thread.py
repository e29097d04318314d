"""The thread of a `Client`, with the event loop on which its calls run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Callable, Generic, TypeVar

from . import _fork
from ._call import Calls
from ._errors import ClosedError
from ._shared import Shared

T = TypeVar("T")

#: What a call waits beyond its deadline for the thread. It fails calls in time by itself, unless
#: the interpreter is shutting down and runs it no more.
GRACE_S = 1.0

#: The threads of parents. Nothing may close their sockets, which are the parent's, too.
_inherited: list[Runner] = []


class Work(Generic[T]):
    """What the thread is asked to do. Any number of threads may wait for its end.

    It is a latch of one bare lock: nothing in it can be left half done by a fork.
    """

    def __init__(self) -> None:
        self._latch = threading.Lock()
        self._latch.acquire()
        self._result: Any = None
        self._error: BaseException | None = None
        self.task: asyncio.Task[T] | None = None

    def wait(self, seconds: float) -> bool:
        """Waits for its end. Returns False after that time."""
        if not self._latch.acquire(timeout=min(max(seconds, 0.0), threading.TIMEOUT_MAX)):
            return False
        self._latch.release()
        return True

    def done(self) -> bool:
        return not self._latch.locked()

    def cancelled(self) -> bool:
        return False

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        found: T = self._result
        return found

    def end(self, result: T | None, error: BaseException | None) -> None:
        """Wakes all who wait. Only the first end counts."""
        if self._latch.locked():
            self._result, self._error = result, error
            self._latch.release()


class Runner:
    """A thread with an event loop and the connections of one client, in one process."""

    def __init__(self, shared: Shared) -> None:
        self.generation = _fork.generation
        self._loop = asyncio.SelectorEventLoop()
        self._shared = shared
        self.calls: Calls | None = None
        self._pending: set[Work[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="snowbank-client", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[Calls], Coroutine[Any, Any, T]]) -> Work[T]:
        """Runs work on the loop."""
        made: Work[T] = Work()
        self._pending.add(made)
        if self.generation != _fork.generation:
            made.end(None, ClosedError())
        self._on_loop(lambda: self._start(made, work))
        return made

    def cancel(self, work: Work[Any]) -> None:
        """Ends work whose caller was interrupted."""
        self._on_loop(lambda: work.task is not None and work.task.cancel())

    def stop(self, joins: bool) -> None:
        """Closes the connections and ends the thread."""
        self._on_loop(self._loop.stop)
        if joins and threading.current_thread() is not self._thread:
            self._thread.join(GRACE_S)

    def inherit(self) -> None:
        """Runs in a child: wakes the calls that a signal handler with a fork interrupted."""
        _inherited.append(self)
        for work in list(self._pending):
            work.end(None, ClosedError())

    def _on_loop(self, work: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:
            # The loop is closed.
            self._fail_pending()

    def _start(self, made: Work[T], work: Callable[[Calls], Coroutine[Any, Any, T]]) -> None:
        if self.calls is None:
            made.end(None, ClosedError())
            return

        def end(task: asyncio.Task[T]) -> None:
            self._pending.discard(made)
            if task.cancelled():
                made.end(None, ClosedError())
            elif task.exception() is not None:
                made.end(None, task.exception())
            else:
                made.end(task.result(), None)

        made.task = self._loop.create_task(work(self.calls))
        made.task.add_done_callback(end)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._begin())
            self._loop.run_forever()
            self._loop.run_until_complete(self._end())
        finally:
            self._loop.close()
            self._fail_pending()

    async def _begin(self) -> None:
        self.calls = Calls(self._shared)

    async def _end(self) -> None:
        """Closes the connections, and waits until each call has its error."""
        if self.calls is not None:
            self.calls.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*tasks, return_exceptions=True)

    def _fail_pending(self) -> None:
        for work in list(self._pending):
            work.end(None, ClosedError())
