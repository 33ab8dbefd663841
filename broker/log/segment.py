"""One segment of a partition's log: the `.log` file and the indexes that belong to it.

Index files are read when they are first needed, and written when the segment is sealed, swept or closed. What is
missing
or cannot be right is rebuilt from the log file, with a warning.
Source: Kafka's LogSegment.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import structlog

from broker.disk import Disk, LogFile
from broker.file_slice import FileSlice
from broker.log.batch_scan import DamagedLogError, damaged, scan_batches
from broker.log.offset_index import CorruptIndexError, OffsetIndex
from broker.log.segment_checksums import FileRecord, SegmentChecksums, content_record
from broker.log.time_index import TimeIndex
from broker.log.transaction_index import TransactionIndex, TransactionIndexEntry
from protocol.record_batch import HEADER_BYTES

log = structlog.get_logger(__name__)

EMPTY = memoryview(b"")
MAX_RELATIVE_OFFSET = 2**31 - 1
MAX_POSITION = 2**31 - 1
NO_TIMESTAMP = -1
SMALL_READ_BYTES = 64 * 1024  # read whoever asks, with what lies around; more than what is copied into a reply
_WALK = struct.Struct(">qi11xi")  # base offset, batch length, last offset delta
_LENGTH_OVERHEAD = 12
_SMALLEST_LENGTH = HEADER_BYTES - _LENGTH_OVERHEAD
_NOT_APPENDED_TO = 2**63 - 1  # above all offsets


def file_name(offset: int, suffix: str) -> str:
    """`00000000000000000042.log`: an offset, twenty digits wide, and what the file is."""
    return f"{offset:020d}{suffix}"


class CorruptTransactionIndexError(Exception):
    """A segment's `.txnindex` cannot be right."""

    def __init__(self, segment: Segment, reason: str) -> None:
        super().__init__(reason)
        self.segment = segment


class SegmentRead(NamedTuple):
    """Whole batches, and the position after the last of them. Many of a lazy read are in `slice`, not in memory."""

    records: memoryview
    end_position: int
    slice: FileSlice | None = None


class SegmentLimits(NamedTuple):
    """Up to where a segment is appended to.

    age_ms: from the greatest timestamp of its first batch to that of its last.
    """

    size_bytes: int
    index_entries_count: int
    age_ms: int


