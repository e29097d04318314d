"""The endpoints: which one is next, and how long each rests after a failure."""

from __future__ import annotations

import asyncio
import random
from time import monotonic

from ._address import Address
from ._dial import Dialer
from ._errors import SnowbankError
from ._options import Options
from ._row import Row


class Endpoint(Dialer):
    """One name with a port, or a Unix socket."""

    def __init__(self, address: Address, options: Options) -> None:
        super().__init__(address, options)
        self.connection: Row | None = None
        #: The task that connects, for all calls that wait for it.
        self.dialing: asyncio.Task[Row] | None = None
        #: The failures since it last answered, and the last of them.
        self.failures = 0
        self.error: SnowbankError | None = None
        #: When it may be connected again, and when it could serve, as its daemon says.
        self.rests_until = self.serves_at = 0.0

    def note(self, error: SnowbankError | None) -> None:
        """Keeps what it said to a call. None: an answer."""
        self.error = error
        self.serves_at = monotonic() + error.retry_after if error is not None else 0.0

    @property
    def heard(self) -> str:
        """Returns the last that was heard of it."""
        if self.error is not None:
            return self.error.reason
        return "connected, and no answer yet" if self.connection else "not connected yet"


class Endpoints:
    """The endpoints of a client. It stays at one while that serves, or takes them in turn."""

    def __init__(self, options: Options) -> None:
        self._times, self.takes_turns = options.times, options.take_turns
        self.all = [Endpoint(address, options) for address in options.endpoints]
        self.is_lone = len(self.all) == 1
        self.index = 0 if options.prefer_first else random.randrange(len(self.all))

    def pick(self) -> Endpoint:
        """Returns the endpoint of the next try: one that does not rest, or the first to be back."""
        now = monotonic()
        order = self.all[self.index :] + self.all[: self.index]
        best = min(order, key=lambda one: max(one.rests_until, now))
        turn = int(self.takes_turns and best.rests_until <= now)
        self.index = (self.all.index(best) + turn) % len(self.all)
        return best

    def failed(self, endpoint: Endpoint, error: SnowbankError) -> None:
        """Lets an endpoint rest, and goes on to the next one."""
        endpoint.failures += 1
        endpoint.note(error)
        # A lone one is asked again at once: it may be a balancer's name.
        if not (self.is_lone and endpoint.failures == 1):
            rest = max(self.backoff(endpoint.failures), self.pause(error.retry_after))
            endpoint.rests_until = monotonic() + rest
        if endpoint is self.all[self.index] and not self.takes_turns:
            self.index = (self.index + 1) % len(self.all)

    def backoff(self, failures: int) -> float:
        """Returns a random rest. Its limit doubles with each failure but the first."""
        doubled = self._times.backoff * 2.0 ** min(failures - 1, 60)
        return random.random() * min(doubled, self._times.max_backoff)

    def pause(self, retry_after: float) -> float:
        """Returns how long to wait after a daemon's words. The random part spreads a herd."""
        return min(retry_after, self._times.max_pause) * (1 + random.random())
