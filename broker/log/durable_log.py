"""What of a log is on the disk, who waits for it, and what happens when it cannot be written.

Source: Kafka's UnifiedLog; the high watermark of a log without replicas is where the disk has caught up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.flusher import FilesToSync, Flusher
from fencepost.broker.log.leader_epochs import LeaderEpochs
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.log_segments import LogSegments
from fencepost.broker.log.log_types import Isolation
from fencepost.broker.log.partition_files import PartitionFiles
from fencepost.broker.log.producer_snapshot import PRODUCERS_PER_SLICE, encoding_steps
from fencepost.broker.log.producer_state import ProducerState
from fencepost.broker.log.remedies import remedy_partition_went_offline
from fencepost.broker.log.segment import Segment
from fencepost.broker.log.segment_files import forget_segments
from fencepost.broker.log.sliced_work import SlicedWork, run_in_slices
from fencepost.broker.log.waiters import ALREADY_DURABLE, DurabilityWaiters, Watchers
from fencepost.broker.storage.disk import LogFile, NoRoomError, StorageError, UnexpectedFailureError, remedy

log = get_logger(__name__)

NO_ROOM_TOLD_EVERY_MS = 60_000

APPEND = Place("append to a log", Policy.FAIL_PARTITION)
PRODUCER_WORK = Place("work on the many producers of a log", Policy.FAIL_PARTITION)

FEW_PRODUCERS_COUNT = PRODUCERS_PER_SLICE
"""Producers up to which their state is written in the step that rolls the log."""
SLICE_S = 0.002
"""How long producers are worked on at a stretch, give or take a step."""


class DurableLog:
    """The segments of one partition, with what is known of their durability.

    config:             replaceable at any time; what it changes counts from the next call on.
    leader_epoch:       is written into every batch; may only rise.
    log_start_offset:   of the first record that may be read.
    log_end_offset:     that the next record will get.
    high_watermark:     up to which the log is durable; its end where the page cache is enough.
    last_stable_offset: up to which every transaction is decided; never above the high watermark.
    recovery_point:     up to which the log is known to be on the disk, whatever the config asks for.
    offline_reason:     why it has been given up, after a failed write or because it could not be recovered; else None.
    """

    _no_room_told_ms = -NO_ROOM_TOLD_EVERY_MS

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        config: LogConfig,
        *,
        files: PartitionFiles,
        flusher: Flusher,
        segments: LogSegments,
        producers: ProducerState,
        epochs: LeaderEpochs,
        leader_epoch: int,
        log_start_offset: int,
        now_ms: int,
        recovery_point: int,
        offline_reason: str | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        self.leader_epoch = leader_epoch
        self.log_start_offset = log_start_offset
        self.log_end_offset = segments.active.next_offset
        self.high_watermark = self.log_end_offset
        self.recovery_point = recovery_point
        self.offline_reason = offline_reason
        self.is_deleted = False
        self.segments = segments
        self.files = files
        self._is_closing = False
        self._flusher = flusher
        self._producers = producers
        self._epochs = epochs
        for segment in segments:
            segment.known_epochs = epochs
        self._segment_opened_ms = now_ms
        self._retention_checked_ms = now_ms
        self._flushed_ms = now_ms
        self._flush_offset = self.log_end_offset
        self._is_flush_due = False
        self._waiters = DurabilityWaiters()
        self._watchers = Watchers()
        self._sync_target = self.log_end_offset
        self._unsynced_segments: list[Segment] = []
        self._unsynced_directories: list[str] = []
        self._side_files: list[tuple[Segment | None, LogFile]] = []
        self._syncing_side_files: list[LogFile] = []
        self._discarded_segments: list[Segment] = []
        self._discarding_count = 0  # of them, from the first on, that the sync that runs is about
        self._unwritten_snapshots: set[int] = set()  # their offsets
        self._producer_work: set[asyncio.Task[None]] = set()
        self.last_stable_offset = producers.last_stable_offset(self.high_watermark, log_start_offset)

    @property
    def is_offline(self) -> bool:
        return self.offline_reason is not None

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    # Durability

    def flushed(self, offset: int | None = None) -> Awaitable[None]:
        """Return when the log is durable up to `offset` (exclusive), by default all that has been appended.

        At once when it is already, or where the page cache is enough. Raises StorageError.
        """
        end_offset = self.log_end_offset if offset is None else offset
        if self.high_watermark >= end_offset:
            return ALREADY_DURABLE
        self._require_online()
        if not self.config.is_durable:
            return ALREADY_DURABLE
        if end_offset > self._sync_target:  # otherwise the sync that runs covers it
            self._flusher.request(self)
        return self._waiters.wait_for(end_offset)

    def flush_soon(self) -> None:
        """Have what has been appended synced, though nobody waits for it; `_flush_offset` is where that ends."""
        self._flush_offset = self.log_end_offset
        self._is_flush_due = True
        self._flusher.request(self)

    def begin_sync(self) -> FilesToSync:
        """For the flusher: what is not on the disk yet."""
        if self.is_deleted:
            return FilesToSync((), ())
        # Retention and the cleaner may have removed a segment, with its files, before they were synced.
        present = set(self.segments) if self._side_files or self._unsynced_segments else set()
        files = [segment.log for segment in self._unsynced_segments if segment in present]
        for segment, file in self._side_files:
            if segment is None or segment in present:
                files.append(file)
            self._syncing_side_files.append(file)
        self._unsynced_segments = []
        self._side_files = []
        directories, self._unsynced_directories = self._unsynced_directories, []
        self._discarding_count = len(self._discarded_segments)
        if self.config.is_durable or self._is_closing or self._is_flush_due:
            self._is_flush_due = False
            files.append(self.segments.active.log)
            self._sync_target = self.log_end_offset
        else:
            self._sync_target = self.segments.active.base_offset
        return FilesToSync(files, directories)

    def end_sync(self, error: StorageError | None) -> None:
        """For the flusher: what `begin_sync` returned is on the disk, or never will be.

        After a failed sync the system may have dropped the bytes, and a second sync would not tell: the log is given
        up.
        """
        for file in self._syncing_side_files:
            file.close()
        self._syncing_side_files = []
        if self.is_offline or self.is_deleted:
            return
        if error is not None:
            self.give_up(error)
            return
        try:
            self._delete_discarded()
        except StorageError as failed:
            self.give_up(failed)
            return
        target = self._sync_target
        self.recovery_point = max(self.recovery_point, target)
        if target > self.high_watermark:
            self.high_watermark = target
            self._update_stable()
            self._waiters.resolve_up_to(target)
            self._watchers.notify()

    def add_to_next_sync(
        self, side_files: Sequence[LogFile], directories: Sequence[str] = (), segment: Segment | None = None
    ) -> None:
        """Have files beside the log, closed afterwards, and directory entries synced before what is appended from
        now on."""
        self._side_files.extend((segment, file) for file in side_files)
        self._unsynced_directories.extend(directories)

    def sync_files_soon(self, side_files: Sequence[LogFile], segment: Segment) -> None:
        """Have files of one segment synced and closed; nobody waits for it."""
        self.add_to_next_sync(side_files, [self.files.directory], segment)
        self._flusher.request(self)

    def discard(self, segments: Sequence[Segment]) -> None:
        """Delete the files of segments that are not part of the log any more.

        The files are deleted only when the list of checksums, on the disk, no longer names them: a start takes a
        segment that the list names and that is not there for lost. Raises StorageError.
        """
        try:
            self.add_to_next_sync([forget_segments(self.files.checksums, segments)])
        except StorageError:
            # A full disk, perhaps, and deleting makes room: without a list no segment is known.
            self.files.checksums.drop()
            for segment in segments:
                segment.delete()
            return
        self._discarded_segments.extend(segments)
        self._flusher.request(self)

    @property
    def first_file_offset(self) -> int:
        """The base offset of the first segment whose files are there, perhaps not for long."""
        if self._discarded_segments:
            return self._discarded_segments[0].base_offset
        return self.segments.first.base_offset

    def _delete_discarded(self) -> None:
        for _ in range(self._discarding_count):
            self._discarded_segments.pop(0).delete()
        self._discarding_count = 0

    def prepare_close(self) -> SlicedWork[bool]:
        """Write what a clean start will want; nothing may be appended any more. Whether there is something to sync."""
        self._cancel_producer_work()  # the state that is written here is a newer one
        if self.is_offline or self.is_deleted:
            return False
        self._is_closing = True
        end_offset = self.log_end_offset
        try:
            active = self.segments.active
            side_files = [*active.write_indexes(), active.record_files(end_offset)] if active.was_changed else []
            self.files.write_epochs(self._epochs)
            if end_offset and end_offset not in self.files.snapshot_offsets:
                side_files.append((yield from self._write_snapshot_in_steps(end_offset)))
                self.files.keep_snapshots([segment.base_offset for segment in self.segments])
            self.files.tidy_checksums([segment.base_offset for segment in self.segments])
        except StorageError as error:
            self.give_up(error)
            return False
        if not (side_files or self._side_files or self.recovery_point < end_offset):
            return False
        self.add_to_next_sync(side_files, [self.files.directory])
        return True

    def close(self) -> None:
        """Close the files; what was not synced before stays in the page cache."""
        self._cancel_producer_work()
        for segment in (*self.segments, *self._discarded_segments):
            segment.close()

    def mark_deleted(self, reason: str = "has been deleted") -> None:
        """The partition is no more, or no more here: its files are closed, whoever waits for it is told."""
        self.is_deleted = True
        self.offline_reason = self.offline_reason or f"the partition {reason}"
        self.close()
        for _, file in self._side_files:
            file.close()
        self._side_files = []
        self._waiters.fail(f"{self.topic_partition} {reason}")
        self._watchers.notify()

    def _update_stable(self) -> None:
        self.last_stable_offset = self._producers.last_stable_offset(self.high_watermark, self.log_start_offset)

    def _require_online(self) -> None:
        if self.offline_reason is not None:
            raise StorageError(f"{self.topic_partition} is offline: {self.offline_reason}")

    def give_up(self, error: StorageError) -> None:
        """Take the log offline: nothing is appended or read any more, and whoever waits for it is told."""
        if self.offline_reason is None:
            self.offline_reason = str(error)
            log.error(
                "partition_went_offline",
                topic=self.topic_partition.topic,
                partition=self.topic_partition.partition,
                path=error.filename or self.files.directory,
                reason=str(error),
                remedy=f"{remedy(error)}, then restart the broker; until then it is neither read nor written. "
                f"{remedy_partition_went_offline(self.files.directory)}",
                high_watermark=self.high_watermark,
                log_end_offset=self.log_end_offset,
            )
            self._waiters.fail(f"{self.topic_partition} is offline: {error}")
            self._watchers.notify()

    def fail_append(self, error: BaseException) -> StorageError:
        """An append failed that had begun to write: the log may hold what nobody has taken in, so it is given up.

        Returns what the append raises.
        """
        failure = UnexpectedFailureError("an append", error)
        APPEND.failed(error, concerns=self.topic_partition, on_failure=lambda _: self.give_up(failure))
        return failure

    # Watchers

    def add_watcher(self, callback: Callable[[], None]) -> None:
        """Call back when the high watermark or the last stable offset moved, or the log went offline or was deleted."""
        self._watchers.add(callback)

    def remove_watcher(self, callback: Callable[[], None]) -> None:
        self._watchers.remove(callback)

    def bound(self, isolation: Isolation) -> int:
        """The offset that a reader of this isolation does not reach."""
        if isolation is Isolation.READ_COMMITTED:
            return self.last_stable_offset
        return self.high_watermark if isolation is Isolation.READ_UNCOMMITTED else self.log_end_offset

    # Rolling

    def roll(self, now_ms: int) -> Segment:
        """Seal the active segment, keep the producers' state beside it, and start a new one.

        Raises NoRoomError; the active segment then goes on, and this can be tried again. Raises StorageError, also for
        what nobody foresaw: half of it may be done then, so the log is to be given up.
        """
        try:
            return self._roll(now_ms)
        except StorageError:
            raise
        except BaseException as error:
            raise self.fail_append(error) from error

    def _roll(self, now_ms: int) -> Segment:
        sealed = self.segments.active
        base_offset = self.log_end_offset
        has_few_producers = len(self._producers) <= FEW_PRODUCERS_COUNT
        snapshots = []
        if has_few_producers:
            snapshots.append(self.files.write_snapshot(base_offset, self._producers.snapshot()))
        self.files.write_epochs(self._epochs)
        new = self.files.new_segment(base_offset, self.config.index_interval_bytes)
        try:
            index_files = sealed.seal()  # its last step notes what the files are like: after that, nothing may fail
        except NoRoomError as error:
            for snapshot in snapshots:
                snapshot.close()
            if base_offset > sealed.base_offset:
                self._undo_new_segment(new, error)
            raise
        self.segments.add(new)
        self._segment_opened_ms = now_ms
        self._unsynced_segments.append(sealed)
        self.add_to_next_sync(index_files, segment=sealed)
        self.add_to_next_sync(snapshots, [self.files.directory], segment=self.segments.active)
        self._flusher.request(self)
        if not has_few_producers:
            self._write_snapshot_later(base_offset)
        return self.segments.active

    def _undo_new_segment(self, new: Segment, error: NoRoomError) -> None:
        """Or the next start would take it for the end of the log. Raises StorageError, no NoRoomError."""
        try:
            new.delete()
        except StorageError as failed:
            raise StorageError(
                failed.errno, f"{failed}, after {error}", failed.filename, paths=failed.paths
            ) from failed

    # A full disk

    def refuse_for_room(self, error: NoRoomError, now_ms: int) -> None:
        """Tell the user, once a minute, that there is no room for more. What is there is served as before."""
        if 0 <= now_ms - self._no_room_told_ms < NO_ROOM_TOLD_EVERY_MS:
            return
        self._no_room_told_ms = now_ms
        log.error(
            "partition_without_room",
            topic=self.topic_partition.topic,
            partition=self.topic_partition.partition,
            path=error.filename or self.files.directory,
            reason=str(error),
            remedy=f"{remedy(error)}; until then it is read, and what is to be written is refused",
        )

    # Many producers

    @property
    def has_unwritten_snapshot(self) -> bool:
        """Whether the state of the producers where a segment begins is yet to be written: what is before it is needed
        until then."""
        return bool(self._unwritten_snapshots)

    def _write_snapshot_in_steps(self, offset: int) -> SlicedWork[LogFile]:
        """Write the state of now, whatever becomes of it between two steps. Raises StorageError."""
        if len(self._producers) <= FEW_PRODUCERS_COUNT:
            return self.files.write_snapshot(offset, self._producers.snapshot())
        capture = self._producers.capture()
        try:
            content = yield from encoding_steps(capture.producers(), len(capture))
        finally:
            self._producers.release(capture)
        return self.files.write_encoded_snapshot(offset, content)

    def _write_snapshot_later(self, offset: int) -> None:
        """Have the state of now written while others are served; a crash before that replays from the one before it."""
        segment = self.segments.active
        capture = self._producers.capture()

        async def write() -> None:
            try:
                content = await run_in_slices(encoding_steps(capture.producers(), len(capture)), SLICE_S)
                if self.is_offline or self.is_deleted:
                    return
                file = self.files.write_encoded_snapshot(offset, content)
                self.add_to_next_sync([file], [self.files.directory], segment=segment)
                self._flusher.request(self)
            except StorageError as error:
                self.give_up(error)
            finally:
                self._producers.release(capture)
                self._unwritten_snapshots.discard(offset)

        self._unwritten_snapshots.add(offset)
        self._start_producer_work(write())

    def _start_producer_work(self, work: Coroutine[Any, Any, None]) -> None:
        task = PRODUCER_WORK.start(
            work,
            concerns=self.topic_partition,
            on_failure=lambda error: self.give_up(UnexpectedFailureError("work on its producers", error)),
        )
        self._producer_work.add(task)
        task.add_done_callback(self._producer_work.discard)

    def _cancel_producer_work(self) -> None:
        for task in self._producer_work:
            task.cancel()
        self._producers.release_all()  # a task that is cancelled before its first step does nothing any more
