"""Checkpoints of a log directory: the recovery points and the log starts of its logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.sliced_work import SlicedWork
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.deferred_logs import DeferredLogs
from fencepost.broker.log.directory.directory_files import RECOVERY_POINT_FILE, RESERVE_FILE
from fencepost.broker.log.directory.last_leader_state import LastLeaderState
from fencepost.broker.log.files.offset_checkpoint import LOG_START_FILE, OffsetCheckpoint
from fencepost.broker.log.files.room_reserve import RoomReserve
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.storage.disk import Disk, StorageError

log = get_logger(__name__)

COLLECTED_PER_STEP = 1_000
"""Logs per step when a checkpoint is collected."""


class DirectoryCheckpoints:
    """The two checkpoints of a directory, and a reserve of disk space for the log starts.

    logs:     the open logs.
    unopened: the others, which keep their old lines.
    """

    def __init__(
        self, path: str, disk: Disk, logs: Mapping[TopicPartition, PartitionLog], unopened: DeferredLogs
    ) -> None:
        self._path = path
        self._logs = logs
        self.unopened = unopened
        self.recovery_points = OffsetCheckpoint(disk, f"{path}/{RECOVERY_POINT_FILE}")
        self.reserve = RoomReserve(disk, f"{path}/{RESERVE_FILE}")
        self.log_starts = OffsetCheckpoint(disk, f"{path}/{LOG_START_FILE}", reserve=self.reserve)

    def read(self, last_state: Mapping[TopicPartition, LastLeaderState]) -> bool:
        """Read the files; return False if one cannot be read. Raises StorageError.

        last_state: state in which other nodes left logs, which the files may not have yet.
        """
        is_read = self.recovery_points.read()
        is_read = self.log_starts.read() and is_read
        for name, (recovery_point, log_start_offset, _) in last_state.items():
            for checkpoint, offset in (
                (self.recovery_points, recovery_point),
                (self.log_starts, log_start_offset),
            ):
                if offset > checkpoint.offsets.get(name, 0):
                    checkpoint.offsets[name] = offset
        return is_read

    def log_start(self, topic_partition: TopicPartition) -> int:
        return self.log_starts.offsets.get(topic_partition, 0)

    def recovery_point(self, topic_partition: TopicPartition) -> int:
        """The recovery point of a partition, never below its log start."""
        return max(self.recovery_points.offsets.get(topic_partition, 0), self.log_start(topic_partition))

    async def remove_leftovers(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """See `LogDirectory.remove_leftovers`. Raises StorageError."""
        for checkpoint, write in (
            (self.recovery_points, self.write_recovery_points),
            (self.log_starts, self.write_log_starts),
        ):
            async with checkpoint.changing:  # a write that is going on counts, too
                is_named = any(name in checkpoint.offsets for name in topic_partitions)
            if is_named:
                await write(durable=True)

    async def write_now_and_then(self) -> None:
        """Write the recovery points, which may be lost: they save time at the next start only."""
        try:
            await self.write_recovery_points(durable=False)
            self.reserve.take()
        except StorageError as error:
            log.error("checkpoint_failed", path=self._path, reason=str(error))  # noqa: TRY400  # the reason says it all

    async def write_recovery_points(self, *, durable: bool) -> None:
        """Raises StorageError."""
        await self.recovery_points.write(self._collect_recovery_points, durable=durable, only_changes=not durable)

    async def write_log_starts(self, *, durable: bool) -> None:
        """Write the log starts now, or deleted records would come back. Raises StorageError."""
        await self.log_starts.write(self.collect_log_starts, durable=durable)

    def _collect_recovery_points(self) -> SlicedWork[dict[TopicPartition, int]]:
        return (yield from self._collect(self.recovery_points, _recovery_point))

    def collect_log_starts(self) -> SlicedWork[dict[TopicPartition, int]]:
        """Collect the log starts above the first offset of the files."""
        return (yield from self._collect(self.log_starts, _log_start_beyond_files))

    def _collect(
        self, checkpoint: OffsetCheckpoint, offset_of: Callable[[PartitionLog], int | None]
    ) -> SlicedWork[dict[TopicPartition, int]]:
        """Collect a checkpoint's content. A log that is not served yet keeps its old line."""
        known = checkpoint.offsets
        kept = {name: known.get(name) for name in self.unopened}
        offsets = {name: offset for name, offset in kept.items() if offset is not None}
        logs = list(self._logs.items())
        for start in range(0, len(logs), COLLECTED_PER_STEP):
            for name, partition_log in logs[start : start + COLLECTED_PER_STEP]:
                if name not in kept and not partition_log.is_deleted:
                    offset = offset_of(partition_log)
                    if offset is not None:
                        offsets[name] = offset
            yield
        return offsets


def _log_start_beyond_files(partition_log: PartitionLog) -> int | None:
    offset = partition_log.log_start_offset
    return offset if offset > partition_log.durability.first_file_offset(partition_log.segments) else None


def _recovery_point(partition_log: PartitionLog) -> int:
    return partition_log.durability.recovery_point
