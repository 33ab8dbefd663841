"""Recovery mark, the file `recovery-mark` of a partition: the place in the active segment from which recovery reads on.

A process that died leaves a segment of up to a gigabyte, which recovery would read again from its start. The mark names
an offset that was on the disk when the mark was written, holds the producers' state there, and the state of
the index files: recovery takes those, and reads the batches behind the mark alone.
Nothing of it is synced. After the death of a process the page cache has all files. After a loss of power some may be
missing or old; the checks of `find_mark` find that, and then the segment is read from its start. Its offset counts all
the same: a log that ends before it has lost acknowledged records. A mark that cannot be read, or is of another
partition, counts for nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from crc32c import crc32c

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.durability.log_durability import LogDurability
from fencepost.broker.log.files.checkpoints import ZERO_TOPIC_ID, CorruptCheckpointError
from fencepost.broker.log.files.leader_epochs import LeaderEpochs
from fencepost.broker.log.files.partition_files import RECOVERY_MARK_FILE, PartitionFiles
from fencepost.broker.log.files.producer_snapshot import (
    CorruptSnapshot,
    ProducerSnapshot,
    decode_snapshot,
    encode_snapshot,
)
from fencepost.broker.log.files.segment_checksums import FileRecord
from fencepost.broker.log.files.small_file import read_small
from fencepost.broker.log.producers.producer_state import ProducerState
from fencepost.broker.log.producers.producer_work import ProducerWork
from fencepost.broker.log.segment.log_segments import LogSegments
from fencepost.broker.log.segment.offset_index import CorruptIndexError, OffsetIndex
from fencepost.broker.log.segment.segment import Segment
from fencepost.broker.log.segment.tail_scan import valid_batch_at
from fencepost.broker.log.segment.time_index import TimeIndex
from fencepost.broker.log.segment.transaction_index import TransactionIndex
from fencepost.broker.storage.disk import OF_ALL_FILES, NoRoomError, StorageError, remedy

log = get_logger(__name__)

MARK_INTERVAL_MS: Final = 5_000
"""Between two marks of a log, at least."""
FEWEST_MARKED_RECORDS: Final = 2_000
FEWEST_MARKED_BYTES: Final = 16 * 1024 * 1024
"""Records or bytes appended since the last mark from which on another is worth its write."""

_VERSION: Final = 2
_EARLIER_VERSION: Final = 1
"""Without the identity of the partition."""
_PREAMBLE = struct.Struct(">HI")
_IDENTITY = struct.Struct(">16si")
_FIELDS = struct.Struct(">qqqqIiqqqIqIqI")


class RecoveryMark(NamedTuple):
    """A place in an active segment, between two batches.

    topic_id, partition: owner of the mark; zeros and -1 if unknown.
    base_offset:         base offset of the segment.
    offset, position:    place of the next batch.
    last_batch_position, last_batch_crc: position and CRC of the batch before the place, to detect a replaced log file.
    leader_epoch:        epoch of that batch.
    max_timestamp_ms, offset_of_max: the greatest record timestamp in the segment; see `SegmentIndexes`.
    offset_index, time_index, transaction_index: the size and CRC-32C of the files; they may have grown since.
    producers:           their state, as a snapshot file has it.
    """

    topic_id: bytes
    partition: int
    base_offset: int
    offset: int
    position: int
    last_batch_position: int
    last_batch_crc: int
    leader_epoch: int
    max_timestamp_ms: int
    offset_of_max: int
    offset_index: FileRecord
    time_index: FileRecord
    transaction_index: FileRecord
    producers: bytes


class FoundMark(NamedTuple):
    """A mark of this partition: all below its offset was on the disk.

    place:           place that it names; None if any of its facts do not hold.
    is_of_the_log:   whether the log file has the batch before it.
    """

    mark: RecoveryMark
    place: MarkedPlace | None
    is_of_the_log: bool


class MarkedPlace(NamedTuple):
    """A mark whose files exist, with the state that it names."""

    mark: RecoveryMark
    producers: list[ProducerSnapshot]
    offset_index: OffsetIndex
    time_index: TimeIndex
    transaction_index: TransactionIndex


class MarkedLog(Protocol):
    """The log, as its marks see it."""

    topic_id: bytes
    topic_partition: TopicPartition
    segments: LogSegments
    files: PartitionFiles
    durability: LogDurability
    producer_work: ProducerWork

    producers: ProducerState


def encode_mark(mark: RecoveryMark) -> bytes:
    """Encode the content of the file: version, CRC-32C of the rest, numbers big-endian, identity, producers."""
    topic_id, partition, *numbers, offset_index, time_index, transaction_index, producers = mark
    body = _FIELDS.pack(*numbers, *offset_index, *time_index, *transaction_index)
    body += _IDENTITY.pack(topic_id, partition) + producers
    return _PREAMBLE.pack(_VERSION, crc32c(body)) + body


def decode_mark(content: bytes) -> RecoveryMark | None:
    """Decode the content of the file; None if it is corrupt, or of a later version."""
    if len(content) < _PREAMBLE.size + _FIELDS.size:
        return None
    version, checksum = _PREAMBLE.unpack_from(content)
    body = content[_PREAMBLE.size :]
    if version not in (_VERSION, _EARLIER_VERSION) or crc32c(body) != checksum:
        return None
    fields = _FIELDS.unpack_from(body)
    topic_id, partition, producers_start = ZERO_TOPIC_ID, -1, _FIELDS.size
    if version == _VERSION:
        topic_id, partition = _IDENTITY.unpack_from(body, _FIELDS.size)
        producers_start += _IDENTITY.size
    base_offset, offset, position, last_position, last_crc, leader_epoch, max_timestamp_ms, offset_of_max = fields[:8]
    return RecoveryMark(
        topic_id,
        partition,
        base_offset,
        offset,
        position,
        last_position,
        last_crc,
        leader_epoch,
        max_timestamp_ms,
        offset_of_max,
        FileRecord(*fields[8:10]),
        FileRecord(*fields[10:12]),
        FileRecord(*fields[12:14]),
        body[producers_start:],
    )


# Finding one


def read_mark(files: PartitionFiles) -> RecoveryMark | str | None:
    """Read the mark of a partition; why there is none that counts, as text; None if there is no file.

    Raises StorageError only if the disk could not read other files either.
    """
    try:
        content = read_small(files.disk, files.path(RECOVERY_MARK_FILE))
    except CorruptCheckpointError as error:
        return str(error)
    if content is None:
        return None
    mark = decode_mark(bytes(content))
    if mark is None:
        return "it is not what was written into it, or a later version of the broker has written it"
    partition = files.directory.rpartition("-")[2]
    topic_id = files.read_topic_id() if mark.topic_id != ZERO_TOPIC_ID else ZERO_TOPIC_ID
    if ZERO_TOPIC_ID not in (topic_id, mark.topic_id) and (topic_id, partition) != (mark.topic_id, str(mark.partition)):
        return f"it is of another log, of partition {mark.partition} of the topic with id {mark.topic_id.hex()}"
    return mark


def find_mark(files: PartitionFiles, epochs: LeaderEpochs, segment_of: Mapping[int, Segment]) -> FoundMark | None:
    """Read the mark of a partition, and the place that it names; None without a mark.

    segment_of: the segments by their base offsets. Raises StorageError.
    """
    mark = read_mark(files)
    path = files.path(RECOVERY_MARK_FILE)
    if mark is None or isinstance(mark, str):
        if mark is not None:
            log.warning("recovery_mark_not_used", path=path, reason=mark)
        return None
    segment = segment_of.get(mark.base_offset)
    if segment is None or not _is_of_the_log(mark, segment):
        log.info("recovery_mark_not_used", path=path, reason="the log file does not have the batch before it")
        return FoundMark(mark, None, False)
    try:
        found = _read_place(files, epochs, segment, mark)
    except StorageError as error:
        if error.errno in OF_ALL_FILES:
            raise
        found = str(error)
    if isinstance(found, str):
        log.info("recovery_mark_not_used", path=path, reason=found)
        return FoundMark(mark, None, True)
    return FoundMark(mark, found, True)


def _is_of_the_log(mark: RecoveryMark, segment: Segment) -> bool:
    last = valid_batch_at(segment.batches.log, mark.last_batch_position)
    return (
        last is not None
        and last.header.crc == mark.last_batch_crc
        and last.header.last_offset + 1 == mark.offset
        and mark.last_batch_position + last.header.size_bytes == mark.position
        and segment.batches.first_timestamp_ms is not None
    )


def _read_place(files: PartitionFiles, epochs: LeaderEpochs, segment: Segment, mark: RecoveryMark) -> MarkedPlace | str:
    """Return the place, or why it cannot be used."""
    if epochs.epoch_at(mark.offset - 1) != mark.leader_epoch:
        return "the leader epochs do not have that of the batch before it"
    producers = decode_snapshot(mark.producers, mark.offset)
    if isinstance(producers, CorruptSnapshot):
        return f"the producers' state: {producers.reason}"
    parts = {}
    for suffix, record in (
        (".index", mark.offset_index),
        (".timeindex", mark.time_index),
        (".txnindex", mark.transaction_index),
    ):
        part = bytes(files.disk.read_file(segment.files.path(suffix)) or b"")[: record.size_bytes]
        if FileRecord(len(part), crc32c(part) if part else 0) != record:
            return f"the {suffix} file does not begin as it did"
        parts[suffix] = part
    offsets_count = mark.offset - mark.base_offset
    try:
        return MarkedPlace(
            mark,
            producers,
            OffsetIndex.from_bytes(parts[".index"], mark.position, offsets_count),
            TimeIndex.from_bytes(parts[".timeindex"], offsets_count),
            TransactionIndex.from_bytes(parts[".txnindex"], base_offset=mark.base_offset, end_offset=mark.offset),
        )
    except CorruptIndexError as error:
        return str(error)


# Writing them


class RecoveryMarks:
    """The marks of one log: the range of the last one; the next one, which waits until its offset is on the disk."""

    __slots__ = ("_captured_ms", "_digests", "_have_failed", "_last", "_waiting")

    def __init__(self) -> None:
        self._captured_ms: int | None = None
        self._last = (0, 0, 0)  # base offset, offset and position of the last mark
        self._waiting: RecoveryMark | None = None
        self._digests = _Digests(0)
        self._have_failed = False

    def are_due(self, active: Segment, now_ms: int) -> bool:
        """Whether `write` has something to do. active: the log's active segment."""
        return not self._have_failed and (self._waiting is not None or self._is_due(active, now_ms))

    def write(self, marked: MarkedLog, now_ms: int) -> None:
        """Write a mark if enough was appended and synced since the last one. Raises StorageError."""
        active = marked.segments.active
        if self._waiting is None and self._is_due(active, now_ms) and self._can_be_marked(marked):
            self._captured_ms = now_ms
            self._waiting = self._capture(marked, active)
        waiting = self._waiting
        if waiting is None:
            return
        if waiting.base_offset != active.base_offset:
            self._waiting = None  # recovery does not read the sealed segment again
        elif marked.durability.recovery_point >= waiting.offset:
            self._waiting = None
            self._last = (waiting.base_offset, waiting.offset, waiting.position)
            self._write(marked.files, waiting)

    def _write(self, files: PartitionFiles, mark: RecoveryMark) -> None:
        """Without its mark a log is served all the same: one that cannot be written is the last. Raises NoRoomError."""
        try:
            files.write_recovery_mark(encode_mark(mark))
        except NoRoomError:
            raise
        except StorageError as error:
            self._have_failed = True
            log.warning(
                "recovery_mark_not_written",
                path=files.path(RECOVERY_MARK_FILE),
                reason=str(error),
                remedy=f"{remedy(error)}; until the next start a crash costs the reading of the whole segment",
            )

    def _is_due(self, active: Segment, now_ms: int) -> bool:
        base_offset, offset, position = self._last
        if base_offset != active.base_offset:
            offset, position = active.base_offset, 0
        if active.next_offset - offset < FEWEST_MARKED_RECORDS and active.size_bytes - position < FEWEST_MARKED_BYTES:
            return False
        # A clock that was set back delays no mark.
        return self._captured_ms is None or not 0 <= now_ms - self._captured_ms < MARK_INTERVAL_MS

    @staticmethod
    def _can_be_marked(marked: MarkedLog) -> bool:
        """Whether the log was appended to since it was opened, few producers write it, and its files are the log."""
        active = marked.segments.active
        return (
            active.batches.last_batch_offset < active.next_offset
            and marked.producer_work.has_few_producers
            and marked.durability.taken is None
        )

    def _capture(self, marked: MarkedLog, active: Segment) -> RecoveryMark | None:
        last_position = active.batches.last_batch_position
        last = valid_batch_at(active.batches.log, last_position)
        if last is None or last.header.last_offset + 1 != active.next_offset:
            return None
        for file in active.write_indexes():
            file.close()
        if self._digests.base_offset != active.base_offset:
            self._digests = _Digests(active.base_offset)
        try:
            offset_index, time_index, transaction_index = self._digests.follow(active)
        except CorruptIndexError:
            return None  # it is rebuilt before its first use
        return RecoveryMark(
            marked.topic_id,
            marked.topic_partition.partition,
            active.base_offset,
            active.next_offset,
            active.size_bytes,
            last_position,
            last.header.crc,
            active.batches.known_epochs.epoch_at(active.next_offset - 1),
            active.indexes.max_timestamp_ms,
            active.indexes.known_offset_of_max,
            offset_index,
            time_index,
            transaction_index,
            encode_snapshot(marked.producers.snapshot()),
        )


class _Index(Protocol):
    """The common methods of the three indexes."""

    def __len__(self) -> int: ...

    def bytes_from(self, slot: int, /) -> bytes: ...


class _Digests:
    """Sizes and CRC-32Cs of a segment's index files, which grow: each entry is encoded once."""

    __slots__ = ("_counts", "_records", "base_offset")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._counts = [0, 0, 0]
        self._records = [FileRecord(0, 0), FileRecord(0, 0), FileRecord(0, 0)]

    def follow(self, segment: Segment) -> list[FileRecord]:
        """Take the entries that came since the last call into account. Raises StorageError, CorruptIndexError."""
        indexes = segment.indexes
        growing: tuple[_Index, ...] = indexes.offset_index, indexes.time_index, segment.transactions.index
        for slot, index in enumerate(growing):
            added = index.bytes_from(self._counts[slot])
            self._counts[slot] = len(index)
            if added:
                size_bytes, checksum = self._records[slot]
                self._records[slot] = FileRecord(size_bytes + len(added), crc32c(added, checksum))
        return list(self._records)
