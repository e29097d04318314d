"""A name, an address, a socket, TLS, HELLO, WELCOME: each with its limit.

What answers otherwise is the endpoint's failure, in its words.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
import threading
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple, TypeVar

from ._address import Address
from ._errors import EndpointError, describe
from ._options import Options
from ._row import Row
from ._wire import Hello, Welcome

T = TypeVar("T")


@dataclass(frozen=True)
class SocketAddress:
    """One socket address of an endpoint."""

    family: int
    #: As Python's `socket` takes it.
    where: Any


class _Prepared(NamedTuple):
    """What a connection needs beforehand. All of it may block."""

    found: list[SocketAddress]
    token: bytes | None
    context: ssl.SSLContext | None


class Connection(NamedTuple):
    """A connection that has been greeted."""

    row: Row
    welcome: Welcome


class Dialer:
    """Makes the connections of one endpoint."""

    def __init__(self, address: Address, options: Options) -> None:
        self._address, self._options = address, options
        #: Look-ups that never end are not joined by further ones.
        self._preparing: asyncio.Future[_Prepared] | None = None
        self._last: SocketAddress | None = None

    async def dial(self) -> Connection:
        """Connects and greets. Raises EndpointError, or RefusedError if a daemon says so."""
        limit = self._options.times.connect
        try:
            return await asyncio.wait_for(self._dial(), limit)
        except asyncio.TimeoutError:
            raise self._error(f"it accepts, and does not greet within {limit:g} s") from None

    async def _dial(self) -> Connection:
        try:
            prepared = await self._prepare()
            opened = await self._open(prepared.found)
        except (OSError, ValueError) as error:
            if isinstance(error, EndpointError):
                raise
            raise self._error(describe(error)) from None
        row = Row(str(self._address), opened, self._options.times.answer)
        loop = asyncio.get_running_loop()
        try:
            if self._address.path:
                await loop.create_unix_connection(lambda: row, sock=opened)
            else:
                server_name = self._options.server_name or self._address.host.partition("%")[0]
                name = server_name if prepared.context else None
                await loop.create_connection(
                    lambda: row, sock=opened, ssl=prepared.context, server_hostname=name
                )
            return Connection(row, await row.send(Hello(prepared.token)))
        except BaseException as error:
            row.end(self._error("the dial was given up"))
            if isinstance(error, (OSError, ValueError)) and not isinstance(error, EndpointError):
                raise self._error(describe(error)) from None
            raise

    async def _prepare(self) -> _Prepared:
        """Looks the name up, and reads the files."""
        address, options = self._address, self._options
        if not (address.is_name or address.tls or options.token_file):
            return _prepare(address, options)
        if self._preparing is None or self._preparing.done():
            self._preparing = _in_thread(lambda: _prepare(address, options))
        limit = options.times.resolve
        await asyncio.wait({self._preparing}, timeout=limit)
        if not self._preparing.done():
            raise self._error(f"its name was not resolved within {limit:g} s")
        return self._preparing.result()

    async def _open(self, found: list[SocketAddress]) -> socket.socket:
        """Connects to the first address that accepts, from the one behind the last on."""
        start = random.randrange(len(found))
        if self._last in found:
            start = found.index(self._last) + 1
        reasons = []
        for where in found[start:] + found[:start]:
            self._last = where
            opened = socket.socket(where.family, socket.SOCK_STREAM)
            try:
                opened.setblocking(False)
                if not self._address.path:
                    # Without it the kernel may hold a small request back.
                    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connecting = asyncio.get_running_loop().sock_connect(opened, where.where)
                await asyncio.wait_for(connecting, self._options.times.accept)
            except (OSError, asyncio.TimeoutError) as error:
                opened.close()
                ip = f" ({where.where[0]})" if self._address.is_name else ""
                reasons.append(f"cannot connect: {describe(error)}{ip}")
            except BaseException:
                opened.close()
                raise
            else:
                return opened
        raise self._error(", ".join(reasons))

    def _error(self, reason: str) -> EndpointError:
        return EndpointError(str(self._address), reason)


def resolve(host: str, port: int) -> list[SocketAddress]:
    """Looks a name up. Tests put another function in its place."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(SocketAddress(family, where) for family, _, _, _, where in found))


def _prepare(address: Address, options: Options) -> _Prepared:
    if address.path:
        found = [SocketAddress(getattr(socket, "AF_UNIX", 0), address.path)]
    else:
        found = resolve(address.host, address.port)
    if not found:
        raise OSError("the name has no address")
    return _Prepared(found, options.read_token(), options.tls_context() if address.tls else None)


def _in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Runs work that may block in a thread of its own, which does not keep the process alive."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    # Nobody may wait for it any more.
    done.add_done_callback(lambda ended: ended.cancelled() or ended.exception())

    def deliver(result: T | None, error: Exception | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as raised:
            error = raised
        # The loop may be closed by now.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(deliver, result, error)

    threading.Thread(target=run, name="snowbank-lookup", daemon=True).start()
    return done
