"""Portions: short work on each of many items, on so few in one turn of the event loop that others run in between."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from fencepost.broker.kernel.supervision import Place, Policy

PORTION = Place("portion of work on many items", Policy.RETRY)

T = TypeVar("T")


class Portions(Generic[T]):
    """Items that wait for a piece of work, which takes at most `per_turn_count` of them in a turn.

    items:    those that wait; the last ones are taken first.
    concerns: the subject of the work, for the log of a failure in a later turn. The items left then wait for the next
              `run`.
    """

    __slots__ = ("_concerns", "_is_running", "_left_count", "items", "per_turn_count")

    def __init__(self, per_turn_count: int, *, concerns: str) -> None:
        self.per_turn_count = per_turn_count
        self.items: list[T] = []
        self._concerns = concerns
        self._is_running = False  # the next turn has a portion
        self._left_count: float = 0  # items that this run may still take

    def run(self, work: Callable[[Iterator[T]], object], most: float = math.inf) -> None:
        """Do the work on a portion now, and on the others in later turns. Does nothing during a run.

        most: the items that this run takes, with those that are added meanwhile.
        Raises the exceptions of the work on the first portion.
        """
        if not self._is_running:
            self._left_count = most
            self._run_portion(work)

    def replace(self, items: Iterable[T]) -> None:
        """Replace the items that wait; a current run takes the new ones."""
        self.items = list(items)

    def _run_portion(self, work: Callable[[Iterator[T]], object]) -> None:
        self._is_running = False  # if the work fails
        work(self._take())
        if self.items and self._left_count > 0:
            self._is_running = True
            following = PORTION.callback(self._run_portion, concerns=self._concerns)
            asyncio.get_running_loop().call_soon(following, work)

    def _take(self) -> Iterator[T]:
        for _ in range(self.per_turn_count):
            if not self.items or self._left_count <= 0:
                return
            self._left_count -= 1
            yield self.items.pop()
