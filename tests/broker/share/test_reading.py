"""What was read of a log, by the batch."""

from __future__ import annotations

from fencepost.broker.log.append.skipped_offsets import SkippedSpan
from fencepost.broker.log.log_types import AbortedRange
from fencepost.broker.share.acquire_request import OffsetRange
from fencepost.broker.share.partition import Acquired
from fencepost.broker.share.reading import read_batches, records_of
from fencepost.protocol.record_batch import Record, build_batch, build_end_transaction_marker, pack_prefix

PRODUCER_ID = 7


def batch(base_offset: int, record_count: int, producer_id: int = -1) -> bytes:
    records = [Record(offset, 0, None, b"value", ()) for offset in range(record_count)]
    is_transactional = producer_id >= 0
    return bytes(
        build_batch(
            records,
            base_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=0 if is_transactional else -1,
            base_sequence=0 if is_transactional else -1,
            is_transactional=is_transactional,
        )
    )


def marker(offset: int, *, committed: bool) -> bytes:
    built = build_end_transaction_marker(
        producer_id=PRODUCER_ID, producer_epoch=0, committed=committed, coordinator_epoch=0, timestamp_ms=0
    )
    prefix = pack_prefix(offset, len(built) - 12, 0)
    return prefix + bytes(built[len(prefix) :])


def test_batches_are_read_up_to_the_one_that_is_needed() -> None:
    records = memoryview(batch(0, 5) + batch(5, 5) + batch(10, 5))
    read = read_batches(records, None, 7)
    assert read.batches == [OffsetRange(0, 4), OffsetRange(5, 9)]
    assert read.aborted == []


def test_only_batches_with_acquired_records_are_sent() -> None:
    parts = [batch(0, 5), batch(5, 5), batch(10, 5)]
    read = read_batches(memoryview(b"".join(parts)), None, 14)
    assert bytes(records_of(read, [Acquired(6, 6, 1)])) == parts[1]
    assert bytes(records_of(read, [Acquired(3, 3, 1), Acquired(5, 5, 1)])) == parts[0] + parts[1]


def test_batches_of_aborted_transactions_are_distinguished_from_others() -> None:
    parts = [
        batch(0, 2, PRODUCER_ID),
        batch(2, 2),
        batch(4, 2, PRODUCER_ID),
        marker(6, committed=False),
        batch(7, 2, PRODUCER_ID),
        marker(9, committed=True),
    ]
    read = read_batches(memoryview(b"".join(parts)), [AbortedRange(PRODUCER_ID, 0)], 9)
    assert read.aborted == [OffsetRange(0, 1), OffsetRange(4, 5)]
    assert read.batches[-1] == OffsetRange(9, 9)


def test_a_batch_without_records_is_for_no_member() -> None:
    skipped = SkippedSpan(5, 1_000_000_000)
    records = memoryview(batch(0, 5) + skipped.batch(3, 0) + batch(skipped.end_offset, 2))
    read = read_batches(records, None, skipped.end_offset)
    assert len(read.batches) == 3
    assert read.aborted == [OffsetRange(5, skipped.end_offset - 1)]
