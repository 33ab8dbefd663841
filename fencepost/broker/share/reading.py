"""Batches of a read: their offsets, and which belong to aborted transactions. Pure.

Source: Kafka's SharePartition.fetchAbortedTransactionRecordBatches and ShareFetchUtils.maybeSliceFetchRecords.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fencepost.broker.log.log_types import AbortedRange
from fencepost.broker.share.acquire_request import OffsetRange
from fencepost.broker.share.partition import Acquired
from fencepost.protocol.aborted_transactions import AbortedTransactions
from fencepost.protocol.record_batch import iterate_batches


class ReadBatches(NamedTuple):
    """Batches in `records`, the position of each, and those of aborted transactions or without records."""

    records: memoryview
    batches: list[OffsetRange]
    positions: list[int]
    aborted: list[OffsetRange]


def read_batches(
    records: memoryview, aborted_transactions: Sequence[AbortedRange] | None, last_offset: int
) -> ReadBatches:
    """Read the headers of the batches up to the one that has `last_offset`. Raises DecodeError."""
    batches: list[OffsetRange] = []
    positions: list[int] = []
    aborted: list[OffsetRange] = []
    transactions = AbortedTransactions(aborted_transactions or ())
    position = 0
    for batch in iterate_batches(records):
        header = batch.header
        offsets = OffsetRange(header.base_offset, header.last_offset)
        batches.append(offsets)
        positions.append(position)
        position += header.size_bytes
        if transactions.hide(batch) or not header.records_count:
            aborted.append(offsets)
        if header.last_offset >= last_offset:
            break
    positions.append(position)
    return ReadBatches(records, batches, positions, aborted)


def records_of(read: ReadBatches, acquired: Sequence[Acquired]) -> memoryview:
    """Return the bytes from the first batch with acquired records to the last."""
    first_offset, last_offset = acquired[0].first_offset, acquired[-1].last_offset
    overlapping = [
        index
        for index, batch in enumerate(read.batches)
        if batch.last_offset >= first_offset and batch.first_offset <= last_offset
    ]
    return read.records[read.positions[overlapping[0]] : read.positions[overlapping[-1] + 1]]
