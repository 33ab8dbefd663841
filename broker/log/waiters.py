"""Who waits for a log: replies for durability, long polls for anything that moves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator

from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.storage.disk import StorageError

WATCHER = Place("watcher of a log", Policy.REPORT)


class _NothingToAwait:
    """An awaitable that has nothing to wait for."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


ALREADY_DURABLE = _NothingToAwait()


class DurabilityWaiters:
    """Futures that wait for the log to be durable up to an offset. Each waiter has its own, so that one may be
    cancelled."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def wait_for(self, end_offset: int) -> Awaitable[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((end_offset, future))
        return future

    def resolve_up_to(self, offset: int) -> None:
        """All that wait for this offset or a lower one go on."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for end_offset, future in waiting:
            if end_offset > offset:
                self._waiting.append((end_offset, future))
            elif not future.done():
                future.set_result(None)

    def fail(self, reason: str) -> None:
        """All get a StorageError, each its own: what awaits one adds to its traceback."""
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(StorageError(reason))


class Watchers:
    """Callbacks without arguments; quick ones, for they run inside the step that moved the log.

    has_any: whether there are any; who moves a log often asks before it calls `notify`.
    """

    __slots__ = ("_callbacks", "has_any")

    def __init__(self) -> None:
        self._callbacks: dict[Callable[[], None], None] = {}
        self.has_any = False

    def add(self, callback: Callable[[], None]) -> None:
        self._callbacks[callback] = None
        self.has_any = True

    def remove(self, callback: Callable[[], None]) -> None:
        """Nothing happens when it is not there."""
        self._callbacks.pop(callback, None)
        self.has_any = bool(self._callbacks)

    def notify(self) -> None:
        """Call all of them; one that fails is no failure of the log, nor of the others."""
        for callback in tuple(self._callbacks):
            try:
                callback()
            except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
                WATCHER.failed(error)
