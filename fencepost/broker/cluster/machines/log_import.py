"""Import of one log of a data directory: its segments become objects, byte for byte, and rows that name them.

The active segment is rolled first, so the log has no tail in the cluster. Offsets below its start or at its end that no
batch covers any more, as the records were deleted, get a batch without records: rows cover a log without gaps.
"""

from __future__ import annotations

import asyncio
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fencepost.broker.cluster.objects.checksums import checksum_of_file
from fencepost.broker.cluster.objects.names import LOG_SUFFIX
from fencepost.broker.cluster.postgres.import_rows import ImportedPartition, ImportRows
from fencepost.broker.cluster.remote.segment_objects import SegmentObjects, expected_checksum
from fencepost.broker.cluster.tail.tail_store import PartitionKey
from fencepost.broker.kernel.sliced_work import SLICE_S, run_in_slices
from fencepost.broker.log.append.skipped_offsets import skipped_spans
from fencepost.broker.log.files.checkpoints import encode_epochs
from fencepost.broker.log.files.file_names import file_name
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.producers.producer_replay import NEVER_EXPIRE_MS, replay, usable_transaction_index
from fencepost.broker.log.producers.producer_state import ProducerState
from fencepost.broker.log.segment.remote_segment import RemoteSegmentMetadata
from fencepost.broker.log.segment.segment import Segment
from fencepost.broker.storage.disk import Disk


class Span(NamedTuple):
    """Offsets of one segment of the cluster. segment: has their batches; None if there are none."""

    base_offset: int
    end_offset: int
    segment: Segment | None


def spans(log: PartitionLog) -> list[Span]:
    """Divide a log whose active segment is empty into segments without gaps."""
    end_offset = log.log_end_offset
    filled = [one for one in log.segments if one.size_bytes]
    if not end_offset:
        return []
    if not filled:
        return [Span(min(log.log_start_offset, end_offset - 1), end_offset, None)]
    first = filled[0].base_offset
    before = [Span(log.log_start_offset, first, None)] if log.log_start_offset < first else []
    ends = [*(one.base_offset for one in filled[1:]), end_offset]
    return before + [Span(one.base_offset, end, one) for one, end in zip(filled, ends, strict=True)]


