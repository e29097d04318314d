"""A name that resolves to many addresses, and rests."""

from __future__ import annotations

import _thread
import asyncio
import pathlib
import signal
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support import Daemon, free_port

from snowbank_client import Client, DeadlineError, EndpointError, RefusedError, _dial, _options
from snowbank_client._dial import Dialer, SocketAddress
from snowbank_client._options import Options, Times
from snowbank_client._rest import Endpoints

NAME = "ids.example"


def options(*names: str, **more: Any) -> Options:
    files = (None,) * 6
    turns = (more.get("prefer_first", False), more.get("take_turns", False), None)
    return Options(_options.endpoints(names), None, 5.0, *files, *turns)


class Resolver:
    """A name service of one name."""

    def __init__(self) -> None:
        self.hosts: list[str] = []
        self.lookups = 0

    def __call__(self, host: str, port: int) -> list[SocketAddress]:
        if host == NAME:
            self.lookups += 1
            if not self.hosts:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            return [(socket.AF_INET, (one, port)) for one in self.hosts]
        return [(socket.AF_INET, (host, port))]


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    found = Resolver()
    monkeypatch.setattr(_dial, "resolve", found)
    monkeypatch.setattr(_options, "TIMES", Times(answer=60.0, connect=60.0, accept=60.0))
    return found


@pytest.fixture
def fleet(program: str, tmp_path: pathlib.Path) -> Iterator[dict[str, Daemon]]:
    """Three daemons at one port of three addresses of this machine."""
    port = free_port()
    hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    daemons = {
        host: Daemon(program, index, tmp_path, f"{host}:{port}") for index, host in enumerate(hosts)
    }
    try:
        for daemon in daemons.values():
            daemon.start()
        yield daemons
    finally:
        for daemon in daemons.values():
            daemon.end()


def address_of(fleet: dict[str, Daemon]) -> str:
    return f"{NAME}:{next(iter(fleet.values())).address.split(':')[1]}"


def test_every_address_of_a_name_serves(fleet: dict[str, Daemon], resolver: Resolver) -> None:
    resolver.hosts = list(fleet)
    with Client(address_of(fleet), timeout=20) as client:
        drawn: list[int] = []
        for daemon in fleet.values():
            drawn += client.batch(100)
            daemon.signal(signal.SIGKILL)
        assert len(set(drawn)) == 300
        with pytest.raises(DeadlineError, match="cannot connect"):
            client.batch(1, timeout=1)


def test_a_name_is_looked_up_again(fleet: dict[str, Daemon], resolver: Resolver) -> None:
    resolver.hosts = ["127.0.0.2"]
    with Client(address_of(fleet), timeout=20) as client:
        client.batch(1)
        resolver.hosts = ["127.0.0.3"]
        client.batch(1)
        assert resolver.lookups == 1, "a connection that serves is kept"
        fleet["127.0.0.2"].signal(signal.SIGKILL)
        assert client.batch(1)
        assert resolver.lookups > 1


def test_a_name_without_an_address_is_an_error(resolver: Resolver) -> None:
    with Client(f"{NAME}:7660") as client:
        with pytest.raises(TimeoutError, match=f"{NAME}:7660: Name or service not known"):
            client.batch(1, timeout=0.5)


