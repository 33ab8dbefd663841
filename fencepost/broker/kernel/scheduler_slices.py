"""Scheduler slice of the broker's threads: the longest that Linux allows, so that clients it wakes run first.

A broker and its clients wake each other all the time. When two woken threads wait for one processor, Linux (since 6.12)
runs the one with the shorter slice first. A client has the default, a few ms; so it reads its reply before the broker
reads the next request.
"""

from __future__ import annotations

import os
import struct

from fencepost.broker.kernel.c_library import c_function

LONGEST_SLICE_NS = 100_000_000
"""The longest slice that Linux grants. It does not change the broker's share of a processor."""

# Of Linux's system call tables. glibc has a function for it since 2.41.
_SCHED_SETATTR_NUMBERS = {"x86_64": 314, "aarch64": 274}

# The first `struct sched_attr`: size, policy, flags, nice, priority, runtime (the slice), deadline and period.
_SCHED_ATTR = struct.Struct("=IIQiIQQQ")


def request_longest_slices() -> bool:
    """Request the longest slice for the calling thread and those that it starts later; False if that is not possible.

    Needs no privileges. Keeps the priority; changes nothing under another policy than SCHED_OTHER (sched_setattr(2)).
    """
    system = os.uname()
    number = _SCHED_SETATTR_NUMBERS.get(system.machine)
    system_call = c_function("syscall")
    if number is None or system_call is None or system.sysname != "Linux" or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = _SCHED_ATTR.pack(_SCHED_ATTR.size, os.SCHED_OTHER, 0, niceness, 0, LONGEST_SLICE_NS, 0, 0)
    return bool(system_call(number, 0, attributes, 0) == 0)
