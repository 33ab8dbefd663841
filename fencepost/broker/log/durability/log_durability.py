"""Durability of one log: files and directories to sync, segments to delete afterwards, and waiters for an offset.

`LogDurability` knows nothing of the log's offsets but those it is given. The functions below it give the log's files to
the flusher, and let the log's offsets follow; they are methods of `PartitionLog`, which they get with each call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from typing import NamedTuple, Protocol

from fencepost.broker.log.durability.flusher import FilesToSync, Flusher, Syncable
from fencepost.broker.log.durability.shared_log import AppendedBytes
from fencepost.broker.log.durability.waiters import ALREADY_DURABLE, DurabilityWaiters, Watchers
from fencepost.broker.log.files.partition_files import PartitionFiles
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.segment.log_segments import LogSegments
from fencepost.broker.log.segment.segment import Segment
from fencepost.broker.log.segment.segment_files import forget_segments
from fencepost.broker.storage.disk import LogFile, StorageError


class LogEnd(NamedTuple):
    """The end of a log: the base offset of its active segment, the size of that, and the offset of the next record."""

    segment_base: int
    position: int
    offset: int


class LogDurability:
    """The durable part of one log, and the files that the next sync has to write.

    recovery_point: the offset up to which the log is known to be on the disk, even if the config asks for no sync.
    sync_target:    the offset that the sync reaches which began last.
    flush_offset:   the log's end when a flush was last requested that no reply waits for.
    flushed_ms:     time of the last check for a flush by time.
    taken:          with a shared log, the end of the bytes it has; else None.
    """

    __slots__ = (
        "_deleted_count",
        "_discarded_segments",
        "_files",
        "_is_closing",
        "_is_flush_due",
        "_side_files",
        "_unsynced_directories",
        "_unsynced_segments",
        "_waiters",
        "flush_offset",
        "flushed_ms",
        "recovery_point",
        "sync_target",
        "taken",
    )

    def __init__(self, files: PartitionFiles, *, end_offset: int, recovery_point: int, now_ms: int) -> None:
        self.recovery_point = recovery_point
        self.sync_target = end_offset
        self.flush_offset = end_offset
        self.flushed_ms = now_ms
        self.taken: LogEnd | None = None
        self._files = files
        self._is_closing = False
        self._is_flush_due = False
        self._waiters = DurabilityWaiters()
        self._unsynced_segments: list[Segment] = []
        self._unsynced_directories: list[str] = []
        self._side_files: list[tuple[Segment | None, LogFile]] = []
        self._discarded_segments: list[Segment] = []
        self._deleted_count = 0  # of segments that were discarded before those

    # Waiters

    @property
    def is_shared(self) -> bool:
        """Whether a cluster's engine, which may not answer, makes the log durable; else a sync does, which ends."""
        return self.taken is not None

    def wait_for(self, end_offset: int) -> Awaitable[None]:
        """Return an awaitable that ends when a sync has reached the offset. It raises StorageError after `fail`."""
        return self._waiters.wait_for(end_offset)

    def resolve_waiters(self, offset: int) -> None:
        """Wake all waiters for this offset or a lower one."""
        self._waiters.resolve_up_to(offset)

    def fail_waiters(self, reason: str) -> None:
        """Raise a StorageError in all waiters."""
        self._waiters.fail(reason)

    # Content of the next sync

    def require_flush(self, end_offset: int) -> None:
        """Have the next sync take the active segment, though no reply waits for it."""
        self.flush_offset = end_offset
        self._is_flush_due = True

    def begin_closing(self) -> None:
        """Have every sync take the active segment from now on."""
        self._is_closing = True

    def add_sealed(self, segment: Segment) -> None:
        """Have the next sync take a segment that has just been sealed."""
        self._unsynced_segments.append(segment)

    def add_files(
        self, side_files: Sequence[LogFile], directories: Sequence[str] = (), segment: Segment | None = None
    ) -> None:
        """Have the next sync take files beside the log, which are closed afterwards, and directory entries.

        segment: owner of the files; they are left out if it is no longer part of the log.
        """
        self._side_files.extend((segment, file) for file in side_files)
        self._unsynced_directories.extend(directories)

    @property
    def has_side_files(self) -> bool:
        """Whether files beside the log wait for the next sync."""
        return bool(self._side_files)

    # A sync

    def begin_sync(self, segments: LogSegments, end_offset: int, *, is_durable: bool) -> FilesToSync:
        """Return the files and directories of the sync that begins now.

        is_durable: whether the config asks for more than the page cache; otherwise the active segment may be left out.
        """
        # Retention and the cleaner may have removed a segment, with its files, before they were synced.
        present = set(segments) if self._side_files or self._unsynced_segments else set()
        files = [segment.batches.log for segment in self._unsynced_segments if segment in present]
        files += [file for segment, file in self._side_files if segment is None or segment in present]
        side_files = [file for _, file in self._side_files]
        self._unsynced_segments = []
        self._side_files = []
        directories, self._unsynced_directories = self._unsynced_directories, []
        if is_durable or self._is_closing or self._is_flush_due:
            self._is_flush_due = False
            files.append(segments.active.batches.log)
            self.sync_target = end_offset
        else:
            self.sync_target = segments.active.base_offset
        discarded_count = self._deleted_count + len(self._discarded_segments)
        return FilesToSync(files, directories, self.sync_target, side_files, discarded_count)

    def finish_sync(self, work: FilesToSync) -> None:
        """Raise the recovery point after a sync that succeeded; delete the discarded segments that waited for it.

        Raises StorageError; the recovery point is as before then.
        """
        while self._deleted_count < work.discarded_count:
            self._deleted_count += 1
            self._discarded_segments.pop(0).delete()
        self.recovery_point = max(self.recovery_point, work.target)

    # A shared log

    def begin_sharing(self, segments: LogSegments) -> None:
        """Give the shared log the appends from now on: it has the earlier ones already."""
        self.taken = LogEnd(segments.active.base_offset, segments.active.size_bytes, segments.active.next_offset)

    def take_appended(self, segments: LogSegments) -> Iterator[tuple[Segment, int, int]]:
        """Take the bytes that the shared log lacks; yields segments, with the position and the offset of the
        first byte."""
        taken = self.taken
        assert taken is not None, "the log is shared since it was opened"
        for segment in segments.from_offset(taken.segment_base):
            if segment.next_offset <= max(taken.offset, segment.base_offset):
                continue  # all of it was given, and it may have been compacted since; or it is empty
            if segment.base_offset == taken.segment_base:
                yield segment, taken.position, taken.offset
            else:
                yield segment, 0, segment.base_offset
        self.begin_sharing(segments)

    # Segments that are not part of the log any more

    def discard(self, segments: Sequence[Segment]) -> bool:
        """Have the files of removed segments deleted after the next sync; False if they are deleted already.

        The files are deleted only when the list of checksums, on the disk, no longer names them: a start takes a
        segment that the list names and that is not there for lost. Raises StorageError.
        """
        try:
            self.add_files([forget_segments(self._files.checksums, [one.base_offset for one in segments])])
        except StorageError:
            # A full disk, perhaps, and deleting makes room: without a list no segment is known.
            self._files.checksums.drop()
            for segment in segments:
                segment.delete()
            return False
        self._discarded_segments.extend(segments)
        return True

    def first_file_offset(self, segments: LogSegments) -> int:
        """The base offset of the first segment whose files are still there, the discarded ones included."""
        first = self._discarded_segments[0] if self._discarded_segments else segments.first
        return first.base_offset

    # Closing

    def close_discarded(self) -> None:
        """Close the discarded segments, and leave their files."""
        for segment in self._discarded_segments:
            segment.close()

    def drop_side_files(self) -> None:
        """Close the files that wait for the next sync: there is none for a deleted log."""
        for _, file in self._side_files:
            file.close()
        self._side_files = []


