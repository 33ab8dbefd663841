"""The database of an application that commits in two phases: one row for its decision, with a generation as a fence.

It outlives all of the application's processes. Each method takes effect at one moment, at which its caller may die
before it hears of that; no process decides once a later one has claimed the row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from fencepost.broker.transaction.metadata import Producer


class Fenced(Exception):  # noqa: N818  # what applications meet and deal with
    """A later process has claimed the row, or a resolver has decided: nothing was changed."""


class Token(NamedTuple):
    """A prepared transaction: enough for any process to end it."""

    transactional_id: str
    producer: Producer


class Claim(NamedTuple):
    """What a process finds in the row. token: of what was decided last, unless the transaction after it has begun."""

    generation: int
    token: Token | None


@dataclass
class Decision:
    """A commit of the application. at_s: when the database had it, in the world's time."""

    token: Token
    at_s: float


@dataclass
class Overruling:
    """An administrator's end of an open transaction, whatever was decided. until_s: when it was answered."""

    transactional_id: str
    from_s: float
    until_s: float = math.inf


@dataclass
class Ledger:
    """generation: of the process that may decide.

    decisions:  in their order.
    overruled:  what administrators did against it.
    ids:        the transactional ids that its processes have used, with their generations.
    settled:    those that a later process has fenced.
    identities: all pairs that its processes were given, by transactional id, in the order of the replies.
    """

    generation: int = 0
    token: Token | None = None
    decisions: list[Decision] = field(default_factory=list)
    overruled: list[Overruling] = field(default_factory=list)
    ids: dict[str, int] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    identities: dict[str, list[Producer]] = field(default_factory=dict)
    _refused: set[Token] = field(default_factory=set)

    def claim(self) -> Claim:
        """Begin a process: none before it can decide any more."""
        self.generation += 1
        return Claim(self.generation, self.token)

    def require(self, generation: int) -> None:
        """Raises Fenced unless the process is the newest."""
        if generation != self.generation:
            raise Fenced(f"generation {generation} is over, {self.generation} has begun")

    def clear(self, generation: int) -> None:
        """Forget the decision before, which is complete, so that its token stands for no later transaction.

        Raises Fenced.
        """
        self.require(generation)
        self.token = None

    def record(self, generation: int, token: Token, now_s: float) -> None:
        """Decide to commit. Raises Fenced."""
        self.require(generation)
        if token in self._refused:
            raise Fenced(f"a resolver has decided to abort {token}")
        self.token = token
        self.decisions.append(Decision(token, now_s))

    def settle(self, token: Token) -> bool:
        """Say for good whether an open transaction is committed; when nothing is decided, it is aborted from now on."""
        if any(decision.token == token for decision in self.decisions):
            return True
        self._refused.add(token)
        return False

    def unsettled(self, generation: int, *, is_over: bool) -> list[str]:
        """The ids of processes before that generation which may have left something open. Those of later ones are none
        of its business: it may be slow.

        is_over: no process can open anything any more, so that all are to be looked at once again.
        """
        return [
            known
            for known, of_generation in self.ids.items()
            if of_generation < generation and (is_over or known not in self.settled)
        ]

    def given(self, transactional_id: str, producer: Producer) -> None:
        """A process got a pair."""
        pairs = self.identities.setdefault(transactional_id, [])
        if producer not in pairs:
            pairs.append(producer)

    def was_overruled_before(self, transactional_id: str, at_s: float) -> bool:
        """Whether an administrator's abort may have come before."""
        return any(one.transactional_id == transactional_id and one.from_s <= at_s for one in self.overruled)

    def may_be_overruled(self, transactional_id: str, at_s: float) -> bool:
        """Whether an administrator's abort may have come then."""
        return any(
            one.transactional_id == transactional_id and one.from_s <= at_s <= one.until_s for one in self.overruled
        )
