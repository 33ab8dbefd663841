"""Values that helpers of a test return."""

from __future__ import annotations

import pytest

from fencepost.testing.results import Group, Partition, Transaction


@pytest.mark.parametrize(
    ("state", "is_open"),
    [
        ("Empty", False),
        ("Ongoing", True),
        ("PrepareCommit", True),
        ("PrepareAbort", True),
        ("CompleteCommit", False),
        ("CompleteAbort", False),
    ],
)
def test_a_transaction_is_open_until_its_markers_are_written(state: str, *, is_open: bool) -> None:
    assert Transaction("id", state, 1, 0, 60_000, None, ()).is_open is is_open


def test_the_lag_of_a_group_is_that_of_its_partitions() -> None:
    lag = {Partition("t", 0): 3, Partition("t", 1): 4}
    assert Group("g", "classic", "Stable", (), lag=lag).total_lag == 7
    assert Group("g", "classic", "Empty", ()).total_lag == 0


def test_a_partition_is_written_as_kafka_does() -> None:
    assert str(Partition("orders", 3)) == "orders-3"
