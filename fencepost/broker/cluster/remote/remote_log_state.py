"""The logs that a node leads, each with its part in the shared store.

A segment of a log is known by its object in memory: compaction puts another in its place, of the same offsets perhaps.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, Protocol

from fencepost.broker.cluster.remote.segment_rows import Leadership, LogStart, RemoteLogMetadata, RemoteLogRows
from fencepost.broker.cluster.remote.upload_plan import RolledSegment, TailOfLog
from fencepost.broker.cluster.tail.tail_store import PartitionKey, StoreUnavailableError, Tenure
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.durability.waiters import Watchers
from fencepost.broker.log.files.checkpoints import encode_epochs
from fencepost.broker.log.files.partition_files import PartitionFiles
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.segment.log_segments import LogSegments
from fencepost.broker.log.segment.remote_segment import RemoteSegment, RemoteSegmentMetadata
from fencepost.broker.log.segment.segment import Segment
from fencepost.broker.storage.disk import StorageError

LOGS_PER_SLICE: Final = 200
"""Logs examined in one step of the event loop, which takes some 2 ms."""
READ_TOGETHER_COUNT: Final = 500
"""Partitions whose rows are read with one statement."""


class FetchedLog(Protocol):
    """A log, as fetches of its segments see it: see `PartitionLog`."""

    topic_partition: TopicPartition
    topic_id: bytes
    is_deleted: bool
    segments: LogSegments
    files: PartitionFiles
    watchers: Watchers

    @property
    def config(self) -> LogConfig: ...

    def exchange(self, old: Segment, new: Segment) -> None: ...

    def give_up(self, error: StorageError) -> None: ...


class FetchedLogs(Protocol):
    """The open logs."""

    def get(self, topic_partition: TopicPartition) -> FetchedLog | None: ...


class FetchedLogState(Protocol):
    """The part of a log in the shared store: see `RemoteLogState`."""

    @property
    def log(self) -> FetchedLog: ...

    @property
    def stored(self) -> dict[Segment, RemoteSegmentMetadata]: ...

    @property
    def is_led(self) -> bool: ...

    def forget_departed(self) -> None: ...


class FetchedLogStates(Protocol):
    """These parts of all open logs."""

    def get(self, topic_partition: TopicPartition) -> FetchedLogState | None: ...

    def each(self) -> AsyncIterator[FetchedLogState]: ...


class RemoteLogState:
    """One log that is led here.

    leadership: the fence and leader epoch under which this node changes its rows.
    rows:       rows of its sealed segments, by base offset.
    stored:     its segments that are in the store as they are now, with their rows.
    stable_end: offset in its last row; see `RemoteSegmentMetadata`.
    """

    def __init__(self, log: PartitionLog, leadership: Leadership, rows: RemoteLogRows) -> None:
        self.log = log
        self.key = PartitionKey(log.topic_id, log.topic_partition.partition)
        self.leadership = leadership
        self.rows = {one.base_offset: one for one in rows.segments}
        self.sealed_end = rows.sealed_end
        self.stable_end = rows.segments[-1].stable_end if rows.segments else None
        self.log_start_offset = rows.log_start_offset
        self.cleaned_to = rows.cleaned_to
        self.stored: dict[Segment, RemoteSegmentMetadata] = {}
        for segment in log.segments.sealed:
            row = self.rows.get(segment.base_offset)
            if row is not None and _is_of(segment, row, self.end_of(segment)):
                self.stored[segment] = row
        log.deletable_end = self.sealed_end

    @property
    def is_led(self) -> bool:
        """Whether the log is still open."""
        return not self.log.is_deleted and not self.log.is_moving and not self.log.is_offline

    def end_of(self, segment: Segment) -> int:
        """Where the next segment begins."""
        following = self.log.segments.next_base_offset(segment)
        return self.log.log_end_offset if following is None else following

    def tail(self, now_ms: int) -> TailOfLog:
        """The part of the log that is not in the store, or is there in an older form."""
        log = self.log
        rolled = []
        for segment in log.segments.sealed:
            if segment not in self.stored and segment.size_bytes:
                end_offset = self.end_of(segment)
                has_snapshot = end_offset in log.files.snapshot_offsets or self.row_up_to(end_offset) is not None
                is_ready = end_offset <= log.high_watermark and has_snapshot
                is_in_tail = end_offset > self.sealed_end
                rolled.append(RolledSegment(segment.base_offset, segment.size_bytes, is_ready, is_in_tail))
        active = log.segments.active
        return TailOfLog(log.topic_partition, active.size_bytes, now_ms - log.segment_opened_ms, rolled)

    def row_up_to(self, end_offset: int) -> RemoteSegmentMetadata | None:
        """The stored segment that ends at an offset: it has the producers' state there."""
        return next((one for one in self.rows.values() if one.end_offset == end_offset), None)

    def epochs(self, end_offset: int) -> bytes:
        """The leader epochs up to an offset, or up to the sealed end if that is above it, as stored."""
        return encode_epochs(self.log.epoch_starts(max(end_offset, self.sealed_end)))

    def replaced(self, segment: Segment, sealed: RemoteSegmentMetadata) -> None:
        """Note that a segment has been stored, in place of all rows between its offsets."""
        for base_offset in [one for one in self.rows if sealed.base_offset <= one < sealed.end_offset]:
            del self.rows[base_offset]
        self.rows[sealed.base_offset] = sealed
        self.stored[segment] = sealed
        self.sealed_end = max(self.sealed_end, sealed.end_offset)
        if sealed.end_offset == self.sealed_end:
            self.stable_end = sealed.stable_end
        self.log.deletable_end = self.sealed_end

    def forget_departed(self) -> None:
        """Forget segments that are not part of the log any more."""
        present = set(self.log.segments)
        for segment in [one for one in self.stored if one not in present]:
            del self.stored[segment]

    def log_start(self, cleaned_offset: int) -> LogStart | None:
        """The log's start and the end of its compacted part, if they are not stored yet, or leave rows without use.

        cleaned_offset: end of the compacted part here; it counts only if all segments below are stored.
        """
        cleaned_to = cleaned_offset if self._is_stored_below(cleaned_offset) else self.cleaned_to
        first_base = self.log.segments.first.base_offset
        bound = min(first_base, self.log.log_start_offset)
        has_garbage = any(one.end_offset <= bound and one.end_offset < self.sealed_end for one in self.rows.values())
        is_stored = self.log.log_start_offset <= self.log_start_offset and cleaned_to <= self.cleaned_to
        if is_stored and not has_garbage:
            return None
        return LogStart(self.leadership, self.log.log_start_offset, first_base, cleaned_to)

    def _is_stored_below(self, offset: int) -> bool:
        return all(
            one in self.stored for one in self.log.segments.sealed if one.base_offset < offset and one.size_bytes
        )

    def started(self, start: LogStart) -> None:
        """Note that a start has been stored."""
        self.log_start_offset = max(self.log_start_offset, start.log_start_offset)
        self.cleaned_to = max(self.cleaned_to, start.cleaned_to)
        bound = min(start.first_base, start.log_start_offset)
        for base_offset, one in list(self.rows.items()):
            if one.end_offset <= bound and one.end_offset < self.sealed_end:
                del self.rows[base_offset]


