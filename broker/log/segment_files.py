"""Files of one segment: its `.log` and its indexes, loaded, rebuilt, written, sealed and deleted.

Index files are read at first use, and written when the segment is sealed, swept or closed. An index that is missing or
corrupt is rebuilt from the log file, with a warning.
Source: Kafka's LogSegment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from crc32c import crc32c

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.log.batch_scan import DamagedLogError, ScannedBatch, damaged, header_at, scan_batches
from fencepost.broker.log.checked_ranges import CheckedRanges
from fencepost.broker.log.header_plausibility import MAX_RELATIVE_OFFSET, NO_EPOCHS, HeaderFault, HeaderPlausibility
from fencepost.broker.log.leader_epochs import UNKNOWN_EPOCH
from fencepost.broker.log.offset_index import CorruptIndexError, OffsetIndex
from fencepost.broker.log.segment_checksums import START_SUFFIX, FileRecord, SegmentChecksums, content_record
from fencepost.broker.log.tail_scan import valid_batch_at
from fencepost.broker.log.time_index import TimeIndex
from fencepost.broker.log.transaction_index import TransactionIndex, TransactionIndexEntry
from fencepost.broker.storage.disk import Disk, LogFile, StorageError
from fencepost.protocol.record_batch import CRC_POSITION, HEADER_BYTES, BatchHeader, RecordBatch, check_crc, read_header

log = get_logger(__name__)

INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
NOTED_SUFFIXES = (".log", START_SUFFIX, *INDEX_SUFFIXES)
"""Files of a segment that have a line in the list of checksums."""
LOST_SUFFIX = ".lost-"
NO_TIMESTAMP = -1
START_BYTES = 256
"""Length of the start of a log file by which it is recognised: the first batch's header with its checksum, and more."""
_NOT_APPENDED_TO = 2**63 - 1  # above all offsets


def file_name(offset: int, suffix: str) -> str:
    """Return the name of a file: an offset of twenty digits and a suffix, as in `00000000000000000042.log`."""
    return f"{offset:020d}{suffix}"


def lost_path(path: str, position: int) -> str:
    """Return the path of the file that keeps bytes cut off a log file: `….log.lost-1234`."""
    return f"{path}{LOST_SUFFIX}{position}"


def forget_segments(checksums: SegmentChecksums, segments: Sequence[SegmentFiles]) -> LogFile:
    """Remove the lines of segments from the list of checksums, so that their files are no longer compared or expected.

    Returns the list's file, which the caller syncs and closes. Raises StorageError.
    """
    return checksums.add({file_name(one.base_offset, suffix): None for one in segments for suffix in NOTED_SUFFIXES})


class CorruptTransactionIndexError(Exception):
    """A segment's `.txnindex` cannot be right."""

    def __init__(self, segment: SegmentFiles, reason: str) -> None:
        super().__init__(reason)
        self.segment = segment


