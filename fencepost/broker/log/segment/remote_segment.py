"""Remote segments: their files are in a store that all nodes share, and are fetched when a reader needs them.

A remote segment is part of the log as any other: its offsets, size and age count. A reader of its batches gets
SegmentNotLocalError for the part that it needs, has that fetched, and reads again: first the indexes, then blocks of
the log file, which come and go. Work on all batches has the segment fetched as a whole: a local segment then takes its
place. Its transaction index is local, if it has one: reads of committed records search the indexes of later segments,
too.
Source: KIP-405.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, Protocol

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.files.partition_files import PartitionFiles
from fencepost.broker.log.segment.batch_scan import SCAN_CHUNK_BYTES
from fencepost.broker.log.segment.block_file import BlockFile, NotLocal
from fencepost.broker.log.segment.block_layout import BlockLayout, decode_block_layout
from fencepost.broker.log.segment.header_plausibility import HeaderFault
from fencepost.broker.log.segment.offset_index import CorruptIndexError, OffsetIndex
from fencepost.broker.log.segment.segment import Segment
from fencepost.broker.log.segment.segment_batches import SegmentBatches, SegmentRead
from fencepost.broker.log.segment.segment_files import SegmentFiles
from fencepost.broker.log.segment.segment_indexes import NO_TIMESTAMP, SegmentIndexes
from fencepost.broker.log.segment.segment_reads import SegmentReads
from fencepost.broker.log.segment.time_index import TimeIndex
from fencepost.broker.storage.disk import LogFile, StorageError
from fencepost.broker.storage.file_slice import FileSlice
from fencepost.protocol.errors import NO_ERROR, ErrorCode

if TYPE_CHECKING:
    from uuid import UUID


class RemoteSegmentMetadata(NamedTuple):
    """The metadata of a segment in the shared store, which never changes.

    end_offset:       start of the next segment.
    size_bytes:       size of its log file.
    max_timestamp_ms: the greatest of its records; if none has a timestamp, the time of its last write.
    has_aborted:      whether it has a transaction index.
    leader_epoch:     epoch of its last records.
    object_id:        id by which the store names its files.
    checksums:        checksums of its files, back to back; None of a segment stored by an earlier version.
    stable_end:       offset, at most end_offset, below which the records up to end_offset decide all transactions; None
                      of a segment stored by an earlier version.
    block_checksums:  checksums of its log file, encoded as in `block_layout`; None of a segment stored by an earlier
                      version.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int
    has_aborted: bool
    leader_epoch: int
    object_id: UUID
    checksums: bytes | None = None
    stable_end: int | None = None
    block_checksums: bytes | None = None

    @property
    def blocks(self) -> BlockLayout | None:
        """The blocks of its log file; None if it can only be fetched as a whole."""
        return decode_block_layout(self.size_bytes, self.block_checksums)


INDEXES: Final = -1
"""The part of a remote segment that is needed first; the others are the numbers of its blocks."""
MARGIN_BYTES: Final = SCAN_CHUNK_BYTES
"""Before a block that is missing: a check of headers reads this much further than it has to."""


class RemoteSegments(Protocol):
    """The store of remote segments, as one of them uses it."""

    def fetch(self, topic_partition: TopicPartition, sealed: RemoteSegmentMetadata) -> Awaitable[None]:
        """Fetch the files of a segment of an open log, and replace its `RemoteSegment` in the log by a local one.

        The fetch begins at once, also if nothing awaits it; several calls share one. The awaitable raises
        StorageError if that failed, or if the log was closed since. Raises StorageError itself if a fetch has just
        failed: then it is not retried at once.
        """
        ...

    def fetch_part(self, topic_partition: TopicPartition, segment: RemoteSegment, part: int) -> Awaitable[None]:
        """Fetch the indexes or a block of a segment of an open log, and notify the watchers of the log. Otherwise as
        `fetch`, which is done instead if the part cannot be had alone."""
        ...

    def note_read(self, topic_partition: TopicPartition, segment: RemoteSegment, position: int, end: int) -> None:
        """Note that a reader has been given a range of the log file."""
        ...


class RemoteLogStore(RemoteSegments, Protocol):
    """The store of remote segments, as logs use it."""

    async def store_log_starts(self, log_starts: dict[TopicPartition, int]) -> None:
        """Store the starts of logs, so that a later leader has them. Raises StorageError."""
        ...


