"""The answers of a cluster to a user, shared by all who look.

Every kind of question is asked once at a time, and its answer is kept while it is fresh. A hundred open pages cost the
cluster as much as one. Answers are shared by those who ask as the same user with the same credentials, never by others.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClusterError, UnreachableError

logger = logging.getLogger("fencepost.console")

Value = TypeVar("Value")

FRESH_S: Final = 4.5
"""Age up to which an answer is given again. Pages read themselves again every 5 s."""
REST: Final = 8
"""An answer that took 1 s is fresh for 8 s: so the cluster is asked for at most a ninth of the time."""
LONGEST_FRESH_S: Final = 30.0
PATIENCE_S: Final = 0.7
"""A page waits this long for an answer. Then it has the one before, or says that it is still being read."""
OLDEST_S: Final = 120.0
MOST_KINDS: Final = 64
"""Questions whose answers are kept for one user, and users for whom they are."""
MOST_MADE: Final = 32
KEPT_S: Final = 60.0
"""Answers are kept this long after the last look at them."""


class StillReadingError(ClusterError):
    """There is no answer yet; it is still waited for."""


@dataclass(frozen=True)
class Answer(Generic[Value]):
    """An answer. read_s: monotonic time at which it was asked for. number: a later answer has a greater one."""

    value: Value
    read_s: float
    number: int = 0

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.read_s


@dataclass
class _Flight:
    task: asyncio.Task[Answer[Any]]
    generation: int
    waiting: int = 0


@dataclass
class _Slot:
    """One kind of question. generation: of the answer."""

    answer: Answer[Any] | None = None
    generation: int = 0
    took_s: float = 0.0
    asked_s: float = 0.0
    flight: _Flight | None = None


class Reads:
    """The shared answers of one cluster to one user. `looked_s` is when somebody last looked, in monotonic seconds."""

    def __init__(self, fresh_s: float = FRESH_S, patience_s: float = PATIENCE_S) -> None:
        self.fresh_s, self.patience_s = fresh_s, patience_s
        self.looked_s = time.monotonic()
        self._clients: list[Cluster] = []
        self._slots: OrderedDict[Hashable, _Slot] = OrderedDict()
        self._generation = 0
        self._numbers = itertools.count(1)
        self.at_end: Callable[[], object] | None = None
        """Called when the answers are no longer needed."""
        self._kept: dict[type, Any] = {}
        self._made: OrderedDict[Hashable, tuple[int, Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, client: Cluster) -> None:
        """Let a client ask, while it is open."""
        self._clients = [one for one in self._clients if not one.is_closed]
        if client not in self._clients:
            self._clients.append(client)

    @property
    def is_abandoned(self) -> bool:
        """Whether all who could ask have left."""
        return all(one.is_closed for one in self._clients)

    async def ask(
        self, kind: Hashable, read: Callable[[Cluster], Awaitable[Value]], patience_s: float | None = None
    ) -> Answer[Value]:
        """The answer to a kind of question: a fresh one; the one before if the cluster takes longer than `patience_s`.

        read: asks the cluster. patience_s: None for that of pages. Raises ClusterError, that of the cluster only to
        those who waited for it; StillReadingError.
        """
        now_s = time.monotonic()
        slot = self._slots.setdefault(kind, _Slot())
        self._slots.move_to_end(kind)
        slot.asked_s = now_s
        self._tidy(now_s)
        known = self.known(kind)
        if known is not None:
            return known
        flight = slot.flight
        if flight is None or flight.task.done() or flight.generation != self._generation:
            flight = slot.flight = self._fly(slot, read)
        return await self._wait(slot, flight, self.patience_s if patience_s is None else patience_s)

    def known(self, kind: Hashable) -> Answer[Any] | None:
        """The answer to a kind of question, if it is fresh."""
        slot = self._slots.get(kind)
        if slot is None or slot.answer is None or slot.generation != self._generation:
            return None
        # With freshness 0 each look is a new one, for those who test.
        fresh_s = min(max(self.fresh_s, REST * slot.took_s), LONGEST_FRESH_S) if self.fresh_s else 0
        return slot.answer if slot.answer.age_s < fresh_s else None

    async def _wait(self, slot: _Slot, flight: _Flight, patience_s: float) -> Answer[Any]:
        flight.waiting += 1
        try:
            await asyncio.wait({flight.task}, timeout=patience_s)
            if flight.task.cancelled():
                raise UnreachableError("the console ends")
            if flight.task.done():
                return flight.task.result()
        finally:
            flight.waiting -= 1
        before = slot.answer
        if before is not None and before.age_s < OLDEST_S:
            return before
        raise StillReadingError("the cluster is still being read")

    def _fly(self, slot: _Slot, read: Callable[[Cluster], Awaitable[Any]]) -> _Flight:
        flight = _Flight(asyncio.create_task(self._read(slot, read, self._generation)), self._generation)

        def ended(task: asyncio.Task[Answer[Any]]) -> None:
            error = None if task.cancelled() else task.exception()
            if error is not None and not flight.waiting and not isinstance(error, ClusterError):
                logger.error("reading the cluster failed", exc_info=error)

        flight.task.add_done_callback(ended)
        return flight

    async def _read(self, slot: _Slot, read: Callable[[Cluster], Awaitable[Any]], generation: int) -> Answer[Any]:
        began_s = time.monotonic()
        while True:
            client = next((one for one in self._clients if not one.is_closed), None)
            if client is None:
                raise UnreachableError("the session ended")
            try:
                value = await read(client)
            except ClusterError:
                if client.is_closed and not self.is_abandoned:
                    continue  # its person logged out, and others of the same user wait
                raise
            break
        answer = Answer(value, began_s, next(self._numbers))
        slot.answer, slot.generation, slot.took_s = answer, generation, time.monotonic() - began_s
        return answer

    def keep(self, kind: type[Value]) -> Value:
        """An object that is remembered between questions; it is made when it is first needed."""
        found: Value = self._kept.setdefault(kind, None) or kind()
        self._kept[kind] = found
        return found

    async def made(self, kind: Hashable, answer: Answer[Any], make: Callable[[], Value]) -> Value:
        """A value made of an answer, in a thread, and once for all who look at the same; such as a sorted table."""
        found = self._made.get(kind)
        if found is None or found[0] != answer.number:
            found = self._made[kind] = answer.number, await asyncio.to_thread(make)
        self._made.move_to_end(kind)
        while len(self._made) > MOST_MADE:
            self._made.popitem(last=False)
        value: Value = found[1]
        return value

    def forget(self) -> None:
        """Ask anew from now on: something has been changed. An answer on its way may be from before."""
        self._generation += 1

    def drop(self) -> None:
        """Drop all answers; those that are waited for still come."""
        self._slots.clear()
        self._made.clear()

    def close(self) -> None:
        if self.at_end is not None:
            self.at_end()
        for slot in self._slots.values():
            if slot.flight is not None:
                slot.flight.task.cancel()
        self._slots.clear()

    def _tidy(self, now_s: float) -> None:
        """Drop answers that nobody looked at for a while, and of the oldest beyond MOST_KINDS."""
        while self._slots:
            kind, oldest = next(iter(self._slots.items()))
            if len(self._slots) <= MOST_KINDS and now_s - oldest.asked_s < KEPT_S:
                return
            del self._slots[kind]


@dataclass
class Readers:
    """The shared answers of all clusters and users, for one console."""

    fresh_s: float = FRESH_S
    patience_s: float = PATIENCE_S
    _reads: OrderedDict[Hashable, Reads] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._reads)

    def of(self, client: Cluster) -> Reads:
        """The shared answers for the user of a client."""
        now_s = time.monotonic()
        found = self._reads.setdefault(client.identity, Reads(self.fresh_s, self.patience_s))
        self._reads.move_to_end(client.identity)
        found.add(client)
        found.looked_s = now_s
        for identity, one in list(self._reads.items()):
            if one is not found and (one.is_abandoned or len(self._reads) > MOST_KINDS):
                self._reads.pop(identity).close()
            elif now_s - one.looked_s > KEPT_S:
                one.drop()
        return found

    def forget(self) -> None:
        """Ask all clusters anew from now on, as somebody has changed something."""
        for one in self._reads.values():
            one.forget()

    def close(self) -> None:
        for one in self._reads.values():
            one.close()
        self._reads.clear()


def answered(answer: Answer[Value] | BaseException) -> Answer[Value]:
    """An answer that was gathered. Raises its error."""
    if isinstance(answer, BaseException):
        raise answer
    return answer


def part_of(answer: Answer[Value] | BaseException, empty: Value, name: str, missing: list[str]) -> Answer[Value]:
    """An answer that is one of several of a page; without it `empty`, and a sentence in `missing`."""
    match answer:
        case StillReadingError():
            missing.append(f"{name} are still being read.")
        case ClusterError():
            missing.append(f"{name} are missing: {answer}.")
        case _:
            return answered(answer)
    return Answer(empty, time.monotonic())