class SegmentFiles:
    """The files and indexes of a segment; `broker.log.segment.Segment` adds appends and reads.

    base_offset:  offset of the first record it may hold; its files are named after it.
    next_offset:  offset after its last record; `base_offset` when empty.
    may_skip:     whether compaction may have left gaps between the offsets of its batches.
    known_epochs: leader epochs of its log; a batch whose epoch no other batch confirms is judged by them.
    was_changed:  whether it has changed since it was opened, so that its index files may not be on the disk.
    max_timestamp_ms, offset_of_max_timestamp: the greatest record timestamp and the last offset of the batch that has
    it.
    """

    __slots__ = (
        "_checked_ranges",
        "_checksums",
        "_directory",
        "_disk",
        "_first_timestamp_ms",
        "_foreign_end_position",
        "_index_interval_bytes",
        "_indexes_were_read",
        "_is_start_noted",
        "_last_batch_offset",
        "_last_batch_position",
        "_max_timestamp_ms",
        "_offset_index",
        "_offset_of_max_timestamp",
        "_room_end_position",
        "_room_last_offset",
        "_room_limits",
        "_room_max_timestamp_ms",
        "_time_index",
        "_transaction_index",
        "_transaction_index_file",
        "_unindexed_end_position",
        "base_offset",
        "has_transaction_index",
        "indexes_used",
        "known_epochs",
        "log",
        "may_skip",
        "next_offset",
        "was_changed",
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
        self._disk = disk
        self._directory = directory
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.has_transaction_index = has_transaction_index
        self.may_skip = may_skip
        self.known_epochs = NO_EPOCHS
        self.log = disk.open(self.path(log_suffix)) if log_file is None else log_file
        self._index_interval_bytes = index_interval_bytes
        # A batch that begins above it gets an entry in the indexes.
        self._unindexed_end_position = self.log.size_bytes + index_interval_bytes
        # Bytes before it were neither written nor read with checksums by this process.
        self._foreign_end_position = self.log.size_bytes
        self._checked_ranges = CheckedRanges()
        # The batch appended last, which readers at the end of the log ask for next. It begins at or above this offset.
        self._last_batch_offset = _NOT_APPENDED_TO
        self._last_batch_position = 0
        # Cached result of `Segment.has_room_for` for these limits: within these bounds there is room.
        self._room_limits: object = None
        self._room_end_position = 0
        self._room_last_offset = 0
        self._room_max_timestamp_ms = 0
        self._first_timestamp_ms: int | None = None
        self._max_timestamp_ms: int | None = None
        self._offset_of_max_timestamp = base_offset
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._transaction_index: TransactionIndex | None = None if has_transaction_index else TransactionIndex()
        self._transaction_index_file: LogFile | None = None
        self._checksums = SegmentChecksums(disk, directory) if checksums is None else checksums
        self._indexes_were_read = False
        self._is_start_noted = False
        self.was_changed = False
        self.indexes_used = True
        if self.log.size_bytes == 0:
            self._offset_index = OffsetIndex()
            self._time_index = TimeIndex()
            self._max_timestamp_ms = NO_TIMESTAMP

    def path(self, suffix: str) -> str:
        return f"{self._directory}/{file_name(self.base_offset, suffix)}"

    @property
    def size_bytes(self) -> int:
        return self.log.size_bytes

    # Time

    @property
    def max_timestamp_ms(self) -> int:
        """-1 when empty."""
        if self._max_timestamp_ms is None:
            time_index = self.time_index
            if len(time_index):
                self._max_timestamp_ms = time_index.timestamps_ms[-1]
                self._offset_of_max_timestamp = self.base_offset + time_index.last_offsets[-1]
            else:
                self._max_timestamp_ms = NO_TIMESTAMP
        return self._max_timestamp_ms

    @property
    def newest_record_ms(self) -> int:
        """The greatest timestamp of its records; where none of them has one, when the segment was last written.

        The last write survives restarts, recovery and compaction; a copy of the file counts from its copying, unless
        times are copied, too. Raises StorageError. Source: Kafka's LogSegment.largestTimestamp.
        """
        max_timestamp_ms = self.max_timestamp_ms
        return max_timestamp_ms if max_timestamp_ms >= 0 else self.log.last_write_ms()

    @property
    def offset_of_max_timestamp(self) -> int:
        return self._offset_of_max_timestamp if self.max_timestamp_ms >= 0 else self.base_offset

    @property
    def first_timestamp_ms(self) -> int | None:
        """The greatest timestamp of the first batch, from which the age of the segment counts.

        None when the segment is empty, NO_TIMESTAMP (-1) where the records of that batch have no time.
        """
        if self._first_timestamp_ms is None:
            for batch in scan_batches(self.log, 0, self.log.size_bytes, self.order_from_start()):
                self._first_timestamp_ms = batch.header.max_timestamp_ms
                break
        return self._first_timestamp_ms

    # Indexes

    @property
    def offset_index(self) -> OffsetIndex:
        self.indexes_used = True
        index = self._offset_index
        if index is None:
            self._load_indexes()
            index = self._offset_index
            assert index is not None
        return index

    @property
    def time_index(self) -> TimeIndex:
        self.indexes_used = True
        index = self._time_index
        if index is None:
            self._load_indexes()
            index = self._time_index
            assert index is not None
        return index

    def _load_indexes(self) -> None:
        offsets = self._disk.read_file(self.path(".index"))
        times = self._disk.read_file(self.path(".timeindex"))
        try:
            if offsets is None or times is None:
                raise CorruptIndexError("the file is missing")
            for suffix, content in ((".index", offsets), (".timeindex", times)):
                self._check_recorded(suffix, content)
            offsets_count = self._bound_offset - self.base_offset
            self._offset_index = OffsetIndex.from_bytes(offsets, self.log.size_bytes, offsets_count)
            self._time_index = TimeIndex.from_bytes(times, offsets_count)
            # What a checksum covers is not to blame for damage.
            self._indexes_were_read = self._checksums.get(file_name(self.base_offset, ".index")) is None
            if self._checksums.get(file_name(self.base_offset, ".timeindex")) is None:
                self._check_greatest_time(self._time_index)
        except CorruptIndexError as error:
            log.warning("index_rebuilt", path=self.path(".index"), reason=str(error))
            self.rebuild_indexes()

    def _check_greatest_time(self, times: TimeIndex) -> None:
        """Check that the last entry matches the batch it names: retention relies on it. Raises CorruptIndexError."""
        if not len(times):
            return
        last_offset = times.last_offsets[-1]
        position = self.offset_index.position_before(last_offset)
        order = self.order_from(position)
        for _, header in scan_batches(self.log, position, self.log.size_bytes, order):
            if header.last_offset - self.base_offset >= last_offset:
                if header.max_timestamp_ms == times.timestamps_ms[-1]:
                    return
                break
        if order.fault is not None:
            return  # the log is damaged there; its readers report that
        raise CorruptIndexError("its last entry is not what the batch has that it names")

    def _check_recorded(self, suffix: str, content: bytes | None) -> None:
        if not self._checksums.matches(file_name(self.base_offset, suffix), content):
            raise CorruptIndexError("it is not what was written into it")

    def rebuild_indexes(self) -> None:
        """Rebuild both indexes from the headers of the log file, and write them without a sync, as
        `replace_transaction_index` does."""
        end_offset = self.next_offset
        order = self.order_from_start()
        self.reset_indexes()
        for position, header in scan_batches(self.log, 0, self.log.size_bytes, order):
            self.index_scanned(position, header.last_offset, header.max_timestamp_ms)
        # Where the log itself is damaged, the indexes end there. The offsets after it are used all the same.
        self.next_offset = max(self.next_offset, end_offset)
        self.write_indexes_anew()
        self._indexes_were_read = False
        self._note_files(self._index_records())

    # Walking over the file

    @property
    def _bound_offset(self) -> int:
        """Offset above all records of the file; where its end is not known yet, above all that its indexes can hold."""
        is_known = self.next_offset > self.base_offset
        return self.next_offset if is_known else self.base_offset + MAX_RELATIVE_OFFSET + 1

    def order_at(self, next_offset: int, leader_epoch: int = UNKNOWN_EPOCH) -> HeaderPlausibility:
        """Return the check for a batch that should begin with `next_offset`, and for those after it."""
        return HeaderPlausibility(
            next_offset,
            self._bound_offset,
            may_skip=self.may_skip,
            leader_epoch=leader_epoch,
            known_epochs=self.known_epochs,
        )

    def order_from_start(self) -> HeaderPlausibility:
        return self.order_at(self.base_offset)

    def order_from(self, position: int) -> HeaderPlausibility:
        """Return the check for the batch at the position of an index entry, or at 0, and for those after it."""
        next_offset = self.base_offset
        if position:
            header = header_at(self.log, position)
            if header is not None:
                last_offset = self.base_offset + self.offset_index.last_offset_at(position)
                next_offset = last_offset - header.last_offset_delta
        return self.order_at(next_offset)

    def checked_batch(self, position: int, header: BatchHeader) -> RecordBatch:
        """Read a batch and compare its checksum. Raises DamagedLogError."""
        buffer = self.log.read(position, header.size_bytes)
        if not check_crc(buffer):
            raise self.wrong_checksum(position, header)
        return RecordBatch(read_header(buffer), buffer)

    def wrong_checksum(self, position: int, header: BatchHeader) -> DamagedLogError:
        """Return the error for a batch whose checksum does not match."""
        offset = header.base_offset
        return self.damaged(HeaderFault(position, offset, offset, "the batch there has a wrong checksum"))

    def scan_from(self, offset: int) -> Iterator[ScannedBatch]:
        """The batches from one at or before that which holds `offset` (relative) to the end of the file.

        Raises DamagedLogError where the next batch does not begin.
        """
        position = self.offset_index.position_before(offset)
        order = self.order_from(position)
        batches = scan_batches(self.log, position, self.log.size_bytes, order)
        first = next(batches, None)
        if first is None and order.fault is not None and position and self.rebuild_misleading_indexes(order.fault):
            yield from self.scan_from(offset)
            return
        if first is not None:
            yield first
            yield from batches
        if order.fault is not None:
            raise self.damaged(order.fault)

    def rebuild_misleading_indexes(self, fault: HeaderFault) -> bool:
        """Rebuild the indexes if they may have pointed to a position at which no batch begins. Returns whether it has.
        Raises StorageError."""
        if not self._indexes_were_read:
            return False
        log.warning("index_rebuilt", path=self.path(".index"), reason=str(self.damaged(fault)))
        self.rebuild_indexes()
        return True

    def damaged(self, fault: HeaderFault) -> DamagedLogError:
        return damaged(self.path(".log"), fault)

    def accept_headers(self) -> None:
        """Trust all headers of the file: this process has read it with its checksums."""
        self._foreign_end_position = 0

    def reset_indexes(self) -> None:
        """Forget all that was derived from the log file, before its batches are given to `index_scanned` again."""
        self._offset_index = OffsetIndex()
        self._time_index = TimeIndex()
        self._max_timestamp_ms = NO_TIMESTAMP
        self._offset_of_max_timestamp = self.base_offset
        self._first_timestamp_ms = None
        self._room_limits = None
        self._checked_ranges.clear()
        self._unindexed_end_position = self._index_interval_bytes
        self.next_offset = self.base_offset

    def _index_batch(self, last_offset: int, position: int) -> None:
        offset_index, time_index = self._offset_index, self._time_index
        if offset_index is None or time_index is None:
            offset_index, time_index = self.offset_index, self.time_index
        base_offset = self.base_offset
        offset_index.append(last_offset - base_offset, position)
        assert self._max_timestamp_ms is not None
        time_index.append(self._max_timestamp_ms, self._offset_of_max_timestamp - base_offset)
        self._unindexed_end_position = position + self._index_interval_bytes

    def _index_run(
        self, position: int, batch_bytes: int, base_offsets: range, max_timestamps_ms: Sequence[int]
    ) -> None:
        """Index batches of equal length and equal record count that begin at `position`."""
        count = len(max_timestamps_ms)
        interval_bytes = self._index_interval_bytes
        unindexed_bytes = self._unindexed_end_position - position
        first = 0 if unindexed_bytes < 0 else unindexed_bytes // batch_bytes + 1
        indexed = range(first, count, interval_bytes // batch_bytes + 1)
        delta = base_offsets.step - 1 - self.base_offset  # from a batch's first offset to its last, relative
        self._raise_timestamps(indexed, base_offsets, max_timestamps_ms)
        if not indexed:
            return
        self.indexes_used = True
        offsets = base_offsets[first :: indexed.step]
        self.offset_index.extend(
            range(offsets.start + delta, offsets.stop + delta, offsets.step),
            range(position + first * batch_bytes, position + count * batch_bytes, indexed.step * batch_bytes),
        )
        self._unindexed_end_position = position + indexed[-1] * batch_bytes + interval_bytes

    def _raise_timestamps(self, indexed: range, base_offsets: range, max_timestamps_ms: Sequence[int]) -> None:
        time_index = self.time_index
        greatest_ms = self.max_timestamp_ms
        if max(max_timestamps_ms) <= greatest_ms:
            if indexed:
                time_index.append(greatest_ms, self._offset_of_max_timestamp - self.base_offset)
            return
        delta = base_offsets.step - 1
        for index, timestamp_ms in enumerate(max_timestamps_ms):
            if timestamp_ms > greatest_ms:
                greatest_ms = timestamp_ms
                self._offset_of_max_timestamp = base_offsets[index] + delta
            if index in indexed:
                time_index.append(greatest_ms, self._offset_of_max_timestamp - self.base_offset)
        self._max_timestamp_ms = greatest_ms

    def index_scanned(self, position: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Index the next batch of the log file."""
        if self._first_timestamp_ms is None:
            self._first_timestamp_ms = max_timestamp_ms
        assert self._max_timestamp_ms is not None
        if max_timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms = max_timestamp_ms
            self._offset_of_max_timestamp = last_offset
        if position > self._unindexed_end_position:
            self._index_batch(last_offset, position)
        self.next_offset = last_offset + 1

    def resume(self) -> HeaderPlausibility:
        """Find the end of an active segment after a clean stop, from its last index entry on.

        Returns the check for the next batch, with the fault where the batches do not reach the end of the file.
        """
        size_bytes = self.log.size_bytes
        if size_bytes == 0:
            return self.order_from_start()
        _ = self.max_timestamp_ms
        positions = self.offset_index.positions
        start = positions[-1] if positions else 0
        order = self.order_from(start)
        for _, header in scan_batches(self.log, start, size_bytes, order):
            self.next_offset = header.last_offset + 1
            assert self._max_timestamp_ms is not None
            if header.max_timestamp_ms > self._max_timestamp_ms:
                self._max_timestamp_ms = header.max_timestamp_ms
                self._offset_of_max_timestamp = header.last_offset
        self._unindexed_end_position = start + self._index_interval_bytes
        return order

    # Aborted transactions

    @property
    def transaction_index(self) -> TransactionIndex:
        """Raises CorruptTransactionIndexError: this index cannot be rebuilt from its own segment alone."""
        index = self._transaction_index
        if index is None:
            content = self._disk.read_file(self.path(".txnindex"))
            try:
                self._check_recorded(".txnindex", content)
                if content is None:
                    raise CorruptIndexError("the file is missing")
                index = self._transaction_index = TransactionIndex.from_bytes(
                    content, base_offset=self.base_offset, end_offset=self._bound_offset
                )
            except CorruptIndexError as error:
                raise CorruptTransactionIndexError(self, str(error)) from error
        return index

    def append_aborted(self, entry: TransactionIndexEntry) -> None:
        """Record a transaction whose abort marker has just been appended. Raises StorageError."""
        index = self.transaction_index
        if self._transaction_index_file is None:
            self._transaction_index_file = self._disk.open(self.path(".txnindex"))
        self._transaction_index_file.append(entry.to_bytes())
        index.append(entry)
        self.has_transaction_index = True

    def replace_transaction_index(self, index: TransactionIndex) -> None:
        """Replace the index by a rebuilt one. After a crash before it is on the disk, its checksum does not match, and
        it is rebuilt again."""
        self._close_transaction_index_file()
        if len(index):
            self._disk.write_file(self.path(".txnindex"), index.to_bytes(), durable=False)
        elif self.has_transaction_index:
            self._disk.delete(self.path(".txnindex"))
        self._transaction_index = index
        self.has_transaction_index = len(index) > 0
        self._note_files({file_name(self.base_offset, ".txnindex"): content_record(index.to_bytes())})

    def reload_transaction_index(self) -> None:
        """Mark the index as missing, so that it is rebuilt before its first use."""
        self.has_transaction_index = True
        self._transaction_index = None

    def adopt_transaction_index(self, index: TransactionIndex) -> None:
        """Use an index whose file is in place already."""
        self._transaction_index = index
        self.has_transaction_index = len(index) > 0

    def _close_transaction_index_file(self) -> None:
        if self._transaction_index_file is not None:
            self._transaction_index_file.close()
            self._transaction_index_file = None

    # Writing

    def write_indexes(self) -> list[LogFile]:
        """Write the missing entries to the index files, without a sync. Returns all index files; the caller syncs and
        closes them."""
        index_files = []
        for suffix, index in ((".index", self.offset_index), (".timeindex", self.time_index)):
            file = self._disk.open(self.path(suffix))
            if index.written_count < len(index):
                file.append(index.unwritten_bytes())
                index.written_count = len(index)
            index_files.append(file)
        if self.has_transaction_index:
            index_files.append(self._disk.open(self.path(".txnindex")))
        return index_files

    @property
    def has_unwritten_entries(self) -> bool:
        index = self._offset_index
        return index is not None and index.written_count < len(index)

    def write_indexes_anew(self) -> None:
        """Replace the index files by the indexes in memory."""
        self._index_last_timestamp()
        for suffix, index in ((".index", self.offset_index), (".timeindex", self.time_index)):
            index.written_count = 0
            self._disk.write_file(self.path(suffix), index.unwritten_bytes(), durable=False)
            index.written_count = len(index)
        self.was_changed = True

    def index_files(self) -> list[LogFile]:
        """Open the files of all indexes; the caller syncs and closes them. Raises StorageError."""
        suffixes = [".index", ".timeindex", *([".txnindex"] if self.has_transaction_index else [])]
        return [self._disk.open(self.path(suffix)) for suffix in suffixes]

    def seal(self) -> list[LogFile]:
        """End appending: the last timestamp goes into the time index, the indexes into their files.

        Returns the index files, for the caller to sync together with the log file, and to close.
        """
        self.log.release_room()
        self._index_last_timestamp()
        index_files = self.write_indexes()
        self._close_transaction_index_file()
        return [*index_files, self.record_files(self.next_offset)]

    def _index_last_timestamp(self) -> None:
        if self.max_timestamp_ms >= 0:
            self.time_index.append(self.max_timestamp_ms, self.offset_of_max_timestamp - self.base_offset)

    # Checksums, with which a later start compares the files

    def record_files(self, following_offset: int) -> LogFile:
        """Record size and checksum of all files, and the offset at which the next segment begins; see
        `broker.log.segment_checksums`. Returns the list's file, which the caller syncs and closes.
        """
        transactions = self.transaction_index.to_bytes() if self.has_transaction_index else b""
        records: dict[str, FileRecord | None] = {
            file_name(self.base_offset, ".log"): FileRecord(self.log.size_bytes, following_offset),
            file_name(self.base_offset, START_SUFFIX): self._start_record(),
            **self._index_records(),
            file_name(self.base_offset, ".txnindex"): content_record(transactions),
        }
        return self._checksums.add(records)

    def record_start(self) -> None:
        """Record the start of the log file, so that a later start recognises a file of another partition.

        Called once the first batch is on the disk. Where the disk has no room for the line, it is tried again later.
        """
        if not self._is_start_noted:
            name = file_name(self.base_offset, START_SUFFIX)
            try:
                if self._checksums.get(name) is None:
                    self._note_files({name: self._start_record()})
            except StorageError:
                return  # a full disk is no reason to give up a log that need not be written
            self._is_start_noted = True

    def is_of_another_log(self) -> bool:
        """Whether the log file begins with a valid batch that is not the one that was written there.

        The checksum of that batch distinguishes another file from this one with damage. Raises StorageError.
        """
        return has_other_start(self.log, self._checksums.get(file_name(self.base_offset, START_SUFFIX)))

    def _start_record(self) -> FileRecord | None:
        start = self.log.read(0, HEADER_BYTES)
        if len(start) < HEADER_BYTES:
            return None
        size_bytes = max(HEADER_BYTES, min(read_header(start).size_bytes, self.log.size_bytes, START_BYTES))
        return FileRecord(size_bytes, _start_check(self.log, size_bytes))

    def forget_records(self) -> LogFile:
        """Remove the lines of the files, which are about to change, from the list of checksums."""
        return forget_segments(self._checksums, [self])

    def _index_records(self) -> dict[str, FileRecord]:
        return {
            file_name(self.base_offset, ".index"): content_record(self.offset_index.to_bytes()),
            file_name(self.base_offset, ".timeindex"): content_record(self.time_index.to_bytes()),
        }

    def _note_files(self, records: Mapping[str, FileRecord | None]) -> None:
        self._checksums.add(records).close()

    def forget_indexes(self) -> None:
        """Free the memory of a sealed segment's indexes, unless they were used since the last call."""
        if self.indexes_used:
            self.indexes_used = False
        elif self._offset_index is not None and self.log.size_bytes:
            _ = self.max_timestamp_ms
            self._offset_index = None
            self._time_index = None

    # Files

    def move_log(self, suffix: str, new_suffix: str) -> None:
        """Rename the closed log file on the way to its final name."""
        self._disk.rename(self.path(suffix), self.path(new_suffix))

    def log_was_moved(self) -> None:
        """Open the log file under its final name."""
        self.log = self._disk.open(self.path(".log"))

    def truncate(self, position: int) -> None:
        """Cut the log file; the indexes must be rebuilt afterwards."""
        self.log.truncate(position)
        self._last_batch_offset = _NOT_APPENDED_TO

    def close(self) -> None:
        self.log.close()
        self._close_transaction_index_file()

    def delete(self) -> None:
        """Remove the files, the log first: indexes without a log are removed at the next start."""
        self.close()
        for suffix in (".log", *INDEX_SUFFIXES):
            if suffix != ".txnindex" or self.has_transaction_index:
                self._disk.delete(self.path(suffix))


def has_other_start(file: LogFile, noted: FileRecord | None) -> bool:
    """Whether a log file begins with a valid batch that is not the noted one. Raises StorageError."""
    if noted is None or file.size_bytes < noted.size_bytes:
        return False
    return _start_check(file, noted.size_bytes) != noted.check and valid_batch_at(file, 0) is not None


def _start_check(file: LogFile, size_bytes: int) -> int:
    """The CRC-32C of the start of a log file, without what the first batch's own checksum does not cover."""
    check: int = crc32c(file.read(CRC_POSITION, size_bytes - CRC_POSITION))
    return check
