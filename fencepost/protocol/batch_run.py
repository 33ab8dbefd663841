"""Runs of record batches of the same shape at equal distances in one buffer, checked column by column.

A producer whose records are equally long sends equally long batches. Their common parts are compared for all of them
at once: the header except for checksum, times and sequence, and the layout of the records. The checks are those of a
single batch: every checksum is computed, and every record's length and offset compared. The first batch of another
shape ends the run.
Source: Kafka's DefaultRecordBatch for the layout, and LogValidator for the checks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from itertools import count as count_from
from itertools import repeat, tee
from struct import Struct
from typing import Final, NamedTuple, TypeVar

from crc32c import crc32c

from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.record_batch import (
    CHECKED_POSITION,
    CODEC_MASK,
    CRC_POSITION,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    put_prefix,
)
from fencepost.protocol.record_validation import EqualLengthRecords, equal_length_records
from fencepost.protocol.sequence import MAXIMUM_SEQUENCE

_COLUMNS: Final = "17sI6sqqqhii"
"""A header: the part before the checksum, the checksum, attributes with last offset delta, then single fields."""
_MIDDLE: Final = slice(CHECKED_POSITION, CHECKED_POSITION + 6)
"""Attributes and last offset delta."""

_Value = TypeVar("_Value")


class BatchRun(NamedTuple):
    """Batches of `size_bytes` each, the first at `first_position` of a buffer, one in every `distance_bytes` of it."""

    buffer: memoryview
    distance_bytes: int
    first_position: int
    size_bytes: int

    @property
    def batches_count(self) -> int:
        return len(self.buffer) // self.distance_bytes

    def slices(self, skipped_bytes: int = 0) -> Iterator[memoryview]:
        """Each batch without its first `skipped_bytes`."""
        buffer, distance, first = self.buffer, self.distance_bytes, self.first_position
        starts = range(first + skipped_bytes, len(buffer), distance)
        ends = range(first + self.size_bytes, len(buffer) + 1, distance)
        return map(buffer.__getitem__, map(slice, starts, ends))

    @property
    def first_batch(self) -> memoryview:
        return self.buffer[self.first_position : self.first_position + self.size_bytes]

    def batches(self) -> list[memoryview]:
        return list(self.slices())

    def shortened(self, count: int) -> BatchRun:
        """The run of the first `count` batches."""
        return self._replace(buffer=self.buffer[: count * self.distance_bytes])


class RunColumns(NamedTuple):
    """Columns of the header fields in which batches of the same shape differ."""

    max_timestamps_ms: tuple[int, ...]
    producer_ids: tuple[int, ...]
    producer_epochs: tuple[int, ...]
    base_sequences: tuple[int, ...]

    def in_sequence_count(self, records_count: int) -> int:
        """Count the leading batches of one producer and epoch in sequence, or of no producer; 0 for a producer without
        sequences."""
        if not self.producer_ids:
            return 0
        producer_id = self.producer_ids[0]
        count = count_leading(self.producer_ids, producer_id)
        if producer_id < 0:
            return count
        count = min(count, count_leading(self.producer_epochs, self.producer_epochs[0]))
        first = self.base_sequences[0]
        if first < 0:
            return 0
        if first > MAXIMUM_SEQUENCE - count * records_count:
            return 1  # if sequences wrap to 0, each batch is checked by itself
        expected = tuple(range(first, first + count * records_count, records_count))
        return count_equal(self.base_sequences[:count], expected)

    def shortened(self, count: int) -> RunColumns:
        """The columns of the first `count` batches."""
        return self if count == len(self.producer_ids) else RunColumns._make(column[:count] for column in self)


class BatchShape:
    """The constant parts of batches of the same shape.

    misses_key: whether any record has no key.
    """

    __slots__ = ("_middle", "_records", "_start", "batch_length", "records_count", "size_bytes")

    def __init__(self, batch: memoryview, header: BatchHeader, records: EqualLengthRecords) -> None:
        self.size_bytes = len(batch)
        self.batch_length = header.batch_length
        self.records_count = header.records_count
        self._start = bytes(batch[:CRC_POSITION])
        self._middle = bytes(batch[_MIDDLE])
        self._records = records

    @property
    def misses_key(self) -> bool:
        return self._records.misses_key

    def is_of(self, batch: memoryview) -> bool:
        """Whether the header of a batch has this shape."""
        return len(batch) == self.size_bytes and batch[:CRC_POSITION] == self._start and batch[_MIDDLE] == self._middle

    def read(self, run: BatchRun) -> RunColumns:
        """Return the columns of the leading batches that have this shape, are in sequence and are valid; maybe of none.
        The batches after them cost little: they may be read repeatedly.
        """
        distance = run.distance_bytes
        columns = zip(*_columns(distance, run.first_position).iter_unpack(run.buffer), strict=True)
        starts, crcs, middles, _, times_ms, producer_ids, epochs, sequences, counts = columns
        count = min(
            count_leading(starts, self._start),
            count_leading(middles, self._middle),
            count_leading(counts, self.records_count),
        )
        found = RunColumns(times_ms, producer_ids, epochs, sequences).shortened(count)
        count = found.in_sequence_count(self.records_count)
        if not count:
            return found.shortened(0)
        looked_at = run.shortened(count)
        # Checksum and columns batch by batch, while the batch is in the processor's cache.
        checked, same = tee(map(bytes, looked_at.slices(CHECKED_POSITION)))
        looks = zip(map(crc32c, checked), map(self._records.columns, same), strict=True)
        computed, columns_of_records = zip(*looks, strict=True)
        count = count_equal(crcs[:count], computed)
        return found.shortened(self._records.count_same_shape(columns_of_records[:count]) if count else 0)

    def place(self, run: BatchRun, *, base_offset: int, partition_leader_epoch: int) -> None:
        """Write base offsets and leader epoch into the batches, in place."""
        positions = range(run.first_position, len(run.buffer), run.distance_bytes)
        offsets = count_from(base_offset, self.records_count)
        alike = map(repeat, (self.batch_length, partition_leader_epoch))
        deque(map(put_prefix, repeat(run.buffer), positions, offsets, *alike), maxlen=0)


def shape_of_batch(batch: memoryview, header: BatchHeader) -> BatchShape | None:
    """Return the shape of a valid batch; None if batches of its shape must be checked one by one."""
    if header.attributes & (CODEC_MASK | LOG_APPEND_TIME_BIT):
        return None
    try:
        records = equal_length_records(batch[CHECKED_POSITION:], header.records_count, HEADER_BYTES - CHECKED_POSITION)
    except DecodeError:
        return None
    return None if records is None else BatchShape(batch, header, records)


@lru_cache(maxsize=64)
def _columns(distance_bytes: int, first_position: int) -> Struct:
    rest_bytes = distance_bytes - first_position - HEADER_BYTES
    return Struct(f">{first_position}x{_COLUMNS}{rest_bytes}x")


def count_leading(column: tuple[_Value, ...], value: _Value) -> int:
    """Count the leading entries that are equal to `value`."""
    count = len(column)
    return count if column.count(value) == count else count_equal(column, (value,) * count)


def count_equal(column: tuple[_Value, ...], other: tuple[_Value, ...]) -> int:
    """Count the leading entries that are equal in two columns of the same length."""
    if column == other:
        return len(column)
    return next(index for index, (one, another) in enumerate(zip(column, other, strict=True)) if one != another)
