"""Deleting offsets and groups, also those of deleted topics, in bounded steps; listing and describing groups."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from fencepost.broker.coordination.runtime import Decision, RecordOrigin
from fencepost.broker.group.offsets.commits import Committer
from fencepost.broker.group.offsets.decisions import DECISION_RECORDS_BYTES, MAX_OFFSETS_EXAMINED, OffsetSearch
from fencepost.broker.group.offsets.records import OffsetAndMetadata
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_admin import DescribedGroup
from fencepost.protocol.schema import ZERO_UUID
from tests.support.group_shard import ShardHarness

ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)
HOUR_MS = 3_600_000


@pytest.fixture
def shard() -> ShardHarness:
    return ShardHarness()


def subscription(*topics: str) -> dict[str, bytes]:
    body = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return {"range": struct.pack(">hi", 0, len(topics)) + body + b"\xff\xff\xff\xff"}


# Committing


# In transactions


# Deleting offsets


def test_deleted_offsets_are_gone_also_those_of_open_transactions(shard: ShardHarness) -> None:
    shard.commit(5)
    shard.commit(9, producer_id=7)
    assert shard.run(shard.shard.offsets.delete("g", [ORDERS, PAYMENTS])) == [ErrorCode.NONE, ErrorCode.NONE]
    shard.end_transaction(7, committed=True)
    assert shard.committed() == -1
    assert shard.state() is None
    assert shard.replayed().committed() == -1


def test_offsets_of_consumed_topics_are_not_deleted(shard: ShardHarness) -> None:
    leader = shard.stable_group(protocols=subscription("orders"))[0]
    shard.commit(5, committer=Committer(1, leader))
    shard.commit(6, committer=Committer(1, leader), topic_partition=PAYMENTS)
    errors = shard.run(shard.shard.offsets.delete("g", [ORDERS, PAYMENTS]))
    assert errors == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    assert shard.committed() == 5
    assert shard.committed(topic_partition=PAYMENTS) == -1


def test_what_a_member_consumes_counts_once_its_generation_has_begun(shard: ShardHarness) -> None:
    (leader,) = shard.stable_group(protocols=subscription("orders"))
    shard.join_known(protocols=subscription("payments"))
    deletion = [ORDERS, PAYMENTS]
    assert shard.run(shard.shard.offsets.delete("g", deletion)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    shard.join(member_id=leader, protocols=subscription("orders"))
    assert shard.run(shard.shard.offsets.delete("g", deletion)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * 2
    shard.sync_all()
    assert shard.replayed().run(shard.shard.offsets.delete("g", deletion)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * 2


def test_offsets_of_other_members_than_consumers_are_not_deleted(shard: ShardHarness) -> None:
    shard.stable_group(protocol_type="connect")
    assert shard.run(shard.shard.offsets.delete("g", [ORDERS])) is ErrorCode.NON_EMPTY_GROUP
    assert shard.run(shard.shard.offsets.delete("unknown", [ORDERS])) is ErrorCode.GROUP_ID_NOT_FOUND
    assert shard.run(shard.shard.offsets.delete("", [ORDERS])) is ErrorCode.INVALID_GROUP_ID


def test_offsets_of_a_deleted_topic_are_dropped_in_every_group(shard: ShardHarness) -> None:
    old_id, new_id = b"o" * 16, b"n" * 16
    shard.commit(5, topic_id=old_id)
    shard.commit(6, topic_id=new_id, group_id="other")
    shard.commit(7, producer_id=7, topic_partition=TopicPartition("orders", 1), topic_id=old_id)
    shard.commit(8, topic_partition=PAYMENTS)
    assert shard.run(shard.shard.offsets.drop(lambda topic, topic_id: topic_id == old_id, None)) is None
    assert shard.committed() == -1
    assert shard.committed(group_id="other") == 6
    assert shard.committed(topic_partition=TopicPartition("orders", 1)) == -1
    assert shard.committed(topic_partition=PAYMENTS) == 8


GONE = "gone" * 10


def key_bytes(decision: Decision[Any]) -> int:
    return sum(len(record.key) for record in decision.records)


def test_offsets_of_a_deleted_topic_are_dropped_in_bounded_steps_that_go_on_where_the_last_one_stopped(
    shard: ShardHarness,
) -> None:
    for partition in range(1_000):
        shard.commit(1, topic_partition=TopicPartition(GONE, partition))
        shard.commit(1, topic_partition=TopicPartition("kept", partition))
    looked_at: list[str] = []

    def is_gone(topic: str, topic_id: bytes) -> bool:
        looked_at.append(topic)
        return topic == GONE

    search: OffsetSearch | None = None
    count = 0
    while search is not None or not count:
        decision = shard.shard.offsets.drop(is_gone, search)
        assert key_bytes(decision) < DECISION_RECORDS_BYTES + 100
        search = shard.run(decision)
        count += 1
    assert count > 1
    assert len(looked_at) == 2_000, "each is looked at once"
    assert {at.topic for at in shard.shard._offsets.committed("g")} == {"kept"}


def test_a_search_for_offsets_looks_at_a_bounded_number_in_one_step(
    shard: ShardHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # unwatched: a picture of so large a shard takes long
    store = shard.shard._offsets
    value = OffsetAndMetadata(1, -1, "", 0, -1, ZERO_UUID)
    for partition in range(MAX_OFFSETS_EXAMINED + 10):
        store.commit("g", TopicPartition("kept", partition), value)
    search = shard.run(shard.shard.offsets.drop(lambda topic, topic_id: False, None))
    assert search is not None
    store.commit("g", TopicPartition("kept", 3), value)
    assert shard.run(shard.shard.offsets.drop(lambda topic, topic_id: False, search)) is None


def test_an_offset_that_was_committed_for_the_new_topic_of_the_name_meanwhile_is_kept(shard: ShardHarness) -> None:
    old_id, new_id = b"o" * 16, b"n" * 16
    for partition in range(1_000):
        shard.commit(1, topic_partition=TopicPartition("orders", partition), topic_id=old_id)
    search = shard.run(shard.shard.offsets.drop(lambda topic, topic_id: topic_id == old_id, None))
    assert search is not None
    for _, topic_partition in search.partitions:
        shard.commit(2, topic_partition=topic_partition, topic_id=new_id)
    decision = shard.shard.offsets.drop(lambda topic, topic_id: topic_id == old_id, search)
    assert not decision.records


OLD, NEW = (TopicMetadata("orders", letter * 16, 2) for letter in (b"o", b"n"))


def is_deleted(_: str, topic_id: bytes) -> bool:
    return topic_id == OLD.topic_id


def test_an_offset_of_a_deleted_topic_is_none_of_the_new_one_of_its_name(shard: ShardHarness) -> None:
    shard.topics.put(OLD)
    shard.commit(45, topic_id=OLD.topic_id)
    assert shard.committed() == 45
    shard.topics.put(NEW)
    assert shard.committed() == -1
    assert shard.shard.offsets.fetch("g", None, require_stable=False) == []
    shard.commit(3, topic_id=NEW.topic_id)
    assert shard.committed() == 3


def test_a_commit_that_waited_while_its_topic_was_created_again_is_refused(shard: ShardHarness) -> None:
    shard.topics.put(NEW)
    assert shard.commit(45, topic_id=OLD.topic_id) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert shard.commit(45, topic_id=OLD.topic_id, producer_id=7) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert shard.committed() == -1


def test_what_is_pending_for_the_new_topic_outlives_the_removal_of_the_old_one_s_offsets(shard: ShardHarness) -> None:
    shard.topics.put(OLD)
    shard.commit(45, topic_id=OLD.topic_id)
    shard.commit(46, topic_id=OLD.topic_id, producer_id=6)
    shard.topics.put(NEW)
    shard.commit(3, topic_id=NEW.topic_id, producer_id=7)
    assert shard.run(shard.shard.offsets.drop(is_deleted, None)) is None
    shard.end_transaction(7, committed=True)
    assert shard.committed() is ErrorCode.UNSTABLE_OFFSET_COMMIT
    shard.end_transaction(6, committed=True)
    assert shard.committed() == 3
    assert shard.replayed().committed() == 3


def test_many_offsets_are_deleted_in_bounded_steps(shard: ShardHarness) -> None:
    partitions = [TopicPartition("orders", partition) for partition in range(1_000)]
    for topic_partition in partitions:
        shard.commit(1, topic_partition=topic_partition)
    decision = shard.shard.offsets.delete("g", partitions)
    assert key_bytes(decision) < DECISION_RECORDS_BYTES + 100
    errors = shard.run(decision)
    assert 0 < len(errors) < len(partitions)
    assert set(errors) == {ErrorCode.NONE}
    assert shard.committed(topic_partition=partitions[len(errors) - 1]) == -1
    assert shard.committed(topic_partition=partitions[len(errors)]) == 1


# Expiry


# Administration


def test_groups_are_listed_with_state_and_type(shard: ShardHarness) -> None:
    shard.stable_group(group_id="consumers")
    shard.stable_group(group_id="workers", protocol_type="connect")
    shard.commit(5, group_id="simple")
    shard.join("pending")
    listed = {
        group.group_id: (group.group_state, group.protocol_type, group.group_type)
        for group in shard.shard.list_groups()
    }
    assert listed == {
        "consumers": ("Stable", "consumer", "classic"),
        "workers": ("Stable", "connect", "classic"),
        "simple": ("Empty", "", "classic"),
        "pending": ("Empty", "", "classic"),
    }


def test_a_stable_group_is_described_with_what_its_members_do(shard: ShardHarness) -> None:
    leader, follower = shard.stable_group(2, client_id="app")
    described = shard.shard.describe_group("g")
    assert isinstance(described, DescribedGroup)
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    assert [
        (m.member_id, m.client_id, m.client_host, m.member_metadata, m.member_assignment) for m in described.members
    ] == [(member_id, "app", "/127.0.0.1", b"metadata", member_id.encode()) for member_id in (leader, follower)]


def test_a_group_that_rebalances_is_described_without_what_its_members_want(shard: ShardHarness) -> None:
    shard.stable_group()
    shard.join(version=3)
    described = shard.shard.describe_group("g")
    assert isinstance(described, DescribedGroup)
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert all(member.member_metadata == b"" for member in described.members)
    unknown = shard.shard.describe_group("unknown")
    assert unknown == (ErrorCode.GROUP_ID_NOT_FOUND, "Group unknown not found.")


def test_an_empty_group_is_deleted_with_its_offsets(shard: ShardHarness) -> None:
    (leader,) = shard.stable_group()
    shard.commit(5, committer=Committer(1, leader))
    shard.commit(6, producer_id=7, topic_partition=PAYMENTS)
    assert shard.run(shard.shard.delete_group("g")) is ErrorCode.NON_EMPTY_GROUP
    shard.leave(leader)
    assert shard.run(shard.shard.delete_group("g")) is ErrorCode.NONE
    shard.end_transaction(7, committed=True)
    assert shard.state() is None
    assert shard.replayed().state() is None
    assert shard.run(shard.shard.delete_group("g")) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_with_many_offsets_is_deleted_step_by_step(shard: ShardHarness) -> None:
    for partition in range(1_000):
        shard.commit(1, topic_partition=TopicPartition("orders", partition))
    count = 0
    while (reply := shard.run(decision := shard.shard.delete_group("g"))) is None:
        assert key_bytes(decision) < DECISION_RECORDS_BYTES + 100
        count += 1
    assert reply is ErrorCode.NONE
    assert count
    assert shard.state() is None


@pytest.mark.parametrize("producer_id", [None, 7])
@pytest.mark.parametrize("retention_time_ms", [-1, HOUR_MS])
def test_an_offset_is_kept_as_its_record_says_it(shard: ShardHarness, retention_time_ms: int, producer_id: int) -> None:
    shard.commit(5, metadata="note", leader_epoch=3, retention_time_ms=retention_time_ms, producer_id=producer_id)
    if producer_id is not None:
        shard.end_transaction(producer_id, committed=True)
    (kept,) = kept_offsets(shard)
    assert kept.offset == 5
    assert kept_offsets(shard.replayed()) == [kept]


def kept_offsets(shard: ShardHarness) -> list[OffsetAndMetadata]:
    return list(shard.shard._offsets.committed("g").values())


# Records of other brokers


def test_kinds_of_records_of_the_future_are_left_out(shard: ShardHarness) -> None:
    shard.shard.apply(b"\x00\x63\x00\x01g", b"\x00\x00", RecordOrigin(0, 0))
    assert list(shard.shard.list_groups()) == []
