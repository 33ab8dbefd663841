"""Appends to one log: of clients' batches, of coordinators' records, and of markers.

Each is one step without an await: check, assign offsets, and `_commit`: write, apply, request a sync. The functions are
methods of `PartitionLog`, which they get with each call.
Source: Kafka's UnifiedLog.append and ProducerAppendInfo.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from fencepost.broker.log.append.append_rules import AppendRules
from fencepost.broker.log.append.batch_validation import (
    finish_preparation,
    prepare_client_batch,
    too_large,
)
from fencepost.broker.log.append.large_batch_checks import CheckedLargeBatch
from fencepost.broker.log.append.run_validation import form_for, prepare_run
from fencepost.broker.log.append.skipped_offsets import SkippedSpan
from fencepost.broker.log.durability.flusher import Flusher, Syncable
from fencepost.broker.log.durability.log_durability import LogDurability
from fencepost.broker.log.durability.waiters import Watchers
from fencepost.broker.log.files.leader_epochs import LeaderEpochs
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.log_reports import LogReports
from fencepost.broker.log.log_types import CLIENT, AppendedRun, AppendOrigin, AppendResult, MarkerObserver
from fencepost.broker.log.producers.producer_state import Duplicate, ProducerState
from fencepost.broker.log.producers.verification import VerificationGuard
from fencepost.broker.log.segment.log_segments import LogSegments
from fencepost.broker.log.segment.segment import Segment, SegmentLimits
from fencepost.broker.log.segment.transaction_index import TransactionIndexEntry
from fencepost.broker.storage.disk import NoRoomError, StorageError
from fencepost.protocol.batch_run import BatchRun, BatchShape
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.record import PlainRecord
from fencepost.protocol.record_batch import (
    LENGTH_OVERHEAD_BYTES,
    MARKER_BYTES,
    BatchHeader,
    build_end_transaction_marker,
    build_plain_batch,
    pack_prefix,
    read_header,
)

_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class AppendedLog(Syncable, Protocol):
    """The log, as appends see it.

    rules:    of its config; None until the next append, and while the log takes none: it is offline, or moves.
    run_form: of the run that was appended last, for the next is mostly like it.
    """

    config: LogConfig
    is_moving: bool
    leader_epoch: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    segments: LogSegments
    producers: ProducerState
    epochs: LeaderEpochs
    flusher: Flusher
    watchers: Watchers
    durability: LogDurability
    reports: LogReports
    observer: MarkerObserver | None
    rules: AppendRules | None
    run_form: BatchShape | None
    refused_count: int
    rejected_bytes: int
    corrupt_batches_count: int

    def require_online(self) -> None:
        """Raises StorageError if the log is offline."""
        ...

    def roll(self, now_ms: int) -> Segment:
        """Seal the active segment and start a new one. Raises StorageError."""
        ...

    def flush_soon(self) -> None:
        """Request a sync of the appended records, though no reply waits for it."""
        ...

    def fail_append(self, error: BaseException) -> StorageError:
        """Take the log offline; return the error that the append raises."""
        ...


def append_rules(log: AppendedLog) -> AppendRules:
    """Return the rules of an append. Raises StorageError if the log takes none."""
    rules = log.rules
    if rules is None:
        log.require_online()
        if log.is_moving:
            raise StorageError(f"{log.topic_partition} is moving to another node")
        rules = log.rules = AppendRules(log.config, log.topic_partition)
    return rules


def append(
    log: AppendedLog,
    batch: memoryview,
    *,
    now_ms: int,
    header: BatchHeader | None = None,
    guard: VerificationGuard | None = None,
    checked: CheckedLargeBatch | None = None,
) -> AppendResult:
    """Append a client's record batch at the end of the log and give its records their offsets.

    batch:   exactly one v2 batch, as sent; offset and leader epoch are overwritten, the rest is written as it is.
    header:  result of `read_client_batch`, if it has been called.
    guard:   result of `begin_verification`, if the batch had to be verified. It stays pending if the batch is not
             appended; in place of ANSWERED_AT_ONCE the caller then takes `keep_verification`, in this step.
    checked: the batch, if `LargeBatches.check` has checked it by `append_rules` as they were.
    Returns the offsets given; for a retry among the producer's last five batches, those given before. Durable only
    after `flushed`. Refuses, as a value, as `prepare_client_batch` and `ProducerState.check_data_batch` do; at most
    a new segment remains of a refused batch, if it did not fit into the last one.
    Raises NoRoomError if the disk is full: nothing remains. Raises StorageError if the write fails otherwise; the
    partition is then offline. Raises TooLargeForOneStepError, and has done nothing, if the check takes too long for
    this step, or the rules have changed since `checked`.
    """
    rules = log.rules or append_rules(log)
    if checked is None or checked.rules is not rules:
        prepared = prepare_client_batch(batch, header, rules, now_ms)
    else:
        prepared = finish_preparation(checked.batch, checked.header, rules, now_ms)
    if isinstance(prepared, AppendResult):
        return _refused(log, prepared, len(batch))
    header, rest = prepared
    size_bytes = header.batch_length + LENGTH_OVERHEAD_BYTES
    base_offset = log.log_end_offset
    last_offset = base_offset + header.last_offset_delta
    timestamp_ms = header.max_timestamp_ms
    apply = None
    if header.producer_id >= 0:
        verdict = log.producers.check_data_batch(
            header, origin=CLIENT, guard=guard, verification_is_enabled=rules.verifies_transactions
        )
        if verdict is not NO_ERROR:
            _roll_when_full(log, size_bytes, last_offset, timestamp_ms, rules, now_ms)
            return _refused_by_producer(log, header, verdict)
        apply = partial(
            log.producers.apply_data_batch,
            header,
            base_offset=base_offset,
            max_timestamp_ms=timestamp_ms,
            now_ms=now_ms,
        )
    buffers = (pack_prefix(base_offset, header.batch_length, log.leader_epoch), *rest)
    written = (buffers, size_bytes, last_offset, timestamp_ms, rules.segment_limits)
    _commit(log, rules, Segment.append, written, apply, last_offset + 1, now_ms)
    append_time_ms = timestamp_ms if rules.uses_log_append_time else -1
    return AppendResult(NO_ERROR, base_offset, last_offset, append_time_ms, log.log_start_offset)


def append_run(
    log: AppendedLog, run: BatchRun, header: BatchHeader, *, now_ms: int, transactional_id: str = ""
) -> AppendedRun | None:
    """Append several batches of a client with one write, as `append` would one after the other, without a guard.

    run:    v2 batches of one size; their offsets and leader epochs are overwritten.
    header: header of the first one.
    transactional_id: id under which the transaction of transactional batches was opened here.
    As many from the first on are appended as need no closer check; None, and nothing is done, if there are none: they
    are for `append`, which also reports the fault of one. Durable only after `flushed`.
    Raises StorageError; none of them is then in the log.
    """
    rules = log.rules or append_rules(log)
    is_of_producer = header.producer_id >= 0
    owner = transactional_id if rules.verifies_transactions else None
    if is_of_producer and not log.producers.may_append_run(header, owner):
        return None
    form = log.run_form = form_for(run, header, log.run_form, rules, now_ms)
    if form is None:
        return None
    prepared = prepare_run(run, form, rules, now_ms)
    if prepared is None:
        return None
    run, times_ms = prepared
    batches = run.batches()
    appended = AppendedRun(len(batches), log.log_end_offset, form.records_count)
    written = (log, run, batches, form, appended, times_ms, rules.segment_limits)
    apply = partial(_apply_run, log.producers, batches, appended, now_ms) if is_of_producer else None
    return appended if _commit(log, rules, _write_run, written, apply, appended.end_offset, now_ms) else None


def append_records(
    log: AppendedLog,
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
    guard:      result of `begin_verification`, if the transaction had to be verified.
    is_awaited: false if no caller awaits `flushed` soon: the records may become durable a little later then.
    Durable only after `flushed`.
    Refuses, as a value: MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE. Raises
    StorageError.
    """
    rules = log.rules or append_rules(log)
    base_offset = log.log_end_offset
    batch = build_plain_batch(
        records,
        timestamp_ms=now_ms,
        base_offset=base_offset,
        partition_leader_epoch=log.leader_epoch,
        producer=producer,
        is_log_append_time=rules.uses_log_append_time,
    )
    size_bytes = len(batch)
    if size_bytes > rules.largest_batch_bytes:
        return too_large(size_bytes, rules).error
    apply = None
    if producer is not None:
        header = read_header(batch)
        verdict = log.producers.check_data_batch(
            header,
            origin=AppendOrigin.COORDINATOR,
            guard=guard,
            verification_is_enabled=rules.verifies_transactions and guard is not None,
        )
        if verdict is not NO_ERROR:
            return _refused_by_producer(log, header, verdict).error
        apply = partial(
            log.producers.apply_data_batch, header, base_offset=base_offset, max_timestamp_ms=now_ms, now_ms=now_ms
        )
    last_offset = base_offset + len(records) - 1
    written = ((batch,), size_bytes, last_offset, now_ms, rules.segment_limits)
    _commit(log, rules, Segment.append, written, apply, last_offset + 1, now_ms, is_awaited)
    return NO_ERROR


