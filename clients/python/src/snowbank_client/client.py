"""The client for threads, and what it has in common with the one for asyncio."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import math
import threading
import weakref
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator
from time import monotonic
from time import time as wall
from typing import Any, Callable, Generic, TypeVar

from . import _options, _shared
from ._buffer import Buffer
from ._call import Calls, Deadline
from ._errors import ClosedError, EndpointError, SnowbankError, describe
from ._options import Options, Path, check_count, seconds, source_bytes
from ._shared import Shared
from ._stats import OnEvent, Stats

T = TypeVar("T")
Work = Callable[[Calls], Coroutine[Any, Any, T]]

#: The most events that the application has not heard of yet. Later ones are lost.
_EVENTS_MOST = 1_000

#: What a call waits beyond its deadline for the client's thread. It fails calls in time by itself,
#: unless the interpreter is shutting down and runs it no more.
_GRACE_S = 1.0


class BaseClient:
    """The options and figures of both clients.

    `endpoints` are `host:port`, `[IPv6]:port`, `tls:host:port` or `unix:PATH`: one or several. The
    client begins with a random one, stays there while it serves, and goes on to the next when it
    fails.

    - `source`: the name of the source. None: the daemon's first one.
    - `timeout`: the seconds that a call has, over connecting and all tries.
    - `token` or `token_file`: what a daemon asks for. The file is read again for each connection.
    - `ca_file`: the authorities to trust on `tls:` endpoints, instead of the system's. `cert_file`
      and `key_file`: the client's own certificate. `server_name`: the name that the daemon's
      certificate has, if it is not the host of the endpoint.
    - `prefer_first`: the endpoints are in order of preference. The client begins with the first,
      and goes back to an earlier one that serves again.
    - `take_turns`: calls use the endpoints in turn, for pairs of ticket servers. IDs of successive
      calls do not increase.
    - `on_event`: a function that hears of connections, failures, refusals and collisions. A
      `Client` calls it on a thread of its own, so that no call waits for it, and an `AsyncClient`
      on the event loop. What it raises is logged. The logger `snowbank_client` has the events, too.

    A client connects at its first call. Close it, or use `with`.
    """

    def __init__(
        self,
        endpoints: str | Iterable[str] = "127.0.0.1:7660",
        *,
        source: str | None = None,
        timeout: float = 5.0,
        token: str | bytes | None = None,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        cert_file: Path | None = None,
        key_file: Path | None = None,
        server_name: str | None = None,
        prefer_first: bool = False,
        take_turns: bool = False,
        on_event: OnEvent | None = None,
    ) -> None:
        files = (ca_file, cert_file, key_file, server_name)
        turns = (prefer_first, take_turns, on_event)
        parsed = _options.endpoints(endpoints)
        options = Options(parsed, source, timeout, token, token_file, *files, *turns)
        self._shared = Shared(options)
        # The application's own exit handlers may still use it.
        weakref.finalize(self, _abandon, self._shared).atexit = False

    def stats(self) -> Stats:
        """Returns what the client did in this process, at once."""
        return self._shared.stats()

    def _batch(
        self, count: int, source: str | None, timeout: float | None
    ) -> tuple[Work[list[int]], Deadline]:
        check_count(count)
        name, by = self._source(source), self._deadline(timeout)
        return (lambda calls: calls.batch(count, name, by)), by

    def _source(self, source: str | None) -> bytes:
        return source_bytes(self._shared.options.source if source is None else source)

    def _deadline(self, timeout: float | None, default: float | None = None) -> Deadline:
        if timeout is not None:
            return Deadline(seconds("timeout", timeout))
        return Deadline(self._shared.options.timeout if default is None else default)

    def __repr__(self) -> str:
        names = ", ".join(map(str, self._shared.options.endpoints))
        return f"<{type(self).__name__} of {names}>"


def _abandon(shared: Shared) -> None:
    calls = shared.calls
    if calls is not None and not calls.is_inherited:
        calls.abandon()


class Client(BaseClient):
    """A client for threads. Any number of threads may share it, and it works in forked children."""

    def batch(
        self, count: int, *, source: str | None = None, timeout: float | None = None
    ) -> list[int]:
        """Fetches `count` IDs in one round trip: increasing, and no other client has them.

        `source` and `timeout` stand for those of the client.
        """
        return self._run(*self._batch(count, source, timeout))

    def ids(self, *, source: str | None = None, timeout: float | None = None) -> Ids:
        """Makes a buffer that hands out IDs one at a time. Make one, and share it.

        `source` and `timeout` stand for those of the client.
        """
        return Ids(self, self._shared, self._source(source), self._deadline(timeout).allowed)

    def ping(self, *, timeout: float | None = None) -> None:
        """Raises an error unless a daemon answers."""
        by = self._deadline(timeout)
        self._run(lambda calls: calls.ping(by), by)

    def close(self, timeout: float | None = None) -> None:
        """Closes the connections. Later calls raise `ClosedError`.

        With a `timeout`, calls in flight have so many seconds to end. Without one, they raise
        `ClosedError` at once, also within the time of an earlier close.
        """
        by = self._deadline(timeout, default=0.0)
        with self._shared.lock:
            self._shared.is_closed = True
            calls = self._shared.calls
        self._shared.void()
        if isinstance(calls, _ThreadCalls) and not calls.is_inherited:
            calls.stop(by)
        self._shared.void()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, work: Work[T], by: Deadline) -> T:
        """Runs work on the client's thread, and waits for its end."""
        while True:
            calls = self._calls()
            result = _Result[T]()
            is_done = result.wait(calls, work, by.left)
            error = result.error
            value: T = result.value
            # Its end runs weak references' callbacks, in which a handler may run.
            del result
            # In a child that a signal handler forked meanwhile, this was the parent's call. Nothing
            # is called between this look and the return, so no handler runs there.
            if calls.generation == _shared.generation:
                if not is_done:
                    raise calls.passed(by)
                if error is not None:
                    raise error
                return value

    def _calls(self) -> _ThreadCalls:
        """Returns the connections of this process. The first call makes their thread."""
        shared = self._shared
        with shared.lock:
            shared.check(is_new=True)
            calls = shared.calls
            if not isinstance(calls, _ThreadCalls) or calls.is_inherited:
                try:
                    shared.calls = calls = _ThreadCalls(shared)
                except RuntimeError as error:
                    raise EndpointError("this process", describe(error)) from None
        if calls.is_this_thread:
            raise RuntimeError("a finalizer on the client's own thread would wait for itself")
        return calls


