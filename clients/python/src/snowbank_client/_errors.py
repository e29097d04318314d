"""The errors of calls: who is at fault, and whether another try may help.

Each keeps its fields in `args`, so that it survives pickling between processes.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence

_OF_REQUESTS = ["malformed", "unsupported", "bad_count", "unknown_source", "unauthorized"]
_OF_DAEMONS = ["exhausted", "clock_behind", "no_ceiling", "shutting_down", "too_busy"]

#: The names of the protocol's error codes, for people.
CODES = dict(enumerate(_OF_REQUESTS + _OF_DAEMONS, start=1))


class SnowbankError(Exception):
    """The base of every error of a call."""

    #: The seconds after which the same call may succeed. 0: nobody named a time.
    retry_after: float = 0.0

    @property
    def reason(self) -> str:
        """Returns what went wrong, without the endpoint where that is known."""
        return str(self)


class RefusedError(SnowbankError):
    """A daemon refused the request."""

    def __init__(
        self, endpoint: str, number: int, action: int, retry_after: float, message: str
    ) -> None:
        super().__init__(endpoint, number, action, retry_after, message)
        self.endpoint = endpoint
        #: The code's number, and its name, such as `exhausted`.
        self.number = number
        self.code: str = CODES.get(number, f"code {number}")
        #: What the daemon told the client to do: `tell`, `stay` or `leave`.
        self.action: str = {1: "stay", 2: "leave"}.get(action, "tell")
        self.retry_after = retry_after
        self.message = message

    def __str__(self) -> str:
        wait = f" (try again in {self.retry_after:g} s)" if self.retry_after else ""
        return f"{self.endpoint} refused: {self.code}: {self.message}{wait}"


class EndpointError(SnowbankError, ConnectionError):
    """No connection to an endpoint, a lost one, or something else than a daemon answers."""

    def __init__(self, endpoint: str, reason: str) -> None:
        # OSError would take the fields for a number of the system and its words.
        Exception.__init__(self, endpoint, reason)
        self.endpoint = endpoint

    @property
    def reason(self) -> str:
        return str(self.args[1])

    def __str__(self) -> str:
        return f"{self.endpoint}: {self.reason}"


class DeadlineError(SnowbankError, TimeoutError):
    """The call's deadline passed."""

    #: The seconds that the call had, and the last that was heard of each endpoint.
    allowed: float
    reasons: Mapping[str, str]

    def __init__(self, allowed: float, reasons: Mapping[str, str]) -> None:
        Exception.__init__(self, allowed, reasons)
        self.allowed, self.reasons = allowed, reasons

    def __str__(self) -> str:
        reasons = (f"; {endpoint}: {reason}" for endpoint, reason in self.reasons.items())
        return f"no answer within {self.allowed:g} s{''.join(reasons)}"


class CollisionError(SnowbankError):
    """Two endpoints are daemons that hand out the same IDs. Calls fail until they differ."""

    #: The two, and the number that both daemons have.
    endpoints: tuple[str, str]
    claim: int
    #: What each daemon says of itself, once they were asked.
    info: Sequence[str] = ()

    def __init__(self, endpoints: tuple[str, str], claim: int) -> None:
        super().__init__(endpoints, claim)
        self.endpoints, self.claim = endpoints, claim

    def __str__(self) -> str:
        said = "".join(
            f"; {name} says {words or 'nothing'}" for name, words in zip(self.endpoints, self.info)
        )
        return (
            f"{' and '.join(self.endpoints)} are two daemons that hand out the same IDs: stop one "
            f"of them, and start it with worker IDs that no other daemon has{said}"
        )


class ClosedError(SnowbankError, RuntimeError):
    """The client was closed."""

    def __str__(self) -> str:
        return "this client is closed: create a new one"


class ForkedError(SnowbankError, RuntimeError):
    """The client was used in a parent process, and this process is a forked child."""

    def __str__(self) -> str:
        return "this client is the parent process's: create a new AsyncClient after the fork"


class WrongLoopError(SnowbankError, RuntimeError):
    """The client works on another event loop than the one that runs now."""

    def __str__(self) -> str:
        return "this client belongs to another event loop: create one AsyncClient for each loop"


def describe(error: BaseException) -> str:
    """Returns the reason that TLS or the operating system gave, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    no_tls = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
    if isinstance(error, ssl.SSLError) and error.reason in no_tls:
        return "it does not speak TLS: write the endpoint without tls:"
    if isinstance(error, OSError) and error.strerror and not error.filename:
        return error.strerror
    return str(error) or type(error).__name__
