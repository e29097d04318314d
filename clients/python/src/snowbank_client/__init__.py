"""The client of Snowbank, a daemon that hands out batches of unique, time-sortable 64-bit IDs.

    from snowbank_client import Client

    client = Client(["ids-1:7660", "ids-2:7660"])
    ids = client.ids()
    print(ids.next())            # one ID, from a buffer that is refilled ahead
    print(list(client.batch(3))) # three IDs in one round trip

`Client` is for threads, `AsyncClient` for asyncio. Errors of calls are `SnowbankError`. Arguments
that are not allowed raise `ValueError` or `TypeError`.
"""

from __future__ import annotations

from ._errors import (
    ClosedError,
    CollisionError,
    DeadlineError,
    EndpointError,
    ForkedError,
    RefusedError,
    SnowbankError,
    WrongLoopError,
)
from ._stats import Collision, CollisionOver, Connected, Event, Failed, Refused, Stats
from .aio import AsyncClient, AsyncIds
from .client import Client, Ids

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "AsyncIds",
    "Client",
    "ClosedError",
    "Collision",
    "CollisionError",
    "CollisionOver",
    "Connected",
    "DeadlineError",
    "EndpointError",
    "Event",
    "Failed",
    "ForkedError",
    "Ids",
    "Refused",
    "RefusedError",
    "SnowbankError",
    "Stats",
    "WrongLoopError",
]
