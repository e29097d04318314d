"""Opens connections: lookup of names, TCP, TLS and Unix sockets, all before one deadline."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from dataclasses import dataclass
from typing import Any, Callable, TypeVar

from . import _options
from ._address import Address
from ._options import Options

T = TypeVar("T")


@dataclass(frozen=True)
class SocketAddress:
    """One socket address of an endpoint."""

    family: int
    #: As Python's `socket` takes it.
    where: Any

    @property
    def ip(self) -> str:
        """Returns the IP address as text."""
        return str(self.where[0])


async def in_thread(work: Callable[[], T]) -> T:
    """Runs work that may block in a thread of its own, which does not keep the process alive."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def report(result: T | None, error: BaseException | None) -> None:
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
            loop.call_soon_threadsafe(report, result, error)

    threading.Thread(target=run, name="snowbank-lookup", daemon=True).start()
    return await done


def resolve(host: str, port: int) -> list[SocketAddress]:
    """Looks a name up. Tests put another function in its place."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(SocketAddress(family, where) for family, _, _, _, where in found))


async def look_up(address: Address) -> tuple[SocketAddress, ...]:
    """Returns the socket addresses of an endpoint."""
    if address.path:
        return (SocketAddress(getattr(socket, "AF_UNIX", 0), address.path),)
    if not address.is_name:
        # No network is asked for a literal address.
        return tuple(resolve(address.host, address.port))
    found = await in_thread(lambda: resolve(address.host, address.port))
    if not found:
        raise OSError("the name has no address")
    return tuple(found)


async def open_connection(
    address: Address,
    where: SocketAddress,
    options: Options,
    make: Callable[[], asyncio.Protocol],
) -> None:
    """Connects, with the TLS handshake if the address asks for it. It has no time limit."""
    loop = asyncio.get_running_loop()
    context = None
    if address.tls:
        context = await in_thread(lambda: _options.check_tls(options))
    opened = socket.socket(where.family, socket.SOCK_STREAM)
    try:
        opened.setblocking(False)
        if not address.path:
            # Without it the kernel may hold a small request back.
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(opened, where.where)
        name = (options.server_name or address.host).partition("%")[0] if context else None
        if address.path:
            await loop.create_unix_connection(make, sock=opened)
        else:
            await loop.create_connection(make, sock=opened, ssl=context, server_hostname=name)
    except BaseException:
        opened.close()
        raise