class SegmentNotLocalError(Exception):
    """The batches of a segment are needed, which are not on this node. part: the missing one; None: all of them."""

    def __init__(self, segment: RemoteSegment, part: int | None) -> None:
        super().__init__(f"{segment.files.path('.log')} is not on this node")
        self._segment = segment
        self.part = part

    def fetch(self) -> Awaitable[None]:
        """Begin to fetch the segment; it is local when the awaitable ends. Both raise StorageError:
        see `RemoteSegments.fetch`."""
        return self._segment.fetch()

    def fetch_part(self) -> Awaitable[None]:
        """Begin to fetch the missing part, which may be evicted again. Raises StorageError as `fetch` does."""
        return self._segment.fetch_part(self.part)

    def begin_fetch(self) -> ErrorCode:
        """Begin to fetch the missing part, for a reader that does not wait. KAFKA_STORAGE_ERROR if that has just
        failed."""
        try:
            self.fetch_part()
        except StorageError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return NO_ERROR


class RemoteSegment(Segment):
    """A segment of which only the metadata, `sealed`, is local, and perhaps indexes and blocks, `log_blocks`."""

    __slots__ = ("_remote_indexes", "_store", "_topic_partition", "log_blocks", "sealed")

    def __init__(
        self,
        files: PartitionFiles,
        topic_partition: TopicPartition,
        sealed: RemoteSegmentMetadata,
        store: RemoteSegments,
        index_interval_bytes: int,
    ) -> None:
        self.sealed = sealed
        self._store = store
        self._topic_partition = topic_partition
        path = f"{files.directory}/{sealed.base_offset:020d}.log"
        self.log_blocks = BlockFile(
            path, sealed.size_bytes, sealed.max_timestamp_ms, sealed.blocks, self._raise_not_local
        )
        super().__init__(
            files.disk,
            files.directory,
            sealed.base_offset,
            next_offset=sealed.end_offset,
            index_interval_bytes=index_interval_bytes,
            has_transaction_index=sealed.has_aborted,
            may_skip=True,
            checksums=files.checksums,
            log_file=self.log_blocks,
        )
        self.files = _RemoteFiles(files.disk, files.directory, sealed.base_offset, files.checksums)
        self.batches.begin(sealed.max_timestamp_ms)  # the first batch's is in the file
        self.indexes = self._remote_indexes = _RemoteIndexes(
            self.batches, index_interval_bytes, sealed.max_timestamp_ms, self._raise_not_local
        )
        self._reads = SegmentReads(self.batches, self.indexes)

    # Parts

    @property
    def comes_whole(self) -> bool:
        """Whether no part of it can be fetched alone."""
        layout = self.log_blocks.layout
        return layout is None or layout.blocks_count <= 1 or self._remote_indexes.are_damaged

    def has(self, part: int) -> bool:
        """Whether a part is local."""
        return self._remote_indexes.are_local if part == INDEXES else part in self.log_blocks.blocks

    def add_indexes(self) -> None:
        """Use the files of the indexes, which have been fetched. Raises SegmentNotLocalError, StorageError."""
        self._remote_indexes.use_files()

    def drop_indexes(self) -> None:
        """Remove the indexes. Raises StorageError."""
        self._remote_indexes.leave_files()
        for suffix in (".index", ".timeindex"):
            self.files.delete(suffix)

    def drop_block(self, block: int) -> None:
        """Remove a block. Raises StorageError."""
        file = self.log_blocks.blocks.pop(block).file
        file.close()
        self.files.disk.delete(file.path)

    def fetch(self) -> Awaitable[None]:
        """See `RemoteSegments.fetch`."""
        return self._store.fetch(self._topic_partition, self.sealed)

    def fetch_part(self, part: int | None) -> Awaitable[None]:
        """See `RemoteSegments.fetch_part`; None for the whole."""
        return self.fetch() if part is None else self._store.fetch_part(self._topic_partition, self, part)

    # Reads

    def read(
        self, offset: int, max_bytes: int, bound_offset: int, *, minimum_one_batch: bool, is_lazy: bool = False
    ) -> SegmentRead | None:
        """As `Segment.read`, of the blocks that are here. Raises SegmentNotLocalError for the next one that is not."""
        if offset >= self.next_offset:
            return None
        blocks, layout = self.log_blocks, self.log_blocks.layout
        position = self.indexes.offset_index.position_before(offset - self.base_offset)
        local_end = blocks.local_end(position)
        room_bytes = max_bytes
        if layout is not None and local_end < self.size_bytes:
            margin_bytes = min(MARGIN_BYTES + self.indexes.interval_bytes, layout.block_bytes // 4)
            room_bytes = min(max_bytes, local_end - position - margin_bytes)
            if room_bytes < max_bytes and room_bytes <= 0:
                self._raise_not_local(layout.at(local_end))
        found = super().read(offset, room_bytes, bound_offset, minimum_one_batch=minimum_one_batch, is_lazy=is_lazy)
        if found is None:
            return None
        length_bytes = len(found.records) if found.slice is None else len(found.slice)
        if length_bytes:
            start = found.end_position - length_bytes
            self._store.note_read(self._topic_partition, self, start, found.end_position)
            if found.slice is not None:
                return found._replace(slice=FileSlice(blocks.held(start, length_bytes), start, length_bytes))
        elif layout is not None and room_bytes < max_bytes:
            self._raise_not_local(layout.at(local_end))
        return found

    def _rebuild_misleading_indexes(self, fault: HeaderFault) -> bool:
        """Have the whole fetched: the fault is found and reported there, or the indexes are rebuilt."""
        self._raise_not_local(None)

    def _raise_not_local(self, part: int | None) -> NoReturn:
        raise SegmentNotLocalError(self, None if self.comes_whole else part)


class _RemoteFiles(SegmentFiles):
    """The names of the files of a remote segment."""

    __slots__ = ()

    def record_start(self, log_file: LogFile) -> None:
        """Nothing is recorded of a file that is not local."""


class _RemoteIndexes(SegmentIndexes):
    """The indexes of a remote segment, whose files may be local. The greatest timestamp is known without them.

    are_damaged: the files that were fetched are no indexes, and only the log file can replace them.
    """

    __slots__ = ("_not_local", "are_damaged", "are_local")

    def __init__(
        self, batches: SegmentBatches, interval_bytes: int, max_timestamp_ms: int, not_local: NotLocal
    ) -> None:
        super().__init__(batches, interval_bytes)
        self.are_local = False
        self.are_damaged = False
        self._not_local = not_local
        self.known_max_timestamp_ms = max_timestamp_ms

    def use_files(self) -> None:
        """Load the files, which have been fetched. Raises SegmentNotLocalError, StorageError."""
        self.are_local = True
        times = self.time_index
        # The metadata have the time of the last write if no record has a timestamp.
        self.known_max_timestamp_ms = NO_TIMESTAMP
        if len(times):
            self.known_max_timestamp_ms = times.timestamps_ms[-1]
            self.known_offset_of_max = self._batches.base_offset + times.last_offsets[-1]

    def leave_files(self) -> None:
        """Use the files no more."""
        self.are_local = False
        self._offset_index = None
        self._time_index = None

    def _load(self) -> None:
        if not self.are_local:
            self._not_local(INDEXES)
        files, batches = self._files, self._batches
        try:
            offsets, times = files.read_small(".index"), files.read_small(".timeindex")
            if offsets is None or times is None:
                raise CorruptIndexError("the file is missing")
            offsets_count = batches.bound_offset - batches.base_offset
            time_index = TimeIndex.from_bytes(times, offsets_count)
            self._offset_index = OffsetIndex.from_bytes(offsets, batches.log.size_bytes, offsets_count)
            self._time_index = time_index
        except CorruptIndexError:
            self.are_damaged = True
            self.leave_files()
            self._not_local(None)


def open_fetched(files: PartitionFiles, sealed: RemoteSegmentMetadata, index_interval_bytes: int) -> Segment:
    """Open a segment whose files have been fetched into the log's directory. Raises StorageError.

    Compaction may have left gaps in it, and its file counts as written when its records were.
    """
    segment = Segment(
        files.disk,
        files.directory,
        sealed.base_offset,
        next_offset=sealed.end_offset,
        index_interval_bytes=index_interval_bytes,
        has_transaction_index=sealed.has_aborted,
        may_skip=True,
        checksums=files.checksums,
    )
    segment.batches.log.set_last_write_ms(max(sealed.max_timestamp_ms, 0))
    return segment
