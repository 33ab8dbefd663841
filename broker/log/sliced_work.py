"""Sliced work: long work done in steps, between which the event loop runs other things."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

SlicedWork = Generator[None, None, T]
"""Each `next` does a step; the generator returns the result."""


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


class Slices:
    """Time slices for a loop that awaits: `turn` yields to the event loop after each `slice_s` seconds."""

    def __init__(self, slice_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._slice_s = slice_s
        self._slice_end_s = self._loop.time() + slice_s

    async def turn(self) -> None:
        if self._loop.time() >= self._slice_end_s:
            await asyncio.sleep(0)
            self._slice_end_s = self._loop.time() + self._slice_s
