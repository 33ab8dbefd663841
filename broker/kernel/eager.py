"""Start work at once: its first step runs before the call returns, and costs no task when it is also the last.

This is what gives requests their order: whatever a handler does before its first await is done before the next request
of the connection is looked at. Most handlers end in that step.

On Python 3.12 and later this is `asyncio.Task(..., eager_start=True)`. On 3.11 the first step is driven by hand, and
there is no current task during it: such a coroutine must not use `asyncio.timeout`, `asyncio.TaskGroup` or
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
    """The result of work that ended in its first step. Who has nothing to look at may await it like a coroutine."""

    __slots__ = ("result",)

    def __init__(self, result: T_co) -> None:
        self.result = result

    def __await__(self) -> Generator[Any, Any, T_co]:
        return self.result
        yield  # type: ignore[unreachable]  # what makes it a generator


MaybeAwaitable: TypeAlias = Finished[T] | Coroutine[Any, Any, T]
"""What a plain function returns that has done its first step: a coroutine where something is left to be waited for.

Where nothing is, which is most of the time, neither a coroutine nor a task was made for it.
"""


if sys.version_info >= (3, 12):

    def start(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> Finished[T] | asyncio.Task[T]:
        """Run the first step. Raises what the coroutine raised in it; later exceptions are the task's."""
        task = asyncio.Task(work, loop=loop, eager_start=True)
        return Finished(task.result()) if task.done() else task

else:

    def start(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> Finished[T] | asyncio.Task[T]:
        """Run the first step. Raises what the coroutine raised in it; later exceptions are the task's."""
        try:
            awaited = work.send(None)
        except StopIteration as stop:
            return Finished(stop.value)
        return loop.create_task(_rest(work, awaited))

    @coroutine
    def _rest(work: Coroutine[Any, Any, T], awaited: Any) -> Generator[Any, Any, T]:
        """What is left of a coroutine that already waits for `awaited`; the task that runs this takes over the
        waiting."""
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
