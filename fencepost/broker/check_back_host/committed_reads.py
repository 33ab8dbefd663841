"""Committed records of a log, read in steps of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from fencepost.broker.check_back_host.logs import ReadableLog
from fencepost.broker.log.log_types import AbortedRange
from fencepost.check_back.ports import Unavailable
from fencepost.protocol.aborted_transactions import AbortedTransactions
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.record import Record
from fencepost.protocol.record_batch import RecordBatch, iterate_batches, read_records


class CommittedRead:
    """Reads a log from an offset on.

    next_offset:  offset of the next record.
    is_committed: whether open transactions end the read. They do not for a log that is written without transactions,
                  where only a foreign producer can have opened one: it must not hide the records behind it.
    """

    def __init__(self, next_offset: int = 0, *, is_committed: bool = True) -> None:
        self.next_offset = next_offset
        self._is_committed = is_committed

    async def records(self, log: ReadableLog) -> AsyncIterator[tuple[Record, bool]]:
        """The records from `next_offset` up to the last stable offset, or the high watermark; with each, whether its
        timestamp is the time of its append. Raises Unavailable.
        """
        while True:
            read = await log.read(self.next_offset, is_committed=self._is_committed)
            if read.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                # Records below the log start are deleted, or the topic was created again.
                begins = read.log_start_offset
                self.next_offset = begins if self.next_offset < begins else 0
                continue
            if not read.records:
                return
            try:
                for batch in _committed(read.records, read.aborted):
                    for record in read_records(batch):
                        if record.offset >= self.next_offset:
                            yield record, batch.header.is_log_append_time
            except DecodeError as error:
                raise Unavailable(f"{log.place} cannot be read: {error}") from None
            self.next_offset = max(batch.header.last_offset for batch in iterate_batches(read.records)) + 1
            await asyncio.sleep(0)


def _committed(records: memoryview, aborted: Sequence[AbortedRange]) -> list[RecordBatch]:
    """The batches without markers and without those of aborted transactions."""
    transactions = AbortedTransactions(aborted)
    return [batch for batch in iterate_batches(records) if not transactions.hide(batch) and not batch.header.is_control]
