"""What becomes of memory that was freed: the C library keeps it, up to a bound, for what is read next.

As glibc decides by itself, a few replies of a megabyte that are freed together go back to the system, and each page of
the next ones is faulted in again: half of the time of a fetch.
"""

from __future__ import annotations

from broker.c_library import c_function

KEPT_BYTES = 32 * 1024 * 1024

# From glibc's malloc.h. To set either switches off that glibc adapts both.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def keep_freed_memory() -> bool:
    """Let the process keep up to KEPT_BYTES at the end of its heap; False where the C library has no such setting."""
    mallopt = c_function("mallopt")
    return (
        mallopt is not None
        and bool(mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES))
        and bool(mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES))
    )
