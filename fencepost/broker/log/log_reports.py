"""Events that a log reports about itself: offline, without room on the disk, damaged, a batch refused."""

from __future__ import annotations

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.durability.shared_log import LedElsewhereError
from fencepost.broker.log.files.remedies import remedy_partition_went_offline, remedy_unreadable_records
from fencepost.broker.log.segment.batch_scan import DamagedLogError
from fencepost.broker.storage.disk import NoRoomError, StorageError, remedy
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import BatchHeader

log = get_logger(__name__)

NO_ROOM_LOGGED_EVERY_MS = 60_000


class LogReports:
    """The reports of one log: damage is logged once, a full disk at most once a minute."""

    __slots__ = ("_damages", "_directory", "_no_room_logged_ms", "_topic_partition")

    def __init__(self, topic_partition: TopicPartition, directory: str) -> None:
        self._topic_partition = topic_partition
        self._directory = directory
        self._damages: tuple[str, ...] = ()  # the reasons that have been logged
        self._no_room_logged_ms = -NO_ROOM_LOGGED_EVERY_MS

    def offline(self, error: StorageError, *, high_watermark: int, log_end_offset: int) -> None:
        """Report that the log has gone offline."""
        if isinstance(error, LedElsewhereError):
            log.info(
                "partition_given_up",
                topic=self._topic_partition.topic,
                partition=self._topic_partition.partition,
                reason=str(error),
            )
            return
        log.error(
            "partition_went_offline",
            topic=self._topic_partition.topic,
            partition=self._topic_partition.partition,
            path=error.filename or self._directory,
            reason=str(error),
            remedy=f"{remedy(error)}, then restart the broker; until then it is neither read nor written. "
            f"{remedy_partition_went_offline(self._directory)}",
            high_watermark=high_watermark,
            log_end_offset=log_end_offset,
        )

    def no_room(self, error: NoRoomError, now_ms: int) -> None:
        """Report that the disk has no room for more."""
        if 0 <= now_ms - self._no_room_logged_ms < NO_ROOM_LOGGED_EVERY_MS:
            return
        self._no_room_logged_ms = now_ms
        log.error(
            "partition_without_room",
            topic=self._topic_partition.topic,
            partition=self._topic_partition.partition,
            path=error.filename or self._directory,
            reason=str(error),
            remedy=f"{remedy(error)}; until then it is read, and what is to be written is refused",
        )

    def refused(self, header: BatchHeader, error: ErrorCode) -> None:
        """Report a batch that is not the next one of its producer."""
        log.info(
            "batch_refused",
            topic=self._topic_partition.topic,
            partition=self._topic_partition.partition,
            error=error.name,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
        )

    def damage(self, error: DamagedLogError) -> None:
        """Report records that cannot be read."""
        reason = str(error)
        if reason in self._damages:
            return
        self._damages += (reason,)
        log.error(
            "log_damaged",
            topic=self._topic_partition.topic,
            partition=self._topic_partition.partition,
            path=self._directory,
            reason=f"{reason}. Records from there on cannot be read. {remedy_unreadable_records(self._directory)}",
        )
