"""A name, an address, a socket, TLS, HELLO, WELCOME: each with its limit.

What answers otherwise is the endpoint's failure, in its words.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import encodings.idna  # noqa: F401  (a fork may come while another thread imports it)
import random
import socket
import ssl
from typing import Any, cast

from ._address import Address, is_ip
from ._errors import EndpointError, SnowbankError, describe
from ._options import Options
from ._row import Row
from ._wire import Hello

#: The family and address of a socket, as Python's `socket` takes them.
SocketAddress = tuple[int, Any]

#: What a connection needs beforehand: addresses, a token, and what TLS needs.
Prepared = tuple[list[SocketAddress], bytes, "ssl.SSLContext | None"]


class Dialer:
    """Makes the connections of one endpoint."""

    def __init__(self, address: Address, options: Options) -> None:
        self.name, self._address, self._options = str(address), address, options
        #: A look-up that does not end is not joined by further ones.
        self._preparing: asyncio.Future[Prepared] | None = None
        self._last: SocketAddress | None = None

    async def dial(self) -> Row:
        """Connects and greets. Raises EndpointError, or RefusedError if a daemon says so."""
        limit = self._options.times.connect
        try:
            async with _Within(limit) as end:
                return await self._dial(end)
        except SnowbankError:
            raise
        except asyncio.TimeoutError:
            raise EndpointError(self.name, f"it does not greet within {limit:g} s") from None
        except Exception as error:
            # Whatever it is, such as no memory for a thread: other dials and rounds must go on.
            raise EndpointError(self.name, describe(error)) from None

    async def _dial(self, end: float) -> Row:
        found, token, context = await self._prepare()
        opened = await self._open(found, end)
        row = Row(self.name, opened, self._options.times.answer)
        loop = asyncio.get_running_loop()
        try:
            if self._address.path:
                await loop.create_unix_connection(lambda: row, sock=opened)
            else:
                name = self._options.server_name or self._address.host.partition("%")[0]
                await loop.create_connection(
                    lambda: row,
                    sock=opened,
                    ssl=context,
                    server_hostname=name if context else None,
                )
            hello = Hello(token)
            hello.wait_s = self._options.times.connect
            row.welcome = await row.send(hello)
        except BaseException:
            row.end(EndpointError(self.name, "the greeting was given up"))
            raise
        return row

    async def _prepare(self) -> Prepared:
        """Looks the name up, and reads the files, in a thread if that may block."""
        address = self._address
        if (address.path or is_ip(address.host)) and not (address.tls or self._options.token_file):
            return self._look_up()
        if self._preparing is None or self._preparing.done():
            begun: asyncio.Future[Prepared] = asyncio.get_running_loop().create_future()
            # Nobody may wait for it any more.
            begun.add_done_callback(lambda one: one.cancelled() or one.exception())
            # Unlike those of an executor, such a thread does not keep the process alive.
            _thread.start_new_thread(self._look_up_for, (begun,))
            # Not before it runs, because further dials join it.
            self._preparing = begun
        limit = self._options.times.resolve
        await asyncio.wait({self._preparing}, timeout=limit)
        if not self._preparing.done():
            raise EndpointError(self.name, f"its name was not resolved within {limit:g} s")
        return self._preparing.result()

    def _look_up_for(self, future: asyncio.Future[Prepared]) -> None:
        # The loop may be closed by now.
        with contextlib.suppress(RuntimeError):
            try:
                future.get_loop().call_soon_threadsafe(future.set_result, self._look_up())
            except Exception as error:
                future.get_loop().call_soon_threadsafe(future.set_exception, error)

    def _look_up(self) -> Prepared:
        address, options = self._address, self._options
        found = [(getattr(socket, "AF_UNIX", 0), address.path)]
        if not address.path:
            found = resolve(address.host, address.port)
        return found, options.read_token(), options.tls_context() if address.tls else None

    async def _open(self, found: list[SocketAddress], end: float) -> socket.socket:
        """Connects to the first address that accepts, from the one behind the last on."""
        start = random.randrange(len(found))
        if self._last in found:
            start = found.index(self._last) + 1
        reasons = []
        for where in found[start:] + found[:start]:
            # If both limits end in one turn of the loop, only that of the address is raised.
            if asyncio.get_running_loop().time() >= end:
                raise asyncio.TimeoutError
            self._last = where
            opened = socket.socket(where[0], socket.SOCK_STREAM)
            try:
                opened.setblocking(False)
                if not self._address.path:
                    # Without it the kernel may hold a small request back.
                    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                async with _Within(self._options.times.accept):
                    await asyncio.get_running_loop().sock_connect(opened, where[1])
            except BaseException as error:
                opened.close()
                if not isinstance(error, (OSError, asyncio.TimeoutError)):
                    raise
                reasons.append(describe(error) if str(error) else "no answer in time")
            else:
                return opened
        raise EndpointError(self.name, f"cannot connect: {', '.join(reasons)}")


class _Within:
    """Limits the time of what a task does.

    Before Python 3.12, `asyncio.wait_for` swallows a cancellation that comes as the work ends.
    """

    def __init__(self, limit: float) -> None:
        self._limit, self._is_over = limit, False

    async def __aenter__(self) -> float:
        loop, task = asyncio.get_running_loop(), cast("asyncio.Task[Any]", asyncio.current_task())
        end = loop.time() + self._limit
        self._timer = loop.call_at(end, self._end, task)
        return end

    async def __aexit__(self, kind: object, *_: object) -> None:
        self._timer.cancel()
        if self._is_over and kind is asyncio.CancelledError:
            raise asyncio.TimeoutError

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._is_over = True
        task.cancel()


def resolve(host: str, port: int) -> list[SocketAddress]:
    """Looks a name up. Tests put another function in its place."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # Resolvers change the order from one answer to the next.
    return sorted({(family, where) for family, _, _, _, where in found})
