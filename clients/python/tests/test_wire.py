"""The vectors of docs/protocol.md, and replies that break its promises."""

from __future__ import annotations

from itertools import chain

import pytest
from support import ROOT

from snowbank_client import _wire
from snowbank_client._wire import BadReplyError, Frame, FrameReader, IdCollector, Next

VECTORS = ROOT / "tests" / "vectors"


def vectors(name: str) -> dict[str, bytes]:
    lines = (VECTORS / f"{name}.txt").read_text().splitlines()
    rows = (line.split(" | ") for line in lines if line and not line.startswith("#"))
    return {row[0]: bytes.fromhex(row[2]) for row in rows}


def test_requests_are_the_vectors() -> None:
    wanted = vectors("requests")
    longest = Next(2**32 - 1, 65535, 65534, explicit=True, partial=True)
    encoded = {
        "next": _wire.encode_next(7, Next(1000), 0),
        "next-explicit": _wire.encode_next(258, Next(3, 1, 0, explicit=True), 1),
        "next-partial": _wire.encode_next(8, Next(40000, 0, 250, partial=True), 0),
        "next-explicit-partial": _wire.encode_next(65535, longest, 65535),
        "info": _wire.encode_info(1),
        "ping": _wire.encode_ping(2, b"snowbank"),
        "ping-empty": _wire.encode_ping(3, b""),
        "auth": _wire.encode_auth(0, b"s3cret"),
    }
    assert encoded == wanted


def read(data: bytes) -> Frame:
    """Feeds a frame byte by byte."""
    reader = FrameReader()
    for byte in data[:-1]:
        reader.feed(bytes([byte]))
        assert reader.next() is None
    reader.feed(data[-1:])
    frame = reader.next()
    assert frame is not None and reader.next() is None
    return frame


def ids_of(count: int, *names: str) -> list[int]:
    collector, known = IdCollector(Next(count)), vectors("replies")
    for name in names:
        runs = collector.add(read(known[name]))
    assert runs is not None
    return list(chain.from_iterable(runs))


FIRST = 1541815603606036480


def test_replies_are_the_vectors() -> None:
    replies = vectors("replies")
    assert {name for name in replies if read(replies[name])} == set(replies)
    assert ids_of(1000, "runs") == list(range(FIRST, FIRST + 1000))
    second = FIRST + (1 << 22)
    both = [*range(FIRST, FIRST + 4096), *range(second, second + 904)]
    assert ids_of(5000, "runs-two") == both
    assert ids_of(5000, "runs-more", "runs-last") == both
    assert ids_of(3, "runs-stride") == [1478484776931081 + 100 * n for n in range(3)]
    assert len(ids_of(3, "list")) == 3
    too_busy = _wire.parse_refusal(read(replies["error-too-busy"]).body)
    assert too_busy == (10, 1.0, "10000 connections")


def run(first: int, count: int, stride: int = 1, flags: int = 0) -> Frame:
    return Frame(_wire.RUNS, flags, 1, _wire._RUN.pack(first, count, stride))


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([run(5, 0)], "a run of no IDs"),
        ([run(5, 3, 0)], "do not increase"),
        ([run(5, 2, flags=1), run(6, 1)], "do not increase"),
        ([run(5, 4)], "more than the 3 IDs"),
        ([run(5, 2)], "has 2 IDs and 3 were asked for"),
        ([run(2**64 - 2, 3)], "beyond 64 bits"),
        ([run(5, 1, flags=1), Frame(_wire.LIST, 0, 1, bytes(8))], "wrong kind"),
        ([Frame(_wire.LIST, 0, 1, bytes([2] * 16 + [1] * 8))], "do not increase"),
        ([Frame(_wire.OK, 0, 1, b"")], "wrong kind"),
    ],
)
def test_broken_promises_are_found(frames: list[Frame], reason: str) -> None:
    collector = IdCollector(Next(3))
    with pytest.raises(BadReplyError, match=reason):
        for frame in frames:
            collector.add(frame)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "in HTTP"),
        (b"<html>", "in HTTP"),
        (b"-ERR unknown command\r\n", "as Redis does"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "in text"),
        (b"\x15\x03\x01\x00\x02\x02\x0a", "write tls:host:port"),
        (b"\0\0\0\0", "a length of 0"),
        (b"\x04\0\0\0\x99\0\0\0", "kind 0x99"),
        (b"\x04\0\0\0\x85\x01\0\0", "flags 0x01"),
        (b"\x05\0\0\0\x85\0\0\0\0", "a body of 1 bytes"),
    ],
)
def test_other_protocols_are_named(answer: bytes, reason: str) -> None:
    reader = FrameReader()
    reader.feed(answer)
    with pytest.raises(BadReplyError, match=reason):
        reader.next()


def test_a_refusal_reads_as_one_line() -> None:
    body = _wire._ERROR_HEAD.pack(6, 0, 1200) + b"40000 IDs\nare\x1b[31m too many \xff"
    assert (
        _wire.parse_refusal(body).message == "40000 IDs are [31m too many \N{REPLACEMENT CHARACTER}"
    )
