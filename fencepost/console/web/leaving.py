"""Who asked for a page may go away before it is read: work for nobody ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from starlette.requests import Request


@asynccontextmanager
async def watching(request: Request) -> AsyncIterator[Callable[[], bool]]:
    """Watch the browser's connection while a page is made; the function says whether it was closed.

    Readings ask it between two requests to a broker. They are not cancelled in the middle of one: that would close the
    connection to the broker, which others use, too.
    """
    is_gone = False

    async def watch() -> None:
        nonlocal is_gone
        while (await request.receive())["type"] != "http.disconnect":
            pass
        is_gone = True

    task = asyncio.create_task(watch())
    try:
        yield lambda: is_gone
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, RuntimeError):
            await task
