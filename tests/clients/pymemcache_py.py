"""pymemcache, as an application uses it. Prints each ID with its source.

Waits for a line of standard input before each further phase: the daemon was restarted meanwhile.
"""
import sys
import time

from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheError, MemcacheServerError, MemcacheUnknownCommandError

SOURCES = ["fast", "second"]


def show(source, number):
    print("ID", source, int(number))


def draw(client):
    for source in SOURCES:
        for _ in range(20):
            show(source, client.get(source))
        # The result is a dictionary, so an ID needs a key of its own.
        keys = [source] + [f"{source}:{number}" for number in range(99)]
        for number in client.get_many(keys).values():
            show(source, number)


def meet_refusals(client):
    try:
        client.set("fast", "1", noreply=False)
        raise SystemExit("set was not refused")
    except MemcacheUnknownCommandError:
        pass
    try:
        # 16 a second, and nothing may wait for a second.
        for _ in range(200):
            client.get("slow")
        raise SystemExit("nothing was refused")
    except MemcacheServerError as error:
        assert b"exhausted retry_after_ms=" in error.args[0], error
    assert client.version(), "no version"
    assert len(client.stats()) == 9


def until_it_works(work):
    end = time.monotonic() + 40
    while True:
        try:
            return work()
        except (MemcacheError, OSError):
            assert time.monotonic() < end
            time.sleep(0.05)


client = Client(("127.0.0.1", int(sys.argv[1])))
draw(client)
meet_refusals(client)
print("PHASE", flush=True)
for _ in range(2):
    sys.stdin.readline()
    client.close()
    until_it_works(lambda: client.version())
    draw(client)
    print("PHASE", flush=True)
