"""Invariants 1 and 21: what consumers that read committed data get."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fencepost.broker.kernel.topic_partition import INTERNAL_TOPICS, TopicPartition
from fencepost.broker.log.log_types import Isolation
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.segment.remote_segment import RemoteSegment
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.fetch import FetchRequest
from tests.simulation.broker import SimulatedBroker
from tests.simulation.invariants.evidence import Evidence
from tests.simulation.invariants.history import PartitionHistory
from tests.simulation.invariants.invariant import Invariant, Violation
from tests.simulation.invariants.stored_log import StoredBatch, StoredRecord, read_batches
from tests.simulation.trace import Exchange

READ_COMMITTED = 1
OFFSETS_TRIED_AT_RESTART = 6
OFFSETS_TRIED_AT_END = 20
SMALL_FETCH_BYTES = 1
LARGE_FETCH_BYTES = 1_000_000

Aborted = Iterable[tuple[int, int]]
"""Producer id and first offset of aborted transactions."""


def consumed(batches: Sequence[StoredBatch], aborted: Aborted, from_offset: int) -> Iterator[StoredRecord]:
    """The records that a read_committed consumer hands to its application. Source: Kafka's CompletedFetch."""
    coming = sorted(aborted, key=lambda entry: entry[1])
    skipped: set[int] = set()
    for batch in batches:
        while coming and coming[0][1] <= batch.last_offset:
            skipped.add(coming.pop(0)[0])
        if batch.is_control:
            if batch.marker is not None and not batch.marker.committed:
                skipped.discard(batch.producer_id)
            continue
        if batch.is_transactional and batch.producer_id in skipped:
            continue
        for record in batch.records:
            if record.offset >= from_offset:
                yield record


def visible_offsets(history: PartitionHistory, first_offset: int, last_offset: int) -> list[int]:
    """The offsets of the records that read_committed consumers must get, both ends inclusive."""
    return [
        record.offset
        for batch in history.batches
        if batch.last_offset >= first_offset and batch.base_offset <= last_offset and history.is_visible(batch)
        for record in batch.records
        if first_offset <= record.offset <= last_offset
    ]


def _as_known(history: PartitionHistory, batch: StoredBatch) -> StoredBatch:
    """The same batch as the history has it, whose records have been read before."""
    known = history.batch_at(batch.base_offset)
    return known if known is not None and known.raw == batch.raw else batch


class CommittedReads(Invariant):
    """1. read_committed delivers a record if and only if its transaction committed (or it is in none), never one of an
    open or aborted transaction; order is log order.
    """

    number = 1

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._delivered: dict[PartitionHistory, int] = {}

    def answered(self, exchange: Exchange) -> Iterable[Violation]:
        request = exchange.request
        if not isinstance(request, FetchRequest) or request.isolation_level != READ_COMMITTED:
            return
        offsets = {
            (self.evidence.topic_name(topic.topic, topic.topic_id), partition.partition): partition.fetch_offset
            for topic in request.topics
            for partition in topic.partitions
        }
        for topic in exchange.response.responses:
            name = self.evidence.topic_name(topic.topic, topic.topic_id)
            for partition in topic.partitions:
                fetch_offset = offsets.get((name, partition.partition_index))
                if name is None or fetch_offset is None or partition.error_code or not partition.records:
                    continue
                topic_partition = TopicPartition(name, partition.partition_index)
                history = self.evidence.of(topic_partition)
                if history is None or self.evidence.is_deleted(topic_partition):
                    continue
                aborted = [(entry.producer_id, entry.first_offset) for entry in partition.aborted_transactions or ()]
                batches = [_as_known(history, batch) for batch in read_batches(partition.records)]
                yield from self._check(exchange, history, batches, aborted, fetch_offset)

    def _check(
        self,
        exchange: Exchange,
        history: PartitionHistory,
        batches: Sequence[StoredBatch],
        aborted: Aborted,
        fetch_offset: int,
    ) -> Iterator[Violation]:
        if not batches:
            return
        delivered = list(consumed(batches, aborted, fetch_offset))
        last_offset = batches[-1].last_offset
        for record in delivered:
            batch = history.batch_at(record.offset)
            if batch is None:
                yield self.violation(f"{history} delivered offset {record.offset}, which is not in the log", record)
            elif not history.is_visible(batch):
                yield self.violation(
                    f"{exchange.client} got offset {record.offset} of {history}, which is not committed",
                    batch,
                    history.transaction_of.get(batch.base_offset),
                    f"fetch from {fetch_offset}, aborted list {list(aborted)}",
                )
        got = [record.offset for record in delivered]
        if got != sorted(set(got)):
            yield self.violation(f"{exchange.client} got offsets of {history} out of order: {got}", exchange)
        if not self.evidence.is_compacted(history.topic_partition.topic):
            missing = sorted(set(visible_offsets(history, fetch_offset, last_offset)) - set(got))
            if missing:
                yield self.violation(
                    f"{exchange.client} read {history} from {fetch_offset} to {last_offset} and did not get {missing}",
                    *(history.batch_at(offset) for offset in missing[:5]),
                    f"aborted list {list(aborted)}",
                )
        if got:
            self._delivered[history] = max(self._delivered.get(history, 0), *got)

    def rewound(self, history: PartitionHistory) -> Iterable[Violation]:
        delivered = self._delivered.get(history, -1)
        if delivered >= history.end_offset:
            yield self.violation(
                f"offset {delivered} of {history} was delivered as committed and is lost: the log ends at "
                f"{history.end_offset}"
            )


