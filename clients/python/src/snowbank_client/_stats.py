"""Figures of a client, and the events that its application may hear of."""

from __future__ import annotations

import logging
from typing import Callable, NamedTuple, Optional, Union

log = logging.getLogger("snowbank_client")
log.addHandler(logging.NullHandler())


class Stats(NamedTuple):
    """What a client did in this process."""

    #: Calls that were answered.
    calls: int
    #: Tries after the first.
    retries: int
    #: ERROR replies.
    refusals: int
    #: Failures of endpoints.
    failures: int
    #: IDs that were handed out.
    ids: int
    #: Buffered IDs that were too old, or skipped.
    dropped: int
    #: The highest age at which a buffer handed out an ID.
    oldest_ms: float
    #: The endpoint that the client is connected to.
    endpoint: Optional[str]  # noqa: UP045


class Connected(NamedTuple):
    """An endpoint greeted."""

    endpoint: str


class Failed(NamedTuple):
    """An endpoint cannot be reached, was lost, or is no daemon."""

    endpoint: str
    reason: str


class Refused(NamedTuple):
    """A daemon answered with an ERROR."""

    endpoint: str
    code: str
    action: str
    message: str


class Collision(NamedTuple):
    """Two endpoints hand out the same IDs. Calls fail from now on."""

    endpoints: tuple[str, str]
    claim: int


class CollisionOver(NamedTuple):
    """They do not any more. Calls go on."""

    endpoints: tuple[str, str]


Event = Union[Connected, Failed, Refused, Collision, CollisionOver]
OnEvent = Callable[[Event], None]


def report(event: Event, on_event: OnEvent | None) -> None:
    """Logs an event, and hands it to the application."""
    is_bad = isinstance(event, (Failed, Collision))
    log.log(logging.WARNING if is_bad else logging.DEBUG, "%s", event)
    if on_event is not None:
        try:
            on_event(event)
        except Exception:
            log.exception("on_event failed")
