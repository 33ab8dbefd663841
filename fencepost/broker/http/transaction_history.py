"""The history of a transactional id, from the records that are left in `__transaction_state`."""

from __future__ import annotations

from typing import Any, Final

from fencepost.broker.kernel.sliced_work import SlicedWork
from fencepost.broker.log.log_types import Isolation
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.storage.disk import StorageError
from fencepost.diagnosis.transaction_history import FORGOTTEN, Moment, TransactionHistory
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.record_batch import iterate_batches, read_records

CHUNK_BYTES: Final = 64 * 1024
MOST_BATCHES: Final = 50_000
"""Batches that one request reads: the latest."""
MOST_EVENTS: Final = 10_000
"""Events in the answer: the latest."""
MOST_PARTITIONS: Final = 100


def history_steps(log: PartitionLog, transactional_id: str) -> SlicedWork[dict[str, Any]]:
    """Read the log in steps. is_complete: the answer has every event that compaction had left in the log."""
    history = TransactionHistory(transactional_id, MOST_EVENTS)
    # A batch of a coordinator has few records, so about as many batches as offsets.
    start_offset = max(log.log_start_offset, log.log_end_offset - MOST_BATCHES)
    offset, end_offset = start_offset, log.high_watermark
    is_readable = True
    while offset < end_offset:
        before = offset
        try:
            read = log.read(offset, CHUNK_BYTES, isolation=Isolation.READ_UNCOMMITTED)
            for batch in iterate_batches(read.records):
                offset = max(offset, batch.header.last_offset + 1)
                if not batch.header.is_control:
                    for record in read_records(batch):
                        if record.offset < end_offset:
                            history.add(record)
                yield
        except (DecodeError, StorageError):
            is_readable = False
        if offset == before:
            is_readable = False
            break
    return {
        "transactional_id": transactional_id,
        "partition": log.topic_partition.partition,
        "from_offset": start_offset,
        "is_complete": is_readable
        and history.is_whole
        and start_offset == log.log_start_offset
        and offset >= end_offset,
        "events": [_event(one) for one in history.moments],
    }


def _event(one: Moment) -> dict[str, Any]:
    event = {"offset": one.offset, "timestamp_ms": one.timestamp_ms, "state": one.state, "after_ms": one.after_ms}
    if one.state == FORGOTTEN:
        return event
    return {
        **event,
        "note": one.note,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "timeout_ms": one.timeout_ms,
        "start_ms": one.start_ms if one.start_ms >= 0 else None,
        "partitions_count": len(one.partitions),
        "partitions": one.partitions[:MOST_PARTITIONS],
    }
