"""redis-py with a pipeline of 80,000 requests, which it sends before it reads. Argument: the port."""
import sys

import redis

client = redis.Redis(port=int(sys.argv[1]))
for transaction in [False, True]:
    pipeline = client.pipeline(transaction=transaction)
    for _ in range(80_000):
        pipeline.incr("fast")
    ids = pipeline.execute()
    assert ids == sorted(set(ids)) and len(ids) == 80_000, len(ids)
    assert all(isinstance(number, int) for number in ids)
