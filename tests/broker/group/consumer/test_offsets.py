"""Offsets of groups of the consumer protocol: epochs for commits and fetches, and deletion."""

from __future__ import annotations

import pytest

from fencepost.broker.group.decision_builder import GroupConfig, GroupTimes
from fencepost.broker.group.offsets.commits import Committer, Fetcher
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.errors import ErrorCode
from tests.support.consumer_group import GroupWorld, ModelMember, topic_id

HOUR_MS = 3_600_000
FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def world() -> GroupWorld:
    times = GroupTimes(session_timeout_ms=100 * HOUR_MS, assignment_interval_ms=0)
    config = GroupConfig(offsets_retention_ms=HOUR_MS, consumer_times=lambda _: times)
    return GroupWorld(config=config, orders=2, payments=1)


@pytest.fixture
def pair(world: GroupWorld) -> tuple[ModelMember, ModelMember]:
    """Two members that share `orders`; the one that came first kept a partition all the time."""
    first, second = world.member("a", "orders", assignor="range"), world.member("b", "orders")
    first.join()
    second.join()
    world.settle([first, second])
    assert (first.owned, second.owned) == ({("orders", 0)}, {("orders", 1)})
    return first, second


def commit(world: GroupWorld, committer: Committer, topic_partition: TopicPartition = FIRST) -> ErrorCode:
    error: ErrorCode = world.commit(
        5, topic_partition=topic_partition, topic_id=topic_id(topic_partition.topic), committer=committer
    )
    return error


def test_a_member_commits_in_its_epoch(world: GroupWorld, pair: tuple[ModelMember, ModelMember]) -> None:
    first, _ = pair
    assert commit(world, Committer(first.epoch, "a")) is ErrorCode.NONE
    assert world.committed() == 5
    assert commit(world, Committer(first.epoch + 1, "a")) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(world, Committer(first.epoch, "nobody")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(world, Committer()) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_older_epoch_counts_for_what_the_member_has_had_since(
    world: GroupWorld, pair: tuple[ModelMember, ModelMember]
) -> None:
    first, _ = pair
    assert commit(world, Committer(first.epoch - 1, "a"), FIRST) is ErrorCode.NONE
    assert commit(world, Committer(first.epoch - 1, "a"), SECOND) is ErrorCode.STALE_MEMBER_EPOCH


def test_a_member_that_is_revoking_a_partition_may_commit_for_it_until_then(world: GroupWorld) -> None:
    first, second = world.member("a", "orders"), world.member("b", "orders")
    first.join()
    epoch = first.epoch
    second.join()
    first.heartbeat()
    for topic_partition in (FIRST, SECOND):
        assert commit(world, Committer(epoch, "a"), topic_partition) is ErrorCode.NONE
    world.settle([first, second])
    (lost,) = {("orders", 0), ("orders", 1)} - first.owned
    assert commit(world, Committer(epoch, "a"), TopicPartition(*lost)) is ErrorCode.STALE_MEMBER_EPOCH


def test_requests_that_know_no_epochs_are_refused_to_members_that_have_them(
    world: GroupWorld, pair: tuple[ModelMember, ModelMember]
) -> None:
    first, _ = pair
    old = Committer(first.epoch, "a", knows_member_epochs=False)
    assert commit(world, old) is ErrorCode.UNSUPPORTED_VERSION


def test_any_client_may_commit_for_an_empty_group(world: GroupWorld, pair: tuple[ModelMember, ModelMember]) -> None:
    for member in pair:
        member.leave()
    assert commit(world, Committer()) is ErrorCode.NONE
    assert world.committed() == 5


def test_in_a_transaction_strangers_may_commit_and_a_stale_epoch_is_an_illegal_generation(
    world: GroupWorld, pair: tuple[ModelMember, ModelMember]
) -> None:
    first, _ = pair

    def commit_in_transaction(committer: Committer, topic_partition: TopicPartition = FIRST) -> ErrorCode:
        error: ErrorCode = world.commit(
            7, producer_id=1, committer=committer, topic_partition=topic_partition, topic_id=topic_id("orders")
        )
        return error

    for epoch, topic_partition in ((first.epoch + 1, FIRST), (first.epoch - 1, SECOND)):
        old = Committer(epoch, "a", knows_member_epochs=False)
        assert commit_in_transaction(old, topic_partition) is ErrorCode.ILLEGAL_GENERATION
        assert commit_in_transaction(Committer(epoch, "a"), topic_partition) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit_in_transaction(Committer(1, "nobody")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_in_transaction(Committer()) is ErrorCode.NONE
    assert commit_in_transaction(Committer(first.epoch, "a")) is ErrorCode.NONE
    assert world.committed() is ErrorCode.UNSTABLE_OFFSET_COMMIT
    world.crash()
    world.end_transaction(1, committed=True)
    assert world.committed() == 7


def test_members_fetch_in_their_epoch_and_others_without_one(
    world: GroupWorld, pair: tuple[ModelMember, ModelMember]
) -> None:
    first, _ = pair
    check = world.shard.offsets.check_fetch
    assert check("g", Fetcher()) is ErrorCode.NONE
    assert check("g", Fetcher("a", first.epoch)) is ErrorCode.NONE
    assert check("g", Fetcher("a", first.epoch - 1)) is ErrorCode.STALE_MEMBER_EPOCH
    assert check("g", Fetcher("nobody", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check("unknown", Fetcher("nobody", 1)) is ErrorCode.NONE


def test_offsets_of_subscribed_topics_are_not_deleted(world: GroupWorld, pair: tuple[ModelMember, ModelMember]) -> None:
    first, _ = pair
    payment = TopicPartition("payments", 0)
    assert commit(world, Committer(first.epoch, "a")) is ErrorCode.NONE
    assert commit(world, Committer(first.epoch, "a"), payment) is ErrorCode.NONE
    deleted = world.run(world.shard.offsets.delete("g", [FIRST, payment]))
    assert deleted == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    assert (world.committed(), world.committed(topic_partition=payment)) == (5, -1)


def test_a_group_is_deleted_with_all_that_was_written_of_it_once_it_is_empty(
    world: GroupWorld, pair: tuple[ModelMember, ModelMember]
) -> None:
    first, second = pair
    commit(world, Committer(first.epoch, "a"))
    second.regex = "pay.*"
    second.heartbeat(subscribed_topic_regex="pay.*")
    assert world.run(world.shard.delete_group("g")) is ErrorCode.NON_EMPTY_GROUP
    first.leave()
    second.leave()
    assert world.run(world.shard.delete_group("g")) is ErrorCode.NONE
    left = {}
    for _, (key, value, _) in world.log:
        left[key] = value
    assert set(left.values()) == {None}
    assert world.run(world.shard.delete_group("g")) is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_expire_after_the_commit_unless_the_topic_is_subscribed(
    world: GroupWorld, pair: tuple[ModelMember, ModelMember]
) -> None:
    first, second = pair
    payment = TopicPartition("payments", 0)
    commit(world, Committer(first.epoch, "a"))
    commit(world, Committer(first.epoch, "a"), payment)
    world.advance(2 * HOUR_MS)
    assert (world.committed(), world.committed(topic_partition=payment)) == (5, -1)
    first.leave()
    second.leave()
    world.advance(2 * HOUR_MS)
    assert world.committed() == -1
    assert "g" not in world.shard._groups, "of an empty group without offsets nothing is kept"
