"""Offsets that a restored log leaves out: those that its lost history may have given to records.

Readers may hold any of them. Were they given to new records, a reader would go on with the record at its position, and
miss all new records before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from fencepost.protocol.record_batch import (
    CURRENT_MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    sealed_header,
)

SKIPPED_OFFSETS: Final = 1_000_000_000
"""As many as a log leaves out at least, unless an operator says otherwise."""
SKIPPED_PER_SECOND: Final = 100_000
"""For each second since the restored moment, if that makes more; few partitions ever get as many records."""
MOST_SKIPPED: Final = 10**13
"""900,000 restores fit below the greatest offset."""
LONGEST_SPAN: Final = 1_000_000_000
"""A segment has room for twice as many offsets: the records that follow begin in the segment of the last span."""


class SkippedSpan(NamedTuple):
    """Offsets that one batch without records takes."""

    base_offset: int
    offsets_count: int

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.offsets_count

    def batch(self, leader_epoch: int, timestamp_ms: int) -> bytes:
        """Build the batch. Compaction leaves such batches, too."""
        header = BatchHeader(
            self.base_offset,
            batch_length=0,  # `sealed_header` writes it, and the checksum
            partition_leader_epoch=leader_epoch,
            magic=CURRENT_MAGIC,
            crc=0,
            attributes=0,
            last_offset_delta=self.offsets_count - 1,
            base_timestamp_ms=timestamp_ms,
            max_timestamp_ms=timestamp_ms,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            records_count=0,
        )
        return sealed_header(header, b"")


def offsets_to_skip(lost_s: float) -> int:
    """The number of offsets to leave out. lost_s: seconds since the restored moment."""
    return min(max(SKIPPED_OFFSETS, int(lost_s * SKIPPED_PER_SECOND)), MOST_SKIPPED)


def skipped_spans(end_offset: int, offsets_count: int) -> Iterator[SkippedSpan]:
    """Divide the offsets from the end of a log on into those of batches."""
    while offsets_count:
        span = SkippedSpan(end_offset, min(offsets_count, LONGEST_SPAN))
        yield span
        end_offset, offsets_count = span.end_offset, offsets_count - span.offsets_count
