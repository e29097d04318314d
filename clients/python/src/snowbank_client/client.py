"""The client for threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import weakref
from collections.abc import Coroutine, Iterable, Iterator
from typing import (
    Any,
    Callable,
    TypeVar,
)

from . import _fork, _options, _wire
from ._batch import Batch
from ._clock import CLOCK, clock_ns
from ._errors import ClosedError, DeadlineError, SnowbankError, join
from ._ids import EMPTY, Buffer, FetchRequest, IdsOptions, check_count, check_source, fetch
from ._info import Info
from ._options import Options
from ._pool import Deadline, Pool

T = TypeVar("T")

#: What a call waits beyond its deadline for the client's own thread. It fails calls in time by
#: itself, unless the interpreter is shutting down and runs it no more.
_GRACE_S = 1.0

#: The threads of parents. Nothing may close them: their sockets are the parent's.
_inherited: list[_Runner] = []


class _Runner:
    """A thread with an event loop and the connections of one client, in one process."""

    def __init__(self, options: Options, drop_buffers: Callable[[], None]) -> None:
        self.generation = _fork.generation
        self._loop = asyncio.SelectorEventLoop()
        self._pool = Pool(options, self._loop, drop_buffers)
        self._thread = threading.Thread(target=self._run, name="snowbank-client", daemon=True)
        self._thread.start()

    def submit(
        self, work: Callable[[Pool], Coroutine[Any, Any, T]]
    ) -> concurrent.futures.Future[T]:
        """Runs work on the loop."""
        coroutine = work(self._pool)
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise ClosedError from None

    def errors(self) -> list[SnowbankError]:
        """Returns the error of each endpoint that has failed since it last served."""
        return self._pool.errors()

    def stop(self, joins: bool) -> None:
        """Closes the connections and ends the thread. Does nothing in a child of its process."""
        if self.generation != _fork.generation:
            return
        try:
            self._loop.call_soon_threadsafe(self._loop.stop)
        except RuntimeError:
            return
        if joins and threading.current_thread() is not self._thread:
            self._thread.join(_GRACE_S)

    async def _end(self) -> None:
        """Closes the connections, and waits until each call has its error."""
        await self._pool.close()
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*calls, return_exceptions=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._end())
        finally:
            self._loop.close()


class _State:
    """What a client's handles share. The finalizer of the client holds it, and not the client."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.is_closed = False
        self._runner: _Runner | None = None
        #: The buffers, which are emptied when the client is closed.
        self._buffers: weakref.WeakSet[Ids] = weakref.WeakSet()
        self._generation = _fork.generation
        self._lock = threading.Lock()

    def get(self) -> _Runner:
        """Returns the thread of this process. The first call makes it, and the first in a child."""
        self._renew()
        with self._lock:
            if self.is_closed:
                raise ClosedError
            if self._runner is None:
                self._runner = _Runner(self.options, self._drop_buffers)
            return self._runner

    def add(self, ids: Ids) -> None:
        """Records a buffer of the client."""
        self._renew()
        with self._lock:
            self._buffers.add(ids)

    def close(self) -> None:
        """Ends the thread, and waits for its end."""
        self._renew()
        with self._lock:
            self.is_closed = True
            runner, self._runner = self._runner, None
        self._drop_buffers()
        if runner is not None:
            runner.stop(joins=True)

    def abandon(self) -> None:
        """Ends the thread of a client that nobody can reach any more.

        It runs wherever the garbage collector does, so it takes no lock and waits for nothing.
        """
        if self._runner is not None:
            self._runner.stop(joins=False)

    def _drop_buffers(self) -> None:
        with self._lock:
            buffers = list(self._buffers)
        for ids in buffers:
            ids._drop()

    def _renew(self) -> None:
        """Leaves the thread of a parent. The lock may be held by a thread that is not here."""
        if self._generation == _fork.generation:
            return
        with _fork.lock:
            if self._generation != _fork.generation:
                if self._runner is not None:
                    _inherited.append(self._runner)
                self._runner = None
                self._lock = threading.Lock()
                self._generation = _fork.generation


