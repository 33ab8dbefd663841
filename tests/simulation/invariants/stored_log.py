"""Record batches as they lie in a log file, read without the broker's own reader.

Only compression and the checksum come from libraries; everything else is taken from the description of the format.
Source: KIP-98; Kafka's documentation of its message format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from crc32c import crc32c

from fencepost.protocol.compression import Codec, decompress

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CONTROL_KEY = struct.Struct(">hh")
_CONTROL_VALUE = struct.Struct(">hi")
_LENGTH_OVERHEAD = 12
_CHECKED_FROM = 21
_SEQUENCES = 2**31


class StoredRecord(NamedTuple):
    """One record. offset: in the log."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


class Marker(NamedTuple):
    """What a control batch says."""

    committed: bool
    coordinator_epoch: int


@dataclass(frozen=True, eq=False)
class StoredBatch:
    """One batch. Offsets are inclusive at both ends.

    order: of its append, among all appends and replies of a world; 0 where it was not seen being appended.
    at_s:  when it was appended.
    """

    base_offset: int
    last_offset: int
    attributes: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    raw: bytes = field(repr=False)
    order: int = 0
    at_s: float = 0.0

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & 0x10)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & 0x20)

    @property
    def is_idempotent(self) -> bool:
        """Whether a producer numbered it; coordinators' batches carry a producer id but no sequence."""
        return self.producer_id >= 0 and self.base_sequence >= 0 and not self.is_control

    @property
    def last_sequence(self) -> int:
        return (self.base_sequence + self.last_offset - self.base_offset) % _SEQUENCES

    @property
    def next_sequence(self) -> int:
        return (self.last_sequence + 1) % _SEQUENCES

    @cached_property
    def records(self) -> tuple[StoredRecord, ...]:
        return tuple(_records(self))

    @cached_property
    def marker(self) -> Marker | None:
        """None for data, and for a control batch that the cleaner has emptied."""
        if not self.is_control or not self.records:
            return None
        record = self.records[0]
        assert record.key is not None
        assert record.value is not None
        _, kind = _CONTROL_KEY.unpack_from(record.key)
        _, coordinator_epoch = _CONTROL_VALUE.unpack_from(record.value)
        return Marker(kind == 1, coordinator_epoch) if kind in (0, 1) else None

    def __str__(self) -> str:
        what = "data"
        if self.is_control:
            what = "no marker" if self.marker is None else "COMMIT" if self.marker.committed else "ABORT"
        elif self.is_transactional:
            what = "transactional data"
        return (
            f"offsets {self.base_offset}-{self.last_offset}: {what}, producer {self.producer_id} epoch "
            f"{self.producer_epoch} sequence {self.base_sequence}, at {self.at_s:.4f} s"
        )


def read_batches(
    content: bytes | bytearray | memoryview, position: int = 0, *, order: int = 0, at_s: float = 0.0
) -> list[StoredBatch]:
    """The whole and valid batches from a position on, up to the first that is neither."""
    return [batch for batch, _ in _walk(memoryview(content), position, order, at_s)]


def read_segment(
    content: bytes, position: int = 0, *, order: int = 0, at_s: float = 0.0
) -> tuple[list[StoredBatch], int]:
    """The batches of a log file from a position on, and the position after the last of them."""
    batches = []
    for batch, end_position in _walk(memoryview(content), position, order, at_s):
        batches.append(batch)
        position = end_position
    return batches, position


def _walk(view: memoryview, position: int, order: int, at_s: float) -> Iterator[tuple[StoredBatch, int]]:
    while position + _HEADER.size <= len(view):
        base_offset, length, _, magic, crc, attributes, delta, first_ms, max_ms, *producer, count = _HEADER.unpack_from(
            view, position
        )
        end_position = position + length + _LENGTH_OVERHEAD
        if magic != 2 or length < _HEADER.size - _LENGTH_OVERHEAD or end_position > len(view):
            return
        raw = bytes(view[position:end_position])
        if crc32c(raw[_CHECKED_FROM:]) != crc:
            return
        producer_id, producer_epoch, base_sequence = producer
        batch = StoredBatch(
            base_offset,
            base_offset + delta,
            attributes,
            first_ms,
            max_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
            raw,
            order,
            at_s,
        )
        yield batch, end_position
        position = end_position


def _records(batch: StoredBatch) -> Iterator[StoredRecord]:
    content = bytes(decompress(Codec(batch.attributes & 7), memoryview(batch.raw)[_HEADER.size :]))
    position = 0
    for _ in range(batch.record_count):
        _, position = _varint(content, position)
        position += 1
        timestamp_delta, position = _varint(content, position)
        offset_delta, position = _varint(content, position)
        key, position = _bytes(content, position)
        value, position = _bytes(content, position)
        header_count, position = _varint(content, position)
        headers = []
        for _ in range(header_count):
            name, position = _bytes(content, position)
            header_value, position = _bytes(content, position)
            headers.append((name or b"", header_value))
        timestamp_ms = batch.max_timestamp_ms if batch.attributes & 8 else batch.base_timestamp_ms + timestamp_delta
        yield StoredRecord(batch.base_offset + offset_delta, timestamp_ms, key, value, tuple(headers))


def _varint(content: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = content[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), position
        shift += 7


def _bytes(content: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = _varint(content, position)
    if length < 0:
        return None, position
    return content[position : position + length], position + length
