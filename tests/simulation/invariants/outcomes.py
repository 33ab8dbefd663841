"""Invariants 2, 3 and 12: one decision for a transaction, everywhere, and only once it is complete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fencepost.broker.kernel.topic_partition import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_offsets import TxnOffsetCommitRequest
from fencepost.protocol.messages.markers import WriteTxnMarkersRequest
from fencepost.protocol.messages.transactions import EndTxnRequest
from fencepost.protocol.stored.consumer_offsets import decode_offset_commit_key, decode_offset_commit_value
from tests.simulation.invariants.evidence import Evidence
from tests.simulation.invariants.history import PartitionHistory, PartitionTransaction
from tests.simulation.invariants.invariant import Invariant, Violation
from tests.simulation.invariants.stored_log import StoredBatch
from tests.simulation.invariants.transaction_log import COMPLETE, StateRecord, Transaction, partitions_of
from tests.simulation.trace import Exchange


class _AcknowledgedEnd(NamedTuple):
    """A reply to EndTxn, and the record that decided it."""

    exchange: Exchange
    prepared: StateRecord
    committed: bool


class AtomicVisibility(Invariant):
    """2. Once EndTxn(COMMIT) is acknowledged, every partition and every offset commit of the transaction is visible in
    the end; after an acknowledged abort none ever is.
    """

    number = 2

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._ends: list[_AcknowledgedEnd] = []
        self._offsets: list[tuple[PartitionHistory, StoredBatch, Exchange]] = []

    def answered(self, exchange: Exchange) -> Iterable[Violation]:
        request = exchange.request
        if isinstance(request, EndTxnRequest) and exchange.response.error_code == ErrorCode.NONE:
            yield from self._end_acknowledged(exchange, request)
        elif isinstance(request, TxnOffsetCommitRequest):
            yield from self._offsets_acknowledged(exchange, request)

    def _end_acknowledged(self, exchange: Exchange, request: EndTxnRequest) -> Iterator[Violation]:
        for transaction in reversed(self.evidence.transactions.transactions.get(request.transactional_id, ())):
            if (
                transaction.prepared is not None
                and transaction.is_committed == request.committed
                and transaction.client == (request.producer_id, request.producer_epoch)
            ):
                self._ends.append(_AcknowledgedEnd(exchange, transaction.prepared, request.committed))
                return
        yield self.violation(
            f"{exchange.client} got the reply that its transaction has ended, but the log has no such decision",
            exchange,
            *self.evidence.transactions.records.get(request.transactional_id, ())[-4:],
        )

    def _offsets_acknowledged(self, exchange: Exchange, request: TxnOffsetCommitRequest) -> Iterator[Violation]:
        sent_order = self.evidence.sent_order[exchange.number]
        errors = {
            (topic.name, partition.partition_index): partition.error_code
            for topic in exchange.response.topics
            for partition in topic.partitions
        }
        for topic in request.topics:
            for partition in topic.partitions:
                if errors.get((topic.name, partition.partition_index)) != ErrorCode.NONE:
                    continue
                found = self._find_commit(
                    request,
                    TopicPartition(topic.name, partition.partition_index),
                    partition.committed_offset,
                    sent_order,
                )
                if found is None:
                    yield self.violation(
                        f"{exchange.client} got the reply that an offset is in its transaction; it is not in the log",
                        exchange,
                    )
                else:
                    self._offsets.append((*found, exchange))

    def _find_commit(
        self, request: TxnOffsetCommitRequest, topic_partition: TopicPartition, offset: int, sent_order: int
    ) -> tuple[PartitionHistory, StoredBatch] | None:
        for history in self.evidence.of_topic(CONSUMER_OFFSETS_TOPIC):
            for batch in reversed(history.batches):
                if batch.order <= sent_order:
                    break
                if (batch.producer_id, batch.producer_epoch) != (request.producer_id, request.producer_epoch):
                    continue
                if not batch.is_control and _commits(batch, request.group_id, topic_partition, offset):
                    return history, batch
        return None

    def rewound(self, history: PartitionHistory) -> Iterable[Violation]:
        name = history.topic_partition
        if name.topic == TRANSACTION_STATE_TOPIC:
            for end in self._ends:
                if end.prepared.partition == name.partition and end.prepared.offset >= history.end_offset:
                    yield self.violation("an acknowledged end of a transaction is lost", end.exchange, end.prepared)
        for where, batch, exchange in self._offsets:
            if where is history and batch.base_offset >= history.end_offset:
                yield self.violation("an acknowledged offset commit of a transaction is lost", exchange, batch)

    def settled(self) -> Iterable[Violation]:
        parts = self._parts()
        for end in self._ends:
            transaction = self._transaction(end)
            if transaction is None:
                continue  # lost, and reported when it was
            for history, part in parts.get(transaction, ()):
                if part.is_open:
                    yield self.violation(
                        f"an acknowledged {_word(end.committed)} has not reached {history}", end.exchange, part
                    )
                elif part.is_committed != end.committed:
                    yield self.violation(
                        f"{history} has the other outcome than the {_word(end.committed)} that was acknowledged",
                        end.exchange,
                        part,
                    )

    def _parts(self) -> dict[Transaction, list[tuple[PartitionHistory, PartitionTransaction]]]:
        parts: dict[Transaction, list[tuple[PartitionHistory, PartitionTransaction]]] = {}
        for history in self.evidence.histories.values():
            for part in history.transactions:
                for transaction in self.evidence.transactions.of_part(part):
                    parts.setdefault(transaction, []).append((history, part))
        return parts

    def _transaction(self, end: _AcknowledgedEnd) -> Transaction | None:
        for transaction in self.evidence.transactions.transactions.get(end.prepared.transactional_id, ()):
            prepared = transaction.prepared
            if prepared is not None and (prepared.partition, prepared.offset) == (
                end.prepared.partition,
                end.prepared.offset,
            ):
                return transaction
        return None


def _commits(batch: StoredBatch, group_id: str, topic_partition: TopicPartition, offset: int) -> bool:
    for record in batch.records:
        key = None if record.key is None else decode_offset_commit_key(record.key)
        if key is None or record.value is None:
            continue
        value = decode_offset_commit_value(record.value)
        is_requested = (key.group, key.topic, key.partition) == (group_id, *topic_partition)
        if is_requested and value is not None and value.offset == offset:
            return True
    return False


def _word(committed: bool) -> str:
    return "commit" if committed else "abort"


class OneOutcome(Invariant):
    """3. No partition of a transaction gets a COMMIT while another gets an ABORT marker for it: every marker says what
    the coordinator's log had decided before.
    """

    number = 3

    def appended(self, history: PartitionHistory, batch: StoredBatch) -> Iterable[Violation]:
        if batch.marker is None:
            return
        transaction = self.evidence.transactions.of_marker(batch)
        if transaction is None:
            if not self._is_administrators(batch):
                yield self.violation(f"a marker in {history} that no coordinator had decided on", batch)
        elif transaction.is_committed != batch.marker.committed and not self._is_administrators(batch):
            yield self.violation(f"a marker in {history} says the opposite of the decision", batch, transaction)

    def _is_administrators(self, batch: StoredBatch) -> bool:
        """Whether a client, and so no coordinator, asked for the marker, as the tools for hanging transactions do."""
        assert batch.marker is not None
        hosts = {broker.host for broker in self.evidence.world.brokers.values()}
        return any(
            (marker.producer_id, marker.producer_epoch, marker.transaction_result)
            == (batch.producer_id, batch.producer_epoch, batch.marker.committed)
            for exchange in self.evidence.world.trace.exchanges
            if isinstance(exchange.request, WriteTxnMarkersRequest) and exchange.client not in hosts
            for marker in exchange.request.markers
        )


class CompleteOnlyWithMarkers(Invariant):
    """12. CompleteX is written only if every partition in the PrepareX record holds a marker of that producer and
    epoch, or was deleted.
    """

    number = 12

    def appended(self, history: PartitionHistory, batch: StoredBatch) -> Iterable[Violation]:
        if history.topic_partition.topic != TRANSACTION_STATE_TOPIC:
            return
        for record in self.evidence.transactions.of_batch(batch):
            if record.state in COMPLETE:
                transactions = self.evidence.transactions.transactions[record.transactional_id]
                if transactions:
                    yield from self._check(transactions[-1])

    def rewound(self, history: PartitionHistory) -> Iterable[Violation]:
        if history.topic_partition.topic != TRANSACTION_STATE_TOPIC:
            for transaction in self.evidence.transactions.all():
                if transaction.completed is not None and history.topic_partition in transaction.partitions:
                    yield from self._check(transaction)

    def _check(self, transaction: Transaction) -> Iterator[Violation]:
        prepared = transaction.prepared
        if prepared is None or prepared.value is None:
            return
        for topic_partition in sorted(partitions_of(prepared.value)):
            histories = [self.evidence.of(topic_partition)]
            if self._is_gone(topic_partition) or any(
                history is not None and _has_marker(history, prepared) for history in histories
            ):
                continue
            yield self.violation(
                f"{transaction.transactional_id} is complete, but {topic_partition} holds no marker", transaction
            )

    def _is_gone(self, topic_partition: TopicPartition) -> bool:
        return self.evidence.is_deleted(topic_partition)


def _has_marker(history: PartitionHistory, prepared: StateRecord) -> bool:
    for batch in reversed(history.batches):
        if batch.order <= prepared.order:
            return False
        if batch.marker is not None and (batch.producer_id, batch.producer_epoch) == prepared.producer:
            return True
    return False
