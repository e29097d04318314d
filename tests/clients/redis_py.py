"""Python's redis, in any version, as an application uses it. Prints each ID with its source.

Waits for a line of standard input before each further phase: the daemon was restarted meanwhile.
"""
import sys
import time

import redis

SOURCES = ["fast", "second"]


def show(source, ids):
    for number in ids:
        print("ID", source, int(number))


def draw(client):
    for source in SOURCES:
        show(source, [client.incr(source) for _ in range(20)])
        pipeline = client.pipeline(transaction=False)
        for _ in range(100):
            pipeline.incr(source)
        show(source, pipeline.execute())
        # A transaction, as pipelines are by default.
        pipeline = client.pipeline()
        for _ in range(100):
            pipeline.incr(source)
        show(source, pipeline.execute())
        show(source, client.execute_command("SNOWBANK.NEXT", source, 1000))
        show(source, [client.incr(f"{source}:{number}") for number in range(10)])
    assert client.info()["snowbank_worker_ids_fast"] == 1
    assert client.info()["snowbank_instance"]


def meet_refusals(client):
    for asked, code in [
        (("INCR", "nothing"), "UNKNOWN_SOURCE"),
        (("SNOWBANK.NEXT", "fast", 0), "BAD_COUNT"),
        (("SNOWBANK.NEXT", "slow", 1000, "WAIT", 1), "EXHAUSTED"),
    ]:
        try:
            client.execute_command(*asked)
            raise SystemExit(f"{asked} was not refused")
        except redis.ResponseError as error:
            assert str(error).startswith(code), error


def until_it_works(work):
    end = time.monotonic() + 40
    while True:
        try:
            return work()
        except (redis.ConnectionError, redis.TimeoutError):
            assert time.monotonic() < end
            time.sleep(0.05)


# With one thread the client's pool has one connection. With `single_connection_client` it would
# take another one for pipelines.
client = redis.Redis(port=int(sys.argv[1]), client_name="orders")
client.ping()
draw(client)
meet_refusals(client)
print("PHASE", flush=True)
for _ in range(2):
    sys.stdin.readline()
    until_it_works(lambda: client.ping())
    draw(client)
    print("PHASE", flush=True)
