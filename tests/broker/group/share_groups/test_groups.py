"""Share groups: members join, get partitions once those have state, and lose them; and all of it survives a crash."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from fencepost.broker.group.decision_builder import GroupConfig, GroupTimes
from fencepost.broker.group.modern import HeartbeatContext
from fencepost.broker.group.refusals import HeartbeatRefusal
from fencepost.broker.group.share_groups.assignor import assign
from fencepost.broker.group.share_groups.group import ShareGroup
from fencepost.broker.group.share_groups.groups import OffsetDeletion
from fencepost.broker.group.share_groups.membership import ShareHeartbeat, StateToInitialize
from fencepost.broker.metadata.image import MetadataImage, TopicMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.share_groups import ShareGroupHeartbeatRequest
from tests.support.group_shard import ShardHarness

ORDERS_ID = b"orders".ljust(16, b"-")
RETURNS_ID = b"returns".ljust(16, b"-")
SENDER = HeartbeatContext("client", "/127.0.0.1", "")


def topic(name: str, partition_count: int) -> TopicMetadata:
    return TopicMetadata(name, name.encode().ljust(16, b"-"), partition_count, MappingProxyType({}))


class Shares:
    """A shard with share groups, over two topics."""

    def __init__(self, config: GroupConfig | None = None) -> None:
        self.topics = MetadataImage()
        self.topics.put(topic("orders", 2))
        self.topics.put(topic("returns", 1))
        self.harness = ShardHarness(config or GroupConfig(), topics=self.topics)

    def heartbeat(
        self, member_id: str, epoch: int, topics: list[str] | None = None, group_id: str = "g"
    ) -> ShareHeartbeat:
        request = ShareGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=epoch, subscribed_topic_names=topics
        )
        harness = self.harness
        reply: ShareHeartbeat = harness.run(harness.shard.shares.heartbeat(request, SENDER, harness.now_ms))
        return reply

    def join(self, member_id: str, topics: list[str]) -> int:
        """The member's epoch, once all that it wants has state."""
        heartbeat = self.heartbeat(member_id, 0, topics)
        assert heartbeat.response.error_code == 0
        self.initialize(heartbeat.to_initialize)
        self.harness.advance(2_000)
        return heartbeat.response.member_epoch

    def initialize(self, wanted: StateToInitialize | None) -> None:
        if wanted is not None:
            self.run(self.harness.shard.shares.initialized("g", wanted.partitions, self.harness.now_ms))

    def run(self, decision: Any) -> Any:
        return self.harness.run(decision)

    @property
    def group(self) -> ShareGroup:
        group = self.harness.shard._groups["g"]
        assert isinstance(group, ShareGroup)
        return group

    def assigned(self, heartbeat: ShareHeartbeat) -> dict[bytes, list[int]] | None:
        assignment = heartbeat.response.assignment
        return None if assignment is None else {each.topic_id: each.partitions for each in assignment.topic_partitions}


def test_a_member_gets_partitions_once_they_have_state() -> None:
    shares = Shares()
    joined = shares.heartbeat("m", 0, ["orders"])
    assert shares.assigned(joined) == {}
    assert joined.response.member_epoch == 2
    assert joined.to_initialize == StateToInitialize({ORDERS_ID: frozenset({0, 1})}, 2)
    assert shares.heartbeat("m", 2).to_initialize is None
    shares.initialize(joined.to_initialize)
    shares.harness.advance(2_000)
    assert shares.assigned(shares.heartbeat("m", 2)) == {ORDERS_ID: [0, 1]}
    assert shares.assigned(shares.heartbeat("m", 3)) is None


def test_members_read_the_same_partition_when_there_are_not_enough() -> None:
    shares = Shares()
    shares.join("a", ["returns"])
    shares.join("b", ["returns"])
    first, second = shares.heartbeat("a", 0, ["returns"]), shares.heartbeat("b", 0, ["returns"])
    assert shares.assigned(first) == shares.assigned(second) == {RETURNS_ID: [0]}


