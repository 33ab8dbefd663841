"""Syncs of one log: what it gives to the flusher, and what follows when that is durable.

The functions are methods of `PartitionLog`, which they get with each call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from fencepost.broker.log.durability.flusher import FilesToSync, Flusher, Syncable
from fencepost.broker.log.durability.log_durability import LogDurability
from fencepost.broker.log.durability.shared_log import AppendedBytes
from fencepost.broker.log.durability.waiters import ALREADY_DURABLE, Watchers
from fencepost.broker.log.files.partition_files import PartitionFiles
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.segment.log_segments import LogSegments
from fencepost.broker.log.segment.segment import Segment
from fencepost.broker.storage.disk import LogFile, StorageError


class SyncedLog(Syncable, Protocol):
    """The log, as its syncs see it."""

    topic_id: bytes
    config: LogConfig
    leader_epoch: int
    log_end_offset: int
    high_watermark: int
    is_deleted: bool
    segments: LogSegments
    files: PartitionFiles
    durability: LogDurability
    flusher: Flusher
    watchers: Watchers

    @property
    def is_offline(self) -> bool: ...

    def require_online(self) -> None:
        """Raises StorageError if the log is offline."""
        ...

    def update_stable(self) -> None:
        """Let the last stable offset follow the high watermark and the open transactions."""
        ...


def flushed(log: SyncedLog, offset: int | None = None) -> Awaitable[None]:
    """Return when the log is durable up to `offset` (exclusive), by default all that has been appended.

    At once when it is already, or where the page cache is enough. Raises StorageError.
    """
    end_offset = log.log_end_offset if offset is None else offset
    if log.high_watermark >= end_offset:
        return ALREADY_DURABLE
    log.require_online()
    if not log.config.is_durable:
        return ALREADY_DURABLE
    if end_offset > log.durability.sync_target:  # otherwise the sync that runs covers it
        log.flusher.request(log)
    return log.durability.wait_for(end_offset)


def flush_soon(log: SyncedLog) -> None:
    """Request a sync of what has been appended, though no reply waits for it."""
    log.durability.require_flush(log.log_end_offset)
    log.flusher.request(log)


def flush_by_time(log: SyncedLog, now_ms: int) -> None:
    """Flush what has waited for its time, where that is given."""
    durability = log.durability
    if log.is_offline or log.is_deleted or now_ms - durability.flushed_ms < log.config.flush_ms:
        return
    durability.flushed_ms = now_ms
    if durability.recovery_point < log.log_end_offset:
        flush_soon(log)


def begin_sync(log: SyncedLog) -> FilesToSync:
    """Return to the flusher what is not on the disk yet."""
    if log.is_deleted:
        return FilesToSync((), ())
    return log.durability.begin_sync(log.segments, log.log_end_offset, is_durable=log.config.is_durable)


def take_appended(log: SyncedLog) -> list[AppendedBytes]:
    """Return to the flusher what the shared log has not been given yet."""
    if log.is_deleted or log.is_offline:
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
    """Take note that what a `begin_sync` returned is on the disk, or never will be.

    After a failed sync the system may have dropped the bytes, and a second sync would not report it: the log goes
    offline.
    """
    for file in work.side_files:
        file.close()
    if log.is_offline or log.is_deleted:
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
        log.update_stable()
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
