"""How long the event loop is kept from others while a task runs, in processor time."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any, NamedTuple


class SlicedWork(NamedTuple):
    """longest_s: the longest turn of the loop, in seconds of processor time. turns_count: how many turns others had."""

    longest_s: float
    turns_count: int


async def steps_until_done(task: asyncio.Future[Any]) -> SlicedWork:
    """Watch the turns of the loop until a task is done, whatever becomes of it.

    The garbage collector does not run meanwhile: how long its passes take depends on what the other tests of the
    process have left.
    """
    longest_s, turns_count = 0.0, 0
    gc.disable()
    try:
        while not task.done():
            before_s = time.thread_time()
            await asyncio.sleep(0)
            longest_s, turns_count = max(longest_s, time.thread_time() - before_s), turns_count + 1
    finally:
        gc.enable()
    return SlicedWork(longest_s, turns_count)
