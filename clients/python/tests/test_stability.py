"""The names and arguments of 0.1.0, which docs/stability.md promises."""

from __future__ import annotations

import inspect
from typing import Any

import snowbank_client as api

OPTIONS = [
    "source",
    "timeout",
    "token",
    "token_file",
    "ca_file",
    "cert_file",
    "key_file",
    "server_name",
    "prefer_first",
    "take_turns",
    "on_event",
]


def test_calls_take_the_arguments_of_0_1_0() -> None:
    for client in (api.Client, api.AsyncClient):
        inspect.signature(client).bind(["host:1"], **dict.fromkeys(OPTIONS))
        inspect.signature(client.batch).bind(None, 3, source="orders", timeout=1.0)
        inspect.signature(client.ids).bind(None, source="orders", timeout=1.0)
        inspect.signature(client.ping).bind(None, timeout=1.0)
        inspect.signature(client.stats).bind(None)
    inspect.signature(api.Client.close).bind(None, timeout=1.0)
    inspect.signature(api.AsyncClient.aclose).bind(None, timeout=1.0)
    for buffer in (api.Ids, api.AsyncIds):
        inspect.signature(buffer.next).bind(None, timeout=1.0)
    assert hasattr(api.Client, "__enter__") and hasattr(api.AsyncClient, "__aenter__")
    assert hasattr(api.Ids, "__next__") and hasattr(api.AsyncIds, "__anext__")


def test_errors_stats_and_events_have_the_fields_of_0_1_0() -> None:
    for error, builtin in [
        (api.RefusedError("host:1", 6, 0, 0.5, "words"), Exception),
        (api.EndpointError("host:1", "words"), ConnectionError),
        (api.DeadlineError(1.0, {}), TimeoutError),
        (api.CollisionError(("host:1", "host:2"), 7), Exception),
        (api.ClosedError(), RuntimeError),
        (api.ForkedError(), RuntimeError),
        (api.WrongLoopError(), RuntimeError),
    ]:
        assert isinstance(error, api.SnowbankError) and isinstance(error, builtin)
        assert hasattr(error, "reason") and hasattr(error, "retry_after")
    refused = api.RefusedError("host:1", 6, 0, 0.5, "words")
    assert (refused.endpoint, refused.code, refused.number) == ("host:1", "exhausted", 6)
    counts = ["calls", "retries", "refusals", "failures", "ids", "dropped", "oldest_ms", "endpoint"]
    for name in counts:
        assert hasattr(api.Stats(), name)
    events: list[tuple[Any, str]] = [
        (api.Connected, "endpoint"),
        (api.Failed, "endpoint reason"),
        (api.Refused, "endpoint code action message"),
        (api.Collision, "endpoints claim"),
        (api.CollisionOver, "endpoints"),
    ]
    for event, fields in events:
        # Applications may take an event apart by position.
        assert list(event._fields)[: len(fields.split())] == fields.split()
