"""How long the broker may hold a processor at a stretch: as long as Linux allows, so that whoever it wakes goes first.

A broker and its clients wake each other all the time. Where two that were woken wait for one processor, Linux (since
6.12) lets the one with the shorter slice go first. A client has the default, a few ms; so a reply is read before the
broker turns to the next request, and a client that has its reply does not wait for the broker to read one.
"""

from __future__ import annotations

import os
import struct

from fencepost.broker.kernel.c_library import c_function

LONGEST_SLICE_NS = 100_000_000
"""The longest that Linux grants. The broker's share of a processor is the same with any."""

# Of Linux's system call tables. glibc has a function of its own since 2.41.
_SCHED_SETATTR_NUMBERS = {"x86_64": 314, "aarch64": 274}

# `struct sched_attr`, as it first was: size, policy, flags, nice, priority, runtime (the slice), deadline and period.
_SCHED_ATTR = struct.Struct("=IIQiIQQQ")


def request_longest_slices() -> bool:
    """For the calling thread, and those that it starts from now on; False where the system cannot be asked.

    Needs no privileges. A priority or policy that the broker was started with stays as it is (sched_setattr(2)).
    """
    system = os.uname()
    number = _SCHED_SETATTR_NUMBERS.get(system.machine)
    system_call = c_function("syscall")
    if number is None or system_call is None or system.sysname != "Linux" or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = _SCHED_ATTR.pack(_SCHED_ATTR.size, os.SCHED_OTHER, 0, niceness, 0, LONGEST_SLICE_NS, 0, 0)
    return bool(system_call(number, 0, attributes, 0) == 0)
