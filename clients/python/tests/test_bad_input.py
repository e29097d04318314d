"""Arguments and uses that are not allowed: an error says what was found and what to do."""

from __future__ import annotations

import asyncio
import pathlib
import pickle
from typing import Any

import pytest
from support import Daemon, run

import snowbank_client
from snowbank_client import AsyncClient, Client, ClosedError, RefusedError, WrongLoopError

NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("", "it is empty; write ids-1:7660"),
        ("7660", "the port is missing"),
        ("ids-1", "write ids-1:7660"),
        ("ids-1:", "the port '' is not a number"),
        ("ids-1:0", "nobody listens on port 0"),
        ("ids-1:65536", "above 65535"),
        ("ids-1:-1", "not a number"),
        ("ids-1:7660\u0660", "not a number"),
        (":7660", "the host is missing"),
        ("::1:7660", r"write? ?.*brackets|brackets"),
        ("[::1]", r"write \[::1\]:7660"),
        ("[ids]:7660", "not an IPv6 address"),
        ("256.0.0.1:7660", "not an IPv4 address"),
        ("http://ids-1:7660", "leave out the scheme"),
        ("ids 1:7660", "cannot be part of a host name"),
        ("tls:unix:/run/x", "takes no TLS"),
        ("/run/x", "written unix:/run/x"),
        ("unix:", "write the path"),
        ("unix:" + "/x" * 60, "at most 107"),
    ],
)
def test_what_is_no_address(kind: Any, address: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        kind([address])


def test_no_address_and_no_text() -> None:
    with pytest.raises(ValueError, match="at least one is needed"):
        Client([])
    with pytest.raises(TypeError, match="7660"):
        Client([7660])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("count", "error"),
    [(0, ValueError), (-1, ValueError), (2**40, ValueError), (1.5, TypeError), ("3", TypeError)],
)
def test_counts(count: Any, error: type[Exception]) -> None:
    with Client(NOWHERE) as client, pytest.raises(error, match=f"count is {count!r}"):
        client.batch(count)


@pytest.mark.parametrize("value", [0, -1, float("nan")])
@pytest.mark.parametrize("name", ["timeout", "connect_timeout", "answer_timeout"])
def test_deadlines(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} is {value} s; it must be above 0"):
        Client(NOWHERE, **{name: value})  # type: ignore[arg-type]
    with Client(NOWHERE) as client:
        with pytest.raises(ValueError, match="above 0"):
            client.batch(1, timeout=value)
        with pytest.raises(ValueError, match="above 0"):
            client.ids(timeout=value)
        with pytest.raises(ValueError, match="above 0"):
            client.ids(max_age=value)


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
    client = Client(NOWHERE, token_file=str(file))
    assert "s3cret" not in repr(client) + repr(client._state.options)
    assert client._state.options.read_token() == b"s3cret"
    assert "s3cret" not in repr(Client(NOWHERE, token="s3cret")._state.options)
    file.write_text("two\nlines\n")
    with pytest.raises(ValueError, match="newline"):
        Client(NOWHERE, token_file=str(file))
    with pytest.raises(ValueError, match="cannot be read"):
        Client(NOWHERE, token_file=str(tmp_path / "none"))
    with pytest.raises(ValueError, match="give one of them"):
        Client(NOWHERE, token="a", token_file=str(file))


def test_tls_files_are_checked_at_once(tmp_path: pathlib.Path) -> None:
    pem = tmp_path / "no.pem"
    pem.write_text("no certificate\n")
    with pytest.raises(ValueError, match="TLS files do not fit"):
        Client("tls:" + NOWHERE, ca_file=str(pem))
    with pytest.raises(ValueError, match="cert_file cannot be read"):
        Client("tls:" + NOWHERE, cert_file=str(tmp_path / "none"))
    with pytest.raises(ValueError, match="begins with tls:"):
        Client(NOWHERE, ca_file=str(pem))
    keys = []
    for name in ("one", "two"):
        key, cert = (str(tmp_path / f"{name}.{end}") for end in ("key", "crt"))
        options = ["-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-days", "1"]
        run("openssl", "req", "-x509", *options, "-keyout", key, "-out", cert)
        keys.append((cert, key))
    with pytest.raises(ValueError, match="does not belong to the certificate"):
        Client("tls:" + NOWHERE, cert_file=keys[0][0], key_file=keys[1][1])


def test_use_after_close(daemons: list[Daemon]) -> None:
    client = Client(daemons[0].address)
    ids = client.ids()
    ids.next()
    client.close()
    client.close()
    for use in (ids.next, lambda: client.batch(1), client.info):
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
        with pytest.raises(snowbank_client.NoSuchSourceError, match="no source named 'orders'"):
            client.batch(1, source="orders")
        with pytest.raises(RefusedError, match="unknown_source"):
            client.batch(1, source=9)
        # A buffer asks for less by itself.
        assert client.ids(max_batch=4_000_000_000).next() > 0


def test_errors_survive_pickling() -> None:
    lost = snowbank_client.LostError("ids-1:7660", "closed")
    for error in (
        RefusedError("ids-1:7660", 6, 1.5, "too many"),
        snowbank_client.DeadlineError(5.0, None, lost),
        snowbank_client.EndpointsError([lost, lost]),
        snowbank_client.SameWorkerIdsError("a:1", "b:1", 3, "time:41"),
        ClosedError(),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))
    assert isinstance(lost, ConnectionError)