class Ids(Buffer[Client]):
    """A buffer that hands out IDs one at a time. It is refilled before it is empty.

    - Any number of threads may share it. Each sees increasing IDs while they come from one daemon.
    - No ID is handed out later than the daemon allows after its reply, 1 s by default.
    - A forked child begins with an empty buffer, so parent and child never have the same ID.
    """

    def next(self, *, timeout: float | None = None) -> int:
        """Returns the next ID: from the buffer, or with the next reply if it is empty.

        `timeout`: the seconds for this call, instead of the buffer's.
        """
        if timeout is not None:
            seconds("timeout", timeout)
        # As `_take` does. A call of that costs a third of the time for an ID.
        stock = self._stock
        try:
            taken = stock.pop()
        except IndexError:
            return self._wait(timeout)
        now = monotonic()
        # The era last: a signal handler may have forked since the ID was taken.
        if now < stock.until and wall() < stock.wall_until and stock.era is self._shared.era:
            stock.used = now
            return taken
        stock.skipped += 1
        return self._wait(timeout)

    def _wait(self, timeout: float | None) -> int:
        by = self._client._deadline(timeout, self._timeout)
        while True:
            here = _shared.generation
            taken, stock = self._client._run(lambda calls: self._next(calls, by), by)
            # This thread may have been blocked since, or a signal handler have forked. A close that
            # let this call end has begun another era.
            now = monotonic()
            if now < stock.until and wall() < stock.wall_until and here == _shared.generation:
                return taken
            stock.skipped += 1

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        return self.next()


