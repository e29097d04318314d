"""The endpoints: which one is next, and how long each rests after a failure."""

from __future__ import annotations

import random
from time import monotonic

from ._address import Address
from ._dial import Connection, Dialer
from ._errors import SnowbankError
from ._options import Options


class Endpoint:
    """One name with a port, or a Unix socket."""

    def __init__(self, address: Address, options: Options) -> None:
        self.name = address.text
        self.dialer = Dialer(address, options)
        #: The one for rounds, which has its own look at the name.
        self.greeter = Dialer(address, options)
        self.connection: Connection | None = None
        #: The failures since it last answered, and the last of them.
        self.failures = 0
        self.error: SnowbankError | None = None
        self.rests_until = 0.0

    @property
    def heard(self) -> str:
        """Returns the last that was heard of it."""
        if self.error is not None:
            return str(getattr(self.error, "reason", self.error))
        return "connected, and no answer yet" if self.connection else "not connected yet"


class Endpoints:
    """The endpoints of a client. It stays at one while that serves, or takes them in turn."""

    def __init__(self, options: Options) -> None:
        self._times, self._takes_turns = options.times, options.take_turns
        self.all = [Endpoint(one, options) for one in options.endpoints]
        self._current = 0 if options.prefer_first else random.randrange(len(self.all))

    @property
    def is_lone(self) -> bool:
        return len(self.all) == 1

    @property
    def current(self) -> Endpoint:
        return self.all[self._current]

    def pick(self) -> Endpoint:
        """Returns the endpoint of the next try: one that does not rest, or the first to be back."""
        now = monotonic()
        order = self.all[self._current :] + self.all[: self._current]
        rested = next((one for one in order if one.rests_until <= now), None)
        best = rested or min(order, key=lambda one: one.rests_until)
        turn = 1 if self._takes_turns and rested else 0
        self._current = (self.all.index(best) + turn) % len(self.all)
        return best

    def answered(self, endpoint: Endpoint) -> None:
        """Records an answered call."""
        endpoint.failures, endpoint.error = 0, None

    def failed(self, endpoint: Endpoint, error: SnowbankError, retry_after: float = 0.0) -> None:
        """Lets an endpoint rest, and goes on to the next one."""
        endpoint.failures += 1
        endpoint.error = error
        # A lone one is asked again at once: it may be a balancer's name.
        if not (self.is_lone and endpoint.failures == 1):
            rest = max(self.backoff(endpoint.failures), self.pause(retry_after))
            endpoint.rests_until = monotonic() + rest
        if endpoint is self.current and not self._takes_turns:
            self._current = (self._current + 1) % len(self.all)

    def move_back_to(self, index: int) -> Endpoint | None:
        """Goes back to an earlier endpoint. Returns the one that is left."""
        if index >= self._current:
            return None
        left, self._current = self.current, index
        return left

    def backoff(self, failures: int) -> float:
        """Returns a random rest. Its limit doubles with each failure but the first."""
        doubled = self._times.backoff * 2.0 ** min(failures - 1, 60)
        return random.random() * min(doubled, self._times.max_backoff)

    def pause(self, retry_after: float) -> float:
        """Returns how long to wait after a daemon's words. The random part spreads a herd."""
        return min(retry_after, self._times.max_pause) * (1 + random.random())
