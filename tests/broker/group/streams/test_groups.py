"""Streams groups: members join with their topology, get tasks once its topics are there, and lose them; and all of it
survives a crash."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.broker.group.classic.group import ClassicGroup
from fencepost.broker.group.decision_builder import GroupConfig, StreamsTimes
from fencepost.broker.group.offsets.commits import Committer, Fetcher
from fencepost.broker.group.streams.group import StreamsGroup
from fencepost.broker.group.streams.topology import TopologyStatus
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.group_membership import JoinGroupResponse
from fencepost.protocol.messages.share_groups import ShareGroupHeartbeatRequest
from fencepost.protocol.messages.streams_groups import StreamsTaskOffset
from fencepost.protocol.streams_topology import StreamsTaskIds
from tests.support.streams_group import (
    CHANGELOG,
    EAGER,
    REPARTITION,
    SENDER,
    ModelMember,
    StreamsWorld,
    config,
    counting,
)

WORDS = TopicPartition("words", 0)


# Joining


def test_the_first_member_has_the_internal_topics_created() -> None:
    world = StreamsWorld()
    joined = world.member("a").join()
    assert joined.response.error_code == ErrorCode.NONE
    assert [status.status_code for status in joined.response.status or []] == [TopologyStatus.MISSING_INTERNAL_TOPICS]
    assert {name: topic.partition_count for name, topic in joined.to_create.items()} == {REPARTITION: 2, CHANGELOG: 2}
    assert joined.to_create[CHANGELOG].configs == {"cleanup.policy": "compact"}
    assert world.streams_group.state_name == "NotReady"


def test_a_member_gets_its_tasks_once_the_internal_topics_are_there() -> None:
    world = StreamsWorld()
    member = world.member("a")
    member.join()
    assert member.active == {}
    member.beat()
    assert member.active == {"0": [0, 1], "1": [0, 1]}
    assert member.statuses == []
    assert world.streams_group.state_name == "Stable"
    assert member.beat().response.active_tasks is None


def test_a_group_that_was_empty_waits_for_more_members() -> None:
    world = StreamsWorld(config_of_groups=config(StreamsTimes(assignment_interval_ms=0)))
    first, second = world.member("a"), world.member("b")
    first.join()
    assert first.statuses == [TopologyStatus.ASSIGNMENT_DELAYED, TopologyStatus.MISSING_INTERNAL_TOPICS]
    second.join()
    assert (first.epoch, second.epoch) == (1, 1)
    world.advance(3_000)
    first.beat()
    second.beat()
    assert first.statuses == second.statuses == []
    assert {*first.active["0"], *second.active["0"]} == {0, 1}
    world.check_invariants()


def test_an_assignment_is_kept_for_the_interval_at_least() -> None:
    world = StreamsWorld(config_of_groups=config(StreamsTimes(initial_rebalance_delay_ms=0)))
    member = world.member("a")
    member.join()
    member.beat()
    assert member.statuses == [TopologyStatus.ASSIGNMENT_DELAYED]
    world.advance(1_000)
    member.beat()
    assert member.active == {"0": [0, 1], "1": [0, 1]}


def test_members_come_back_soon_until_the_group_has_settled() -> None:
    world = StreamsWorld()
    member = world.member("a")
    member.join()
    assert member.last.heartbeat_interval_ms == 500
    member.beat()
    world.advance(4_000)
    member.beat()
    assert member.last.heartbeat_interval_ms == 5_000


# Sharing


def test_a_task_is_given_only_once_its_former_owner_has_given_it_up() -> None:
    world = StreamsWorld()
    first, second = world.member("a"), world.member("b")
    first.join()
    first.beat()
    second.join()
    assert second.active == {}
    first.beat()
    assert first.active == {"0": [0], "1": [0]}
    assert first.epoch < second.epoch
    second.beat()
    assert second.active == {}
    first.beat()  # now it says that the others are given up
    assert first.epoch == second.epoch
    second.beat()
    assert second.active == {"0": [1], "1": [1]}
    world.check_invariants()
    assert world.streams_group.state_name == "Stable"


def test_tasks_of_a_leaving_member_go_to_the_others() -> None:
    world = StreamsWorld()
    first, second = world.member("a"), world.member("b")
    first.join()
    second.join()
    world.settle(first, second)
    second.leave()
    world.settle(first)
    assert first.active == {"0": [0, 1], "1": [0, 1]}


def test_standbys_are_kept_by_another_process_and_become_active_there() -> None:
    world = StreamsWorld(config_of_groups=config(EAGER._replace(num_standby_replicas=1)))
    first, second = world.member("a"), world.member("b")
    first.join()
    second.join()
    world.settle(first, second)
    assert first.standby == {"1": second.active["1"]}
    assert second.standby == {"1": first.active["1"]}
    world.check_invariants()
    second.leave()
    world.settle(first)
    assert first.active == {"0": [0, 1], "1": [0, 1]}
    assert first.standby == {}


def test_threads_of_one_process_keep_no_copies_for_each_other() -> None:
    world = StreamsWorld(config_of_groups=config(EAGER._replace(num_standby_replicas=1)))
    first, second = world.member("a", process="p"), world.member("b", process="p")
    first.join()
    second.join()
    world.settle(first, second)
    assert first.standby == second.standby == {}
    assert len(first.active["0"]) == len(second.active["0"]) == 1


def test_another_count_of_standbys_makes_another_assignment() -> None:
    counts = [0]
    times = lambda _: EAGER._replace(num_standby_replicas=counts[0])  # noqa: E731
    world = StreamsWorld(config_of_groups=GroupConfig(streams_times=times))
    first, second = world.member("a"), world.member("b")
    first.join()
    second.join()
    world.settle(first, second)
    epoch = world.streams_group.group_epoch
    counts[0] = 1
    world.settle(first, second)
    assert world.streams_group.group_epoch == epoch + 1
    assert first.standby == {"1": second.active["1"]}


# Time


def test_a_member_that_is_silent_loses_what_it_has() -> None:
    world = StreamsWorld()
    first, second = world.member("a"), world.member("b")
    first.join()
    second.join()
    world.settle(first, second)
    for _ in range(10):
        world.advance(5_000)
        first.beat()
    world.settle(first)
    assert first.active == {"0": [0, 1], "1": [0, 1]}
    second.beat()
    assert second.last.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_give_up_in_time_is_removed() -> None:
    world = StreamsWorld()
    first, second = world.member("a"), world.member("b")
    first.join()
    first.beat()
    second.join()
    first.beat()
    first.has_changed = False
    for _ in range(13):
        world.advance(5_000)
        first.beat()
        second.beat()
    assert list(world.streams_group.members) == ["b"]
    world.settle(second)
    assert second.active == {"0": [0, 1], "1": [0, 1]}


# Topics


def test_missing_source_topics_are_reported_and_the_group_goes_on_once_they_exist() -> None:
    world = StreamsWorld(other=1)
    member = world.member("a")
    member.join()
    assert member.statuses == [TopologyStatus.MISSING_SOURCE_TOPICS]
    assert (member.last.status or [])[0].status_detail == "Source topics words are missing."
    world.create("words", 3)
    member.beat()
    member.beat()
    assert member.active == {"0": [0, 1, 2], "1": [0, 1, 2]}


def test_an_internal_topic_with_another_partition_count_is_reported() -> None:
    world = StreamsWorld()
    world.create(CHANGELOG, 5)
    member = world.member("a")
    member.join()
    assert member.statuses == [TopologyStatus.INCORRECTLY_PARTITIONED_TOPICS]


def test_tasks_are_taken_away_when_an_internal_topic_is_gone() -> None:
    world = StreamsWorld()
    member = world.member("a")
    member.join()
    member.beat()
    world.topics.remove(CHANGELOG)
    member.beat()
    assert member.active == {}
    assert member.statuses == [TopologyStatus.MISSING_INTERNAL_TOPICS]
    world.settle(member)
    assert member.active == {"0": [0, 1], "1": [0, 1]}


# Topologies


def test_another_topology_is_refused_and_an_older_one_is_reported_as_stale() -> None:
    world = StreamsWorld()
    first, second = world.member("a"), world.member("b")
    first.join(counting(epoch=2))
    refused = second.join(counting("other", epoch=2)).response
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Topology updates are not supported yet.",
    )
    second.join(counting("other", epoch=1))
    assert TopologyStatus.STALE_TOPOLOGY in second.statuses
    assert list(world.streams_group.members) == ["a", "b"]


def test_a_topology_that_cannot_work_is_refused() -> None:
    world = StreamsWorld()
    endless = counting()
    endless.subtopologies[0].repartition_sink_topics = []
    assert world.member("a").join(endless).response.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert world.shard._groups == {}


def test_a_shutdown_request_is_reported_to_all_members_until_the_group_is_empty() -> None:
    world = StreamsWorld()
    first, second = world.member("a"), world.member("b")
    first.join()
    second.join()
    world.settle(first, second)
    first.beat(shutdown_application=True)
    second.beat()
    assert first.statuses == second.statuses == [TopologyStatus.SHUTDOWN_APPLICATION]
    assert "member a encountered" in (second.last.status or [])[0].status_detail
    first.leave()
    second.leave()
    second.join()
    assert TopologyStatus.SHUTDOWN_APPLICATION not in second.statuses


# Interactive queries


def test_members_learn_the_endpoints_of_tasks() -> None:
    world = StreamsWorld(config_of_groups=config(EAGER._replace(num_standby_replicas=1)))
    first, second = world.member("a", port=1), world.member("b", port=2)
    first.join()
    second.join()
    world.settle(first, second)
    assert first.beat().response.partitions_by_user_endpoint is None
    found = first.beat(endpoint_information_epoch=-1).response.partitions_by_user_endpoint
    assert found is not None
    by_port = {each.user_endpoint.port: each for each in found}
    assert {topic.topic: topic.partitions for topic in by_port[1].active_partitions} == {
        "words": first.active["0"],
        REPARTITION: first.active["1"],
    }
    assert {topic.topic: topic.partitions for topic in by_port[2].standby_partitions} == {
        REPARTITION: second.standby["1"]
    }
    assert first.endpoint_epoch == second.endpoint_epoch


def test_an_endpoint_is_reported_even_while_topics_are_missing() -> None:
    world = StreamsWorld(other=1)
    joined = world.member("a", port=1).join().response
    assert joined.partitions_by_user_endpoint is not None
    assert joined.partitions_by_user_endpoint[0].active_partitions == []


# Fencing


def test_only_the_last_epochs_are_accepted() -> None:
    world = StreamsWorld()
    member = world.member("a")
    member.join()
    previous = member.epoch
    member.beat()
    assert member.beat(epoch=member.epoch + 1).response.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    nothing: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    assert member.beat(epoch=previous, **nothing).response.error_code == ErrorCode.NONE
    foreign = {**nothing, "standby_tasks": [StreamsTaskIds("1", [0])]}
    assert member.beat(epoch=previous, **foreign).response.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert world.member("b").beat(epoch=1).response.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_streams_group_refuses_new_members() -> None:
    world = StreamsWorld(config_of_groups=config(streams_max_size=1))
    member = world.member("a")
    member.join()
    assert world.member("b").join().response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert member.join().response.error_code == ErrorCode.NONE


def test_offsets_of_tasks_are_taken_and_change_nothing() -> None:
    world = StreamsWorld()
    member = world.member("a")
    member.join()
    member.beat()
    epoch = member.epoch
    offsets = [StreamsTaskOffset("0", 0, 7)]
    assert member.beat(task_offsets=offsets, task_end_offsets=offsets).response.error_code == ErrorCode.NONE
    assert member.epoch == epoch


# Static members


def static(world: StreamsWorld, name: str) -> ModelMember:
    return world.member(name, process="p")


def settled_static_pair(world: StreamsWorld) -> tuple[ModelMember, ModelMember]:
    first, other = static(world, "a"), world.member("b", process="q")
    first.join(instance_id="i")
    other.join()
    world.settle(first, other)
    return first, other


def test_a_static_member_that_returns_has_its_tasks_and_moves_no_other() -> None:
    world = StreamsWorld()
    first, other = settled_static_pair(world)
    had, others, epoch = first.active, other.active, world.streams_group.group_epoch
    left = first.beat(epoch=-2, instance_id="i").response
    assert (left.error_code, left.member_epoch) == (ErrorCode.NONE, -2)
    assert world.streams_group.members["a"].member_epoch == -2
    again = static(world, "c")
    back = again.join(instance_id="i").response
    assert (back.error_code, back.member_epoch, again.active) == (ErrorCode.NONE, epoch, had)
    assert set(world.streams_group.members) == {"b", "c"}
    other.beat()
    assert (other.active, world.streams_group.group_epoch) == (others, epoch)


def test_an_instance_id_that_another_process_has_is_refused() -> None:
    world = StreamsWorld()
    first, _ = settled_static_pair(world)
    other = static(world, "c")
    assert other.join(instance_id="i").response.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    first.beat(epoch=-2, instance_id="i")
    assert other.join(instance_id="i").response.error_code == ErrorCode.NONE
    for refused in (first.beat(instance_id="i"), first.beat(epoch=-2, instance_id="i")):
        assert refused.response.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert first.beat(instance_id="nobody").response.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_leaves_for_good_frees_its_tasks() -> None:
    world = StreamsWorld()
    first, other = settled_static_pair(world)
    assert first.leave(instance_id="i").response.error_code == ErrorCode.NONE
    world.settle(other)
    assert sum(map(len, other.active.values())) == 4
    assert static(world, "c").join(instance_id="i").response.error_code == ErrorCode.NONE


def test_a_static_member_that_stays_away_is_removed_when_its_session_ends() -> None:
    world = StreamsWorld()
    first, _ = settled_static_pair(world)
    first.beat(epoch=-2, instance_id="i")
    world.advance(60_000)
    assert "a" not in world.streams_group.members


def test_a_static_member_outlives_a_restart_of_the_coordinator() -> None:
    world = StreamsWorld()
    first, _ = settled_static_pair(world)
    had = first.active
    first.beat(epoch=-2, instance_id="i")
    world.crash()
    again = static(world, "c")
    assert again.join(instance_id="i").response.error_code == ErrorCode.NONE
    assert again.active == had


JOIN = {"member_epoch": 0, "rebalance_timeout_ms": 1, "topology": counting()}
CHANGELOG_WITH_COUNT = counting()
CHANGELOG_WITH_COUNT.subtopologies[1].state_changelog_topics[0].partitions = 3
REGEX = counting()
REGEX.subtopologies[0].source_topic_regex = ["w.*"]
TWICE = counting()
TWICE.subtopologies[0].subtopology_id = "1"


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({**JOIN, "instance_id": " "}, 42, "InstanceId can't be empty."),
        ({**JOIN, "warmup_tasks": [StreamsTaskIds()]}, 42, "WarmupTasks must be empty when (re-)joining."),
        ({**JOIN, "topology": REGEX}, 42, "Regular expressions for source topics are not supported yet."),
        ({**JOIN, "member_id": " "}, 42, "MemberId can't be empty."),
        ({**JOIN, "group_id": ""}, 42, "GroupId can't be empty."),
        ({**JOIN, "rack_id": ""}, 42, "RackId can't be empty."),
        ({**JOIN, "rebalance_timeout_ms": -1}, 42, "RebalanceTimeoutMs must be provided in first request."),
        ({**JOIN, "active_tasks": [StreamsTaskIds()]}, 42, "ActiveTasks must be empty when (re-)joining."),
        ({**JOIN, "topology": None}, 42, "Topology must be non-null when (re-)joining."),
        ({"member_epoch": -2}, 42, "InstanceId can't be null."),
        ({"member_epoch": -3}, 42, "MemberEpoch is -3, but must be greater than or equal to -2."),
        ({"member_epoch": 1, "active_tasks": []}, 42, "If one task-type is non-null, all must be non-null."),
        ({**JOIN, "member_epoch": 1}, 42, "Topology can only be provided when (re-)joining."),
        (
            {**JOIN, "topology": CHANGELOG_WITH_COUNT},
            130,
            f"Changelog topic {CHANGELOG} must have an undefined partition count, but it is set to 3.",
        ),
        ({**JOIN, "topology": TWICE}, 130, "A subtopology is named more than once."),
        ({**JOIN, "topology": counting(epoch=-1)}, 131, "Topology epoch must be non-negative."),
        ({"member_epoch": 1}, 69, "Streams group g not found."),
        ({"member_epoch": -1}, 69, "Group g not found."),
    ],
)
def test_requests_that_are_wrong_are_refused_as_kafka_refuses_them(
    fields: dict[str, Any], error: int, message: str
) -> None:
    response = StreamsWorld().send(**{"member_id": "m", **fields}).response
    assert (response.error_code, response.error_message) == (error, message)


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (StreamsTaskIds("9", [0]), "Subtopology 9 does not exist in the topology."),
        (StreamsTaskIds("1", [2]), "Task 2 for subtopology 1 is invalid. Number of tasks for this subtopology: 2"),
    ],
)
def test_tasks_that_there_are_not_are_refused(tasks: StreamsTaskIds, message: str) -> None:
    member = StreamsWorld().member("a")
    member.join()
    member.beat()
    response = member.beat(active_tasks=[tasks], standby_tasks=[], warmup_tasks=[]).response
    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_REQUEST, message)


def test_a_member_that_missed_a_reply_gets_its_assignment_again() -> None:
    world = StreamsWorld()
    member = world.member("a")
    member.join()
    previous = member.epoch
    member.beat()
    nothing: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    member.active = {}
    member.beat(epoch=previous, **nothing)
    assert member.active == {"0": [0, 1], "1": [0, 1]}


# Offsets


def test_members_commit_for_tasks_that_they_have_had_since() -> None:
    world = StreamsWorld()
    first, second = world.member("a"), world.member("b")
    first.join()
    first.beat()
    epoch = first.epoch
    assert world.commit(1, topic_partition=WORDS, committer=Committer(epoch, "a")) is ErrorCode.NONE
    second.join()
    world.settle(first, second)
    assert first.active["0"] == [0]
    assert world.commit(2, topic_partition=WORDS, committer=Committer(epoch, "a")) is ErrorCode.NONE
    late = TopicPartition("words", 1)
    assert world.commit(2, topic_partition=late, committer=Committer(epoch, "a")) is ErrorCode.STALE_MEMBER_EPOCH
    repartition = TopicPartition(REPARTITION, 0)
    assert world.commit(2, topic_partition=repartition, committer=Committer(epoch, "a")) is ErrorCode.NONE
    unknown = TopicPartition("other", 0)
    assert world.commit(2, topic_partition=unknown, committer=Committer(epoch, "a")) is ErrorCode.STALE_MEMBER_EPOCH
    assert world.commit(2, committer=Committer(99, "a")) is ErrorCode.STALE_MEMBER_EPOCH
    assert world.commit(2, committer=Committer(1, "nobody")) is ErrorCode.UNKNOWN_MEMBER_ID
    old = Committer(first.epoch, "a", knows_member_epochs=False)
    assert world.commit(2, committer=old) is ErrorCode.UNSUPPORTED_VERSION
    for knows_member_epochs, error in ((False, ErrorCode.ILLEGAL_GENERATION), (True, ErrorCode.STALE_MEMBER_EPOCH)):
        member = Committer(epoch, "a", knows_member_epochs=knows_member_epochs)
        assert world.commit(3, committer=member, producer_id=7, topic_partition=late) is error
    assert world.commit(3, producer_id=7, topic_partition=late) is ErrorCode.NONE


def test_members_fetch_offsets_in_their_epoch() -> None:
    world = StreamsWorld()
    member = world.member("a")
    member.join()
    check = world.shard.offsets.check_fetch
    assert check("g", Fetcher()) is ErrorCode.NONE
    assert check("g", Fetcher("a", member.epoch)) is ErrorCode.NONE
    assert check("g", Fetcher("a", member.epoch + 1)) is ErrorCode.STALE_MEMBER_EPOCH
    assert check("g", Fetcher("b", 1)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_topics_that_are_read_are_not_deleted() -> None:
    world = StreamsWorld(words=2, old=1)
    member = world.member("a")
    member.join()
    member.beat()
    partitions = [WORDS, TopicPartition(REPARTITION, 0), TopicPartition("old", 0)]
    errors = world.run(world.shard.offsets.delete("g", partitions))
    assert errors == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
    ]
    member.leave()
    assert world.run(world.shard.offsets.delete("g", [WORDS])) == [ErrorCode.NONE]


def test_offsets_of_a_group_without_members_expire_and_the_group_with_them() -> None:
    world = StreamsWorld(config_of_groups=config(offsets_retention_ms=3_600_000))
    member = world.member("a")
    member.join()
    member.beat()
    world.commit(1, topic_partition=WORDS, committer=Committer(member.epoch, "a"))
    member.leave()
    world.advance(3_000_000)
    assert world.committed(topic_partition=WORDS) == 1
    world.advance(1_800_000)
    assert world.committed(topic_partition=WORDS) == -1
    assert world.shard._groups == {}


# Groups of other kinds


def test_a_streams_group_with_members_is_no_group_of_another_kind() -> None:
    world = StreamsWorld()
    world.member("a").join()
    refused = world.join()
    assert isinstance(refused, JoinGroupResponse)
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.heartbeat("a", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync("a", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.leave("a").members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    consumer = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1,
        subscribed_topic_names=[],
        topic_partitions=[],
    )
    response = world.run(world.shard.consumer_heartbeat(consumer, 1, SENDER, world.now_ms))
    assert (response.error_code, response.error_message) == (69, "Group g is not a consumer group.")
    share = ShareGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_names=["words"])
    assert world.run(world.shard.shares.heartbeat(share, SENDER, world.now_ms)).response.error_code == 69
    assert world.run(world.shard.delete_group("g")) is ErrorCode.NON_EMPTY_GROUP
    described = world.shard.describe_group("g")
    assert described == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a classic group.")


def test_an_empty_streams_group_becomes_a_classic_one() -> None:
    world = StreamsWorld()
    member = world.member("a")
    member.join()
    member.leave()
    member_id, _ = world.join_known()
    world.sync(member_id, 1, {member_id: b""})
    assert isinstance(world.shard._groups["g"], ClassicGroup)
    world.crash()
    assert isinstance(world.shard._groups["g"], ClassicGroup)


def test_a_classic_group_becomes_a_streams_group_only_without_members() -> None:
    world = StreamsWorld()
    (member_id,) = world.stable_group()
    refused = world.member("a").join().response
    assert (refused.error_code, refused.error_message) == (69, "Group g is not a streams group.")
    world.commit(5, topic_partition=WORDS, committer=Committer(1, member_id))
    world.leave(member_id)
    member = world.member("a")
    member.join()
    assert isinstance(world.shard._groups["g"], StreamsGroup)
    assert world.committed(topic_partition=WORDS) == 5
    world.crash()
    member.beat()
    assert member.active == {"0": [0, 1], "1": [0, 1]}


def test_a_group_of_offsets_alone_becomes_a_streams_group() -> None:
    world = StreamsWorld()
    world.commit(5, topic_partition=WORDS)
    world.member("a").join()
    assert isinstance(world.replayed().shard._groups["g"], StreamsGroup)


def test_a_deleted_group_is_gone_after_a_crash_too() -> None:
    world = StreamsWorld()
    member = world.member("a")
    member.join()
    member.leave()
    assert world.run(world.shard.delete_group("g")) is ErrorCode.NONE
    assert world.shard._groups == world.replayed().shard._groups == {}
    described = world.shard.streams.describe("g")
    assert (described.error_code, described.error_message) == (69, "Group g not found.")


# Describing


def test_a_description_shows_topics_as_the_last_heartbeat_found_them() -> None:
    world = StreamsWorld(other=1)
    member = world.member("a", port=8080)
    member.join()
    world.create("words", 2)
    assert changelog_partitions(world) == 0
    world.settle(member)
    assert changelog_partitions(world) == 2


def changelog_partitions(world: StreamsWorld) -> int:
    topology = world.shard.streams.describe("g").topology
    assert topology is not None
    assert topology.subtopologies is not None
    count: int = topology.subtopologies[1].state_changelog_topics[0].partitions
    return count


def test_a_description_shows_members_tasks_and_partition_counts() -> None:
    world = StreamsWorld(other=1)
    member = world.member("a", port=8080)
    member.join()
    before = world.shard.streams.describe("g")
    assert before.topology is not None
    assert before.topology.subtopologies is not None
    assert before.group_state == "NotReady"
    assert before.topology.subtopologies[1].state_changelog_topics[0].partitions == 0
    world.create("words", 2)
    world.settle(member)
    described = world.shard.streams.describe("g")
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 4, 4)
    assert described.topology is not None
    assert described.topology.subtopologies is not None
    assert described.topology.subtopologies[1].state_changelog_topics[0].partitions == 2
    (shown,) = described.members
    assert shown.assignment.active_tasks == shown.target_assignment.active_tasks
    assert shown.assignment.active_tasks == [StreamsTaskIds("0", [0, 1]), StreamsTaskIds("1", [0, 1])]
    assert (shown.process_id, shown.topology_epoch, shown.user_endpoint) == ("process-a", 0, member.endpoint)
    (listed,) = world.shard.list_groups()
    assert (listed.group_type, listed.protocol_type, listed.group_state) == ("streams", "streams", "Stable")
