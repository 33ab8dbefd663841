"""Lags of groups in records that a consumer can still get, without markers and aborted records.

Counting reads the headers of batches. So each scrape counts a bounded number of batches, and while the group's position
stays, the next scrape continues there. Batches not yet counted add their offsets, which are never fewer than their
records, without those that a restored log has left out. The lag of a group that stands still is exact after a few
scrapes, however large it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from fencepost.broker.kernel.sliced_work import SlicedWork
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.reads.readable_records import count_readable_records, count_skipped_offsets
from fencepost.broker.log.segment.batch_scan import DamagedLogError
from fencepost.broker.storage.disk import StorageError
from fencepost.diagnosis.lag import NO_TIME_MS, Lag, Offsets, ReadableRecords, lag_of

BATCHES_PER_STEP: Final = 50
"""Their headers take some 0.3 ms."""
BATCHES_PER_LAG: Final = 200
BATCHES_PER_READ: Final = 20_000
"""Bound for all lags together; each gets a step even if others have used them up."""


class LogOffsets(NamedTuple):
    """The offsets of a log at one moment."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int

    @property
    def of_readers(self) -> Offsets:
        return Offsets(self.log_start_offset, self.last_stable_offset, self.high_watermark)


def offsets_of(log: PartitionLog) -> LogOffsets:
    return LogOffsets(log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset)


class CommittedOffset(NamedTuple):
    """A group's committed offset in a partition that is led here. offsets: the log's, read after it."""

    group_id: str
    topic_partition: TopicPartition
    offset: int
    log: PartitionLog
    offsets: LogOffsets

    @property
    def end_lag(self) -> int:
        """Offsets from the committed one to the high watermark, as all tools show it."""
        return max(0, self.offsets.high_watermark - self.offset)


class GroupLag(NamedTuple):
    """The lag of a group in a partition.

    seconds: the age of the first record that the group has not consumed, by the time of its batch; 0.0 without one,
             None if it is unknown.
    """

    committed: CommittedOffset
    lag: Lag
    seconds: float | None


class _Counted(NamedTuple):
    """departures_count: the log's count of removed segments, which compaction and retention raise."""

    records: ReadableRecords
    departures_count: int


class GroupLags:
    """Reads lags, and remembers the counts of the last read."""

    def __init__(self) -> None:
        self._counted: dict[tuple[PartitionLog, int], _Counted] = {}
        self._counted_before: dict[tuple[PartitionLog, int], _Counted] = {}

    def read(self, committed: Iterable[CommittedOffset], now_ms: int) -> SlicedWork[Sequence[GroupLag]]:
        """Read all lags of the node; positions that are not among them are forgotten."""
        self._counted_before, self._counted = self._counted, {}
        return (yield from self.read_some(committed, now_ms))

    def read_some(self, committed: Iterable[CommittedOffset], now_ms: int) -> SlicedWork[Sequence[GroupLag]]:
        """Read lags; forget nothing."""
        found: list[GroupLag] = []
        batches_left = BATCHES_PER_READ
        for one in committed:
            offsets = one.offsets
            position = offsets.of_readers.position(one.offset)
            readable: ReadableRecords | None = ReadableRecords(0, position, NO_TIME_MS)
            if position < offsets.last_stable_offset:
                most_batches = max(BATCHES_PER_STEP, min(BATCHES_PER_LAG, batches_left))
                used_count, readable = yield from self._count(one, position, most_batches)
                batches_left -= used_count
            found.append(_group_lag(one, position, readable, now_ms))
            yield
        return found

    def _count(
        self, one: CommittedOffset, position: int, most_batches: int
    ) -> SlicedWork[tuple[int, ReadableRecords | None]]:
        """Continue the count from a position; return how many batches were allowed for it, and the count."""
        log, end_offset = one.log, one.offsets.last_stable_offset
        key = (log, position)
        counted = self._counted.get(key) or self._counted_before.get(key)
        departures_count = log.segments.departures_count
        records = ReadableRecords(0, position, NO_TIME_MS)
        if counted is not None and counted.departures_count == departures_count:
            records = counted.records
        used_count = 0
        while records.next_offset < end_offset and used_count < most_batches:
            if used_count:
                yield
            try:
                more = count_readable_records(log, records.next_offset, end_offset, BATCHES_PER_STEP)
            except (StorageError, DamagedLogError):
                more = None
            if more is None:
                return used_count, None
            used_count += BATCHES_PER_STEP
            records = records.followed_by(more)
        self._counted[key] = _Counted(records, departures_count)
        return used_count, records


def _group_lag(one: CommittedOffset, position: int, readable: ReadableRecords | None, now_ms: int) -> GroupLag:
    stable = one.offsets.last_stable_offset
    skipped_count = 0
    if readable is not None and readable.next_offset < stable:
        with contextlib.suppress(StorageError, DamagedLogError):
            skipped_count = count_skipped_offsets(one.log, readable.next_offset, stable)
    lag = lag_of(one.offset, one.offsets.of_readers, readable, skipped_count=skipped_count)
    if readable is None:
        return GroupLag(one, lag, None)
    first_ms = readable.first_ms
    if not readable.records_count:
        if not lag.deliverable and not lag.blocked:
            return GroupLag(one, lag, 0.0)
        first_ms = _time_at(one.log, max(position, readable.next_offset))
    return GroupLag(one, lag, None if first_ms < 0 else max(0, now_ms - first_ms) / 1000)


def _time_at(log: PartitionLog, offset: int) -> int:
    try:
        header = log.header_at(offset)
    except (StorageError, DamagedLogError):
        return NO_TIME_MS
    return NO_TIME_MS if header is None else header.max_timestamp_ms
