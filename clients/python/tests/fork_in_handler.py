"""Draws IDs while a timer's signal handler forks. Prints how many forks shared an ID.

python fork_in_handler.py ADDRESS SECONDS
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

from snowbank_client import Client

PAUSE_S = 0.011

#: A new client after so many IDs: its first call makes an event loop and a thread.
DRAWS = 20

drawn: list[int] = []
#: For each child: its process, its pipe, and what the parent had drawn before.
children: list[tuple[int, int, int]] = []
#: The pipe of this child, and what it inherited.
parent: tuple[int, int] | None = None


def fork(_number: int, _frame: object) -> None:
    """Forks within whatever was interrupted. Both go on there."""
    global parent  # noqa: PLW0603
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        parent = (writer, len(drawn))
        return
    os.close(writer)
    children.append((child, reader, len(drawn)))
    signal.setitimer(signal.ITIMER_REAL, PAUSE_S)


signal.signal(signal.SIGALRM, fork)
signal.setitimer(signal.ITIMER_REAL, PAUSE_S)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end and parent is None:
    if len(drawn) % DRAWS == 0:
        ids = Client(sys.argv[1]).ids()
    drawn.append(ids.next())
signal.setitimer(signal.ITIMER_REAL, 0)
if parent is not None:
    while len(drawn) < parent[1] + 5:
        drawn.append(ids.next())
    os.write(parent[0], json.dumps(drawn[parent[1] :]).encode())
    os._exit(0)
assert len(set(drawn)) == len(drawn)
twice = 0
for child, reader, before in children:
    with os.fdopen(reader) as pipe:
        twice += not set(drawn[before:]).isdisjoint(json.loads(pipe.read()))
    os.waitpid(child, 0)
print(len(children), "forks,", twice, "with an ID twice", flush=True)