class _Result(Generic[T]):
    """Work on the client's thread, and its end: one bare lock, which no fork leaves half done."""

    value: Any = None
    error: BaseException | None = None
    _is_over = False
    _task: asyncio.Task[None] | None = None

    def __init__(self) -> None:
        self._latch = _thread.allocate_lock()
        self._latch.acquire()

    def wait(self, calls: _ThreadCalls, work: Work[T], allowed: float) -> bool:
        """Runs the work, and waits for its end. Returns false after that time."""
        calls.pending.add(self)
        try:
            # A fork after this look wakes what is pending.
            if calls.is_inherited:
                return False
            calls.soon(lambda: self._start(calls, work))
            return self._latch.acquire(timeout=allowed + _GRACE_S)
        except BaseException:
            # A KeyboardInterrupt while it waited.
            if self._task is not None:
                calls.soon(self._task.cancel)
            raise
        finally:
            calls.pending.discard(self)

    def end(self, error: BaseException | None = None) -> None:
        """Ends the wait. Only the first end counts."""
        if not self._is_over:
            self._is_over, self.error = True, error
            self._latch.release()

    def _start(self, calls: Calls, work: Work[T]) -> None:
        self._task = calls.start(self._work(work(calls)))

    async def _work(self, work: Coroutine[Any, Any, T]) -> None:
        try:
            self.value = await work
        except BaseException as error:
            self.end(ClosedError() if isinstance(error, asyncio.CancelledError) else error)
        self.end()


class _ThreadCalls(Calls):
    """The calls of one client, on a thread of its own."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._works: deque[Callable[[], object]] = deque()
        self._until = Deadline(math.inf)
        self._untold: deque[Callable[[], None]] = deque()
        self._telling = _thread.allocate_lock()
        self._is_running = _thread.allocate_lock()
        self._is_running.acquire()
        # A signal handler may fork at any time, and a child has no such thread. `threading` would
        # wait for its start for ever. Handlers run in the main thread, so the loop is made here.
        self._ident = _thread.start_new_thread(self._serve, ())

    @property
    def is_this_thread(self) -> bool:
        """Returns true in a finalizer that the garbage collector runs there."""
        return self._ident == threading.get_ident()

    def soon(self, work: Callable[[], object]) -> None:
        """Lets the thread do something. Raises ClosedError when it has ended."""
        self._works.append(work)
        try:
            if self.loop is not None:
                self.loop.call_soon_threadsafe(self._do)
        except RuntimeError:
            raise ClosedError from None

    def tell(self, work: Callable[[], None]) -> None:
        """Runs what hears of an event, in order, on a thread that ends when all are told."""
        if len(self._untold) < _EVENTS_MOST:
            self._untold.append(work)
        if not self._telling.locked():
            # Without a thread, it waits for the next event.
            with contextlib.suppress(RuntimeError):
                _thread.start_new_thread(self._tell, ())

    def _tell(self) -> None:
        # An event may come between the last look and the release.
        while self._untold and self._telling.acquire(blocking=False):
            try:
                while self._untold:
                    self._untold.popleft()()
            finally:
                self._telling.release()

    def abandon(self) -> None:
        self._stop_by(Deadline(0.0))

    def stop(self, deadline: Deadline) -> None:
        """Ends the thread. Calls in flight may end until then, or an earlier stop's deadline."""
        self._stop_by(deadline)
        if not self.is_this_thread and self._is_running.acquire(timeout=deadline.left + _GRACE_S):
            self._is_running.release()

    def _do(self) -> None:
        while self._works:
            self._works.popleft()()

    def _stop_by(self, deadline: Deadline) -> None:
        with contextlib.suppress(ClosedError):
            self.soon(lambda: self._stop(deadline))

    def _stop(self, deadline: Deadline) -> None:
        if self._until.at == math.inf:
            asyncio.get_running_loop().stop()
        self._until.at = min(self._until.at, deadline.at)

    def _serve(self) -> None:
        reason: SnowbankError = ClosedError()
        try:
            self.loop = asyncio.SelectorEventLoop()
            # What came before the loop was there.
            self.loop.call_soon(self._do)
            self.loop.run_forever()
            self.loop.run_until_complete(self.drain(self._until))
            self.loop.close()
        except Exception as error:
            reason = EndpointError("this process", describe(error))
            self.shared.calls = None
        for result in list(self.pending):
            result.end(reason)
        self._is_running.release()
