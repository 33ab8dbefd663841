"""Memory that is in use, as on a machine that has been up for a while.

A virtual machine gets memory that it touches for the first time, or again after it was free, from its host, and that
takes several times as long as what is then done with it. On a machine that was just started nearly all memory is free,
so an append to a log pays for that, or not, by chance. Here the page cache is filled first, with a file of holes
that takes no room on the disk; what is needed is then taken from there. What is left free, and what logs that were
deleted have given back since, is touched before each turn: within seconds a host may have taken it again.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

LEFT_FREE_BYTES = 2 * 1024**3
WORTH_IT_BYTES = 1024**3
STEP_BYTES = 1024**2
UNTOUCHED_BYTES = 256 * 1024**2  # so that touching the rest drives nothing out of the page cache


class FilledMemory:
    """A context manager: what was filled is free again after it."""

    def __init__(self, directory: Path) -> None:
        self._descriptor, self._path = tempfile.mkstemp(prefix="memory-", dir=directory)
        self._size_bytes = 0

    def fill(self) -> int:
        """Leave only little memory free; returns the bytes that were filled."""
        excess_bytes: int = psutil.virtual_memory().free - LEFT_FREE_BYTES
        if excess_bytes < WORTH_IT_BYTES:
            return 0
        # New holes: of the old ones the system may have kept some and given up others.
        begin_bytes, self._size_bytes = self._size_bytes, self._size_bytes + excess_bytes
        os.ftruncate(self._descriptor, self._size_bytes)
        buffer = bytearray(STEP_BYTES)
        for position in range(begin_bytes, self._size_bytes, STEP_BYTES):
            os.preadv(self._descriptor, [buffer], position)
        return excess_bytes

    def touch_free(self) -> int:
        """Have the host give what is free now; returns the bytes that were touched and are free again."""
        free_bytes: int = psutil.virtual_memory().free - UNTOUCHED_BYTES
        if free_bytes <= 0:
            return 0
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        mmap.mmap(-1, free_bytes, flags=flags).close()
        return free_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._descriptor)
        os.unlink(self._path)
