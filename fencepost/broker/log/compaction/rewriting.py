"""Rewriting: sealed neighbours of a log become one segment, which is written beside them and takes their place in one
step.

It often yields to the event loop, and the log stays readable and writable. The caller chooses the records to write: the
cleaner leaves some out, a merge none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from fencepost.broker.log.files.file_names import file_name
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.segment.remote_segment import RemoteSegment
from fencepost.broker.log.segment.segment import Segment
from fencepost.broker.log.segment.segment_files import forget_segments
from fencepost.broker.log.segment.swap import CLEANED_SUFFIX, SWAP_SUFFIX, TRANSACTIONS_CLEANED_SUFFIX, finish_swap
from fencepost.broker.log.segment.tail_scan import checked_batches
from fencepost.broker.log.segment.transaction_index import TransactionIndex, TransactionIndexEntry
from fencepost.broker.storage.disk import LogFile, StorageError, UnexpectedFailureError
from fencepost.protocol.record_batch import RecordBatch

RECORDS_PER_SLICE = 300


class RewritingAbandonedError(Exception):
    """The log has changed, or cannot be read as expected; the new files were removed."""


class Rewriting:
    """The work on the segments of one log."""

    def __init__(self, partition_log: PartitionLog) -> None:
        self._log = partition_log
        self._files = partition_log.files
        self._disk = partition_log.files.disk
        self._slice_records = 0
        self._swapped: Segment | None = None  # the last one whose swap has begun

    async def local_segments(self, start_offset: int, end_offset: int) -> list[Segment]:
        """Return the sealed segments that begin in a range; fetch those that are remote. Raises StorageError,
        RewritingAbandonedError."""
        while True:
            found = [one for one in self._log.segments.sealed if start_offset <= one.base_offset < end_offset]
            remote = [segment for segment in found if isinstance(segment, RemoteSegment)]
            if not remote:
                return found
            for segment in remote:
                await segment.fetch()
                self.require_segments([])

    async def batches(self, segment: Segment) -> AsyncIterator[tuple[int, RecordBatch]]:
        """Yield the batches of a segment with their positions, in time slices. Raises RewritingAbandonedError."""
        end_position = 0
        order = segment.batches.order_from_start()
        for position, batch in checked_batches(segment.batches.log, order):
            yield position, batch
            end_position = position + batch.header.size_bytes
            self._slice_records += 1 + batch.header.records_count
            if self._slice_records >= RECORDS_PER_SLICE:
                self._slice_records = 0
                await asyncio.sleep(0)
                self.require_segments([segment])
        if end_position != segment.size_bytes:
            raise RewritingAbandonedError(
                f"{segment.files.path('.log')} cannot be read from position {end_position} on"
            )

    def require_segments(self, segments: Sequence[Segment]) -> None:
        """Require the segments to be unchanged: the log may have been deleted, taken offline or cut by retention
        meanwhile. Raises RewritingAbandonedError."""
        if self._log.is_deleted or self._log.is_offline or self._log.is_moving:
            raise RewritingAbandonedError(f"{self._log.topic_partition} is not there any more")
        present = set(self._log.segments)
        if any(segment not in present for segment in segments):
            raise RewritingAbandonedError(f"{self._log.topic_partition} has been cut from its start")

    # The new segment

    def begin(self, base_offset: int) -> Segment:
        """Make the segment to write into, which the caller replaces others by or discards. Raises StorageError, and
        RewritingAbandonedError while the log is being rewritten."""
        if self._log.is_being_rewritten:
            raise RewritingAbandonedError(f"{self._log.topic_partition} is being rewritten already")
        self._disk.delete(self._files.path(file_name(base_offset, CLEANED_SUFFIX)))
        begun = Segment(
            self._disk,
            self._files.directory,
            base_offset,
            next_offset=base_offset,
            index_interval_bytes=self._log.config.index_interval_bytes,
            may_skip=True,
            log_suffix=CLEANED_SUFFIX,
            checksums=self._files.checksums,
        )
        self._log.is_being_rewritten = True
        return begun

    async def replace(
        self, group: Sequence[Segment], written: Segment, aborted: Sequence[TransactionIndexEntry]
    ) -> None:
        """Put the written segment in place of neighbours. aborted: its transaction index. Raises StorageError,
        RewritingAbandonedError; the caller discards it in any case."""
        written.batches.log.set_last_write_ms(max(segment.batches.log.last_write_ms() for segment in group))
        forgotten = forget_segments(self._files.checksums, [segment.base_offset for segment in group])
        await self._sync(written, aborted, forgotten=[forgotten])
        self.require_segments(group)
        # From here to the replacement in memory there is no await: files and segments change together.
        self._swapped = written
        self._log.sync_files_soon(self._swap(group, written, aborted), written)

    def discard(self, written: Segment) -> None:
        """End the rewriting: remove the new files, unless they have replaced others. Raises StorageError."""
        self._log.is_being_rewritten = False
        if written is self._swapped:
            return
        written.close()
        for suffix in (TRANSACTIONS_CLEANED_SUFFIX, CLEANED_SUFFIX):
            self._disk.delete(self._files.path(file_name(written.base_offset, suffix)))

    async def _sync(
        self, written: Segment, aborted: Sequence[TransactionIndexEntry], *, forgotten: Sequence[LogFile]
    ) -> None:
        """Sync the new files, under names that do not count yet, and close them."""
        files = [written.batches.log, *forgotten]
        if aborted:
            path = self._files.path(file_name(written.base_offset, TRANSACTIONS_CLEANED_SUFFIX))
            self._disk.delete(path)
            aborted_file = self._disk.open(path)
            aborted_file.append(b"".join(entry.to_bytes() for entry in aborted))
            files.append(aborted_file)
        await self._disk.sync(files, [self._files.directory])
        for file in files:
            file.close()

    def _swap(
        self, group: Sequence[Segment], written: Segment, aborted: Sequence[TransactionIndexEntry]
    ) -> list[LogFile]:
        """Replace the old segments by the new one; `broker.log.segment.swap` gives the reasons for the order.

        Returns the new index files, to be synced and closed.
        """
        try:
            written.files.rename(CLEANED_SUFFIX, SWAP_SUFFIX)
            for segment in group:
                segment.close()
            finish_swap(self._files, written.base_offset, [segment.base_offset for segment in group])
            written.batches.reopen()
            index = TransactionIndex()
            for entry in aborted:
                index.append(entry)
            written.transactions.adopt(index)
            self._log.segments.replace(group, written)
            self._files.keep_snapshots([segment.base_offset for segment in self._log.segments])
            return written.seal()
        except StorageError as error:
            self._log.give_up(error)
            raise
        except BaseException as error:
            self._log.give_up(UnexpectedFailureError("the swap of rewritten segments", error))
            raise
