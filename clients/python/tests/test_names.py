"""A name that resolves to many addresses, and endpoints in turn."""

from __future__ import annotations

import asyncio
import pathlib
import signal
import socket
import time
from collections.abc import Iterator

import pytest
from support import PATIENT, Daemon, free_port

from snowbank_client import Batch, Client, UnreachableError, _dial
from snowbank_client._dial import SocketAddress
from snowbank_client._pool import Deadline, Endpoint, Pool, Target
from snowbank_client.client import _State

NAME = "ids.example"


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
            return [SocketAddress(socket.AF_INET, (one, port)) for one in self.hosts]
        return [SocketAddress(socket.AF_INET, (host, port))]


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    found = Resolver()
    monkeypatch.setattr(_dial, "resolve", found)
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


def host_of(batch: Batch) -> str:
    """Returns the IP address in the endpoint's name."""
    return batch.endpoint.partition("(")[2].rstrip(")")


def test_every_address_of_a_name_serves(fleet: dict[str, Daemon], resolver: Resolver) -> None:
    resolver.hosts = list(fleet)
    with Client(address_of(fleet), **PATIENT) as client:
        drawn: list[int] = []
        for _ in range(3):
            batch = client.batch(100)
            assert client.batch(1).endpoint == batch.endpoint, "it stays while that one serves"
            drawn += batch
            fleet[host_of(batch)].signal(signal.SIGKILL)
        assert len(set(drawn)) == 300
        with pytest.raises(Exception, match="no answer within"):
            client.batch(1, timeout=4)


def test_a_name_is_looked_up_again(fleet: dict[str, Daemon], resolver: Resolver) -> None:
    resolver.hosts = ["127.0.0.2"]
    with Client(address_of(fleet), **PATIENT) as client:
        client.batch(1)
        assert resolver.lookups == 1
        resolver.hosts = ["127.0.0.3"]
        client.batch(1)
        assert resolver.lookups == 1, "a connection that serves is kept"
        fleet["127.0.0.2"].signal(signal.SIGKILL)
        assert client.batch(1)
        assert resolver.lookups > 1


def test_a_name_without_an_address_is_an_error(resolver: Resolver) -> None:
    with Client(f"{NAME}:7660") as client:
        with pytest.raises(TimeoutError, match=f"{NAME}:7660: its lookup failed: Name or service"):
            client.batch(1, timeout=4)
        assert isinstance(client.endpoint_errors()[0], UnreachableError)


def served(client: Client, count: int) -> set[str]:
    return {client.batch(1).endpoint for _ in range(count)}


def until(client: Client, wanted: int) -> None:
    """Draws until that many endpoints serve in turn."""
    deadline = time.monotonic() + 20
    while len(served(client, 6)) != wanted:
        assert time.monotonic() < deadline, (wanted, client.endpoint_errors())
        time.sleep(0.05)


def until_served_by(client: Client, endpoint: str) -> None:
    deadline = time.monotonic() + 20
    while client.batch(1).endpoint != endpoint:
        assert time.monotonic() < deadline, client.endpoint_errors()
        time.sleep(0.01)


def test_turns_leave_the_sick_and_take_them_back(
    fleet: dict[str, Daemon], resolver: Resolver
) -> None:
    resolver.hosts = list(fleet)
    options = {**PATIENT, "take_turns": True, "backoff": (0.05, 0.2)}
    with Client(address_of(fleet), **options) as client:
        until(client, 3)
        sick = fleet["127.0.0.2"]
        sick.signal(signal.SIGKILL)
        assert client.batch(1)
        until(client, 2)
        sick.start()
        until(client, 3)


def test_turns_over_a_list(fleet: dict[str, Daemon]) -> None:
    addresses = [daemon.address for daemon in fleet.values()]
    with Client(addresses, **PATIENT, take_turns=True) as client:
        until(client, 3)
        turns = [client.batch(1).endpoint for _ in range(9)]
        assert turns[:3] * 3 == turns


def test_a_new_address_that_a_call_dials_is_not_dialed_twice(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call comes after the lookup, and before the dial that waits for it goes on."""
    resolver.hosts = ["127.0.0.1"]
    dialed: list[Target] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        pool = Pool(Client(f"{NAME}:7660")._state.options, loop)
        update, is_dialed = pool._update, asyncio.Event()

        def update_and_call(endpoint: Endpoint, found: tuple[SocketAddress, ...]) -> None:
            update(endpoint, found)
            loop.call_soon(pool.flush)

        async def connect(target: Target) -> None:
            dialed.append(target)
            is_dialed.set()
            await asyncio.sleep(60)

        monkeypatch.setattr(pool, "_update", update_and_call)
        monkeypatch.setattr(pool, "connect", connect)
        call = loop.create_task(pool.info(Deadline(loop, 20)))
        await asyncio.wait_for(is_dialed.wait(), 10)
        for _ in range(50):
            await asyncio.sleep(0)
        assert dialed == pool.targets
        assert not call.done()
        await pool.close()

    asyncio.run(main())


def test_clients_of_a_name_spread_over_its_addresses() -> None:
    async def first() -> object:
        options = Client("ids.example:7660")._state.options
        pool = Pool(options, asyncio.get_running_loop())
        found = tuple(SocketAddress(2, (f"10.0.0.{n}", 7660)) for n in range(8))
        pool._update(pool.targets[0].endpoint, found)
        assert {target.where for target in pool.targets} == set(found)
        return pool.targets[0].where

    assert len({asyncio.run(first()) for _ in range(64)}) > 1


def test_prefer_first_keeps_the_order_of_a_name() -> None:
    found = tuple(SocketAddress(2, (f"10.0.0.{n}", 7660)) for n in (3, 1, 2))

    async def order() -> list[object]:
        options = Client("ids.example:7660", prefer_first=True)._state.options
        pool = Pool(options, asyncio.get_running_loop())
        pool._update(pool.targets[0].endpoint, found)
        return [target.where for target in pool.targets]

    for _ in range(20):
        assert asyncio.run(order()) == list(found)


def test_prefer_first_looks_an_earlier_name_up(
    fleet: dict[str, Daemon], resolver: Resolver
) -> None:
    addresses = [address_of(fleet), fleet["127.0.0.2"].address]
    with Client(addresses, **PATIENT, prefer_first=True) as client:
        assert client.batch(1).endpoint == addresses[1]
        resolver.hosts = ["127.0.0.1"]
        until_served_by(client, addresses[0])


def test_prefer_first_uses_an_earlier_name_at_its_new_address(
    fleet: dict[str, Daemon], resolver: Resolver
) -> None:
    resolver.hosts = ["127.0.0.2"]
    addresses = [address_of(fleet), fleet["127.0.0.1"].address]
    with Client(addresses, **PATIENT, prefer_first=True) as client:
        assert client.batch(1).endpoint == addresses[0]
        fleet["127.0.0.2"].end()
        assert client.batch(1).endpoint == addresses[1]
        resolver.hosts = ["127.0.0.3"]
        until_served_by(client, addresses[0])


def test_back_off_grows_to_its_limit_and_varies() -> None:
    state: _State = Client(["ids-1:7660"], backoff=(0.05, 5.0))._state
    pool = Pool(state.options, asyncio.new_event_loop())
    for failures, limit in [(1, 0.05), (2, 0.1), (5, 0.8), (9, 5.0), (10_000, 5.0)]:
        pauses = [pool._backoff(failures) for _ in range(300)]
        assert limit / 2 < max(pauses) <= limit
        assert min(pauses) < limit / 4
    pool.loop.close()
