"""A scripted daemon in a process of its own: it greets, and hands out 1, 2, 3, …

Without an argument it listens on a free port. It prints its address.
"""

from __future__ import annotations

import asyncio
import struct
import sys

WELCOME = struct.pack("<BBHIQ", 1, 0, 1_000, 1_000_000, 7)


class Daemon:
    """What it has handed out so far."""

    def __init__(self) -> None:
        self._next = 1

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the requests of one connection."""
        try:
            while True:
                length, kind, _, tag = struct.unpack("<IBBH", await reader.readexactly(8))
                body = await reader.readexactly(length - 4)
                answer, reply = 0x85, WELCOME
                if kind == 0x03:
                    answer, reply = 0x84, body
                elif kind == 0x01:
                    (count,) = struct.unpack_from("<I", body)
                    answer, reply = 0x81, struct.pack("<QII", self._next, count, 1)
                    self._next += count
                writer.write(struct.pack("<IBBH", 4 + len(reply), answer, 0, tag) + reply)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


async def main(port: int) -> None:
    """Listens until it is killed."""
    server = await asyncio.start_server(Daemon().serve, "127.0.0.1", port)
    print(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
