"""Opening of the logs in a log directory: at the start, and in the background while clients are served.

Logs are recovered after a crash, and synced before they are served.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence

from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.sliced_work import SLICE_S, SlicedWork, Slices, run_in_slices, run_to_end
from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.kernel.topic_partition import INTERNAL_TOPICS, TopicPartition
from fencepost.broker.log.directory.directory_checkpoints import DirectoryCheckpoints
from fencepost.broker.log.directory.last_leader_state import ArrivingLog
from fencepost.broker.log.durability.flusher import Flusher
from fencepost.broker.log.files.checkpoints import ZERO_TOPIC_ID
from fencepost.broker.log.files.leader_epochs import LeaderEpochs
from fencepost.broker.log.files.partition_files import PartitionFiles
from fencepost.broker.log.files.remedies import remedy_partition_went_offline
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.producers.producer_state import ProducerState
from fencepost.broker.log.recovery.loaded_log import LoadedLog
from fencepost.broker.log.recovery.recovery import LogRecovery
from fencepost.broker.log.segment.log_segments import LogSegments
from fencepost.broker.log.segment.remote_segment import RemoteLogStore, RemoteSegment, RemoteSegmentMetadata
from fencepost.broker.log.segment.unreadable_log import unreadable_segment
from fencepost.broker.storage.disk import OF_ALL_FILES, Disk, StorageError, UnexpectedFailureError, remedy

log = get_logger(__name__)

OPENING = Place("opening of a log", Policy.FAIL_PARTITION)
OPENING_SYNC = Place("sync of logs that were recovered", Policy.FAIL_PARTITION)
OWN_LEADER_EPOCH = 0
"""The leader epoch if no other source gives one: the log's own is never below."""
LOADS_PER_TURN = 16
LOGS_PER_SYNC = 64
WRITTEN_BACK_TOGETHER_COUNT = 256
"""From this many logs on, all that they wrote goes to the disk in one pass before their files are synced one by one."""
READ_NOW_BYTES = 128 * 1024
"""The largest snapshot of producers that is read in one step: up to 700 producers with five batches each."""


def report_unopened(directory: str, topic_partition: TopicPartition, error: StorageError) -> None:
    """Log that a log could not be opened while clients are served. directory: the log directory."""
    log.error(
        "partition_not_opened",
        topic=topic_partition.topic,
        partition=topic_partition.partition,
        reason=str(error),
        remedy=f"{remedy(error)}. {remedy_partition_went_offline(f'{directory}/{topic_partition}')}",
    )


