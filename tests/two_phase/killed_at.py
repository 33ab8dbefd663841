"""Runs a program, and kills this process when it comes to a line: `python -m tests.two_phase.killed_at N PROGRAM …`.

Counted are the lines of the program's function and of the library's commit and log; 0 kills nowhere. Prints how many
lines there were.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from types import FrameType
from typing import Any

COUNTED = (
    "two_phase/commit.py",
    "two_phase/logs.py",
    "two_phase/client_calls.py",
    "two_phase/databases.py",
    "two_phase/order_service.py",
    "two_phase/order_service_postgres.py",
)


def main(kill_at: int, program: str, arguments: list[str]) -> None:
    lines = 0

    def on_line(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        if event == "line":
            lines += 1
            if lines == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return on_line

    def on_call(frame: FrameType, _event: str, _: Any) -> Any:
        is_counted = frame.f_code.co_filename.endswith(COUNTED) and frame.f_code.co_name != "<module>"
        return on_line if is_counted else None

    sys.argv = [program, *arguments]
    sys.settrace(on_call)
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        sys.settrace(None)
    sys.stdout.write(f"{lines}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
