"""The check that no two endpoints are daemons with the same worker IDs: they hand out the same IDs.

A daemon refuses a worker ID that another daemon of its machine has. Containers and machines do not
see each other, but a client sees all of its endpoints. It asks each for INFO after it connected.
"""

from __future__ import annotations

import asyncio
from itertools import combinations
from typing import TYPE_CHECKING

from ._errors import LostError, SameWorkerIdsError, SnowbankError
from ._info import Info

if TYPE_CHECKING:
    from ._pool import Pool, Target

#: The time before the first look, and between two looks while daemons collide. A daemon that
#: restarts can look like two for a moment, so a collision counts when two looks in a row find it.
CONFIRMATION_S = 1.0

#: The time between two looks while an endpoint does not answer, and between two checks.
REPETITION_S = 60.0

Answer = tuple[str, Info]


class Check:
    """The check of one client."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._task: asyncio.Task[None] | None = None
        self._next_at = 0.0

    def start(self) -> None:
        """Starts a check in the background, unless one is running."""
        is_running = self._task is not None and not self._task.done()
        if len(self._pool.targets) > 1 and not is_running:
            now = self._pool.loop.time()
            begins = max(now, self._next_at)
            self._next_at = begins + REPETITION_S
            self._task = self._pool.start(self._run(begins - now + CONFIRMATION_S))

    async def _run(self, pause: float) -> None:
        """Looks until all endpoints have answered and none collide."""
        earlier: SameWorkerIdsError | None = None
        while True:
            await asyncio.sleep(pause)
            await self._pool.look_up_all()
            answers = await self._look()
            found = find(answers)
            is_silent = len(answers) < len(self._pool.targets)
            if found is None:
                # One that did not answer, as in a restart, may still have the same worker IDs.
                is_confirmed = not is_silent or earlier is None
            else:
                is_confirmed = earlier is not None and found.args == earlier.args
            if is_confirmed:
                self._pool.set_collision(found)
            if found is None and not is_silent:
                return
            is_close = found is not None or earlier is not None
            pause = CONFIRMATION_S if is_close else REPETITION_S
            earlier = found

    async def _look(self) -> list[Answer]:
        """Returns the INFO of each target that answers. All connections are open at one time."""
        targets = [target for target in self._pool.targets if target.where is not None]
        answers = await asyncio.gather(*(self._ask(target) for target in targets))
        return [answer for answer in answers if answer is not None]

    async def _ask(self, target: Target) -> Answer | None:
        try:
            connection = await self._pool.connect(target)
        except SnowbankError:
            return None
        info = connection.info
        connection.close(LostError(target.name, "it is no longer needed"))
        return None if info is None else (target.name, info)


def find(answers: list[Answer]) -> SameWorkerIdsError | None:
    """Returns an error if two answers are of daemons that hand out the same IDs."""
    for (one, info), (other, its) in combinations(answers, 2):
        shared = info.shared_worker_id(its)
        if shared is not None:
            return SameWorkerIdsError(one, other, *shared)
    return None
