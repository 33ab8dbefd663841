"""Committed offsets expire, unless somebody reads their topics."""

from __future__ import annotations

import struct

import pytest

from fencepost.broker.group.decision_builder import GroupConfig
from fencepost.broker.group.offsets.commits import Committer
from fencepost.broker.group.offsets.decisions import DECISION_RECORDS_BYTES
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.errors import ErrorCode
from tests.support.group_shard import ShardHarness

ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)


HOUR_MS = 3_600_000


RETENTION_MS = 7 * 24 * HOUR_MS


UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.fixture
def shard() -> ShardHarness:
    return ShardHarness()


def subscription(*topics: str) -> dict[str, bytes]:
    body = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return {"range": struct.pack(">hi", 0, len(topics)) + body + b"\xff\xff\xff\xff"}


def test_offsets_expire_when_their_group_has_been_empty_for_the_retention_time(shard: ShardHarness) -> None:
    (leader,) = shard.stable_group()
    shard.commit(5, committer=Committer(1, leader))
    shard.leave(leader)
    shard.advance(RETENTION_MS - 1)
    assert shard.committed() == 5
    shard.advance(HOUR_MS)
    assert shard.committed() == -1
    assert shard.state() is None
    assert shard.replayed().state() is None


def test_offsets_of_a_group_without_members_expire_after_the_commit(shard: ShardHarness) -> None:
    shard.commit(5)
    shard.advance(RETENTION_MS // 2)
    shard.commit(6, topic_partition=PAYMENTS)
    shard.advance(RETENTION_MS // 2 + HOUR_MS)
    assert shard.committed() == -1
    assert shard.committed(topic_partition=PAYMENTS) == 6
    shard.advance(RETENTION_MS)
    assert shard.state() is None


def test_offsets_of_topics_that_members_consume_do_not_expire() -> None:
    shard = ShardHarness(GroupConfig(initial_rebalance_delay_ms=0, offsets_retention_ms=60_000))
    (leader,) = shard.stable_group(protocols=subscription("orders"), session_timeout_ms=1_800_000)
    shard.commit(5, committer=Committer(1, leader))
    shard.commit(6, committer=Committer(1, leader), topic_partition=PAYMENTS)
    shard.advance(1_200_000)
    assert shard.committed() == 5
    assert shard.committed(topic_partition=PAYMENTS) == -1


def test_a_transaction_keeps_an_offset_and_its_group_from_expiring(shard: ShardHarness) -> None:
    shard.commit(5)
    shard.commit(6, producer_id=7)
    shard.advance(RETENTION_MS + HOUR_MS)
    assert shard.committed() is UNSTABLE
    shard.end_transaction(7, committed=False)
    assert shard.committed() == 5
    shard.advance(HOUR_MS)
    assert shard.state() is None


def test_an_offset_with_a_retention_of_its_own_expires_by_that(shard: ShardHarness) -> None:
    shard.commit(5, retention_time_ms=HOUR_MS)
    shard.commit(6, topic_partition=PAYMENTS, retention_time_ms=2 * RETENTION_MS)
    shard.advance(2 * HOUR_MS)
    assert shard.committed() == -1
    shard.advance(RETENTION_MS)
    assert shard.committed(topic_partition=PAYMENTS) == 6


def test_expiry_removes_a_bounded_number_of_bytes_at_a_time(shard: ShardHarness) -> None:
    for partition in range(1_001):
        shard.commit(1, topic_partition=TopicPartition("orders", partition))
    shard.now_ms += 2 * RETENTION_MS
    decision = shard.shard.decide_deadline(shard.now_ms)
    assert DECISION_RECORDS_BYTES <= sum(len(record.key) for record in decision.records) < DECISION_RECORDS_BYTES + 100
    shard.run(decision)
    assert shard.state() is not None
    shard.advance(2)
    assert shard.state() is None
