"""The broker asks for long slices, and for nothing else. In their own processes: the setting is the process's."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from types import SimpleNamespace

import pytest

from fencepost.broker.kernel.scheduler_slices import LONGEST_SLICE_NS, request_longest_slices

PROGRAM = """
import os
from fencepost.broker.kernel.scheduler_slices import request_longest_slices
print(int(request_longest_slices()), os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0))
print(open(f"/proc/{os.getpid()}/sched").read() if os.path.exists(f"/proc/{os.getpid()}/sched") else "")
"""

IS_KNOWN = platform.system() == "Linux" and platform.machine() in ("x86_64", "aarch64")
"""Where the system can be asked."""
CAN_SET_SLICES = IS_KNOWN and tuple(int(part) for part in platform.release().split(".")[:2]) >= (6, 12)
"""Where it listens, too: before Linux 6.12 a slice is the system's."""


def asked(*before: str) -> tuple[bool, int, int, str]:
    """The reply to a process that `before` starts, its policy, its niceness, and what Linux says of its scheduling."""
    command = [*before, sys.executable, "-c", PROGRAM]
    first, _, rest = subprocess.run(command, check=True, capture_output=True, text=True).stdout.partition("\n")
    is_granted, policy, niceness = first.split()
    return is_granted == "1", int(policy), int(niceness), rest


def test_a_long_slice_is_granted_where_the_system_can_be_asked() -> None:
    is_granted, policy, niceness, scheduling = asked()
    assert is_granted == IS_KNOWN
    assert (policy, niceness) == (os.SCHED_OTHER, os.getpriority(os.PRIO_PROCESS, 0))
    slices_ns = [int(line.split(":")[1]) for line in scheduling.splitlines() if line.startswith("se.slice")]
    assert slices_ns == [LONGEST_SLICE_NS] * len(slices_ns) or not CAN_SET_SLICES


def test_the_priority_that_the_broker_was_started_with_stays() -> None:
    expected = min(19, os.getpriority(os.PRIO_PROCESS, 0) + 7)
    is_granted, _, niceness, _ = asked("nice", "-n", "7")
    assert (is_granted, niceness) == (IS_KNOWN, expected)


def test_a_policy_that_the_broker_was_started_with_stays() -> None:
    is_granted, policy, _, _ = asked("chrt", "--batch", "0")
    assert (is_granted, policy) == (False, os.SCHED_BATCH)


def test_on_an_unknown_machine_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    system = os.uname()
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(sysname=system.sysname, machine="riscv64"))
    assert not request_longest_slices()
