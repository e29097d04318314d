"""The errors of calls: who is at fault, and whether another try may help.

Each keeps its fields in `args`, so that it survives pickling between processes.
"""

from __future__ import annotations

from collections.abc import Sequence

#: The names of the protocol's error codes.
CODES = {
    1: "malformed",
    2: "unsupported",
    3: "bad_count",
    4: "unknown_source",
    5: "unauthorized",
    6: "exhausted",
    7: "clock_behind",
    8: "no_ceiling",
    9: "shutting_down",
    10: "too_busy",
}

#: Refusals about the state of one daemon. Another daemon may serve the same request.
MOVING_ON = frozenset({"clock_behind", "no_ceiling", "shutting_down", "too_busy"})

#: Refusals after which the daemon closes the connection.
CLOSING = frozenset({"unauthorized", "shutting_down", "too_busy"})


class SnowbankError(Exception):
    """The base of every error of a call."""

    @property
    def retry_after(self) -> float | None:
        """Returns the seconds after which the same call may succeed, if a daemon named them."""
        return None

    @property
    def is_retried(self) -> bool:
        """Returns whether the client retries a call after this error, within its deadline."""
        return False


class RefusedError(SnowbankError):
    """A daemon refused the request."""

    def __init__(self, endpoint: str, number: int, wait: float | None, message: str) -> None:
        super().__init__(endpoint, number, wait, message)
        self.endpoint = endpoint
        #: The code's number. A later daemon may send further ones.
        self.number = number
        #: The code's name, such as `exhausted`.
        self.code = CODES.get(number, f"code {number}")
        self.message = message
        self._wait = wait

    @property
    def retry_after(self) -> float | None:
        return self._wait

    @property
    def is_retried(self) -> bool:
        return self.code in MOVING_ON

    def __str__(self) -> str:
        message = f": {self.message}" if self.message else ""
        wait = "" if self._wait is None else f" (try again in {in_words(self._wait)})"
        return f"{self.endpoint} refused: {self.code}{message}{wait}"


class DeadlineError(SnowbankError, TimeoutError):
    """The call's deadline passed."""

    def __init__(self, allowed: float, endpoint: str | None, last: SnowbankError | None) -> None:
        # OSError would take the fields for a number of the system and its words.
        Exception.__init__(self, allowed, endpoint, last)
        self.allowed = allowed
        #: The daemon that the client was connected to, or None.
        self.endpoint = endpoint
        #: The error of the last try, or the errors of all endpoints, or None.
        self.last = last

    @property
    def retry_after(self) -> float | None:
        return None if self.last is None else self.last.retry_after

    def __str__(self) -> str:
        origin = "" if self.endpoint is None else f" from {self.endpoint}"
        last = "" if self.last is None else f"; last: {self.last}"
        return f"no answer{origin} within {in_words(self.allowed)}{last}"


class EndpointsError(SnowbankError):
    """Every endpoint failed, each with an error of its own."""

    def __init__(self, errors: Sequence[SnowbankError]) -> None:
        super().__init__(tuple(errors))
        self.errors = tuple(errors)

    @property
    def retry_after(self) -> float | None:
        waits = [error.retry_after for error in self.errors if error.retry_after is not None]
        return min(waits, default=None)

    def __str__(self) -> str:
        return "; ".join(str(error) for error in self.errors)


class _EndpointError(SnowbankError):
    """An error with one endpoint and a reason in words."""

    _text = "{endpoint}: {reason}"

    def __init__(self, endpoint: str, reason: str) -> None:
        # As above: some of these are OSErrors.
        Exception.__init__(self, endpoint, reason)
        self.endpoint = endpoint
        self.reason = reason

    def __str__(self) -> str:
        return self._text.format(endpoint=self.endpoint, reason=self.reason)


class UnreachableError(_EndpointError, ConnectionError):
    """The client cannot resolve the endpoint, connect to it, or get a greeting in time."""

    _text = "cannot reach {endpoint}: {reason}"

    @property
    def is_retried(self) -> bool:
        return True


class LostError(_EndpointError, ConnectionError):
    """The connection ended before the reply was complete. IDs of that reply are skipped."""

    _text = "lost the connection to {endpoint}: {reason}"

    @property
    def is_retried(self) -> bool:
        return True


class ProtocolError(_EndpointError):
    """The other side is no Snowbank daemon, or has a defect."""

    _text = "{endpoint} does not speak Snowbank's protocol: {reason}"


class NoSuchSourceError(SnowbankError, LookupError):
    """The daemon has no source of that name."""

    def __init__(self, endpoint: str, name: str, known: str) -> None:
        super().__init__(endpoint, name, known)
        self.endpoint = endpoint
        self.name = name

    def __str__(self) -> str:
        endpoint, name, known = self.args
        return f"{endpoint} has no source named {name!r}; it has {known}"


class WentBackError(SnowbankError):
    """The IDs of an endpoint went back below those that a buffer has handed out.

    The next call continues from the lower IDs. No ID is handed out twice.
    """

    def __init__(self, endpoint: str, highest: int, found: int) -> None:
        super().__init__(endpoint, highest, found)
        self.endpoint = endpoint

    def __str__(self) -> str:
        endpoint, highest, found = self.args
        return (
            f"the IDs of {endpoint} went back: {found} came after {highest}, from another daemon "
            "or layout at the same address; the next call goes on from there"
        )


class SameWorkerIdsError(SnowbankError):
    """Two endpoints are daemons that hand out the same IDs. Calls fail until they differ."""

    def __init__(self, one: str, other: str, worker_id: int, layout: str) -> None:
        super().__init__(one, other, worker_id, layout)
        self.endpoints = (one, other)
        self.worker_id = worker_id

    def __str__(self) -> str:
        one, other, worker_id, layout = self.args
        return (
            f"{one} and {other} are two daemons with worker ID {worker_id} of the layout {layout}: "
            "both hand out the same IDs; stop one of them, and start it with worker IDs that no "
            "other daemon has"
        )


class ClosedError(SnowbankError, RuntimeError):
    """The client was closed."""

    def __str__(self) -> str:
        return "this client is closed: create a new one"


class ForkedError(SnowbankError, RuntimeError):
    """The client was used in a parent process, and this process is a forked child."""

    def __str__(self) -> str:
        return (
            "this client belongs to the event loop of the parent process: "
            "create a new AsyncClient after the fork"
        )


class WrongLoopError(SnowbankError, RuntimeError):
    """The client works on another event loop than the one that runs now."""

    def __str__(self) -> str:
        return (
            "this client belongs to another event loop, that of its first call: "
            "create one AsyncClient for each loop"
        )


def join(errors: Sequence[SnowbankError]) -> SnowbankError | None:
    """Joins the errors of several endpoints. Returns None without an error."""
    if len(errors) > 1:
        return EndpointsError(errors)
    return errors[0] if errors else None


def in_words(seconds: float) -> str:
    """Writes a time for a person, rounded up if it is long."""
    if seconds < 1:
        return f"{round(seconds * 1000, 3):g} ms"
    whole = -int(-seconds // 1)
    if whole <= 10:
        return f"{round(seconds, 3):g} s"
    return f"{whole} s" if whole < 120 else f"{-(-whole // 60)} min"
