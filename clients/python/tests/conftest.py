"""Fixtures: real daemons."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
from support import Daemon, built


@pytest.fixture(scope="session")
def program() -> str:
    """The daemon's program."""
    return built("SNOWBANK_DAEMON", "snowbank", "--bin", "snowbank")


@pytest.fixture
def daemons(program: str, tmp_path: pathlib.Path) -> Iterator[list[Daemon]]:
    """Two daemons with different worker IDs."""
    both = [Daemon(program, worker, tmp_path) for worker in (1, 2)]
    try:
        for daemon in both:
            daemon.start()
        yield both
    finally:
        for daemon in both:
            daemon.end()