def test_a_lookup_that_hangs_is_given_up_and_not_repeated(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading  # noqa: PLC0415

    goes_on, lookups = threading.Event(), []

    def hang(host: str, port: int) -> list[SocketAddress]:
        lookups.append(host)
        goes_on.wait(60)
        raise OSError("too late")

    monkeypatch.setattr(_dial, "resolve", hang)
    monkeypatch.setattr(_options, "TIMES", Times(resolve=0.05))
    with Client(f"{NAME}:7660") as client:
        with pytest.raises(TimeoutError, match=r"its name was not resolved within 0\.05 s"):
            client.batch(1, timeout=1)
        goes_on.set()
    assert lookups == [NAME]


def test_a_thread_that_cannot_start_is_its_dials_failure(
    fleet: dict[str, Daemon], resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver.hosts = list(fleet)
    real, refusals = _thread.start_new_thread, ["look-up"]

    def start(function: Any, args: Any) -> int:
        if refusals and "_look_up" in function.__name__:
            refusals.clear()
            raise RuntimeError("can't start new thread")
        return real(function, args)

    monkeypatch.setattr(_thread, "start_new_thread", start)
    with Client(address_of(fleet), timeout=20) as client:
        assert len(client.batch(5)) == 5
        assert client.stats().failures == 1


def test_whatever_a_dial_raises_is_its_endpoints_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Dialer, "_dial", fail)
    with pytest.raises(EndpointError, match="MemoryError"):
        asyncio.run(Dialer(_options.endpoints("127.0.0.1:1")[0], options("127.0.0.1:1")).dial())


def test_dead_addresses_do_not_prolong_a_dial(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver.hosts = [f"127.0.0.{number}" for number in range(2, 9)]
    monkeypatch.setattr(_options, "TIMES", Times(accept=0.2, connect=0.4))
    tried = []

    async def hang(loop: asyncio.AbstractEventLoop, _: socket.socket, where: Any) -> None:
        tried.append(where)
        # The limits of an address and of the connection end in one turn of the loop.
        loop.call_later(0.06, time.sleep, 0.18)
        await asyncio.sleep(60)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_connect", hang)
    endpoint = Endpoints(options(f"{NAME}:7660")).all[0]
    with pytest.raises(EndpointError, match=r"does not greet within 0\.4 s"):
        asyncio.run(endpoint.dial())
    assert len(tried) == 2


def test_addresses_are_tried_from_the_one_behind_the_last_on(resolver: Resolver) -> None:
    resolver.hosts = ["127.0.0.2", "127.0.0.3", "127.0.0.4"]
    port = free_port()
    starts = []

    async def dial() -> None:
        endpoint = Endpoints(options(f"{NAME}:{port}")).all[0]
        for _ in range(2):
            with pytest.raises(EndpointError):
                await endpoint.dial()
            starts.append(endpoint._last)

    for _ in range(40):
        asyncio.run(dial())
    # Each dial tries all three. So the last one is that before a random first one, and stays so.
    assert len({str(last) for last in starts}) == 3
    assert starts[::2] == starts[1::2]


def test_clients_begin_with_a_random_endpoint_or_the_first() -> None:
    names = [f"ids-{n}:7660" for n in range(8)]
    assert len({Endpoints(options(*names)).pick().name for _ in range(64)}) > 1
    assert {Endpoints(options(*names, prefer_first=True)).pick().name for _ in range(64)} == {
        names[0]
    }


def test_back_off_grows_to_a_second_and_varies() -> None:
    endpoints = Endpoints(options("ids-1:7660"))
    for failures, limit in [(1, 0.05), (2, 0.1), (5, 0.8), (6, 1.0), (10_000, 1.0)]:
        pauses = [endpoints.backoff(failures) for _ in range(300)]
        assert limit / 2 < max(pauses) <= limit
        assert min(pauses) < limit / 4


def test_a_pause_is_at_most_a_second_and_as_much_again() -> None:
    endpoints = Endpoints(options("ids-1:7660"))
    assert all(0.2 <= endpoints.pause(0.2) <= 0.4 for _ in range(100))
    assert all(1.0 <= endpoints.pause(60.0) <= 2.0 for _ in range(100))


def test_a_lone_endpoint_is_asked_again_at_once_but_once() -> None:
    lone, two = Endpoints(options("ids-1:7660")), Endpoints(options("ids-1:7660", "ids-2:7660"))
    error = RefusedError("ids-1:7660", 8, 2, 1.0, "lost")
    lone.failed(lone.all[0], error)
    assert lone.all[0].rests_until == 0.0
    lone.failed(lone.all[0], error)
    assert lone.all[0].rests_until > 0.0
    first = two.pick()
    two.failed(first, error)
    assert first.rests_until > 0.0 and two.pick() is not first
