"""The process of a `ProcessBroker`: python -m fencepost.testing.child DESCRIPTOR.

DESCRIPTOR is that of a socket through which settings, faults and commands come and answers go.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from concurrent.futures import CancelledError
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from fencepost.broker.config import Entry, load_settings
from fencepost.broker.node import Node
from fencepost.in_process import prepare
from fencepost.testing.clock import TurnableLoop
from fencepost.testing.control import FaultState, Inside
from fencepost.testing.errors import MisuseError
from fencepost.testing.faults import FaultOrder
from fencepost.testing.requests import SeenRequest


class _Child(Inside):
    """The commands of the test, in this process. Faults keep the numbers that the test has given them."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self.watch.crash = self._crash

    def place_as(self, number: int, order: FaultOrder) -> None:
        self.watch.faults.place(order, number)

    def place_again(self, number: int, order: FaultOrder, state: FaultState) -> None:
        """Place a fault of an earlier process, with how often it has fired there."""
        self.watch.faults.place(order, number).fired = state.fired

    def requests(self) -> list[SeenRequest]:
        # Decoded requests may refer to memory of this process.
        return [replace(seen, decoded=None) for seen in super().requests()]

    def _crash(self) -> None:
        """Report the fired faults to the test, and die."""
        seen = self.requests()
        for fault in self.watch.faults:
            self._connection.send(("fired", (fault.number, FaultState(fault.fired, 0), seen)))
        os.kill(os.getpid(), signal.SIGKILL)


async def serve(connection: Connection) -> None:
    """Serve until SIGTERM, or until the test's end of the connection closes."""
    loop = asyncio.get_running_loop()
    end: asyncio.Future[None] = loop.create_future()
    loop.add_signal_handler(signal.SIGTERM, lambda: _end(end))
    settings, orders, states, ahead_s = connection.recv()
    inside = _Child(connection)
    for number, order in orders:
        inside.place_again(number, order, states[number])
    try:
        loaded = load_settings(
            options=[Entry(name, text, "ProcessBroker(settings)") for name, text in settings.items()]
        )
        node = Node(
            loaded.settings, clock=inside.start_clock(loop, ahead_s), local_disk=inside.open_disk, watch=inside.wrap
        )
        await node.start()
        await prepare(node)
    except Exception as error:  # noqa: BLE001  # it is raised in the test's process
        connection.send(("failed", f"{type(error).__name__}: {error}"))
        return
    connection.send(("started", node.address.port))
    reader = threading.Thread(target=_read, args=(connection, inside, loop, end), daemon=True)
    reader.start()
    await end
    inside.watch.is_stopping = True
    await node.stop()


def _read(connection: Connection, inside: _Child, loop: asyncio.AbstractEventLoop, end: asyncio.Future[None]) -> None:
    """Run the test's commands, one after another; end with it."""
    while True:
        try:
            command, arguments = connection.recv()
        except (EOFError, OSError):
            loop.call_soon_threadsafe(lambda: _end(end))
            return
        answer: tuple[str, Any]
        try:
            answer = ("result", asyncio.run_coroutine_threadsafe(inside.run(command, arguments), loop).result())
        except CancelledError:  # the loop ends; the test reads the end of the connection instead of an answer
            return
        except MisuseError as error:
            answer = ("raised", error)
        except Exception as error:  # noqa: BLE001  # it is raised in the test's process
            if loop.is_closed():  # as above, a moment later
                return
            answer = ("raised", RuntimeError(f"{command} failed in the broker's process: {error!r}"))
        connection.send(answer)


def _end(end: asyncio.Future[None]) -> None:
    if not end.done():
        end.set_result(None)


if __name__ == "__main__":
    logging.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the test decides when this process ends
    with asyncio.Runner(loop_factory=TurnableLoop) as runner:
        runner.run(serve(Connection(int(sys.argv[1]))))
