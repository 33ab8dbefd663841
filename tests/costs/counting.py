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
from types import BuiltinFunctionType, CodeType, FrameType, MethodDescriptorType
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COUNTED_FOLDERS = tuple(os.path.join(ROOT, "fencepost", folder) + os.sep for folder in ("broker", "protocol"))
GENERATED_PREFIX = "<"
"""Source that has no file."""
TOOL_ID = 4
"""Not one of those that debuggers, coverage and profilers take. Source: `sys.monitoring`."""


@dataclass
class Counts:
    """instructions: of bytecode. calls: of Python functions, resumptions of coroutines included. c_calls: from them."""

    instructions: int = 0
    calls: int = 0
    c_calls: int = 0


@contextmanager
def counting(counts: Counts) -> Iterator[None]:
    """Add what happens inside, in this thread. A debugger or a measuring of coverage goes on afterwards."""
    with _counting(counts):
        yield


if sys.version_info >= (3, 12):

    @contextmanager
    def _counting(counts: Counts) -> Iterator[None]:
        monitoring, events = sys.monitoring, sys.monitoring.events
        is_counted_by_code: dict[CodeType, bool] = {}

        def is_known_as_counted(code: CodeType) -> bool:
            known = is_counted_by_code.get(code)
            if known is None:
                frame = sys._getframe(2)  # the one that runs the code
                known = is_counted_by_code[code] = is_counted(frame)
            return known

        def instruction(code: CodeType, _offset: int) -> Any:
            if not is_known_as_counted(code):
                return monitoring.DISABLE
            counts.instructions += 1
            return None

        def began(code: CodeType, _offset: int) -> Any:
            if not is_known_as_counted(code):
                return monitoring.DISABLE
            counts.calls += 1
            return None

        def called(code: CodeType, _offset: int, function: object, _argument: object) -> Any:
            if not is_known_as_counted(code):
                return monitoring.DISABLE
            counts.c_calls += isinstance(function, BuiltinFunctionType | type | MethodDescriptorType)
            return None

        monitoring.use_tool_id(TOOL_ID, "costs")
        callbacks = {
            events.INSTRUCTION: instruction,
            events.PY_START: began,
            events.PY_RESUME: began,
            events.CALL: called,
        }
        for event, callback in callbacks.items():
            monitoring.register_callback(TOOL_ID, event, callback)
        monitoring.restart_events()
        monitoring.set_events(TOOL_ID, sum(callbacks))
        try:
            yield
        finally:
            monitoring.set_events(TOOL_ID, 0)
            for event in callbacks:
                monitoring.register_callback(TOOL_ID, event, None)
            monitoring.free_tool_id(TOOL_ID)

else:

    @contextmanager
    def _counting(counts: Counts) -> Iterator[None]:
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
