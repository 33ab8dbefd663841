"""Freed memory is used again without the system's help. In their own processes: the setting is the process's."""

from __future__ import annotations

import platform
import subprocess
import sys

FAULTS = """
import resource, sys
from fencepost.broker.kernel.allocator_settings import keep_freed_memory
is_kept = bool(int(sys.argv[1])) and keep_freed_memory()
def use(): return [bytearray(1 << 20) for _ in range(8)]
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20): use()
print(int(is_kept), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

IS_GLIBC = platform.libc_ver()[0] == "glibc"


def page_faults(*, keeps_memory: bool) -> tuple[bool, int]:
    """Whether freed memory is kept, and the faults while 160 MiB, 8 of them at a time, are allocated and freed."""
    command = [sys.executable, "-c", FAULTS, str(int(keeps_memory))]
    is_kept, count = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return is_kept == "1", int(count)


def test_memory_that_was_freed_is_used_again_without_page_faults_where_the_c_library_can() -> None:
    is_kept, count = page_faults(keeps_memory=True)
    assert is_kept == IS_GLIBC
    assert count < 100 or not IS_GLIBC
    _, count = page_faults(keeps_memory=False)
    assert count > 1_000 or not IS_GLIBC
