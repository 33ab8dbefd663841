"""Threads for work that would take longer than a step of the event loop may, and that releases the interpreter."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def on_a_thread(work: Callable[[], T]) -> T:
    """Run work that releases the interpreter on its own thread. Raises the exceptions of the work.

    Starts a thread each time: that takes 0.1 ms, and none is left when the broker stops. If the system has no thread,
    the work runs here.

    An error comes without the variables of the work, which hold its memory. Nothing here keeps an error that is raised:
    it refers to the frames that it passes, so that would be a reference cycle, which the collector finds late.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    outcomes: list[tuple[T | None, BaseException | None]] = []

    def end() -> None:
        if not ended.done():  # else nothing waits any more
            ended.set_result(None)

    def run() -> None:
        try:
            outcomes.append((work(), None))
        except BaseException as error:  # noqa: BLE001  # passed to the waiter
            traceback.clear_frames(error.__traceback__)
            outcomes.append((None, error))
        try:
            loop.call_soon_threadsafe(end)
        except RuntimeError:
            pass  # the loop has been closed meanwhile

    try:
        threading.Thread(target=run, name="large-batch", daemon=True).start()
    except RuntimeError:
        return work()
    await ended
    result, failure = outcomes.pop()
    if failure is None:
        return result  # type: ignore[return-value]  # a T, where there is no error
    try:
        raise failure
    finally:
        del failure
