"""Sliced work: long work done in steps, between which the event loop runs other things."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from heapq import heappush, heapreplace
from typing import Final, TypeVar

T = TypeVar("T")

SlicedWork = Generator[None, None, T]
"""Each `next` does a step; the generator returns the result."""

SLICE_S = 0.005
"""The time slice of work that runs while clients are served: a quarter of the 20 ms that no step may take, as a slice
ends with the step that exceeds it, and slices of several works may follow one another in a turn."""
SHORT_SLICE_S = 0.002
"""The time slice of work that runs for seconds and again and again under load, so that each slice delays produces and
fetches: checks of large batches, the cleaner, snapshots and expiry of a log's many producers, and stops of logs."""

CHOSEN_PER_STEP: Final = 1_000
"""Some 0.5 ms."""


def run_to_end(steps: SlicedWork[T]) -> T:
    """Do all steps without a pause; return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


async def run_in_slices(steps: SlicedWork[T], slice_s: float) -> T:
    """Do all steps; yield to the event loop after each `slice_s` seconds."""
    slices = Slices(slice_s)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await slices.turn()


def largest(count: int, of: Sequence[T], key: Callable[[T], float]) -> SlicedWork[Sequence[T]]:
    """Choose the `count` largest, in their own order, in steps between which others may run."""
    if len(of) <= count:
        return of
    kept: list[tuple[float, int]] = []
    for slot, one in enumerate(of):
        entry = (key(one), -slot)
        if len(kept) < count:
            heappush(kept, entry)
        elif entry > kept[0]:
            heapreplace(kept, entry)
        if slot % CHOSEN_PER_STEP == 0:
            yield
    return [of[slot] for slot in sorted(-negative for _, negative in kept)]


class Slices:
    """Time slices for a loop that awaits: `turn` yields to the event loop after each `slice_s` seconds."""

    def __init__(self, slice_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._slice_s = slice_s
        self.begin()

    def begin(self) -> None:
        """Begin a new slice: the caller has waited for something else, and others have run meanwhile."""
        self._slice_end_s = self._loop.time() + self._slice_s

    async def turn(self) -> None:
        if self._loop.time() >= self._slice_end_s:
            await asyncio.sleep(0)
            self.begin()
