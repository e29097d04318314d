"""Rules that the cases of all clients do not reach, against a scripted daemon."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Callable

import pytest
from fake import WELCOME, Daemon
from support import PACKAGE, PYTHON, run

from snowbank_client import (
    AsyncClient,
    Client,
    ClosedError,
    Connected,
    DeadlineError,
    EndpointError,
    Event,
    Failed,
    RefusedError,
    SnowbankError,
    Stats,
)
from snowbank_client._buffer import Stock
from snowbank_client._dial import Dialer
from snowbank_client._greet import _greet
from snowbank_client._wire import Next, info
from snowbank_client.client import _ThreadCalls


@pytest.fixture
def fake() -> Iterator[str]:
    """The address of a scripted daemon."""
    program = str(pathlib.Path(__file__).with_name("fake.py"))
    daemon = subprocess.Popen([PYTHON, program], stdout=subprocess.PIPE, text=True)
    assert daemon.stdout is not None
    try:
        yield daemon.stdout.readline().strip()
    finally:
        daemon.kill()
        daemon.wait()


@contextlib.contextmanager
def scripted(answer: Callable[[int, int], bytes]) -> Iterator[tuple[str, threading.Event]]:
    """A daemon that greets, and answers further requests by their kind and tag.

    Gives its address, and what is set when its client has closed a connection.
    """
    closed = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(peer: socket.socket) -> None:
        with peer, peer.makefile("rb") as requests, contextlib.suppress(OSError):
            while head := requests.read(8):
                length, kind, _, tag = struct.unpack("<IBBH", head)
                requests.read(length - 4)
                greeting = frame(0x85, tag, WELCOME) if kind == 0x04 else b""
                peer.sendall(greeting + answer(kind, tag))
        closed.set()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=listener.accept()[:1], daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"127.0.0.1:{listener.getsockname()[1]}", closed
    listener.close()


def frame(kind: int, tag: int, body: bytes = b"") -> bytes:
    return struct.pack("<IBBH", 4 + len(body), kind, 0, tag) + body


def wait_until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_connected_is_told_before_failed() -> None:
    events: list[Event] = []
    # A frame that answers nothing comes with WELCOME.
    with scripted(lambda _, tag: frame(0x84, tag + 1)) as (address, _):
        with Client(address, timeout=2, on_event=events.append) as client:
            with pytest.raises(DeadlineError):
                client.ping()
            wait_until(lambda: len(events) > 1)
    assert isinstance(events[0], Connected)
    assert isinstance(events[1], Failed)


def test_a_refused_question_leaves_no_connection_open() -> None:
    refused = struct.pack("<HBBI", 2, 0, 0, 0)
    with scripted(lambda kind, tag: frame(0xFF, tag, refused) if kind == 0x02 else b"") as daemon:
        address, closed = daemon

        async def ask() -> None:
            with Client(address) as client:
                await _greet(
                    Dialer(client._shared.options.endpoints[0], client._shared.options), info()
                )
            assert await asyncio.get_running_loop().run_in_executor(None, closed.wait, 5)

        asyncio.run(ask())


def test_in_turns_an_endpoint_that_says_stay_rests_also_if_that_is_told() -> None:
    asked: list[int] = []

    def answer(kind: int, tag: int) -> bytes:
        if kind != 0x01:
            return b""
        asked.append(tag)
        return frame(0xFF, tag, struct.pack("<HBBI", 6, 1, 0, 50_000))

    with scripted(answer) as (one, _), scripted(answer) as (other, _):
        with Client([one, other], take_turns=True) as client:
            with pytest.raises(RefusedError):
                client.batch(1)
            for _ in range(2):
                with pytest.raises(SnowbankError):
                    client.batch(1, timeout=0.2)
    assert len(asked) == 2


def test_batches_double_while_they_are_drawn_quickly(fake: str) -> None:
    with Client(fake, timeout=20) as client:
        ids = client.ids()
        assert [ids.next() for _ in range(40_000)] == list(range(1, 40_001))
        stats = client.stats()
        assert stats.calls < 60 and stats.ids == 40_000


def test_figures_count_what_buffers_still_have(fake: str) -> None:
    with Client(fake, timeout=20) as client:
        ids = client.ids()
        drawn = [ids.next() for _ in range(5)] + client.batch(100)
        found = client.stats()
        assert isinstance(found, Stats)
        assert (len(drawn), found.ids, found.dropped, found.endpoint) == (105, 105, 0, fake)


def test_a_call_that_is_late_before_it_asks_draws_nothing(fake: str) -> None:
    with Client(fake, timeout=20) as client:
        client.ping()
        for _ in range(100):
            with pytest.raises(DeadlineError):
                client.batch(1_000, timeout=1e-6)
        assert client.batch(1) == [1]


@pytest.mark.parametrize("clock", ["until", "wall_until"])
def test_ids_that_either_clock_calls_old_are_dropped(fake: str, clock: str) -> None:
    with Client(fake, timeout=20) as client:
        ids, took = client.ids(), []
        for due in (1, 17):
            began = time.monotonic()
            assert ids.next() == due
            took.append(time.monotonic() - began)
            time.sleep(0.5)
            setattr(ids._stock, clock, 0.0)
        found = client.stats()
        assert (found.ids, found.dropped) == (2, 15)
        assert found.oldest_ms / 1000 <= max(took), "the age of IDs that were dropped"


def after_each_run(
    client: Client, monkeypatch: pytest.MonkeyPatch, do: Callable[[Any], None]
) -> None:
    run = client._run

    def then(work: Any, by: Any) -> Any:
        found = run(work, by)
        do(found)
        return found

    monkeypatch.setattr(client, "_run", then)


def test_an_id_that_grew_old_before_its_thread_went_on_is_dropped(
    fake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(fake, timeout=20) as client:
        ids = client.ids()

        def blocks(found: Any) -> None:
            if found[0] == 1:
                ids._stock.until = 0.0

        after_each_run(client, monkeypatch, blocks)
        assert ids.next() == 17
        assert client.stats().ids == 1


def test_a_close_with_a_time_takes_no_id_from_a_call_that_has_it(
    fake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(fake, timeout=20) as client:
        ids = client.ids()
        after_each_run(client, monkeypatch, lambda _: client.close(timeout=5))
        assert ids.next() == 1


def test_the_age_counts_from_the_request() -> None:
    """A program that was stopped reads late what came long ago."""
    batch = Next(1, b"", 0.0)
    batch.began, batch.began_wall, batch.good_for_s = 100.0, 2000.0, 1.0
    from collections import deque  # noqa: PLC0415

    stock = Stock(batch, deque([1]))
    assert (stock.until, stock.wall_until) == (101.0, 2001.0)


def test_an_event_whose_function_ends_its_thread(fake: str) -> None:
    def leave(_: Event) -> None:
        sys.exit(3)

    with Client(fake, timeout=20, on_event=leave) as client:
        assert client.batch(1) == [1]


def test_an_event_whose_function_calls_its_own_client(fake: str) -> None:
    drawn: list[int] = []
    with Client(fake, timeout=20, on_event=lambda _: drawn.extend(client.batch(1))) as client:
        drawn += client.batch(1)
        wait_until(lambda: sorted(drawn) == [1, 2])


def test_no_call_waits_for_the_function_for_events(fake: str) -> None:
    goes_on = threading.Event()
    events: list[Event] = []

    def wait(event: Event) -> None:
        events.append(event)
        goes_on.wait(60)

    with Client(fake, timeout=5, on_event=wait) as client:
        assert client.batch(1) == [1]
        wait_until(lambda: events)
        assert client.batch(1) == [2]
    goes_on.set()


def test_a_finalizer_on_the_clients_own_thread_does_not_wait_for_itself(fake: str) -> None:
    errors: list[RuntimeError] = []

    def finalize() -> None:
        try:
            client.ping()
        except RuntimeError as error:
            errors.append(error)
        client.close()

    with Client(fake, timeout=20) as client:
        client.ping()
        calls = client._shared.calls
        assert isinstance(calls, _ThreadCalls)
        calls.soon(finalize)
        wait_until(lambda: errors)
    assert "would wait for itself" in str(errors[0])


def test_a_thread_that_cannot_start_is_an_error_of_the_call(
    fake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    with Client(fake, timeout=20) as client:
        with monkeypatch.context() as scarce:
            scarce.setattr(_thread, "start_new_thread", refuse)
            with pytest.raises(EndpointError, match="this process: can't start new thread"):
                client.ping()
        client.ping()


def test_a_thread_whose_loop_cannot_run_is_an_error_of_the_call(
    fake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a second client under gevent."""

    def refuse(_: object) -> None:
        raise RuntimeError("another loop is running")

    with Client(fake, timeout=20) as client:
        with monkeypatch.context() as patched:
            patched.setattr(asyncio.SelectorEventLoop, "run_forever", refuse)
            with pytest.raises(EndpointError, match="this process: another loop is running"):
                client.ping(timeout=1)
        client.ping()


