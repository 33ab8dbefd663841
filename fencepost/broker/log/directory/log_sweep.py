"""Sweep of a log directory: retention, rolling, expiry and flushes by time of all logs, recovery marks, and deletions.

Source: Kafka's LogManager, cleanupLogs, flushDirtyLogs and deleteLogs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.portions import Portions
from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.storage.disk import Disk, StorageError

log = get_logger(__name__)

SWEEP = Place("sweep of a log", Policy.RETRY)
HOUSEKEEPING = Place("housekeeping of the log directory", Policy.RETRY)

SWEPT_LOGS_PER_TURN = 100
MARKED_LOGS_PER_TURN = 8
"""Recovery marks that are written in one turn of the event loop; one takes up to half a millisecond."""
FLUSHED_LOGS_PER_TURN = 1_000
FEWEST_SWEPT_LOGS = 1_000  # by one sweep, if there are that many


class LogSweep:
    """The sweep of `logs`, in portions, between which the event loop runs other things.

    deletions: renamed directories of deleted logs, whose files are still to be deleted.
    """

    def __init__(self, disk: Disk, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        self._disk = disk
        self._logs = logs
        self._unswept: Portions[PartitionLog] = Portions(SWEPT_LOGS_PER_TURN, concerns="sweep of the logs")
        self._unmarked: Portions[PartitionLog] = Portions(MARKED_LOGS_PER_TURN, concerns="recovery marks")
        self._unflushed: Portions[PartitionLog] = Portions(FLUSHED_LOGS_PER_TURN, concerns="flushes by time")
        self.deletions: Portions[str] = Portions(1, concerns="deletion of logs")

    def run(self, now_ms: int, *, sweeps_per_round: int, retention_interval_ms: int) -> None:
        """See `LogDirectory.sweep`."""
        if not self._unswept.items:
            self._unswept.replace(self._logs.values())
        most = max(FEWEST_SWEPT_LOGS, -(-len(self._logs) // sweeps_per_round))
        self._unswept.run(partial(self._sweep, now_ms, retention_interval_ms), most)
        self.deletions.run(self._delete)
        self._unflushed.replace(self._logs.values())
        self._unflushed.run(partial(self._flush, now_ms))

    def stop_writing(self) -> None:
        """Leave marks and flushes that are due to the close of the logs."""
        self._unflushed.items.clear()
        self._unmarked.items.clear()

    def stop(self) -> None:
        """Leave the logs that are not swept yet as they are."""
        self._unswept.items.clear()

    def _sweep(self, now_ms: int, retention_interval_ms: int, logs: Iterator[PartitionLog]) -> None:
        for partition_log in logs:
            SWEEP.attempt(partition_log.sweep, now_ms, retention_interval_ms, concerns=partition_log.topic_partition)
            if partition_log.is_mark_due(now_ms):
                self._unmarked.items.append(partition_log)
        self._unmarked.run(partial(self._mark, now_ms))

    def _mark(self, now_ms: int, logs: Iterator[PartitionLog]) -> None:
        for partition_log in logs:
            SWEEP.attempt(partition_log.mark, now_ms, concerns=partition_log.topic_partition)

    def _flush(self, now_ms: int, logs: Iterator[PartitionLog]) -> None:
        for partition_log in logs:
            if partition_log.is_flushed_by_time:
                SWEEP.attempt(partition_log.flush_by_time, now_ms, concerns=partition_log.topic_partition)

    def _delete(self, directories: Iterator[str]) -> None:
        for directory in directories:
            try:
                self._disk.delete(directory)
            except StorageError as error:
                log.error("deletion_failed", path=directory, reason=str(error))  # noqa: TRY400  # says all
            except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
                HOUSEKEEPING.failed(error, concerns=directory)
