"""Follows the steps of a conformance case, with a client for threads or one for asyncio."""

from __future__ import annotations

import asyncio
import functools
import gc
import json
import os
import pickle
import re
import time
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, TypeVar

import snowbank_client
from snowbank_client import (
    AsyncClient,
    Client,
    ClosedError,
    CollisionError,
    DeadlineError,
    Event,
    ForkedError,
    RefusedError,
    SnowbankError,
    _options,
)
from snowbank_client._errors import CODES

T = TypeVar("T")

KINDS = {
    DeadlineError: "timeout",
    CollisionError: "collision",
    ClosedError: "closed",
    ForkedError: "forked",
}

#: The modules that read the wall clock.
CLOCKS = [
    snowbank_client._buffer,
    snowbank_client._call,
    snowbank_client._row,
    snowbank_client.client,
]

#: What the suite may count.
FIGURES = ("calls", "retries", "refusals", "failures", "ids", "endpoint")


def kind_of(error: BaseException) -> str:
    """Returns the suite's kind of an error."""
    if isinstance(error, RefusedError):
        return error.code if error.number in CODES else "refused"
    if isinstance(error, SnowbankError):
        return KINDS[type(error)]
    assert isinstance(error, (ValueError, TypeError)), repr(error)
    return "tls" if "TLS files" in str(error) else "bad_argument"


def event_name(event: Event) -> str:
    """Returns the suite's name of an event: `collision_over` for `CollisionOver`."""
    return re.sub("(?<=.)([A-Z])", r"_\1", type(event).__name__).lower()


class Threads:
    """The client for threads. Its calls run in a thread each."""

    name = "threads"
    lacks = frozenset({"cancel"})

    def __init__(self, endpoints: list[str], options: dict[str, Any]) -> None:
        self._client = Client(endpoints, **options)
        self._ids = self._client.ids()
        # One thread for each of a thousand calls.
        self._threads = ThreadPoolExecutor(1_100)

    async def _run(self, call: Callable[..., T], *arguments: Any, **options: Any) -> T:
        loop = asyncio.get_running_loop()
        work = functools.partial(call, *arguments, **options)
        return await loop.run_in_executor(self._threads, work)

    async def batch(self, count: int, options: dict[str, Any]) -> list[int]:
        return list(await self._run(self._client.batch, count, **options))

    async def next(self, times: int, options: dict[str, Any]) -> list[int]:
        return await self._run(lambda: [self._ids.next(**options) for _ in range(times)])

    def next_in_child(self) -> int:
        return self._ids.next()

    async def ping(self, options: dict[str, Any]) -> None:
        await self._run(self._client.ping, **options)

    def stats(self) -> snowbank_client.Stats:
        return self._client.stats()

    async def close(self, timeout: float | None = None) -> None:
        await self._run(self._client.close, timeout)

    def close_here(self) -> None:
        self._client.close()


class Tasks:
    """The client for asyncio."""

    name = "asyncio"
    lacks = frozenset[str]()

    def __init__(self, endpoints: list[str], options: dict[str, Any]) -> None:
        self._client = AsyncClient(endpoints, **options)
        self._ids = self._client.ids()

    async def batch(self, count: int, options: dict[str, Any]) -> list[int]:
        return list(await self._client.batch(count, **options))

    async def next(self, times: int, options: dict[str, Any]) -> list[int]:
        return [await self._ids.next(**options) for _ in range(times)]

    def next_in_child(self) -> int:
        # The child has no event loop. A buffer that answers needs none.
        try:
            self._ids.next().send(None)
        except StopIteration as stop:
            return int(stop.value)
        raise AssertionError("a child waits on the event loop of its parent")

    async def ping(self, options: dict[str, Any]) -> None:
        await self._client.ping(**options)

    def stats(self) -> snowbank_client.Stats:
        return self._client.stats()

    async def close(self, timeout: float | None = None) -> None:
        await self._client.aclose(timeout)

    def close_here(self) -> None:
        self._closing = asyncio.ensure_future(self._client.aclose())


class UvloopTasks(Tasks):
    """The client for asyncio on uvloop."""

    name = "uvloop"


