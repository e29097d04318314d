"""Measures what an ID costs with the client, and with redis-py. clients/bench runs it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable
from typing import Callable

from snowbank_client import AsyncClient, Client

ROUNDS = 7
STRETCHES = 500
#: Enough for the clock's grain, and so few that most stretches see no refill.
STRETCH = 1_000
CALLS = 1_000


def measure(handle: str, what: str, count: int, work: Callable[[], object]) -> None:
    """Prints a row: whose it is, what was measured, and the time for each of `count` IDs."""
    began = time.perf_counter_ns()
    work()
    print(f"{handle}\t{what}\t{(time.perf_counter_ns() - began) / count}")


def repeat(count: int, call: Callable[[], object]) -> Callable[[], None]:
    """Returns work that makes a call so many times."""

    def work() -> None:
        for _ in range(count):
            call()

    return work


def with_threads(address: str, redis_address: str) -> None:
    """Measures the client for threads, and redis-py."""
    import redis  # noqa: PLC0415

    host, port = redis_address.split(":")
    counter = redis.Redis(host, int(port))

    def block() -> list[int]:
        last = int(counter.incrby("ids", STRETCH))
        return list(range(last - STRETCH + 1, last + 1))

    with Client(address) as client:
        ids = client.ids()
        for _ in range(ROUNDS):
            for _ in range(STRETCHES):
                measure("Client", "buffer", STRETCH, repeat(STRETCH, ids.next))
            measure("Client", "one", CALLS, repeat(CALLS, lambda: client.batch(1)))
            batches = repeat(CALLS, lambda: client.batch(STRETCH))
            measure("Client", "batch", CALLS * STRETCH, batches)
            measure("redis", "incr", CALLS, repeat(CALLS, lambda: counter.incr("ids")))
            measure("redis", "incrby", CALLS * STRETCH, repeat(CALLS, block))


async def measure_async(
    what: str, calls: int, ids: int, call: Callable[[], Awaitable[object]]
) -> None:
    """Prints a row of the client for asyncio."""
    began = time.perf_counter_ns()
    for _ in range(calls):
        await call()
    print(f"AsyncClient\t{what}\t{(time.perf_counter_ns() - began) / ids}")


async def with_asyncio(address: str) -> None:
    """Measures the client for asyncio."""
    async with AsyncClient(address) as client:
        ids = client.ids()

        async def batch() -> list[int]:
            return await client.batch(STRETCH)

        for _ in range(ROUNDS):
            for _ in range(STRETCHES):
                await measure_async("buffer", STRETCH, STRETCH, ids.next)
            await measure_async("one", CALLS, CALLS, lambda: client.batch(1))
            await measure_async("batch", CALLS, CALLS * STRETCH, batch)


def longest(addresses: list[str], drawing_s: float) -> None:
    """Draws 100 IDs each millisecond, and prints the longest `next()` in ms."""
    with Client(addresses) as client:
        ids = client.ids()
        ids.next()
        print("drawing", flush=True)
        longest_ns, end = 0, time.monotonic() + drawing_s
        while time.monotonic() < end:
            for _ in range(100):
                began = time.perf_counter_ns()
                ids.next()
                longest_ns = max(longest_ns, time.perf_counter_ns() - began)
            time.sleep(0.001)
        print(longest_ns / 1e6)


async def longest_with_asyncio(addresses: list[str], drawing_s: float) -> None:
    """Does the same with asyncio."""
    async with AsyncClient(addresses) as client:
        ids = client.ids()
        await ids.next()
        print("drawing", flush=True)
        longest_ns, end = 0, time.monotonic() + drawing_s
        while time.monotonic() < end:
            for _ in range(100):
                began = time.perf_counter_ns()
                await ids.next()
                longest_ns = max(longest_ns, time.perf_counter_ns() - began)
            await asyncio.sleep(0.001)
        print(longest_ns / 1e6)


def clients(address: str, count: int) -> None:
    """Makes clients with a buffer each, and keeps them until it is killed."""
    kept = []
    for _ in range(count):
        client = Client(address)
        ids = client.ids()
        ids.next()
        kept.append((client, ids))
    print("ready", flush=True)
    time.sleep(60)


def main(what: str, first: str, second: str) -> None:
    """Measures what the arguments say."""
    if what == "ids":
        with_threads(first, second)
        asyncio.run(with_asyncio(first))
    elif what == "longest":
        longest(first.split(","), float(second))
    elif what == "longest-async":
        asyncio.run(longest_with_asyncio(first.split(","), float(second)))
    else:
        clients(first, int(second))


if __name__ == "__main__":
    main(*sys.argv[1:])
