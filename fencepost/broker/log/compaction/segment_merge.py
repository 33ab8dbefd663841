"""Merging: small sealed neighbours of a log become one segment, batch for batch as they are.

Many small segments cost more than few large ones if each is several objects. Compacted logs need no merging: the
cleaner puts small remains together.
"""

from __future__ import annotations

from fencepost.broker.log.compaction.rewriting import Rewriting, RewritingAbandonedError
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.producers.producer_replay import usable_transaction_index
from fencepost.broker.log.segment.segment import Segment
from fencepost.broker.log.segment.transaction_index import TransactionIndexEntry


async def merge_segments(partition_log: PartitionLog, start_offset: int, end_offset: int) -> Segment | None:
    """Merge the sealed segments that begin in a range of offsets; return the one that has taken their place.

    They are fetched first, if they are not on this node. Returns None if there are not two of them any more.
    Raises RewritingAbandonedError, and StorageError when reading or writing fails; the log is then still usable, or
    offline.
    """
    rewriting = Rewriting(partition_log)
    group = await rewriting.local_segments(start_offset, end_offset)
    if len(group) < 2:
        return None
    aborted: list[TransactionIndexEntry] = []
    written = rewriting.begin(group[0].base_offset)
    try:
        for segment in group:
            async for _, batch in rewriting.batches(segment):
                header = batch.header
                written.append((batch.buffer,), header.size_bytes, header.last_offset, header.max_timestamp_ms)
            rewriting.require_segments(group)
            if segment.transactions.exists:
                index = usable_transaction_index(partition_log.files, list(partition_log.segments), segment)
                aborted += [index[slot] for slot in range(len(index))]
        if written.size_bytes != sum(segment.size_bytes for segment in group):
            raise RewritingAbandonedError(f"{partition_log.topic_partition} cannot be read as a whole")
        await rewriting.replace(group, written, aborted)
    finally:
        rewriting.discard(written)
    return written
