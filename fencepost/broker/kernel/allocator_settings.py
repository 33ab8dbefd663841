"""Allocator settings: the C library keeps freed memory for reuse, up to a bound, and returns the rest to the system.

By default, glibc returns the memory of a few replies of a megabyte that are freed together, and each page of the next
replies is faulted in again: half of the time of a fetch.
"""

from __future__ import annotations

import asyncio

from fencepost.broker.kernel.c_library import c_function
from fencepost.broker.kernel.supervision import Place, Policy

MEMORY_TRIM = Place("return of freed memory to the system", Policy.REPORT)

KEPT_BYTES = 32 * 1024 * 1024

TRIM_AFTER_S = 1.0
"""By then the event loop's transports have freed the memory of closed connections, too."""

# From glibc's malloc.h. Setting either stops glibc from adapting both.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def keep_freed_memory() -> bool:
    """Let the process keep up to KEPT_BYTES at the end of its heap; False if the C library has no such setting."""
    mallopt = c_function("mallopt")
    return (
        mallopt is not None
        and bool(mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES))
        and bool(mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES))
    )


class FreedMemory:
    """Returns memory to the system, from anywhere in the heap, after most of a high peak was freed."""

    def __init__(self) -> None:
        self._peak_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def freed(self, used_bytes: int, freed_bytes: int) -> None:
        """Record that `freed_bytes` of the `used_bytes` in use are about to be freed."""
        self._peak_bytes = max(self._peak_bytes, used_bytes)
        if self._peak_bytes > 2 * KEPT_BYTES and used_bytes - freed_bytes < self._peak_bytes // 4:
            self._peak_bytes = 0
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(TRIM_AFTER_S, MEMORY_TRIM.callback(self._trim))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _trim(self) -> None:
        self._timer = None
        trim = c_function("malloc_trim")
        if trim is not None:
            trim(KEPT_BYTES)
