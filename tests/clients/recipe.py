"""Runs a recipe for Python of docs/clients.md: recipe.py PAGE NAME PORT [PORT].

With two ports it prints each ID. The test kills or stops a daemon meanwhile. At the end threads share the buffer, and a child is
forked. With one port it draws from a daemon that refuses it, and prints how often that was. With WITHOUT_HIREDIS set,
redis-py does not find it.
"""
import os
import sys
import threading
import time

page, name, *ports = sys.argv[1:]
if "WITHOUT_HIREDIS" in os.environ:
    sys.modules["hiredis"] = None
with open(page, encoding="utf-8") as file:
    text = file.read()
for fence in ("```python\n", f"```python {name}\n"):
    exec(text.split(fence)[1].split("```")[0])

ids = Ids(connect, [("127.0.0.1", int(port)) for port in ports])

if len(ports) == 1:
    asked = []
    fetcher = ids.fetchers[0]
    ids.fetchers[0] = lambda: asked.append(1) or fetcher()
    try:
        ids.next()
    except Exception as error:
        sys.exit(f"refused {len(asked)} times: {error}")


def draw(count):
    for _ in range(count):
        os.write(1, b"%d\n" % ids.next())
        time.sleep(0.0005)


draw(3_999)
threads = [threading.Thread(target=draw, args=[500]) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
# The buffer is full at the fork.
ids.good_until = 0.0
draw(1)
child = os.fork()
draw(500)
if child:
    sys.exit(os.waitpid(child, 0)[1])
