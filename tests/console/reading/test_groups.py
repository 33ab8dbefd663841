"""What a committed offset means in its partition, and why that is unknown where it is."""

from __future__ import annotations

from fencepost.console.reading.groups import lag_in
from fencepost.console.reading.topics import PartitionState
from fencepost.diagnosis.lag import Lag, ReadableRecords


def test_the_lag_is_that_of_the_offsets_of_the_partition() -> None:
    partition = PartitionState("orders", 0, 1, 0, start=4, high_watermark=10, last_stable_offset=8)
    assert lag_in(partition, 2) == Lag(end=8, deliverable=4, blocked=2)
    assert lag_in(partition, 2, ReadableRecords(3, 8, -1)) == Lag(end=8, deliverable=3, blocked=2)


def test_a_partition_that_does_not_answer_has_no_lag_and_the_lag_says_why() -> None:
    assert (
        lag_in(PartitionState("orders", 0, -1, -1, error="LEADER_NOT_AVAILABLE"), 2).unknown == "LEADER_NOT_AVAILABLE"
    )
    assert lag_in(PartitionState("orders", 0, 1, 0, high_watermark=3), 2).unknown == "orders-0 does not answer"
    assert lag_in(None, 2).unknown == "there is no such partition"
