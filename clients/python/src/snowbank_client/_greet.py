"""Rounds over all endpoints: do two daemons hand out the same IDs? Is an earlier one back?"""

from __future__ import annotations

import asyncio
import contextlib
import random
from itertools import combinations
from typing import TYPE_CHECKING

from ._dial import Dialer
from ._errors import CollisionError, EndpointError, SnowbankError
from ._stats import Collision, CollisionOver
from ._wire import Hello, Request, info

if TYPE_CHECKING:
    from ._call import Calls

#: The most of a daemon's INFO that an error shows.
_SHOWN_BYTES = 1_000

#: Two endpoints whose daemons share a claim, by the instances of the daemons and the claim.
Pairs = dict[tuple[frozenset[int], int], tuple[Dialer, Dialer]]


async def keep_greeting(calls: Calls) -> None:
    """Makes rounds until it is cancelled."""
    shared, times = calls.shared, calls.shared.options.times
    await asyncio.sleep(random.random() * times.first_round)
    # Their own, because calls remember which address they used last.
    everyone = [Dialer(address, shared.options) for address in shared.options.endpoints]
    before: Pairs = {}
    while True:
        found, first = await _greet_all(everyone)
        collision = shared.collision
        if collision is not None and not found:
            shared.collision = None
            calls.report(CollisionOver(collision.endpoints))
        again = [key for key in found if key in before]
        if shared.collision is None and again:
            await _collide(calls, again[0], found[again[0]])
        if shared.options.prefer_first and first is not None:
            await _move_back(calls, first)
        before = found
        await asyncio.sleep(times.next_look if found else times.round)


async def _greet_all(everyone: list[Dialer]) -> tuple[Pairs, int | None]:
    """Returns the pairs that share a claim, and the index of the first endpoint that greets."""
    welcomes = zip(everyone, await asyncio.gather(*map(_greet, everyone)))
    greeted = [(endpoint, welcome) for endpoint, welcome in welcomes if welcome is not None]
    found = {
        (frozenset((one.instance, other.instance)), claim): (first, second)
        for (first, one), (second, other) in combinations(greeted, 2)
        if one.instance != other.instance
        for claim in one.claims & other.claims
    }
    return found, everyone.index(greeted[0][0]) if greeted else None


async def _greet(endpoint: Dialer, question: Request | None = None) -> Hello | None:
    """Greets as for any connection, asks a question if there is one, and closes it."""
    with contextlib.suppress(SnowbankError):
        row = await endpoint.dial()
        try:
            if question is not None:
                await row.send(question)
            return row.welcome
        finally:
            row.end(EndpointError(endpoint.name, "the greeting is over"))
    return None


async def _collide(
    calls: Calls, key: tuple[frozenset[int], int], pair: tuple[Dialer, Dialer]
) -> None:
    """Lets calls fail, and buffers forget their IDs. The daemons' own words come later."""
    names = (pair[0].name, pair[1].name)
    calls.shared.collision = collision = CollisionError(names, key[1])
    calls.shared.void()
    calls.report(Collision(names, key[1]))
    said = (info(), info())
    await asyncio.gather(*map(_greet, pair, said))
    words = [one.reply[:_SHOWN_BYTES].decode("utf-8", "replace").split() for one in said]
    collision.info = [" ".join(one) for one in words]


async def _move_back(calls: Calls, index: int) -> None:
    """Connects to an earlier endpoint, and then leaves a later one for it."""
    endpoints = calls.endpoints
    if index < endpoints.index:
        with contextlib.suppress(SnowbankError):
            if endpoints.all[index].connection is None:
                await calls.dial(endpoints.all[index])
            endpoints.index = min(index, endpoints.index)
            for later in endpoints.all[endpoints.index + 1 :]:
                if later.connection is not None:
                    row, later.connection = later.connection, None
                    row.finish()
