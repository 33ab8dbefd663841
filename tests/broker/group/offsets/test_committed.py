"""Offsets in transactions: pending until the marker, and the later commit wins."""

from __future__ import annotations

import pytest

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.errors import ErrorCode
from tests.support.group_shard import ShardHarness

ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)


UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.fixture
def shard() -> ShardHarness:
    return ShardHarness()


def test_an_offset_in_a_transaction_counts_once_it_has_committed(shard: ShardHarness) -> None:
    shard.commit(5)
    shard.commit(9, producer_id=7)
    assert shard.committed() is UNSTABLE
    assert shard.shard.offsets.fetch("g", [ORDERS], require_stable=False)[0].offset == 5
    shard.end_transaction(7, committed=True)
    assert shard.committed() == 9
    assert shard.replayed().committed() == 9


def test_an_aborted_offset_is_gone(shard: ShardHarness) -> None:
    shard.commit(5)
    shard.commit(9, producer_id=7)
    shard.end_transaction(7, committed=False)
    assert shard.committed() == 5
    assert shard.replayed().committed() == 5


def test_the_last_offset_in_a_transaction_counts(shard: ShardHarness) -> None:
    shard.commit(8, producer_id=7)
    shard.commit(9, producer_id=7)
    shard.end_transaction(7, committed=True)
    assert shard.committed() == 9


def test_a_plain_commit_after_one_in_a_transaction_wins(shard: ShardHarness) -> None:
    shard.commit(9, producer_id=7)
    shard.commit(3)
    shard.end_transaction(7, committed=True)
    assert shard.committed() == 3
    assert shard.replayed().committed() == 3


def test_of_two_transactions_the_later_commit_wins_whichever_ends_first(shard: ShardHarness) -> None:
    shard.commit(1, producer_id=7)
    shard.commit(2, producer_id=8)
    shard.end_transaction(8, committed=True)
    assert shard.committed() is UNSTABLE
    shard.end_transaction(7, committed=True)
    assert shard.committed() == 2


@pytest.mark.parametrize(("committed", "offset"), [(True, 9), (False, 5)])
def test_a_transaction_that_spans_a_restart_ends_with_its_marker(
    shard: ShardHarness, committed: bool, offset: int
) -> None:
    shard.commit(5)
    shard.commit(9, producer_id=7)
    again = shard.replayed()
    assert again.committed() is UNSTABLE
    again.end_transaction(7, committed=committed)
    assert again.committed() == offset


def test_a_marker_of_a_producer_without_offsets_changes_nothing(shard: ShardHarness) -> None:
    shard.commit(5)
    shard.end_transaction(7, committed=True)
    assert shard.committed() == 5


def test_a_transaction_makes_only_its_own_partitions_unstable(shard: ShardHarness) -> None:
    shard.commit(5)
    shard.commit(9, producer_id=7, topic_partition=PAYMENTS)
    fetched = shard.shard.offsets.fetch("g", [ORDERS, PAYMENTS], require_stable=True)
    assert [(offset.offset, offset.error) for offset in fetched] == [(5, ErrorCode.NONE), (-1, UNSTABLE)]
    assert [offset.topic_partition for offset in shard.shard.offsets.fetch("g", None, require_stable=True)] == [ORDERS]
