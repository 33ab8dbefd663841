"""What a broker asks of an engine, request by request, and what may go wrong with one of them.

A request is a transaction of the database, or a put, get, listing or deletion of the object store. It is under way
once it was sent: it takes effect then, whatever becomes of the broker that has sent it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from enum import Enum
from typing import Final, NamedTuple

from tests.simulation.disk import die
from tests.simulation.loop import current_process

READING: Final = frozenset(
    {
        "_nothing",
        "_read_counts",
        "load_leases",
        "load_topics",
        "load_deletions",
        "read_versioned",
        "read",
        "is_committed",
        "holds_sweep",
        "due",
        "look_at_standbys",
        "get",
        "get_range",
        "list",
    }
)
"""Kinds of requests that change nothing."""


class EngineRequest(NamedTuple):
    """number: counts from 1, over all brokers. kind: the method of the product's store. name: of an object."""

    number: int
    host: str
    kind: str
    name: str = ""

    @property
    def is_reading(self) -> bool:
        return self.kind in READING


class Trouble(Enum):
    """What goes wrong with a request."""

    DIES_BEFORE = "the broker dies before it asks"
    DIES_MEANWHILE = "the broker dies once it has asked"
    DIES_AFTER = "the broker dies with the answer"
    FREEZES_BEFORE = "the broker freezes before it asks"
    FREEZES_MEANWHILE = "the broker freezes once it has asked"
    FREEZES_AFTER = "the broker freezes with the answer"
    NOT_DONE = "the connection breaks before it is done"
    ANSWER_LOST = "the connection breaks once it is done"


class EngineRequests:
    """All that brokers ask. meet: decides what goes wrong with a request. freeze_s: how long a broker stands still."""

    def __init__(self) -> None:
        self.count = 0
        self.meet: Callable[[EngineRequest], Trouble | None] | None = None
        self.freeze_s = 0.0

    def begin(self, host: str, kind: str, name: str = "") -> Trouble | None:
        """A broker is about to ask for something."""
        self.count += 1
        return None if self.meet is None else self.meet(EngineRequest(self.count, host, kind, name))

    async def before(self, trouble: Trouble | None) -> None:
        """The request is still to be sent."""
        if trouble is Trouble.DIES_BEFORE:
            die()
        if trouble is Trouble.FREEZES_BEFORE:
            self._freeze()
            await asyncio.sleep(0)

    def meanwhile(self, trouble: Trouble | None) -> None:
        """The request is under way; the caller waits for its answer next."""
        if trouble is Trouble.DIES_MEANWHILE:
            die()
        if trouble is Trouble.FREEZES_MEANWHILE:
            self._freeze()

    async def after(self, trouble: Trouble | None) -> None:
        """The answer is there."""
        if trouble is Trouble.DIES_AFTER:
            die()
        if trouble is Trouble.FREEZES_AFTER:
            self._freeze()
            await asyncio.sleep(0)

    def _freeze(self) -> None:
        process = current_process()
        assert process is not None
        process.pause()
        Context().run(asyncio.get_running_loop().call_later, self.freeze_s, process.resume)


def kind_of(work: Callable[..., object]) -> str:
    """The method that asks for a piece of work, from the name of the function that it has made for that."""
    return work.__qualname__.partition(".<locals>")[0].rpartition(".")[2]
