"""Ranges and numbers of records that one request acquires."""

from __future__ import annotations

import pytest

from fencepost.broker.share.acquire_request import (
    OffsetRange,
    divided,
    end_of_batch,
    throttle_threshold,
    throttled_count,
)
from fencepost.broker.share.acquired_records import RecordSpan, RecordState

BATCHES = [OffsetRange(0, 9), OffsetRange(10, 19), OffsetRange(30, 39)]


@pytest.mark.parametrize(("offset", "last_offset"), [(0, 9), (9, 9), (10, 19), (25, 25), (35, 39), (50, 50)])
def test_a_batch_is_acquired_to_its_end(offset: int, last_offset: int) -> None:
    assert end_of_batch(offset, BATCHES) == last_offset


@pytest.mark.parametrize(
    ("batch_size", "ranges"),
    [(40, [(0, 39)]), (10, [(0, 9), (10, 29), (30, 39)]), (15, [(0, 29), (30, 39)]), (1, [(0, 9), (10, 29), (30, 39)])],
)
def test_a_range_is_cut_only_at_starts_of_batches(batch_size: int, ranges: list[tuple[int, int]]) -> None:
    assert divided(0, 39, batch_size, BATCHES) == ranges


def test_records_that_are_released_often_come_in_ever_smaller_numbers() -> None:
    assert [throttle_threshold(limit) for limit in (2, 3, 5, 10)] == [2, 2, 3, 5]
    counts = [throttled_count(released(count), delivery_count_limit=5) for count in (3, 4, 5)]
    assert counts == [50, 25, 12]


def released(delivery_count: int) -> RecordSpan:
    """A batch of 100 records that was acquired and released."""
    return RecordSpan(0, 99, RecordState.AVAILABLE, delivery_count, 0, 99)
