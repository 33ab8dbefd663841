"""Reads of one log: whole batches for consumers and replays, headers, and offsets by timestamp.

The functions are methods of `PartitionLog`, which they get with each call.
Source: Kafka's UnifiedLog.read, LocalLog.collectAbortedTransactions and ReplicaManager.readFromLog.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.files.partition_files import PartitionFiles
from fencepost.broker.log.log_reports import LogReports
from fencepost.broker.log.log_types import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    AbortedRange,
    EpochEndOffset,
    Isolation,
    LogRead,
    TimestampedOffset,
)
from fencepost.broker.log.producers.producer_replay import usable_transaction_index
from fencepost.broker.log.reads.time_search import Search, find_first, find_latest
from fencepost.broker.log.segment.batch_scan import DamagedLogError
from fencepost.broker.log.segment.log_segments import CorruptTransactionIndexError, LogSegments
from fencepost.broker.log.segment.remote_segment import SegmentNotLocalError
from fencepost.broker.log.segment.segment import Segment
from fencepost.broker.log.segment.segment_batches import NO_RECORDS
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import HEADER_BYTES, BatchHeader, read_header

T = TypeVar("T")


class ReadLog(Protocol):
    """The log, as reads see it."""

    segments: LogSegments
    files: PartitionFiles
    reports: LogReports
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    offline_reason: str | None
    is_deleted: bool

    def require_online(self) -> None:
        """Raises StorageError if the log is offline."""
        ...

    def give_up(self, error: StorageError) -> None:
        """Take the log offline."""
        ...


class FetchedLog(Protocol):
    """A log, as Fetch sees it: one that this node leads, or a read replica.

    is_replica: whether another node leads it, which may have more.
    """

    is_replica: bool
    topic_partition: TopicPartition
    topic_id: bytes
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    offline_reason: str | None
    is_deleted: bool
    failed_fetches_count: int
    fetches_count: int
    fetched_bytes: int

    @property
    def leader_epoch(self) -> int: ...

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        isolation: Isolation,
        minimum_one_batch: bool = True,
        is_lazy: bool = False,
    ) -> LogRead:
        """See `read`."""
        ...

    def bound(self, isolation: Isolation) -> int:
        """See `bound_of`."""
        ...

    def end_offset_for_leader_epoch(self, epoch: int) -> EpochEndOffset: ...

    def add_watcher(self, callback: Callable[[], None]) -> None: ...

    def remove_watcher(self, callback: Callable[[], None]) -> None: ...


def read(
    log: ReadLog,
    offset: int,
    max_bytes: int,
    *,
    isolation: Isolation,
    minimum_one_batch: bool = True,
    is_lazy: bool = False,
) -> LogRead:
    """Whole batches of one segment as they lie on disk, from the one that holds `offset`, below the isolation's bound.

    Nothing to read is no error; `records` is then empty. With `minimum_one_batch` the first batch comes whole even if
    it alone is above `max_bytes`. With `is_lazy` large finds are not read before they are sent.
    Refuses, as a value: OFFSET_OUT_OF_RANGE; KAFKA_STORAGE_ERROR, also if a segment cannot be fetched;
    CORRUPT_MESSAGE if no batch begins there; the rest of the log stays readable. With LOG_END a log that cannot be
    read raises StorageError instead: a replay must not take a part for the whole. If a segment is not on this node,
    nothing is found until it is here, and watchers are called then; with LOG_END SegmentNotLocalError is raised. If the
    first batch is above `max_bytes`, and left out, aborted transactions are not named.
    """
    bound = bound_of(log, isolation)
    is_committed = isolation is READ_COMMITTED
    aborted: list[AbortedRange] | None = [] if is_committed else None
    result = LogRead(NO_RECORDS, log.high_watermark, log.last_stable_offset, log.log_start_offset, aborted)
    if log.offline_reason is not None:
        if isolation is Isolation.LOG_END:
            log.require_online()
        result.error = ErrorCode.KAFKA_STORAGE_ERROR
    elif offset < log.log_start_offset or offset > log.log_end_offset:
        result.error = ErrorCode.OFFSET_OUT_OF_RANGE
    elif offset < bound:
        try:
            segment, found = log.segments.read(
                offset, max_bytes, bound, minimum_one_batch=minimum_one_batch, is_lazy=is_lazy
            )
            records, end_position, file_slice = found
            result.records = records
            if file_slice is not None:
                result.slice = file_slice
                file_slice.failed = partial(_slice_failed, log)
            if end_position < segment.batches.log.size_bytes and (records or file_slice):
                result.is_cut_off = segment.batches.has_batch_below(bound, end_position)
            if is_committed:
                if records or file_slice:
                    result.aborted_transactions = aborted_transactions(log, segment, offset, end_position)
                elif max_bytes:
                    result.aborted_transactions = None
        except (DamagedLogError, SegmentNotLocalError, StorageError) as error:
            _note_failure(log, result, error, isolation)
            if isolation is Isolation.LOG_END:
                raise
    return result


def _note_failure(
    log: ReadLog, result: LogRead, error: DamagedLogError | SegmentNotLocalError | StorageError, isolation: Isolation
) -> None:
    """Take note that the records could not be read; the result has none of them."""
    result.records, result.slice = NO_RECORDS, None
    if isinstance(error, DamagedLogError):
        log.reports.damage(error)
        result.error = ErrorCode.CORRUPT_MESSAGE
    elif isinstance(error, SegmentNotLocalError):
        if isolation is not Isolation.LOG_END:
            result.error = error.begin_fetch()  # watchers are called when it is here
    else:
        log.give_up(error)
        result.error = ErrorCode.KAFKA_STORAGE_ERROR


def bound_of(log: ReadLog, isolation: Isolation) -> int:
    """Return the offset that a reader of this isolation does not reach."""
    if isolation is READ_COMMITTED:
        return log.last_stable_offset
    return log.high_watermark if isolation is READ_UNCOMMITTED else log.log_end_offset


def _slice_failed(log: ReadLog, error: StorageError) -> None:
    """Take the log offline if a file slice could not be read at send time, unless its segment was deleted since."""
    if error.errno != errno.EBADF and not log.is_deleted:
        log.give_up(error)


def aborted_transactions(log: ReadLog, segment: Segment, offset: int, end_position: int) -> list[AbortedRange]:
    """The aborted transactions with records from `offset` to a position in the segment, as
    `LogSegments.aborted_transactions` has them; an index that is damaged is written anew.
    """
    while True:
        try:
            return log.segments.aborted_transactions(segment, offset, end_position)
        except CorruptTransactionIndexError as error:
            usable_transaction_index(log.files, list(log.segments), error.segment)


def header_at(log: ReadLog, offset: int) -> BatchHeader | None:
    """Read the header of the batch that holds an offset, below the log's end; None if there is none on this node.

    Raises StorageError; DamagedLogError where a batch on the way to it cannot be read.
    """
    log.require_online()
    if not log.log_start_offset <= offset < log.log_end_offset:
        return None
    try:
        segment, found = log.segments.read(offset, 0, log.log_end_offset, minimum_one_batch=False)
        header = segment.batches.log.read(found.end_position, HEADER_BYTES)
    except SegmentNotLocalError:
        return None
    return read_header(header) if len(header) == HEADER_BYTES else None


def offset_for_timestamp(log: ReadLog, timestamp_ms: int, *, isolation: Isolation) -> Search[TimestampedOffset | None]:
    """Look for the first record whose timestamp is `timestamp_ms` or later; None when there is none below the
    bound.

    Raises StorageError; DamagedLogError where a batch on the way to it cannot be read.
    """
    while True:
        found = yield from _search(log, lambda: find_first(log.segments, timestamp_ms, log.log_start_offset))
        if found is None or found.offset >= log.log_start_offset:
            return _below_bound(log, found, isolation)


def offset_of_max_timestamp(log: ReadLog, isolation: Isolation) -> Search[TimestampedOffset | None]:
    """Look for the first record with the greatest timestamp; None when that is not below the bound.

    Raises StorageError; DamagedLogError where a batch on the way to it cannot be read.
    """
    found = yield from _search(log, lambda: find_latest(log.segments, log.log_start_offset))
    return _below_bound(log, found, isolation)


def _search(log: ReadLog, begin: Callable[[], Search[T]]) -> Search[T]:
    """Search the segments; from the beginning if some of them have left between two steps."""
    while True:
        log.require_online()
        departures_count = log.segments.departures_count
        search = begin()
        result = None
        while log.segments.departures_count == departures_count:
            try:
                need = search.send(result)
            except StopIteration as end:
                found: T = end.value
                return found
            except DamagedLogError as error:
                log.reports.damage(error)
                raise
            except SegmentNotLocalError as remote:
                yield remote
                break
            result = yield need
            log.require_online()


def _below_bound(log: ReadLog, found: TimestampedOffset | None, isolation: Isolation) -> TimestampedOffset | None:
    return found if found is not None and found.offset < bound_of(log, isolation) else None