def test_a_clients_last_calls_are_those_of_exit_handlers(fake: str) -> None:
    """Also of one that was registered before the client was made."""
    program = """
import atexit, sys
atexit.register(lambda: print(client.batch(1)))
from snowbank_client import Client
client = Client(sys.argv[1])
print(client.batch(1))
"""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE / "src")}
    assert run(PYTHON, "-c", program, fake, env=environment) == "[1]\n[2]\n"


def test_what_a_signal_handler_raises_reaches_the_caller() -> None:
    def stop(*_: object) -> None:
        raise RuntimeError("the handler's own")

    before = signal.signal(signal.SIGALRM, stop)
    try:
        with scripted(lambda kind, _: b"") as (address, _), Client(address, timeout=20) as client:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(RuntimeError, match="the handler's own"):
                client.ping()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_close_while_a_connection_is_made_leaves_no_fault() -> None:
    faults = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: faults.append(context))
        server = await asyncio.start_server(Daemon().serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        for turns in range(100):
            client = AsyncClient(f"{host}:{port}", timeout=20)
            call = asyncio.ensure_future(client.ping())
            for _ in range(turns):
                await asyncio.sleep(0)
            await client.aclose()
            await asyncio.gather(call, return_exceptions=True)
        server.close()

    asyncio.run(main())
    assert not faults


def test_a_close_that_is_cancelled_ends_the_connections() -> None:
    async def main(address: str) -> None:
        client = AsyncClient(address, timeout=60)
        call = asyncio.ensure_future(client.ping())
        await asyncio.sleep(0.2)
        closing = asyncio.ensure_future(client.aclose(timeout=60))
        await asyncio.sleep(0.05)
        closing.cancel()
        with pytest.raises(ClosedError):
            await asyncio.wait_for(call, 10)

    with scripted(lambda kind, _: b"") as (address, _):
        asyncio.run(main(address))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks begin in a turn of their own")
def test_a_dial_that_fails_before_its_task_is_known_is_repeated(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "socket")

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(vars(asyncio)["eager_task_factory"])
        async with AsyncClient(f"unix:{path}", timeout=10) as client:
            with pytest.raises(DeadlineError):
                await client.ping(timeout=0.2)
            server = await asyncio.start_unix_server(Daemon().serve, path)
            assert await client.batch(1) == [1]
            server.close()

    asyncio.run(main())


def test_figures_wait_while_another_thread_makes_a_buffer(fake: str) -> None:
    with Client(fake) as client:
        scraper = threading.Thread(target=client.stats)
        # As a new buffer holds it.
        with client._shared.lock:
            scraper.start()
            scraper.join(0.3)
            assert scraper.is_alive()
        scraper.join()