class LogOpening:
    """The logs of a directory: which are open, and how the last stop left them.

    opened:    called with each opened log.
    files_move, remote_store: see `LogDirectory`.
    unopened:  the deferred logs, for `open_next` and `open_now`.
    was_clean: whether the last stop of the directory was clean.
    """

    def __init__(
        self,
        path: str,
        *,
        disk: Disk,
        clock: Clock,
        flusher: Flusher,
        checkpoints: DirectoryCheckpoints,
        opened: Callable[[PartitionLog], None],
        files_move: bool,
        remote_store: RemoteLogStore | None,
    ) -> None:
        self.unopened = checkpoints.unopened
        self.was_clean = False
        self._path = path
        self._disk = disk
        self._clock = clock
        self._flusher = flusher
        self._checkpoints = checkpoints
        self._opened = opened
        self._files_move = files_move
        self._remote_store = remote_store
        self._config_for_topic: Callable[[str], LogConfig] | None = None
        self._leader_epoch_of: Callable[[TopicPartition], int | None] | None = None
        self._unsynced: list[tuple[PartitionLog, LoadedLog]] = []

    async def begin(
        self,
        found: Iterable[TopicPartition],
        config_for_topic: Callable[[str], LogConfig],
        leader_epoch_of: Callable[[TopicPartition], int | None],
        *,
        was_clean: bool,
        patience_s: float | None,
    ) -> None:
        """Open the coordinators' logs, which all transactions and groups wait for, and others until the time is over.
        See `LogDirectory.open`. Raises StorageError."""
        self.was_clean = was_clean
        self._config_for_topic, self._leader_epoch_of = config_for_topic, leader_epoch_of
        self.unopened.add(name for name in found if leader_epoch_of(name) is not None)
        names = sorted(self.unopened, key=lambda name: name.topic not in INTERNAL_TOPICS)
        loop = asyncio.get_running_loop()
        deadline_s = math.inf if patience_s is None else loop.time() + patience_s
        for count, name in enumerate(names):
            if name.topic not in INTERNAL_TOPICS and loop.time() >= deadline_s:
                break
            if count % LOADS_PER_TURN == 0:
                await asyncio.sleep(0)
            self.unopened.begin_opening(name)
            try:
                await run_in_slices(self._open(name), SLICE_S)
            except StorageError:
                raise
            except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
                self._failed(name, error)
        await self._sync_opened()
        for name in names:
            if not self.unopened.is_waiting(name) and not self.unopened.has_failed(name):
                self.unopened.discard(name)

    async def open_next(self) -> list[TopicPartition]:
        """Open some deferred logs, first those that were asked for. Returns those that may be served now.

        They stay `unopened` until the caller removes them. A log that cannot be opened is reported.
        """
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        opened: list[TopicPartition] = []
        while self.unopened.has_next and len(opened) < LOGS_PER_SYNC:
            name = self.unopened.begin_opening()
            try:
                await run_in_slices(self._open(name), SLICE_S)
                opened.append(name)
            except StorageError as error:
                self.unopened.fail(name)
                report_unopened(self._path, name, error)
            except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
                self._failed(name, error)
            if loop.time() - started_s >= SLICE_S:
                break
        return [*opened, *(name for name in await self._sync_opened() if name not in opened)]

    def open_now(self, topic_partition: TopicPartition) -> bool:
        """Open a deferred log, if that takes no waiting; return whether it may be served now. Otherwise it is opened
        next.

        After an unclean stop opening has to wait for the disk. A large state of producers is read while others are
        served. Raises StorageError.
        """
        if (
            not self.was_clean
            or not self.unopened.is_waiting(topic_partition)
            or self._has_many_producers(topic_partition)
        ):
            self.unopened.prioritize(topic_partition)
            return False
        unsynced_count = len(self._unsynced)
        try:
            run_to_end(self._open(self.unopened.begin_opening(topic_partition)))
        except StorageError:
            self.unopened.fail(topic_partition)
            raise
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            self._failed(topic_partition, error)
            return False
        return len(self._unsynced) == unsynced_count

    def _has_many_producers(self, topic_partition: TopicPartition) -> bool:
        files = PartitionFiles(self._disk, f"{self._path}/{topic_partition}")
        offsets = files.numbered().get(".snapshot", [])
        return bool(offsets) and self._disk.size_bytes(files.snapshot_path(offsets[-1])) > READ_NOW_BYTES

    async def open_arrived(self, arrived: Iterable[ArrivingLog]) -> dict[TopicPartition, StorageError]:
        """Open logs that other nodes have written last, one after another, and sync the recovered ones together.

        Returns the errors of those that could not be opened.
        """
        errors: dict[TopicPartition, StorageError] = {}
        slices = Slices(SLICE_S)  # of all logs together: many of them are shorter than a slice
        for name, config, leader_epoch, last_state, sealed, durable_end in arrived:
            await slices.turn()
            self._checkpoints.recovery_points.offsets[name] = last_state.recovery_point
            if last_state.log_start_offset > self._checkpoints.log_start(name):
                self._checkpoints.log_starts.offsets[name] = last_state.log_start_offset
            loading = self._load(
                name,
                config,
                leader_epoch=leader_epoch,
                is_clean=last_state.was_closed,
                sealed=sealed,
                durable_end=durable_end,
            )
            try:
                await run_in_slices(loading, SLICE_S)
            except StorageError as error:
                errors[name] = error
        await self._sync_opened()
        return errors

    def _failed(self, topic_partition: TopicPartition, error: BaseException) -> None:
        """Report a log that cannot be opened; others are served. It is tried again when a client asks for it."""
        OPENING.failed(error, concerns=topic_partition, on_failure=lambda _: self.unopened.fail(topic_partition))

    def _open(self, topic_partition: TopicPartition) -> SlicedWork[None]:
        assert self._config_for_topic is not None
        assert self._leader_epoch_of is not None
        leader_epoch = self._leader_epoch_of(topic_partition)
        if leader_epoch is None:
            return
        config = self._config_for_topic(topic_partition.topic)
        try:
            is_clean = self.was_clean
            if is_clean and not self._files_move and leader_epoch > OWN_LEADER_EPOCH:
                files = PartitionFiles(self._disk, f"{self._path}/{topic_partition}")
                # Another node may have written here since this node's clean stop.
                is_clean = leader_epoch <= files.read_epochs().latest
            yield from self._load(topic_partition, config, leader_epoch=leader_epoch, is_clean=is_clean)
        except StorageError as error:
            if error.errno in OF_ALL_FILES:
                raise
            self._open_offline(topic_partition, config, leader_epoch, error)

    def _open_offline(
        self, topic_partition: TopicPartition, config: LogConfig, leader_epoch: int, error: StorageError
    ) -> None:
        """Add an offline log in place of one that cannot be opened: clients get an error, and other logs are served."""
        files = PartitionFiles(self._disk, f"{self._path}/{topic_partition}")
        log_start_offset = self._checkpoints.log_start(topic_partition)
        recovery_point = self._checkpoints.recovery_point(topic_partition)
        try:
            topic_id = files.read_topic_id()
        except StorageError:
            topic_id = ZERO_TOPIC_ID
        loaded = LoadedLog(
            LogSegments([unreadable_segment(files, recovery_point, config.index_interval_bytes)]),
            ProducerState(),
            LeaderEpochs(),
            log_start_offset=log_start_offset,
            unsynced=(),
            side_files=(),
            recovery_point=recovery_point,
            refusal=None,
        )
        partition_log = self._log(topic_partition, topic_id, config, files, loaded, leader_epoch)
        partition_log.give_up(error)
        self._opened(partition_log)

    def _load(
        self,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        leader_epoch: int,
        is_clean: bool,
        sealed: Sequence[RemoteSegmentMetadata] = (),
        durable_end: int = 0,
    ) -> SlicedWork[None]:
        files = PartitionFiles(self._disk, f"{self._path}/{topic_partition}")
        now_ms = self._clock.now_ms()
        loaded = yield from LogRecovery(
            files,
            config,
            is_clean=is_clean,
            recovery_point=self._checkpoints.recovery_points.offsets.get(topic_partition, 0),
            log_start_offset=self._checkpoints.log_start(topic_partition),
            now_ms=now_ms,
            leader_epoch=leader_epoch,
            remote_segments=self._remote_segments(files, topic_partition, config, sealed),
            durable_end=durable_end,
        ).load()
        topic_id = files.read_topic_id()
        is_empty = loaded.segments.size_bytes == 0 and loaded.segments.active.next_offset == 0
        if topic_id == ZERO_TOPIC_ID and is_empty and loaded.offline_reason is None:
            # Created just before a loss of power: it is empty, and is created again if its topic exists.
            for segment in loaded.segments:
                segment.close()
            self._disk.delete(files.directory)
            return
        leader_epoch = max(loaded.epochs.latest, leader_epoch, 0)
        partition_log = self._log(topic_partition, topic_id, config, files, loaded, leader_epoch)
        self._opened(partition_log)
        if loaded.unsynced or loaded.side_files:
            self._unsynced.append((partition_log, loaded))

    def _remote_segments(
        self,
        files: PartitionFiles,
        topic_partition: TopicPartition,
        config: LogConfig,
        sealed: Sequence[RemoteSegmentMetadata],
    ) -> list[RemoteSegment]:
        if not sealed:
            return []
        store = self._remote_store
        assert store is not None, "without a store no segment is remote"
        return [RemoteSegment(files, topic_partition, one, store, config.index_interval_bytes) for one in sealed]

    def _log(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        config: LogConfig,
        files: PartitionFiles,
        loaded: LoadedLog,
        leader_epoch: int,
    ) -> PartitionLog:
        return PartitionLog(
            topic_partition,
            topic_id,
            config,
            files=files,
            flusher=self._flusher,
            segments=loaded.segments,
            producers=loaded.producers,
            epochs=loaded.epochs,
            leader_epoch=leader_epoch,
            log_start_offset=loaded.log_start_offset,
            recovery_point=loaded.recovery_point,
            now_ms=self._clock.now_ms(),
            offline_reason=loaded.offline_reason,
        )

    async def _sync_opened(self) -> list[TopicPartition]:
        """Sync recovered records, which may be in the page cache only: they count when they are on the disk.

        Returns the partitions whose records are.
        """
        recovered, self._unsynced = self._unsynced, []
        if len(recovered) >= WRITTEN_BACK_TOGETHER_COUNT:
            await self._disk.write_back(self._path)
        for start in range(0, len(recovered), LOGS_PER_SYNC):
            share = [one for one in recovered[start : start + LOGS_PER_SYNC] if not one[0].is_deleted]
            files = [file for _, loaded in share for file in (*loaded.unsynced, *loaded.side_files)]
            try:
                await self._disk.sync(files, [partition_log.files.directory for partition_log, _ in share])
            except StorageError as error:
                for partition_log, _ in share:
                    partition_log.give_up(error)
            except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
                for partition_log, _ in share:
                    _fail_recovered(partition_log, error)
        for _, loaded in recovered:
            for file in loaded.side_files:
                file.close()
        return [partition_log.topic_partition for partition_log, _ in recovered]


def _fail_recovered(partition_log: PartitionLog, error: BaseException) -> None:
    OPENING_SYNC.failed(
        error,
        concerns=partition_log.topic_partition,
        on_failure=lambda _: partition_log.give_up(UnexpectedFailureError("the sync after its recovery", error)),
    )