class Segment:
    """One segment.

    base_offset: of the first record it may hold; its files are named after it.
    next_offset: after the last record it holds; `base_offset` when empty.
    was_changed: since it was opened, so that its index files may not be on the disk.
    max_timestamp_ms, offset_of_max_timestamp: the greatest record timestamp and the last offset of the batch that has
    it.
    """

    __slots__ = (
        "_bytes_since_index_entry",
        "_checksums",
        "_directory",
        "_disk",
        "_first_timestamp_ms",
        "_index_interval_bytes",
        "_indexes_were_read",
        "_last_batch_offset",
        "_last_batch_position",
        "_max_timestamp_ms",
        "_offset_index",
        "_offset_of_max_timestamp",
        "_time_index",
        "_transaction_index",
        "_transaction_index_file",
        "base_offset",
        "has_transaction_index",
        "indexes_used",
        "log",
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
        log_suffix: str = ".log",
        checksums: SegmentChecksums | None = None,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.has_transaction_index = has_transaction_index
        self.log: LogFile = disk.open(self.path(log_suffix))
        self._index_interval_bytes = index_interval_bytes
        self._bytes_since_index_entry = 0
        # Of the batch appended last, which readers at the end of the log ask for next: above which offset it begins.
        self._last_batch_offset = _NOT_APPENDED_TO
        self._last_batch_position = 0
        self._first_timestamp_ms: int | None = None
        self._max_timestamp_ms: int | None = None
        self._offset_of_max_timestamp = base_offset
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._transaction_index: TransactionIndex | None = None if has_transaction_index else TransactionIndex()
        self._transaction_index_file: LogFile | None = None
        self._checksums = SegmentChecksums(disk, directory) if checksums is None else checksums
        self._indexes_were_read = False
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

    # Append

    def append(
        self, buffers: tuple[bytes | bytearray | memoryview, ...], last_offset: int, max_timestamp_ms: int
    ) -> None:
        """Write one batch, given in pieces, at the end. Raises StorageError; the segment is then as it was."""
        file = self.log
        position = file.size_bytes
        file.append(*buffers)
        self.was_changed = True
        if not position:
            self._first_timestamp_ms = max_timestamp_ms
        greatest_ms = self._max_timestamp_ms
        if greatest_ms is None:
            greatest_ms = self.max_timestamp_ms
        if max_timestamp_ms > greatest_ms:
            self._max_timestamp_ms = max_timestamp_ms
            self._offset_of_max_timestamp = last_offset
        if self._bytes_since_index_entry > self._index_interval_bytes:
            self._index_batch(last_offset, position)
        self._bytes_since_index_entry += file.size_bytes - position
        self._last_batch_offset, self._last_batch_position = self.next_offset, position
        self.next_offset = last_offset + 1

    def _index_batch(self, last_offset: int, position: int) -> None:
        self.offset_index.append(last_offset - self.base_offset, position)
        assert self._max_timestamp_ms is not None
        self.time_index.append(self._max_timestamp_ms, self._offset_of_max_timestamp - self.base_offset)
        self._bytes_since_index_entry = 0

    def has_room_for(self, size_bytes: int, last_offset: int, max_timestamp_ms: int, limits: SegmentLimits) -> bool:
        """Whether a batch fits: by size, by the offsets that an index entry can tell, by room in the index, by age.

        An empty segment takes any.
        """
        position = self.log.size_bytes
        if not position:
            return True
        if position + size_bytes > limits.size_bytes or last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return False
        index = self._offset_index
        if index is None:
            index = self.offset_index
        if len(index.positions) >= limits.index_entries_count:
            return False
        first_timestamp_ms = self._first_timestamp_ms
        if first_timestamp_ms is None:
            first_timestamp_ms = self.first_timestamp_ms
        return (
            first_timestamp_ms is None or max_timestamp_ms < 0 or max_timestamp_ms - first_timestamp_ms <= limits.age_ms
        )

    # Read

    def read(
        self, offset: int, max_bytes: int, bound_offset: int, *, minimum_one_batch: bool, is_lazy: bool = False
    ) -> SegmentRead | None:
        """Whole batches from the one that holds `offset`, none of which reaches `bound_offset`.

        None when the segment holds nothing at or after `offset` (a compacted log has gaps).
        With `minimum_one_batch` the first batch is returned whole even if it alone is above `max_bytes`. With `is_lazy`
        more than SMALL_READ_BYTES are found but not read.
        Raises DamagedLogError where the file holds something that cannot be the next batch. Checksums are not looked
        at: that is for the reader.
        """
        try:
            return self._read(offset, max_bytes, bound_offset, minimum_one_batch=minimum_one_batch, is_lazy=is_lazy)
        except DamagedLogError as error:
            if not self._indexes_were_read:
                raise
            # Perhaps it is the index that leads to a place where no batch begins.
            log.warning("index_rebuilt", path=self.path(".index"), reason=str(error))
            self.rebuild_indexes()
            return self._read(offset, max_bytes, bound_offset, minimum_one_batch=minimum_one_batch, is_lazy=is_lazy)

    def _read(
        self, offset: int, max_bytes: int, bound_offset: int, *, minimum_one_batch: bool, is_lazy: bool
    ) -> SegmentRead | None:
        if self._last_batch_offset <= offset < self.next_offset <= bound_offset:
            found = self._read_last_batch(max_bytes, minimum_one_batch=minimum_one_batch)
            if found is not None:
                return found
        index = self.offset_index
        size_bytes = self.log.size_bytes
        first_position = chunk_position = index.position_before(offset - self.base_offset)
        walk_bytes = self._index_interval_bytes + _WALK.size
        wanted_bytes = max(max_bytes, 0) + walk_bytes
        # A small read takes the way to the batch along; a large one begins at the batch, or half of it might be the
        # way.
        is_small = wanted_bytes <= SMALL_READ_BYTES
        step_bytes = wanted_bytes if is_small else walk_bytes
        chunk = self.log.read(chunk_position, min(step_bytes, size_bytes - chunk_position))
        # Walk to the batch that holds the offset.
        start = 0
        least_offset = self.base_offset
        while True:
            if start + _WALK.size > len(chunk):
                chunk_position += start
                start = 0
                if chunk_position == size_bytes:
                    return None
                if chunk_position + _WALK.size > size_bytes:
                    raise self._damaged(chunk_position, least_offset)
                chunk = self.log.read(chunk_position, min(step_bytes, size_bytes - chunk_position))
            base_offset, length, last_offset_delta = _WALK.unpack_from(chunk, start)
            last_offset = base_offset + last_offset_delta
            if (
                length < _SMALLEST_LENGTH
                or base_offset < least_offset
                or last_offset < base_offset
                or chunk_position + start + length + _LENGTH_OVERHEAD > size_bytes
            ):
                raise self._damaged(chunk_position + start, least_offset)
            if last_offset >= offset:
                break
            start += length + _LENGTH_OVERHEAD
            least_offset = last_offset + 1
        if last_offset >= self.next_offset or (
            first_position and chunk_position + start == first_position and last_offset > offset
        ):
            raise self._damaged(chunk_position + start, least_offset)
        if last_offset >= bound_offset:
            return SegmentRead(chunk[:0], chunk_position + start)
        batch_position = chunk_position + start
        first_bytes = length + _LENGTH_OVERHEAD
        if first_bytes > max_bytes:
            if not minimum_one_batch:
                return SegmentRead(chunk[:0], batch_position)
            if start + first_bytes > len(chunk):
                if is_lazy:
                    return self._slice(batch_position, batch_position + first_bytes)
                start = 0
                chunk = self.log.read(batch_position, first_bytes)
            return SegmentRead(chunk[start : start + first_bytes], batch_position + first_bytes)
        limit = min(batch_position + max_bytes, size_bytes)
        is_partial = chunk_position + len(chunk) < limit
        if is_partial and (not is_small or start + first_bytes > len(chunk) or start > len(chunk) // 2):
            if is_lazy and limit - batch_position > SMALL_READ_BYTES:
                return self._slice(batch_position, self._end_of_batches(batch_position, limit, bound_offset))
            chunk_position = batch_position
            start = 0
            chunk = self.log.read(chunk_position, limit - chunk_position)
        limit = min(limit, chunk_position + len(chunk))
        end = self._end_of_batches(batch_position, limit, bound_offset, chunk, chunk_position)
        return SegmentRead(chunk[start : end - chunk_position], end)

    def _read_last_batch(self, max_bytes: int, *, minimum_one_batch: bool) -> SegmentRead | None:
        """The batch appended last, without looking for it; None where it is not to be read whole and at once, or where
        the file holds something else, which is for those to tell who walk there."""
        position = self._last_batch_position
        size_bytes = self.log.size_bytes - position
        if not 0 < size_bytes <= SMALL_READ_BYTES or (size_bytes > max_bytes and not minimum_one_batch):
            return None
        chunk = self.log.read(position, size_bytes)
        if len(chunk) < _WALK.size:
            return None
        base_offset, length, last_offset_delta = _WALK.unpack_from(chunk)
        if (
            base_offset < self._last_batch_offset
            or base_offset + last_offset_delta + 1 != self.next_offset
            or length + _LENGTH_OVERHEAD != len(chunk)
        ):
            return None
        return SegmentRead(chunk, position + len(chunk))

    def _slice(self, position: int, end: int) -> SegmentRead:
        length_bytes = end - position
        if length_bytes <= SMALL_READ_BYTES:
            return SegmentRead(self.log.read(position, length_bytes), end)
        return SegmentRead(EMPTY, end, FileSlice(self.log, position, length_bytes))

    def _end_of_batches(
        self, position: int, limit: int, bound_offset: int, chunk: memoryview = EMPTY, chunk_position: int = 0
    ) -> int:
        """Where the last batch ends that lies between a batch's position and `limit` as a whole and does not reach the
        bound.

        chunk: what has been read of the file, from `chunk_position` on.
        """
        index = self.offset_index
        # Jump near the end by the index, then walk to the last whole batch.
        near_end = index.batch_at_or_before(limit)
        if bound_offset < self.next_offset:
            near_end = min(near_end, index.last_position_below(bound_offset - self.base_offset))
        end = max(position, near_end)
        while end + _WALK.size <= limit:
            start = end - chunk_position
            if start + _WALK.size > len(chunk):
                chunk_position, start = end, 0
                chunk = self.log.read(end, min(self._index_interval_bytes + _WALK.size, limit - end))
                if len(chunk) < _WALK.size:
                    raise self._damaged(end, self.base_offset)
            base_offset, length, last_offset_delta = _WALK.unpack_from(chunk, start)
            following = end + length + _LENGTH_OVERHEAD
            if following > limit or length < _SMALLEST_LENGTH or base_offset + last_offset_delta >= bound_offset:
                break  # a damaged batch is for the read that begins with it
            end = following
        return end

    def has_batch_below(self, bound_offset: int, position: int) -> bool:
        """Whether the batch at a position does not reach the bound."""
        if self.next_offset <= bound_offset:
            return True
        header = self.log.read(position, _WALK.size)
        if len(header) < _WALK.size:
            return False
        base_offset, _, last_offset_delta = _WALK.unpack_from(header)
        last_offset: int = base_offset + last_offset_delta
        return last_offset < bound_offset

    def _damaged(self, position: int, offset: int) -> DamagedLogError:
        return damaged(self.path(".log"), position, offset)

    def offset_bound_after(self, position: int) -> int:
        """An offset above all records before `position`: of the next index entry, else of the segment's end."""
        bound = self.offset_index.first_offset_from(position)
        return self.next_offset if bound is None else self.base_offset + bound

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
    def offset_of_max_timestamp(self) -> int:
        return self._offset_of_max_timestamp if self.max_timestamp_ms >= 0 else self.base_offset

    @property
    def first_timestamp_ms(self) -> int | None:
        """The greatest timestamp of the first batch, from which the age of the segment counts; None when empty."""
        if self._first_timestamp_ms is None:
            for batch in scan_batches(self.log, 0, self.log.size_bytes):
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
                self._insist_on_recorded(suffix, content)
            self._offset_index = OffsetIndex.from_bytes(offsets, self.log.size_bytes)
            self._time_index = TimeIndex.from_bytes(times)
            self._indexes_were_read = True
        except CorruptIndexError as error:
            log.warning("index_rebuilt", path=self.path(".index"), reason=str(error))
            self.rebuild_indexes()

    def _insist_on_recorded(self, suffix: str, content: bytes | None) -> None:
        if not self._checksums.matches(file_name(self.base_offset, suffix), content):
            raise CorruptIndexError("it is not what was written into it")

    def rebuild_indexes(self) -> None:
        """Make both indexes anew from the log file's headers, and write them."""
        end_offset = self.next_offset
        self.reset_indexes()
        for position, header in scan_batches(self.log, 0, self.log.size_bytes):
            self.index_scanned(position, header.last_offset, header.size_bytes, header.max_timestamp_ms)
        # Where the log itself is damaged they end there. The offsets behind it have been given out all the same.
        self.next_offset = max(self.next_offset, end_offset)
        self.write_indexes_anew()
        self._indexes_were_read = False
        self._note_files(self._index_records())

    def reset_indexes(self) -> None:
        """Forget all that is known from the log file's content, before its batches are given to `index_scanned`
        again."""
        self._offset_index = OffsetIndex()
        self._time_index = TimeIndex()
        self._max_timestamp_ms = NO_TIMESTAMP
        self._offset_of_max_timestamp = self.base_offset
        self._first_timestamp_ms = None
        self._bytes_since_index_entry = 0
        self.next_offset = self.base_offset

    def index_scanned(self, position: int, last_offset: int, size_bytes: int, max_timestamp_ms: int) -> None:
        """Take in a batch that the log file holds, the next in order."""
        if self._first_timestamp_ms is None:
            self._first_timestamp_ms = max_timestamp_ms
        assert self._max_timestamp_ms is not None
        if max_timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms = max_timestamp_ms
            self._offset_of_max_timestamp = last_offset
        if self._bytes_since_index_entry > self._index_interval_bytes:
            self._index_batch(last_offset, position)
        self._bytes_since_index_entry += size_bytes
        self.next_offset = last_offset + 1

    def resume(self) -> bool:
        """After a clean stop: find the end of an active segment from its last index entry on.

        Returns whether the batches from there on end where the file ends.
        """
        size_bytes = self.log.size_bytes
        if size_bytes == 0:
            return True
        _ = self.max_timestamp_ms
        positions = self.offset_index.positions
        start = positions[-1] if positions else 0
        end = start
        for position, header in scan_batches(self.log, start, size_bytes):
            end = position + header.size_bytes
            self.next_offset = header.last_offset + 1
            assert self._max_timestamp_ms is not None
            if header.max_timestamp_ms > self._max_timestamp_ms:
                self._max_timestamp_ms = header.max_timestamp_ms
                self._offset_of_max_timestamp = header.last_offset
        self._bytes_since_index_entry = end - start
        return end == size_bytes

    # Aborted transactions

    @property
    def transaction_index(self) -> TransactionIndex:
        """Raises CorruptTransactionIndexError: this index cannot be rebuilt from its own segment alone."""
        index = self._transaction_index
        if index is None:
            content = self._disk.read_file(self.path(".txnindex"))
            try:
                self._insist_on_recorded(".txnindex", content)
                if content is None:
                    raise CorruptIndexError("the file is missing")
                index = self._transaction_index = TransactionIndex.from_bytes(content, base_offset=self.base_offset)
            except CorruptIndexError as error:
                raise CorruptTransactionIndexError(self, str(error)) from error
        return index

    def append_aborted(self, entry: TransactionIndexEntry) -> None:
        """Take note of a transaction whose abort marker has just been appended. Raises StorageError."""
        index = self.transaction_index
        if self._transaction_index_file is None:
            self._transaction_index_file = self._disk.open(self.path(".txnindex"))
        self._transaction_index_file.append(entry.to_bytes())
        index.append(entry)
        self.has_transaction_index = True

    def replace_transaction_index(self, index: TransactionIndex) -> None:
        """Put a rebuilt index in the place of the one there is, durably."""
        self._close_transaction_index_file()
        if len(index):
            self._disk.write_file(self.path(".txnindex"), index.to_bytes(), durable=True)
        elif self.has_transaction_index:
            self._disk.delete(self.path(".txnindex"))
        self._transaction_index = index
        self.has_transaction_index = len(index) > 0
        self._note_files({file_name(self.base_offset, ".txnindex"): content_record(index.to_bytes())})

    def adopt_transaction_index(self, index: TransactionIndex) -> None:
        """Take over an index whose file is in place already."""
        self._transaction_index = index
        self.has_transaction_index = len(index) > 0

    def _close_transaction_index_file(self) -> None:
        if self._transaction_index_file is not None:
            self._transaction_index_file.close()
            self._transaction_index_file = None

    # Writing

    def write_indexes(self) -> list[LogFile]:
        """Bring the index files up to date, in the page cache; returns all of them, for the caller to sync and
        close."""
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

    def write_indexes_anew(self, *, durable: bool = True) -> None:
        """Replace the index files by what is in memory."""
        self._index_last_timestamp()
        for suffix, index in ((".index", self.offset_index), (".timeindex", self.time_index)):
            index.written_count = 0
            self._disk.write_file(self.path(suffix), index.unwritten_bytes(), durable=durable)
            index.written_count = len(index)
        self.was_changed = True

    def seal(self) -> list[LogFile]:
        """End appending: the last timestamp goes into the time index, the indexes into their files.

        Returns the index files, for the caller to sync together with the log file, and to close.
        """
        self._index_last_timestamp()
        index_files = self.write_indexes()
        self._close_transaction_index_file()
        return [*index_files, self.record_files(self.next_offset)]

    def _index_last_timestamp(self) -> None:
        if self.max_timestamp_ms >= 0:
            self.time_index.append(self.max_timestamp_ms, self.offset_of_max_timestamp - self.base_offset)

    # What a later start compares the files with

    def record_files(self, following_offset: int) -> LogFile:
        """Note what all files are like now, with the offset at which the next segment begins; see
        `broker.log.segment_checksums`. Returns the list's file, for the caller to sync and close.
        """
        transactions = self.transaction_index.to_bytes() if self.has_transaction_index else b""
        return self._checksums.add(
            {
                file_name(self.base_offset, ".log"): FileRecord(self.log.size_bytes, following_offset),
                **self._index_records(),
                file_name(self.base_offset, ".txnindex"): content_record(transactions),
            }
        )

    def forget_records(self) -> LogFile:
        """The files are about to change: nothing is to be compared with what they were like before."""
        return self._checksums.add(
            {file_name(self.base_offset, suffix): None for suffix in (".log", ".index", ".timeindex", ".txnindex")}
        )

    def _index_records(self) -> dict[str, FileRecord]:
        return {
            file_name(self.base_offset, ".index"): content_record(self.offset_index.to_bytes()),
            file_name(self.base_offset, ".timeindex"): content_record(self.time_index.to_bytes()),
        }

    def _note_files(self, records: dict[str, FileRecord]) -> None:
        self._checksums.add(records).close()

    def forget_indexes(self) -> None:
        """Give the memory of a sealed segment's indexes back, unless they were used since the last call."""
        if self.indexes_used:
            self.indexes_used = False
        elif self._offset_index is not None and self.log.size_bytes:
            _ = self.max_timestamp_ms
            self._offset_index = None
            self._time_index = None

    # Files

    def move_log(self, suffix: str, new_suffix: str) -> None:
        """Rename the log file, which is closed, on its way to its final name."""
        self._disk.rename(self.path(suffix), self.path(new_suffix))

    def log_was_moved(self) -> None:
        """The log file has its final name now, and is used again."""
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
        for suffix in (".log", ".index", ".timeindex", ".txnindex"):
            if suffix != ".txnindex" or self.has_transaction_index:
                self._disk.delete(self.path(suffix))
