"""Sweep of one log: old segments are rolled and deleted, silent producers expire, index entries are written.

Source: Kafka's UnifiedLog.deleteOldSegments, LogManager.cleanupLogs and ProducerStateManager.removeExpiredProducers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.durability.log_durability import LogDurability
from fencepost.broker.log.files.partition_files import PartitionFiles
from fencepost.broker.log.log_config import LogConfig, roll_age_ms
from fencepost.broker.log.log_reports import LogReports
from fencepost.broker.log.producers.producer_work import ProducerWork
from fencepost.broker.log.retention import retention
from fencepost.broker.log.segment.log_segments import LogSegments
from fencepost.broker.log.segment.segment import Segment
from fencepost.broker.storage.disk import NoRoomError, StorageError

log = get_logger(__name__)

PRODUCER_SWEEP_INTERVAL_MS = 600_000


class SweptLog(Protocol):
    """The log, as its retention sees it."""

    topic_partition: TopicPartition
    config: LogConfig
    segments: LogSegments
    files: PartitionFiles
    durability: LogDurability
    producer_work: ProducerWork
    reports: LogReports
    log_start_offset: int
    last_stable_offset: int
    segment_opened_ms: int
    deletable_end: int | None
    is_deleted: bool

    @property
    def is_offline(self) -> bool: ...

    def roll(self, now_ms: int) -> Segment:
        """Seal the active segment and start a new one. Raises StorageError."""
        ...

    def discard(self, segments: Sequence[Segment]) -> None:
        """Delete the files of segments that are not part of the log any more. Raises StorageError."""
        ...

    def raise_log_start(self, offset: int) -> None:
        """Let the log begin at an offset."""
        ...

    def write_epochs(self) -> None:
        """Write the leader epochs into their file if they have changed. Raises StorageError."""
        ...

    def give_up(self, error: StorageError) -> None:
        """Take the log offline."""
        ...


class LogRetention:
    """The retention of one log, and when it was last applied.

    The log calls it with itself, so that the two form no cycle: a deleted log is freed at once.
    """

    __slots__ = ("_checked_ms", "_producers_swept_ms")

    def __init__(self, now_ms: int) -> None:
        self._checked_ms = now_ms
        self._producers_swept_ms = 0

    def sweep(self, swept: SweptLog, now_ms: int, interval_ms: int) -> None:
        """Roll by time, delete expired segments, expire producers, write deferred files.

        interval_ms: nothing is rolled or deleted for this long after the log was opened, or checked last.
        A failing disk takes the log offline, a full one does not; nothing is raised.
        """
        if swept.is_offline or swept.is_deleted:
            return
        try:
            # After a clock that was set back, the log is checked rather than left alone until it has caught up.
            if not 0 <= now_ms - self._checked_ms < interval_ms:
                self._checked_ms = now_ms
                try:
                    self._roll_by_time(swept, now_ms)
                except NoRoomError as error:
                    swept.reports.no_room(error, now_ms)  # expired segments make room
                self._delete_expired(swept, now_ms)
            if now_ms - self._producers_swept_ms >= PRODUCER_SWEEP_INTERVAL_MS:
                self._producers_swept_ms = now_ms
                swept.producer_work.expire(now_ms, swept.config.producer_id_expiration_ms, swept)
            for segment in swept.segments.sealed:
                segment.indexes.forget_unused()
                segment.files.record_start(segment.batches.log)
            active = swept.segments.active
            if swept.durability.recovery_point > active.base_offset:
                active.files.record_start(active.batches.log)
            if active.indexes.has_unwritten_entries:
                for file in active.write_indexes():
                    file.close()
            swept.write_epochs()
        except NoRoomError as error:
            swept.reports.no_room(error, now_ms)  # the next sweep tries it again
        except StorageError as error:
            swept.give_up(error)

    def _roll_by_time(self, swept: SweptLog, now_ms: int) -> None:
        """Kafka rolls by time only when something is appended; then the last records of a quiet topic stay for ever.

        Where the first records have no time (-1), only the time since the segment was begun counts, as in Kafka.
        """
        first_timestamp_ms = swept.segments.active.batches.first_timestamp_ms
        if first_timestamp_ms is None:
            return
        # The age counts from when the segment was begun too, or every sweep would roll segments of backdated records.
        age_ms = now_ms - max(first_timestamp_ms, swept.segment_opened_ms)
        if age_ms > roll_age_ms(swept.topic_partition, swept.config):
            swept.roll(now_ms)

    def _delete_expired(self, swept: SweptLog, now_ms: int) -> None:
        segments = swept.segments
        count = retention.expired_count(
            segments,
            swept.config,
            log_start_offset=swept.log_start_offset,
            stable_offset=swept.last_stable_offset,
            now_ms=now_ms,
        )
        if not count:
            return
        if count == len(segments):
            try:
                swept.roll(now_ms)
            except NoRoomError:
                count -= 1  # the others make room
                if not count:
                    raise
        if swept.deletable_end is not None:
            count = retention.deletable_count(segments, count, swept.deletable_end)
        if swept.producer_work.has_unwritten_snapshot:
            self._checked_ms = 0  # the next sweep checks again
            return
        if not count:
            return
        deleted = [segments.remove_first() for _ in range(count)]
        swept.discard(deleted)
        swept.raise_log_start(max(swept.log_start_offset, segments.first.base_offset))
        swept.files.keep_snapshots([segment.base_offset for segment in segments])
        log.info(
            "segments_deleted",
            topic=swept.topic_partition.topic,
            partition=swept.topic_partition.partition,
            segments=count,
            size_bytes=sum(segment.size_bytes for segment in deleted),
            log_start_offset=swept.log_start_offset,
        )
