"""Offset index and time index of one segment: their entries, the greatest timestamp, and their two files.

The files are read at first use, and written when the segment is sealed, swept or closed. An index that is missing or
corrupt is rebuilt from the log file, with a warning.
Source: Kafka's LogSegment.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.log.files.segment_checksums import FileRecord, content_record
from fencepost.broker.log.segment.batch_scan import header_at, scan_batches
from fencepost.broker.log.segment.header_plausibility import HeaderFault, HeaderPlausibility
from fencepost.broker.log.segment.offset_index import CorruptIndexError, OffsetIndex
from fencepost.broker.log.segment.segment_batches import SegmentBatches
from fencepost.broker.log.segment.time_index import TimeIndex
from fencepost.broker.storage.disk import LogFile

log = get_logger(__name__)

NO_TIMESTAMP = -1


class SegmentIndexes:
    """The indexes of one segment, and the state from which their next entries follow.

    interval_bytes:           least bytes of the log file between two entries.
    unindexed_end_position:   a batch that begins above it gets an entry.
    known_max_timestamp_ms:   the greatest record timestamp, -1 without one; None while `max_timestamp_ms` would first
                              read it from the time index.
    known_offset_of_max:      the last offset of the batch that has it, once it is known.
    was_changed:              whether the segment has changed since it was opened, so that its index files may not be on
                              the disk.
    """

    __slots__ = (
        "_batches",
        "_files",
        "_offset_index",
        "_time_index",
        "_was_used",
        "_were_read",
        "interval_bytes",
        "known_max_timestamp_ms",
        "known_offset_of_max",
        "unindexed_end_position",
        "was_changed",
    )

    def __init__(self, batches: SegmentBatches, interval_bytes: int) -> None:
        self._batches = batches
        self._files = batches.files
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._were_read = False  # from files that no checksum covers
        self._was_used = True
        self.interval_bytes = interval_bytes
        self.unindexed_end_position = batches.log.size_bytes + interval_bytes
        self.known_max_timestamp_ms: int | None = None
        self.known_offset_of_max = batches.base_offset
        self.was_changed = False
        if batches.log.size_bytes == 0:
            self._offset_index = OffsetIndex()
            self._time_index = TimeIndex()
            self.known_max_timestamp_ms = NO_TIMESTAMP

    @property
    def offset_index(self) -> OffsetIndex:
        """Raises StorageError."""
        self._was_used = True
        index = self._offset_index
        if index is None:
            self._load()
            index = self._offset_index
            assert index is not None
        return index

    @property
    def time_index(self) -> TimeIndex:
        """Raises StorageError."""
        self._was_used = True
        index = self._time_index
        if index is None:
            self._load()
            index = self._time_index
            assert index is not None
        return index

    @property
    def max_timestamp_ms(self) -> int:
        """The greatest record timestamp; -1 when no record has one. Raises StorageError."""
        if self.known_max_timestamp_ms is None:
            time_index = self.time_index
            if len(time_index):
                self.known_max_timestamp_ms = time_index.timestamps_ms[-1]
                self.known_offset_of_max = self._batches.base_offset + time_index.last_offsets[-1]
            else:
                self.known_max_timestamp_ms = NO_TIMESTAMP
        return self.known_max_timestamp_ms

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the batch with the greatest timestamp; the segment's first without one."""
        return self.known_offset_of_max if self.max_timestamp_ms >= 0 else self._batches.base_offset

    @property
    def are_in_memory(self) -> bool:
        """Whether the indexes are in memory; those of a segment that is not read leave it, see `forget_unused`."""
        return self._offset_index is not None

    # Loading

    def _load(self) -> None:
        files, batches = self._files, self._batches
        try:
            offsets = files.read_small(".index")
            times = files.read_small(".timeindex")
            if offsets is None or times is None:
                raise CorruptIndexError("the file is missing")
            files.require_recorded(".index", offsets)
            files.require_recorded(".timeindex", times)
            offsets_count = batches.bound_offset - batches.base_offset
            self._offset_index = OffsetIndex.from_bytes(offsets, batches.log.size_bytes, offsets_count)
            self._time_index = TimeIndex.from_bytes(times, offsets_count)
            # A file that its checksum covers is not to blame for damage.
            self._were_read = files.recorded(".index") is None
            if files.recorded(".timeindex") is None:
                self._check_greatest_time(self._time_index)
        except CorruptIndexError as error:
            log.warning("index_rebuilt", path=files.path(".index"), reason=str(error))
            self.rebuild()

    def _check_greatest_time(self, times: TimeIndex) -> None:
        """Check that the last entry matches the batch it names: retention relies on it. Raises CorruptIndexError."""
        if not len(times):
            return
        batches = self._batches
        last_offset = times.last_offsets[-1]
        position = self.offset_index.position_before(last_offset)
        order = self.order_from(position)
        for _, header in scan_batches(batches.log, position, batches.log.size_bytes, order):
            if header.last_offset - batches.base_offset >= last_offset:
                if header.max_timestamp_ms == times.timestamps_ms[-1]:
                    return
                break
        if order.fault is not None:
            return  # the log is damaged there; its readers report that
        raise CorruptIndexError("its last entry is not what the batch has that it names")

    def rebuild(self) -> None:
        """Rebuild both indexes from the headers of the log file, and write them without a sync. After a crash before
        they are on the disk, their checksums do not match, and they are rebuilt again. Raises StorageError."""
        batches = self._batches
        order = batches.order_from_start()
        self.reset()
        end_offset = batches.base_offset
        for position, header in scan_batches(batches.log, 0, batches.log.size_bytes, order):
            self.add_scanned(position, header.last_offset, header.max_timestamp_ms)
            end_offset = header.last_offset + 1
        # Where the log itself is damaged, the indexes end there. The offsets after it are used all the same.
        batches.next_offset = max(batches.next_offset, end_offset)
        self.write_anew()
        self._were_read = False
        self._files.record(self.records()).close()

    def rebuild_if_misleading(self, fault: HeaderFault) -> bool:
        """Rebuild the indexes if they may have pointed to a position at which no batch begins. Returns whether it has.
        Raises StorageError."""
        if not self._were_read:
            return False
        log.warning("index_rebuilt", path=self._files.path(".index"), reason=str(self._batches.damaged(fault)))
        self.rebuild()
        return True

    def forget_unused(self) -> None:
        """Free the memory of a sealed segment's indexes, unless they were used since the last call."""
        if self._was_used:
            self._was_used = False
        elif self._offset_index is not None and self._batches.log.size_bytes:
            _ = self.max_timestamp_ms
            self._offset_index = None
            self._time_index = None

    # Searching

    def order_from(self, position: int) -> HeaderPlausibility:
        """Return the check for the batch at the position of an index entry, or at 0, and for those after it."""
        batches = self._batches
        next_offset = batches.base_offset
        if position:
            header = header_at(batches.log, position)
            if header is not None:
                last_offset = batches.base_offset + self.offset_index.last_offset_at(position)
                next_offset = last_offset - header.last_offset_delta
        return batches.order_at(next_offset)

    # Adding entries

    def reset(self) -> None:
        """Start empty, before all batches of the log file are given to `add_scanned`."""
        self._offset_index = OffsetIndex()
        self._time_index = TimeIndex()
        self.known_max_timestamp_ms = NO_TIMESTAMP
        self.known_offset_of_max = self._batches.base_offset
        self.unindexed_end_position = self.interval_bytes

    def resume(
        self, offset_index: OffsetIndex, time_index: TimeIndex, max_timestamp_ms: int, offset_of_max: int
    ) -> None:
        """Continue from indexes of the first batches, before the others are given to `add_scanned`."""
        self._offset_index, self._time_index = offset_index, time_index
        self.known_max_timestamp_ms, self.known_offset_of_max = max_timestamp_ms, offset_of_max
        self.unindexed_end_position = self.interval_bytes
        if offset_index.positions:
            self.unindexed_end_position += offset_index.positions[-1]

    def add(self, last_offset: int, position: int) -> None:
        """Add an entry for a batch, whose timestamp is taken into account already."""
        offset_index, time_index = self._offset_index, self._time_index
        if offset_index is None or time_index is None:
            offset_index, time_index = self.offset_index, self.time_index
        base_offset = self._batches.base_offset
        offset_index.append(last_offset - base_offset, position)
        assert self.known_max_timestamp_ms is not None
        time_index.append(self.known_max_timestamp_ms, self.known_offset_of_max - base_offset)
        self.unindexed_end_position = position + self.interval_bytes

    def add_scanned(self, position: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Take the next batch of the log file into account."""
        self.raise_timestamp(last_offset, max_timestamp_ms)
        if position > self.unindexed_end_position:
            self.add(last_offset, position)

    def raise_timestamp(self, last_offset: int, max_timestamp_ms: int) -> None:
        """Take a batch's timestamp into account. The greatest one is known."""
        assert self.known_max_timestamp_ms is not None
        if max_timestamp_ms > self.known_max_timestamp_ms:
            self.known_max_timestamp_ms = max_timestamp_ms
            self.known_offset_of_max = last_offset

    def add_run(self, position: int, batch_bytes: int, base_offsets: range, max_timestamps_ms: Sequence[int]) -> None:
        """Take batches of equal length and equal record count into account, which begin at `position`."""
        count = len(max_timestamps_ms)
        interval_bytes = self.interval_bytes
        unindexed_bytes = self.unindexed_end_position - position
        first = 0 if unindexed_bytes < 0 else unindexed_bytes // batch_bytes + 1
        indexed = range(first, count, interval_bytes // batch_bytes + 1)
        delta = base_offsets.step - 1 - self._batches.base_offset  # from a batch's first offset to its last, relative
        self._raise_timestamps(indexed, base_offsets, max_timestamps_ms)
        if not indexed:
            return
        offsets = base_offsets[first :: indexed.step]
        self.offset_index.extend(
            range(offsets.start + delta, offsets.stop + delta, offsets.step),
            range(position + first * batch_bytes, position + count * batch_bytes, indexed.step * batch_bytes),
        )
        self.unindexed_end_position = position + indexed[-1] * batch_bytes + interval_bytes

    def _raise_timestamps(self, indexed: range, base_offsets: range, max_timestamps_ms: Sequence[int]) -> None:
        time_index = self.time_index
        base_offset = self._batches.base_offset
        greatest_ms = self.max_timestamp_ms
        if max(max_timestamps_ms) <= greatest_ms:
            if indexed:
                time_index.append(greatest_ms, self.known_offset_of_max - base_offset)
            return
        delta = base_offsets.step - 1
        for index, timestamp_ms in enumerate(max_timestamps_ms):
            if timestamp_ms > greatest_ms:
                greatest_ms = timestamp_ms
                self.known_offset_of_max = base_offsets[index] + delta
            if index in indexed:
                time_index.append(greatest_ms, self.known_offset_of_max - base_offset)
        self.known_max_timestamp_ms = greatest_ms

    def add_greatest_timestamp(self) -> None:
        """Add the greatest timestamp to the time index, which may have got no entry yet."""
        if self.max_timestamp_ms >= 0:
            self.time_index.append(self.max_timestamp_ms, self.offset_of_max_timestamp - self._batches.base_offset)

    # Writing

    @property
    def has_unwritten_entries(self) -> bool:
        index = self._offset_index
        return index is not None and index.written_count < len(index)

    def write(self) -> list[LogFile]:
        """Write the missing entries to the files, without a sync. Returns the files; the caller syncs and closes them.
        Raises StorageError."""
        index_files = []
        for suffix, index in ((".index", self.offset_index), (".timeindex", self.time_index)):
            file = self._files.disk.open(self._files.path(suffix))
            if index.written_count < len(index):
                file.append(index.unwritten_bytes())
                index.written_count = len(index)
            index_files.append(file)
        return index_files

    def write_anew(self) -> None:
        """Replace the files by the indexes in memory. Raises StorageError."""
        self.add_greatest_timestamp()
        for suffix, index in ((".index", self.offset_index), (".timeindex", self.time_index)):
            index.written_count = 0
            self._files.disk.write_file(self._files.path(suffix), index.unwritten_bytes(), durable=False)
            index.written_count = len(index)
        self.was_changed = True

    def open_files(self) -> list[LogFile]:
        """Open both files; the caller syncs and closes them. Raises StorageError."""
        return [self._files.disk.open(self._files.path(suffix)) for suffix in (".index", ".timeindex")]

    def records(self) -> dict[str, FileRecord]:
        """Return the records of the files for the list of checksums, by suffix. Raises StorageError."""
        return {
            ".index": content_record(self.offset_index.to_bytes()),
            ".timeindex": content_record(self.time_index.to_bytes()),
        }
