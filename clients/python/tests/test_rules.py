"""Rules that the cases of all clients do not reach."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from support import PATIENT

from snowbank_client import (
    Client,
    DeadlineError,
    LostError,
    SameWorkerIdsError,
    SnowbankError,
    _same_workers,
)
from snowbank_client._clock import CLOCK
from snowbank_client._pool import Pool


class Fake:
    """A daemon that is silent after some answers."""

    def __init__(self, answers: int = 1000) -> None:
        self._answers = answers
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._next_id = 1
        #: The counts of the requests for IDs.
        self.asked: list[int] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            # A client that abandoned its call is gone.
            with suppress(OSError), connection, connection.makefile("rb") as requests:
                self._serve_one(connection, requests)

    def _serve_one(self, connection: socket.socket, requests: Any) -> None:
        while True:
            head = requests.read(8)
            if len(head) < 8:
                return
            length, kind, _, tag = struct.unpack("<IBBH", head)
            body = requests.read(length - 4)
            if kind == 1:
                self.asked.append(struct.unpack_from("<I", body)[0])
                self._answers -= 1
                if self._answers < 0:
                    continue
            code, reply = self._answer(kind, body)
            connection.sendall(struct.pack("<IBBH", 4 + len(reply), code, 0, tag) + reply)

    def _answer(self, kind: int, body: bytes) -> tuple[int, bytes]:
        if kind == 3:
            return 0x84, body
        if kind == 2:
            sources = [{"index": 0, "name": "default"}]
            return 0x83, json.dumps({"protocol": 1, "max_count": 9, "sources": sources}).encode()
        (count,) = struct.unpack_from("<I", body)
        self._next_id += count
        return 0x81, struct.pack("<QII", self._next_id - count, count, 1)

    def end(self) -> None:
        # It wakes the thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextmanager
def fake(answers: int = 1000) -> Iterator[Fake]:
    """Runs a fake daemon in a thread."""
    daemon = Fake(answers)
    thread = threading.Thread(target=daemon.serve, daemon=True)
    thread.start()
    try:
        yield daemon
    finally:
        daemon.end()


def test_one_deadline_covers_all_tries() -> None:
    ended: list[SnowbankError] = []

    def call() -> None:
        try:
            client.batch(1, max_wait=0, timeout=4)
        except SnowbankError as error:
            ended.append(error)

    with fake(answers=0) as daemon:
        client = Client(daemon.address, answer_timeout=0.05, backoff=(0.001, 0.002))
        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(30)
        assert ended and isinstance(ended[0], DeadlineError)
        assert daemon.address in str(ended[0])


def test_others_come_first_however_short_the_back_off_is() -> None:
    with fake(answers=0) as silent, fake() as other:
        addresses = [silent.address, other.address]
        options = {**PATIENT, "answer_timeout": 5.0, "backoff": (1e-9, 1e-9)}
        with Client(addresses, **options) as client:
            assert client.batch(1, max_wait=0).endpoint == other.address
        assert silent.asked == [1]


def test_fetches_start_small_and_follow_the_demand() -> None:
    with fake() as daemon:
        with Client(daemon.address, **PATIENT) as client:
            ids = client.ids(max_age=3600)
            assert [ids.next() for _ in range(5000)] == list(range(1, 5001))
        asked = daemon.asked
        assert asked[0] == 16 and max(asked) > 1000
        assert all(later <= 4 * one for one, later in zip(asked, asked[1:]))


def test_one_look_at_equal_worker_ids_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that passes its worker ID on looks like two for a moment."""
    collision = SameWorkerIdsError("ids-1:7660", "ids-2:7660", 1, "time:41")
    found = [collision, None]
    seen: list[SnowbankError | None] = []

    async def main() -> None:
        state = Client(["ids-1:7660", "ids-2:7660"])._state
        pool = Pool(state.options, asyncio.get_running_loop())

        async def look(_check: object) -> list[Any]:
            seen.append(pool.collision)
            return [None, None]

        async def known() -> None:
            pass

        monkeypatch.setattr(_same_workers, "CONFIRMATION_S", 0.001)
        monkeypatch.setattr(_same_workers.Check, "_look", look)
        monkeypatch.setattr(_same_workers, "find", lambda _: found.pop(0))
        monkeypatch.setattr(pool, "look_up_all", known)
        await asyncio.wait_for(pool._check._run(0.0), 10)
        seen.append(pool.collision)

    asyncio.run(main())
    assert seen == [None, None, None]


def test_the_age_of_ids_counts_the_machines_sleep() -> None:
    assert getattr(time, "CLOCK_BOOTTIME", CLOCK) == CLOCK


@pytest.mark.parametrize(("has_answered", "failures"), [(False, 3), (True, 1)])
def test_an_answer_sets_the_back_off_back(has_answered: bool, failures: int) -> None:
    """A greeting does not, or a daemon that greets and fails each call is asked without a pause."""

    async def main() -> int:
        state = Client("127.0.0.1:1")._state
        pool = Pool(state.options, asyncio.get_running_loop())
        (target,) = pool.targets
        for _ in range(3):
            ended: Any = SimpleNamespace(has_answered=has_answered)
            target.connection = ended
            pool._ended(ended, LostError(target.name, "closed"))
        return target.failures

    assert asyncio.run(main()) == failures
