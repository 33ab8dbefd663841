"""What time brings to a log: old segments are rolled and deleted, silent producers forgotten, index entries written.

Source: Kafka's UnifiedLog.deleteOldSegments, LogManager.cleanupLogs and ProducerStateManager.removeExpiredProducers.
"""

from __future__ import annotations

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.log import retention
from fencepost.broker.log.durable_log import FEW_PRODUCERS_COUNT, SLICE_S, DurableLog
from fencepost.broker.log.log_config import MAX_INT64
from fencepost.broker.log.sliced_work import run_in_slices, run_to_end
from fencepost.broker.storage.disk import NoRoomError, StorageError
from fencepost.protocol.errors import ErrorCode

log = get_logger(__name__)

PRODUCER_SWEEP_INTERVAL_MS = 600_000
TO_HIGH_WATERMARK = -1


class SweptLog(DurableLog):
    """A log that is looked after."""

    _producers_swept_ms = 0

    # Housekeeping

    def move_log_start(self, before_offset: int) -> ErrorCode:
        """Let nothing below `before_offset` be read any more; TO_HIGH_WATERMARK (-1) for all that is durable.

        Watchers of the log are called. The next sweep deletes the files; the new start is durable when the log
        directory has written its checkpoint.
        OFFSET_OUT_OF_RANGE above the high watermark. Raises StorageError.
        """
        self._require_online()
        if before_offset == TO_HIGH_WATERMARK:
            before_offset = self.high_watermark
        if not 0 <= before_offset <= self.high_watermark:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if before_offset > self.log_start_offset:
            self._begin_at(before_offset)
            self._watchers.notify()  # who waits below it waits in vain
        return ErrorCode.NONE

    def sweep(self, now_ms: int, retention_interval_ms: int = 0) -> None:
        """What time alone brings: roll old segments, delete expired ones, forget silent producers, write what may wait.

        retention_interval_ms: for so long after it was opened, or looked at last, nothing is rolled or deleted.
        A failing disk takes the log offline, a full one does not; nothing is raised.
        """
        if self.is_offline or self.is_deleted:
            return
        try:
            # After a clock that was set back, the log is looked at rather than left alone until it has caught up.
            if not 0 <= now_ms - self._retention_checked_ms < retention_interval_ms:
                self._retention_checked_ms = now_ms
                try:
                    self._roll_by_time(now_ms)
                except NoRoomError as error:
                    self.refuse_for_room(error, now_ms)  # what has expired makes room
                self._delete_expired(now_ms)
            if now_ms - self._producers_swept_ms >= PRODUCER_SWEEP_INTERVAL_MS:
                self._producers_swept_ms = now_ms
                self._expire_producers(now_ms)
            for segment in self.segments.sealed:
                segment.forget_indexes()
                segment.record_start()
            if self.recovery_point > self.segments.active.base_offset:
                self.segments.active.record_start()
            if self.segments.active.has_unwritten_entries:
                for file in self.segments.active.write_indexes():
                    file.close()
            self.files.write_epochs(self._epochs)
        except NoRoomError as error:
            self.refuse_for_room(error, now_ms)  # the next sweep tries it again
        except StorageError as error:
            self.give_up(error)

    @property
    def is_flushed_by_time(self) -> bool:
        """Whether the page cache is enough for an acknowledgement, but records are to be on disk in a given time."""
        config = self.config
        return config.flush_ms < MAX_INT64 and not config.is_durable

    def flush_by_time(self, now_ms: int) -> None:
        """Flush what has waited for its time, where that is given."""
        if self.is_offline or self.is_deleted or now_ms - self._flushed_ms < self.config.flush_ms:
            return
        self._flushed_ms = now_ms
        if self.recovery_point < self.log_end_offset:
            self.flush_soon()

    def _expire_producers(self, now_ms: int) -> None:
        steps = self._producers.expiring_steps(now_ms, self.config.producer_id_expiration_ms)
        if len(self._producers) <= FEW_PRODUCERS_COUNT:
            run_to_end(steps)
        else:
            self._start_producer_work(run_in_slices(steps, SLICE_S))

    def _roll_by_time(self, now_ms: int) -> None:
        """Kafka rolls by time only when something is appended; then the last records of a quiet topic stay for ever.

        Where the first records have no time (-1), only the time since the segment was begun counts, as in Kafka.
        """
        active = self.segments.active
        first_timestamp_ms = active.first_timestamp_ms
        if first_timestamp_ms is None:
            return
        # The age counts from when the segment was begun too, or every sweep would roll segments of backdated records.
        age_ms = now_ms - max(first_timestamp_ms, self._segment_opened_ms)
        if age_ms > retention.roll_age_ms(self.topic_partition, self.config):
            self.roll(now_ms)

    def _delete_expired(self, now_ms: int) -> None:
        count = retention.expired_count(
            self.segments,
            self.config,
            log_start_offset=self.log_start_offset,
            stable_offset=self.high_watermark,
            now_ms=now_ms,
        )
        if not count:
            return
        if count == len(self.segments):
            try:
                self.roll(now_ms)
            except NoRoomError:
                count -= 1  # the others make room
                if not count:
                    raise
        if self.has_unwritten_snapshot:
            self._retention_checked_ms = 0  # the next sweep looks again
            return
        deleted = [self.segments.remove_first() for _ in range(count)]
        self.discard(deleted)
        self._begin_at(max(self.log_start_offset, self.segments.first.base_offset))
        self.files.keep_snapshots([segment.base_offset for segment in self.segments])
        log.info(
            "segments_deleted",
            topic=self.topic_partition.topic,
            partition=self.topic_partition.partition,
            segments=count,
            size_bytes=sum(segment.size_bytes for segment in deleted),
            log_start_offset=self.log_start_offset,
        )

    def _begin_at(self, offset: int) -> None:
        self.log_start_offset = offset
        self._epochs.truncate_from_start(offset)
        before = self.last_stable_offset
        self._update_stable()
        if self.last_stable_offset != before:
            self._watchers.notify()
