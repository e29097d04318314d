"""Arguments and uses that are not allowed: an error says what was found and what to do."""

from __future__ import annotations

import asyncio
import pathlib
import pickle
import socket
from typing import Any

import pytest
from support import Daemon, run

import snowbank_client
from snowbank_client import AsyncClient, Client, ClosedError, RefusedError, WrongLoopError

NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "7660",
        "ids-1",
        "ids-1:",
        "ids-1:0",
        "ids-1:65536",
        "ids-1:-1",
        "ids-1:7660\u0660",
        ":7660",
        "::1:7660",
        "[::1]",
        "[ids]:7660",
        "256.0.0.1:7660",
        "ids 1:7660",
        "ids-1:7660\n",
        "tls:unix:/run/x",
        "/run/x",
        "unix:",
        "unix:/run/",
        "unix:" + "/x" * 60,
    ],
)
def test_what_is_no_endpoint(kind: Any, endpoint: str) -> None:
    with pytest.raises(ValueError, match=r"write .*unix:PATH") as caught:
        kind([endpoint])
    assert repr(endpoint) in str(caught.value)


def test_a_scheme_is_left_out() -> None:
    with pytest.raises(ValueError, match="leave out the scheme"):
        Client("http://ids-1:7660")


def test_what_is_an_endpoint() -> None:
    for good in ("ids-1:7660", "[::1]:7660", "[fe80::1%eth0]:7660", "127.0.0.1:07660", "tls:a.b:1"):
        Client(good)


def test_no_endpoint_and_no_text() -> None:
    nothing: Any
    for nothing in ([], None, ()):
        with pytest.raises(ValueError, match="at least one is needed"):
            Client(nothing)
    for wrong in (7660, [7660], b"ids-1:7660", [b"7660"], {7660: None}):
        with pytest.raises(TypeError, match=r"this is .*7660"):
            Client(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("source", ["", "x" * 65, "\N{SNOWFLAKE}" * 22])
def test_sources(source: str) -> None:
    with Client(NOWHERE) as client:
        for use in (lambda: client.batch(1, source=source), lambda: client.ids(source=source)):
            with pytest.raises(ValueError, match="1 to 64 are allowed"):
                use()
    with pytest.raises(ValueError, match="1 to 64 are allowed"):
        Client(NOWHERE, source=source)
    with pytest.raises(TypeError, match="a name is needed"):
        Client(NOWHERE, source=9)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("count", "error"),
    [(0, ValueError), (-1, ValueError), (2**40, ValueError), (1.5, TypeError), ("3", TypeError)],
)
def test_counts(count: Any, error: type[Exception]) -> None:
    with Client(NOWHERE) as client, pytest.raises(error, match=f"count is {count!r}"):
        client.batch(count)


@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_deadlines(value: float) -> None:
    with pytest.raises(ValueError, match=f"timeout is {value} s; it must be above 0"):
        Client(NOWHERE, timeout=value)
    with Client(NOWHERE) as client:
        for use in (
            lambda: client.batch(1, timeout=value),
            lambda: client.ids(timeout=value),
            lambda: client.ids().next(timeout=value),
            lambda: client.ping(timeout=value),
            lambda: client.close(timeout=value),
        ):
            with pytest.raises(ValueError, match="above 0"):
                use()


def test_a_deadline_of_none_and_a_huge_one(daemons: list[Daemon]) -> None:
    with pytest.raises(TypeError, match="a number of seconds"):
        Client(NOWHERE, timeout=None)  # type: ignore[arg-type]
    with Client(daemons[0].address, timeout=float("inf")) as client:
        assert client.batch(1, timeout=10**30) and client.ids(timeout=1e300).next()


def test_tokens_are_checked_and_not_shown(tmp_path: pathlib.Path) -> None:
    secret = "s3cret\nmore"
    with pytest.raises(ValueError, match="the token holds a newline; strip it") as caught:
        Client(NOWHERE, token=secret)
    assert "s3cret" not in str(caught.value)
    for bad in ("", "x" * 513):
        with pytest.raises(ValueError, match="1 to 512 are allowed"):
            Client(NOWHERE, token=bad)
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    assert Client(NOWHERE, token_file=file)._shared.options.read_token() == b"s3cret"
    client = Client(NOWHERE, token_file=str(file))
    assert "s3cret" not in repr(client) + repr(client._shared.options)
    assert client._shared.options.read_token() == b"s3cret"
    assert "s3cret" not in repr(Client(NOWHERE, token="s3cret")._shared.options)
    file.write_text("two\nlines\n")
    with pytest.raises(ValueError, match="newline"):
        Client(NOWHERE, token_file=str(file))
    with pytest.raises(ValueError, match="cannot be read"):
        Client(NOWHERE, token_file=str(tmp_path / "none"))
    with pytest.raises(ValueError, match="give one of them"):
        Client(NOWHERE, token="a", token_file=str(file))


