"""Log of one partition: its offsets, appends, reads and watchers; its parts keep durability, retention and reports.

An append is one step without an await: check, assign offsets, write, apply. Replies wait for `flushed` afterwards.
Source: Kafka's UnifiedLog.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fencepost.broker.kernel.sliced_work import SlicedWork, run_to_end
from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.append import appending
from fencepost.broker.log.append.append_rules import AppendRules
from fencepost.broker.log.durability import log_durability
from fencepost.broker.log.durability.flusher import Flusher
from fencepost.broker.log.durability.log_durability import LogDurability
from fencepost.broker.log.durability.waiters import Watchers
from fencepost.broker.log.files.checkpoints import EpochStart
from fencepost.broker.log.files.leader_epochs import LeaderEpochs
from fencepost.broker.log.files.partition_files import PartitionFiles
from fencepost.broker.log.log_config import MAX_INT64, LogConfig
from fencepost.broker.log.log_reports import LogReports
from fencepost.broker.log.log_types import (
    AbortedRange,
    ActiveProducer,
    AppendResult,
    EpochEndOffset,
    Isolation,
    LogRead,
    LogTraffic,
    MarkerObserver,
    RecordError,
    TimestampedOffset,
)
from fencepost.broker.log.producers.producer_state import ProducerState
from fencepost.broker.log.producers.producer_work import ProducerWork
from fencepost.broker.log.producers.verification import VerificationGuard
from fencepost.broker.log.reads import reading
from fencepost.broker.log.recovery.recovery_mark import RecoveryMarks
from fencepost.broker.log.retention.log_retention import LogRetention
from fencepost.broker.log.segment.log_segments import LogSegments
from fencepost.broker.log.segment.segment import Segment, new_segment
from fencepost.broker.log.segment.unreadable_log import is_unreadable
from fencepost.broker.storage.disk import LogFile, NoRoomError, StorageError, UnexpectedFailureError
from fencepost.protocol.batch_run import BatchShape
from fencepost.protocol.errors import ErrorCode

T = TypeVar("T")

__all__ = [
    "AbortedRange",
    "ActiveProducer",
    "AppendResult",
    "EpochEndOffset",
    "Isolation",
    "LogRead",
    "MarkerObserver",
    "PartitionLog",
    "RecordError",
    "TimestampedOffset",
]

APPEND = Place("append to a log", Policy.FAIL_PARTITION)

TO_HIGH_WATERMARK = -1


class PartitionLog:
    """The log of one partition: its offsets, appends and reads. Made by `LogDirectory`.

    config:             `configure` replaces it.
    leader_epoch:       is written into every batch; may only rise.
    log_start_offset:   offset of the first record that may be read.
    log_end_offset:     offset that the next record will get.
    high_watermark:     end of the durable part of the log; the log's end if the page cache is enough.
    last_stable_offset: offset below which every transaction is decided; never above the high watermark.
    offline_reason:     cause, after a failed write or if the log could not be recovered; else None.
    segment_opened_ms:  time at which the active segment was begun.
    deletable_end:      retention deletes no segment that reaches beyond it; None: all may be deleted.
    is_being_rewritten: whether the cleaner or a merge writes a segment that will replace others: one at a time.
    is_replica:         see `FetchedLog`.
    observer:           is notified of every marker, in the step that appends it.
    traffic:            counts since the log was opened, for metrics.

    Its parts know nothing of the log, or get it with each call: no cycle keeps a deleted log in memory.
    durability:    content of the next sync, the waiters for it, and the recovery point.
    reports:       the events that the log reports about itself.
    producer_work: snapshots, expiry and listings of producers.
    marks:         places from which a recovery may read on.
    """

    observer: MarkerObserver | None = None
    deletable_end: int | None = None
    is_being_rewritten = False
    is_replica = False
    rules: AppendRules | None = None
    run_form: BatchShape | None = None  # of the run that was appended last, for the next is mostly like it
    # Counts of `traffic`, on the instance from the first on: most partitions have none of most of them.
    refused_count = 0
    rejected_bytes = 0
    corrupt_batches_count = 0
    fetches_count = 0
    fetched_bytes = 0
    failed_fetches_count = 0

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
        end_offset = segments.active.next_offset
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        self.leader_epoch = leader_epoch
        self.log_start_offset = log_start_offset
        self.log_end_offset = end_offset
        self.high_watermark = end_offset
        self.last_stable_offset = producers.last_stable_offset(end_offset, log_start_offset)
        self.offline_reason = offline_reason
        self.is_deleted = False
        self.is_moving = False
        self.segments = segments
        self.segment_opened_ms = now_ms
        self.files = files
        self._opened_end_offset = end_offset
        self._opened_bytes = 0 if is_unreadable(segments.first) else segments.size_bytes
        self.durability = LogDurability(files, end_offset=end_offset, recovery_point=recovery_point, now_ms=now_ms)
        self.reports = LogReports(topic_partition, files.directory)
        self.producer_work = ProducerWork(topic_partition, files, producers)
        self.marks = RecoveryMarks()
        self._retention = LogRetention(now_ms)
        self.flusher = flusher
        self.producers = producers
        self.epochs = epochs
        self.watchers = Watchers()
        for segment in segments:
            segment.batches.known_epochs = epochs

    @property
    def is_offline(self) -> bool:
        return self.offline_reason is not None

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def traffic(self) -> LogTraffic:
        segments = self.segments
        appended_bytes = 0
        if not is_unreadable(segments.first):
            appended_bytes = segments.size_bytes + segments.departed_bytes - self._opened_bytes
        return LogTraffic(
            self.log_end_offset - self._opened_end_offset,
            appended_bytes,
            self.refused_count,
            self.rejected_bytes,
            self.corrupt_batches_count,
            self.fetches_count,
            self.fetched_bytes,
            self.failed_fetches_count,
        )

    # Functions of the parts, which are methods here: a call costs no more than that of a method.

    append_rules = appending.append_rules
    append = appending.append
    append_run = appending.append_run
    append_records = appending.append_records
    append_marker = appending.append_marker
    skip_offsets = appending.skip_offsets
    read = reading.read
    bound = reading.bound_of
    aborted_transactions = reading.aborted_transactions
    header_at = reading.header_at
    offset_for_timestamp = reading.offset_for_timestamp
    offset_of_max_timestamp = reading.offset_of_max_timestamp
    flushed = log_durability.flushed
    flush_soon = log_durability.flush_soon
    flush_by_time = log_durability.flush_by_time
    begin_sync = log_durability.begin_sync
    take_appended = log_durability.take_appended
    end_sync = log_durability.end_sync
    sync_files_soon = log_durability.sync_files_soon
    discard = log_durability.discard

    def configure(self, config: LogConfig) -> None:
        """Replace the config; it counts from the next call on."""
        self.config = config
        self.rules = None

    def begin_closing_to_move(self) -> None:
        """From now on refuse appends, also of requests that have found the log before; earlier appends are synced."""
        self.is_moving = True
        self.rules = None

    def epoch_starts(self, before_offset: int) -> list[EpochStart]:
        """The leader epochs that begin before an offset."""
        return [start for start in self.epochs.starts if start.start_offset < before_offset]

    def end_offset_for_leader_epoch(self, epoch: int) -> EpochEndOffset:
        """Where the largest leader epoch that is not above `epoch` ends; (-1, -1) when unknown."""
        return self.epochs.end_offset_for(epoch, self.leader_epoch, self.log_end_offset)

    # Producers

    @property
    def has_open_transaction(self) -> bool:
        return self.producers.first_open_offset is not None

    def producer(self, producer_id: int) -> ActiveProducer | None:
        """One producer, as DescribeProducers shows it; None if the partition does not remember it."""
        return next(self.producers.active_producers((producer_id,)), None)

    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        *,
        transaction_version_2: bool,
        transactional_id: str = "",
        in_this_step: bool = False,
    ) -> VerificationGuard | ErrorCode | None:
        """Return the guard that a transactional batch needs before its append, to be verified with the coordinator.

        in_this_step: whether the answer may be there at once. In transaction version 1 the guard is then
                      ANSWERED_AT_ONCE, unless one is pending already; without an answer, `keep_verification` is next.
        None when its transaction is already open here under this transactional id, or verification is switched off.
        Refuses with INVALID_PRODUCER_EPOCH. Source: KIP-890.
        """
        if not transaction_version_2 and not self.config.transaction_partition_verification_enable:
            return None
        return self.producers.begin_verification(
            producer_id,
            producer_epoch,
            base_sequence,
            transaction_version_2=transaction_version_2,
            transactional_id=transactional_id,
            in_this_step=in_this_step,
        )

    def keep_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, transactional_id: str = ""
    ) -> VerificationGuard:
        """The guard in place of ANSWERED_AT_ONCE, if the batch is not appended in this step."""
        return self.producers.verifications.begin(
            producer_id,
            producer_epoch,
            base_sequence,
            transaction_version_2=False,
            transactional_id=transactional_id,
        )

    def confirm_owner(self, producer_id: int, transactional_id: str) -> None:
        """Remember under which transactional id a producer's batch was verified, after its append."""
        self.producers.confirm_owner(producer_id, transactional_id)

    def withdraw_verification(self, producer_id: int, guard: VerificationGuard) -> None:
        """Forget a guard: the coordinator has said that the producer id is not of its transactional id."""
        self.producers.verifications.withdraw(producer_id, guard)

    def lead(self, leader_epoch: int) -> None:
        """Lead the partition in a new epoch: transactions verified in an earlier one are verified again."""
        self.leader_epoch = max(self.leader_epoch, leader_epoch)
        self.producers.verifications.clear()

    def active_producers(self, now_ms: int) -> list[ActiveProducer]:
        """All producers that the partition remembers, as DescribeProducers shows them."""
        return run_to_end(self.active_producers_in_steps(now_ms))

    def active_producers_in_steps(self, now_ms: int) -> SlicedWork[list[ActiveProducer]]:
        """As `active_producers`, in time slices; each producer is shown as it is when its step comes."""
        return self.producer_work.active_producers_in_steps(now_ms, self.config.producer_id_expiration_ms)

    # Durability

    @property
    def is_flushed_by_time(self) -> bool:
        """Whether the page cache is enough for an acknowledgement, but records are to be on disk in a given time."""
        config = self.config
        return config.flush_ms < MAX_INT64 and not config.is_durable

    def update_stable(self) -> None:
        self.last_stable_offset = self.producers.last_stable_offset(self.high_watermark, self.log_start_offset)

    # Offline

    def require_online(self) -> None:
        if self.offline_reason is not None:
            raise StorageError(f"{self.topic_partition} is offline: {self.offline_reason}")

    def give_up(self, error: StorageError) -> None:
        """Take the log offline: nothing is appended or read any more, and all waiters are notified."""
        if self.offline_reason is None:
            self.offline_reason = str(error)
            self.rules = None
            self.reports.offline(error, high_watermark=self.high_watermark, log_end_offset=self.log_end_offset)
            self.durability.fail_waiters(f"{self.topic_partition} is offline: {error}")
            self.watchers.notify()

    def fail_append(self, error: BaseException) -> StorageError:
        """Take the log offline after an append failed that had begun to write: log and memory may differ.

        Returns the error that the append raises.
        """
        failure = UnexpectedFailureError("an append", error)
        APPEND.failed(error, concerns=self.topic_partition, on_failure=lambda _: self.give_up(failure))
        return failure

    # Segments that are added and removed

    def exchange(self, old: Segment, new: Segment) -> None:
        """Put a segment in place of its stand-in, or the other way round, and notify those that wait for its records.

        The caller closes the old one.
        """
        self.segments.replace([old], new)
        self.watchers.notify()

    # Watchers

    def add_watcher(self, callback: Callable[[], None]) -> None:
        """Call back when the high watermark or the last stable offset moved, or the log went offline or was deleted."""
        self.watchers.add(callback)

    def remove_watcher(self, callback: Callable[[], None]) -> None:
        self.watchers.remove(callback)

    # Log start and sweep

    def move_log_start(self, before_offset: int) -> ErrorCode:
        """Let nothing below `before_offset` be read any more; TO_HIGH_WATERMARK (-1) for all that is durable.

        Watchers of the log are called. The next sweep deletes the files; the new start is durable when the log
        directory has written its checkpoint.
        OFFSET_OUT_OF_RANGE above the high watermark. Raises StorageError.
        """
        self.require_online()
        if before_offset == TO_HIGH_WATERMARK:
            before_offset = self.high_watermark
        if not 0 <= before_offset <= self.high_watermark:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if before_offset > self.log_start_offset:
            self.raise_log_start(before_offset)
            self.watchers.notify()  # a fetch that waits below the new start waits in vain
        return ErrorCode.NONE

    def raise_log_start(self, offset: int) -> None:
        """Let the log begin at an offset; watchers are called if the last stable offset moves with it."""
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        before = self.last_stable_offset
        self.update_stable()
        if self.last_stable_offset != before:
            self.watchers.notify()

    def sweep(self, now_ms: int, retention_interval_ms: int = 0) -> None:
        """Roll and delete old segments, expire producers, write deferred files: see `LogRetention.sweep`."""
        self._retention.sweep(self, now_ms, retention_interval_ms)

    def is_mark_due(self, now_ms: int) -> bool:
        """Whether `mark` has something to do."""
        return not (self.is_offline or self.is_deleted) and self.marks.are_due(self.segments.active, now_ms)

    def mark(self, now_ms: int) -> None:
        """Write a recovery mark, if one is due. A failing disk takes the log offline, a full one does not."""
        if not self.is_mark_due(now_ms):
            return
        try:
            self.marks.write(self, now_ms)
        except NoRoomError as error:
            self.reports.no_room(error, now_ms)
        except StorageError as error:
            self.give_up(error)

    # Rolling

    def roll(self, now_ms: int) -> Segment:
        """Seal the active segment, write the producers' state beside it, and start a new one.

        Raises NoRoomError; the active segment then stays in use, and the caller may retry. Raises StorageError, also
        for an unexpected exception: half of it may be done then, so the caller takes the log offline.
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
        producer_work, durability = self.producer_work, self.durability
        has_few_producers = producer_work.has_few_producers
        snapshots = [producer_work.write_snapshot(base_offset)] if has_few_producers else []
        self.write_epochs()
        new = new_segment(self.files, base_offset, self.config.index_interval_bytes)
        try:
            index_files = sealed.seal()  # its last step notes the state of the files: after that, nothing may fail
        except NoRoomError as error:
            for snapshot in snapshots:
                snapshot.close()
            if base_offset > sealed.base_offset:
                _undo_new_segment(new, error)
            raise
        self.segments.add(new)
        self.segment_opened_ms = now_ms
        durability.add_sealed(sealed)
        durability.add_files(index_files, segment=sealed)
        durability.add_files(snapshots, [self.files.directory], segment=new)
        self.flusher.request(self)
        if not has_few_producers:
            producer_work.write_snapshot_later(base_offset, self, lambda file: self.sync_files_soon([file], new))
        return new

    def write_epochs(self) -> None:
        """Write the leader epochs into their file if they have changed. Raises StorageError."""
        self.files.write_epochs(self.epochs)

    # Closing

    def prepare_close(self) -> SlicedWork[bool]:
        """Write the files of a clean start; nothing may be appended any more. Return whether a sync is needed."""
        self.producer_work.cancel()  # the state that is written here is a newer one
        if self.is_offline or self.is_deleted:
            return False
        durability = self.durability
        durability.begin_closing()
        end_offset = self.log_end_offset
        try:
            active = self.segments.active
            side_files: list[LogFile] = []
            if active.indexes.was_changed:
                side_files = [*active.write_indexes(), active.record_files(end_offset)]
            self.write_epochs()
            if end_offset and end_offset not in self.files.snapshot_offsets:
                side_files.append((yield from self.producer_work.write_snapshot_in_steps(end_offset)))
                self.files.keep_snapshots([segment.base_offset for segment in self.segments])
            self.files.tidy_checksums([segment.base_offset for segment in self.segments])
        except StorageError as error:
            self.give_up(error)
            return False
        if not (side_files or durability.has_side_files or durability.recovery_point < end_offset):
            return False
        durability.add_files(side_files, [self.files.directory])
        return True

    def close(self) -> None:
        """Close the files; unsynced bytes stay in the page cache."""
        self.producer_work.cancel()
        for segment in self.segments:
            segment.close()
        self.durability.close_discarded()

    def mark_deleted(self, reason: str = "has been deleted") -> None:
        """Close the files of a partition that was deleted, or has moved to another node, and notify all waiters."""
        self.is_deleted = True
        self.offline_reason = self.offline_reason or f"the partition {reason}"
        self.rules = None
        self.close()
        self.durability.drop_side_files()
        self.durability.fail_waiters(f"{self.topic_partition} {reason}")
        self.watchers.notify()


def _undo_new_segment(new: Segment, error: NoRoomError) -> None:
    """Delete a segment that a failed roll has begun, or the next start would take it for the end of the log.

    Raises StorageError, no NoRoomError.
    """
    try:
        new.delete()
    except StorageError as failed:
        raise StorageError(failed.errno, f"{failed}, after {error}", failed.filename, paths=failed.paths) from failed
