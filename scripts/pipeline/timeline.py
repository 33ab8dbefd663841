"""What happened while the demonstration ran: lives, kills, transactions and counts, each with its time. Recorded here;
`picture.py` draws it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

SAMPLE_INTERVAL_S = 0.05
ACTORS = ("broker", "application", "Spark")
COMMITTED, ABORTED, CUT_OFF = "committed", "aborted", "cut off"


class Life(NamedTuple):
    """One life of an actor as a process; times in seconds since the run began. end_s None: it still runs."""

    actor: str
    start_s: float
    end_s: float | None = None
    is_killed: bool = False


class Transaction(NamedTuple):
    """One transaction of the application.

    outcome: COMMITTED, ABORTED or CUT_OFF: its producer was killed in the middle of it.
    at_s:    when it ended; when it was cut off.
    fenced_s: for CUT_OFF, when the next producer of its transactional id had fenced it and aborted it.
    """

    outcome: str
    at_s: float
    fenced_s: float | None = None


class Sample(NamedTuple):
    """Flights that had departed, as seen at one moment.

    source:      written into the topic that the application reads.
    uncommitted: departures that a read_uncommitted consumer has seen.
    committed:   departures that a read_committed consumer has seen.
    """

    at_s: float
    source: int
    uncommitted: int
    committed: int


@dataclass
class Record:
    """All of it."""

    lives: list[Life] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def count(self, outcome: str) -> int:
        return sum(transaction.outcome == outcome for transaction in self.transactions)

    def lives_of(self, actor: str) -> list[Life]:
        return [life for life in self.lives if life.actor == actor]

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @staticmethod
    def loaded(path: Path) -> Record:
        """The record that `save` wrote."""
        content = json.loads(path.read_text(encoding="utf-8"))
        return Record(
            [Life(*life) for life in content["lives"]],
            [Transaction(*transaction) for transaction in content["transactions"]],
            [Sample(*sample) for sample in content["samples"]],
        )


class Timeline:
    """Fills a record while the run goes on.

    look: returns the counts of a sample: source, uncommitted, committed. A thread calls it from `start` to `stop`.
    """

    def __init__(self, look: Callable[[], tuple[int, int, int]]) -> None:
        self.record = Record()
        self._look = look
        self._began_s = time.time()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="timeline", daemon=True)

    @property
    def now_s(self) -> float:
        return time.time() - self._began_s

    def since_began_s(self, time_s: float) -> float:
        """A time since 1970 as one since the run began."""
        return time_s - self._began_s

    def began(self, actor: str, at_s: float | None = None) -> None:
        self.record.lives.append(Life(actor, self.now_s if at_s is None else at_s))

    def ended(self, actor: str, *, is_killed: bool = False) -> None:
        """End the actor's present life, if it has one."""
        for index, life in enumerate(self.record.lives):
            if life.actor == actor and life.end_s is None:
                self.record.lives[index] = life._replace(end_s=self.now_s, is_killed=is_killed)

    def transaction_ended(self, outcome: str, at_s: float) -> None:
        self.record.transactions.append(Transaction(outcome, at_s))

    def transaction_cut_off(self) -> None:
        self.record.transactions.append(Transaction(CUT_OFF, self.now_s))

    def former_producers_fenced(self, at_s: float) -> None:
        """The transactions that were cut off are aborted now."""
        self.record.transactions = [
            transaction._replace(fenced_s=at_s)
            if transaction.outcome == CUT_OFF and transaction.fenced_s is None
            else transaction
            for transaction in self.record.transactions
        ]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop to sample, after a last one; may be called more than once."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _sample(self) -> None:
        while not self._stopping.wait(SAMPLE_INTERVAL_S):
            self.record.samples.append(Sample(self.now_s, *self._look()))
        self.record.samples.append(Sample(self.now_s, *self._look()))
