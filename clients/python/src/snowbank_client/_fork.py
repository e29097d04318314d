"""Counts the forks on the way to this process, so that an object can tell who made it.

A child inherits the parent's buffers, sockets and locks, but none of its threads. Every object that
owns one of these remembers the count at its birth. If the count differs now, a parent made it.
"""

from __future__ import annotations

import os
import threading

#: The number of forks between the process that imported this module and this one.
generation = 0

#: Guards the moment in which an object of the parent is made new in a child.
lock = threading.Lock()


def _in_child() -> None:
    global generation, lock  # noqa: PLW0603
    generation += 1
    # Another thread of the parent may have held it, and that thread does not exist here.
    lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
