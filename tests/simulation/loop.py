"""Virtual time: an event loop that never waits, and the processes that live and die on it.

Instead of waiting for the next timer the loop moves its clock to it, so that a simulated minute takes milliseconds and
the order of everything depends on nothing outside. The queue of ready callbacks stays first-in first-out; randomness
comes only from the latencies that disk and network choose.

A `Process` stands for one operating system process. Callbacks and tasks belong to the process in whose context they
were started; once it is dead, none of them ever runs again, not even a `finally`: that is what kill -9 does.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import selectors
import sys
import warnings
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")

START_MS = 1_800_000_000_000
"""The wall time at which every simulation begins."""

MOST_FINALLY_BLOCKS = 50
"""One inside another, each with something to wait for: a coroutine that has more is left to the garbage collector."""


class Stuck(Exception):  # noqa: N818  # the end of a story, not an error of the loop
    """No event is left: a task waits for something that never comes."""


class Crash(BaseException):
    """Raised where a process dies, to leave the code that it was running; nobody may catch it."""


class Process:
    """One incarnation of something that can be killed or stopped. `is_dead` never becomes false again."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_paused = False
        self._at_death: list[Callable[[], None]] = []
        self._held: list[Callable[[], object]] = []

    def at_death(self, callback: Callable[[], None]) -> None:
        """What the world does when this process dies: its connections break, its disk is left as it is."""
        self._at_death.append(callback)

    def kill(self) -> None:
        """Stop it for good, in the middle of whatever it does."""
        if not self.is_dead:
            self.is_dead = True
            for callback in self._at_death:
                callback()

    def pause(self) -> None:
        """As SIGSTOP does: what it would have done, and what arrives for it, waits."""
        self.is_paused = True

    def resume(self) -> None:
        """As SIGCONT does: everything that has waited happens now, in its order."""
        self.is_paused = False
        held, self._held = self._held, []
        for work in held:
            asyncio.get_running_loop().call_soon(work, context=Context())

    def hold(self, work: Callable[[], object]) -> None:
        """Have it wait until the process goes on."""
        self._held.append(work)

    @contextmanager
    def running(self) -> Iterator[None]:
        """What is started inside belongs to this process."""
        token = _PROCESS.set(self)
        try:
            yield
        finally:
            _PROCESS.reset(token)


_PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


def current_process() -> Process | None:
    """The process whose code is running; None for the world itself."""
    return _PROCESS.get()


class _VirtualSelector(selectors.BaseSelector):
    """Knows of no files but the loop's own; selecting moves time forward."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        descriptor = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = self._keys[descriptor] = selectors.SelectorKey(fileobj, descriptor, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck(f"nothing is left to happen at {self.now_s:.3f} s")
        if timeout > 0:
            self.now_s += timeout
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def close(self) -> None:
        self._keys.clear()


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`time()` starts at 0 and passes only when nothing is left to do at the present moment."""

    def __init__(self) -> None:
        self._virtual = _VirtualSelector()
        super().__init__(self._virtual)
        self.failures: list[Mapping[str, Any]] = []
        self.set_exception_handler(self._note_failure)
        self._is_over = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._scheduled: list[Any]  # of asyncio's loop: the heap of its timers
        self.set_task_factory(self._new_task)

    def time(self) -> float:
        return self._virtual.now_s

    def leap(self, by_s: float, *, longer_than_s: float) -> None:
        """Have the timers that wait for longer than this wait for so much less; all else stays as it is."""
        now_s = self.time()
        for handle in self._scheduled:
            remaining_s = handle._when - now_s
            if remaining_s > longer_than_s:
                handle._when = now_s + max(remaining_s - by_s, 0.0)
        heapq.heapify(self._scheduled)

    def bury(self) -> None:
        """Close unfinished coroutines, and those that never started: mostly tasks of dead processes.

        What their `finally` blocks do has no effect any more.
        """
        self._is_over = True
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for task in self._tasks:
                    _close(task.get_coro())
                self._tasks.clear()
                gc.collect(0)  # the youngest generation holds all that was made since collecting was disabled
        finally:
            sys.unraisablehook = hook

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self._is_over:
            return asyncio.Handle(callback, args, self, context)
        process = _PROCESS.get() if context is None else context.get(_PROCESS)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        turn = _Turn(process, callback, args, copy_context() if context is None else context)
        turn.handle = super().call_soon(turn, context=turn.context)
        return turn.handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        process = _PROCESS.get() if context is None else context.get(_PROCESS)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        turn = _Turn(process, callback, args, copy_context() if context is None else context)
        turn.handle = handle = super().call_at(when, turn, context=turn.context)
        return handle

    def _new_task(self, _: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        # A task that nothing refers to is closed, and its `finally` blocks run: not what kill -9 does.
        task = asyncio.Task(coroutine, loop=self, **options)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _note_failure(self, _: asyncio.AbstractEventLoop, failure: Mapping[str, Any]) -> None:
        """What a task or a callback raised and nobody took: a finding, unless it died with its process."""
        error = failure.get("exception")
        if not isinstance(error, Crash) and "was destroyed but it is pending" not in failure["message"]:
            self.failures.append(failure)


def _close(coroutine: Any) -> None:
    """End a coroutine that nobody will go on with, whatever it does in its `finally` blocks."""
    for _ in range(MOST_FINALLY_BLOCKS):
        try:
            coroutine.close()
        except BaseException:  # noqa: BLE001  # it waits in a `finally`, or does what the dead cannot do
            continue
        return


class _Turn:
    """A callback that runs unless its process is dead, and not before its process goes on."""

    __slots__ = ("_args", "_callback", "_process", "context", "handle")

    def __init__(
        self, process: Process, callback: Callable[..., object], args: tuple[Any, ...], context: Context
    ) -> None:
        self.context = context
        self.handle: asyncio.Handle | None = None
        self._process = process
        self._callback = callback
        self._args = args

    def __call__(self) -> None:
        process = self._process
        if process.is_dead:
            return
        if process.is_paused:
            process.hold(self._continue_send)
            return
        try:
            self._callback(*self._args)
        except Crash:
            pass

    def _continue_send(self) -> None:
        # It may have been cancelled by what else has waited.
        if self.handle is not None and not self.handle.cancelled():
            self.context.run(self)


def wall_time_ms() -> int:
    """The world's time; that at which it begins where no loop runs."""
    try:
        return START_MS + round(asyncio.get_running_loop().time() * 1000)
    except RuntimeError:
        return START_MS


class SimulatedClock:
    """Wall time made of loop time. skew_ms: how far this clock is ahead of the world's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, skew_ms: int = 0) -> None:
        self._loop = loop
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        return START_MS + round(self._loop.time() * 1000) + self.skew_ms


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run on a fresh loop until `main` ends.

    Raises Stuck when it waits for ever, and AssertionError when something failed in the background.
    The garbage collector rests meanwhile: it would end the coroutines of dead processes at moments that no seed
    decides.
    """
    loop = VirtualTimeLoop()
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        try:
            result = loop.run_until_complete(loop.create_task(main, context=copy_context()))
        finally:
            # Whatever `main` has met may come of it.
            for failure in loop.failures:
                raise AssertionError(f"failed in the background: {failure}") from failure.get("exception")
        return result
    finally:
        loop.bury()
        loop.close()
        if was_collecting:
            gc.enable()
