"""What a forked child must make new: locks that another thread held, sockets, buffered IDs."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Inherited(Protocol):
    """An object that a child begins with anew."""

    def after_fork(self) -> None:
        """Runs in the child, before anything else."""


#: The number of forks between the process that imported this module and this one.
generation = 0

_objects: weakref.WeakSet[Inherited] = weakref.WeakSet()


def register(made: Inherited) -> None:
    """Adds an object, as long as it lives."""
    _objects.add(made)


def _in_child() -> None:
    global generation  # noqa: PLW0603
    generation += 1
    for one in list(_objects):
        one.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
