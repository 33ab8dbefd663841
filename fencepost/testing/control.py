"""The other side of a test's helpers: commands on the broker's own event loop, and their calls from a test's thread."""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import Future
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from fencepost.testing.clock import TurnableClock, TurnableLoop
from fencepost.testing.errors import MisuseError
from fencepost.testing.faults import FaultOrder
from fencepost.testing.requests import SeenRequest

if TYPE_CHECKING:
    from fencepost.broker.handlers import Services
    from fencepost.broker.network.connection import RequestDispatcher
    from fencepost.broker.storage.descriptors import Descriptors
    from fencepost.broker.storage.local_disk import LocalDisk
    from fencepost.testing.dispatcher import WatchedDispatcher

OTHER_LOOP = (
    "the clock of this broker cannot be turned, because its event loop is not asyncio's own and so not ours: run it on "
    "asyncio.SelectorEventLoop (not on uvloop), or use a broker with a loop of its own: the fixture `fencepost`, or "
    "`Broker()` without a data directory"
)


@dataclass(frozen=True, slots=True)
class FaultState:
    """How often a fault fired, and how many requests it holds now."""

    fired: int
    waiting: int


class Inside:
    """The commands of a test, as the broker's event loop runs them. It outlives the broker's restarts.

    watch: the requests and faults; made with the first dispatcher.
    """

    WITHOUT_BROKER = frozenset({"place", "remove", "release", "state", "requests"})
    """Commands that need no running broker."""

    def __init__(self) -> None:
        from fencepost.testing.dispatcher import Watch

        self.watch = Watch()
        self._dispatchers: list[WatchedDispatcher] = []
        self._clock: TurnableClock | None = None

    def wrap(self, inner: RequestDispatcher, services: Services, loop: asyncio.AbstractEventLoop) -> RequestDispatcher:
        """Put this test's eyes and faults before a dispatcher of the broker."""
        from fencepost.testing.dispatcher import WatchedDispatcher

        watched = WatchedDispatcher(inner, services, self.watch, loop)
        self.watch.has_crashed = self.watch.is_stopping = False
        self._dispatchers = [watched]
        return watched

    def start_clock(self, loop: asyncio.AbstractEventLoop, ahead_s: float = 0.0) -> TurnableClock:
        """Make the clock of a broker that is about to start. It goes on where that of an earlier start was."""
        self._clock = TurnableClock(loop, ahead_s if self._clock is None else self._clock.ahead_s)
        return self._clock

    def open_disk(self, descriptors: Descriptors) -> LocalDisk:
        """Make the disk of a broker that is about to start."""
        from fencepost.testing.unsynced_disk import UnsyncedDisk

        self.watch.disk = UnsyncedDisk(descriptors)
        return self.watch.disk

    async def run(self, command: str, arguments: tuple[Any, ...]) -> Any:
        result = getattr(self, command)(*arguments)
        return await result if inspect.isawaitable(result) else result

    def start(self, command: str, arguments: tuple[Any, ...], done: Future[Any]) -> None:
        """Run a command on the loop; its result is there in the same step, unless it waits.

        done: not done if the loop ends before the command, and cancelled if it ends while that waits.
        """
        try:
            result = getattr(self, command)(*arguments)
            if inspect.isawaitable(result):
                asyncio.ensure_future(result).add_done_callback(lambda ended: _pass_on(ended, done))
            else:
                done.set_result(result)
        except Exception as error:  # noqa: BLE001  # it is raised where the test waits
            done.set_exception(error)

    # Commands

    def place(self, order: FaultOrder) -> int:
        return self.watch.faults.place(order).number

    def remove(self, number: int) -> None:
        self.watch.faults.remove(number)

    def release(self, number: int) -> int:
        return self.watch.faults[number].release()

    def state(self, number: int) -> FaultState:
        fault = self.watch.faults[number]
        return FaultState(fault.fired, len(fault.releases))

    def requests(self) -> list[SeenRequest]:
        latest = self.watch.log.latest()
        for dispatcher in self._dispatchers:
            for seen in latest:
                dispatcher.name_partitions(seen)
        return latest

    def disconnect(self, client_id: str | None) -> int:
        """Close the connections of a client; return how many."""
        closed = 0
        for connection, client in list(self.watch.connections.values()):
            if client_id is None or fnmatchcase(client or "", client_id):
                connection.abort()
                closed += 1
        return closed

    async def turn(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, TurnableLoop):
            raise MisuseError(OTHER_LOOP)
        await loop.turn(seconds)


def _pass_on(ended: asyncio.Future[Any], done: Future[Any]) -> None:
    if ended.cancelled():
        done.cancel()
    elif error := ended.exception():
        done.set_exception(error)
    else:
        done.set_result(ended.result())
