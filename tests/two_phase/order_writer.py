"""A service that writes orders, as a process that stops at a chosen line of the crash table:

    python -m tests.two_phase.order_writer CLIENT DATABASE ADDRESS SERVERS TOPIC ID TIMEOUT_MS ROW NAME…

It writes each order that the database has not, and stops at ROW of the second that it writes: it prints the row, and
goes on once it reads a line. At the end it prints how many it has written; an error of the library is its exit code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, Final

from fencepost.two_phase import Coordinator, HeuristicOutcome, Superseded, TwoPhaseError, commit
from fencepost.two_phase.client_calls import BlockingCalls, LoopCalls
from tests.two_phase.databases import Database
from tests.two_phase.sessions import SESSIONS, Session

ROWS: Final = (
    "sent",
    "prepared",
    "recorded",
    "committed in the database",
    "committed on both sides",
    "forgotten",
)
"""Of `transaction`, in their order."""
RECOVERY_ROWS: Final = ("claimed", "completed")
"""Of `recover`, for a token that was left."""
SIDES_DIFFER, GAVE_UP = 3, 4
"""Exit codes: an error that needs a person, and one after which another session can go on."""


class Stop:
    """Stops the process when it comes to a row."""

    def __init__(self, row: str) -> None:
        self._row = row
        self.is_armed = row in RECOVERY_ROWS

    def at(self, row: str) -> None:
        if self.is_armed and row == self._row:
            self.is_armed = False
            sys.stdout.write(f"at {row}\n")
            sys.stdout.flush()
            sys.stdin.readline()

    def after(self, row: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def stopping(*arguments: Any, **options: Any) -> Any:
            result = function(*arguments, **options)
            self.at(row)
            return result

        return stopping

    def after_async(self, row: str, function: Callable[..., Any]) -> Callable[..., Any]:
        async def stopping(*arguments: Any, **options: Any) -> Any:
            result = await function(*arguments, **options)
            self.at(row)
            return result

        return stopping


class Connection:
    """The database's connection, which stops after the commit of the changes."""

    def __init__(self, connection: Any, stop: Stop) -> None:
        self._connection, self._stop = connection, stop
        self.has_recorded = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def commit(self) -> None:
        self._connection.commit()
        if self.has_recorded:
            self.has_recorded = False
            self._stop.at("committed in the database")


def instrument(session: Session, stop: Stop) -> None:
    """Let a session stop at each row."""
    connection = session.connection = Connection(session.connection, stop)
    record = session.log.record

    def recorded(*arguments: Any) -> None:
        record(*arguments)
        connection.has_recorded = True
        stop.at("recorded")

    session.log.record = recorded
    for calls in (BlockingCalls, LoopCalls):
        of_client: Any = calls
        of_client.prepare = stop.after_async("prepared", of_client.prepare)
        of_client.commit = stop.after_async("committed on both sides", of_client.commit)
    steps: Any = commit._Steps
    steps._forget = stop.after("forgotten", steps._forget)
    steps._claim = stop.after("claimed", steps._claim)
    coordinators: Any = Coordinator
    coordinators.complete = stop.after("completed", coordinators.complete)


def main(
    client: str, kind: str, address: str, servers: str, topic: str, name: str, timeout_ms: str, row: str, *orders: str
) -> int:
    stop = Stop(row)
    session = SESSIONS[client](servers, Database(kind, address), topic, name)
    session.transaction_timeout_ms = int(timeout_ms)
    instrument(session, stop)
    written = 0
    try:
        session.start()
        there = session.database.orders()
        for order in orders:
            if order not in there:
                stop.is_armed = written == 1
                with session.transaction():
                    session.database.insert(session.connection, order)
                    session.send(order)
                    stop.at("sent")
                written += 1
    except TwoPhaseError as error:
        sys.stdout.write(f"{type(error).__name__}: {error}\n")
        return SIDES_DIFFER if isinstance(error, (HeuristicOutcome, Superseded)) else GAVE_UP
    sys.stdout.write(f"wrote {written}\n")
    return 0


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # as a process ends that is killed: no client says good-bye
