"""Real daemons: kills, forks, processes and threads, and no ID twice."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import logging
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
from support import PACKAGE, PYTHON, Daemon, built, missing, run

from snowbank_client import AsyncClient, Client, Connected, Event, ForkedError, Ids, SnowbankError

COUNT = 20_000


def addresses(daemons: list[Daemon]) -> list[str]:
    return [daemon.address for daemon in daemons]


def test_a_kill_in_between(daemons: list[Daemon]) -> None:
    with Client(addresses(daemons), timeout=20, prefer_first=True) as client:
        ids = client.ids()
        drawn = [ids.next() for _ in range(COUNT)]
        daemons[0].signal(signal.SIGKILL)
        drawn += [ids.next() for _ in range(COUNT)]
        drawn += client.batch(COUNT)
        assert len(set(drawn)) == 3 * COUNT
        stats = client.stats()
        assert stats.endpoint == daemons[1].address and stats.failures >= 1
        assert stats.ids == 3 * COUNT and stats.oldest_ms < 1000


def test_a_kill_in_between_with_asyncio(daemons: list[Daemon]) -> None:
    async def main() -> None:
        async with AsyncClient(addresses(daemons), timeout=20) as client:
            ids = client.ids()
            drawn: list[int] = []

            async def draw() -> None:
                for _ in range(COUNT // 10):
                    drawn.append(await ids.next())
                    await asyncio.sleep(0)

            await asyncio.gather(*(draw() for _ in range(10)))
            daemons[0].signal(signal.SIGKILL)
            await asyncio.gather(*(draw() for _ in range(10)))
            assert len(set(drawn)) == 2 * COUNT

    asyncio.run(main())


def test_threads_share_a_buffer(daemons: list[Daemon]) -> None:
    with Client(addresses(daemons), timeout=20) as client:
        ids = client.ids()
        drawn: list[list[int]] = [[] for _ in range(8)]

        def draw(mine: list[int]) -> None:
            mine.extend(ids.next() for _ in range(COUNT))

        threads = [threading.Thread(target=draw, args=(mine,)) for mine in drawn]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(mine == sorted(mine) for mine in drawn)
        assert len({one for mine in drawn for one in mine}) == 8 * COUNT


def in_child(work: Callable[[], object]) -> str:
    """Forks, and returns what the work printed as JSON in the child."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        found = pipe.read()
    os.waitpid(child, 0)
    return found


def test_a_fork_gets_other_ids(daemons: list[Daemon]) -> None:
    with Client(addresses(daemons), timeout=20) as client:
        ids = client.ids()
        drawn = {ids.next() for _ in range(1000)}
        child = json.loads(
            in_child(lambda: [ids.next() for _ in range(500)] + list(client.batch(9)))
        )
        grandchild = json.loads(in_child(lambda: json.loads(in_child(lambda: [ids.next()]))))
        drawn |= {ids.next() for _ in range(1000)}
        assert len(drawn) == 2000 and len(set(child)) == 509
        assert drawn.isdisjoint(child) and drawn.isdisjoint(grandchild)


def test_a_fork_while_threads_hold_the_buffer(daemons: list[Daemon]) -> None:
    with Client(addresses(daemons), timeout=20) as client:
        ids = client.ids()
        ended = threading.Event()
        drawn: set[int] = set()

        def draw() -> None:
            while not ended.is_set():
                drawn.add(ids.next())

        threads = [threading.Thread(target=draw) for _ in range(3)]
        for thread in threads:
            thread.start()
        children = [json.loads(in_child(lambda: [ids.next() for _ in range(5)])) for _ in range(20)]
        ended.set()
        for thread in threads:
            thread.join()
        forked = [one for child in children for one in child]
        assert len(set(forked)) == 100 and drawn.isdisjoint(forked)


def test_a_fork_of_asyncio_is_an_error(daemons: list[Daemon]) -> None:
    async def main() -> None:
        async with AsyncClient(addresses(daemons), timeout=20) as client:
            ids = client.ids()
            await ids.next()

            def use() -> list[str]:
                found = []
                for call in (ids.next(), client.batch(1)):
                    with pytest.raises(ForkedError) as caught:
                        call.send(None)
                    found.append(str(caught.value))
                return found

            found = json.loads(in_child(use))
            assert len(found) == 2 and "create a new AsyncClient after the fork" in found[0]
            assert await ids.next()

    asyncio.run(main())


def draw_all(ids: Ids, count: int) -> list[int]:
    return [ids.next() for _ in range(count)]


BUFFERS: list[Ids] = []


def draw_from_the_parents(count: int) -> list[int]:
    return draw_all(BUFFERS[0], count)