class LogImport:
    """Imports logs, several at a time.

    stored: segments that an interrupted import has stored.
    uploaded_count: segments stored by this one. uploaded_bytes: of their log files. kept_count: segments found stored.
    """

    def __init__(
        self,
        objects: SegmentObjects,
        rows: ImportRows,
        disk: Disk,
        stored: dict[PartitionKey, list[RemoteSegmentMetadata]],
        *,
        now_ms: int,
    ) -> None:
        self.uploaded_count = 0
        self.uploaded_bytes = 0
        self.kept_count = 0
        self._objects = objects
        self._rows = rows
        self._disk = disk
        self._stored = stored
        self._now_ms = now_ms
        self._writing = asyncio.Lock()  # the connection takes one statement at a time

    async def add(self, log: PartitionLog, topic_id: bytes, *, cleaned_to: int) -> ImportedPartition:
        """Store a log. Raises ObjectStoreError; StorageError, also if the log is damaged."""
        if log.segments.active.size_bytes:
            log.roll(self._now_ms)
        key = PartitionKey(topic_id, log.topic_partition.partition)
        known = {one.base_offset: one for one in self._stored.pop(key, ())}
        found = []
        for span in spans(log):
            one = known.get(span.base_offset)
            if one is not None and await self._is_of(one, log, span):
                del known[span.base_offset]
                self.kept_count += 1
                found.append(one)
        async with self._writing:
            await self._rows.discard(key, known.values())
        kept = {one.base_offset: one for one in found}
        segments = [kept.get(span.base_offset) or await self._store(key, log, span) for span in spans(log)]
        return ImportedPartition(
            key,
            max(log.leader_epoch, 0),
            log.log_start_offset,
            encode_epochs(log.epoch_starts(log.log_end_offset)),
            cleaned_to,
            segments,
        )

    async def discard_others(self) -> None:
        """Remove the stored segments of partitions that are not there any more."""
        for key, segments in self._stored.items():
            await self._rows.discard(key, segments)
        self._stored.clear()

    async def _is_of(self, stored: RemoteSegmentMetadata, log: PartitionLog, span: Span) -> bool:
        """Whether a stored segment is that of a span: by its bytes, as compaction may have replaced it since."""
        if span.segment is None:
            return False
        place = (span.end_offset, span.segment.size_bytes, span.segment.transactions.exists)
        if place != (stored.end_offset, stored.size_bytes, stored.has_aborted):
            return False
        file = self._disk.open(span.segment.files.path(LOG_SUFFIX))
        try:
            return expected_checksum(stored, LOG_SUFFIX) == await run_in_slices(checksum_of_file(file), SLICE_S)
        finally:
            file.close()

    async def _store(self, key: PartitionKey, log: PartitionLog, span: Span) -> RemoteSegmentMetadata:
        await self._make_snapshot(log, span)
        if span.segment is None:
            stored = await self._store_empty(key, log, span)
        else:
            segment = span.segment
            _ = segment.indexes.offset_index  # rebuilt if it is missing
            if segment.transactions.exists:
                usable_transaction_index(log.files, list(log.segments), segment)
            sealed = RemoteSegmentMetadata(
                span.base_offset,
                span.end_offset,
                segment.size_bytes,
                segment.newest_record_ms,
                segment.transactions.exists,
                _epoch_at(log, span.end_offset),
                uuid.uuid4(),
            )
            stored = await self._objects.upload(key, sealed, log.files.directory)
        async with self._writing:
            await self._rows.add(key, stored)
        self.uploaded_count += 1
        self.uploaded_bytes += stored.size_bytes
        return stored

    async def _store_empty(self, key: PartitionKey, log: PartitionLog, span: Span) -> RemoteSegmentMetadata:
        """Store a segment of batches without records."""
        epoch = _epoch_at(log, span.end_offset)
        content = b"".join(
            one.batch(epoch, self._now_ms)
            for one in skipped_spans(span.base_offset, span.end_offset - span.base_offset)
        )
        snapshot = self._disk.read_file(log.files.snapshot_path(span.end_offset)) or b""
        sealed = RemoteSegmentMetadata(
            span.base_offset, span.end_offset, len(content), self._now_ms, False, epoch, uuid.uuid4()
        )
        with tempfile.TemporaryDirectory() as directory:
            for name, written in (
                (file_name(span.base_offset, LOG_SUFFIX), content),
                (file_name(span.base_offset, ".index"), b""),
                (file_name(span.base_offset, ".timeindex"), b""),
                (file_name(span.end_offset, ".snapshot"), snapshot),
            ):
                await asyncio.to_thread(Path(directory, name).write_bytes, written)
            return await self._objects.upload(key, sealed, directory)

    async def _make_snapshot(self, log: PartitionLog, span: Span) -> None:
        """Make the producers' state at the end of a segment, if the directory does not have it. Raises StorageError."""
        if span.end_offset in log.files.snapshot_offsets:
            return
        if span.end_offset == log.log_end_offset:
            (await run_in_slices(log.producer_work.write_snapshot_in_steps(span.end_offset), SLICE_S)).close()
            return
        producers = ProducerState()
        start_offset = log.segments.first.base_offset
        before = log.files.latest_snapshot(span.end_offset)
        if before is not None:
            producers.restore(before.producers, now_ms=self._now_ms, expiration_ms=NEVER_EXPIRE_MS)
            start_offset = max(start_offset, before.offset)
        segments: Sequence[Segment] = list(log.segments)
        for _ in replay(segments, producers, start_offset, span.end_offset, now_ms=self._now_ms):
            await asyncio.sleep(0)
        log.files.write_snapshot(span.end_offset, producers.snapshot()).close()


def _epoch_at(log: PartitionLog, end_offset: int) -> int:
    """The leader epoch of the last records before an offset."""
    epochs = log.epoch_starts(end_offset)
    return max(epochs[-1].leader_epoch, 0) if epochs else 0
