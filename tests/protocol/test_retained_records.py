"""Batches that lose records: what consumers and producers rely on stays as it was."""

from __future__ import annotations

import pytest

from fencepost.broker.kernel.sliced_work import run_to_end
from fencepost.protocol.compression import Codec
from fencepost.protocol.record_batch import (
    Record,
    RecordBatch,
    build_batch,
    build_end_transaction_marker,
    check_crc,
    iterate_batches,
    read_end_transaction_marker,
    read_records,
)
from fencepost.protocol.retained_records import RECORDS_PER_RETENTION_STEP, compressed_and_sealed, retention_steps

RECORDS = [Record(offset, 1_000 + 7 * offset, b"key-%d" % offset, b"value", (("header", b"x"),)) for offset in range(5)]


def one(buffer: bytes | bytearray | memoryview) -> RecordBatch:
    (batch,) = iterate_batches(buffer)
    return batch


def retain(batch: RecordBatch, records: list[Record], *, delete_horizon_ms: int | None = None) -> RecordBatch:
    """The same batch with only some of its records, perhaps none, as the cleaner leaves it."""
    steps = retention_steps(batch, list(records), delete_horizon_ms=delete_horizon_ms)
    return one(compressed_and_sealed(*run_to_end(steps)))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("delete_horizon_ms", [None, 123_456])
def test_a_cleaned_batch_keeps_offsets_times_and_sequence(codec: Codec, delete_horizon_ms: int | None) -> None:
    batch = one(build_batch(RECORDS, base_offset=50, codec=codec, producer_id=5, producer_epoch=1, base_sequence=3))
    records = list(read_records(batch))
    for kept in (records, records[1:4:2], records[4:], []):
        cleaned = retain(batch, kept, delete_horizon_ms=delete_horizon_ms)
        assert check_crc(cleaned.buffer)
        assert list(read_records(cleaned)) == kept
        assert cleaned.header.base_offset == 50
        assert cleaned.header.last_offset == 54
        assert cleaned.header.last_sequence == batch.header.last_sequence
        assert cleaned.header.has_delete_horizon == (delete_horizon_ms is not None)
        if delete_horizon_ms is not None:
            assert cleaned.header.base_timestamp_ms == delete_horizon_ms
            again = retain(cleaned, kept[:1])
            assert again.header.base_timestamp_ms == delete_horizon_ms
            assert list(read_records(again)) == kept[:1]


def test_a_large_batch_is_written_in_steps_with_its_records_in_order() -> None:
    count = 2 * RECORDS_PER_RETENTION_STEP + 1
    batch = one(build_batch([Record(offset, offset, None, b"v") for offset in range(count)]))
    records = list(read_records(batch))
    assert sum(1 for _ in retention_steps(batch, list(records))) == 2
    assert list(read_records(retain(batch, records))) == records


def test_a_marker_that_lost_its_record_is_none() -> None:
    marker = build_end_transaction_marker(7, 3, True, 0, timestamp_ms=1_000)
    assert read_end_transaction_marker(retain(one(marker), [])) is None
