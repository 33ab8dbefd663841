"""Counts what the broker's own Python does, so that a change of its cost shows without a clock.

Counted are the bytecode instructions, the calls of Python functions and the calls of functions written in C that run in
frames of `broker` and `protocol`, the generated readers and writers of messages among them; not what the event loop or
the test does. The numbers are the same in every run on one version of Python.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COUNTED_FOLDERS = tuple(os.path.join(ROOT, "fencepost", folder) + os.sep for folder in ("broker", "protocol"))
GENERATED_PREFIX = "<"
"""Source that has no file."""


@dataclass
class Counts:
    """instructions: of bytecode. calls: of Python functions, resumptions of coroutines included. c_calls: from them."""

    instructions: int = 0
    calls: int = 0
    c_calls: int = 0


@contextmanager
def counting(counts: Counts) -> Iterator[None]:
    """Add what happens inside, in this thread. A debugger or a measuring of coverage goes on afterwards."""
    is_counted_by_code: dict[Any, bool] = {}

    def is_known_as_counted(frame: FrameType) -> bool:
        code = frame.f_code
        known = is_counted_by_code.get(code)
        if known is None:
            known = is_counted_by_code[code] = is_counted(frame)
        return known

    def trace_instructions(frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "opcode":
            counts.instructions += 1
        return trace_instructions

    def trace_calls(frame: FrameType, event: str, _argument: Any) -> Any:
        if event != "call" or not is_known_as_counted(frame):
            return None
        counts.calls += 1
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return trace_instructions

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "c_call" and is_known_as_counted(frame):
            counts.c_calls += 1

    tracer, profiler = sys.gettrace(), sys.getprofile()
    sys.settrace(trace_calls)
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(profiler)
        sys.settrace(tracer)


def is_counted(frame: FrameType) -> bool:
    """Whether a frame runs code of the broker or the protocol, generated code included."""
    file_name = frame.f_code.co_filename
    if file_name.startswith(COUNTED_FOLDERS):
        return True
    # The compiler of messages gives its functions globals of their own, without a module's name; what is generated for
    # the standard library has the name of its module.
    module = frame.f_globals.get("__name__", "protocol")
    return file_name.startswith(GENERATED_PREFIX) and module.partition(".")[0] in ("fencepost", "protocol")