def test_a_share_out_waits_for_the_one_before() -> None:
    shares = Shares()
    epoch = shares.join("a", ["orders"])
    epoch = shares.heartbeat("a", epoch).response.member_epoch
    joined = shares.heartbeat("b", 0, ["orders"])
    assert shares.assigned(joined) == {}
    shares.harness.advance(1_000)
    assert shares.assigned(shares.heartbeat("b", joined.response.member_epoch)) == {ORDERS_ID: [0]}
    assert shares.assigned(shares.heartbeat("a", epoch)) == {ORDERS_ID: [1]}


def test_a_group_may_keep_its_assignments_for_a_time_of_its_own() -> None:
    times = {"g": GroupTimes(assignment_interval_ms=5_000)}
    shares = Shares(GroupConfig(share_times=lambda group_id: times.get(group_id, GroupTimes())))
    epoch = shares.join("a", ["orders"])
    shares.harness.advance(5_000)
    assert shares.assigned(shares.heartbeat("a", epoch)) == {ORDERS_ID: [0, 1]}
    joined = shares.heartbeat("b", 0, ["orders"])
    shares.harness.advance(4_999)
    assert shares.assigned(shares.heartbeat("b", joined.response.member_epoch)) is None
    shares.harness.advance(1)
    assert shares.assigned(shares.heartbeat("b", joined.response.member_epoch)) == {ORDERS_ID: [0]}


def test_a_topic_that_grows_is_read_once_the_new_partitions_have_state() -> None:
    shares = Shares()
    epoch = shares.heartbeat("m", shares.join("m", ["orders"])).response.member_epoch
    shares.topics.put(topic("orders", 3))
    shares.harness.advance(2_000)
    grown = shares.heartbeat("m", epoch)
    assert grown.to_initialize is not None
    assert grown.to_initialize.partitions == {ORDERS_ID: frozenset({2})}
    assert grown.to_initialize.added == {ORDERS_ID: frozenset({2})}, "read from offset 0: no record is missed"
    shares.initialize(grown.to_initialize)
    shares.harness.advance(2_000)
    assert shares.assigned(shares.heartbeat("m", grown.response.member_epoch)) == {ORDERS_ID: [0, 1, 2]}


def test_state_that_was_not_made_is_tried_again() -> None:
    shares = Shares()
    wanted = shares.heartbeat("m", 0, ["orders"]).to_initialize
    assert wanted is not None
    shares.harness.advance(29_000)
    assert shares.heartbeat("m", 2).to_initialize is None
    shares.harness.advance(2_000)
    again = shares.heartbeat("m", 2).to_initialize
    assert again is not None
    assert again.added == {ORDERS_ID: frozenset()}, "the group's reset decides, as at the first try"
    shares.run(shares.harness.shard.shares.not_initialized("g", again.partitions, shares.harness.now_ms))
    assert shares.heartbeat("m", 2).to_initialize is not None