class OpenTransactions(Protocol):
    """The producers of a log, as its syncs see them."""

    def last_stable_offset(self, high_watermark: int, log_start_offset: int) -> int: ...


class SyncedLog(Syncable, Protocol):
    """The log, as its syncs see it."""

    topic_id: bytes
    config: LogConfig
    leader_epoch: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    offline_reason: str | None
    is_deleted: bool
    segments: LogSegments
    files: PartitionFiles
    durability: LogDurability
    flusher: Flusher
    watchers: Watchers

    def require_online(self) -> None:
        """Raises StorageError if the log is offline."""
        ...

    @property
    def producers(self) -> OpenTransactions: ...


def flushed(log: SyncedLog, offset: int | None = None) -> Awaitable[None]:
    """Return when the log is durable up to `offset` (exclusive), by default all that has been appended.

    At once when it is already, or if the page cache is enough. Raises StorageError.
    """
    end_offset = log.log_end_offset if offset is None else offset
    if log.high_watermark >= end_offset:
        return ALREADY_DURABLE
    if log.offline_reason is not None:
        log.require_online()
    if not log.config.is_durable:
        return ALREADY_DURABLE
    if end_offset > log.durability.sync_target:  # otherwise the sync that runs covers it
        log.flusher.request(log)
    return log.durability.wait_for(end_offset)


