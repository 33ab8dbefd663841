"""The processor time of every single step of an event loop: what all other clients wait for.

A broker runs on asyncio's own loop in this process, as each callback of that loop can be timed; its clients are on
other threads. `time.thread_time` counts neither their work nor that of other processes.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Self


class ReconciliationStep(NamedTuple):
    """One callback of the loop. duration_s: its processor time, passes of the garbage collector left out."""

    duration_s: float
    name: str


NO_STEP = ReconciliationStep(0.0, "")

_HANDLE: Any = asyncio.Handle
"""What the loop runs callbacks by: that has no public name."""
_RUN, _CALLBACK = "_run", "_callback"


class LoopSteps:
    """A context manager: while it is open, every callback of the loop that runs on this thread is timed.

    worst:              the longest step of all.
    longest_collection: the longest pass of the garbage collector, in seconds.
    """

    def __init__(self) -> None:
        self.worst = NO_STEP
        self.longest_collection_s = 0.0
        self._thread = threading.get_ident()
        self._collected_s = 0.0
        self._collection_began_s = 0.0
        self._run: Callable[[asyncio.Handle], None] = getattr(_HANDLE, _RUN)

    def __enter__(self) -> Self:
        run, thread_time, thread = self._run, time.thread_time, self._thread

        def timed(handle: asyncio.Handle) -> None:
            if threading.get_ident() != thread:
                run(handle)
                return
            name = _name(getattr(handle, _CALLBACK))
            collected_s = self._collected_s
            began_s = thread_time()
            run(handle)
            duration_s = thread_time() - began_s - (self._collected_s - collected_s)
            if duration_s > self.worst.duration_s:
                self.worst = ReconciliationStep(duration_s, name)

        setattr(_HANDLE, _RUN, timed)
        gc.callbacks.append(self._collected)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        setattr(_HANDLE, _RUN, self._run)
        gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, _: dict[str, int]) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._collection_began_s = time.thread_time()
            return
        duration_s = time.thread_time() - self._collection_began_s
        self._collected_s += duration_s
        self.longest_collection_s = max(self.longest_collection_s, duration_s)


def _name(callback: Any) -> str:
    """What is about to run: a function, or all coroutines of a task, from the first to the one that it waits in."""
    owner = getattr(callback, "__self__", None)
    if not isinstance(owner, asyncio.Task):
        return str(getattr(callback, "__qualname__", callback))
    names = []
    running: Any = owner.get_coro()
    while running is not None and hasattr(running, "__qualname__"):
        frame = getattr(running, "gi_frame", None)
        if frame is not None and "work" in frame.f_locals:  # of `broker.kernel.eager`, which drives another coroutine
            running = frame.f_locals["work"]
            continue
        names.append(running.__qualname__)
        running = getattr(running, "cr_await", None)
    return " > ".join(names)
