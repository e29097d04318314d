"""Figures of a client, and the events that its application may hear of."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Callable, Union

log = logging.getLogger("snowbank_client")
log.addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Stats:
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
    endpoint: str | None


@dataclass
class Counters:
    """The figures while they grow."""

    calls: int = 0
    retries: int = 0
    refusals: int = 0
    failures: int = 0
    ids: int = 0
    dropped: int = 0
    oldest_s: float = 0.0


@dataclass(frozen=True)
class Connected:
    """An endpoint greeted."""

    endpoint: str


@dataclass(frozen=True)
class Failed:
    """An endpoint cannot be reached, was lost, or is no daemon."""

    endpoint: str
    reason: str


@dataclass(frozen=True)
class Refused:
    """A daemon answered with an ERROR."""

    endpoint: str
    code: str
    action: str
    message: str


@dataclass(frozen=True)
class Collision:
    """Two endpoints hand out the same IDs. Calls fail from now on."""

    endpoints: tuple[str, str]
    claim: int


@dataclass(frozen=True)
class CollisionOver:
    """They do not any more. Calls go on."""


Event = Union[Connected, Failed, Refused, Collision, CollisionOver]
OnEvent = Callable[[Event], None]

_LEVELS = {Failed: logging.WARNING, Collision: logging.ERROR, CollisionOver: logging.WARNING}


def report(event: Event, on_event: OnEvent | None) -> None:
    """Logs an event, and hands it to the application."""
    log.log(_LEVELS.get(type(event), logging.DEBUG), "%s", event)
    if on_event is None:
        return
    try:
        on_event(event)
    except Exception:
        log.exception("on_event failed")
