"""Rules that the cases of all clients do not reach, against a scripted daemon."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from support import PYTHON

from snowbank_client import Client, DeadlineError, Event, Stats
from snowbank_client._buffer import Stock
from snowbank_client._wire import Next


@pytest.fixture
def fake() -> Iterator[str]:
    """The address of a scripted daemon."""
    program = str(pathlib.Path(__file__).with_name("fake.py"))
    daemon = subprocess.Popen([PYTHON, program], stdout=subprocess.PIPE, text=True)
    assert daemon.stdout is not None
    try:
        yield daemon.stdout.readline().strip()
    finally:
        daemon.kill()
        daemon.wait()


def test_batches_double_while_they_are_drawn_quickly(fake: str) -> None:
    with Client(fake, timeout=20) as client:
        ids = client.ids()
        assert [ids.next() for _ in range(40_000)] == list(range(1, 40_001))
        stats = client.stats()
        assert stats.calls < 20 and stats.ids == 40_000


def test_figures_count_what_buffers_still_have(fake: str) -> None:
    with Client(fake, timeout=20) as client:
        ids = client.ids()
        drawn = [ids.next() for _ in range(5)] + client.batch(100)
        found = client.stats()
        assert isinstance(found, Stats)
        assert (len(drawn), found.ids, found.dropped, found.endpoint) == (105, 105, 0, fake)


def test_a_call_that_is_late_before_it_asks_draws_nothing(fake: str) -> None:
    with Client(fake, timeout=20) as client:
        client.ping()
        for _ in range(100):
            with pytest.raises(DeadlineError):
                client.batch(1_000, timeout=1e-6)
        assert client.batch(1) == [1]


@pytest.mark.parametrize("clock", ["until", "wall_until"])
def test_ids_that_either_clock_calls_old_are_dropped(fake: str, clock: str) -> None:
    with Client(fake, timeout=20) as client:
        ids = client.ids()
        assert ids.next() == 1
        time.sleep(0.5)
        setattr(ids._stock, clock, 0.0)
        assert ids.next() == 17
        found = client.stats()
        assert (found.ids, found.dropped) == (2, 15)
        assert found.oldest_ms < 500, "the age of IDs that were dropped"


def test_the_age_counts_from_the_request() -> None:
    """A program that was stopped reads late what came long ago."""
    batch = Next(1, b"", 0.0)
    batch.began, batch.began_wall, batch.good_for_s = 100.0, 2000.0, 1.0
    from collections import deque  # noqa: PLC0415

    stock = Stock(batch, deque([1]))
    assert (stock.until, stock.wall_until) == (101.0, 2001.0)


def test_an_event_whose_function_ends_its_thread(fake: str) -> None:
    def leave(_: Event) -> None:
        sys.exit(3)

    with Client(fake, timeout=20, on_event=leave) as client:
        assert client.batch(1) == [1]


def test_an_event_whose_function_calls_its_own_client(fake: str) -> None:
    errors: list[RuntimeError] = []

    def call(_: Event) -> None:
        try:
            client.ping()
        except RuntimeError as error:
            errors.append(error)

    with Client(fake, timeout=20, on_event=call) as client:
        assert client.batch(1) == [1]
        assert "call it from another thread" in str(errors[0])


def test_figures_wait_while_another_thread_makes_a_buffer(fake: str) -> None:
    with Client(fake) as client:
        scraper = threading.Thread(target=client.stats)
        # As a new buffer holds it.
        with client._shared.lock:
            scraper.start()
            scraper.join(0.3)
            assert scraper.is_alive()
        scraper.join()
