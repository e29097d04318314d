"""Rounds over all endpoints: do two daemons hand out the same IDs? Is an earlier one back?"""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING, Any

from ._errors import CollisionError, EndpointError, SnowbankError
from ._rest import Endpoint
from ._stats import Collision, CollisionOver
from ._wire import Info, Welcome

if TYPE_CHECKING:
    from ._call import Calls

#: Two instances that share a claim: both instances, the claim.
Pair = tuple[int, int, int]


class Rounds:
    """Greets all endpoints of a client now and then, each by a connection of its own."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._all = calls.endpoints.all
        self._times = calls.shared.options.times

    async def run(self) -> None:
        """Makes rounds until it is cancelled."""
        await asyncio.sleep(random.random() * self._times.first_round)
        shared = self._calls.shared
        before: dict[Pair, tuple[Endpoint, Endpoint]] = {}
        collision: Pair | None = None
        while True:
            welcomes = await asyncio.gather(*(self._greet(one) for one in self._all))
            found = self._compare(welcomes)
            if collision is not None and collision not in found:
                collision = shared.collision = None
                shared.report(CollisionOver())
            again = found.keys() & before.keys()
            if collision is None and again:
                collision = min(again)
                await self._collide(*found[collision], collision[2])
            if shared.options.prefer_first:
                self._move_back(welcomes)
            before = found
            await asyncio.sleep(self._times.next_look if found else self._times.round)

    async def _collide(self, one: Endpoint, other: Endpoint, claim: int) -> None:
        """Lets calls fail, and buffers forget their IDs. The daemons' own words come later."""
        shared, names = self._calls.shared, (one.name, other.name)
        shared.collision = CollisionError(*names, claim)
        shared.void()
        shared.report(Collision(names, claim))
        info = await asyncio.gather(self._info(one), self._info(other))
        shared.collision = CollisionError(*names, claim, info)

    def _compare(self, welcomes: list[Welcome | None]) -> dict[Pair, tuple[Endpoint, Endpoint]]:
        """Returns the pairs of different instances that share a claim."""
        greeted = [(w, one) for w, one in zip(welcomes, self._all) if w is not None]
        greeted.sort(key=lambda each: each[0].instance)
        return {
            (first.instance, second.instance, claim): (one, other)
            for index, (first, one) in enumerate(greeted)
            for second, other in greeted[index + 1 :]
            if first.instance != second.instance
            for claim in first.claims & second.claims
        }

    def _move_back(self, welcomes: list[Welcome | None]) -> None:
        first = next((index for index, one in enumerate(welcomes) if one is not None), None)
        left = None if first is None else self._calls.endpoints.move_back_to(first)
        if left is not None and left.connection is not None:
            connection, left.connection = left.connection, None
            connection.row.finish()

    async def _greet(self, endpoint: Endpoint) -> Welcome | None:
        try:
            connection = await endpoint.greeter.dial()
        except SnowbankError:
            return None
        connection.row.end(EndpointError(endpoint.name, "the greeting is over"))
        return connection.welcome

    async def _info(self, endpoint: Endpoint) -> str:
        """Returns what a daemon says of its sources."""
        try:
            connection = await endpoint.greeter.dial()
            try:
                said = await connection.row.send(Info())
                return _in_words(json.loads(said))
            finally:
                connection.row.end(EndpointError(endpoint.name, "the greeting is over"))
        except (SnowbankError, ValueError, LookupError, TypeError, AttributeError) as error:
            return f"sources that it does not tell ({error})"


def _in_words(info: dict[str, Any]) -> str:
    rows = (
        f"{source['name']} ({source['layout']}, worker IDs {source['worker_ids']})"
        for source in info["sources"]
        if "layout" in source
    )
    return f"{', '.join(rows)} in its instance {info.get('instance')}"
