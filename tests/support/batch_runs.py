"""Batches that are equally long, and buffers in which they lie behind each other with something between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost.protocol.batch_run import BatchRun
from fencepost.protocol.record_batch import HEADER_BYTES, Record, build_batch, read_header, sealed_header

BEFORE = b"what lies before a batch"
BEHIND = b"and behind"


def equal_batch(
    value: bytes = b"value",
    *,
    records_count: int = 8,
    timestamp_ms: int = 0,
    step_ms: int = 0,
    key: bytes | None = None,
    producer: tuple[int, int] = (-1, -1),
    base_sequence: int = -1,
    **build: Any,
) -> bytes:
    """One whose records all have the same value and are as much later than the one before."""
    records = [Record(index, timestamp_ms + index * step_ms, key, value) for index in range(records_count)]
    producer_id, producer_epoch = producer
    batch = build_batch(
        records, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence, **build
    )
    return bytes(batch)


def with_header(batch: bytes, **fields: int) -> bytes:
    """A batch whose header says something else, with the checksum that belongs to it."""
    header = read_header(batch)._replace(**fields)
    return sealed_header(header, batch[HEADER_BYTES:]) + batch[HEADER_BYTES:]


def with_byte(batch: bytes, position: int, change: int, *, is_sealed: bool) -> bytes:
    """A batch of which one byte is another one; where it is sealed, its checksum belongs to that."""
    changed = bytearray(batch)
    changed[position] ^= change
    return with_header(bytes(changed)) if is_sealed else bytes(changed)


def run_of(batches: Sequence[bytes], *, before: bytes = BEFORE, behind: bytes = BEHIND) -> BatchRun:
    """The batches, one of which is as long as the others, in memory of their own."""
    buffer = bytearray().join(before + batch + behind for batch in batches)
    size_bytes = len(batches[0])
    return BatchRun(memoryview(buffer), len(before) + size_bytes + len(behind), len(before), size_bytes)
