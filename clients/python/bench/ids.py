"""Measures an ID from the buffer, one by one and in batches, and the longest wait in a kill.

    bench/ids.py SNOWBANK          (the path of a release build)

It starts two daemons, and a Redis beside them if redis-server and redis-py are there. Each figure
is the best of five rounds.
"""

from __future__ import annotations

import asyncio
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent / "tests")]

from support import Daemon, free_port  # noqa: E402

from snowbank_client import AsyncClient, Client  # noqa: E402

ROUNDS = 5


def report(name: str, ids: int, work: Callable[[], object]) -> None:
    """Prints the time for each ID of work that draws so many."""
    best = min(seconds(work) for _ in range(ROUNDS))
    print(f"{name:48} {best / ids * 1e9:12,.0f} ns an ID")


def seconds(work: Callable[[], object]) -> float:
    """Returns the time that work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def repeat(count: int, call: Callable[[], object]) -> Callable[[], object]:
    """Returns work that makes a call so many times."""

    def work() -> None:
        for _ in range(count):
            call()

    return work


def snowbank(addresses: list[str]) -> None:
    """Measures the client for threads."""
    with Client(addresses) as client:
        ids = client.ids()
        ids.next()
        report("Client, ids().next()", 1_000_000, repeat(1_000_000, ids.next))
        report("Client, batch(1)", 2_000, repeat(2_000, lambda: client.batch(1)))
        report("Client, list(batch(1000))", 500_000, repeat(500, lambda: list(client.batch(1000))))


async def snowbank_with_asyncio(addresses: list[str]) -> None:
    """Measures the client for asyncio."""
    async with AsyncClient(addresses) as client:
        ids = client.ids()
        best = {"ids().next()": 1e9, "batch(1)": 1e9}
        for _ in range(ROUNDS):
            began = time.perf_counter()
            for _ in range(500_000):
                await ids.next()
            between = time.perf_counter()
            for _ in range(2_000):
                await client.batch(1)
            ended = time.perf_counter()
            best["ids().next()"] = min(best["ids().next()"], (between - began) / 500_000)
            best["batch(1)"] = min(best["batch(1)"], (ended - between) / 2_000)
        for name, found in best.items():
            print(f"{'AsyncClient, ' + name:48} {found * 1e9:12,.0f} ns an ID")


@contextmanager
def redis_server(folder: str) -> Iterator[int]:
    """Starts a Redis, and yields its port."""
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
    options += ["--save", "", "--appendonly", "no"]
    server = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
    try:
        yield port
    finally:
        server.terminate()
        server.wait()


def redis(folder: str) -> None:
    """Measures redis-py with a Redis."""
    try:
        import redis as redis_py  # noqa: PLC0415
    except ImportError:
        print("missing: redis-py")
        return
    with redis_server(folder) as port:
        client = redis_py.Redis(port=port, retry_on_error=[ConnectionError])
        while True:
            try:
                client.ping()
                break
            except redis_py.ConnectionError:
                time.sleep(0.02)
        report("redis-py, INCR", 2_000, repeat(2_000, lambda: client.incr("ids")))

        def block() -> list[int]:
            last = int(client.incrby("ids", 1000))
            return list(range(last - 999, last + 1))

        report("redis-py, INCRBY 1000", 500_000, repeat(500, block))


def longest_next(daemons: list[Daemon], number: int) -> float:
    """Returns the longest `next()` in seconds while the daemon in use gets a signal."""
    with Client([daemon.address for daemon in daemons]) as client:
        ids = client.ids()
        longest, ends = 0.0, time.perf_counter() + 3
        strikes: float | None = time.perf_counter() + 1
        while time.perf_counter() < ends:
            longest = max(longest, seconds(ids.next))
            if strikes is not None and time.perf_counter() > strikes:
                daemons[0].signal(number)
                strikes = None
    return longest


def main(program: str) -> None:
    """Measures everything."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ends:
        daemons = [Daemon(program, worker, pathlib.Path(folder)) for worker in (1, 2)]
        for daemon in daemons:
            daemon.start()
            ends.callback(daemon.end)
        addresses = [daemon.address for daemon in daemons]
        snowbank(addresses)
        asyncio.run(snowbank_with_asyncio(addresses))
        redis(folder)
        for name, number in [("kill -9", signal.SIGKILL), ("SIGSTOP", signal.SIGSTOP)]:
            longest_ms = max(_one(daemons, number) for _ in range(3)) * 1e3
            print(f"{'longest next(), ' + name + ' of its daemon':48} {longest_ms:12,.1f} ms")


def _one(daemons: list[Daemon], number: int) -> float:
    longest = longest_next(daemons, number)
    if number == signal.SIGSTOP:
        daemons[0].signal(signal.SIGCONT)
    else:
        daemons[0].start()
    return longest


if __name__ == "__main__":
    main(sys.argv[1])
