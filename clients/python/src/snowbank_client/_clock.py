"""The clock for the age of buffered IDs. It runs while the machine sleeps."""

from __future__ import annotations

import time
from typing import Any, Callable

# CLOCK_MONOTONIC of Linux stops in sleep, and that of macOS does not.
_names: Any = time
CLOCK: int = getattr(_names, "CLOCK_BOOTTIME", getattr(_names, "CLOCK_MONOTONIC", 0))


def _monotonic_ns(_clock: int) -> int:
    return time.monotonic_ns()


#: Reads the clock: `clock_ns(CLOCK)`. Windows has one that runs in sleep behind `monotonic_ns`.
clock_ns: Callable[[int], int] = getattr(_names, "clock_gettime_ns", _monotonic_ns)
