"""Producer snapshot, the `.snapshot` file: the producers' state up to an offset, so that only the tail is replayed.

Layout: int16 version, uint32 CRC-32C of all that follows, int32 count, 46 bytes per producer; Kafka's, which keeps only
the newest batch of each producer. The batches before the newest follow: int16 version, int32 count, 32 bytes per batch.
Kafka's reader ignores them, though its checksum covers them. So a retry of any of the last five is still recognised
after a restart.
Source: Kafka's ProducerStateManager.writeSnapshot and ProducerSnapshot.json.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from crc32c import crc32c

SNAPSHOT_VERSION: Final = 1
EARLIER_BATCHES_VERSION: Final = 1
NO_OFFSET: Final = -1
PRODUCERS_PER_SLICE: Final = 1_000
CHECKED_BYTES_PER_STEP: Final = 1024 * 1024

T = TypeVar("T")

_PREAMBLE = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_PRODUCER = struct.Struct(">qhiqiqiq")
_SECTION = struct.Struct(">hi")
_BATCH = struct.Struct(">qiqiq")


class ProducerBatch(NamedTuple):
    """One appended batch of a producer, kept to recognise a retry.

    last_sequence:    -1 for a coordinator's batch, which carries none.
    max_timestamp_ms: the greatest timestamp of its records.
    """

    last_sequence: int
    last_offset: int
    offset_delta: int
    max_timestamp_ms: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerSnapshot(NamedTuple):
    """One producer's state.

    timestamp_ms: time of its last activity: the greater of its last record's time and the time of that append.
    current_transaction_first_offset: -1 if it has no open transaction.
    recent_batches: batches, at most five, oldest first; the newest one's timestamp reads back as `timestamp_ms`.
    """

    producer_id: int
    producer_epoch: int
    timestamp_ms: int
    coordinator_epoch: int
    current_transaction_first_offset: int
    recent_batches: tuple[ProducerBatch, ...]


@dataclass(frozen=True, slots=True)
class CorruptSnapshot:
    """Why a file is no snapshot; the caller tries the one before it."""

    reason: str


def encode_snapshot(producers: Sequence[ProducerSnapshot]) -> bytes:
    """Encode the content of a snapshot file."""
    return _result_of(encoding_steps(producers, len(producers)))


def encoding_steps(producers: Iterable[ProducerSnapshot], count: int) -> Generator[None, None, bytes]:
    """Encode `count` producers as `encode_snapshot` does; a step is `PRODUCERS_PER_SLICE`."""
    body = bytearray(_PREAMBLE.size) + _COUNT.pack(count)
    earlier = bytearray()
    earlier_count = 0
    for index, producer in enumerate(producers, 1):
        recent = producer.recent_batches
        newest = recent[-1] if recent else _NO_BATCH
        body += _PRODUCER.pack(
            producer.producer_id,
            producer.producer_epoch,
            newest.last_sequence,
            newest.last_offset,
            newest.offset_delta,
            producer.timestamp_ms,
            producer.coordinator_epoch,
            producer.current_transaction_first_offset,
        )
        for batch in recent[:-1]:
            earlier += _BATCH.pack(producer.producer_id, *batch)
            earlier_count += 1
        if index % PRODUCERS_PER_SLICE == 0:
            yield
    if earlier_count:
        body += _SECTION.pack(EARLIER_BATCHES_VERSION, earlier_count)
        body += earlier
    checksum = yield from _checksum_steps(memoryview(body)[_PREAMBLE.size :])
    _PREAMBLE.pack_into(body, 0, SNAPSHOT_VERSION, checksum)
    return bytes(body)


def _checksum_steps(content: memoryview) -> Generator[None, None, int]:
    checksum = 0
    for start in range(0, len(content), CHECKED_BYTES_PER_STEP):
        if start:
            yield
        checksum = crc32c(content[start : start + CHECKED_BYTES_PER_STEP], checksum)
    return checksum


_NO_BATCH = ProducerBatch(last_sequence=-1, last_offset=NO_OFFSET, offset_delta=0, max_timestamp_ms=-1)


def decode_snapshot(content: bytes, end_offset: int | None = None) -> list[ProducerSnapshot] | CorruptSnapshot:
    """Decode a snapshot file, in its order; or return why it cannot be read.

    end_offset: offset after the last record that it may cover; None if unknown.
    """
    return _result_of(decoding_steps(content, end_offset))


def decoding_steps(
    content: bytes, end_offset: int | None = None
) -> Generator[None, None, list[ProducerSnapshot] | CorruptSnapshot]:
    """Decode as `decode_snapshot` does; a step is `PRODUCERS_PER_SLICE`."""
    if len(content) < _PREAMBLE.size + _COUNT.size:
        return CorruptSnapshot(f"{len(content)} bytes are too few")
    version, checksum = _PREAMBLE.unpack_from(content)
    if version != SNAPSHOT_VERSION:
        return CorruptSnapshot(f"version {version} is not {SNAPSHOT_VERSION}")
    if (yield from _checksum_steps(memoryview(content)[_PREAMBLE.size :])) != checksum:
        return CorruptSnapshot("the checksum does not match")
    (count,) = _COUNT.unpack_from(content, _PREAMBLE.size)
    start = _PREAMBLE.size + _COUNT.size
    end = start + count * _PRODUCER.size
    if count < 0 or end > len(content):
        return CorruptSnapshot(f"{count} producers do not fit into {len(content)} bytes")
    earlier = yield from _decode_earlier_batches(content, end)
    producers = []
    for index, fields in enumerate(_PRODUCER.iter_unpack(memoryview(content)[start:end]), 1):
        producer_id, producer_epoch, sequence, offset, delta, timestamp_ms, coordinator_epoch, first_offset = fields
        if end_offset is not None and max(offset, first_offset) >= end_offset:
            return CorruptSnapshot(f"producer {producer_id} wrote at offset {max(offset, first_offset)} and later")
        recent = earlier.get(producer_id, [])
        if offset >= 0:
            recent.append(ProducerBatch(sequence, offset, delta, timestamp_ms))
        producers.append(
            ProducerSnapshot(producer_id, producer_epoch, timestamp_ms, coordinator_epoch, first_offset, tuple(recent))
        )
        if index % PRODUCERS_PER_SLICE == 0:
            yield
    return producers


def _decode_earlier_batches(content: bytes, position: int) -> Generator[None, None, dict[int, list[ProducerBatch]]]:
    """Decode the section behind the producers. A missing section, or one of another format, counts as empty."""
    earlier: dict[int, list[ProducerBatch]] = {}
    if len(content) - position < _SECTION.size:
        return earlier
    version, count = _SECTION.unpack_from(content, position)
    position += _SECTION.size
    if version != EARLIER_BATCHES_VERSION or len(content) - position != count * _BATCH.size:
        return earlier
    for index, (producer_id, *batch) in enumerate(_BATCH.iter_unpack(memoryview(content)[position:]), 1):
        earlier.setdefault(producer_id, []).append(ProducerBatch._make(batch))
        if index % PRODUCERS_PER_SLICE == 0:
            yield
    return earlier


def _result_of(steps: Generator[None, None, T]) -> T:
    """Run all steps; return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