def has_away(partition_log: PartitionLog) -> bool:
    """Whether some segments are in a store alone, and come when they are read."""
    return any(isinstance(segment, RemoteSegment) for segment in partition_log.segments)


class AbortedLists(Invariant):
    """21. The aborted list and the data of any fetch range filter out exactly the aborted records, from whichever
    offset the fetch begins, also in the middle of a transaction.
    """

    number = 21

    def restarted(self, broker: SimulatedBroker) -> Iterable[Violation]:
        return self._check_all(OFFSETS_TRIED_AT_RESTART, broker.node_id)

    def settled(self) -> Iterable[Violation]:
        return self._check_all(OFFSETS_TRIED_AT_END)

    def _check_all(self, offset_count: int, node_id: int | None = None) -> Iterator[Violation]:
        for history, partition_log in self.evidence.live_logs():
            topic = history.topic_partition.topic
            if topic in INTERNAL_TOPICS or self.evidence.is_compacted(topic):
                continue
            if node_id is not None and history.node_id != node_id:
                continue
            start_offset, end_offset = partition_log.log_start_offset, partition_log.last_stable_offset
            step = max(1, (end_offset - start_offset) // offset_count)
            for fetch_offset in range(start_offset, end_offset, step):
                for max_bytes in (SMALL_FETCH_BYTES, LARGE_FETCH_BYTES):
                    read = partition_log.read(fetch_offset, max_bytes, isolation=Isolation.READ_COMMITTED)
                    if read.error is ErrorCode.NONE and not read.records and has_away(partition_log):
                        continue  # it is being brought
                    if read.error is not ErrorCode.NONE or not read.records:
                        yield self.violation(f"{history} cannot be read from {fetch_offset}", read.error.name)
                        continue
                    aborted = [(entry.producer_id, entry.first_offset) for entry in read.aborted_transactions or ()]
                    batches = [_as_known(history, batch) for batch in read_batches(read.records)]
                    got = [record.offset for record in consumed(batches, aborted, fetch_offset)]
                    expected = visible_offsets(history, fetch_offset, batches[-1].last_offset)
                    if got != expected:
                        yield self.violation(
                            f"a fetch of {history} from {fetch_offset} ({max_bytes} bytes) delivers {got} instead of "
                            f"{expected}",
                            f"aborted list {aborted}",
                            *(transaction for transaction in history.transactions if transaction.is_aborted),
                        )