class RemoteLogStates:
    """All logs that are led here.

    leader_epoch_of: the epoch in which this node leads a partition, by the placement; None if it does not.
    """

    def __init__(
        self,
        logs: LogDirectory,
        table: RemoteLogMetadata,
        tenure: Tenure,
        leader_epoch_of: Callable[[TopicPartition], int | None],
    ) -> None:
        self._logs = logs
        self._table = table
        self._tenure = tenure
        self._leader_epoch_of = leader_epoch_of
        self._kept: dict[TopicPartition, RemoteLogState] = {}

    async def each(self) -> AsyncIterator[RemoteLogState]:
        """Iterate over the logs that are led, with a pause for other work after some of them."""
        for count, (name, kept) in enumerate(list(self._kept.items()), 1):
            if self._kept.get(name) is kept:
                yield kept
            if count % LOGS_PER_SLICE == 0:
                await asyncio.sleep(0)

    def get(self, topic_partition: TopicPartition) -> RemoteLogState | None:
        """The log of a partition, if it is still led as it was when its rows were read."""
        kept = self._kept.get(topic_partition)
        if kept is None or not self._is_current(kept):
            return None
        return kept

    def log_start(self, kept: RemoteLogState) -> LogStart | None:
        """See `RemoteLogState.log_start`."""
        return kept.log_start(self._logs.cleaned_offset(kept.log.topic_partition))

    async def store_log_starts(self, names: Iterable[TopicPartition]) -> None:
        """Store the starts of logs, so that a later leader has them. Raises StorageError."""
        try:
            await self.refresh()
            starts = {}
            for name in names:
                kept = self.get(name)
                if kept is None:
                    raise StorageError(f"{name} is not led here any more")
                start = self.log_start(kept)
                if start is not None:
                    starts[kept.key] = (kept, start)
            done = await self._table.raise_log_starts({key: start for key, (_, start) in starts.items()})
        except StoreUnavailableError as error:
            raise StorageError(f"the new starts of logs cannot be stored: {error}") from error
        for key, (kept, start) in starts.items():
            if key not in done:
                raise StorageError(f"{kept.log.topic_partition} is not led here any more")
            kept.started(start)

    def forget(self, topic_partition: TopicPartition) -> None:
        """Forget a log: its rows are read again."""
        self._kept.pop(topic_partition, None)

    async def refresh(self) -> None:
        """Forget logs that are not led any more, and read the rows of those that are new. Raises
        StoreUnavailableError."""
        async for kept in self.each():
            if self._is_current(kept):
                kept.forget_departed()
            else:
                del self._kept[kept.log.topic_partition]
        unknown = [one for one in self._logs.logs() if one.topic_partition not in self._kept and not one.is_offline]
        for start in range(0, len(unknown), READ_TOGETHER_COUNT):
            await self._read(unknown[start : start + READ_TOGETHER_COUNT])

    async def _read(self, unknown: list[PartitionLog]) -> None:
        led = {}
        for log in unknown:
            epoch = self._leader_epoch_of(log.topic_partition)
            if epoch is not None:
                leadership = Leadership(self._tenure.node_id, self._tenure.fence, epoch)
                led[PartitionKey(log.topic_id, log.topic_partition.partition)] = (log, leadership)
        found = await self._table.read(list(led))
        for key, rows in found.items():
            log, leadership = led[key]
            kept = RemoteLogState(log, leadership, rows)
            if self._is_current(kept):
                self._kept[log.topic_partition] = kept
                self._logs.note_cleaned(log.topic_partition, rows.cleaned_to)

    def _is_current(self, kept: RemoteLogState) -> bool:
        name = kept.log.topic_partition
        return (
            kept.is_led
            and self._logs.get(name) is kept.log
            and self._tenure.fence == kept.leadership.fence
            and self._leader_epoch_of(name) == kept.leadership.leader_epoch
        )


def _is_of(segment: Segment, row: RemoteSegmentMetadata, end_offset: int) -> bool:
    if isinstance(segment, RemoteSegment):
        return segment.sealed.object_id == row.object_id
    return (segment.size_bytes, end_offset) == (row.size_bytes, row.end_offset)
