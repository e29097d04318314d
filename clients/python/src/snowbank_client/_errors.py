"""The errors of calls: who is at fault, and whether another try may help.

Each keeps its fields in `args`, so that it survives pickling between processes.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Mapping, Sequence

#: The names of the protocol's error codes, for people.
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

#: The names of the protocol's actions. A daemon of later may send further ones.
ACTIONS = {0: "tell", 1: "stay", 2: "leave"}


class SnowbankError(Exception):
    """The base of every error of a call."""


class RefusedError(SnowbankError):
    """A daemon refused the request."""

    def __init__(
        self, endpoint: str, number: int, action: int, retry_after: float, message: str
    ) -> None:
        super().__init__(endpoint, number, action, retry_after, message)
        self.endpoint = endpoint
        #: The code's number, and its name, such as `exhausted`.
        self.number = number
        self.code = CODES.get(number, f"code {number}")
        #: What the daemon told the client to do: `tell`, `stay` or `leave`.
        self.action = ACTIONS.get(action, "tell")
        #: The seconds after which the same call may succeed, or None.
        self.retry_after = retry_after or None
        self.message = message

    def __str__(self) -> str:
        message = f": {self.message}" if self.message else ""
        wait = "" if self.retry_after is None else f" (try again in {in_words(self.retry_after)})"
        return f"{self.endpoint} refused: {self.code}{message}{wait}"


class EndpointError(SnowbankError, ConnectionError):
    """No connection to an endpoint, a lost one, or something else than a daemon answers."""

    def __init__(self, endpoint: str, reason: str) -> None:
        # OSError would take the fields for a number of the system and its words.
        Exception.__init__(self, endpoint, reason)
        self.endpoint = endpoint
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.endpoint}: {self.reason}"


class DeadlineError(SnowbankError, TimeoutError):
    """The call's deadline passed."""

    def __init__(self, allowed: float, reasons: Mapping[str, str]) -> None:
        Exception.__init__(self, allowed, dict(reasons))
        #: The seconds that the call had.
        self.allowed = allowed
        #: The last that was heard of each endpoint.
        self.reasons = dict(reasons)

    def __str__(self) -> str:
        reasons = "; ".join(f"{endpoint}: {reason}" for endpoint, reason in self.reasons.items())
        return f"no answer within {in_words(self.allowed)}; {reasons}"


class CollisionError(SnowbankError):
    """Two endpoints are daemons that hand out the same IDs. Calls fail until they differ."""

    def __init__(self, one: str, other: str, claim: int, info: Sequence[str] = ()) -> None:
        super().__init__(one, other, claim, info)
        self.endpoints = (one, other)
        self.claim = claim
        #: What each daemon says of its sources, once they were asked.
        self.info = info

    def __str__(self) -> str:
        one, other = self.endpoints
        said = "".join(f"; {name} has {words}" for name, words in zip(self.endpoints, self.info))
        return (
            f"{one} and {other} are two daemons that hand out the same IDs{said}: stop one of "
            "them, and start it with worker IDs that no other daemon has"
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


def in_words(seconds: float) -> str:
    """Writes a time for a person, rounded up if it is long."""
    if seconds < 1:
        return f"{round(seconds * 1000, 3):g} ms"
    whole = -int(-seconds // 1)
    if whole <= 10:
        return f"{round(seconds, 3):g} s"
    return f"{whole} s" if whole < 120 else f"{-(-whole // 60)} min"


def describe(error: BaseException) -> str:
    """Returns the reason that TLS or the operating system gave, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            return "it does not speak TLS: write the address without tls:"
        return f"TLS failed: {error.reason or error}"
    if isinstance(error, ConnectionResetError):
        return "the connection was reset"
    if isinstance(error, socket.gaierror) and error.strerror:
        return f"its lookup failed: {error.strerror}"
    if isinstance(error, OSError) and error.errno:
        # Without the event loop's own words.
        return os.strerror(error.errno)
    if isinstance(error, asyncio.TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
