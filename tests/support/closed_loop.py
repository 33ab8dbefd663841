"""The end of an event loop whose clients have left connections open."""

from __future__ import annotations

import asyncio


def close_with_connections(loop: asyncio.AbstractEventLoop) -> None:
    """Abort the connections that clients have left open on a loop that does not run, and close it.

    A stream that is collected after its loop was closed would warn in whatever test runs by then.
    """
    for transport in list(getattr(loop, "_transports", {}).values()):
        transport.abort()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
