"""Figures of a client, and the events that its application may hear of."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Callable, NamedTuple, Union

log = logging.getLogger("snowbank_client")
log.addHandler(logging.NullHandler())


@dataclass
class Stats:
    """What a client did in this process."""

    #: Calls that were answered.
    calls: int = 0
    #: Requests after the first of a call.
    retries: int = 0
    #: ERROR replies.
    refusals: int = 0
    #: Failures of endpoints.
    failures: int = 0
    #: IDs that were handed out.
    ids: int = 0
    #: Buffered IDs that were too old, or skipped.
    dropped: int = 0
    #: The highest age at which a buffer handed out an ID.
    oldest_ms: float = 0.0
    #: The endpoint that the client is connected to.
    endpoint: str | None = None


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
