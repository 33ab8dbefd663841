"""Original records of dead letters, read from the log of their partition.

Source: KIP-1191; Kafka's ShareGroupDLQRecordFetcher.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Final

from fencepost.broker.kernel.threads import on_a_thread
from fencepost.broker.log.log_types import Isolation
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.share.dead_letters import most_bytes
from fencepost.protocol.compression import Codec, decompress
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.primitives import Buffer, DecodeError
from fencepost.protocol.record import Record
from fencepost.protocol.record_batch import HEADER_BYTES, RecordBatch, iterate_batches, read_records

READ_BYTES: Final = 1024 * 1024
STEP_RECORDS: Final = 500
"""Decoded in one step of the event loop."""


class SourceUnreadable(Exception):  # noqa: N818  # an expected outcome
    """The original records cannot be read now."""


async def source_records(
    log: PartitionLog, first_offset: int, last_offset: int, enough_bytes: int
) -> tuple[dict[int, Record], int]:
    """Return the records of a range by their offsets, and the last offset that was looked at: that of the range, or of
    the record with which they have more than `enough_bytes`.

    Deleted, compacted and damaged records are left out, as are markers. Raises SourceUnreadable.
    """
    found: dict[int, Record] = {}
    size_bytes = 0
    offset = first_offset = max(first_offset, log.log_start_offset)
    while offset <= last_offset:
        read = log.read(offset, READ_BYTES, isolation=Isolation.READ_UNCOMMITTED)
        if read.error is ErrorCode.OFFSET_OUT_OF_RANGE and offset < log.log_start_offset:
            offset = log.log_start_offset
            continue
        if read.error in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.CORRUPT_MESSAGE):
            return found, last_offset
        if read.error is not NO_ERROR:
            raise SourceUnreadable(f"{log.topic_partition} cannot be read: {read.error.name}")
        if not read.records:
            raise SourceUnreadable(f"{log.topic_partition} has the offset {offset} on no disk of this node yet")
        try:
            for batch in iterate_batches(read.records):
                if batch.header.base_offset > last_offset:
                    break
                if not batch.header.is_control and batch.header.last_offset >= offset:
                    async for record in _records(batch):
                        if first_offset <= record.offset <= last_offset:
                            found[record.offset] = record
                            size_bytes += most_bytes(record)
                            if size_bytes > enough_bytes:
                                return found, record.offset
                offset = batch.header.last_offset + 1
        except DecodeError:
            return found, last_offset
        await asyncio.sleep(0)
    return found, last_offset


async def _records(batch: RecordBatch) -> AsyncIterator[Record]:
    """Raises DecodeError."""
    content: Buffer = batch.buffer[HEADER_BYTES:]
    if batch.header.codec is not Codec.NONE:
        content = await on_a_thread(partial(decompress, batch.header.codec, content))
    for count, record in enumerate(read_records(batch, content=bytes(content)), 1):
        yield record
        if count % STEP_RECORDS == 0:
            await asyncio.sleep(0)