@pytest.mark.parametrize("name", ["token_file", "ca_file", "cert_file", "server_name", "on_event"])
def test_files_and_functions_that_are_none(name: str) -> None:
    # A number would be a file that is open already, such as the standard input.
    for value in (0, b"x", False):
        with pytest.raises(TypeError, match=f"{name} is {value!r}; a .* is needed"):
            Client("tls:" + NOWHERE, **{name: value})  # type: ignore[arg-type]


def test_tls_files_are_checked_at_once(tmp_path: pathlib.Path) -> None:
    pem = tmp_path / "no.pem"
    pem.write_text("no certificate\n")
    with pytest.raises(ValueError, match="TLS files do not fit"):
        Client("tls:" + NOWHERE, ca_file=str(pem))
    with pytest.raises(ValueError, match=r"a file cannot be read: .*none"):
        Client("tls:" + NOWHERE, cert_file=str(tmp_path / "none"), key_file=str(pem))
    for name in ("cert_file", "key_file"):
        with pytest.raises(ValueError, match="give both, or neither"):
            Client("tls:" + NOWHERE, **{name: str(pem)})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="begins with tls:"):
        Client(NOWHERE, ca_file=str(pem))
    keys = []
    for name in ("one", "two"):
        key, cert = (str(tmp_path / f"{name}.{end}") for end in ("key", "crt"))
        options = ["-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-days", "1"]
        run("openssl", "req", "-x509", *options, "-keyout", key, "-out", cert)
        keys.append((cert, key))
    with pytest.raises(ValueError, match="key values mismatch"):
        Client("tls:" + NOWHERE, cert_file=keys[0][0], key_file=keys[1][1])


def test_use_after_close(daemons: list[Daemon]) -> None:
    client = Client(daemons[0].address)
    ids = client.ids()
    ids.next()
    client.close()
    client.close()
    for use in (ids.next, lambda: client.batch(1), client.ping):
        with pytest.raises(ClosedError, match="closed: create a new one"):
            use()


def test_use_after_close_of_asyncio(daemons: list[Daemon]) -> None:
    async def main() -> None:
        client = AsyncClient(daemons[0].address)
        ids = client.ids()
        await ids.next()
        await client.aclose()
        await client.aclose()
        with pytest.raises(ClosedError):
            await ids.next()
        with pytest.raises(ClosedError):
            await client.batch(1)

    asyncio.run(main())


def test_close_during_a_connect() -> None:
    """Whatever step of a connection the close meets, both end."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)

    async def main() -> None:
        for turns in range(20):
            client = AsyncClient(f"127.0.0.1:{listener.getsockname()[1]}")
            call = asyncio.ensure_future(client.batch(1, timeout=60))
            for _ in range(turns):
                await asyncio.sleep(0)
            await asyncio.wait_for(client.aclose(), 20)
            with pytest.raises(ClosedError):
                await asyncio.wait_for(call, 20)
        assert len(asyncio.all_tasks()) == 1

    with listener:
        asyncio.run(main())


def test_two_loops(daemons: list[Daemon]) -> None:
    client = AsyncClient(daemons[0].address)

    async def use() -> int:
        return (await client.batch(1))[0]

    asyncio.run(use())
    with pytest.raises(WrongLoopError, match="one AsyncClient for each loop"):
        asyncio.run(use())


def test_more_than_the_daemon_allows(daemons: list[Daemon]) -> None:
    with Client(daemons[0].address) as client:
        with pytest.raises(RefusedError, match=r"bad_count.*1000000"):
            client.batch(1_000_001)
        with pytest.raises(RefusedError, match=r"unknown_source.*orders"):
            client.batch(1, source="orders")
        with pytest.raises(RefusedError, match=r"unknown_source.*orders"):
            client.ids(source="orders").next()


def test_errors_survive_pickling() -> None:
    for error in (
        RefusedError("ids-1:7660", 6, 1, 1.5, "too many"),
        snowbank_client.DeadlineError(5.0, {"ids-1:7660": "it closed the connection"}),
        snowbank_client.EndpointError("ids-1:7660", "it closed the connection"),
        snowbank_client.CollisionError(("a:1", "b:1"), 3),
        ClosedError(),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))
