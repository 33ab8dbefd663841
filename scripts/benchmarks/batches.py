"""Record batches in great numbers: the records are made once, each batch gets its own header."""

from __future__ import annotations

import os
import time

from fencepost.protocol.record_batch import (
    HEADER_BYTES,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Record,
    build_batch,
    read_header,
    sealed_header,
)


class BatchTemplate:
    """Batches of the same records, which do not compress; timestamps are those of the moment it was made."""

    def __init__(self, *, record_bytes: int, records_count: int, is_transactional: bool = False) -> None:
        now_ms = time.time_ns() // 1_000_000
        self.records_count = records_count
        records = [Record(offset, now_ms, None, os.urandom(record_bytes)) for offset in range(records_count)]
        batch = build_batch(records, is_transactional=is_transactional)
        self._header = read_header(batch)
        self._records = bytes(batch[HEADER_BYTES:])
        self.size_bytes = len(batch)

    def batch(
        self,
        producer: tuple[int, int] = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH),
        base_sequence: int = NO_SEQUENCE,
    ) -> bytes:
        """One batch of a producer (id, epoch)."""
        producer_id, producer_epoch = producer
        header = self._header._replace(
            producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence
        )
        return sealed_header(header, self._records) + self._records


def with_records_of(batch_bytes: int, record_bytes: int) -> int:
    """How many records of such a size make a batch of about such a size."""
    return max(1, batch_bytes // record_bytes)
