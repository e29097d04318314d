"""The client for threads."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Coroutine, Iterable, Iterator
from time import monotonic
from time import time as wall
from typing import Any, Callable, TypeVar

from . import _fork, _options
from ._batch import Batch
from ._buffer import Buffer, error_of, failed
from ._call import Calls, Deadline
from ._errors import DeadlineError
from ._options import Options, check_count, seconds, source_bytes
from ._shared import Shared
from ._stats import OnEvent, Stats
from ._thread import GRACE_S, Runner, Work

T = TypeVar("T")


class _State:
    """What a client's handles use. The finalizer of the client holds it, and not the client."""

    def __init__(self, options: Options) -> None:
        self.shared = Shared(options)
        self.runner: Runner | None = None
        self.lock = threading.RLock()
        _fork.register(self)

    def get(self) -> Runner:
        """Returns the thread of this process, which the first call makes."""
        with self.lock:
            self.shared.check()
            if self.runner is None or self.runner.generation != _fork.generation:
                self.runner = Runner(self.shared)
            return self.runner

    def close(self, drains_for: float | None) -> None:
        """Ends the thread, and waits for its end."""
        with self.lock:
            self.shared.close()
            runner, self.runner = self.runner, None
        if runner is not None:
            if drains_for is not None:
                runner.submit(lambda calls: calls.drain(drains_for)).wait(drains_for + GRACE_S)
            runner.stop(joins=True)
        self.shared.void()

    def abandon(self) -> None:
        """Ends the thread of a client that nobody can reach any more.

        It runs wherever the garbage collector does, so it takes no lock and waits for nothing.
        """
        if self.runner is not None:
            self.runner.stop(joins=False)

    def after_fork(self) -> None:
        """Leaves the thread of the parent, whose locks may be held by a thread that is not here."""
        runner, self.runner, self.lock = self.runner, None, threading.RLock()
        if runner is not None:
            runner.inherit()


class Client:
    """A client for threads. Any number of threads may share it, and it works in forked children.

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
    - `on_event`: a function that hears of connections, failures, refusals and collisions, on the
      client's own thread. The logger `snowbank_client` has them, too.

    A client connects at its first call, and in a forked child again. Close it, or use `with`.
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
        options = _options.make(
            endpoints,
            source=source,
            timeout=timeout,
            token=token,
            token_file=token_file,
            ca_file=ca_file,
            cert_file=cert_file,
            key_file=key_file,
            server_name=server_name,
            prefer_first=prefer_first,
            take_turns=take_turns,
            on_event=on_event,
        )
        self._state = _State(options)
        weakref.finalize(self, self._state.abandon)

    def batch(
        self, count: int, *, source: str | None = None, timeout: float | None = None
    ) -> Batch:
        """Fetches `count` IDs in one round trip: increasing, and no other client has them.

        `source` and `timeout` stand for those of the client.
        """
        name, allowed = call_options(self._state.shared.options, source, timeout)
        check_count(count)
        return self._call(allowed, lambda calls, by: calls.batch(count, name, by))

    def ids(self, *, source: str | None = None, timeout: float | None = None) -> Ids:
        """Makes a buffer that hands out IDs one at a time. Make one, and share it.

        `source` and `timeout` stand for those of the client. `next` has that time with an empty
        buffer.
        """
        return Ids(self, *call_options(self._state.shared.options, source, timeout))

    def ping(self, *, timeout: float | None = None) -> None:
        """Raises an error unless a daemon answers."""
        _, allowed = call_options(self._state.shared.options, None, timeout)
        self._call(allowed, lambda calls, by: calls.ping(by))

    def stats(self) -> Stats:
        """Returns what the client did in this process, at once."""
        runner = self._state.runner
        calls = None if runner is None else runner.calls
        return self._state.shared.stats(None if calls is None else calls.endpoint)

    def close(self, timeout: float | None = None) -> None:
        """Closes the connections. Later calls raise `ClosedError`.

        With a `timeout`, calls in flight have so many seconds to end. Without one, they raise
        `ClosedError` at once.
        """
        self._state.close(None if timeout is None else seconds("timeout", timeout))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client of {', '.join(map(str, self._state.shared.options.endpoints))}>"

    def _call(self, allowed: float, work: Callable[[Calls, Deadline], Coroutine[Any, Any, T]]) -> T:
        deadline = Deadline(allowed)
        while True:
            generation = _fork.generation
            runner = self._state.get()
            call = runner.submit(lambda calls: work(calls, deadline))
            try:
                is_done = call.wait(deadline.left + GRACE_S)
            except BaseException:
                # A KeyboardInterrupt while it waited.
                runner.cancel(call)
                raise
            # In the child of a fork by a signal handler, this is the parent's call.
            if generation == _fork.generation:
                if not is_done:
                    raise DeadlineError(allowed, {})
                return call.result()


class Ids(Buffer):
    """A buffer that hands out IDs one at a time. It is refilled before it is empty.

    - Any number of threads may share it. Each sees increasing IDs while they come from one daemon.
    - No ID is handed out later than the daemon allows after its reply, 1 s by default.
    - A forked child begins with an empty buffer, so parent and child never have the same ID.
    """

    def __init__(self, client: Client, source: bytes, timeout: float) -> None:
        self._client, self._source = client, source
        self._lock = threading.RLock()
        super().__init__(client._state.shared, timeout)
        _fork.register(self)

    def next(self) -> int:
        """Returns the next ID: from the buffer, or with the next reply if it is empty."""
        stock = self._stock
        try:
            taken = stock.pop()
        except IndexError:
            return self._refill(False)
        stock.used = now = monotonic()
        # The token last: a signal handler may have forked since the ID was taken.
        if now < stock.until and wall() < stock.wall_until and stock.token is self._shared.token:
            return taken
        return self._refill(True)

    def __iter__(self) -> Iterator[int]:
        return self

    __next__ = next

    def after_fork(self) -> None:
        """Begins anew in a child."""
        self._lock = threading.RLock()
        self._reset()

    def _begin_fetch(self, count: int, deadline: Deadline) -> Work[Any]:
        source = self._source
        return self._client._state.get().submit(lambda calls: calls.fetch(count, source, deadline))

    def _refill(self, is_skipped: bool) -> int:
        deadline = Deadline(self._timeout)
        while True:
            generation = _fork.generation
            with self._lock:
                self._shared.check()
                is_filled = self._fill(is_skipped)
                is_skipped = False
                stock, fetch = self._stock, self._join(deadline)
                self._waiting += not is_filled
            if is_filled:
                try:
                    taken = stock.pop()
                except IndexError:
                    # Other threads were faster.
                    continue
                stock.used = monotonic()
                if stock.is_good(self._shared.token):
                    return taken
                is_skipped = True
                continue
            try:
                is_done = fetch.wait(deadline.left)
            finally:
                if generation == _fork.generation:
                    with self._lock:
                        self._waiting -= 1
            # In the child of a fork by a signal handler, this is the parent's fetch.
            if generation == _fork.generation:
                if not is_done:
                    raise self._passed()
                if failed(fetch):
                    error = error_of(fetch)
                    if error is not None:
                        raise error

    def _passed(self) -> DeadlineError:
        runner = self._client._state.runner
        calls = None if runner is None else runner.calls
        return DeadlineError(self._timeout, {}) if calls is None else calls.passed(self._timeout)


def call_options(
    options: Options, source: str | None, timeout: float | None
) -> tuple[bytes, float]:
    """Returns the source and the time of a call, those of the client if it has none."""
    name = options.source if source is None else source_bytes(source)
    return name, options.timeout if timeout is None else seconds("timeout", timeout)
