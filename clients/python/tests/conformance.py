"""Follows the steps of a conformance case, with a client for threads or one for asyncio."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import time
from collections.abc import Awaitable
from typing import Any

import snowbank_client
from snowbank_client import (
    AsyncClient,
    Client,
    ClosedError,
    DeadlineError,
    EndpointsError,
    ForkedError,
    LostError,
    NoSuchSourceError,
    ProtocolError,
    RefusedError,
    SameWorkerIdsError,
    SnowbankError,
    UnreachableError,
    WentBackError,
)
from snowbank_client._errors import CODES

KINDS = {
    NoSuchSourceError: "unknown_source",
    DeadlineError: "timeout",
    UnreachableError: "unreachable",
    LostError: "lost",
    ProtocolError: "foreign_protocol",
    SameWorkerIdsError: "same_worker_ids",
    WentBackError: "went_back",
    ClosedError: "closed",
    ForkedError: "forked",
}

#: The modules that read the clock for the age of IDs.
CLOCKS = [snowbank_client._ids, snowbank_client.client, snowbank_client.aio]


def kind_of(error: BaseException) -> str:
    """Returns the suite's kind of an error."""
    if isinstance(error, RefusedError):
        return error.code if error.number in CODES else "refused"
    if isinstance(error, EndpointsError):
        return kind_of(error.errors[0])
    if isinstance(error, SnowbankError):
        return KINDS[type(error)]
    assert isinstance(error, (ValueError, TypeError)), repr(error)
    return "tls" if "TLS files" in str(error) else "bad_argument"


class Threads:
    """The client for threads. Its calls run in a thread each."""

    name = "threads"
    lacks = frozenset({"cancel"})

    def __init__(self, endpoints: list[str], options: dict[str, Any]) -> None:
        self._client = Client(endpoints, **options)

    async def batch(self, count: int, options: dict[str, Any]) -> list[int]:
        return list(await asyncio.to_thread(self._client.batch, count, **options))

    def ids(self, options: dict[str, Any]) -> snowbank_client.Ids:
        return self._client.ids(**options)

    async def next(self, ids: snowbank_client.Ids) -> int:
        return await asyncio.to_thread(ids.next)

    def next_in_child(self, ids: snowbank_client.Ids) -> int:
        return ids.next()

    async def close(self) -> None:
        await asyncio.to_thread(self._client.close)


class Tasks:
    """The client for asyncio."""

    name = "asyncio"
    lacks = frozenset[str]()

    def __init__(self, endpoints: list[str], options: dict[str, Any]) -> None:
        self._client = AsyncClient(endpoints, **options)

    async def batch(self, count: int, options: dict[str, Any]) -> list[int]:
        return list(await self._client.batch(count, **options))

    def ids(self, options: dict[str, Any]) -> snowbank_client.AsyncIds:
        return self._client.ids(**options)

    async def next(self, ids: snowbank_client.AsyncIds) -> int:
        return await ids.next()

    def next_in_child(self, ids: snowbank_client.AsyncIds) -> int:
        # The child has no event loop. A buffer that answers needs none.
        try:
            ids.next().send(None)
        except StopIteration as stop:
            return int(stop.value)
        raise AssertionError("a child waits on the event loop of its parent")

    async def close(self) -> None:
        await self._client.aclose()


