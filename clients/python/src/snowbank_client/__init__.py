"""The client of Snowbank, a daemon that hands out batches of unique, time-sortable 64-bit IDs.

    from snowbank_client import Client

    client = Client(["ids-1:7660", "ids-2:7660"])
    ids = client.ids()
    print(ids.next())            # one ID, from a buffer that is refilled ahead
    print(list(client.batch(3))) # three IDs in one round trip

`Client` is for threads, `AsyncClient` for asyncio. Errors of calls are `SnowbankError`. Arguments
that are not allowed raise `ValueError` or `TypeError`.
"""

from ._errors import ClosedError as ClosedError
from ._errors import CollisionError as CollisionError
from ._errors import DeadlineError as DeadlineError
from ._errors import EndpointError as EndpointError
from ._errors import ForkedError as ForkedError
from ._errors import RefusedError as RefusedError
from ._errors import SnowbankError as SnowbankError
from ._errors import WrongLoopError as WrongLoopError
from ._stats import Collision as Collision
from ._stats import CollisionOver as CollisionOver
from ._stats import Connected as Connected
from ._stats import Event as Event
from ._stats import Failed as Failed
from ._stats import Refused as Refused
from ._stats import Stats as Stats
from .aio import AsyncClient as AsyncClient
from .aio import AsyncIds as AsyncIds
from .client import Client as Client
from .client import Ids as Ids

__version__ = "0.1.0"
