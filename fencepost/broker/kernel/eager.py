"""Eager start of coroutines: the first step runs before the call returns; no task is made if it is also the last.

This keeps requests in order: a handler's work before its first await is done before the connection reads its next
request. Most handlers end in that step.

On Python 3.12 and later this is `asyncio.Task(..., eager_start=True)`. On 3.11 `start` runs the first step itself, and
there is no current task in it: such a coroutine must not use `asyncio.timeout`, `asyncio.TaskGroup` or
`asyncio.current_task` before its first await. After it, on all versions, it is an ordinary task.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Finished(Generic[T_co]):
    """Result of work that ended in its first step. It can also be awaited, like a coroutine."""

    __slots__ = ("result",)

    def __init__(self, result: T_co) -> None:
        self.result = result

    def __await__(self) -> Generator[Any, Any, T_co]:
        return self.result
        yield  # type: ignore[unreachable]  # makes it a generator


MaybeAwaitable: TypeAlias = Finished[T] | Coroutine[Any, Any, T]
"""Result of a plain function that has done its first step: a coroutine if it has to wait for something.

Mostly it has not; then neither a coroutine nor a task was made.
"""


if sys.version_info >= (3, 12):

    def start(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> Finished[T] | asyncio.Task[T]:
        """Run the first step. Raises the coroutine's exception in it; later exceptions are the task's."""
        task = asyncio.Task(work, loop=loop, eager_start=True)
        return Finished(task.result()) if task.done() else task

else:

    def start(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> Finished[T] | asyncio.Task[T]:
        """Run the first step. Raises the coroutine's exception in it; later exceptions are the task's."""
        try:
            awaited = work.send(None)
        except StopIteration as stop:
            return Finished(stop.value)
        return loop.create_task(_rest(work, awaited))

    @coroutine
    def _rest(work: Coroutine[Any, Any, T], awaited: Any) -> Generator[Any, Any, T]:
        """Run the rest of a coroutine that already waits for `awaited`; the task of this now waits for it."""
        try:
            while True:
                try:
                    sent = yield awaited
                except GeneratorExit:
                    raise
                except BaseException as error:  # noqa: BLE001  # cancellation and failures belong to the coroutine
                    awaited = work.throw(error)
                else:
                    awaited = work.send(sent)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            work.close()
