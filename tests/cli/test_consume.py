"""The offsets that `consume --group` commits while other members of the group come and go."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from kafka import TopicPartition
from kafka.errors import RebalanceInProgressError
from kafka.structs import OffsetAndMetadata

from fencepost.cli import consume

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Read(NamedTuple):
    offset: int


class RebalancingConsumer:
    """Gives two records of each partition once; refuses the first commits; keeps the others."""

    def __init__(self, refusals: int, kept: set[TopicPartition]) -> None:
        self.refusals, self.kept = refusals, kept
        self.polled = 0
        self.committed: list[Any] = []

    def poll(self, **_: Any) -> dict[TopicPartition, list[Read]]:
        self.polled += 1
        return {place: [Read(4), Read(5)] for place in (FIRST, SECOND)} if self.polled == 1 else {}

    def commit(self, offsets: Any = "positions") -> None:
        if self.refusals:
            self.refusals -= 1
            raise RebalanceInProgressError
        self.committed.append(offsets)

    def assignment(self) -> set[TopicPartition]:
        return self.kept

    def pause(self, *_: TopicPartition) -> None:
        pass


def consumed(consumer: RebalancingConsumer) -> int:
    count, _ = consume._print_records(consumer, lambda _: None, {}, commits=True, max_records=4, idle_seconds=None)
    return count


def test_positions_are_committed_at_the_end() -> None:
    consumer = RebalancingConsumer(0, {FIRST, SECOND})
    assert consumed(consumer) == 4
    assert consumer.committed == ["positions"]


def test_a_rebalance_at_the_end_delays_the_commit_and_spares_partitions_that_moved() -> None:
    consumer = RebalancingConsumer(3, {FIRST})
    assert consumed(consumer) == 4
    assert consumer.committed == [{FIRST: OffsetAndMetadata(6, "", -1)}]


def test_a_rebalance_in_between_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume, "COMMIT_INTERVAL_S", 0.0)
    consumer = RebalancingConsumer(1, {FIRST, SECOND})
    assert consumed(consumer) == 4
    assert consumer.committed == ["positions"]


def test_a_member_that_has_lost_all_partitions_commits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume, "REBALANCE_S", 0.0)
    consumer = RebalancingConsumer(1, set())
    assert consumed(consumer) == 4
    assert consumer.committed == []


def test_a_group_that_does_not_settle_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume, "REBALANCE_S", 0.0)
    with pytest.raises(RebalanceInProgressError):
        consumed(RebalancingConsumer(100, {FIRST}))
