"""Freed memory is used again without the system's help. In processes of their own: the setting is the process's."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
from broker.freed_memory import keep_freed_memory
assert not int(sys.argv[1]) or keep_freed_memory()
def use(): return [bytearray(1 << 20) for _ in range(8)]
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20): use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(*, keeps_memory: bool) -> int:
    """While 160 MiB, 8 of them at a time, are allocated, written and freed."""
    command = [sys.executable, "-c", FAULTS, str(int(keeps_memory))]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting is glibc's")
def test_memory_that_was_freed_is_used_again_without_page_faults() -> None:
    assert page_faults(keeps_memory=True) < 100
    assert page_faults(keeps_memory=False) > 1_000
