"""Remote segments: their files are in a store that all nodes share, and are fetched when a reader needs them.

A remote segment is part of the log as any other: its offsets, size and age count. A reader of its batches gets
SegmentNotLocalError instead, fetches the segment, and reads again. Its transaction index is local, if it has one: reads
of committed records search the indexes of later segments, too.
Source: KIP-405.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Protocol

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.files.partition_files import PartitionFiles
from fencepost.broker.log.segment.batch_scan import ScannedBatch
from fencepost.broker.log.segment.block_layout import BlockLayout, decode_block_layout
from fencepost.broker.log.segment.offset_index import OffsetIndex
from fencepost.broker.log.segment.segment import Segment
from fencepost.broker.log.segment.segment_batches import SegmentBatches, SegmentRead
from fencepost.broker.log.segment.segment_files import SegmentFiles
from fencepost.broker.log.segment.segment_indexes import SegmentIndexes
from fencepost.broker.log.segment.time_index import TimeIndex
from fencepost.broker.storage.disk import LogFile, StorageError
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
    block_checksums:  of its log file, encoded as in `block_layout`; None of a segment stored by an earlier version.
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


class RemoteSegments(Protocol):
    """The store of remote segments, as one of them uses it."""

    def fetch(self, topic_partition: TopicPartition, sealed: RemoteSegmentMetadata) -> Awaitable[None]:
        """Fetch the files of a segment of an open log, and replace its `RemoteSegment` in the log by a local one.

        The fetch begins at once, also if nothing awaits it; several calls share one. The awaitable raises
        StorageError if that failed, or if the log was closed since. Raises StorageError itself if a fetch has just
        failed: then it is not retried at once.
        """
        ...


class RemoteLogStore(RemoteSegments, Protocol):
    """The store of remote segments, as logs use it."""

    async def store_log_starts(self, log_starts: dict[TopicPartition, int]) -> None:
        """Store the starts of logs, so that a later leader has them. Raises StorageError."""
        ...


class SegmentNotLocalError(Exception):
    """The batches of a segment are needed, which is not on this node."""

    def __init__(self, segment: RemoteSegment) -> None:
        super().__init__(f"{segment.files.path('.log')} is not on this node")
        self._segment = segment

    def fetch(self) -> Awaitable[None]:
        """Begin to fetch the segment; it is local when the awaitable ends. Both raise StorageError:
        see `RemoteSegments.fetch`."""
        return self._segment.fetch()

    def begin_fetch(self) -> ErrorCode:
        """Begin to fetch the segment, for a reader that does not wait. KAFKA_STORAGE_ERROR if that has just failed."""
        try:
            self._segment.fetch()
        except StorageError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return NO_ERROR


class RemoteSegment(Segment):
    """A segment of which only the metadata, `sealed`, is local."""

    __slots__ = ("_store", "_topic_partition", "sealed")

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
        super().__init__(
            files.disk,
            files.directory,
            sealed.base_offset,
            next_offset=sealed.end_offset,
            index_interval_bytes=index_interval_bytes,
            has_transaction_index=sealed.has_aborted,
            may_skip=True,
            checksums=files.checksums,
            log_file=_RemoteFile(path, sealed, self._raise_not_local),
        )
        self.files = _RemoteFiles(files.disk, files.directory, sealed.base_offset, files.checksums)
        self.batches.begin(sealed.max_timestamp_ms)  # the first batch's is in the file
        self.indexes = _RemoteIndexes(
            self.batches, index_interval_bytes, sealed.max_timestamp_ms, self._raise_not_local
        )

    def fetch(self) -> Awaitable[None]:
        """See `RemoteSegments.fetch`."""
        return self._store.fetch(self._topic_partition, self.sealed)

    def read(
        self, offset: int, max_bytes: int, bound_offset: int, *, minimum_one_batch: bool, is_lazy: bool = False
    ) -> SegmentRead | None:
        return None if offset >= self.next_offset else self._raise_not_local()

    def scan_from(self, offset: int) -> Iterator[ScannedBatch]:
        self._raise_not_local()

    def _raise_not_local(self) -> NoReturn:
        raise SegmentNotLocalError(self)


class _Raise(Protocol):
    def __call__(self) -> NoReturn: ...


class _RemoteFile:
    """The log file of a remote segment: its size is known, its bytes are not local."""

    __slots__ = ("_last_write_ms", "_raise_not_local", "path", "size_bytes")

    def __init__(self, path: str, sealed: RemoteSegmentMetadata, raise_not_local: _Raise) -> None:
        self.path = path
        self.size_bytes = sealed.size_bytes
        self._last_write_ms = sealed.max_timestamp_ms
        self._raise_not_local = raise_not_local

    def append(self, *buffers: bytes | bytearray | memoryview) -> None:
        self._raise_not_local()

    def read(self, position: int, length_bytes: int) -> memoryview:
        self._raise_not_local()

    def read_to_send(self, position: int, length_bytes: int) -> memoryview:
        self._raise_not_local()

    def send(self, descriptor: int, position: int, length_bytes: int) -> int:
        self._raise_not_local()

    def truncate(self, size_bytes: int) -> None:
        self._raise_not_local()

    def last_write_ms(self) -> int:
        return self._last_write_ms

    def set_last_write_ms(self, time_ms: int) -> None:
        pass

    def release_room(self) -> None:
        pass

    def close(self) -> None:
        pass


class _RemoteFiles(SegmentFiles):
    """The names of the files of a remote segment."""

    __slots__ = ()

    def record_start(self, log_file: LogFile) -> None:
        """Nothing is recorded of a file that is not local."""


class _RemoteIndexes(SegmentIndexes):
    """The indexes of a remote segment, of which the greatest timestamp is known."""

    __slots__ = ("_raise_not_local",)

    def __init__(
        self, batches: SegmentBatches, interval_bytes: int, max_timestamp_ms: int, raise_not_local: _Raise
    ) -> None:
        super().__init__(batches, interval_bytes)
        self._raise_not_local = raise_not_local
        self.known_max_timestamp_ms = max_timestamp_ms

    @property
    def offset_index(self) -> OffsetIndex:
        self._raise_not_local()

    @property
    def time_index(self) -> TimeIndex:
        self._raise_not_local()


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
