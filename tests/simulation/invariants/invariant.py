"""What must hold in every world, as checkers: their interface, and the one that runs all of them.

A checker is an oracle: it reads the bytes on the simulated disks, the requests and replies on the wire and the
watermarks of live logs, and reckons for itself; it never asks the broker whether it was right.
How a world is checked:

    invariants = Invariants(world)         # before the first broker starts
    ...                                    # what happens; `invariants.observe()` now and then, or `watch` as a task
    invariants.settled()                   # in the end, with all brokers up, faults healed and time for retries given
    invariants.require_no_violation()      # raises InvariantViolated, with all violations
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tests.simulation.crossing import follow_replies
from tests.simulation.invariants.evidence import Evidence

if TYPE_CHECKING:
    from fencepost.broker.cluster.leases.lease_store import StoredLeases
    from fencepost.broker.cluster.tail.tail_store import FlushId, PartitionKey, TailRow
    from tests.simulation.broker import SimulatedBroker
    from tests.simulation.disk import Operation
    from tests.simulation.invariants.history import PartitionHistory
    from tests.simulation.invariants.stored_log import StoredBatch
    from tests.simulation.trace import Exchange
    from tests.simulation.world import World

OBSERVATION_INTERVAL_S = 0.25
ENOUGH_VIOLATIONS = 50


@dataclass(frozen=True)
class Violation:
    """An invariant that did not hold. evidence: offsets, producers, requests and whatever else proves it."""

    invariant: int
    at_s: float
    sentence: str
    evidence: tuple[object, ...] = ()

    def __str__(self) -> str:
        lines = [f"invariant {self.invariant} at {self.at_s:.4f} s: {self.sentence}"]
        lines += [f"    {item}" for item in self.evidence]
        return "\n".join(lines)


class InvariantViolated(AssertionError):  # noqa: N818  # says what happened
    """Carries every violation."""

    def __init__(self, violations: Sequence[Violation]) -> None:
        super().__init__("\n".join(str(violation) for violation in violations))
        self.violations = list(violations)


class Invariant:
    """One invariant. A checker overrides the hooks it needs; each returns the violations that it has found.

    number: its place in the list of invariants.
    """

    number: ClassVar[int]

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence

    def appended(self, history: PartitionHistory, batch: StoredBatch) -> Iterable[Violation]:
        """A batch was written to a log. It is not durable yet, and a part of `history` already."""
        return ()

    def rewound(self, history: PartitionHistory) -> Iterable[Violation]:
        """A power loss took batches off the end of a log: `history` is without them."""
        return ()

    def answered(self, exchange: Exchange) -> Iterable[Violation]:
        """A client has the response to its request."""
        return ()

    def observe(self) -> Iterable[Violation]:
        """Called now and then between two callbacks of the loop."""
        return ()

    def restarted(self, broker: SimulatedBroker) -> Iterable[Violation]:
        """A broker has recovered its logs and serves again."""
        return ()

    def leased(self, before: StoredLeases, after: StoredLeases) -> Iterable[Violation]:
        """A transaction has changed rows of nodes or partitions, which processes share."""
        return ()

    def changed(self, broker: SimulatedBroker, operation: Operation) -> Iterable[Violation]:
        """A process has changed something on the disk that it shares with others."""
        return ()

    def flushed(self, flush: FlushId, rows: Sequence[TailRow]) -> Iterable[Violation]:
        """A flush is committed in the engine."""
        return ()

    def committed(self, touched: Collection[PartitionKey]) -> Iterable[Violation]:
        """A transaction of the engine is over, which has changed rows of these partitions."""
        return ()

    def replied(self, node_id: int, api_key: int) -> Iterable[Violation]:
        """An answer leaves a broker."""
        return ()

    def settled(self) -> Iterable[Violation]:
        """The end: all brokers are up, no fault is left, and there was time enough for everything that retries."""
        return ()

    def violation(self, sentence: str, *evidence: object) -> Violation:
        return Violation(self.number, self.evidence.now_s, sentence, evidence)


class Invariants:
    """All checkers over one world. violations: what was found so far; no more than enough of them."""

    def __init__(self, world: World, checkers: Sequence[type[Invariant]] | None = None) -> None:
        from tests.simulation.invariants.engine_evidence import EngineEvidence
        from tests.simulation.invariants.registry import INVARIANTS

        self.violations: list[Violation] = []
        self.evidence = Evidence(world) if world.engine is None else EngineEvidence(world, world.engine)
        chosen = INVARIANTS if checkers is None else checkers
        self.checkers = [checker(self.evidence) for checker in chosen]
        self._appended = self._overriding("appended")
        self._rewound = self._overriding("rewound")
        self._queue_reply = self._overriding("answered")
        self._observe = self._overriding("observe")
        self._restarted = self._overriding("restarted")
        self._settled = self._overriding("settled")
        self._leased = self._overriding("leased")
        self._changed = self._overriding("changed")
        if world.engine is not None:
            engine = world.engine.engine
            flushed, committed, replied = map(self._overriding, ("flushed", "committed", "replied"))
            engine.on_flushed.append(lambda *about: self._ask(flushed, *about))
            engine.on_committed.append(lambda: self._ask(committed, frozenset(engine.rows.touched)))
            follow_replies(world, lambda *about: self._ask(replied, *about))
        world.lease_observers.append(lambda *about: self._ask(self._leased, *about))
        world.disk_observers.append(self._disk_changed)
        self.evidence.on_appended.append(lambda *about: self._ask(self._appended, *about))
        self.evidence.on_rewound.append(lambda *about: self._ask(self._rewound, *about))
        self.evidence.on_answered.append(lambda *about: self._ask(self._queue_reply, *about))
        self.evidence.on_restarted.append(lambda *about: self._ask(self._restarted, *about))

    def observe(self) -> None:
        """Look at the world as it is now. Cheap."""
        self.evidence.observe()
        self._ask(self._observe)

    async def watch(self, interval_s: float = OBSERVATION_INTERVAL_S) -> None:
        """Observe for ever; run it as a task and cancel it."""
        while True:
            await asyncio.sleep(interval_s)
            self.observe()

    def settled(self) -> list[Violation]:
        """Look at the world at its end; returns all violations."""
        self.observe()
        self._ask(self._settled)
        return self.violations

    def require_no_violation(self) -> None:
        """Raises InvariantViolated if anything was found."""
        if self.violations:
            raise InvariantViolated(self.violations)

    def _disk_changed(self, broker: SimulatedBroker, operation: Operation) -> None:
        if self.evidence.world.processes is not None:
            self._ask(self._changed, broker, operation)

    def _overriding(self, hook: str) -> list[Callable[..., Iterable[Violation]]]:
        return [
            getattr(checker, hook)
            for checker in self.checkers
            if getattr(type(checker), hook) is not getattr(Invariant, hook)
        ]

    def _ask(self, hooks: Sequence[Callable[..., Iterable[Violation]]], *about: object) -> None:
        for hook in hooks:
            if len(self.violations) < ENOUGH_VIOLATIONS:
                self.violations.extend(hook(*about))
