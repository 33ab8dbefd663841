"""Names that this process has put, or may have put, and gives to no row: failed and cancelled uploads.

The sweep makes garbage of them. Those that a process takes with it when it ends are found by listing all objects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

MOST_NAMES: Final = 10_000
"""Of the oldest names beyond it, the objects stay until the node starts again, or is taken over from."""


class AbandonedObjects:
    """The names that are to become garbage, of one process."""

    def __init__(self) -> None:
        self._names: deque[str] = deque(maxlen=MOST_NAMES)

    def add(self, names: Iterable[str]) -> None:
        """Add names; no row has them, and none will."""
        self._names.extend(names)

    def first(self, count: int) -> Sequence[str]:
        """The oldest names; they stay."""
        return [name for name, _ in zip(self._names, range(count), strict=False)]

    def forget(self, names: Sequence[str]) -> None:
        """Forget names that have become garbage."""
        done = set(names)
        self._names = deque((name for name in self._names if name not in done), MOST_NAMES)
