"""The IDs of one reply."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import overload

#: Increasing IDs: a range if the daemon sent a run, else a tuple.
Run = Sequence[int]


class Batch(Sequence[int]):
    """IDs that no other client has, strictly increasing. It behaves as a tuple of them."""

    __slots__ = ("_length", "endpoint", "runs")

    def __init__(self, runs: Sequence[Run], endpoint: str) -> None:
        #: The IDs as ranges, or as tuples where the daemon listed single ones.
        self.runs = tuple(runs)
        #: The daemon that handed them out.
        self.endpoint = endpoint
        self._length = sum(len(run) for run in self.runs)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self.runs)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        if isinstance(index, slice):
            return list(self)[index]
        left = index + self._length if index < 0 else index
        if not 0 <= left < self._length:
            raise IndexError(f"index {index} of a batch of {self._length} IDs")
        for run in self.runs:
            if left < len(run):
                return run[left]
            left -= len(run)
        raise IndexError(index)

    def __repr__(self) -> str:
        return f"<Batch of {self._length} IDs from {self.endpoint}>"