class Client:
    """A client for threads. Any number of threads may share it, and it works in forked children.

    `addresses` are `host:port`, `[IPv6]:port`, `tls:host:port` or `unix:PATH`: one or several. The
    client uses the first one while it serves, and moves on to the next when it fails.

    - `token` or `token_file`: what a daemon asks for. The file is read again for each connection.
    - `ca_file`: the authorities to trust on `tls:` addresses, instead of the system's. `cert_file`
      and `key_file`: the client's own certificate. `server_name`: the name that the daemon's
      certificate has, if it is not the host of the address.
    - `timeout`: the seconds that a call has, over connecting and all tries.
    - `connect_timeout`: the seconds that one endpoint has to connect and greet.
    - `answer_timeout`: the seconds after which a connected daemon counts as stalled.
    - `backoff`: how long a failed endpoint is left alone: a random time up to the first number,
      which doubles with each failure up to the second.
    - `take_turns`: calls use each endpoint in turn. IDs of successive calls no longer increase.
    - `prefer_first`: the addresses are in order of preference, the nearest daemon first. The client
      goes back to an earlier one that serves again. By default it stays where it is.

    A client connects at its first call, and in a forked child again. Close it, or use `with`.
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
        options = _options.make(
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
        self._state = _State(options)
        weakref.finalize(self, self._state.abandon)

    def batch(
        self,
        count: int,
        *,
        source: int | str = 0,
        max_wait: float | None = None,
        partial: bool = False,
        explicit: bool = False,
        timeout: float | None = None,
    ) -> Batch:
        """Fetches `count` IDs in one round trip: increasing, and no other client has them.

        - `source`: the name of the source, or its index. 0 is the default source.
        - `max_wait`: the seconds that the daemon may wait for IDs that its layout does not allow
          yet. 0: it answers at once. None: the daemon's own default, 1 s.
        - `partial`: accepts fewer IDs, at least one, if that wait ends first.
        - `explicit`: the daemon sends every ID instead of runs, for tests. The batch is the same.
        - `timeout`: the seconds for this call, instead of the client's.
        """
        request, allowed = batch_request(
            self._state.options,
            count,
            source=source,
            max_wait=max_wait,
            partial=partial,
            explicit=explicit,
            timeout=timeout,
        )
        return self._call(allowed, lambda pool: pool.batch(request, Deadline(pool.loop, allowed)))

    def ids(
        self,
        *,
        source: int | str = 0,
        max_batch: int = 10_000,
        max_age: float = 1.0,
        timeout: float | None = None,
    ) -> Ids:
        """Makes a buffer that hands out IDs one at a time. Make one, and share it.

        - `source`: the name of the source, or its index.
        - `max_batch`: the most IDs of one fetch. Fetches start small and follow the demand.
        - `max_age`: the seconds that an ID may stay in the buffer. Time in sleep counts.
        - `timeout`: the seconds that `next()` has with an empty buffer, instead of the client's.
        """
        allowed = self._state.options.timeout if timeout is None else timeout
        return Ids(self, IdsOptions.make(source, max_batch, max_age, allowed))

    def info(self, *, timeout: float | None = None) -> Info:
        """Asks the daemon in use for its version, limits and sources."""
        allowed = call_timeout(self._state.options, timeout)
        return self._call(allowed, lambda pool: pool.info(Deadline(pool.loop, allowed)))

    def endpoint_errors(self) -> list[SnowbankError]:
        """Returns the error of each endpoint that has failed since it last served."""
        return self._state.get().errors()

    def close(self) -> None:
        """Closes the connections. Calls that wait, and later ones, raise `ClosedError`."""
        self._state.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client of {', '.join(a.text for a in self._state.options.addresses)}>"

    def _call(self, allowed: float, work: Callable[[Pool], Coroutine[Any, Any, T]]) -> T:
        future = self._state.get().submit(work)
        return wait(future, allowed)

    def _start(self, request: FetchRequest) -> Any:
        return self._state.get().submit(lambda pool: fetch(pool, request))


class Ids:
    """A buffer that hands out IDs one at a time. It is refilled before it is empty.

    - Any number of threads may share it. Each sees increasing IDs while they come from one daemon.
    - No ID is handed out later than `max_age` after it came.
    - A forked child begins with an empty buffer, so parent and child never have the same ID.
    """

    def __init__(self, client: Client, options: IdsOptions) -> None:
        self._client = client
        self._options = options
        self._generation = _fork.generation
        self._slice = EMPTY
        self._lock = threading.Lock()
        self._buffer = Buffer(options, client._start)
        client._state.add(self)

    def next(self) -> int:
        """Returns the next ID: from the buffer, or with the next reply if it is empty."""
        current = self._slice
        if current.generation == _fork.generation and clock_ns(CLOCK) < current.good_until_ns:
            try:
                return current.pop()
            except IndexError:
                pass
        return self._restock()

    def __iter__(self) -> Iterator[int]:
        return self

    __next__ = next

    def _restock(self) -> int:
        if self._generation != _fork.generation:
            self._renew()
        deadline_ns = clock_ns(CLOCK) + int(self._options.timeout * 1e9)
        while True:
            with self._lock:
                if self._client._state.is_closed:
                    raise ClosedError
                # Another thread may have restocked meanwhile.
                current = self._slice
                is_good = clock_ns(CLOCK) < current.good_until_ns
                if not (is_good and current.ids):
                    cut = self._buffer.cut(len(current.ids))
                    current = self._slice = EMPTY if cut is None else cut
                pending = self._buffer.fetch
            try:
                return current.pop()
            except IndexError:
                pass
            left = (deadline_ns - clock_ns(CLOCK)) / 1e9
            if left <= 0:
                last = join(self._client.endpoint_errors())
                raise DeadlineError(self._options.timeout, None, last)
            if pending is not None:
                concurrent.futures.wait([pending], left)
                if self._buffer.failed(pending):
                    with self._lock:
                        raise self._buffer.error(pending)

    def _drop(self) -> None:
        if self._generation == _fork.generation:
            with self._lock:
                self._slice = EMPTY
                self._buffer.drop()

    def _renew(self) -> None:
        """Makes the buffer of a parent new. Its lock may be held by a thread of the parent."""
        with _fork.lock:
            if self._generation != _fork.generation:
                self._lock = threading.Lock()
                self._buffer = Buffer(self._options, self._client._start)
                self._slice = EMPTY
                self._generation = _fork.generation


def call_timeout(options: Options, timeout: float | None) -> float:
    """Returns the time of a call."""
    return options.timeout if timeout is None else _options.seconds("timeout", timeout)


def batch_request(
    options: Options,
    count: int,
    *,
    source: int | str,
    max_wait: float | None,
    partial: bool,
    explicit: bool,
    timeout: float | None,
) -> tuple[_wire.Next, float]:
    """Checks what a caller asks for. Returns the request and the time of the call."""
    allowed = call_timeout(options, timeout)
    wait_ms = _wire.DEFAULT_WAIT
    if max_wait is not None:
        if isinstance(max_wait, bool) or not isinstance(max_wait, (int, float)):
            raise TypeError(f"max_wait is {max_wait!r}; a number of seconds is needed")
        if not max_wait >= 0:
            raise ValueError(f"max_wait is {max_wait} s; 0 or more is needed")
        longest_s = (_wire.DEFAULT_WAIT - 1) / 1000
        wait_ms = -int(-min(max_wait, allowed, longest_s) * 1000 // 1)
    request = _wire.Next(
        check_count("count", count), check_source(source), wait_ms, bool(explicit), bool(partial)
    )
    return request, allowed


def wait(future: concurrent.futures.Future[T], allowed: float) -> T:
    """Waits for a call that ends by itself within `allowed`."""
    try:
        return future.result(allowed + _GRACE_S)
    except concurrent.futures.TimeoutError as error:
        if isinstance(error, SnowbankError):
            raise
        future.cancel()
        raise DeadlineError(allowed, None, None) from None
    except concurrent.futures.CancelledError:
        raise ClosedError from None
    except BaseException:
        # A KeyboardInterrupt while it waited.
        future.cancel()
        raise
