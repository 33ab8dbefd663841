"""The `.txnindex` file: Kafka's bytes, the aborted transactions that a fetch gets, and how damage is detected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.log.log_types import AbortedRange
from fencepost.broker.log.segment.offset_index import CorruptIndexError
from fencepost.broker.log.segment.transaction_index import (
    TRANSACTION_INDEX_ENTRY,
    TransactionIndex,
    TransactionIndexEntry,
)

ENTRY_BYTES = bytes.fromhex("0000 0000000000000007 000000000000000f 0000000000000014 0000000000000015")


def index_of(*entries: TransactionIndexEntry) -> TransactionIndex:
    index = TransactionIndex()
    for entry in entries:
        index.append(entry)
    return index


# Producer 1 from 0 to 10, producer 2 from 5 to 20 and producer 3 from 12 to 30; producer 9 is open from 25 on.
OVERLAPPING = index_of(
    TransactionIndexEntry(1, 0, 10, 5),
    TransactionIndexEntry(2, 5, 20, 12),
    TransactionIndexEntry(3, 12, 30, 25),
)


def test_an_entry_has_the_bytes_that_kafka_gives_it() -> None:
    entry = TransactionIndexEntry(producer_id=7, first_offset=15, last_offset=20, last_stable_offset=21)
    assert entry.to_bytes() == ENTRY_BYTES
    index = TransactionIndex.from_bytes(ENTRY_BYTES, base_offset=0, end_offset=1 << 40)
    assert len(index) == 1
    assert index[0] == entry
    assert index.to_bytes() == ENTRY_BYTES


def test_an_empty_file_is_an_empty_index() -> None:
    assert len(TransactionIndex.from_bytes(b"", base_offset=5, end_offset=1 << 40)) == 0


@pytest.mark.parametrize(
    ("fetch_offset", "upper_offset", "producer_ids", "is_complete"),
    [
        (0, 1, [1], True),
        (0, 5, [1], True),
        (0, 6, [1, 2], True),
        (0, 12, [1, 2], True),
        (0, 13, [1, 2, 3], True),
        (0, 25, [1, 2, 3], True),
        (0, 26, [1, 2, 3], False),
        (10, 11, [1, 2], True),
        (11, 12, [2], True),
        (20, 21, [2, 3], True),
        (21, 25, [3], True),
        (30, 31, [3], False),
        (31, 100, [], False),
    ],
)
def test_a_fetch_gets_the_aborted_transactions_that_overlap_it(
    fetch_offset: int, upper_offset: int, producer_ids: list[int], is_complete: bool
) -> None:
    aborted: list[AbortedRange] = []
    assert OVERLAPPING.collect(fetch_offset, upper_offset, aborted) is is_complete
    assert [producer_id for producer_id, _ in aborted] == producer_ids


def test_earlier_results_stay() -> None:
    aborted = [AbortedRange(99, 1)]
    OVERLAPPING.collect(31, 100, aborted)
    assert aborted == [AbortedRange(99, 1)]


@pytest.mark.parametrize(("log_end_offset", "count"), [(0, 0), (10, 0), (11, 1), (20, 1), (21, 2), (30, 2), (31, 3)])
def test_truncation_drops_the_transactions_whose_marker_is_cut(log_end_offset: int, count: int) -> None:
    index = TransactionIndex.from_bytes(OVERLAPPING.to_bytes(), base_offset=0, end_offset=1 << 40)
    assert index.truncate(log_end_offset) == count * TRANSACTION_INDEX_ENTRY.size
    assert len(index) == count
    assert index.to_bytes() == OVERLAPPING.to_bytes()[: count * TRANSACTION_INDEX_ENTRY.size]


@pytest.mark.parametrize(
    "content",
    [
        ENTRY_BYTES[:-1],
        ENTRY_BYTES + b"\x00",
        b"\x00\x01" + ENTRY_BYTES[2:],
        ENTRY_BYTES + ENTRY_BYTES,
        TransactionIndexEntry(7, 20, 20, 21).to_bytes(),
        TransactionIndexEntry(7, 21, 20, 21).to_bytes(),
        TransactionIndexEntry(7, -1, 20, 21).to_bytes(),
        TransactionIndexEntry(7, 1, 9, 21).to_bytes(),
    ],
    ids=["cut", "longer", "version", "twice", "empty", "backwards", "negative", "before the segment"],
)
def test_a_file_that_cannot_be_right_is_noticed(content: bytes) -> None:
    with pytest.raises(CorruptIndexError):
        TransactionIndex.from_bytes(content, base_offset=10, end_offset=1 << 40)


def test_a_transaction_may_begin_before_the_segment_of_its_marker() -> None:
    content = TransactionIndexEntry(7, 1, 10, 11).to_bytes()
    assert len(TransactionIndex.from_bytes(content, base_offset=10, end_offset=1 << 40)) == 1


@given(st.binary(max_size=3 * TRANSACTION_INDEX_ENTRY.size))
def test_garbage_is_noticed_or_can_be_right(garbage: bytes) -> None:
    try:
        index = TransactionIndex.from_bytes(garbage, base_offset=0, end_offset=1 << 40)
    except CorruptIndexError:
        return
    assert index.to_bytes() == garbage
