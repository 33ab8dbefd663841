"""Preallocation: room on the disk for a file that grows, taken by the megabyte, as block by block costs more.

Room behind a file's end changes neither its size nor its content. If the system or the file system does not support it,
a file grows as it is written.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from fencepost.broker.kernel.c_library import c_function

ROOM_BYTES: Final = 1024 * 1024
"""Room taken at a time: 4 MiB would be no faster, 256 KiB a seventh slower to write to."""
SMALLEST_WITH_ROOM_BYTES: Final = 16 * ROOM_BYTES
"""Smaller files take none, as there may be very many; so at most a sixteenth is taken in vain."""

# From Linux's falloc.h.
_FALLOC_FL_KEEP_SIZE = 1


def preallocate(descriptor: int, position: int, length_bytes: int) -> bool:
    """Allocate `length_bytes` from a position on; False on any error.

    The next write reports a full disk.
    """
    fallocate = _fallocate()
    return fallocate is not None and fallocate(descriptor, _FALLOC_FL_KEEP_SIZE, position, length_bytes) == 0


@cache
def _fallocate() -> Callable[..., Any] | None:
    """Linux's fallocate(2): `os.posix_fallocate` changes the size, and writes zeros if it is not supported."""
    # Its offsets are longs in the libraries of 64-bit systems.
    if ctypes.sizeof(ctypes.c_long) < 8:
        return None
    function = c_function("fallocate")
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)  # type: ignore[attr-defined]
    return function
