"""The examples, as a user runs them: gunicorn with --preload, and several processes."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support import PACKAGE, PYTHON, Daemon, free_port, missing, run

EXAMPLES = PACKAGE / "examples"
REQUESTS = 400


def environment(daemons: list[Daemon], tmp_path: pathlib.Path) -> dict[str, str]:
    addresses = ",".join(daemon.address for daemon in daemons)
    database = str(tmp_path / "orders.sqlite3")
    return {**os.environ, "SNOWBANK": addresses, "DATABASE": database}


def need(*modules: str) -> None:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            missing(f"the package {module}")


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


@pytest.fixture
def shop(daemons: list[Daemon], tmp_path: pathlib.Path) -> Iterator[str]:
    """The address of gunicorn with four workers that it forked after the first ID was drawn."""
    need("django", "gunicorn")
    bind = f"127.0.0.1:{free_port()}"
    options = ["--preload", "-w", "4", "--bind", bind, "--chdir", str(EXAMPLES)]
    server = subprocess.Popen(
        [PYTHON, "-m", "gunicorn", *options, "django_orders:application"],
        env=environment(daemons, tmp_path),
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    try:
        while True:
            assert server.poll() is None and time.monotonic() < deadline, "gunicorn does not answer"
            try:
                get(f"http://{bind}/")
            except urllib.error.HTTPError:
                break
            except OSError:
                time.sleep(0.1)
        yield f"http://{bind}/buy"
    finally:
        server.terminate()
        server.wait(20)


def test_django_with_gunicorn_that_preloads(
    shop: str, daemons: list[Daemon], tmp_path: pathlib.Path
) -> None:
    with ThreadPoolExecutor(8) as clients:
        found = list(clients.map(get, [shop] * (REQUESTS // 2)))
        daemons[0].signal(signal.SIGKILL)
        found += clients.map(get, [shop] * (REQUESTS // 2))
    assert len(set(found)) == REQUESTS
    with sqlite3.connect(tmp_path / "orders.sqlite3") as database:
        rows = database.execute("SELECT count(*), count(DISTINCT id) FROM shop_order").fetchone()
    assert rows == (REQUESTS + 1, REQUESTS + 1)


def test_sqlalchemy_in_several_processes(daemons: list[Daemon], tmp_path: pathlib.Path) -> None:
    need("sqlalchemy")
    program = str(EXAMPLES / "sqlalchemy_orders.py")
    url = f"sqlite:///{tmp_path / 'orders.sqlite3'}"
    assert run(sys.executable, program, url, env=environment(daemons, tmp_path)) == "5001 orders\n"
