"""Processes that belong together: one and its children, frozen and thawed as one."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path


def freeze_family(process_id: int) -> list[int]:
    """Send SIGSTOP to a process and its children; return those that were there."""
    frozen = []
    for each in family(process_id):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGSTOP)
            frozen.append(each)
    return frozen


def thaw(frozen: Sequence[int]) -> None:
    """Send SIGCONT to processes; those that have ended are left out."""
    for each in frozen:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGCONT)


def family(parent: int) -> Iterator[int]:
    """The parent first: once it is frozen, there are no more children."""
    yield parent
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # After the name, which may hold anything in parentheses: the state, and the parent.
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                    yield int(entry.name)
