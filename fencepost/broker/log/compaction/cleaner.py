"""Cleaner: rewrites the sealed segments of compacted logs, so that only the newest record of each key is left.

It runs as one task and often yields to the event loop. The log stays readable and writable: new segments are written
beside the old ones and replace them in one step.
Source: Kafka's LogCleaner, Cleaner and LogCleanerManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.sliced_work import SHORT_SLICE_S, SlicedWork, run_in_slices, run_to_end
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.kernel.threads import on_a_thread
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.compaction.compaction import CleanedTransactions, OffsetMap, RetentionRules
from fencepost.broker.log.compaction.rewriting import RECORDS_PER_SLICE, Rewriting, RewritingAbandonedError
from fencepost.broker.log.files.checkpoints import CorruptCheckpointError, decode_offsets, encode_offsets
from fencepost.broker.log.files.durable_file import replace_durably
from fencepost.broker.log.files.small_file import read_small
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.producers.producer_replay import usable_transaction_index
from fencepost.broker.log.segment.header_plausibility import MAX_RELATIVE_OFFSET
from fencepost.broker.log.segment.segment import Segment
from fencepost.broker.log.segment.transaction_index import TransactionIndexEntry
from fencepost.broker.storage.disk import Disk, StorageError
from fencepost.protocol.compression import Codec, TooLargeForOneStepError, decompress
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.record_batch import (
    HEADER_BYTES,
    RecordBatch,
    read_header,
    read_records,
)
from fencepost.protocol.retained_records import compressed_and_sealed, retention_steps

log = get_logger(__name__)

CLEANER = Place("cleaner", Policy.RETRY)
CLEANING = Place("cleaning of a log", Policy.RETRY)

OFFSET_MAP_BYTES = 128 * 1024 * 1024
COMPRESSED_AT_ONCE_BYTES = 64 * 1024
"""The most bytes left of a batch that are compressed in a step; more are compressed on a thread."""
T = TypeVar("T")


def _unreadable(segment: Segment, position: int, error: DecodeError) -> RewritingAbandonedError:
    path = segment.files.path(".log")
    return RewritingAbandonedError(f"{path} holds records at position {position} that cannot be read: {error}")


class DirtyRange(NamedTuple):
    """The offsets that a pass may clean: from the end of the last pass to the first offset that must stay.

    ratio:  dirty bytes of all that could be cleaned.
    is_due: whether the ratio, or the age of dirty records, requires a pass.
    """

    start_offset: int
    end_offset: int
    ratio: float
    is_due: bool


def dirty_range(partition_log: PartitionLog, cleaned_offset: int, now_ms: int) -> DirtyRange:
    """Return the range to clean in a log whose last pass ended at `cleaned_offset`.

    Never the active segment, nothing at or above the last stable offset, nothing younger than `min.compaction.lag.ms`.
    """
    config = partition_log.config
    segments = partition_log.segments
    start_offset = max(cleaned_offset, segments.first.base_offset)
    if start_offset > partition_log.log_end_offset:
        start_offset = segments.first.base_offset
    end_offset = segments.active.base_offset
    clean_bytes = dirty_bytes = 0
    oldest_dirty_ms: int | None = None
    for segment in segments.sealed:
        following_offset = segments.next_base_offset(segment) or partition_log.log_end_offset
        is_dirty = following_offset > start_offset
        lag_ms = config.min_compaction_lag_ms
        is_too_young = is_dirty and lag_ms > 0 and segment.newest_record_ms > now_ms - lag_ms
        if following_offset > partition_log.last_stable_offset or is_too_young:
            end_offset = segment.base_offset
            break
        if not is_dirty:
            clean_bytes += segment.size_bytes
            continue
        dirty_bytes += segment.size_bytes
        if oldest_dirty_ms is None:
            oldest_dirty_ms = segment.batches.first_timestamp_ms
            if oldest_dirty_ms is not None and oldest_dirty_ms < 0:
                oldest_dirty_ms = segment.newest_record_ms
    if not dirty_bytes:
        return DirtyRange(start_offset, start_offset, 0.0, is_due=False)
    ratio = dirty_bytes / (clean_bytes + dirty_bytes)
    is_overdue = oldest_dirty_ms is not None and now_ms - oldest_dirty_ms > config.max_compaction_lag_ms
    return DirtyRange(start_offset, end_offset, ratio, ratio > config.min_cleanable_dirty_ratio or is_overdue)


class LogCleaning:
    """One pass over one log."""

    def __init__(
        self, partition_log: PartitionLog, dirty: DirtyRange, *, now_ms: int, map_bytes: int = OFFSET_MAP_BYTES
    ) -> None:
        self._log = partition_log
        self._files = partition_log.files
        self._rewriting = Rewriting(partition_log)
        self._dirty = dirty
        self._now_ms = now_ms
        self._map = OffsetMap(map_bytes)

    async def run(self) -> int:
        """Clean; return the offset up to which the log is clean now.

        Raises RewritingAbandonedError, and StorageError when writing fails; the log is then still usable, or offline.
        """
        candidates = await self._rewriting.local_segments(0, self._dirty.end_offset)
        await self._build_map(candidates)
        segments = [segment for segment in candidates if segment.base_offset < self._map.end_offset]
        last_records = await run_in_slices(self._log.producer_work.last_records_in_steps(), SHORT_SLICE_S)
        self._rewriting.require_segments(segments)
        rules = RetentionRules(
            self._map,
            self._aborted(0, self._dirty.end_offset),
            last_records,
            delete_retention_ms=self._log.config.delete_retention_ms,
            now_ms=self._now_ms,
        )
        size_before_bytes = sum(segment.size_bytes for segment in segments)
        size_after_bytes = 0
        for group in self._groups(segments):
            size_after_bytes += await self._clean_group(group, rules)
        await run_in_slices(self._map.clearing_steps(), SHORT_SLICE_S)
        log.info(
            "log_cleaned",
            topic=self._log.topic_partition.topic,
            partition=self._log.topic_partition.partition,
            segments=len(segments),
            size_before_bytes=size_before_bytes,
            size_after_bytes=size_after_bytes,
            cleaned_offset=self._map.end_offset,
        )
        return self._map.end_offset

    async def _content(self, batch: RecordBatch) -> bytes | None:
        """Return the records of a batch, decompressed; on a thread if that takes long. None if they cannot be:
        the reader of the records then raises."""
        header, compressed = batch.header, batch.buffer[HEADER_BYTES:]
        try:
            codec = header.codec
            return bytes(decompress(codec, compressed, is_one_step=True))
        except DecodeError:
            return None
        except TooLargeForOneStepError:
            pass
        try:
            return await on_a_thread(lambda: bytes(decompress(codec, compressed)))
        except DecodeError:
            return None

    @staticmethod
    async def _done(batch: RecordBatch, steps: SlicedWork[T]) -> T:
        """Work on the records of a batch: in one step if they are few, else in slices."""
        if batch.header.records_count <= RECORDS_PER_SLICE:
            return run_to_end(steps)
        return await run_in_slices(steps, SHORT_SLICE_S)

    # Which records are the newest

    async def _build_map(self, segments: Sequence[Segment]) -> None:
        start_offset = self._dirty.start_offset
        transactions = CleanedTransactions(self._aborted(start_offset, self._dirty.end_offset))
        for segment in segments:
            if segment.next_offset <= start_offset:
                continue
            async for position, batch in self._rewriting.batches(segment):
                header = batch.header
                if header.last_offset < start_offset:
                    continue
                try:
                    if header.is_control:
                        transactions.is_superfluous_marker(batch, [])
                    elif not transactions.is_aborted_data(header):
                        records = read_records(batch, content=await self._content(batch))
                        if not await self._done(batch, self._map.add_batch(records, start_offset)):
                            return
                except DecodeError as error:
                    raise _unreadable(segment, position, error) from error
                self._map.end_offset = header.last_offset + 1
        self._map.end_offset = self._dirty.end_offset

    def _aborted(self, start_offset: int, end_offset: int) -> list[TransactionIndexEntry]:
        """Return the aborted transactions that overlap a range; their markers may be behind it."""
        segments = list(self._log.segments)
        aborted: list[TransactionIndexEntry] = []
        for segment in segments:
            if segment.transactions.exists and segment.next_offset > start_offset:
                index = usable_transaction_index(self._files, segments, segment)
                entries = (index[slot] for slot in range(len(index)))
                aborted.extend(
                    entry for entry in entries if entry.first_offset < end_offset and entry.last_offset >= start_offset
                )
        return aborted

    # Rewriting

    def _groups(self, segments: Sequence[Segment]) -> Iterator[list[Segment]]:
        """Group neighbours that fit into one segment, so that many small remains become few segments."""
        limit_bytes = self._log.config.segment_bytes
        group: list[Segment] = []
        group_bytes = 0
        for segment in segments:
            is_near = not group or segment.next_offset - group[0].base_offset <= MAX_RELATIVE_OFFSET
            if group and not (is_near and group_bytes + segment.size_bytes <= limit_bytes):
                yield group
                group, group_bytes = [], 0
            group.append(segment)
            group_bytes += segment.size_bytes
        if group:
            yield group

    async def _clean_group(self, group: Sequence[Segment], rules: RetentionRules) -> int:
        """Rewrite some segments into one; return its size."""
        cleaned = self._rewriting.begin(group[0].base_offset)
        kept_aborted: list[TransactionIndexEntry] = []
        try:
            if await self._rewrite(group, rules, cleaned, kept_aborted) or len(group) > 1:
                await self._rewriting.replace(group, cleaned, kept_aborted)
        finally:
            self._rewriting.discard(cleaned)
        return cleaned.size_bytes

    async def _rewrite(
        self,
        group: Sequence[Segment],
        rules: RetentionRules,
        cleaned: Segment,
        kept_aborted: list[TransactionIndexEntry],
    ) -> bool:
        """Write the kept records; return whether they differ from those before."""
        is_changed = False
        for segment in group:
            async for position, batch in self._rewriting.batches(segment):
                header = batch.header
                is_last = segment is group[-1] and position + header.size_bytes == segment.size_bytes
                try:
                    content = await self._content(batch)
                    retained = await self._done(batch, rules.retain(batch, content, kept_aborted, is_last=is_last))
                except DecodeError as error:
                    raise _unreadable(segment, position, error) from error
                if retained is None:
                    is_changed = True
                elif retained.records is None:
                    cleaned.append((batch.buffer,), header.size_bytes, header.last_offset, header.max_timestamp_ms)
                else:
                    is_changed = True
                    steps = retention_steps(batch, retained.records, delete_horizon_ms=retained.delete_horizon_ms)
                    kept_header, section = await self._done(batch, steps)
                    if len(section) > COMPRESSED_AT_ONCE_BYTES and kept_header.codec is not Codec.NONE:
                        buffer = await on_a_thread(partial(compressed_and_sealed, kept_header, section))
                    else:
                        buffer = compressed_and_sealed(kept_header, section)
                    self._rewriting.require_segments(group)
                    cleaned.append((buffer,), len(buffer), header.last_offset, read_header(buffer).max_timestamp_ms)
        return is_changed


class Cleaner:
    """Cleans the compacted logs of one directory, one at a time, the dirtiest first.

    checkpoint_path: records up to which offset each log is clean; without it logs are cleaned from their start again.
    """

    def __init__(self, checkpoint_path: str, *, disk: Disk, clock: Clock) -> None:
        self._checkpoint_path = checkpoint_path
        self._disk = disk
        self._clock = clock
        self._cleaned_offsets: dict[TopicPartition, int] = {}
        self._in_file: Collection[TopicPartition] = ()  # the partitions that the file may have a line of
        self._replacing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def load(self) -> None:
        """Read the checkpoint. Raises StorageError."""
        try:
            content = read_small(self._disk, self._checkpoint_path)
            self._cleaned_offsets = decode_offsets(content) if content is not None else {}
        except CorruptCheckpointError as error:
            log.warning("checkpoint_corrupt", path=self._checkpoint_path, reason=str(error))
        self._in_file = set(self._cleaned_offsets)

    def start(self, logs: Iterable[PartitionLog]) -> None:
        """Clean the logs that are due, in the background; does nothing while a pass runs."""
        if self._task is None or self._task.done():
            compacted = [partition_log for partition_log in logs if partition_log.config.is_compacted]
            if self._dirtiest(compacted) is not None:
                self._task = CLEANER.start(self._clean(compacted))

    async def close(self) -> None:
        """Stop; a running pass is discarded."""
        await end_tasks(self._task)
        self._task = None

    def cleaned_offset(self, topic_partition: TopicPartition) -> int:
        """The offset up to which this node knows a log to be clean; 0 if it knows of none."""
        return self._cleaned_offsets.get(topic_partition, 0)

    def note_cleaned(self, topic_partition: TopicPartition, offset: int) -> None:
        """Note up to which offset the last leader has cleaned a log."""
        if offset > self.cleaned_offset(topic_partition):
            self._cleaned_offsets[topic_partition] = offset

    def forget(self, topic_partition: TopicPartition) -> None:
        """Forget a deleted partition: its name may return with other records."""
        self._cleaned_offsets.pop(topic_partition, None)

    async def remove_leftovers(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Remove partitions from the checkpoint before new ones take their names: of those nothing is clean.

        Raises StorageError.
        """
        async with self._replacing:
            if any(name in self._in_file for name in topic_partitions):
                for name in topic_partitions:
                    self.forget(name)
                await replace_durably(self._disk, self._checkpoint_path, encode_offsets(self._cleaned_offsets))
                self._in_file = set(self._cleaned_offsets)

    def _dirtiest(self, logs: list[PartitionLog]) -> tuple[PartitionLog, DirtyRange] | None:
        """Return the log to clean next. Removes from `logs` those whose dirty range cannot be computed."""
        now_ms = self._clock.now_ms()
        due: list[tuple[PartitionLog, DirtyRange]] = []
        for partition_log in tuple(logs):
            if partition_log.is_offline or partition_log.is_deleted:
                continue
            topic_partition = partition_log.topic_partition
            try:
                dirty = dirty_range(partition_log, self._cleaned_offsets.get(topic_partition, 0), now_ms)
            except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
                CLEANING.failed(error, concerns=topic_partition)
                logs.remove(partition_log)
                continue
            if dirty.is_due:
                due.append((partition_log, dirty))
        return max(due, key=lambda candidate: candidate[1].ratio, default=None)

    async def _clean(self, logs: list[PartitionLog]) -> None:
        while (found := self._dirtiest(logs)) is not None:
            partition_log, dirty = found
            topic_partition = partition_log.topic_partition
            try:
                cleaned_offset = await LogCleaning(partition_log, dirty, now_ms=self._clock.now_ms()).run()
                if not partition_log.is_deleted:
                    self._cleaned_offsets[topic_partition] = cleaned_offset
                    content = encode_offsets(self._cleaned_offsets)
                    self._disk.write_file(self._checkpoint_path, content, durable=False)
                    self._in_file = set(self._cleaned_offsets)
            except (RewritingAbandonedError, DecodeError, StorageError) as error:
                logs.remove(partition_log)
                log.warning(
                    "cleaning_abandoned",
                    topic=topic_partition.topic,
                    partition=topic_partition.partition,
                    reason=str(error),
                )
            except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
                logs.remove(partition_log)
                CLEANING.failed(error, concerns=topic_partition)
