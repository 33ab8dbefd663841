"""One segment of a partition's log: appends of batches, its life from opening to deletion, and its parts.

Its parts hold its state: the batches of its log file, the two indexes, the transaction index, its other files.
Source: Kafka's LogSegment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fencepost.broker.log.files.partition_files import PartitionFiles
from fencepost.broker.log.files.segment_checksums import START_SUFFIX, FileRecord, SegmentChecksums
from fencepost.broker.log.log_config import MAX_INT64
from fencepost.broker.log.segment.batch_scan import ScannedBatch, scan_batches
from fencepost.broker.log.segment.header_plausibility import MAX_RELATIVE_OFFSET, HeaderFault, HeaderPlausibility
from fencepost.broker.log.segment.offset_index import OffsetIndex
from fencepost.broker.log.segment.segment_batches import SegmentBatches, SegmentRead
from fencepost.broker.log.segment.segment_files import SegmentFiles, start_record
from fencepost.broker.log.segment.segment_indexes import SegmentIndexes
from fencepost.broker.log.segment.segment_reads import FaultFoundError, SegmentReads
from fencepost.broker.log.segment.time_index import TimeIndex
from fencepost.broker.log.segment.transaction_index_file import TransactionIndexFile
from fencepost.broker.storage.disk import Disk, LogFile

MAX_POSITION = 2**31 - 1


class SegmentLimits(NamedTuple):
    """Limits within which a segment takes batches.

    age_ms: time from the greatest timestamp of the first batch to that of the last; no limit if one has none.
    """

    size_bytes: int
    index_entries_count: int
    age_ms: int


class Segment:
    """A segment of a log. The last one of a log is active; all others are sealed and take no more batches.

    base_offset:  offset of the first record it may hold; its files are named after it.

    Its parts know nothing of the segment, and only of those before them:
    files:        names and paths of its files, and their lines in the list of checksums.
    batches:      the log file and the known facts of its batches.
    indexes:      offset index and time index.
    transactions: the transaction index.
    """

    __slots__ = (
        "_reads",
        "_room_end_position",
        "_room_last_offset",
        "_room_limits",
        "_room_max_timestamp_ms",
        "base_offset",
        "batches",
        "files",
        "indexes",
        "transactions",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        next_offset: int,
        index_interval_bytes: int,
        has_transaction_index: bool = False,
        may_skip: bool = False,
        log_suffix: str = ".log",
        checksums: SegmentChecksums | None = None,
        log_file: LogFile | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.files = SegmentFiles(
            disk, directory, base_offset, SegmentChecksums(disk, directory) if checksums is None else checksums
        )
        log_file = disk.open(self.files.path(log_suffix)) if log_file is None else log_file
        self.batches = SegmentBatches(self.files, log_file, base_offset, next_offset=next_offset, may_skip=may_skip)
        self.indexes = SegmentIndexes(self.batches, index_interval_bytes)
        self.transactions = TransactionIndexFile(self.batches, exists=has_transaction_index)
        self._reads = SegmentReads(self.batches, self.indexes)
        # Cached result of `has_room_for` for these limits: within these bounds there is room.
        self._room_limits: object = None
        self._room_end_position = 0
        self._room_last_offset = 0
        self._room_max_timestamp_ms = 0

    @property
    def next_offset(self) -> int:
        """Offset after the last record; `base_offset` when empty."""
        return self.batches.next_offset

    @property
    def size_bytes(self) -> int:
        return self.batches.log.size_bytes

    @property
    def newest_record_ms(self) -> int:
        """The greatest timestamp of its records; if none of them has one, the time of the last write.

        The last write survives restarts, recovery and compaction; a copy of the file counts from its copying, unless
        times are copied, too. Raises StorageError. Source: Kafka's LogSegment.largestTimestamp.
        """
        max_timestamp_ms = self.indexes.max_timestamp_ms
        return max_timestamp_ms if max_timestamp_ms >= 0 else self.batches.log.last_write_ms()

    # Append

    def append(
        self,
        buffers: tuple[bytes | bytearray | memoryview, ...],
        size_bytes: int,
        last_offset: int,
        max_timestamp_ms: int,
        limits: SegmentLimits | None = None,
    ) -> bool:
        """Write one batch, given in pieces, at the end. Returns False if `has_room_for` finds that it does not fit.

        size_bytes: size of all pieces together.
        limits:     None if the caller knows that the batch fits.
        Raises StorageError; the segment is then as it was.
        """
        batches = self.batches
        file = batches.log
        position = file.size_bytes
        # The first check of `has_room_for`, repeated here: it saves nearly all appends a call.
        if (
            limits is not self._room_limits
            or position + size_bytes > self._room_end_position
            or last_offset > self._room_last_offset
            or max_timestamp_ms > self._room_max_timestamp_ms
        ) and not (limits is None or self.has_room_for(size_bytes, last_offset, max_timestamp_ms, limits)):
            return False
        file.append(*buffers)
        if not position:
            batches.begin(max_timestamp_ms)
            self._room_limits = None
        indexes = self.indexes
        indexes.was_changed = True
        greatest_ms = indexes.known_max_timestamp_ms
        if greatest_ms is None:
            greatest_ms = indexes.max_timestamp_ms
        if max_timestamp_ms > greatest_ms:
            indexes.known_max_timestamp_ms = max_timestamp_ms
            indexes.known_offset_of_max = last_offset
        if position > indexes.unindexed_end_position:
            indexes.add(last_offset, position)
        batches.last_batch_offset = batches.next_offset
        batches.last_batch_position = position
        batches.next_offset = last_offset + 1
        return True

    def append_run(self, batches: Sequence[memoryview], base_offsets: range, max_timestamps_ms: Sequence[int]) -> None:
        """Write batches of equal length and equal record count at the end, at least one. Raises as `append`."""
        known = self.batches
        file = known.log
        position = file.size_bytes
        file.append(*batches)
        if not position:
            known.begin(max_timestamps_ms[0])
            self._room_limits = None
        indexes = self.indexes
        indexes.was_changed = True
        indexes.add_run(position, len(batches[0]), base_offsets, max_timestamps_ms)
        last_batch = base_offsets[-1]
        known.last_batch_offset, known.last_batch_position = last_batch, file.size_bytes - len(batches[-1])
        known.next_offset = last_batch + base_offsets.step

    def has_room_for(self, size_bytes: int, last_offset: int, max_timestamp_ms: int, limits: SegmentLimits) -> bool:
        """Return whether a batch fits: by size, by the offsets of an index entry, by room in the index, by age.

        An empty segment takes any batch.
        """
        position = self.batches.log.size_bytes
        if (
            limits is self._room_limits
            and position + size_bytes <= self._room_end_position
            and last_offset <= self._room_last_offset
            and max_timestamp_ms <= self._room_max_timestamp_ms
        ):
            return True
        if not position:
            return True
        if position + size_bytes > limits.size_bytes or last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return False
        indexes = self.indexes
        free_entries_count = limits.index_entries_count - len(indexes.offset_index.positions)
        if free_entries_count <= 0:
            return False
        first_timestamp_ms = self.batches.first_timestamp_ms
        if first_timestamp_ms is None:
            return True
        has_time = first_timestamp_ms >= 0  # without one, the sweep rolls by the time since the segment was begun
        if has_time and max_timestamp_ms >= 0 and max_timestamp_ms - first_timestamp_ms > limits.age_ms:
            return False
        # Cached, so that most appends need not compute it: an append adds at most one index entry per index interval.
        indexable_bytes = (free_entries_count - 1) * indexes.interval_bytes
        self._room_limits = limits
        self._room_end_position = min(limits.size_bytes, position + indexable_bytes)
        self._room_last_offset = self.base_offset + MAX_RELATIVE_OFFSET
        self._room_max_timestamp_ms = first_timestamp_ms + limits.age_ms if has_time else MAX_INT64
        return True

    def has_room_for_run(
        self, count: int, size_bytes: int, last_offset: int, max_timestamp_ms: int, limits: SegmentLimits
    ) -> bool:
        """Return whether `count` batches fit, which have `size_bytes` together; an empty segment takes none."""
        return (
            self.batches.log.size_bytes > 0
            and self.has_room_for(size_bytes, last_offset, max_timestamp_ms, limits)
            and len(self.indexes.offset_index.positions) + count <= limits.index_entries_count
        )

    # Read

    def read(
        self, offset: int, max_bytes: int, bound_offset: int, *, minimum_one_batch: bool, is_lazy: bool = False
    ) -> SegmentRead | None:
        """Read whole batches from the one that holds `offset`, all of them below `bound_offset`.

        None when the segment holds nothing at or after `offset` (a compacted log has gaps).
        With `minimum_one_batch` the first batch is returned whole even if it alone is above `max_bytes`. With `is_lazy`
        more than SMALL_READ_BYTES are found but not read.
        Raises DamagedLogError if the file holds something that cannot be the next batch. Checksums are not
        compared: the reader does that.
        """
        batches = self.batches
        if batches.last_batch_offset <= offset < batches.next_offset <= bound_offset:
            found = batches.read_last(max_bytes, minimum_one_batch=minimum_one_batch)
            if found is not None:
                return found
        reads = self._reads
        try:
            return reads.read(offset, max_bytes, bound_offset, minimum_one_batch=minimum_one_batch, is_lazy=is_lazy)
        except FaultFoundError as error:
            # A misleading index may point to a position at which no batch begins.
            if not self._rebuild_misleading_indexes(error.fault):
                raise
            return reads.read(offset, max_bytes, bound_offset, minimum_one_batch=minimum_one_batch, is_lazy=is_lazy)

    def scan_from(self, offset: int) -> Iterator[ScannedBatch]:
        """The batches from one at or before that which holds `offset` (relative) to the end of the file.

        Raises DamagedLogError at a place where no batch begins.
        """
        position = self.indexes.offset_index.position_before(offset)
        order = self.indexes.order_from(position)
        batches = scan_batches(self.batches.log, position, self.batches.log.size_bytes, order)
        first = next(batches, None)
        if first is None and order.fault is not None and position and self._rebuild_misleading_indexes(order.fault):
            yield from self.scan_from(offset)
            return
        if first is not None:
            yield first
            yield from batches
        if order.fault is not None:
            raise self.batches.damaged(order.fault)

    def _rebuild_misleading_indexes(self, fault: HeaderFault) -> bool:
        if not self.indexes.rebuild_if_misleading(fault):
            return False
        self._room_limits = None
        self._reads.forget_checks()
        return True

    def offset_bound_after(self, position: int) -> int:
        """Return an offset above all records before `position`: the next index entry's, else the segment's end."""
        bound = self.indexes.offset_index.first_offset_from(position)
        return self.next_offset if bound is None else self.base_offset + bound

    # Recovery

    def resume(self) -> HeaderPlausibility:
        """Find the end of an active segment after a clean stop, from its last index entry on.

        Returns the check for the next batch, with the fault if the batches do not reach the end of the file.
        """
        batches, indexes = self.batches, self.indexes
        size_bytes = self.batches.log.size_bytes
        if size_bytes == 0:
            return batches.order_from_start()
        _ = indexes.max_timestamp_ms
        positions = indexes.offset_index.positions
        start = positions[-1] if positions else 0
        order = indexes.order_from(start)
        for _, header in scan_batches(self.batches.log, start, size_bytes, order):
            batches.next_offset = header.last_offset + 1
            indexes.raise_timestamp(header.last_offset, header.max_timestamp_ms)
        indexes.unindexed_end_position = start + indexes.interval_bytes
        return order

    def resume_at(
        self,
        next_offset: int,
        offset_index: OffsetIndex,
        time_index: TimeIndex,
        max_timestamp_ms: int,
        offset_of_max: int,
    ) -> None:
        """Continue from the facts of the batches below an offset, before the others are given to `add_scanned`."""
        self._reads.forget_checks()
        self._room_limits = None
        self.indexes.resume(offset_index, time_index, max_timestamp_ms, offset_of_max)
        self.batches.next_offset = next_offset

    def forget_content(self) -> None:
        """Forget all that was derived from the log file, before its batches are given to `add_scanned` again."""
        self.batches.forget_content()
        self.indexes.reset()
        self._reads.forget_checks()
        self._room_limits = None

    def add_scanned(self, position: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Take the next batch of the log file into account."""
        self.batches.add_scanned(last_offset, max_timestamp_ms)
        self.indexes.add_scanned(position, last_offset, max_timestamp_ms)

    def accept_headers(self) -> None:
        """Trust all headers of the file: this process has read it with its checksums."""
        self._reads.accept_headers()

    # Writing

    def write_indexes(self) -> list[LogFile]:
        """Write the missing entries to the index files, without a sync. Returns all index files; the caller syncs and
        closes them. Raises StorageError."""
        return [*self.indexes.write(), *self.transactions.open_file()]

    def index_files(self) -> list[LogFile]:
        """Open the files of all indexes; the caller syncs and closes them. Raises StorageError."""
        return [*self.indexes.open_files(), *self.transactions.open_file()]

    def seal(self) -> list[LogFile]:
        """End appending: the last timestamp goes into the time index, the indexes into their files.

        Returns the index files, for the caller to sync together with the log file, and to close.
        """
        self.batches.log.release_room()
        self.indexes.add_greatest_timestamp()
        index_files = self.write_indexes()
        self.transactions.close()
        return [*index_files, self.record_files(self.next_offset)]

    def record_files(self, following_offset: int) -> LogFile:
        """Record size and checksum of all files, and the offset at which the next segment begins; see
        `broker.log.files.segment_checksums`. Returns the list's file, which the caller syncs and closes.
        """
        transactions = self.transactions.record()
        records: dict[str, FileRecord | None] = {
            ".log": FileRecord(self.batches.log.size_bytes, following_offset),
            START_SUFFIX: start_record(self.batches.log),
            **self.indexes.records(),
            ".txnindex": transactions,
        }
        return self.files.record(records)

    # Files

    def close(self) -> None:
        self.batches.log.close()
        self.transactions.close()

    def delete(self) -> None:
        """Remove the files, the log first: indexes without a log are removed at the next start."""
        self.close()
        for suffix in (".log", ".index", ".timeindex"):
            self.files.delete(suffix)
        self.transactions.delete()


def new_segment(files: PartitionFiles, base_offset: int, index_interval_bytes: int) -> Segment:
    """Begin an empty segment in a partition's directory. Raises StorageError."""
    return Segment(
        files.disk,
        files.directory,
        base_offset,
        next_offset=base_offset,
        index_interval_bytes=index_interval_bytes,
        checksums=files.checksums,
    )
