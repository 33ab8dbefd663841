"""Polls the store for other nodes' changes; requests wait for a poll, and share it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.storage.disk import StorageError

STORE_POLL = Place("look for topics of other nodes", Policy.REPORT)

LONGEST_WAIT_S: Final = 1.0


class StorePoll:
    """Polls the store, one poll after the other.

    A request needs a poll that begins after the request has arrived: a running one may have read before the change that
    its client has seen. All requests that wait for the next poll share it, so two polls are enough for any number of
    requests.

    look: polls once; raises StorageError if the store does not answer.
    """

    def __init__(self, look: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._look = look
        self._next: asyncio.Future[bool] | None = None  # done when the next poll has ended
        self._began_s = 0.0  # by the event loop's clock, while a poll runs
        self._looking: asyncio.Task[None] | None = None

    async def catch_up(self) -> bool:
        """Return after a poll that begins from now on, but after LONGEST_WAIT_S at the latest, with the state known by
        then. While a poll takes longer than that, the store is in trouble, and no request waits for it.

        Returns whether such a poll has succeeded.
        """
        loop = asyncio.get_running_loop()
        if self._looking is None or self._looking.done():
            self._began_s = loop.time()
            self._looking = STORE_POLL.start(self._look_while_asked(), expected=(StorageError,))
        elif loop.time() - self._began_s > LONGEST_WAIT_S:
            return False
        if self._next is None:
            self._next = loop.create_future()
        asked = self._next
        await asyncio.wait([asked], timeout=LONGEST_WAIT_S)
        return asked.done() and asked.result()

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _look_while_asked(self) -> None:
        while self._next is not None:
            asked, self._next = self._next, None
            self._began_s = asyncio.get_running_loop().time()
            has_succeeded = False
            try:
                await self._look()
                has_succeeded = True
            except BaseException:
                self._answer(self._next, has_succeeded)  # the store has failed for these, too
                self._next = None
                raise
            finally:
                self._answer(asked, has_succeeded)

    @staticmethod
    def _answer(asked: asyncio.Future[bool] | None, has_succeeded: bool) -> None:
        if asked is not None and not asked.done():
            asked.set_result(has_succeeded)