def client_options(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the suite's options as those of a client."""
    names = ("source", "token", "token_file", "ca_file", "cert_file", "key_file", "server_name")
    found = {
        name: options[name] for name in (*names, *("prefer_first", "take_turns")) if name in options
    }
    return {**found, "timeout": options["timeout_ms"] / 1000}


def times(limits: dict[str, float]) -> _options.Times:
    """Returns the suite's limits as the times of a client."""
    connect, answer = limits["connect_ms"] / 1000, limits["answer_ms"] / 1000
    rounds = {"first_round": limits["first_round_ms"] / 1000, "round": limits["round_ms"] / 1000}
    return _options.Times(resolve=connect, accept=connect, connect=connect, answer=answer, **rounds)


def call_options(step: dict[str, Any]) -> dict[str, float]:
    """Returns a step's options as those of a call."""
    return {"timeout": step["timeout_ms"] / 1000} if "timeout_ms" in step else {}


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
        self._events: list[Event] = []
        self._seen: set[int] = set()
        self._last = -1
        self._calls: dict[str, asyncio.Future[list[int]]] = {}

    async def run(self) -> None:
        """Plays the case."""
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            self._program, self._case, stdin=pipe, stdout=pipe, stderr=pipe, limit=1 << 20
        )
        try:
            case = await self._line()
            self._endpoints, self._options = case["endpoints"], case["options"]
            self._client = self._make(self._endpoints, self._options)
            for step in case["steps"]:
                await getattr(self, "_do_" + step["do"])(step)
            if self._client is not None:
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

    def _make(self, endpoints: list[str], options: dict[str, Any]) -> Any:
        _options.TIMES = times(options["limits"])
        what = options.get("on_event")
        # Of no other client, so that one can be dropped.
        closing: list[Any] = []

        def hear(event: Event) -> None:
            self._events.append(event)
            if what == "fails":
                raise ArithmeticError("an event that fails")
            for client in closing:
                client.close_here()

        made = self._adapter(endpoints, {**client_options(options), "on_event": hear})
        if what == "closes":
            closing.append(made)
        return made

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
            self._check_error(error, step)
        elif error is not None:
            raise error
        else:
            self._check_ids(ids, step)

    def _check_error(self, error: BaseException, step: dict[str, Any]) -> None:
        kinds = step["error"] if isinstance(step["error"], list) else [step["error"]]
        assert kind_of(error) in kinds, repr(error)
        for text in step.get("mentions", []):
            wanted = self._named(text)
            assert wanted in str(error), f"{wanted!r} is not in {str(error)!r}"
        if "retry_after_ms" in step:
            assert isinstance(error, RefusedError) and error.retry_after is not None
            assert round(error.retry_after * 1000) == step["retry_after_ms"]

    def _named(self, text: str) -> str:
        """Returns a text with the endpoints' addresses."""
        for index, endpoint in enumerate(self._endpoints):
            is_marked = endpoint.startswith(("tls:", "unix:"))
            bare = endpoint.split(":", 1)[1] if is_marked else endpoint
            text = text.replace(f"${index}", bare)
        return text

    def _keep(self, ids: list[int]) -> None:
        assert self._seen.isdisjoint(ids) and len(set(ids)) == len(ids), "an ID came twice"
        self._seen.update(ids)

    def _check_ids(self, ids: list[int], step: dict[str, Any]) -> None:
        if "ids" in step:
            assert [str(one) for one in ids] == step["ids"]
        if "length" in step:
            assert len(ids) == step["length"]
        if "above" in step:
            assert all(one > int(step["above"]) for one in ids)
        if step["do"] == "batch":
            assert ids == sorted(ids)
        if step.get("increasing"):
            assert ids == sorted(ids) and ids[0] > self._last
            self._last = ids[-1]

    # Steps.

    def _call(self, step: dict[str, Any]) -> Awaitable[list[int]]:
        found: Awaitable[list[int]]
        if "count" in step:
            found = self._client.batch(step["count"], call_options(step))
        else:
            found = self._client.next(1, call_options(step))
        return found

    async def _do_batch(self, step: dict[str, Any]) -> None:
        await self._outcome(self._call(step), step)

    async def _do_next(self, step: dict[str, Any]) -> None:
        count = step.get("times", 1)
        if "error" in step:
            for _ in range(count - 1):
                try:
                    self._keep(await self._client.next(1, call_options(step)))
                except SnowbankError as error:  # noqa: PERF203
                    self._check_error(error, step)
                    return
            count = 1
        await self._outcome(self._client.next(count, call_options(step)), step)

    async def _do_parallel_next(self, step: dict[str, Any]) -> None:
        draws = (self._client.next(step["count"], {}) for _ in range(step["threads"]))
        for ids in await asyncio.gather(*draws):
            self._keep(ids)
            assert len(ids) == step["count"]

    async def _do_ping(self, step: dict[str, Any]) -> None:
        async def ping() -> list[int]:
            await self._client.ping(call_options(step))
            return []

        await self._outcome(ping(), step)

    async def _do_start(self, step: dict[str, Any]) -> None:
        self._calls[step["as"]] = asyncio.ensure_future(self._call(step))
        # The call is on its way before the next step.
        await asyncio.sleep(0.05)

    async def _do_join(self, step: dict[str, Any]) -> None:
        await self._outcome(self._calls[step["as"]], step)

    async def _do_cancel(self, step: dict[str, Any]) -> None:
        call = self._calls.pop(step["as"])
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)

    async def _do_until(self, step: dict[str, Any]) -> None:
        deadline = time.monotonic() + step.get("within_ms", 20_000) / 1000
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
            client = self._make(endpoints, {**self._options, **step.get("options", {})})
            try:
                found: list[int] = await client.batch(step["count"], {}) if "count" in step else []
            finally:
                await client.close()
            return found

        for _ in range(step.get("times", 1)):
            await self._outcome(make(), step)

    async def _do_life(self, step: dict[str, Any]) -> None:
        self._say(f"life {step['daemon']}")
        await self._event("life")

    async def _do_wait_held(self, _step: dict[str, Any]) -> None:
        await self._event("held")

    async def _do_release(self, step: dict[str, Any]) -> None:
        self._say(f"release {step['daemon']}")

    async def _do_idle(self, step: dict[str, Any]) -> None:
        self._say(f"idle {step['daemon']}")
        await self._event("idle")

    async def _do_sleep(self, step: dict[str, Any]) -> None:
        await asyncio.sleep(step["ms"] / 1000)

    async def _do_block(self, step: dict[str, Any]) -> None:
        time.sleep(step["ms"] / 1000)  # noqa: ASYNC251

    async def _do_stop(self, step: dict[str, Any]) -> None:
        self._say(f"stop {step['ms']}")
        await self._event("stopped")

    async def _do_advance_clock(self, step: dict[str, Any]) -> None:
        for module in CLOCKS:
            was = vars(module)["wall"]
            vars(module)["wall"] = lambda was=was: was() + step["ms"] / 1000

    async def _do_stats(self, step: dict[str, Any]) -> None:
        stats = self._client.stats()
        for figure in FIGURES:
            if figure in step:
                wanted, found = step[figure], getattr(stats, figure)
                if figure == "endpoint":
                    assert self._named(wanted) in found if wanted else found is None, stats
                else:
                    assert found == wanted, (figure, stats)

    async def _do_events(self, step: dict[str, Any]) -> None:
        deadline = time.monotonic() + 20
        while True:
            names = {event_name(event) for event in self._events}
            # They are told by a thread of their own.
            if names.issuperset(step.get("has", [])) or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.01)
        assert names.issuperset(step.get("has", [])), names
        assert names.isdisjoint(step.get("has_not", [])), names

    async def _do_fork_next(self, step: dict[str, Any]) -> None:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            # The child ends here, whatever happens.
            try:
                found = [self._in_child() for _ in range(step.get("times", 1))]
                os.write(writer, pickle.dumps(found))
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            data = await asyncio.get_running_loop().run_in_executor(None, pipe.read)
        os.waitpid(child, 0)  # noqa: ASYNC222
        assert data, "the child ended without an answer"
        drawn = pickle.loads(data)
        assert all(isinstance(one, int) or one == "forked" for one in drawn), drawn
        self._keep([one for one in drawn if isinstance(one, int)])

    def _in_child(self) -> int | str:
        try:
            return int(self._client.next_in_child())
        except SnowbankError as error:
            return kind_of(error)
        except BaseException as error:
            return repr(error)

    async def _do_close(self, step: dict[str, Any]) -> None:
        close = self._client.close(*call_options(step).values())
        if "as" in step:

            async def closed() -> list[int]:
                await close
                return []

            self._calls[step["as"]] = asyncio.ensure_future(closed())
            await asyncio.sleep(0.05)
        else:
            await close

    async def _do_drop(self, _step: dict[str, Any]) -> None:
        self._client = None
        gc.collect()
