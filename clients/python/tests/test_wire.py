"""The frames of docs/protocol.md, and replies that break its promises."""

from __future__ import annotations

import struct
from itertools import chain

import pytest

from snowbank_client import _wire
from snowbank_client._wire import BadReplyError, Hello, Next, info, ping


def test_requests_are_the_vectors() -> None:
    next_ = Next(1000, b"", 65.535).encode(7)
    assert next_ == bytes.fromhex("0a000000 01 00 0700 e8030000 ffff")
    orders = Next(3, b"orders", 0.0, partial=True).encode(258)
    assert orders == bytes.fromhex("10000000 01 02 0201 03000000 0000 6f7264657273")
    assert Hello(b"").encode(1) == bytes.fromhex("0e000000 04 00 0100 534e4f570d0a0d0a 01 00")
    assert Hello(b"s3cret").encode(1)[-8:] == b"\x01\0s3cret"
    assert info().encode(1) == bytes.fromhex("04000000 02 00 0100")
    assert ping().encode(2) == bytes.fromhex("0c000000 03 00 0200 736e6f7762616e6b")


def run(first: int, count: int, stride: int = 1) -> bytes:
    return struct.pack("<QII", first, count, stride)


FIRST = 1541815603606036480


def test_runs_and_lists_are_read() -> None:
    one = Next(1000, b"", 1.0)
    assert one.add(_wire._RUNS, 0, bytes.fromhex("00a017621fa16515 e8030000 01000000"))
    assert list(chain.from_iterable(one.runs)) == list(range(FIRST, FIRST + 1000))
    two = Next(5, b"", 1.0)
    assert not two.add(_wire._RUNS, 0xF1, run(10, 2, 5))
    assert two.add(_wire._RUNS, 0, run(20, 1) + run(30, 2))
    assert list(chain.from_iterable(two.runs)) == [10, 15, 20, 30, 31]
    three = Next(2, b"", 1.0)
    assert three.add(_wire._LIST, 0, struct.pack("<QQ", 7, 2**63 - 1))
    assert list(chain.from_iterable(three.runs)) == [7, 2**63 - 1]


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([(_wire._RUNS, 0, run(5, 0))], "a run of 0 IDs"),
        ([(_wire._RUNS, 0, run(5, 3, 0))], "a stride of 0"),
        ([(_wire._RUNS, 1, run(5, 2)), (_wire._RUNS, 0, run(6, 1))], "came after 6"),
        ([(_wire._RUNS, 0, run(5, 4))], "more than the 3 IDs"),
        ([(_wire._RUNS, 0, run(5, 2))], "2 IDs came, and 3 were asked for"),
        ([(_wire._RUNS, 0, run(2**63 - 2, 3))], "came after -1"),
        ([(_wire._RUNS, 1, run(5, 1)), (_wire._LIST, 0, bytes(8))], "no reply to the request"),
        ([(_wire._LIST, 0, bytes([2] * 16 + [1] * 8))], "do not increase"),
        ([(_wire._LIST, 0, b"")], "does not hold IDs"),
        ([(_wire._WELCOME, 0, b"")], "no reply to the request"),
    ],
)
def test_broken_promises_are_found(frames: list[tuple[int, int, bytes]], reason: str) -> None:
    request = Next(3, b"", 1.0)
    with pytest.raises(BadReplyError, match=reason):
        for frame in frames:
            request.add(*frame)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "answers 'HTTP/1.1 400 Bad Request': is this"),
        (b"<html>", "answers '<html>': is this"),
        (b"-ERR unknown command\r\n", "answers '-ERR unknown command': is this"),
        (b"\r\nSSH-2.0-OpenSSH_9.2\r\n", "answers 'SSH-2.0-OpenSSH_9.2': is this"),
        (b"\x15\x03\x01\x00\x02\x02\x0a", "write tls:host:port"),
        (b"\0\0\0\0", "a length of 0"),
    ],
)
def test_other_protocols_are_named(answer: bytes, reason: str) -> None:
    import re  # noqa: PLC0415

    length = int.from_bytes(answer[:4], "little")
    assert re.search(reason, _wire.what_answers(length, answer))


def test_a_refusal_reads_as_one_line() -> None:
    body = struct.pack("<HBBI", 6, 9, 0, 1200) + b"40000 IDs\nare\x1b[31m too many \xff"
    error = _wire.refusal("ids-1:7660", body)
    assert (error.code, error.action, error.retry_after) == ("exhausted", "tell", 1.2)
    assert error.message == "40000 IDs are [31m too many \N{REPLACEMENT CHARACTER}"
