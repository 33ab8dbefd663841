"""Waiters of a log: replies that wait for durability, long polls that wait for any progress."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator

from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.storage.disk import StorageError

WATCHER = Place("watcher of a log", Policy.REPORT)


class _NothingToAwait:
    """An awaitable that is done."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


ALREADY_DURABLE = _NothingToAwait()


class DurabilityWaiters:
    """Futures that wait for the log to be durable up to an offset. Each waiter has its own, so that it can be
    cancelled."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def wait_for(self, end_offset: int) -> Awaitable[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((end_offset, future))
        return future

    def resolve_up_to(self, offset: int) -> None:
        """Resolve all that wait for this offset or a lower one."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for end_offset, future in waiting:
            if end_offset > offset:
                self._waiting.append((end_offset, future))
            elif not future.done():
                future.set_result(None)

    def fail(self, reason: str) -> None:
        """Fail all with a StorageError, one for each: awaiting adds to its traceback."""
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(StorageError(reason))
                future.exception()  # of one whose request is gone nobody else asks for it, and asyncio would complain


class Watchers:
    """Callbacks without arguments; they must be quick, as they run in the step that moved the log.

    has_any: whether there are any; checked often before `notify` is called.
    """

    __slots__ = ("_callbacks", "has_any")

    def __init__(self) -> None:
        self._callbacks: dict[Callable[[], None], None] = {}
        self.has_any = False

    def add(self, callback: Callable[[], None]) -> None:
        self._callbacks[callback] = None
        self.has_any = True

    def remove(self, callback: Callable[[], None]) -> None:
        """Remove a callback; a missing one is no error."""
        self._callbacks.pop(callback, None)
        self.has_any = bool(self._callbacks)

    def notify(self) -> None:
        """Call all callbacks; an exception of one fails neither the log nor the others."""
        for callback in tuple(self._callbacks):
            try:
                callback()
            except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
                WATCHER.failed(error)
