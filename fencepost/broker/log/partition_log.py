"""Log of one partition: its offsets, appends, reads and watchers; its parts keep durability, retention and reports.

An append is one step without an await: check, assign offsets, write, apply. Replies wait for `flushed` afterwards.
Source: Kafka's UnifiedLog.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.sliced_work import SlicedWork, run_to_end
from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.append.append_rules import AppendRules
from fencepost.broker.log.append.batch_validation import (
    finish_preparation,
    prepare_client_batch,
    read_client_batch,
    too_large,
)
from fencepost.broker.log.append.large_batch_checks import CheckedLargeBatch
from fencepost.broker.log.append.run_validation import form_for, prepare_run
from fencepost.broker.log.durability.flusher import FilesToSync, Flusher
from fencepost.broker.log.durability.log_durability import LogDurability
from fencepost.broker.log.durability.shared_log import AppendedBytes
from fencepost.broker.log.durability.waiters import ALREADY_DURABLE, Watchers
from fencepost.broker.log.files.checkpoints import EpochStart
from fencepost.broker.log.files.leader_epochs import LeaderEpochs
from fencepost.broker.log.files.partition_files import PartitionFiles
from fencepost.broker.log.files.producer_snapshot import ProducerSnapshot
from fencepost.broker.log.log_config import MAX_INT64, LogConfig
from fencepost.broker.log.log_reports import LogReports
from fencepost.broker.log.log_types import (
    CLIENT,
    AbortedRange,
    ActiveProducer,
    AppendedRun,
    AppendOrigin,
    AppendResult,
    EpochEndOffset,
    Isolation,
    LogRead,
    LogTraffic,
    MarkerObserver,
    RecordError,
    TimestampedOffset,
)
from fencepost.broker.log.producers.producer_replay import usable_transaction_index
from fencepost.broker.log.producers.producer_state import Duplicate, ProducerState
from fencepost.broker.log.producers.producer_work import ProducerWork
from fencepost.broker.log.producers.verification import VerificationGuard
from fencepost.broker.log.reads.time_search import Search, find_first, find_latest
from fencepost.broker.log.recovery.recovery_mark import RecoveryMarks
from fencepost.broker.log.retention.log_retention import LogRetention
from fencepost.broker.log.segment.batch_scan import DamagedLogError
from fencepost.broker.log.segment.log_segments import CorruptTransactionIndexError, LogSegments
from fencepost.broker.log.segment.remote_segment import SegmentAwayError
from fencepost.broker.log.segment.segment import Segment, new_segment
from fencepost.broker.log.segment.segment_batches import NO_RECORDS
from fencepost.broker.log.segment.transaction_index import TransactionIndexEntry
from fencepost.broker.log.segment.unreadable_log import is_unreadable
from fencepost.broker.storage.disk import LogFile, NoRoomError, StorageError, UnexpectedFailureError
from fencepost.protocol.batch_run import BatchRun, BatchShape
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.record import PlainRecord
from fencepost.protocol.record_batch import (
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MARKER_BYTES,
    BatchHeader,
    build_end_transaction_marker,
    build_plain_batch,
    pack_prefix,
    read_header,
)

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

log = get_logger(__name__)

APPEND = Place("append to a log", Policy.FAIL_PARTITION)

TO_HIGH_WATERMARK = -1
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class PartitionLog:
    """The log of one partition: its offsets, appends and reads. Made by `LogDirectory`.

    config:             replaceable at any time; what it changes counts from the next call on.
    leader_epoch:       is written into every batch; may only rise.
    log_start_offset:   of the first record that may be read.
    log_end_offset:     that the next record will get.
    high_watermark:     up to which the log is durable; its end where the page cache is enough.
    last_stable_offset: up to which every transaction is decided; never above the high watermark.
    offline_reason:     why the log was given up, after a failed write or because it could not be recovered; else None.
    segment_opened_ms:  when the active segment was begun.
    deletable_end:      retention deletes no segment that reaches beyond it; None: all may be deleted.
    is_being_rewritten: whether the cleaner or a merge writes a segment that will replace others: one at a time.
    observer:           is notified of every marker, in the step that appends it.
    traffic:            counts since the log was opened, for metrics.

    Its parts know nothing of the log, or get it with each call: no cycle keeps a deleted log in memory.
    durability:    what the next sync takes, the waiters for it, and the recovery point.
    reports:       the events that the log reports about itself.
    producer_work: snapshots, expiry and listings of producers.
    marks:         places from which a recovery may read on.
    """

    observer: MarkerObserver | None = None
    deletable_end: int | None = None
    is_being_rewritten = False
    _rules: AppendRules | None = None
    _form: BatchShape | None = None  # of the run that was appended last, for the next is mostly like it
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
        self._flusher = flusher
        self._producers = producers
        self._epochs = epochs
        self._watchers = Watchers()
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

    # Append

    def append(
        self,
        batch: memoryview,
        *,
        now_ms: int,
        header: BatchHeader | None = None,
        guard: VerificationGuard | None = None,
        checked: CheckedLargeBatch | None = None,
    ) -> AppendResult:
        """Append a client's record batch at the end of the log and give its records their offsets.

        batch:  exactly one v2 batch, as sent; offset and leader epoch are overwritten, the rest is written as it is.
        header: of the batch, where it has been read already, and the batch is one of that size and of the v2 format.
        guard:  from `begin_verification`, where the batch had to be verified. What is not appended stays pending; in
                place of ANSWERED_AT_ONCE the caller then takes `keep_verification`, in this step.
        checked: the batch, where `LargeBatches.check` has checked it by `append_rules` as they were.
        Returns the offsets given; for a retry among the producer's last five batches, those given before. Durable only
        after `flushed`.
        Refuses, as a value: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE,
        INVALID_TIMESTAMP, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE. A refused batch
        leaves nothing behind, but for a new segment where it would not have fitted into the last one.
        Raises NoRoomError where the disk is full: nothing is left behind either. Raises StorageError if the file cannot
        be written for another reason; the partition is then offline. Raises TooLargeForOneStepError,
        and has done nothing, where it takes too long to check the batch in this step, or the rules are not any more
        what it was checked by.
        Source: KIP-98; Kafka's UnifiedLog.append and LogValidator.
        """
        rules = self.append_rules()
        if header is None:
            read = read_client_batch(batch)
            if isinstance(read, AppendResult):
                self._count_refused(read.error, len(batch))
                return read
            header = read
        if checked is None or checked.rules is not rules:
            prepared = prepare_client_batch(batch, header, rules, now_ms)
        else:
            prepared = finish_preparation(checked.batch, checked.header, rules, now_ms)
        if isinstance(prepared, AppendResult):
            self._count_refused(prepared.error, len(batch))
            return prepared
        header, rest = prepared
        size_bytes = header.batch_length + LENGTH_OVERHEAD_BYTES
        max_timestamp_ms = header.max_timestamp_ms
        is_of_producer = header.producer_id >= 0
        if is_of_producer:
            verdict = self._producers.check_data_batch(
                header, origin=CLIENT, guard=guard, verification_is_enabled=rules.verifies_transactions
            )
            if verdict is not NO_ERROR:
                self._roll_when_full(size_bytes, header.last_offset_delta, max_timestamp_ms, rules, now_ms)
                return self._refused_result(header, verdict)
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        prefix = pack_prefix(base_offset, header.batch_length, self.leader_epoch)
        try:
            self._write((prefix, *rest), size_bytes, last_offset, max_timestamp_ms, rules, now_ms)
            if is_of_producer:
                self._producers.apply_data_batch(
                    header, base_offset=base_offset, max_timestamp_ms=max_timestamp_ms, now_ms=now_ms
                )
            self._appended(rules)
        except StorageError:
            raise
        except BaseException as error:
            raise self.fail_append(error) from error
        append_time_ms = max_timestamp_ms if rules.uses_log_append_time else -1
        return AppendResult(NO_ERROR, base_offset, last_offset, append_time_ms, self.log_start_offset)

    def append_run(
        self, run: BatchRun, header: BatchHeader, *, now_ms: int, transactional_id: str = ""
    ) -> AppendedRun | None:
        """Append several batches of a client with one write, as `append` would one after the other, without a guard.

        run:    v2 batches of one size; where offset and leader epoch are in them, it is overwritten.
        header: of the first one.
        transactional_id: of transactional batches: the one under which their transaction was opened here.
        As many from the first on are appended as need no closer look; None, and nothing is done, where there are none:
        they are for `append`, which also reports what is wrong with one. Durable only after `flushed`.
        Raises StorageError; none of them is then in the log.
        """
        rules = self.append_rules()
        is_of_producer = header.producer_id >= 0
        owner = transactional_id if rules.verifies_transactions else None
        if is_of_producer and not self._producers.may_append_run(header, owner):
            return None
        form = self._form = form_for(run, header, self._form, rules, now_ms)
        if form is None:
            return None
        prepared = prepare_run(run, form, rules, now_ms)
        if prepared is None:
            return None
        run, times_ms = prepared
        appended = AppendedRun(run.batches_count, self.log_end_offset, form.records_count)
        active = self.segments.active
        size_bytes = run.batches_count * run.size_bytes
        batches = run.batches()
        try:
            if not active.has_room_for_run(
                run.batches_count, size_bytes, appended.end_offset - 1, max(times_ms), rules.segment_limits
            ):
                return None
            form.place(run, base_offset=appended.base_offset, partition_leader_epoch=self.leader_epoch)
            active.append_run(batches, appended.base_offsets, times_ms)
            self._epochs.assign(self.leader_epoch, appended.base_offset)
            self.log_end_offset = appended.end_offset
            if is_of_producer:
                for batch, base_offset in zip(batches, appended.base_offsets, strict=True):
                    one = read_header(batch)
                    self._producers.apply_data_batch(
                        one, base_offset=base_offset, max_timestamp_ms=one.max_timestamp_ms, now_ms=now_ms
                    )
            self._appended(rules)
        except NoRoomError as error:
            self.reports.no_room(error, now_ms)
            raise
        except StorageError as error:
            self.give_up(error)
            raise
        except BaseException as error:
            raise self.fail_append(error) from error
        return appended

    def append_records(
        self,
        records: Sequence[PlainRecord],
        *,
        now_ms: int,
        producer: tuple[int, int] | None = None,
        guard: VerificationGuard | None = None,
        is_awaited: bool = True,
    ) -> ErrorCode:
        """Append records of a coordinator of this broker, at least one, as one batch of this time.

        The first of them has the offset that was the end of the log.

        producer:   (id, epoch) of the transaction that they belong to. They carry no sequence.
        guard:      from `begin_verification`, where the transaction had to be verified.
        is_awaited: false if no caller awaits `flushed` soon: the records may become durable a little later then.
        Durable only after `flushed`.
        Refuses, as a value: MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE. Raises
        StorageError.
        """
        rules = self.append_rules()
        base_offset = self.log_end_offset
        batch = build_plain_batch(
            records,
            timestamp_ms=now_ms,
            base_offset=base_offset,
            partition_leader_epoch=self.leader_epoch,
            producer=producer,
            is_log_append_time=rules.uses_log_append_time,
        )
        size_bytes = len(batch)
        if size_bytes > rules.largest_batch_bytes:
            return too_large(size_bytes, rules).error
        header = None
        if producer is not None:
            header = read_header(batch)
            verdict = self._producers.check_data_batch(
                header,
                origin=AppendOrigin.COORDINATOR,
                guard=guard,
                verification_is_enabled=rules.verifies_transactions and guard is not None,
            )
            if verdict is not NO_ERROR:
                return self._refused_result(header, verdict).error
        try:
            self._write((batch,), size_bytes, base_offset + len(records) - 1, now_ms, rules, now_ms)
            if header is not None:
                self._producers.apply_data_batch(
                    header, base_offset=base_offset, max_timestamp_ms=now_ms, now_ms=now_ms
                )
            self._appended(rules, is_awaited=is_awaited)
        except StorageError:
            raise
        except BaseException as error:
            raise self.fail_append(error) from error
        return NO_ERROR

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        coordinator_epoch: int,
        transaction_version: int,
        now_ms: int,
    ) -> ErrorCode:
        """Append the marker that ends a producer's transaction in this partition, and notify the observer.

        A repeated marker is appended again and ends nothing.
        Returns NONE when it was appended. Refuses with INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED; a new
        segment may remain, as of a refused batch. Raises StorageError.
        Source: Kafka's ProducerAppendInfo.appendEndTxnMarker; KIP-98, KIP-890.
        """
        rules = self.append_rules()
        producers = self._producers
        error = producers.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
        if error is not NO_ERROR:
            self._roll_when_full(MARKER_BYTES, 0, now_ms, rules, now_ms)
            return error
        offset = self.log_end_offset
        marker = build_end_transaction_marker(
            producer_id,
            producer_epoch,
            committed,
            coordinator_epoch,
            now_ms,
            offset,
            self.leader_epoch,
            rules.uses_log_append_time,
        )
        # No limit on the size of a batch may hold a marker up: its transaction would stay open for ever.
        try:
            self._write((marker,), MARKER_BYTES, offset, now_ms, rules, now_ms)
            aborted = producers.apply_marker(
                producer_id,
                producer_epoch,
                committed,
                coordinator_epoch,
                offset,
                now_ms,
                now_ms,
                not rules.is_durable,
            )
            if aborted is not None:
                self._index_aborted(aborted)
            self._appended(rules)
        except StorageError:
            raise
        except BaseException as failure:
            raise self.fail_append(failure) from failure
        if self.observer is not None:
            self.observer.marker_appended(producer_id, producer_epoch, committed=committed, offset=offset)
        return NO_ERROR

    def _roll_when_full(
        self, size_bytes: int, last_offset_delta: int, max_timestamp_ms: int, rules: AppendRules, now_ms: int
    ) -> None:
        """Make room for a batch that its producer may not append, as Kafka does: it looks at the producer afterwards,
        and readers see where segments end."""
        last_offset = self.log_end_offset + last_offset_delta
        active = self.segments.active
        try:
            if not active.has_room_for(size_bytes, last_offset, max_timestamp_ms, rules.segment_limits):
                self.roll(now_ms)
        except NoRoomError as error:
            self.reports.no_room(error, now_ms)
            raise
        except StorageError as error:
            self.give_up(error)
            raise

    def append_rules(self) -> AppendRules:
        """What an append goes by; made anew when the config was replaced. Raises StorageError when offline."""
        if self.offline_reason is not None:
            self._require_online()
        rules = self._rules
        if rules is None or rules.config is not self.config:
            if self.is_moving:
                raise StorageError(f"{self.topic_partition} is moving to another node")
            rules = self._rules = AppendRules(self.config, self.topic_partition)
        return rules

    def begin_closing_to_move(self) -> None:
        """From now on refuse appends, also of requests that have found the log before; what was appended is synced."""
        self.is_moving = True
        self._rules = None  # so that `append_rules` notices, which costs other appends nothing

    def _write(
        self,
        buffers: tuple[bytes | bytearray | memoryview, ...],
        size_bytes: int,
        last_offset: int,
        max_timestamp_ms: int,
        rules: AppendRules,
        now_ms: int,
    ) -> None:
        """Write a batch that has passed all checks and has its offset, the next one, in one call."""
        try:
            limits = rules.segment_limits
            if not self.segments.active.append(buffers, size_bytes, last_offset, max_timestamp_ms, limits):
                self.roll(now_ms).append(buffers, size_bytes, last_offset, max_timestamp_ms, limits)
        except NoRoomError as error:
            self.reports.no_room(error, now_ms)
            raise
        except StorageError as error:
            self.give_up(error)
            raise
        if self.leader_epoch > self._epochs.latest:
            self._epochs.assign(self.leader_epoch, self.log_end_offset)
        self.log_end_offset = last_offset + 1

    def _appended(self, rules: AppendRules, *, is_awaited: bool = True) -> None:
        if rules.is_durable:
            if is_awaited:
                self._flusher.request(self)
            else:
                self._flusher.request_unawaited(self)
            self._update_stable()
        else:
            end_offset = self.high_watermark = self.log_end_offset
            self.last_stable_offset = self._producers.last_stable_offset(end_offset, self.log_start_offset)
            if self._watchers.has_any:
                self._watchers.notify()
            if end_offset - self.durability.flush_offset >= rules.flush_interval_messages:
                self.flush_soon()

    def _count_refused(self, error: ErrorCode, batch_bytes: int) -> None:
        self.refused_count += 1
        if error is ErrorCode.CORRUPT_MESSAGE:
            self.corrupt_batches_count += 1
        elif error in _TOO_LARGE:
            self.rejected_bytes += batch_bytes

    def _refused_result(self, header: BatchHeader, verdict: Duplicate | ErrorCode) -> AppendResult:
        if isinstance(verdict, Duplicate):
            return AppendResult(
                ErrorCode.NONE,
                verdict.base_offset,
                verdict.last_offset,
                verdict.max_timestamp_ms if self.config.uses_log_append_time else -1,
                self.log_start_offset,
                is_duplicate=True,
            )
        self._count_refused(verdict, 0)
        log.info(
            "batch_refused",
            topic=self.topic_partition.topic,
            partition=self.topic_partition.partition,
            error=verdict.name,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
        )
        return AppendResult(verdict, log_start_offset=self.log_start_offset)

    def _index_aborted(self, entry: TransactionIndexEntry) -> None:
        """Without its entry read_committed consumers would see the aborted records, so a failure is one of the log."""
        try:
            self.segments.active.transactions.append(entry)
        except StorageError as error:
            # Also where the disk is full: the marker has been written.
            self.give_up(error)
            raise StorageError(error.errno, str(error), error.filename, paths=error.paths) from error

    # Read

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        isolation: Isolation,
        minimum_one_batch: bool = True,
        is_lazy: bool = False,
    ) -> LogRead:
        """Whole batches of one segment as they lie on disk, from the one that holds `offset`, below the isolation's
        bound.

        Nothing to read is no error; `records` is then empty. With `minimum_one_batch` the first batch comes whole even
        if it alone is above `max_bytes`. With `is_lazy` large finds are not read before they are sent.
        Refuses, as a value: OFFSET_OUT_OF_RANGE; KAFKA_STORAGE_ERROR, also where a segment cannot be brought here;
        CORRUPT_MESSAGE where no batch begins, and what lies elsewhere stays readable. With LOG_END a log that cannot be
        read raises StorageError instead: a replay must not take a part for the whole. Where a segment is not on this
        node, nothing is found until it is here, which watchers are notified of; with LOG_END SegmentAwayError is
        raised. Where the first batch is above `max_bytes`, and left out, aborted transactions are not named.
        Source: Kafka's UnifiedLog.read, LocalLog.collectAbortedTransactions and ReplicaManager.readFromLog.
        """
        bound = self.bound(isolation)
        is_committed = isolation is Isolation.READ_COMMITTED
        result = LogRead(
            NO_RECORDS,
            self.high_watermark,
            self.last_stable_offset,
            self.log_start_offset,
            [] if is_committed else None,
        )
        if self.offline_reason is not None:
            if isolation is Isolation.LOG_END:
                self._require_online()
            result.error = ErrorCode.KAFKA_STORAGE_ERROR
        elif offset < self.log_start_offset or offset > self.log_end_offset:
            result.error = ErrorCode.OFFSET_OUT_OF_RANGE
        elif offset < bound:
            try:
                segment, found = self.segments.read(
                    offset, max_bytes, bound, minimum_one_batch=minimum_one_batch, is_lazy=is_lazy
                )
                records, end_position, file_slice = found
                result.records = records
                if file_slice is not None:
                    result.slice = file_slice
                    file_slice.failed = self._slice_failed
                if end_position < segment.batches.log.size_bytes and (records or file_slice):
                    result.is_cut_off = segment.batches.has_batch_below(bound, end_position)
                if is_committed:
                    if records or file_slice:
                        result.aborted_transactions = self.aborted_transactions(segment, offset, end_position)
                    elif max_bytes:
                        result.aborted_transactions = None
            except DamagedLogError as error:
                self.reports.damage(error)
                if isolation is Isolation.LOG_END:
                    raise
                result.records = NO_RECORDS
                result.error = ErrorCode.CORRUPT_MESSAGE
            except SegmentAwayError as away:
                if isolation is Isolation.LOG_END:
                    raise
                result.records, result.slice = NO_RECORDS, None
                result.error = away.begin_bringing()  # watchers are called when it is here
            except StorageError as error:
                self.give_up(error)
                if isolation is Isolation.LOG_END:
                    raise
                result.error = ErrorCode.KAFKA_STORAGE_ERROR
        return result

    def bound(self, isolation: Isolation) -> int:
        """Return the offset that a reader of this isolation does not reach."""
        if isolation is Isolation.READ_COMMITTED:
            return self.last_stable_offset
        return self.high_watermark if isolation is Isolation.READ_UNCOMMITTED else self.log_end_offset

    def _slice_failed(self, error: StorageError) -> None:
        """What was found could not be read when it was to be sent. Where its segment was deleted, the log is well."""
        if error.errno != errno.EBADF and not self.is_deleted:
            self.give_up(error)

    def aborted_transactions(self, segment: Segment, offset: int, end_position: int) -> list[AbortedRange]:
        """The aborted transactions with records from `offset` to a position in the segment, as
        `LogSegments.aborted_transactions` has them; an index that is damaged is written anew.
        """
        while True:
            try:
                return self.segments.aborted_transactions(segment, offset, end_position)
            except CorruptTransactionIndexError as error:
                usable_transaction_index(self.files, list(self.segments), error.segment)

    def header_at(self, offset: int) -> BatchHeader | None:
        """Read the header of the batch that holds an offset, below the log's end; None if there is none on this node.

        Raises StorageError; DamagedLogError where a batch on the way to it cannot be read.
        """
        self._require_online()
        if not self.log_start_offset <= offset < self.log_end_offset:
            return None
        try:
            segment, found = self.segments.read(offset, 0, self.log_end_offset, minimum_one_batch=False)
        except SegmentAwayError:
            return None
        header = segment.batches.log.read(found.end_position, HEADER_BYTES)
        return read_header(header) if len(header) == HEADER_BYTES else None

    def offset_for_timestamp(self, timestamp_ms: int, *, isolation: Isolation) -> Search[TimestampedOffset | None]:
        """Look for the first record whose timestamp is `timestamp_ms` or later; None when there is none below the
        bound.

        Raises StorageError; DamagedLogError where a batch on the way to it cannot be read.
        """
        while True:
            found = yield from self._search(lambda: find_first(self.segments, timestamp_ms, self.log_start_offset))
            if found is None or found.offset >= self.log_start_offset:
                return self._below_bound(found, isolation)

    def offset_of_max_timestamp(self, isolation: Isolation) -> Search[TimestampedOffset | None]:
        """Look for the first record with the greatest timestamp; None when that is not below the bound.

        Raises StorageError; DamagedLogError where a batch on the way to it cannot be read.
        """
        found = yield from self._search(lambda: find_latest(self.segments, self.log_start_offset))
        return self._below_bound(found, isolation)

    def _search(self, begin: Callable[[], Search[T]]) -> Search[T]:
        """Search the segments; from the beginning where some of them have left between two steps."""
        while True:
            self._require_online()
            departures_count = self.segments.departures_count
            search = begin()
            result = None
            while self.segments.departures_count == departures_count:
                try:
                    need = search.send(result)
                except StopIteration as end:
                    found: T = end.value
                    return found
                except DamagedLogError as error:
                    self.reports.damage(error)
                    raise
                except SegmentAwayError as away:
                    yield away
                    break
                result = yield need
                self._require_online()

    def _below_bound(self, found: TimestampedOffset | None, isolation: Isolation) -> TimestampedOffset | None:
        return found if found is not None and found.offset < self.bound(isolation) else None

    def epoch_starts(self, before_offset: int) -> list[EpochStart]:
        """The leader epochs that begin before an offset."""
        return [start for start in self._epochs.starts if start.start_offset < before_offset]

    def end_offset_for_leader_epoch(self, epoch: int) -> EpochEndOffset:
        """Where the largest leader epoch that is not above `epoch` ends; (-1, -1) when unknown."""
        return self._epochs.end_offset_for(epoch, self.leader_epoch, self.log_end_offset)

    # Producers

    def open_transactions(self) -> list[tuple[int, int]]:
        """The first offset and the producer id of each open transaction, the earliest first."""
        return self._producers.open_transactions()

    @property
    def has_open_transaction(self) -> bool:
        return self._producers.first_open_offset is not None

    def producer(self, producer_id: int) -> ActiveProducer | None:
        """One producer, as DescribeProducers shows it; None if the partition does not remember it."""
        return next(self._producers.active_producers((producer_id,)), None)

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
        """What a transactional batch needs before it may be appended: a guard, to be verified with the coordinator.

        in_this_step: whether the answer may be there at once. In transaction version 1 the guard is then
                      ANSWERED_AT_ONCE, unless one is pending already; without an answer, `keep_verification` is next.
        None when its transaction is already open here under this transactional id, or verification is switched off.
        Refuses with INVALID_PRODUCER_EPOCH. Source: KIP-890.
        """
        if not transaction_version_2 and not self.config.transaction_partition_verification_enable:
            return None
        return self._producers.begin_verification(
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
        """The guard in place of ANSWERED_AT_ONCE, where the batch is not appended in this step."""
        return self._producers.verifications.begin(
            producer_id,
            producer_epoch,
            base_sequence,
            transaction_version_2=False,
            transactional_id=transactional_id,
        )

    def know_owners(self, has_owner: Callable[[int], bool]) -> None:
        """Refuse batches outside transactions of producers that are new here, if their ids have an owner.

        has_owner: whether a producer id belongs to a transactional id; None if this node does not know.
        """
        self._producers.has_owner = has_owner

    def confirm_owner(self, producer_id: int, transactional_id: str) -> None:
        """Remember under which transactional id a producer's batch was verified, after its append."""
        self._producers.confirm_owner(producer_id, transactional_id)

    def withdraw_verification(self, producer_id: int, guard: VerificationGuard) -> None:
        """Forget a guard: the coordinator has said that the producer id is not of its transactional id."""
        self._producers.verifications.withdraw(producer_id, guard)

    def lead(self, leader_epoch: int) -> None:
        """Lead the partition in a new epoch: what was verified in an earlier one is verified again."""
        self.leader_epoch = max(self.leader_epoch, leader_epoch)
        self._producers.verifications.clear()

    def active_producers(self, now_ms: int) -> list[ActiveProducer]:
        """All producers that the partition remembers, as DescribeProducers shows them."""
        return run_to_end(self.active_producers_in_steps(now_ms))

    def active_producers_in_steps(self, now_ms: int) -> SlicedWork[list[ActiveProducer]]:
        """As `active_producers`, in time slices; each producer is shown as it is when its step comes."""
        return self.producer_work.active_producers_in_steps(now_ms, self.config.producer_id_expiration_ms)

    def producer_snapshots(self) -> list[ProducerSnapshot]:
        """What a snapshot of the producers would hold now."""
        return self._producers.snapshot()

    # Durability

    @property
    def is_shared(self) -> bool:
        """Whether the engine of a cluster makes the log durable, which may be away; else a sync does, which ends."""
        return self.durability.taken is not None

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
        if end_offset > self.durability.sync_target:  # otherwise the sync that runs covers it
            self._flusher.request(self)
        return self.durability.wait_for(end_offset)

    def flush_soon(self) -> None:
        """Request a sync of what has been appended, though no reply waits for it."""
        self.durability.require_flush(self.log_end_offset)
        self._flusher.request(self)

    @property
    def is_flushed_by_time(self) -> bool:
        """Whether the page cache is enough for an acknowledgement, but records are to be on disk in a given time."""
        config = self.config
        return config.flush_ms < MAX_INT64 and not config.is_durable

    def flush_by_time(self, now_ms: int) -> None:
        """Flush what has waited for its time, where that is given."""
        durability = self.durability
        if self.is_offline or self.is_deleted or now_ms - durability.flushed_ms < self.config.flush_ms:
            return
        durability.flushed_ms = now_ms
        if durability.recovery_point < self.log_end_offset:
            self.flush_soon()

    def begin_sync(self) -> FilesToSync:
        """Return to the flusher what is not on the disk yet."""
        if self.is_deleted:
            return FilesToSync((), ())
        return self.durability.begin_sync(self.segments, self.log_end_offset, is_durable=self.config.is_durable)

    def take_appended(self) -> list[AppendedBytes]:
        """Return to the flusher what the shared log has not been given yet."""
        if self.is_deleted or self.is_offline:
            return []
        return [
            AppendedBytes(
                self.topic_partition,
                self.topic_id,
                self.leader_epoch,
                segment.base_offset,
                position,
                segment.size_bytes - position,
                base_offset,
                segment.next_offset,
                segment.batches.log,
            )
            for segment, position, base_offset in self.durability.take_appended(self.segments)
        ]

    def end_sync(self, work: FilesToSync, error: StorageError | None) -> None:
        """Take note that what a `begin_sync` returned is on the disk, or never will be.

        After a failed sync the system may have dropped the bytes, and a second sync would not report it: the log goes
        offline.
        """
        for file in work.side_files:
            file.close()
        if self.is_offline or self.is_deleted:
            return
        if error is not None:
            self.give_up(error)
            return
        try:
            self.durability.finish_sync(work)
        except StorageError as failed:
            self.give_up(failed)
            return
        target = work.target
        if target > self.high_watermark:
            self.high_watermark = target
            self._update_stable()
            self.durability.resolve_waiters(target)
            self._watchers.notify()

    def sync_files_soon(self, side_files: Sequence[LogFile], segment: Segment) -> None:
        """Request a sync of files of one segment, which are closed afterwards; no reply waits for it."""
        self.durability.add_files(side_files, [self.files.directory], segment)
        self._flusher.request(self)

    def discard(self, segments: Sequence[Segment]) -> None:
        """Delete the files of segments that are not part of the log any more, after the next sync. Raises
        StorageError."""
        if self.durability.discard(segments):
            self._flusher.request(self)

    def _update_stable(self) -> None:
        self.last_stable_offset = self._producers.last_stable_offset(self.high_watermark, self.log_start_offset)

    # Offline

    def _require_online(self) -> None:
        if self.offline_reason is not None:
            raise StorageError(f"{self.topic_partition} is offline: {self.offline_reason}")

    def give_up(self, error: StorageError) -> None:
        """Take the log offline: nothing is appended or read any more, and all waiters are notified."""
        if self.offline_reason is None:
            self.offline_reason = str(error)
            self.reports.offline(error, high_watermark=self.high_watermark, log_end_offset=self.log_end_offset)
            self.durability.fail_waiters(f"{self.topic_partition} is offline: {error}")
            self._watchers.notify()

    def fail_append(self, error: BaseException) -> StorageError:
        """Take the log offline after an append failed that had begun to write: log and memory may differ.

        Returns what the append raises.
        """
        failure = UnexpectedFailureError("an append", error)
        APPEND.failed(error, concerns=self.topic_partition, on_failure=lambda _: self.give_up(failure))
        return failure

    # Segments that come and go

    def exchange(self, old: Segment, new: Segment) -> None:
        """Put a segment in place of its stand-in, or the other way round, and notify those that wait for its records.

        The caller closes the old one.
        """
        self.segments.replace([old], new)
        self._watchers.notify()

    # Watchers

    def add_watcher(self, callback: Callable[[], None]) -> None:
        """Call back when the high watermark or the last stable offset moved, or the log went offline or was deleted."""
        self._watchers.add(callback)

    def remove_watcher(self, callback: Callable[[], None]) -> None:
        self._watchers.remove(callback)

    # Log start and sweep

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
            self.raise_log_start(before_offset)
            self._watchers.notify()  # a fetch that waits below the new start waits in vain
        return ErrorCode.NONE

    def raise_log_start(self, offset: int) -> None:
        """Let the log begin at an offset; watchers are called if the last stable offset moves with it."""
        self.log_start_offset = offset
        self._epochs.truncate_from_start(offset)
        before = self.last_stable_offset
        self._update_stable()
        if self.last_stable_offset != before:
            self._watchers.notify()

    def sweep(self, now_ms: int, retention_interval_ms: int = 0) -> None:
        """Roll and delete old segments, expire producers, write what may wait: see `LogRetention.sweep`."""
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

        Raises NoRoomError; the active segment then goes on, and this can be tried again. Raises StorageError, also for
        an unexpected exception: half of it may be done then, so the log is to be given up.
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
            index_files = sealed.seal()  # its last step notes what the files are like: after that, nothing may fail
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
        self._flusher.request(self)
        if not has_few_producers:
            producer_work.write_snapshot_later(base_offset, self, lambda file: self.sync_files_soon([file], new))
        return new

    def write_epochs(self) -> None:
        """Write the leader epochs into their file if they have changed. Raises StorageError."""
        self.files.write_epochs(self._epochs)

    # Closing

    def prepare_close(self) -> SlicedWork[bool]:
        """Write what a clean start will need; nothing may be appended any more. Whether there is something to sync."""
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
        """Close the files; what was not synced before stays in the page cache."""
        self.producer_work.cancel()
        for segment in self.segments:
            segment.close()
        self.durability.close_discarded()

    def mark_deleted(self, reason: str = "has been deleted") -> None:
        """Close the files of a partition that was deleted, or that has moved away, and notify all waiters."""
        self.is_deleted = True
        self.offline_reason = self.offline_reason or f"the partition {reason}"
        self.close()
        self.durability.drop_side_files()
        self.durability.fail_waiters(f"{self.topic_partition} {reason}")
        self._watchers.notify()


def _undo_new_segment(new: Segment, error: NoRoomError) -> None:
    """Delete a segment that a failed roll has begun, or the next start would take it for the end of the log.

    Raises StorageError, no NoRoomError.
    """
    try:
        new.delete()
    except StorageError as failed:
        raise StorageError(failed.errno, f"{failed}, after {error}", failed.filename, paths=failed.paths) from failed