def client_options(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the suite's options as those of a client."""
    found: dict[str, Any] = {"timeout": options.get("timeout_ms", 20_000) / 1000}
    for name in ("connect_timeout", "answer_timeout"):
        if f"{name}_ms" in options:
            found[name] = options[f"{name}_ms"] / 1000
    for name in ("token", "ca_file", "cert_file", "key_file", "take_turns", "prefer_first"):
        if name in options:
            found[name] = options[name]
    return found


def buffer_options(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the suite's options as those of a buffer."""
    found: dict[str, Any] = {"max_age": options.get("max_age_ms", 60_000) / 1000}
    if "max_batch" in options:
        found["max_batch"] = options["max_batch"]
    return found


def batch_options(step: dict[str, Any]) -> dict[str, Any]:
    """Returns a step's options as those of a batch."""
    names = {"source", "explicit", "partial"} & set(step)
    found: dict[str, Any] = {name: step[name] for name in names}
    for name in ("max_wait", "timeout"):
        if f"{name}_ms" in step:
            found[name] = step[f"{name}_ms"] / 1000
    return found


class Play:
    """One case, from its first line to the end of the program."""

    def __init__(self, program: str, case: str, adapter: Any) -> None:
        self._program = program
        self._case = case
        self._adapter = adapter
        self._process: asyncio.subprocess.Process
        self._endpoints: list[str] = []
        self._options: dict[str, Any] = {}
        self._client: Any = None
        self._ids: Any = None
        self._seen: set[int] = set()
        self._calls: dict[str, asyncio.Task[list[int]]] = {}

    async def run(self) -> None:
        """Plays the case."""
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            self._program, self._case, stdin=pipe, stdout=pipe, stderr=pipe, limit=1 << 20
        )
        try:
            case = await self._line()
            self._endpoints, self._options = case["endpoints"], case["options"]
            self._client = self._adapter(self._endpoints, client_options(self._options))
            for step in case["steps"]:
                await getattr(self, "_do_" + step["do"])(step)
            await self._client.close()
            assert self._process.stdin is not None and self._process.stderr is not None
            self._process.stdin.close()
            stderr = await asyncio.wait_for(self._process.stderr.read(), 10)
            assert await self._process.wait() == 0, stderr.decode()
        finally:
            for call in self._calls.values():
                call.cancel()
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()

    async def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None and self._process.stderr is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), 20)
        assert line, (await self._process.stderr.read()).decode()
        found: dict[str, Any] = json.loads(line)
        return found

    async def _event(self, name: str) -> None:
        while (await self._line()).get("event") != name:
            pass

    def _say(self, words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(words.encode() + b"\n")

    # Outcomes.

    async def _outcome(self, work: Awaitable[list[int]], step: dict[str, Any]) -> None:
        began = time.monotonic()
        ids: list[int] = []
        error: BaseException | None = None
        try:
            ids = await work
        except (SnowbankError, ValueError, TypeError) as caught:
            error = caught
        took_ms = (time.monotonic() - began) * 1000
        self._keep(ids)
        assert took_ms <= step.get("within_ms", 60_000), f"{took_ms:.0f} ms: {error!r}"
        if "error" in step:
            assert error is not None, f"no error, and {len(ids)} IDs"
            kinds = step["error"] if isinstance(step["error"], list) else [step["error"]]
            assert kind_of(error) in kinds, repr(error)
            self._mentions(error, step)
        elif error is not None:
            raise error
        else:
            self._check_ids(ids, step)

    def _mentions(self, error: BaseException, step: dict[str, Any]) -> None:
        for text in step.get("mentions", []):
            wanted = text
            for index, endpoint in enumerate(self._endpoints):
                bare = (
                    endpoint.split(":", 1)[1]
                    if endpoint.startswith(("tls:", "unix:"))
                    else endpoint
                )
                wanted = wanted.replace(f"${index}", bare)
            assert wanted in str(error), f"{wanted!r} is not in {str(error)!r}"
        if "retry_after_ms" in step:
            assert isinstance(error, SnowbankError) and error.retry_after is not None
            assert round(error.retry_after * 1000) == step["retry_after_ms"]

    def _keep(self, ids: list[int]) -> None:
        assert self._seen.isdisjoint(ids) and len(set(ids)) == len(ids), "an ID came twice"
        self._seen.update(ids)

    @staticmethod
    def _check_ids(ids: list[int], step: dict[str, Any]) -> None:
        if "ids" in step:
            assert [str(one) for one in ids] == step["ids"]
        if "length" in step:
            assert len(ids) == step["length"]
        if "above" in step:
            assert all(one > int(step["above"]) for one in ids)
        if step.get("increasing") or step["do"] == "batch":
            assert ids == sorted(ids)

    # Steps.

    def _batch(self, step: dict[str, Any]) -> Awaitable[list[int]]:
        found: Awaitable[list[int]] = self._client.batch(step["count"], batch_options(step))
        return found

    def _buffer(self) -> Any:
        if self._ids is None:
            self._ids = self._client.ids(buffer_options(self._options))
        return self._ids

    async def _draw(self, times: int) -> list[int]:
        ids = self._buffer()
        return [await self._client.next(ids) for _ in range(times)]

    async def _do_batch(self, step: dict[str, Any]) -> None:
        await self._outcome(self._batch(step), step)

    async def _do_next(self, step: dict[str, Any]) -> None:
        for _ in range(step.get("times", 1) if "error" in step else 0):
            try:
                self._keep(await self._draw(1))
            except SnowbankError as error:  # noqa: PERF203
                assert kind_of(error) == step["error"], repr(error)
                self._mentions(error, step)
                return
        await self._outcome(self._draw(step.get("times", 1)), step)

    async def _do_parallel_next(self, step: dict[str, Any]) -> None:
        draws = (self._draw(step["count"]) for _ in range(step["threads"]))
        for ids in await asyncio.gather(*draws):
            self._keep(ids)
            assert len(ids) == step["count"]

    async def _do_start(self, step: dict[str, Any]) -> None:
        call = self._batch(step) if "count" in step else self._draw(1)
        task = asyncio.ensure_future(call)
        self._calls[step["as"]] = task
        # The call is on its way before the next step.
        await asyncio.sleep(0.05)

    async def _do_join(self, step: dict[str, Any]) -> None:
        await self._outcome(self._calls[step["as"]], step)

    async def _do_cancel(self, step: dict[str, Any]) -> None:
        call = self._calls.pop(step["as"])
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)

    async def _do_until(self, step: dict[str, Any]) -> None:
        deadline = time.monotonic() + 25
        while True:
            try:
                await self._do_batch(step)
            except (AssertionError, SnowbankError):  # noqa: PERF203
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.05)
            else:
                return

    async def _do_keep(self, step: dict[str, Any]) -> None:
        deadline = time.monotonic() + step["for_ms"] / 1000
        while time.monotonic() < deadline:
            await self._do_batch(step)
            await asyncio.sleep(0.05)

    async def _do_new(self, step: dict[str, Any]) -> None:
        async def make() -> list[int]:
            endpoints = step.get("endpoints", self._endpoints)
            options = {**self._options, **step.get("options", {})}
            client = self._adapter(endpoints, client_options(options))
            client.ids(buffer_options(options))
            await client.close()
            return []

        await self._outcome(make(), step)

    async def _do_life(self, step: dict[str, Any]) -> None:
        self._say(f"life {step['daemon']}")
        await self._event("life")

    async def _do_wait_held(self, _step: dict[str, Any]) -> None:
        await self._event("held")

    async def _do_release(self, step: dict[str, Any]) -> None:
        self._say(f"release {step['daemon']}")

    async def _do_sleep(self, step: dict[str, Any]) -> None:
        await asyncio.sleep(step["ms"] / 1000)

    async def _do_advance_clock(self, step: dict[str, Any]) -> None:
        for module in CLOCKS:
            was = vars(module)["clock_ns"]
            vars(module)["clock_ns"] = lambda clock, was=was: was(clock) + step["ms"] * 1_000_000

    async def _do_fork_next(self, step: dict[str, Any]) -> None:
        ids = self._buffer()
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            # The child ends here, whatever happens.
            try:
                found = [self._in_child(ids) for _ in range(step.get("times", 1))]
                os.write(writer, pickle.dumps(found))
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            data = await asyncio.to_thread(pipe.read)
        os.waitpid(child, 0)  # noqa: ASYNC222
        assert data, "the child ended without an answer"
        drawn = pickle.loads(data)
        assert all(isinstance(one, int) or one == "forked" for one in drawn), drawn
        self._keep([one for one in drawn if isinstance(one, int)])

    def _in_child(self, ids: Any) -> int | str:
        try:
            return int(self._client.next_in_child(ids))
        except SnowbankError as error:
            return kind_of(error)
        except BaseException as error:
            return repr(error)

    async def _do_close(self, _step: dict[str, Any]) -> None:
        await self._client.close()