def append_marker(
    log: AppendedLog,
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
    rules = log.rules or append_rules(log)
    producers = log.producers
    error = producers.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
    offset = log.log_end_offset
    if error is not NO_ERROR:
        _roll_when_full(log, MARKER_BYTES, offset, now_ms, rules, now_ms)
        return error
    marker = build_end_transaction_marker(
        producer_id,
        producer_epoch,
        committed,
        coordinator_epoch,
        now_ms,
        offset,
        log.leader_epoch,
        rules.uses_log_append_time,
    )

    # No limit on the size of a batch may hold a marker up: its transaction would stay open for ever.
    _commit(
        log,
        rules,
        Segment.append,
        ((marker,), MARKER_BYTES, offset, now_ms, rules.segment_limits),
        partial(
            producers.apply_marker,
            producer_id,
            producer_epoch,
            committed,
            coordinator_epoch,
            offset,
            now_ms,
            now_ms,
            not rules.is_durable,
        ),
        offset + 1,
        now_ms,
    )
    if log.observer is not None:
        log.observer.marker_appended(producer_id, producer_epoch, committed=committed, offset=offset)
    return NO_ERROR


def skip_offsets(log: AppendedLog, spans: Iterable[SkippedSpan], *, now_ms: int) -> None:
    """Append batches without records that take the next offsets: readers pass over them, and nobody gets them again.

    spans: those of `skipped_spans` from the end of the log on. Each begins a segment: the records that follow
           are in the last one, so no retention deletes that one while it keeps a record behind it.
    Raises StorageError.
    """
    rules = log.rules or append_rules(log)
    for span in spans:
        assert span.base_offset == log.log_end_offset, "the spans follow the log"
        if log.segments.active.size_bytes:
            log.roll(now_ms)
        batch = span.batch(log.leader_epoch, now_ms)
        written = ((batch,), len(batch), span.end_offset - 1, now_ms, rules.segment_limits)
        _commit(log, rules, Segment.append, written, None, span.end_offset, now_ms)


# The one way into the log


def _commit(
    log: AppendedLog,
    rules: AppendRules,
    write: Callable[..., bool],
    written: tuple[Any, ...],
    apply: Callable[[], TransactionIndexEntry | None] | None,
    end_offset: int,
    now_ms: int,
    is_awaited: bool = True,
) -> bool:
    """Write checked batches, which have the next offsets; apply them to the producers; request a sync.

    write:      called with a segment and with `written`; returns False if that does not fit into the segment. A run
                goes into no new segment: this returns False then, and nothing is done.
    apply:      returns the transaction that was aborted, if one was.
    end_offset: end of the log afterwards.
    Raises NoRoomError if nothing was written for lack of room. After any other error log and memory may differ: the log
    is offline by then, and StorageError is raised.
    """
    try:
        if not write(log.segments.active, *written):
            if write is _write_run:
                return False
            write(log.roll(now_ms), *written)
        if log.leader_epoch > log.epochs.latest:
            log.epochs.assign(log.leader_epoch, log.log_end_offset)
        log.log_end_offset = end_offset
        if apply is not None:
            aborted = apply()
            if aborted is not None:
                # Without its entry read_committed consumers would see the aborted records.
                log.segments.active.transactions.append(aborted)
        if rules.is_durable:
            if is_awaited:
                log.flusher.request(log)
            else:
                log.flusher.request_unawaited(log)
            log.last_stable_offset = log.producers.last_stable_offset(log.high_watermark, log.log_start_offset)
        else:
            _end_without_a_sync(log, rules)
    except NoRoomError as error:
        if log.log_end_offset == end_offset:  # it was written
            log.give_up(error)
            raise StorageError(error.errno, str(error), error.filename, paths=error.paths) from error
        log.reports.no_room(error, now_ms)
        raise
    except StorageError as error:
        log.give_up(error)
        raise
    except BaseException as error:
        raise log.fail_append(error) from error
    return True


def _end_without_a_sync(log: AppendedLog, rules: AppendRules) -> None:
    """Let the high watermark follow at once, as the page cache is enough; request the flush that is due."""
    end_offset = log.high_watermark = log.log_end_offset
    log.last_stable_offset = log.producers.last_stable_offset(end_offset, log.log_start_offset)
    if log.watchers.has_any:
        log.watchers.notify()
    if end_offset - log.durability.flush_offset >= rules.flush_interval_messages:
        log.flush_soon()


def _write_run(
    active: Segment,
    log: AppendedLog,
    run: BatchRun,
    batches: Sequence[memoryview],
    form: BatchShape,
    appended: AppendedRun,
    times_ms: Sequence[int],
    limits: SegmentLimits,
) -> bool:
    """Write the batches in one call; False if they do not fit into the active segment."""
    count = len(batches)
    if not active.has_room_for_run(count, count * run.size_bytes, appended.end_offset - 1, max(times_ms), limits):
        return False
    form.place(run, base_offset=appended.base_offset, partition_leader_epoch=log.leader_epoch)
    active.append_run(batches, appended.base_offsets, times_ms)
    return True


def _apply_run(producers: ProducerState, batches: Sequence[memoryview], appended: AppendedRun, now_ms: int) -> None:
    for batch, base_offset in zip(batches, appended.base_offsets, strict=True):
        header = read_header(batch)
        producers.apply_data_batch(
            header, base_offset=base_offset, max_timestamp_ms=header.max_timestamp_ms, now_ms=now_ms
        )


def _roll_when_full(
    log: AppendedLog, size_bytes: int, last_offset: int, max_timestamp_ms: int, rules: AppendRules, now_ms: int
) -> None:
    """Make room for a batch that its producer may not append, as Kafka does: it looks at the producer afterwards, and
    readers see where segments end."""
    try:
        if not log.segments.active.has_room_for(size_bytes, last_offset, max_timestamp_ms, rules.segment_limits):
            log.roll(now_ms)
    except NoRoomError as error:
        log.reports.no_room(error, now_ms)
        raise
    except StorageError as error:
        log.give_up(error)
        raise


# Refusals


def _refused(log: AppendedLog, result: AppendResult, batch_bytes: int) -> AppendResult:
    """Count a batch that was refused."""
    log.refused_count += 1
    if result.error is ErrorCode.CORRUPT_MESSAGE:
        log.corrupt_batches_count += 1
    elif result.error in _TOO_LARGE:
        log.rejected_bytes += batch_bytes
    return result


def _refused_by_producer(log: AppendedLog, header: BatchHeader, verdict: Duplicate | ErrorCode) -> AppendResult:
    """The result of a batch that the producers' state does not take: a repeated one, or one to refuse."""
    if isinstance(verdict, Duplicate):
        return AppendResult(
            ErrorCode.NONE,
            verdict.base_offset,
            verdict.last_offset,
            verdict.max_timestamp_ms if log.config.uses_log_append_time else -1,
            log.log_start_offset,
            is_duplicate=True,
        )
    log.reports.refused(header, verdict)
    return _refused(log, AppendResult(verdict, log_start_offset=log.log_start_offset), 0)
