"""Work that takes long, done a little at a time: between two steps of it the event loop can do other things."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

SlicedWork = Generator[None, None, T]
"""Each `next` does a step; what comes of all of them is what the generator returns."""


def run_to_end(steps: SlicedWork[T]) -> T:
    """Do all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


async def run_in_slices(steps: SlicedWork[T], slice_s: float) -> T:
    """Do all steps; after `slice_s` seconds of them others get their turn."""
    loop = asyncio.get_running_loop()
    slice_end_s = loop.time() + slice_s
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        if loop.time() >= slice_end_s:
            await asyncio.sleep(0)
            slice_end_s = loop.time() + slice_s


class Slices:
    """For a loop that awaits: `turn`, between two of its rounds, lets others have theirs after `slice_s` seconds."""

    def __init__(self, slice_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._slice_s = slice_s
        self._slice_end_s = self._loop.time() + slice_s

    async def turn(self) -> None:
        if self._loop.time() >= self._slice_end_s:
            await asyncio.sleep(0)
            self._slice_end_s = self._loop.time() + self._slice_s
