"""What one partition's log has held: every batch that was appended and not lost, and the transactions they make up.

Retention and compaction take nothing out of a history, so it is what results are compared with after them. Only a power
loss does: batches that had not reached the disk have never been.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from fencepost.broker.kernel.topic_partition import TopicPartition
from tests.simulation.invariants.stored_log import StoredBatch


@dataclass(eq=False)
class PartitionTransaction:
    """One transaction as a partition has it, reckoned from its log alone.

    producer_epoch: of the data; the marker's is one higher in transaction version 2.
    marker:         the control batch that ended it; None while it is open.
    marker_before:  the producer's last marker in the partition when it began, which ended another; None without one.
    first_open_after: the first offset of the earliest other transaction that was open when this one ended, or None.
    """

    producer_id: int
    producer_epoch: int
    batches: list[StoredBatch] = field(default_factory=list)
    marker: StoredBatch | None = None
    marker_before: StoredBatch | None = None
    first_open_after: int | None = None

    @property
    def first_offset(self) -> int:
        return self.batches[0].base_offset

    @property
    def is_open(self) -> bool:
        return self.marker is None

    @property
    def is_committed(self) -> bool:
        return self.marker is not None and self.marker.marker is not None and self.marker.marker.committed

    @property
    def is_aborted(self) -> bool:
        return self.marker is not None and not self.is_committed

    def __str__(self) -> str:
        end = "open" if self.marker is None else str(self.marker)
        producer_name = f"producer {self.producer_id} epoch {self.producer_epoch}"
        return f"transaction of {producer_name} from offset {self.first_offset}, {end}"


class PartitionHistory:
    """One partition's log on one broker.

    batches:  all of it, in the order of offsets.
    present:  what lies in the files now.
    open:     the transactions without a marker, by producer id.
    is_whole: nothing was taken out by retention or compaction.
    """

    def __init__(self, topic_partition: TopicPartition, node_id: int) -> None:
        self.topic_partition = topic_partition
        self.node_id = node_id
        self.batches: list[StoredBatch] = []
        self.present: list[StoredBatch] = []
        self.transactions: list[PartitionTransaction] = []
        self.open: dict[int, PartitionTransaction] = {}
        self.transaction_of: dict[int, PartitionTransaction] = {}  # by the base offset of a batch of data
        self.ended_by: dict[int, PartitionTransaction] = {}  # by the offset of a marker
        self._last_markers: dict[int, StoredBatch] = {}  # by producer id
        self.is_whole = True
        self.is_deleted = False

    def __str__(self) -> str:
        return str(self.topic_partition)

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    def append(self, batch: StoredBatch) -> None:
        self.batches.append(batch)
        if batch.is_control:
            marker = batch.marker
            if marker is None:
                return
            self._last_markers[batch.producer_id] = batch
            transaction = self.open.pop(batch.producer_id, None)
            if transaction is not None:
                transaction.marker = batch
                transaction.first_open_after = min((other.first_offset for other in self.open.values()), default=None)
                self.ended_by[batch.base_offset] = transaction
        elif batch.is_transactional:
            transaction = self.open.get(batch.producer_id)
            if transaction is None:
                transaction = PartitionTransaction(
                    batch.producer_id,
                    batch.producer_epoch,
                    marker_before=self._last_markers.get(batch.producer_id),
                )
                self.open[batch.producer_id] = transaction
                self.transactions.append(transaction)
            transaction.batches.append(batch)
            self.transaction_of[batch.base_offset] = transaction

    def rewind(self, end_offset: int) -> None:
        """Forget what stood at and after an offset."""
        kept = [batch for batch in self.batches if batch.last_offset < end_offset]
        self.batches = []
        self.transactions = []
        self.open = {}
        self.transaction_of = {}
        self.ended_by = {}
        self._last_markers = {}
        for batch in kept:
            self.append(batch)

    def batch_at(self, offset: int) -> StoredBatch | None:
        """The batch that holds an offset."""
        slot = bisect_left(self.batches, offset, key=lambda batch: batch.last_offset)
        if slot < len(self.batches) and self.batches[slot].base_offset <= offset:
            return self.batches[slot]
        return None

    def is_visible(self, batch: StoredBatch) -> bool:
        """Whether read_committed consumers may have the records of a batch."""
        if batch.is_control:
            return False
        transaction = self.transaction_of.get(batch.base_offset)
        return transaction is None or transaction.is_committed

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """First offset of the earliest transaction that is open, or whose marker is not below the high watermark."""
        unstable = [
            transaction.first_offset
            for transaction in self.transactions
            if transaction.marker is None or transaction.marker.base_offset >= high_watermark
        ]
        return min(unstable, default=None)
