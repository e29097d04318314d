"""python-memcached, pymemcache and aiomcache: each reads on in the right place after commands that the
daemon refuses, and understands `gets`, `incr` and `stats`. Prints nothing; fails by an exception.
"""
import asyncio
import sys

import aiomcache
import memcache
from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheUnknownCommandError

PORT = int(sys.argv[1])
# IDs of the source `slow` have fewer bits than those of the source `fast`.
SPLIT = 1 << 53


def is_of(source, number):
    assert (int(number) >= SPLIT) == (source == "fast"), (source, number)


def python_memcached():
    client = memcache.Client([f"127.0.0.1:{PORT}"], cache_cas=True)
    for value in ["get fast", "x" * 100_000]:
        for refused in [client.set, client.add, client.replace, client.append, client.prepend]:
            assert not refused("fast", value), refused
            assert not refused("fast", value, noreply=True) or True
            is_of("slow", client.get("slow"))
            is_of("fast", client.get("fast"))
    is_of("slow", client.gets("slow"))
    # It sends the command with the cas number that it has read.
    assert not client.cas("slow", "get fast")
    is_of("slow", client.incr("slow"))
    is_of("fast", client.incr("fast:7"))
    assert set(client.get_multi(["fast:1", "slow:1"])) == {"fast:1", "slow:1"}
    [(_, stats)] = client.get_stats()
    assert stats["version"] == "1.6.0", stats
    assert client.delete("fast", noreply=True)
    is_of("slow", client.get("slow"))
    client.disconnect_all()


def pymemcache_base():
    client = Client(("127.0.0.1", PORT), timeout=10)
    for refused in [client.set, client.add, client.replace, client.append, client.prepend]:
        assert refused("fast", "get fast", noreply=True)
        try:
            refused("fast", "get fast", noreply=False)
            raise SystemExit(f"{refused} was not refused")
        except MemcacheUnknownCommandError:
            pass
        is_of("slow", client.get("slow"))
    number, cas = client.gets("slow")
    is_of("slow", number)
    assert cas == number
    assert list(client.gets_many(["slow", "fast"])) == ["slow", "fast"]
    try:
        client.cas("slow", "get fast", cas)
        raise SystemExit("cas was not refused")
    except MemcacheUnknownCommandError:
        pass
    is_of("slow", client.incr("slow", 1))
    client.incr("slow", 1, noreply=True)
    client.touch("slow", 1, noreply=True)
    client.delete("slow", noreply=True)
    client.flush_all(noreply=True)
    is_of("fast", client.incr("fast", 1))
    assert client.version() == b"1.6.0"
    assert client.stats()[b"version"] == b"1.6.0"
    assert client.stats("items") == {} and client.stats("settings") == {}
    client.close()


async def aiomcache_client():
    client = aiomcache.Client("127.0.0.1", PORT)
    number, cas = await client.gets(b"slow")
    is_of("slow", number)
    assert cas == int(number)
    for refused in [client.set, client.add, client.replace, client.append]:
        try:
            assert not await refused(b"fast", b"get fast")
        except aiomcache.exceptions.ClientException:
            pass
        is_of("slow", await client.get(b"slow"))
    is_of("fast", await client.incr(b"fast"))
    assert await client.version() == b"1.6.0"
    await client.close()


python_memcached()
pymemcache_base()
asyncio.run(aiomcache_client())
