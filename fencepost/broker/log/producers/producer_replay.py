"""Replay of a log's batches into the producers' state: for recovery, and to rebuild transaction indexes.

Replay refuses nothing: the log's records have happened.
Source: Kafka's UnifiedLog.rebuildProducerState and ProducerStateManager.update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.log.files.partition_files import PartitionFiles
from fencepost.broker.log.producers.producer_state import ProducerState
from fencepost.broker.log.segment.offset_index import CorruptIndexError
from fencepost.broker.log.segment.segment import Segment
from fencepost.broker.log.segment.transaction_index import TransactionIndex, TransactionIndexEntry
from fencepost.protocol.record_batch import BatchHeader, RecordBatch, read_end_transaction_marker

log = get_logger(__name__)

STEP_BATCHES = 256
NEVER_EXPIRE_MS = 2**63 - 1


def replay_batch(
    producers: ProducerState, header: BatchHeader, read_batch: Callable[[], RecordBatch], *, now_ms: int
) -> TransactionIndexEntry | None:
    """Apply one batch; `read_batch` is called only for markers. Returns the transaction that it aborted, if any."""
    if header.is_control:
        marker = read_end_transaction_marker(read_batch())
        if marker is None:
            return None
        return producers.apply_marker(
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            committed=marker.committed,
            coordinator_epoch=marker.coordinator_epoch,
            offset=header.last_offset,
            timestamp_ms=header.max_timestamp_ms,
            now_ms=now_ms,
        )
    if header.producer_id >= 0:
        producers.apply_data_batch(
            header, base_offset=header.base_offset, max_timestamp_ms=header.max_timestamp_ms, now_ms=now_ms
        )
    return None


def replay(
    segments: Sequence[Segment], producers: ProducerState, start_offset: int, end_offset: int, *, now_ms: int
) -> Iterator[TransactionIndexEntry | None]:
    """Apply the batches between two offsets; yields the transactions aborted there, and None from time to time.

    Raises DamagedLogError: without the batches behind damage, transactions would seem open, or committed.
    """
    count = 0
    for segment in segments:
        if segment.next_offset <= start_offset or segment.base_offset >= end_offset:
            continue
        for batch_position, header in segment.scan_from(max(start_offset - segment.base_offset, 0)):
            if header.last_offset < start_offset:
                continue
            if header.base_offset >= end_offset:
                return
            read_batch = partial(segment.batches.checked_batch, batch_position, header)
            entry = replay_batch(producers, header, read_batch, now_ms=now_ms)
            count += 1
            if entry is not None or count % STEP_BATCHES == 0:
                yield entry


def usable_transaction_index(files: PartitionFiles, segments: Sequence[Segment], segment: Segment) -> TransactionIndex:
    """Return a segment's index, rebuilt first if its file cannot be right. Raises StorageError."""
    try:
        return segment.transactions.index
    except CorruptIndexError as error:
        log.warning("index_rebuilt", path=segment.files.path(".txnindex"), reason=str(error))
        rebuild_transaction_index(files, segments, segment)
        return segment.transactions.index


def rebuild_transaction_index(files: PartitionFiles, segments: Sequence[Segment], segment: Segment) -> None:
    """Rebuild the index of one segment from the log and the state before it, and set it. Raises StorageError."""
    producers = ProducerState()
    start_offset = segments[0].base_offset
    snapshot = files.latest_snapshot(segment.base_offset)
    if snapshot is not None:
        producers.restore(snapshot.producers, now_ms=0, expiration_ms=NEVER_EXPIRE_MS)
        start_offset = max(start_offset, snapshot.offset)
    rebuilt = TransactionIndex()
    for entry in replay(segments, producers, start_offset, segment.next_offset, now_ms=0):
        if entry is not None and entry.last_offset >= segment.base_offset:
            rebuilt.append(entry)
    segment.transactions.replace(rebuilt)
