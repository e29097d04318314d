"""INFO: a daemon's limits and sources, and whether two daemons make the same IDs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from ._wire import BadReplyError

VERSION = 1


@dataclass(frozen=True)
class Source:
    """A named supply of IDs."""

    index: int
    name: str
    #: The full text form of the layout, or None for a ticket source.
    layout: str | None = None
    worker_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Info:
    """A daemon's version, limits and sources."""

    max_count: int
    sources: tuple[Source, ...]
    version: str | None = None
    #: The name of this start of the daemon: another one after each restart.
    instance: str | None = None

    @classmethod
    def from_json(cls, text: bytes) -> Info:
        """Reads an INFO reply. Keys of later versions are ignored."""
        try:
            found: dict[str, Any] = json.loads(text)
            protocol = _number(found["protocol"])
            if protocol != VERSION:
                raise BadReplyError(
                    f"the daemon speaks protocol version {protocol}; this client speaks {VERSION}"
                )
            sources = tuple(_source(source) for source in found["sources"])
            max_count = _number(found["max_count"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise BadReplyError(f"the INFO reply cannot be read: {error!r}") from None
        return cls(
            max_count=max_count,
            sources=sources,
            version=_text(found.get("version")),
            instance=_text(found.get("instance")),
        )

    def shared_worker_id(self, other: Info) -> tuple[int, str] | None:
        """Returns a worker ID and its layout if both daemons can make the same ID at one time.

        Returns None if the two are one daemon, or do not tell who they are.
        """
        if self.instance is None or other.instance is None or self.instance == other.instance:
            return None
        for mine in self.sources:
            for its in other.sources:
                worker_id = _common_worker(mine, its)
                if worker_id is not None:
                    return worker_id, mine.layout or ""
        return None


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**32:
        raise ValueError(f"{value!r} is not a number of 32 bits")
    return value


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _source(found: dict[str, Any]) -> Source:
    name = found["name"]
    if not isinstance(name, str):
        raise ValueError(f"a source is named {name!r}")
    index = _number(found["index"])
    if index > 0xFFFF:
        raise ValueError(f"a source has index {index}")
    workers = found.get("worker_ids")
    if not isinstance(workers, list) or not all(type(worker) is int for worker in workers):
        workers = []
    return Source(index, name, _text(found.get("layout")), tuple(workers))


def tick_s(source: Source) -> float:
    """Returns the length of a source's ticks, or 0 for a source without a layout."""
    match = re.search(r";\s*tick\s*=\s*(\d{1,15})(ms|s)\b", source.layout or "")
    return 0.0 if match is None else int(match[1]) / (1000 if match[2] == "ms" else 1)


def _common_worker(mine: Source, its: Source) -> int | None:
    """Returns a worker ID of both sources if they have one layout: both make the same IDs."""
    if mine.layout is None or mine.layout != its.layout:
        return None
    return next((worker for worker in mine.worker_ids if worker in set(its.worker_ids)), None)
