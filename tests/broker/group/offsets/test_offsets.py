"""Committing, fetching, expiring and deleting offsets, in transactions and outside; and what administrators see."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from fencepost.broker.coordination.runtime import Decision, RecordOrigin
from fencepost.broker.group.classic.group import ClassicState
from fencepost.broker.group.decision_builder import GroupConfig
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
RETENTION_MS = 7 * 24 * HOUR_MS
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.fixture
def shard() -> ShardHarness:
    return ShardHarness()


def subscription(*topics: str) -> dict[str, bytes]:
    body = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return {"range": struct.pack(">hi", 0, len(topics)) + body + b"\xff\xff\xff\xff"}


# Committing


def test_a_group_without_members_can_commit(shard: ShardHarness) -> None:
    assert shard.commit(5, metadata="note", leader_epoch=3) is ErrorCode.NONE
    (fetched,) = shard.shard.offsets.fetch("g", [ORDERS], require_stable=False)
    assert fetched == (ORDERS, 5, 3, "note", ErrorCode.NONE)
    assert shard.state() is ClassicState.EMPTY


def test_missing_metadata_is_stored_as_empty(shard: ShardHarness) -> None:
    shard.commit(5, metadata=None)
    (fetched,) = shard.shard.offsets.fetch("g", None, require_stable=False)
    assert fetched.metadata == ""


def test_an_unknown_group_has_no_offsets(shard: ShardHarness) -> None:
    (fetched,) = shard.shard.offsets.fetch("g", [ORDERS], require_stable=True)
    assert fetched == (ORDERS, -1, -1, "", ErrorCode.NONE)
    assert shard.shard.offsets.fetch("g", None, require_stable=True) == []


def test_too_long_metadata_is_refused(shard: ShardHarness) -> None:
    assert shard.commit(5, metadata="x" * 4_096) is ErrorCode.NONE
    assert shard.commit(6, metadata="x" * 4_097) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert shard.committed() == 5


def test_a_generation_of_an_unknown_group_is_refused(shard: ShardHarness) -> None:
    assert shard.commit(5, committer=Committer(1, "m")) is ErrorCode.GROUP_ID_NOT_FOUND
    before_version_9 = Committer(1, "m", knows_member_epochs=False)
    assert shard.commit(5, committer=before_version_9) is ErrorCode.ILLEGAL_GENERATION
    assert shard.commit(5, committer=Committer(1, "m"), producer_id=7) is ErrorCode.ILLEGAL_GENERATION
    assert shard.state() is None


@pytest.mark.parametrize(
    ("committer", "plain", "transactional"),
    [
        (Committer(), ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE),
        (Committer(1, "made-up"), ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID),
        (Committer(0, "LEADER"), ErrorCode.ILLEGAL_GENERATION, ErrorCode.ILLEGAL_GENERATION),
        (Committer(-1, "LEADER"), ErrorCode.ILLEGAL_GENERATION, ErrorCode.ILLEGAL_GENERATION),
        (Committer(1, "LEADER", "nobody"), ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID),
        (Committer(1, "LEADER"), ErrorCode.NONE, ErrorCode.NONE),
    ],
)
def test_commits_to_a_stable_group_are_checked(
    shard: ShardHarness, committer: Committer, plain: ErrorCode, transactional: ErrorCode
) -> None:
    (leader,) = shard.stable_group()
    committer = committer._replace(member_id=leader if committer.member_id == "LEADER" else committer.member_id)
    assert shard.commit(5, committer=committer) is plain
    assert shard.commit(5, committer=committer, producer_id=7) is transactional


def test_a_member_can_commit_the_old_generation_until_the_next_begins(shard: ShardHarness) -> None:
    (leader,) = shard.stable_group()
    shard.join(version=3)
    assert shard.commit(5, committer=Committer(1, leader)) is ErrorCode.NONE
    shard.join(member_id=leader)
    assert shard.commit(6, committer=Committer(1, leader)) is ErrorCode.ILLEGAL_GENERATION
    assert shard.commit(6, committer=Committer(2, leader)) is ErrorCode.REBALANCE_IN_PROGRESS
    assert shard.commit(6, committer=Committer(2, leader), producer_id=7) is ErrorCode.NONE


def test_a_fenced_static_member_cannot_commit(shard: ShardHarness) -> None:
    old = shard.join(instance_id="i").answer.member_id
    shard.sync_all()
    shard.join(instance_id="i")
    assert shard.commit(5, committer=Committer(1, old, "i")) is ErrorCode.FENCED_INSTANCE_ID
    assert shard.commit(5, committer=Committer(1, old, "i"), producer_id=7) is ErrorCode.FENCED_INSTANCE_ID


# In transactions


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


def test_a_transactional_commit_needs_a_group_id(shard: ShardHarness) -> None:
    assert shard.commit(5, group_id="", producer_id=7) is ErrorCode.INVALID_GROUP_ID
    assert shard.commit(5, group_id="") is ErrorCode.NONE


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
