"""The client for threads, and what it has in common with the one for asyncio."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Coroutine, Iterable, Iterator
from time import monotonic
from time import time as wall
from typing import Any, Callable, Generic, TypeVar

from . import _options, _shared
from ._buffer import Buffer
from ._call import Calls, Deadline
from ._errors import ClosedError
from ._options import Options, check_count, seconds, source_bytes
from ._shared import Shared
from ._stats import OnEvent, Stats

T = TypeVar("T")

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
    - `on_event`: a function that hears of connections, failures, refusals and collisions. It runs
      where the client does, so it must not wait. The logger `snowbank_client` has them, too.

    A client connects at its first call. Close it, or use `with`.
    """

    def __init__(
        self,
        endpoints: str | Iterable[str] = "127.0.0.1:7660",
        *,
        source: str | None = None,
        timeout: float = 5.0,
        token: str | bytes | None = None,
        token_file: str | None = None,
        ca_file: str | None = None,
        cert_file: str | None = None,
        key_file: str | None = None,
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
        weakref.finalize(self, _abandon, self._shared)

    def stats(self) -> Stats:
        """Returns what the client did in this process, at once."""
        return self._shared.stats()

    def _source(self, source: str | None) -> bytes:
        return source_bytes(self._shared.options.source if source is None else source)

    def _deadline(self, timeout: float | None) -> Deadline:
        return Deadline(
            self._shared.options.timeout if timeout is None else seconds("timeout", timeout)
        )

    def __repr__(self) -> str:
        names = ", ".join(map(str, self._shared.options.endpoints))
        return f"<{type(self).__name__} of {names}>"


def _abandon(shared: Shared) -> None:
    """Frees the sockets of a client that nobody can reach any more. It runs where garbage goes."""
    calls = shared.calls
    if calls is not None and calls.generation == _shared.generation:
        try:
            calls.loop.call_soon_threadsafe(calls.abandon)
        except RuntimeError:
            calls.release()


class Client(BaseClient):
    """A client for threads. Any number of threads may share it, and it works in forked children."""

    def batch(
        self, count: int, *, source: str | None = None, timeout: float | None = None
    ) -> list[int]:
        """Fetches `count` IDs in one round trip: increasing, and no other client has them.

        `source` and `timeout` stand for those of the client.
        """
        check_count(count)
        name, by = self._source(source), self._deadline(timeout)
        return self._run(lambda calls: calls.batch(count, name, by), by)

    def ids(self, *, source: str | None = None, timeout: float | None = None) -> Ids:
        """Makes a buffer that hands out IDs one at a time. Make one, and share it.

        `source` and `timeout` stand for those of the client.
        """
        allowed = self._deadline(timeout).allowed
        return Ids(self, Buffer(self._shared, self._source(source), allowed))

    def ping(self, *, timeout: float | None = None) -> None:
        """Raises an error unless a daemon answers."""
        by = self._deadline(timeout)
        self._run(lambda calls: calls.ping(by), by)

    def close(self, timeout: float | None = None) -> None:
        """Closes the connections. Later calls raise `ClosedError`.

        With a `timeout`, calls in flight have so many seconds to end. Without one, they raise
        `ClosedError` at once.
        """
        by = Deadline(0.0) if timeout is None else self._deadline(timeout)
        with self._shared.lock:
            self._shared.is_closed = True
            calls, self._shared.calls = self._shared.calls, None
        if calls is not None and calls.generation == _shared.generation:
            _Result(lambda calls: calls.drain(by)).run(calls, by.left)
            calls.loop.call_soon_threadsafe(calls.loop.stop)
            if calls.thread is not None and calls.thread is not threading.current_thread():
                calls.thread.join(_GRACE_S)
        self._shared.void()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _calls(self) -> Calls:
        """Returns the connections of this process. The first call makes their thread."""
        shared = self._shared
        with shared.lock:
            shared.check(is_new=True)
            calls = shared.calls
            if calls is None or calls.generation != _shared.generation:
                loop = asyncio.SelectorEventLoop()
                calls = Calls(shared, loop)
                calls.abandon = loop.stop
                calls.thread = threading.Thread(
                    target=_serve, args=(calls,), name="snowbank-client", daemon=True
                )
                calls.thread.start()
                shared.calls = calls
            return calls

    def _run(self, work: Callable[[Calls], Coroutine[Any, Any, T]], by: Deadline) -> T:
        """Runs work on the client's thread, and waits for its end."""
        while True:
            calls = self._calls()
            result = _Result(work)
            is_done = result.run(calls, by.left)
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


class Ids:
    """A buffer that hands out IDs one at a time. It is refilled before it is empty.

    - Any number of threads may share it. Each sees increasing IDs while they come from one daemon.
    - No ID is handed out later than the daemon allows after its reply, 1 s by default.
    - A forked child begins with an empty buffer, so parent and child never have the same ID.
    """

    def __init__(self, client: Client, buffer: Buffer) -> None:
        self._client, self._buffer, self._shared = client, buffer, client._shared

    def next(self, *, timeout: float | None = None) -> int:
        """Returns the next ID: from the buffer, or with the next reply if it is empty.

        `timeout`: the seconds for this call, instead of the buffer's.
        """
        stock = self._buffer.stock
        try:
            taken = stock.pop()
        except IndexError:
            return self._wait(timeout)
        stock.used = now = monotonic()
        # The token last: a signal handler may have forked since the ID was taken.
        if now < stock.until and wall() < stock.wall_until and stock.token is self._shared.token:
            return taken
        stock.skipped += 1
        return self._wait(timeout)

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        return self.next()

    def _wait(self, timeout: float | None) -> int:
        by = self._buffer.deadline(timeout)
        return self._client._run(lambda calls: self._buffer.next(calls, by), by)


class _Result(Generic[T]):
    """The end of work on the client's thread.

    It is a latch of one bare lock: no fork can leave it half done.
    """

    value: Any = None
    error: BaseException | None = None

    def __init__(self, work: Callable[[Calls], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self._latch = threading.Lock()
        self._latch.acquire()

    def run(self, calls: Calls, allowed: float) -> bool:
        """Runs the work, and waits for its end. Returns false after that time."""
        calls.pending.add(self)
        try:
            # A fork after this look wakes what is pending.
            if calls.generation == _shared.generation:
                calls.loop.call_soon_threadsafe(self._start, calls)
                return self._latch.acquire(timeout=min(allowed + _GRACE_S, threading.TIMEOUT_MAX))
            return False
        except RuntimeError:
            raise ClosedError from None
        except BaseException:
            # A KeyboardInterrupt while it waited.
            if self._task is not None:
                calls.loop.call_soon_threadsafe(self._task.cancel)
            raise
        finally:
            calls.pending.discard(self)

    def wake(self) -> None:
        """Ends the wait. Only the first end counts."""
        if self._latch.locked():
            self._latch.release()

    def close(self) -> None:
        """Ends work that the thread does not do any more."""
        self.error = ClosedError()
        self.wake()

    def _start(self, calls: Calls) -> None:
        self._task = calls.loop.create_task(self._work(calls))
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.error = ClosedError()
        elif task.exception() is not None:
            self.error = task.exception()
        else:
            self.value = task.result()
        self._task = None
        self.wake()


def _serve(calls: Calls) -> None:
    """Runs the event loop of a client, in its thread."""
    loop = calls.loop
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(_end(calls))
    finally:
        loop.close()
        for result in list(calls.pending):
            result.close()


async def _end(calls: Calls) -> None:
    """Closes the connections, and waits until each call has its error."""
    calls.close()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0)
