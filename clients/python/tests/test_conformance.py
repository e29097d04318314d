"""The cases that every client of Snowbank passes: clients/conformance/README.md describes them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from conformance import CLOCKS, Play, Tasks, Threads, UvloopTasks
from support import ROOT, built, missing

from snowbank_client import _dial, _options

SUITE = ROOT / "clients" / "conformance" / "cases.json"
CASES = json.loads(SUITE.read_text())["cases"] if SUITE.exists() else []
ADAPTERS = (Threads, Tasks, UvloopTasks)


@pytest.fixture(scope="session")
def conformance() -> str:
    """The program that plays the daemons."""
    return built(
        "SNOWBANK_CONFORMANCE", "snowbank-conformance", "--package", "snowbank-conformance"
    )


@pytest.fixture(autouse=True)
def clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the clocks and times right again after a case that moved them."""
    monkeypatch.setattr(_options, "TIMES", _options.TIMES)
    real = _dial.resolve

    def resolve(host: str, port: int) -> list[_dial.SocketAddress]:
        hosts = [f"127.0.0.{n}" for n in (1, 2, 3)] if host == "ids.example" else [host]
        return [found for one in hosts for found in real(one, port)]

    monkeypatch.setattr(_dial, "resolve", resolve)
    for module in CLOCKS:
        if "wall" in vars(module):
            monkeypatch.setattr(module, "wall", vars(module)["wall"])


def plays() -> Iterator[Any]:
    """Every case with each client that meets its needs."""
    for case in CASES:
        for adapter in ADAPTERS:
            # A call that blocks its thread cannot be cancelled.
            if not adapter.lacks & set(case.get("needs", [])):
                yield pytest.param(case["name"], adapter, id=f"{case['name']}-{adapter.name}")


@pytest.mark.parametrize(("case", "adapter"), list(plays()))
def test_case(conformance: str, case: str, adapter: Any) -> None:
    if adapter is UvloopTasks:
        uvloop = pytest.importorskip("uvloop")
        loop = uvloop.new_event_loop()
    else:
        loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(Play(conformance, case, adapter).run())
    finally:
        loop.close()


def test_the_suite_is_there() -> None:
    if not CASES:
        missing(str(SUITE))
