"""Looks at the store for what other nodes have changed, which requests wait for, and share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.storage.disk import StorageError

STORE_POLL = Place("look for topics of other nodes", Policy.REPORT)

LONGEST_WAIT_S: Final = 1.0


class StorePoll:
    """Looks at the store, one after the other.

    A request needs a look that begins after the request has arrived: one that is under way may have read before the
    change that its client has seen. All that wait for the next look share it, so that two looks are enough for any
    number of requests.

    look: raises StorageError where the store does not answer.
    """

    def __init__(self, look: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._look = look
        self._next: asyncio.Future[None] | None = None  # done when the look that begins next has ended
        self._began_s = 0.0  # by the event loop's clock, while a look is under way
        self._looking: asyncio.Task[None] | None = None

    async def catch_up(self) -> None:
        """Return after a look that begins from now on, but after LONGEST_WAIT_S at the latest: what is known by then
        has to do. While a look takes longer than that, the store is in trouble, and nobody waits for it."""
        loop = asyncio.get_running_loop()
        if self._looking is None or self._looking.done():
            self._began_s = loop.time()
            self._looking = STORE_POLL.start(self._look_while_asked(), expected=(StorageError,))
        elif loop.time() - self._began_s > LONGEST_WAIT_S:
            return
        if self._next is None:
            self._next = loop.create_future()
        await asyncio.wait([self._next], timeout=LONGEST_WAIT_S)

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _look_while_asked(self) -> None:
        while self._next is not None:
            asked, self._next = self._next, None
            self._began_s = asyncio.get_running_loop().time()
            try:
                await self._look()
            except BaseException:
                self._answer(self._next)  # the store has failed for these, too
                self._next = None
                raise
            finally:
                self._answer(asked)

    @staticmethod
    def _answer(asked: asyncio.Future[None] | None) -> None:
        if asked is not None and not asked.done():
            asked.set_result(None)
