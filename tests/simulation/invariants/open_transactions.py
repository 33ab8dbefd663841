"""Invariants 13 and 14: which transactions are open, and that their coordinator knows of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fencepost.broker.kernel.topic_partition import TRANSACTION_STATE_TOPIC
from tests.simulation.invariants.evidence import Evidence
from tests.simulation.invariants.history import PartitionHistory, PartitionTransaction
from tests.simulation.invariants.invariant import Invariant, Violation
from tests.simulation.invariants.stored_log import StoredBatch


class OneOpenTransaction(Invariant):
    """13. At most one transaction is open per transactional id, and per partition at most one per producer id."""

    number = 13

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._homes: dict[str, PartitionHistory] = {}

    def appended(self, history: PartitionHistory, batch: StoredBatch) -> Iterable[Violation]:
        if history.topic_partition.topic == TRANSACTION_STATE_TOPIC:
            for record in self.evidence.transactions.of_batch(batch):
                home = self._homes.setdefault(record.transactional_id, history)
                if home.topic_partition != history.topic_partition:
                    yield self.violation(
                        f"{record.transactional_id} has two coordinators: {home} and {history}", record
                    )
        elif batch.is_transactional and not batch.is_control:
            yield from self._check_data(history, batch)

    def _check_data(self, history: PartitionHistory, batch: StoredBatch) -> Iterator[Violation]:
        part = history.transaction_of[batch.base_offset]
        if part.producer_epoch != batch.producer_epoch:
            yield self.violation(f"{history} took a batch of another epoch into an open transaction", part, batch)
        if part.batches[0] is not batch:
            return
        transactions = self.evidence.transactions
        transactional_id = transactions.owners.get(batch.producer_id)
        if transactional_id is None:
            return
        own = transactions.of_data(batch)
        for other_history in self.evidence.histories.values():
            if self.evidence.is_deleted(other_history.topic_partition):
                continue
            for other in other_history.open.values():
                if other is part or transactions.owners.get(other.producer_id) != transactional_id:
                    continue
                if transactions.of_data(other.batches[0]) is not own:
                    yield self.violation(
                        f"{transactional_id} has two transactions open, in {other_history} and {history}", other, part
                    )


class NoHangingTransactions(Invariant):
    """14. Every open transaction in a partition is known to its coordinator as Ongoing or PrepareX with that partition.

    Holds only where transactions are verified before their first batch.
    """

    number = 14

    def appended(self, history: PartitionHistory, batch: StoredBatch) -> Iterable[Violation]:
        if batch.is_transactional and not batch.is_control:
            yield from self._check(history, history.transaction_of[batch.base_offset])

    def observe(self) -> Iterable[Violation]:
        for history in self.evidence.histories.values():
            for part in history.open.values():
                yield from self._check(history, part)

    def _check(self, history: PartitionHistory, part: PartitionTransaction) -> Iterator[Violation]:
        if self._is_unverified(history):
            return
        transactional_id = self.evidence.transactions.owners.get(part.producer_id)
        if transactional_id is None:
            yield self.violation(f"no coordinator knows the producer of an open transaction in {history}", part)
            return
        current = self.evidence.transactions.current(transactional_id)
        if (
            current is None
            or (current.producer_id, current.producer_epoch) != (part.producer_id, part.producer_epoch)
            or history.topic_partition not in current.partitions
        ):
            yield self.violation(
                f"a transaction hangs in {history}: its coordinator does not know it",
                part,
                current,
                self.evidence.transactions.last(transactional_id),
            )

    def _is_unverified(self, history: PartitionHistory) -> bool:
        settings = self.evidence.world.brokers[history.node_id].settings
        return settings.get("transaction.partition.verification.enable", "true").lower() == "false"
