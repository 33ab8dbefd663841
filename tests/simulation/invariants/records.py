"""Invariants 4, 5 and 6: acknowledged records stay and stand once, sequences have no gaps, epochs never go down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.produce import ProduceRequest
from tests.simulation.invariants.evidence import Evidence
from tests.simulation.invariants.history import PartitionHistory
from tests.simulation.invariants.invariant import Invariant, Violation
from tests.simulation.invariants.stored_log import StoredBatch, read_batches
from tests.simulation.trace import Exchange

ACKS_NONE = 0
_OFFSET_AND_LEADER_EPOCH_END = 21  # what a broker overwrites lies before, and outside of the checksum


class AcknowledgedRecords(Invariant):
    """4. No acknowledged record disappears; each acknowledged idempotent record occurs exactly once."""

    number = 4

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._acknowledged: dict[PartitionHistory, dict[int, tuple[StoredBatch, Exchange]]] = {}
        self._places: dict[PartitionHistory, dict[tuple[int, int, int], StoredBatch]] = {}

    def appended(self, history: PartitionHistory, batch: StoredBatch) -> Iterable[Violation]:
        if not batch.is_idempotent:
            return
        places = self._places.setdefault(history, {})
        numbered = batch.producer_id, batch.producer_epoch, batch.base_sequence
        first = places.setdefault(numbered, batch)
        if first is batch or first.raw[_OFFSET_AND_LEADER_EPOCH_END:] != batch.raw[_OFFSET_AND_LEADER_EPOCH_END:]:
            return
        # A retry of a batch whose producer has been forgotten meanwhile is a new batch, as with Kafka.
        if batch.at_s - first.at_s < self.evidence.producer_expiration_s:
            yield self.violation(f"{history} holds the same batch twice", first, batch)

    def answered(self, exchange: Exchange) -> Iterable[Violation]:
        request = exchange.request
        if not isinstance(request, ProduceRequest) or request.acks == ACKS_NONE:
            return
        sent = {
            (self.evidence.topic_name(topic.name, topic.topic_id), partition.index): partition.records
            for topic in request.topic_data
            for partition in topic.partition_data
        }
        for topic in exchange.response.responses:
            name = self.evidence.topic_name(topic.name, topic.topic_id)
            for partition in topic.partition_responses:
                records = sent.get((name, partition.index))
                if partition.error_code != ErrorCode.NONE or records is None or name is None:
                    continue
                yield from self._check(exchange, TopicPartition(name, partition.index), records, partition.base_offset)

    def _check(
        self,
        exchange: Exchange,
        topic_partition: TopicPartition,
        records: bytes | bytearray | memoryview,
        base_offset: int,
    ) -> Iterator[Violation]:
        history = self.evidence.of(topic_partition)
        if self.evidence.is_deleted(topic_partition):
            return
        batch = None if history is None else history.batch_at(base_offset)
        (sent,) = read_batches(records)
        if history is None or batch is None or not _is_same(sent, batch):
            yield self.violation(
                f"{exchange.client} got the reply that its batch is at offset {base_offset} of {topic_partition}",
                f"sent: {sent}",
                f"found: {batch}",
            )
            return
        self._acknowledged.setdefault(history, {})[base_offset] = batch, exchange

    def rewound(self, history: PartitionHistory) -> Iterable[Violation]:
        acknowledged = self._acknowledged.get(history, {})
        for base_offset in [offset for offset in acknowledged if offset >= history.end_offset]:
            batch, exchange = acknowledged.pop(base_offset)
            yield self.violation(f"an acknowledged batch of {history} is lost", batch, f"sent by {exchange.client}")
        places = self._places[history] = {}
        for batch in history.batches:
            if batch.is_idempotent:
                places.setdefault((batch.producer_id, batch.producer_epoch, batch.base_sequence), batch)

    def settled(self) -> Iterable[Violation]:
        for history, acknowledged in self._acknowledged.items():
            if history.is_deleted or self.evidence.is_compacted(history.topic_partition.topic):
                continue
            partition_log = self.evidence.live_log(history)
            start_offset = 0 if partition_log is None else partition_log.log_start_offset
            present = {batch.base_offset: batch for batch in history.present}
            for base_offset, (batch, exchange) in acknowledged.items():
                if batch.last_offset >= start_offset and present.get(base_offset) is not batch:
                    yield self.violation(
                        f"an acknowledged batch of {history} is not on the disk", batch, f"sent by {exchange.client}"
                    )


def _is_same(sent: StoredBatch, stored: StoredBatch) -> bool:
    if sent.raw[_OFFSET_AND_LEADER_EPOCH_END:] == stored.raw[_OFFSET_AND_LEADER_EPOCH_END:]:
        return True
    if (sent.producer_id, sent.producer_epoch, sent.base_sequence) != (
        stored.producer_id,
        stored.producer_epoch,
        stored.base_sequence,
    ):
        return False
    return [record[2:] for record in sent.records] == [record[2:] for record in stored.records]


class _Sequence(NamedTuple):
    """What must come next from a producer. next_sequence: None where nothing is known."""

    producer_epoch: int
    next_sequence: int
    at_s: float


class ContiguousSequences(Invariant):
    """5. Per producer id, epoch and partition, sequences are contiguous from the first accepted one (0 in transaction
    version 2), with wrap, and do not overlap.
    """

    number = 5

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._next: dict[PartitionHistory, dict[int, _Sequence]] = {}

    def appended(self, history: PartitionHistory, batch: StoredBatch) -> Iterable[Violation]:
        if batch.producer_id < 0:
            return
        known = self._next.setdefault(history, {})
        expected = known.get(batch.producer_id)
        if batch.is_idempotent:
            yield from self._check(history, batch, expected)
        self._take(known, batch, expected)

    def _check(self, history: PartitionHistory, batch: StoredBatch, expected: _Sequence | None) -> Iterator[Violation]:
        if expected is not None:
            wanted = expected.next_sequence if batch.producer_epoch == expected.producer_epoch else 0
            if batch.base_sequence == wanted:
                return
            if batch.at_s - expected.at_s < self.evidence.producer_expiration_s:
                yield self.violation(f"{history} took a batch where sequence {wanted} was to come", batch)
                return
        transaction = self.evidence.transactions.of_data(batch)
        if batch.base_sequence != 0 and transaction is not None and transaction.is_version_2:
            yield self.violation(f"a producer of version 2 does not begin with sequence 0 in {history}", batch)

    def _take(self, known: dict[int, _Sequence], batch: StoredBatch, expected: _Sequence | None) -> None:
        if batch.is_idempotent:
            known[batch.producer_id] = _Sequence(batch.producer_epoch, batch.next_sequence, batch.at_s)
        elif expected is None or expected.producer_epoch != batch.producer_epoch:
            known[batch.producer_id] = _Sequence(batch.producer_epoch, 0, batch.at_s)
        else:
            known[batch.producer_id] = expected._replace(at_s=batch.at_s)

    def rewound(self, history: PartitionHistory) -> Iterable[Violation]:
        known = self._next[history] = {}
        for batch in history.batches:
            if batch.producer_id >= 0:
                self._take(known, batch, known.get(batch.producer_id))
        return ()


class RisingEpochs(Invariant):
    """6. Epochs of a producer id in a partition never decrease; coordinator epochs of a producer id never decrease."""

    number = 6

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._batches: dict[PartitionHistory, dict[int, StoredBatch]] = {}
        self._markers: dict[PartitionHistory, dict[int, StoredBatch]] = {}

    def appended(self, history: PartitionHistory, batch: StoredBatch) -> Iterable[Violation]:
        if batch.producer_id < 0:
            return
        batches = self._batches.setdefault(history, {})
        before = batches.get(batch.producer_id)
        if before is not None and batch.producer_epoch < before.producer_epoch:
            yield self.violation(f"the epoch of producer {batch.producer_id} goes down in {history}", before, batch)
        batches[batch.producer_id] = batch
        if batch.marker is None:
            return
        markers = self._markers.setdefault(history, {})
        marker = markers.get(batch.producer_id)
        before_epoch = -1 if marker is None or marker.marker is None else marker.marker.coordinator_epoch
        if batch.marker.coordinator_epoch < before_epoch:
            yield self.violation(
                f"the coordinator epoch of producer {batch.producer_id} goes down in {history}", marker, batch
            )
        markers[batch.producer_id] = batch

    def rewound(self, history: PartitionHistory) -> Iterable[Violation]:
        batches = self._batches[history] = {}
        markers = self._markers[history] = {}
        for batch in history.batches:
            if batch.producer_id >= 0:
                batches[batch.producer_id] = batch
                if batch.marker is not None:
                    markers[batch.producer_id] = batch
        return ()
