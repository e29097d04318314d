#!/usr/bin/env python3
"""Draws IDs from a daemon while it is restarted, and reports the fate of all connections and IDs.

    client.py ADDRESS SECONDS

Holds 100 connections, and requests a batch on each every 20 ms. Also opens 100 connections each second for one request. If
the daemon closes a connection because it stops, opens another one. Prints one line of JSON. Exits with 1 if a connection was
refused, an ID came twice, or a reply broke the protocol.

Written from docs/protocol.md alone, without Snowbank's own client.
"""

import asyncio
import json
import struct
import sys
import time

HELD = 100
OPENED_PER_SECOND = 100
BATCH = 50
SHUTTING_DOWN = 9

seen = set()
counts = {"ids": 0, "duplicates": 0, "opened": 0, "refused": 0, "ended": 0, "shutting_down": 0, "wrong": []}
answered_at = []


def next_frame(count, tag):
    return struct.pack("<IBBHIH", 10, 0x01, 0, tag, count, 0xFFFF)


def take(body):
    for at in range(0, len(body), 16):
        first, count, stride = struct.unpack_from("<QII", body, at)
        for index in range(count):
            number = first + index * stride
            if number in seen:
                counts["duplicates"] += 1
            seen.add(number)
            counts["ids"] += 1


async def ask(reader, writer, tag):
    """Draws a batch. Returns False if the daemon stops, or if the reply breaks the protocol."""
    writer.write(next_frame(BATCH, tag))
    more = True
    while more:
        length, kind, flags, answered = struct.unpack("<IBBH", await reader.readexactly(8))
        body = await reader.readexactly(length - 4)
        if kind == 0xFF:
            code = struct.unpack_from("<H", body)[0]
            if code == SHUTTING_DOWN:
                counts["shutting_down"] += 1
                return False
            counts["wrong"].append(f"error {code}: {body[8:].decode()}")
            return False
        if kind != 0x81 or answered != tag:
            counts["wrong"].append(f"kind {kind:#x}, tag {answered}")
            return False
        take(body)
        more = flags & 1
    answered_at.append(time.monotonic())
    return True


async def connect(address):
    host, port = address.rsplit(":", 1)
    try:
        streams = await asyncio.wait_for(asyncio.open_connection(host, int(port)), 20)
    except (OSError, asyncio.TimeoutError) as error:
        counts["refused"] += 1
        counts["wrong"].append(f"connect: {error!r}")
        return None
    counts["opened"] += 1
    return streams


async def hold(address, until):
    """Requests batches on a connection. Opens another one when the daemon has closed it."""
    tag = 0
    while time.monotonic() < until:
        streams = await connect(address)
        if streams is None:
            await asyncio.sleep(0.02)
            continue
        try:
            while time.monotonic() < until:
                tag = (tag + 1) % 65_536
                if not await asyncio.wait_for(ask(*streams, tag), 20):
                    break
                await asyncio.sleep(0.02)
        except (OSError, EOFError):
            counts["ended"] += 1
        finally:
            streams[1].close()


async def once(address):
    """Requests a batch on a new connection. Tries again on another one if the daemon stops."""
    for tag in range(10):
        streams = await connect(address)
        if streams is None:
            return
        try:
            if await asyncio.wait_for(ask(*streams, tag), 20):
                return
        except (OSError, EOFError):
            counts["ended"] += 1
        finally:
            streams[1].close()


async def main(address, seconds):
    began = time.monotonic()
    until = began + seconds
    tasks = [asyncio.create_task(hold(address, until)) for _ in range(HELD)]
    opened = 0
    while time.monotonic() < until:
        while opened < (time.monotonic() - began) * OPENED_PER_SECOND:
            tasks.append(asyncio.create_task(once(address)))
            opened += 1
        await asyncio.sleep(0.005)
    await asyncio.gather(*tasks)
    gaps = [later - earlier for earlier, later in zip(answered_at, answered_at[1:])]
    counts["longest_gap_ms"] = round(1000 * max(gaps, default=float("nan")))
    counts["wrong"] = counts["wrong"][:5]
    print(json.dumps(counts))
    return 1 if counts["refused"] or counts["duplicates"] or counts["wrong"] or not counts["ids"] else 0


sys.exit(asyncio.run(main(sys.argv[1], float(sys.argv[2]))))
