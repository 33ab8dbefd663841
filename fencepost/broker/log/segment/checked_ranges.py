"""Ranges of a log file with checked headers: each is checked once, before it is first served."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

MAX_RANGES = 64
"""With readers at more places of one segment at a time, some places are checked again."""


class CheckedRange(NamedTuple):
    """Positions from `start` to before `end`; both are starts of batches (or the end of the file).

    next_offset, leader_epoch: end offset and epoch of the batches before `end`.
    """

    start: int
    end: int
    next_offset: int
    leader_epoch: int


class CheckedRanges:
    """The checked ranges of one file, in order and without overlap."""

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: list[CheckedRange] = []

    def containing(self, position: int) -> CheckedRange | None:
        """Return the range that a position lies in, or ends."""
        slot = bisect_right(self._ranges, position, key=_start)
        if slot == 0:
            return None
        found = self._ranges[slot - 1]
        return found if position <= found.end else None

    def add(self, added: CheckedRange) -> CheckedRange:
        """Add a range; return it joined with those that it overlaps or touches."""
        kept = []
        for known in self._ranges:
            if known.end < added.start or known.start > added.end:
                kept.append(known)
            else:
                farther = known if known.end > added.end else added
                added = farther._replace(start=min(known.start, added.start))
        if len(kept) >= MAX_RANGES:
            kept.clear()
        kept.append(added)
        kept.sort()
        self._ranges = kept
        return added

    def clear(self) -> None:
        self._ranges.clear()


def _start(checked: CheckedRange) -> int:
    return checked.start
