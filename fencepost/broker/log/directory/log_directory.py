"""Directory of all logs of this broker: it opens, creates, deletes, sweeps and closes them.

Besides the partitions' directories it holds Kafka's files: `.lock` while a broker runs, `.kafka_cleanshutdown` after a
clean stop, and two checkpoints. Deleting a checkpoint costs time at the next start and, for DeleteRecords, shows hidden
records again.
Source: Kafka's LogManager.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.compaction.cleaner import Cleaner
from fencepost.broker.log.directory.deferred_logs import DeferredLogs
from fencepost.broker.log.directory.directory_checkpoints import DirectoryCheckpoints
from fencepost.broker.log.directory.directory_files import (
    CLEAN_SHUTDOWN_CONTENT,
    CLEAN_SHUTDOWN_FILE,
    CLEANER_FILE,
    LOCK_FILE,
    deleted_directory,
    is_deleted_directory,
    partition_directories,
)
from fencepost.broker.log.directory.last_leader_state import ArrivingLog, LastLeaderState
from fencepost.broker.log.directory.log_closing import close_to_move, flush_last, sync_all
from fencepost.broker.log.directory.log_opening import LOADS_PER_TURN, OWN_LEADER_EPOCH, LogOpening
from fencepost.broker.log.directory.log_sweep import HOUSEKEEPING, LogSweep
from fencepost.broker.log.durability.flusher import Flusher
from fencepost.broker.log.durability.shared_log import SharedLog
from fencepost.broker.log.files.durable_file import replace_durably
from fencepost.broker.log.files.leader_epochs import LeaderEpochs
from fencepost.broker.log.files.partition_files import PartitionFiles
from fencepost.broker.log.files.remedies import remedy_offline_partition
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.producers.producer_state import ProducerState
from fencepost.broker.log.segment.log_segments import LogSegments
from fencepost.broker.log.segment.remote_segment import RemoteLogStore
from fencepost.broker.log.segment.segment import Segment, new_segment
from fencepost.broker.log.segment.unreadable_log import is_unreadable
from fencepost.broker.storage.disk import OF_ALL_FILES, Disk, LogFile, StorageError, Volume
from fencepost.protocol.errors import ErrorCode

log = get_logger(__name__)

CHECKPOINT = Place("checkpoint of recovery points", Policy.RETRY)

CHECKPOINT_INTERVAL_MS = 60_000
SIZED_PER_STEP = 1_000
"""Logs per step whose sizes are added up."""
MOVED_PER_TURN = 100
"""Logs per step whose start DeleteRecords moves."""
LED_ELSEWHERE = "is led by another node now"
NO_LAST_STATES: Mapping[TopicPartition, LastLeaderState] = MappingProxyType({})


def _topic_ids_agree(_: TopicPartition) -> int:
    return OWN_LEADER_EPOCH


class LogDirectory:
    """The logs under `path`. Use begins with `open` and ends with `close`.

    cleaner_backoff_ms: pause of the cleaner between searches for compacted logs that are due; None switches it
        off. May change at any time.
    files_move: whether a partition's directory is moved into that of the node that leads it. Then no other node has
        written the files found here at the start; otherwise one may have.
    shared_log: engine that commits the appends to all logs, in place of syncs of the disk.
    remote_store: store of the segments below those in the directories, and of the starts of all logs.
    has_owner:  whether a producer id belongs to a transactional id; None if this node does not know.
    """

    has_owner: Callable[[int], bool] | None = None

    def __init__(
        self,
        path: str,
        *,
        disk: Disk,
        clock: Clock,
        flusher: Flusher | None = None,
        cleaner_backoff_ms: int | None = 0,
        files_move: bool = False,
        shared_log: SharedLog | None = None,
        remote_store: RemoteLogStore | None = None,
    ) -> None:
        self._path = path
        self._remote_store = remote_store
        self._disk = disk
        self._clock = clock
        self._flusher = flusher or Flusher(disk, shared_log)
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self.checkpoints = DirectoryCheckpoints(path, disk, self._logs, DeferredLogs())
        self._sweep = LogSweep(disk, self._logs)
        self._opening = LogOpening(
            path,
            disk=disk,
            clock=clock,
            flusher=self._flusher,
            checkpoints=self.checkpoints,
            opened=self._add,
            files_move=files_move,
            remote_store=remote_store,
        )
        self._cleaner = Cleaner(self._join(CLEANER_FILE), disk=disk, clock=clock)
        self.cleaner_backoff_ms = cleaner_backoff_ms
        self._cleaner_started_ms = 0
        self._checkpointed_ms = 0
        self._checkpointing: asyncio.Task[None] | None = None
        self._is_locked = False
        self._is_open = False

    @property
    def path(self) -> str:
        return self._path

    @property
    def flusher(self) -> Flusher:
        return self._flusher

    @property
    def is_scratch(self) -> bool:
        """Whether the logs are kept elsewhere, and their files serve reads only."""
        return self._flusher.shared_log is not None

    def volume(self) -> Volume:
        """Return the file system of the directory. Raises StorageError."""
        return self._disk.volume(self._path)

    @property
    def unopened(self) -> DeferredLogs:
        """The logs that `open` deferred, for `open_next` and `open_now`."""
        return self._opening.unopened

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """Return the log of a partition, if it is open."""
        return self._logs.get(topic_partition)

    def logs(self) -> Iterable[PartitionLog]:
        return self._logs.values()

    async def sizes_bytes(self, is_wanted: Callable[[TopicPartition], bool]) -> dict[TopicPartition, int]:
        """Return the sizes of logs; of a log that is not open, that of its files. Leaves out those that cannot be
        read."""
        sizes = {}
        for count, name in enumerate([name for name in self.unopened if is_wanted(name)]):
            if count % LOADS_PER_TURN == 0:
                await asyncio.sleep(0)
            if name in self.unopened:
                with contextlib.suppress(StorageError):
                    sizes[name] = PartitionFiles(self._disk, self._join(str(name))).segments_bytes()
        for count, (name, partition_log) in enumerate(list(self._logs.items()), 1):
            if count % SIZED_PER_STEP == 0:
                await asyncio.sleep(0)
            if is_wanted(name) and not partition_log.is_deleted and not is_unreadable(partition_log.segments.first):
                sizes[name] = partition_log.size_bytes
        return sizes

    # Open

    async def open(
        self,
        config_for_topic: Callable[[str], LogConfig],
        leader_epoch_of: Callable[[TopicPartition], int | None] = _topic_ids_agree,
        *,
        patience_s: float | None = None,
        last_state: Mapping[TopicPartition, LastLeaderState] = NO_LAST_STATES,
    ) -> None:
        """Lock the directory and open the logs in it; after an unclean stop, recover them.

        leader_epoch_of: the leader epoch of a partition from now on, unless its log has a higher one; None for a
            partition that another node leads, whose directory is left alone.
        patience_s:      time after which the rest is left `unopened`; internal topics never are. None: open all.
        last_state:      state in which other nodes left logs, which this node's checkpoints may not have yet.
        A partition that cannot be recovered is added offline. Raises StorageError when the directory itself cannot be
        used, also because another process has it.
        """
        self._disk.make_directory(self._path)
        if not self._disk.lock(self._join(LOCK_FILE)):
            raise StorageError(
                f"{self._path} is in use by another broker: it holds a lock on {self._join(LOCK_FILE)}. "
                "Stop that one, or give this one a directory of its own"
            )
        self._is_locked = True
        is_clean = self._disk.exists(self._join(CLEAN_SHUTDOWN_FILE))
        # A crash from here on must count as one, even after a clean stop: the mark must be gone from the disk, too.
        self._disk.delete(self._join(CLEAN_SHUTDOWN_FILE))
        await self._disk.sync((), (self._path,))
        is_clean = self.checkpoints.read(last_state) and is_clean
        self._cleaner.load()
        found = self._partition_directories()
        if found and not is_clean:
            log.warning("unclean_stop_found", path=self._path, partitions=len(found))
        await self._opening.begin(found, config_for_topic, leader_epoch_of, was_clean=is_clean, patience_s=patience_s)
        self.checkpoints.reserve.take()
        self._checkpointed_ms = self._clock.now_ms()
        self._is_open = True
        if found:
            self.report_opened()

    def report_opened(self) -> None:
        """Log how many logs are open, and how many are not yet."""
        offline_count = sum(1 for partition_log in self._logs.values() if partition_log.is_offline)
        counts = {"partitions": len(self._logs), "offline": offline_count}
        if self.unopened:
            counts["unopened"] = len(self.unopened)
        log.info("logs_opened", path=self._path, **counts, clean=self._opening.was_clean)

    async def open_next(self) -> list[TopicPartition]:
        """See `LogOpening.open_next`."""
        return await self._opening.open_next()

    def open_now(self, topic_partition: TopicPartition) -> bool:
        """See `LogOpening.open_now`. Raises StorageError."""
        return self._opening.open_now(topic_partition)

    def _partition_directories(self) -> list[TopicPartition]:
        names = self._disk.list(self._path)
        self._sweep.deletions.items.extend(self._join(name) for name in names if is_deleted_directory(name))
        return partition_directories(names)

    def _has_owner(self, producer_id: int) -> bool:
        return self.has_owner is not None and self.has_owner(producer_id)

    def _add(self, partition_log: PartitionLog) -> None:
        if self._flusher.shared_log is not None:
            partition_log.durability.begin_sharing(partition_log.segments)
        if self._remote_store is not None:
            partition_log.deletable_end = 0  # until it is known which segments the store has
        partition_log.producers.has_owner = self._has_owner
        self._logs[partition_log.topic_partition] = partition_log

    # Create and delete

    async def remove_leftovers(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """Remove partitions from the checkpoints before new ones take their names.

        After a crash the old lines would be applied to the new logs. Raises StorageError.
        """
        await self.checkpoints.remove_leftovers(topic_partitions)
        await self._cleaner.remove_leftovers(topic_partitions)

    def create(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        config: LogConfig,
        *,
        leader_epoch: int = OWN_LEADER_EPOCH,
    ) -> PartitionLog:
        """Create a new, empty log. Raises StorageError, also when the directory exists.

        Where the checkpoints mention records, their directory has been lost: the log is then offline.
        """
        directory = self._join(str(topic_partition))
        if topic_partition in self._logs or self._disk.exists(directory):
            raise StorageError(f"{directory} exists already")
        recovery_point = self.checkpoints.recovery_point(topic_partition)
        offline_reason = None
        if recovery_point:
            offline_reason = f"{directory} was missing, with all records up to offset {recovery_point}"
            log.error(
                "partition_lost",
                topic=topic_partition.topic,
                partition=topic_partition.partition,
                path=directory,
                recovery_point=recovery_point,
                reason=f"its directory is not there. {remedy_offline_partition(directory)}",
            )
        try:
            files, first_segment, metadata_file = self._make_directory(directory, topic_id, config)
        except StorageError:
            with contextlib.suppress(StorageError):
                self._disk.delete(directory)  # or it would block the next attempt
            raise
        partition_log = PartitionLog(
            topic_partition,
            topic_id,
            config,
            files=files,
            flusher=self._flusher,
            segments=LogSegments([first_segment]),
            producers=ProducerState(),
            epochs=LeaderEpochs(),
            leader_epoch=leader_epoch,
            log_start_offset=self.checkpoints.log_start(topic_partition),
            recovery_point=recovery_point,
            now_ms=self._clock.now_ms(),
            offline_reason=offline_reason,
        )
        # Synced together with the first records; until then there is nothing to lose.
        partition_log.durability.add_files([metadata_file], [directory, self._path])
        self._add(partition_log)
        return partition_log

    def _make_directory(
        self, directory: str, topic_id: bytes, config: LogConfig
    ) -> tuple[PartitionFiles, Segment, LogFile]:
        self._disk.make_directory(directory)
        files = PartitionFiles(self._disk, directory)
        metadata_file = files.write_topic_id(topic_id)
        files.checksums.add({}).close()  # records whose directory it is
        return files, new_segment(files, 0, config.index_interval_bytes), metadata_file

    def open_arrived(self, partition_log: PartitionLog, topic_id: bytes) -> None:
        """Record the topic id of an arrived log whose own record could not be read.

        If it cannot be written, the log is offline. Raises StorageError if others could not be written either.
        """
        partition_log.topic_id = topic_id
        if partition_log.is_offline:
            return  # its directory is left unchanged
        try:
            partition_log.durability.add_files([partition_log.files.write_topic_id(topic_id)])
        except StorageError as error:
            if error.errno in OF_ALL_FILES:
                raise
            partition_log.give_up(error)
            return
        log.warning("partition_metadata_rewritten", path=partition_log.files.directory, topic_id=topic_id.hex())

    def delete(self, topic_partition: TopicPartition) -> None:
        """Delete a log: it is gone now, its files with one of the next sweeps. Raises StorageError."""
        partition_log = self._logs.pop(topic_partition, None)
        if partition_log is None:
            return
        self.unopened.discard(topic_partition)
        self._cleaner.forget(topic_partition)
        partition_log.mark_deleted()
        self._doom(topic_partition, partition_log.topic_id)

    def _doom(self, topic_partition: TopicPartition, topic_id: bytes) -> None:
        doomed = self._join(deleted_directory(topic_partition, topic_id))
        self._disk.delete(doomed)
        self._disk.rename(self._join(str(topic_partition)), doomed)
        self._sweep.deletions.items.append(doomed)

    async def delete_records(self, before_offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, ErrorCode]:
        """Move the starts of many logs, so that nothing below is read any more; durable when this returns.

        Per partition: see `PartitionLog.move_log_start`; UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR. Raises
        StorageError if no start could be recorded.
        """
        errors = {}
        # Those that have the names now: a topic that is created again meanwhile keeps its records.
        logs = {name: self._logs.get(name) for name in before_offsets}
        for count, (name, before_offset) in enumerate(before_offsets.items(), 1):
            if count % MOVED_PER_TURN == 0:
                await asyncio.sleep(0)
            partition_log = logs[name]
            if partition_log is None or partition_log.is_deleted:
                errors[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif partition_log.is_offline:
                errors[name] = ErrorCode.KAFKA_STORAGE_ERROR
            else:
                errors[name] = partition_log.move_log_start(before_offset)
        if self._remote_store is not None:
            moved = (name for name, error in errors.items() if error is ErrorCode.NONE)
            await self._remote_store.store_log_starts(
                {name: log.log_start_offset for name in moved if (log := logs[name]) is not None and not log.is_deleted}
            )
        await self.checkpoints.write_log_starts(durable=True)
        for count, (name, error) in enumerate(errors.items(), 1):
            if count % MOVED_PER_TURN == 0:
                await asyncio.sleep(0)
            moved_log = self._logs.get(name)
            if error is not ErrorCode.NONE or self.is_scratch:
                continue
            if moved_log is not None and not moved_log.is_deleted:
                with contextlib.suppress(StorageError):  # the checkpoint has it; a full disk is no reason to fail
                    moved_log.files.checksums.note_log_start(moved_log.log_start_offset)
        return errors

    # Partitions that move between nodes

    def has_directory(self, topic_partition: TopicPartition) -> bool:
        """Whether there is a directory of a partition, open or not. Raises StorageError."""
        return topic_partition in self._logs or self._disk.exists(self._join(str(topic_partition)))

    async def serve(self, arriving: Iterable[ArrivingLog]) -> dict[TopicPartition, StorageError]:
        """Open the logs of partitions that this node leads from now on, and that are not open; returns the errors of
        those that cannot be opened."""
        return await self._opening.open_arrived(one for one in arriving if one.topic_partition not in self._logs)

    async def close_to_move(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, LastLeaderState]:
        """Close logs as a clean stop would, so that another node need not recover them; returns how they were left.

        A log that cannot be closed so is released as it is.
        """
        closing = {name: partition_log for name in names if (partition_log := self._logs.pop(name, None)) is not None}
        for name in closing:
            self._cleaner.forget(name)
        last_state = await close_to_move(closing, self._flusher)
        for partition_log in closing.values():
            partition_log.mark_deleted(LED_ELSEWHERE)
        return last_state

    def release(self, topic_partition: TopicPartition) -> None:
        """Release a log to another node: this one no longer reads or writes it. Its files stay."""
        partition_log = self._logs.pop(topic_partition, None)
        if partition_log is not None:
            self._cleaner.forget(topic_partition)
            partition_log.mark_deleted(LED_ELSEWHERE)

    def delete_renamed_directories(self, topic_partition: TopicPartition, topic_id: bytes) -> bool:
        """Delete the directory of a partition that another node led last; return whether there was one.

        Raises StorageError.
        """
        directory = self._join(str(topic_partition))
        if topic_partition in self._logs or not self._disk.exists(directory):
            return False
        if PartitionFiles(self._disk, directory).read_topic_id() != topic_id:
            return False
        self.unopened.discard(topic_partition)
        self._doom(topic_partition, topic_id)
        return True

    def cleaned_offset(self, topic_partition: TopicPartition) -> int:
        """The offset up to which a compacted log is clean."""
        return self._cleaner.cleaned_offset(topic_partition)

    def note_cleaned(self, topic_partition: TopicPartition, offset: int) -> None:
        """Note up to which offset the last leader of a partition has cleaned its log."""
        self._cleaner.note_cleaned(topic_partition, offset)

    # Sweep and close

    def sweep(self, now_ms: int, *, sweeps_per_round: int = 1, retention_interval_ms: int = 0) -> None:
        """Do the regular work: retention, rolling, expiry, compaction, checkpoints; remove deleted files.

        sweeps_per_round: number of sweeps that together reach each log; with few logs each sweep takes all. Flushes are
            not delayed.
        retention_interval_ms: the least time between two passes of retention and rolling by time over a log, and after
            its opening.
        Raises StorageError.
        Many logs are swept in portions, between which the event loop runs other things.
        """
        self._sweep.run(now_ms, sweeps_per_round=sweeps_per_round, retention_interval_ms=retention_interval_ms)
        backoff_ms = self.cleaner_backoff_ms
        if backoff_ms is not None and now_ms - self._cleaner_started_ms >= backoff_ms:
            self._cleaner_started_ms = now_ms
            HOUSEKEEPING.attempt(self._cleaner.start, self._logs.values(), concerns="start of the cleaner")
        if abs(now_ms - self._checkpointed_ms) >= CHECKPOINT_INTERVAL_MS:  # the clock may have been set back
            self._checkpointed_ms = now_ms
            if self._checkpointing is None or self._checkpointing.done():
                self._checkpointing = CHECKPOINT.start(self.checkpoints.write_now_and_then())

    async def close(self) -> None:
        """Sync everything, mark the directory as cleanly closed, and release it. Raises StorageError.

        With an offline partition the stop is not clean: the next start judges the last writes. Nor is it with logs
        still deferred since an unclean stop.
        """
        if not self._is_locked:
            return
        self._sweep.stop_writing()
        try:
            if not self._is_open:
                return  # opening failed half-way: the checkpoints stay true
            await self._cleaner.close()
            if self._checkpointing is not None:
                await asyncio.wait([self._checkpointing])
            if self.is_scratch:
                await flush_last(self._path, self._logs.values(), self._flusher)
                return
            await sync_all(self._path, self._disk, self._logs.values(), self._flusher)
            await self.checkpoints.write_recovery_points(durable=True)
            await self.checkpoints.write_log_starts(durable=True)
            is_known = self._opening.was_clean or not self.unopened
            if is_known and not any(partition_log.is_offline for partition_log in self._logs.values()):
                await replace_durably(self._disk, self._join(CLEAN_SHUTDOWN_FILE), CLEAN_SHUTDOWN_CONTENT)
        finally:
            for partition_log in self._logs.values():
                partition_log.close()
            self._logs.clear()
            self._sweep.stop()
            self._is_open = self._is_locked = False
            self._disk.unlock(self._join(LOCK_FILE))

    def _join(self, name: str) -> str:
        return f"{self._path}/{name}"