def test_a_member_that_is_silent_is_taken_out() -> None:
    shares = Shares()
    shares.join("m", ["orders"])
    shares.harness.advance(45_000)
    assert shares.group.members == {}
    assert shares.heartbeat("m", 2).response.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_leaves_is_gone_at_once() -> None:
    shares = Shares()
    shares.join("m", ["orders"])
    left = shares.heartbeat("m", -1).response
    assert (left.error_code, left.member_epoch) == (0, -1)
    assert shares.group.state_name == "Empty"
    assert shares.heartbeat("m", -1).response.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_only_a_members_own_epoch_is_good() -> None:
    shares = Shares()
    epoch = shares.join("m", ["orders"])
    shares.heartbeat("m", epoch)
    assert shares.heartbeat("m", epoch).response.error_code == 0
    assert shares.heartbeat("m", epoch + 5).response.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert shares.heartbeat("m", 1).response.error_code == ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize(
    ("member_id", "epoch", "topics", "error"),
    [
        ("", 0, ["orders"], ErrorCode.INVALID_REQUEST),
        ("m", 0, None, ErrorCode.INVALID_REQUEST),
        ("m", 0, [], ErrorCode.INVALID_REQUEST),
        ("m", -2, None, ErrorCode.INVALID_REQUEST),
        ("m", 3, None, ErrorCode.GROUP_ID_NOT_FOUND),
        ("m", -1, None, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_what_makes_no_sense_is_refused(member_id: str, epoch: int, topics: list[str] | None, error: ErrorCode) -> None:
    assert Shares().heartbeat(member_id, epoch, topics).response.error_code == error


def test_a_full_share_group_refuses_new_members() -> None:
    shares = Shares(GroupConfig(share_max_size=1))
    shares.join("a", ["orders"])
    assert shares.heartbeat("b", 0, ["orders"]).response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert shares.heartbeat("a", 0, ["orders"]).response.error_code == ErrorCode.NONE


def test_a_share_group_is_no_group_of_another_kind() -> None:
    shares = Shares()
    shares.join("m", ["orders"])
    harness = shares.harness
    assert harness.join("g").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.heartbeat("m", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.sync("m", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.commit(5) is ErrorCode.GROUP_ID_NOT_FOUND
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="c",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    response = harness.run(harness.shard.consumer_heartbeat(request, 1, SENDER, harness.now_ms))
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert isinstance(harness.shard.describe_group("g"), HeartbeatRefusal)
    assert harness.shard.describe_consumer_group("g").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_of_another_kind_is_no_share_group() -> None:
    shares = Shares()
    shares.harness.join_known("g")
    assert shares.heartbeat("m", 0, ["orders"]).response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert shares.harness.shard.shares.describe("g").error_message == "Group g is not a share group."


def test_a_group_is_described_and_listed() -> None:
    shares = Shares()
    shares.heartbeat("m", shares.join("m", ["orders", "missing"]))
    described = shares.harness.shard.shares.describe("g")
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 3, 3)
    assert described.assignor_name == "simple"
    (member,) = described.members
    assert member.subscribed_topic_names == ["missing", "orders"]
    assert [(each.topic_name, each.partitions) for each in member.assignment.topic_partitions] == [("orders", [0, 1])]
    (listed,) = shares.harness.shard.list_groups()
    assert (listed.group_type, listed.protocol_type, listed.group_state) == ("share", "share", "Stable")


def test_a_group_is_the_same_after_a_crash() -> None:
    shares = Shares()
    shares.heartbeat("m", shares.join("m", ["orders"]))
    before = vars(shares.group)
    shares.harness = shares.harness.replayed()
    after = vars(shares.group)
    assert {**after, "checked_topics_version": None} == {**before, "checked_topics_version": None}
    shares.harness.advance(45_000)
    assert shares.group.members == {}


# Where groups begin to read


def test_only_an_empty_group_is_moved_and_one_that_is_not_there_comes_into_being() -> None:
    shares = Shares()
    moved = shares.run(shares.harness.shard.shares.begin_altering("g", {ORDERS_ID: [1]}, 5))
    assert moved == StateToInitialize({ORDERS_ID: [1]}, 1)
    shares.initialize(moved)
    assert shares.harness.shard.shares.state_partitions("g") == {ORDERS_ID: frozenset({1})}
    described = shares.harness.shard.shares.describe("g")
    assert (described.group_epoch, described.assignment_epoch) == (1, 1)
    shares.join("m", ["orders"])
    refused = shares.run(shares.harness.shard.shares.begin_altering("g", {ORDERS_ID: [1]}, 5))
    assert refused.error is ErrorCode.NON_EMPTY_GROUP


def test_topics_lose_their_state_in_two_steps() -> None:
    shares = Shares()
    shares.join("m", ["orders", "returns"])
    assert shares.run(shares.harness.shard.shares.begin_deleting("g", ["orders"], 5)).error is ErrorCode.NON_EMPTY_GROUP
    shares.heartbeat("m", -1)
    deletion = shares.run(shares.harness.shard.shares.begin_deleting("g", ["orders", "missing"], 5))
    assert deletion == OffsetDeletion({ORDERS_ID: frozenset({0, 1})}, ["missing"])
    # Cut short by a crash, it is asked for again.
    shares.harness = shares.harness.replayed()
    again = shares.run(shares.harness.shard.shares.begin_deleting("g", ["orders"], 5))
    assert again == OffsetDeletion({ORDERS_ID: frozenset({0, 1})}, [])
    shares.run(shares.harness.shard.shares.deleted("g", [ORDERS_ID], 5))
    assert shares.harness.shard.shares.state_partitions("g") == {RETURNS_ID: frozenset({0})}
    assert shares.run(shares.harness.shard.shares.begin_deleting("g", ["orders"], 5)) == OffsetDeletion({}, ["orders"])


def test_a_group_that_is_deleted_leaves_nothing_behind() -> None:
    shares = Shares()
    shares.join("m", ["orders"])
    assert shares.run(shares.harness.shard.delete_group("g")) is ErrorCode.NON_EMPTY_GROUP
    shares.heartbeat("m", -1)
    assert shares.run(shares.harness.shard.delete_group("g")) is ErrorCode.NONE
    assert shares.harness.shard._groups == {}
    assert shares.harness.replayed().shard._groups == {}


def test_topics_that_are_gone_are_forgotten() -> None:
    shares = Shares()
    shares.join("m", ["orders", "returns"])
    shares.run(shares.harness.shard.drop_topics_of_share_groups(lambda topic_id: topic_id == ORDERS_ID, None, 5))
    assert shares.harness.shard.shares.state_partitions("g") == {RETURNS_ID: frozenset({0})}


# Sharing out


def test_every_partition_is_read_and_members_have_about_equal_counts() -> None:
    wanted = frozenset({ORDERS_ID})
    shared = assign(dict.fromkeys("abc", wanted), {ORDERS_ID: frozenset(range(7))}, {})
    assert sorted(len(share[ORDERS_ID]) for share in shared.values()) == [2, 2, 3]
    assert set().union(*(share[ORDERS_ID] for share in shared.values())) == set(range(7))


def test_members_keep_their_partitions_when_another_joins() -> None:
    wanted = frozenset({ORDERS_ID})
    partitions = {ORDERS_ID: frozenset(range(4))}
    before = assign(dict.fromkeys("ab", wanted), partitions, {})
    after = assign(dict.fromkeys("abc", wanted), partitions, before)
    assert all(after[member][ORDERS_ID] <= before[member][ORDERS_ID] for member in "ab")


def test_a_member_above_its_share_gives_up_its_first_partitions_when_a_topic_grows() -> None:
    wanted = dict.fromkeys("abc", frozenset({ORDERS_ID}))
    before = assign(wanted, {ORDERS_ID: frozenset({0, 1})}, {})
    assert before == {
        "a": {ORDERS_ID: frozenset({0, 1})},
        "b": {ORDERS_ID: frozenset({0})},
        "c": {ORDERS_ID: frozenset({1})},
    }
    grown = assign(wanted, {ORDERS_ID: frozenset({0, 1, 2})}, before)
    assert grown == {
        "a": {ORDERS_ID: frozenset({2})},
        "b": {ORDERS_ID: frozenset({0})},
        "c": {ORDERS_ID: frozenset({1})},
    }


def test_members_that_want_different_topics_get_their_own() -> None:
    shared = assign(
        {"a": frozenset({ORDERS_ID}), "b": frozenset({ORDERS_ID, RETURNS_ID})},
        {ORDERS_ID: frozenset({0, 1}), RETURNS_ID: frozenset({0})},
        {},
    )
    assert shared["b"][RETURNS_ID] == {0}
    assert shared["a"][ORDERS_ID] | shared["b"][ORDERS_ID] == {0, 1}


def test_more_members_than_partitions_all_have_something() -> None:
    shared = assign(dict.fromkeys("abcde", frozenset({ORDERS_ID})), {ORDERS_ID: frozenset({0, 1})}, {})
    assert all(len(share[ORDERS_ID]) >= 1 for share in shared.values())


def test_many_groups_forget_topics_in_bounded_steps_that_go_on_where_the_last_one_stopped() -> None:
    shares = Shares()
    names = [f"{number:03}" + "s" * 300 for number in range(100)]
    for name in names:
        joined = shares.heartbeat("m", 0, ["orders"], name)
        assert joined.to_initialize is not None
        shares.run(shares.harness.shard.shares.initialized(name, joined.to_initialize.partitions, 1))
    remaining: list[str] | None = None
    steps = []
    while remaining is None or remaining:
        decision = shares.harness.shard.drop_topics_of_share_groups(lambda _: True, remaining, 5)
        assert sum(len(record.key) + len(record.value or b"") for record in decision.records) < 20_000
        remaining = shares.run(decision)
        assert remaining is not None
        steps.append(len(remaining))
    assert steps == sorted(steps, reverse=True)
    assert len(steps) > 1
    assert not any(shares.harness.shard.shares.state_partitions(name) for name in names)
