"""Interfaces of the check-back to a cluster: its open transactions, a journal, and an observer. The broker has one set
of these, `fencepost check-back` another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from fencepost.check_back.case import Decider
from fencepost.check_back.question import Question
from fencepost.check_back.records import Entry


class Unavailable(Exception):  # noqa: N818  # a condition that the check-back waits out
    """The cluster could not be asked. `reason` is one sentence for operators."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Transactions(Protocol):
    """The transaction coordinators. Each method raises Unavailable."""

    async def all_open(self, is_wanted: Callable[[str], bool]) -> Sequence[Question]:
        """All open transactions of the ids that are wanted; raises Unavailable if any coordinator is missing."""

    async def end(self, question: Question, *, commit: bool) -> str:
        """End a transaction; return its outcome, also if a client has ended it: `commit`, `abort`, or `unknown` if
        its coordinator has forgotten it. The outcome is durable then.
        """

    async def outcome(self, question: Question) -> tuple[str, Decider]:
        """How a transaction has ended, as for `end`, or `open`; and who has ended it."""


class JournalLog(Protocol):
    """The two topics. Each method raises Unavailable."""

    async def read_state(self) -> Mapping[str, bytes | None]:
        """The latest value of each key of `__fencepost_check_back`; later calls: of those written since."""

    async def write(self, entries: Sequence[Entry]) -> None:
        """Write records, in order, and return when they are durable. Creates the topics that are missing."""


class Observer(Protocol):
    """Observer of the check-back's actions, for log lines. It raises nothing."""

    def recorded(self, entry: Entry) -> None:
        """An entry is durable."""

    def unavailable(self, what: str, reason: str) -> None:
        """A request to the cluster failed, and is retried."""

    def left_out(self, what: str) -> None:
        """Records of the journal cannot be read. Once for all that were written since the reading before."""