def flush_soon(log: SyncedLog) -> None:
    """Request a sync of the appended records, though no reply waits for it."""
    log.durability.require_flush(log.log_end_offset)
    log.flusher.request(log)


def flush_by_time(log: SyncedLog, now_ms: int) -> None:
    """Flush the log if its flush interval has elapsed."""
    durability = log.durability
    if log.offline_reason is not None or log.is_deleted or now_ms - durability.flushed_ms < log.config.flush_ms:
        return
    durability.flushed_ms = now_ms
    if durability.recovery_point < log.log_end_offset:
        flush_soon(log)


def begin_sync(log: SyncedLog) -> FilesToSync:
    """Return to the flusher the files that are not on the disk yet."""
    if log.is_deleted:
        return FilesToSync((), ())
    return log.durability.begin_sync(log.segments, log.log_end_offset, is_durable=log.config.is_durable)


def take_appended(log: SyncedLog) -> list[AppendedBytes]:
    """Return to the flusher the bytes that the shared log does not have yet."""
    if log.is_deleted or log.offline_reason is not None:
        return []
    return [
        AppendedBytes(
            log.topic_partition,
            log.topic_id,
            log.leader_epoch,
            segment.base_offset,
            position,
            segment.size_bytes - position,
            base_offset,
            segment.next_offset,
            segment.batches.log,
        )
        for segment, position, base_offset in log.durability.take_appended(log.segments)
    ]


def end_sync(log: SyncedLog, work: FilesToSync, error: StorageError | None) -> None:
    """Note that the files of a `begin_sync` are on the disk, or never will be.

    After a failed sync the system may have dropped the bytes, and a second sync would not report it: the log goes
    offline.
    """
    for file in work.side_files:
        file.close()
    if log.offline_reason is not None or log.is_deleted:
        return
    if error is not None:
        log.give_up(error)
        return
    try:
        log.durability.finish_sync(work)
    except StorageError as failed:
        log.give_up(failed)
        return
    target = work.target
    if target > log.high_watermark:
        log.high_watermark = target
        log.last_stable_offset = log.producers.last_stable_offset(target, log.log_start_offset)
        log.durability.resolve_waiters(target)
        log.watchers.notify()


def sync_files_soon(log: SyncedLog, side_files: Sequence[LogFile], segment: Segment) -> None:
    """Request a sync of files of one segment, which are closed afterwards; no reply waits for it."""
    log.durability.add_files(side_files, [log.files.directory], segment)
    log.flusher.request(log)


def discard(log: SyncedLog, segments: Sequence[Segment]) -> None:
    """Delete the files of segments that are not part of the log any more, after the next sync. Raises
    StorageError."""
    if log.durability.discard(segments):
        log.flusher.request(log)