def test_multiprocessing(daemons: list[Daemon]) -> None:
    with Client(addresses(daemons), timeout=20) as client:
        BUFFERS[:] = [client.ids()]
        drawn = draw_all(BUFFERS[0], 1000)
        with multiprocessing.get_context("fork").Pool(4) as pool:
            work = pool.map_async(draw_from_the_parents, [COUNT] * 8, chunksize=1)
            time.sleep(0.05)
            daemons[0].signal(signal.SIGKILL)
            drawn += draw_all(BUFFERS[0], COUNT)
            for found in work.get(60):
                drawn += found
        assert len(set(drawn)) == len(drawn) == 1000 + 9 * COUNT


def test_faults_of_twenty_kinds(program: str) -> None:
    """Kills, stops and ends of two daemons while threads draw."""
    conformance = built(
        "SNOWBANK_CONFORMANCE", "snowbank-conformance", "--package", "snowbank-conformance"
    )
    seconds = os.environ.get("SNOWBANK_FAULT_SECONDS", "20")
    faults = subprocess.Popen(
        [conformance, "against_daemons", "--daemon", program, "--seconds", seconds],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert faults.stdin is not None and faults.stdout is not None and faults.stderr is not None
    try:
        line = faults.stdout.readline()
        if not line:
            missing(f"against_daemons: {faults.stderr.read()}")
        client = Client(json.loads(line)["endpoints"], timeout=20)
        ids = client.ids()
        ended = threading.Event()
        drawn: list[list[int]] = [[] for _ in range(4)]
        errors: list[BaseException] = []

        def draw(mine: list[int], one_by_one: bool) -> None:
            try:
                while not ended.is_set():
                    if one_by_one:
                        mine.extend(ids.next() for _ in range(50))
                    else:
                        batch = client.batch(100)
                        assert list(batch) == sorted(batch)
                        mine.extend(batch)
                    time.sleep(0.001)
            except (SnowbankError, AssertionError) as error:
                errors.append(error)

        threads = [
            threading.Thread(target=draw, args=(mine, index % 2 == 0))
            for index, mine in enumerate(drawn)
        ]
        for thread in threads:
            thread.start()
        while json.loads(faults.stdout.readline())["event"] != "calm":
            pass
        ended.set()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive(), "a call did not end"
        assert not errors, errors
        assert client.batch(1) and ids.next()
        client.close()
        everything = [one for mine in drawn for one in mine]
        assert len(set(everything)) == len(everything) > 0
    finally:
        faults.stdin.close()
        faults.wait(20)


def test_the_end_of_an_unreachable_client_waits_for_no_lock(daemons: list[Daemon]) -> None:
    """The garbage collector runs anywhere, also where the client's lock is held."""
    held = [Client(addresses(daemons))]
    held[0].batch(1)
    with held[0]._shared.lock:
        end = threading.Thread(target=held.clear)
        end.start()
        end.join(20)
        assert not end.is_alive()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="handlers run after next() has its ID, too")
def test_a_fork_in_a_signal_handler(daemons: list[Daemon]) -> None:
    """Wherever the handler interrupts `next()`, parent and child go on with different IDs."""
    program = str(pathlib.Path(__file__).with_name("fork_in_handler.py"))
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE / "src")}
    printed = run(PYTHON, program, daemons[0].address, "4", env=environment)
    assert "forks, 0 with an ID twice" in printed, printed


def test_dropped_clients_leave_no_thread_and_no_socket(daemons: list[Daemon]) -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    gc.collect()
    threads, files = threading.active_count(), open_files()
    for _ in range(50):
        Client(daemons[0].address).ids().next()
    gc.collect()
    deadline = time.monotonic() + 20
    while threading.active_count() > threads or open_files() > files:
        assert time.monotonic() < deadline, (threading.active_count(), open_files())
        time.sleep(0.02)


def test_ids_are_iterators(daemons: list[Daemon]) -> None:
    with Client(daemons[0].address) as client:
        assert len(set(itertools.islice(client.ids(), 100))) == 100

    async def main() -> None:
        async with AsyncClient(daemons[0].address) as client:
            drawn = set()
            async for one in client.ids():
                drawn.add(one)
                if len(drawn) == 100:
                    return

    asyncio.run(main())


def test_events_are_logged_and_silent_by_default(
    daemons: list[Daemon], caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Event] = []
    with caplog.at_level(logging.DEBUG, "snowbank_client"):
        with Client(daemons[0].address, on_event=heard.append) as client:
            client.ping()
            deadline = time.monotonic() + 20
            while not heard and time.monotonic() < deadline:
                time.sleep(0.01)
    assert heard == [Connected(daemons[0].address)]
    assert "Connected" in caplog.text
    handlers = logging.getLogger("snowbank_client").handlers
    assert any(isinstance(one, logging.NullHandler) for one in handlers)
