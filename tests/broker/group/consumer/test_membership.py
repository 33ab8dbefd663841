"""Joining, staying and leaving in a group of the consumer protocol: epochs, assignments, fences and time."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.broker.group.consumer.group import ConsumerGroupState
from fencepost.broker.group.consumer.reconciliation import RECONCILIATION_TABLE, MemberSituation
from fencepost.broker.group.decision_builder import GroupConfig, GroupTimes
from fencepost.broker.group.modern import MemberState
from fencepost.protocol.consumer_protocol import ConsumerProtocolSubscription
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.consumer_groups import ConsumerGroupHeartbeatTopicPartitions
from fencepost.protocol.schema import encode
from tests.support.consumer_group import GroupWorld, topic_id

ORDERS_OF_FOUR = {("orders", partition) for partition in range(4)}


def test_the_reconciliation_table_is_total() -> None:
    assert RECONCILIATION_TABLE.keys() == {(standing, state) for standing in MemberSituation for state in MemberState}


def test_the_first_member_gets_everything_at_once() -> None:
    world = GroupWorld(orders=4)
    first = world.member("a", "orders")
    response = first.join()
    assert (response.member_id, response.member_epoch, response.heartbeat_interval_ms) == ("a", 2, 500)
    assert first.owned == ORDERS_OF_FOUR
    assert world.consumer_group().state is ConsumerGroupState.STABLE
    quiet = first.heartbeat()
    assert quiet.assignment is None
    assert world.consumer_group().members["a"].state is MemberState.STABLE


def test_partitions_change_hands_only_when_their_owner_has_given_them_up() -> None:
    world = GroupWorld(orders=4)
    first, second = world.member("a", "orders"), world.member("b", "orders")
    first.join()
    first.heartbeat()
    second.join()
    assert (second.epoch, second.owned) == (3, set())
    assert world.consumer_group().members["b"].state is MemberState.UNRELEASED_PARTITIONS
    first.heartbeat()
    assert (first.epoch, len(first.owned)) == (2, 2), "it has to revoke partitions, and is still in its epoch"
    assert world.consumer_group().members["a"].state is MemberState.UNREVOKED_PARTITIONS
    second.heartbeat()
    assert second.owned == set()
    first.heartbeat()
    assert (first.epoch, world.consumer_group().members["a"].state) == (3, MemberState.STABLE)
    second.heartbeat()
    assert second.owned | first.owned == ORDERS_OF_FOUR
    assert not second.owned & first.owned
    assert world.consumer_group().state is ConsumerGroupState.STABLE


def test_a_hundred_members_and_a_thousand_partitions_settle_in_a_few_rounds() -> None:
    world = GroupWorld(orders=600, payments=400)
    members = [world.member(f"m{number}", "orders", "payments") for number in range(100)]
    for member in members:
        member.join()
    assert world.settle(members) <= 5
    assert {len(member.owned) for member in members} == {10}
    members[0].leave()
    world.settle(members[1:])
    assert max(len(member.owned) for member in members[1:]) == 11


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "((("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 3}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_and_changes_nothing(fields: dict[str, Any], error: ErrorCode) -> None:
    world = GroupWorld(orders=1)
    request = {
        "member_id": "a",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1_000,
        "subscribed_topic_names": ["orders"],
        "topic_partitions": [],
        **fields,
    }
    response = world.send(**request)
    assert response.error_code == error
    assert response.error_message
    assert world.log == []


def test_a_member_of_version_0_is_given_an_id() -> None:
    world = GroupWorld(orders=1)
    response = world.send(
        version=0, member_id="", rebalance_timeout_ms=1, subscribed_topic_names=["orders"], topic_partitions=[]
    )
    assert response.member_id == "made-1"
    assert "made-1" in world.consumer_group().members


def test_wrong_epochs_are_fenced_and_a_lost_answer_is_not() -> None:
    world = GroupWorld(orders=2)
    member = world.member("a", "orders")
    member.join()
    for epoch in (3, 0x7FFFFFFF):
        assert world.send(member_id="a", member_epoch=epoch).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert world.send(member_id="b", member_epoch=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    world.grow("orders", 3)
    member.heartbeat()
    assert member.epoch == 3
    stale: dict[str, Any] = {"member_id": "a", "member_epoch": 2}
    assert world.send(**stale).error_code == ErrorCode.FENCED_MEMBER_EPOCH, "it does not say what it owns"
    owned = ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id("orders"), partitions=[0, 1])
    response = world.send(**stale, topic_partitions=[owned])
    assert (response.error_code, response.member_epoch) == (ErrorCode.NONE, 3)
    owned.partitions.append(9)
    assert world.send(**stale, topic_partitions=[owned]).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_waits_for_others_in_its_epoch_has_left_the_one_before() -> None:
    world = GroupWorld(orders=2)
    first, second = world.member("a", "orders"), world.member("b", "orders")
    first.join()
    second.join()
    third = world.member("c", "orders")
    third.join()
    former = second.epoch
    second.heartbeat(topic_partitions=[])
    assert second.epoch == former + 1
    again: dict[str, Any] = {"member_id": "b", "member_epoch": former, "topic_partitions": []}
    assert world.send(**again).member_epoch == second.epoch
    second.heartbeat(topic_partitions=[])
    assert world.send(**again).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_fenced_member_joins_again_with_epoch_0_and_gets_what_it_had() -> None:
    world = GroupWorld(orders=2)
    member = world.member("a", "orders")
    member.join()
    before = len(world.log)
    member.join()
    assert (member.epoch, len(member.owned)) == (2, 2)
    assert len(world.log) == before


def test_a_full_group_refuses_new_members() -> None:
    world = GroupWorld(config=GroupConfig(consumer_max_size=1), orders=2)
    member = world.member("a", "orders")
    member.join()
    assert world.member("b", "orders").join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert member.heartbeat().error_code == ErrorCode.NONE


def test_partitions_of_a_leaving_member_go_to_the_others() -> None:
    world = GroupWorld(orders=4)
    first, second = world.member("a", "orders"), world.member("b", "orders")
    first.join()
    second.join()
    world.settle([first, second])
    response = first.leave()
    assert (response.error_code, response.member_epoch) == (ErrorCode.NONE, -1)
    second.heartbeat()
    assert second.owned == ORDERS_OF_FOUR
    second.leave()
    assert world.consumer_group().state is ConsumerGroupState.EMPTY
    assert world.consumer_group().target == {}


def test_a_silent_member_is_out_after_its_session() -> None:
    world = GroupWorld(orders=4)
    first, second = world.member("a", "orders"), world.member("b", "orders")
    first.join()
    second.join()
    world.settle([first, second])
    world.advance(44_999)
    second.heartbeat()
    world.advance(1)
    assert set(world.consumer_group().members) == {"b"}
    world.advance(60_000)
    assert world.consumer_group().state is ConsumerGroupState.EMPTY


def test_many_sessions_that_end_at_once_make_one_epoch() -> None:
    world = GroupWorld(orders=4)
    for name in "abc":
        world.member(name, "orders").join()
    epoch = world.consumer_group().group_epoch
    world.advance(45_000)
    group = world.consumer_group()
    assert (group.members, group.target, group.group_epoch) == ({}, {}, epoch + 1)
    assert group.metadata_hash == 0


def test_a_member_that_does_not_give_up_in_its_rebalance_timeout_is_out() -> None:
    world = GroupWorld(orders=2)
    first, second = world.member("a", "orders"), world.member("b", "orders")
    first.join()
    second.join()
    first._send()
    assert world.consumer_group().members["a"].state is MemberState.UNREVOKED_PARTITIONS
    for _ in range(6):
        world.advance(9_999)
        second.heartbeat()
        if "a" in world.consumer_group().members:
            first._send()
    world.advance(10)
    assert set(world.consumer_group().members) == {"b"}
    second.heartbeat()
    assert len(second.owned) == 2


def test_topics_that_come_grow_and_go_begin_a_new_epoch() -> None:
    world = GroupWorld(orders=1)
    member = world.member("a", "orders", "payments")
    member.join()
    assert member.owned == {("orders", 0)}
    world.grow("payments", 2)
    member.heartbeat()
    assert member.owned == {("orders", 0), ("payments", 0), ("payments", 1)}
    world.grow("orders", 2)
    member.heartbeat()
    assert ("orders", 1) in member.owned
    world.topics.remove("payments")
    member.heartbeat()
    assert member.owned == {("orders", 0), ("orders", 1)}
    epoch = world.consumer_group().group_epoch
    world.grow("unrelated", 1)
    member.heartbeat()
    assert world.consumer_group().group_epoch == epoch


def test_a_member_revokes_partitions_that_it_no_longer_subscribes_to() -> None:
    world = GroupWorld(orders=1, payments=1)
    member = world.member("a", "orders", "payments")
    member.join()
    member.heartbeat(subscribed_topic_names=["payments"])
    assert member.owned == {("payments", 0)}
    world.settle([member])
    assert world.consumer_group().members["a"].pending_revocation == {}


def test_a_target_is_not_made_anew_within_the_assignment_interval() -> None:
    world = GroupWorld(config=GroupConfig(), orders=4)
    first, second = world.member("a", "orders"), world.member("b", "orders")
    first.join()
    second.join()
    assert world.consumer_group().state is ConsumerGroupState.ASSIGNING
    assert (second.epoch, second.owned) == (2, set())
    world.advance(1_000)
    world.settle([first, second])
    assert (len(first.owned), len(second.owned)) == (2, 2)


def test_the_assignor_that_most_members_ask_for_is_taken() -> None:
    world = GroupWorld(orders=4)
    members = [world.member(name, "orders", assignor="range") for name in "ab"]
    members.append(world.member("c", "orders", assignor="uniform"))
    for member in members:
        member.join()
    world.settle(members)
    assert members[0].owned == {("orders", 0), ("orders", 1)}
    assert world.shard.describe_consumer_group("g").assignor_name == "range"


# Static members


def test_a_static_member_that_left_for_a_while_gets_its_partitions_back_under_a_new_id() -> None:
    world = GroupWorld(orders=4)
    other, member = world.member("a", "orders"), world.member("b", "orders", instance_id="i")
    other.join()
    member.join()
    world.settle([other, member])
    before = set(member.owned)
    assert member.leave(-2).member_epoch == -2
    epoch = world.consumer_group().group_epoch
    returned = world.member("c", "orders", instance_id="i")
    returned.join()
    assert (returned.owned, returned.epoch) == (before, epoch)
    assert set(world.consumer_group().members) == {"a", "c"}
    assert world.consumer_group().group_epoch == epoch
    assert world.replayed().shard.describe_consumer_group("g") == world.shard.describe_consumer_group("g")


def test_an_instance_id_in_use_is_not_given_away() -> None:
    world = GroupWorld(orders=4)
    member = world.member("a", "orders", instance_id="i")
    member.join()
    assert world.member("b", "orders", instance_id="i").join().error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert member.heartbeat().error_code == ErrorCode.NONE


def test_a_static_member_that_was_replaced_is_fenced() -> None:
    world = GroupWorld(orders=4)
    first = world.member("a", "orders", instance_id="i")
    first.join()
    first.leave(-2)
    second = world.member("b", "orders", instance_id="i")
    second.join()
    first.epoch = 2
    assert first.heartbeat().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert first.leave(-2).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert world.send(member_id="b", member_epoch=1, instance_id="x").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_does_not_come_back_is_out_after_its_session() -> None:
    world = GroupWorld(orders=4)
    member = world.member("a", "orders", instance_id="i")
    member.join()
    member.leave(-2)
    world.advance(44_999)
    assert "a" in world.consumer_group().members
    world.advance(1)
    assert world.consumer_group().members == {}
    assert world.consumer_group().static_members == {}


# Regular expressions


def test_a_regular_expression_matches_whole_names_also_of_topics_that_come_later() -> None:
    world = GroupWorld(orders=1, orderly=1, reorders=1)
    member = world.member("a", regex="order.*")
    member.join()
    assert member.owned == {("orders", 0), ("orderly", 0)}
    assert world.consumer_group().regexes["order.*"].topics == {"orders", "orderly"}
    world.grow("order-2", 1)
    member.heartbeat()
    assert ("order-2", 0) not in member.owned, "patterns are matched again after ten seconds at the earliest"
    world.advance(10_000)
    member.heartbeat()
    assert ("order-2", 0) in member.owned
    world.topics.remove("orders")
    member.heartbeat()
    assert ("orders", 0) not in member.owned


def test_a_pattern_without_members_is_forgotten() -> None:
    world = GroupWorld(orders=1, payments=1)
    member = world.member("a", regex="order.*")
    member.join()
    member.heartbeat(subscribed_topic_regex="pay.*")
    assert set(world.consumer_group().regexes) == {"pay.*"}
    world.settle([member])
    assert member.owned == {("payments", 0)}
    member.heartbeat(subscribed_topic_regex="")
    world.settle([member])
    assert member.owned == set()
    member.leave()
    assert world.consumer_group().regexes == {}


def test_names_and_a_pattern_of_one_member_add_up() -> None:
    world = GroupWorld(orders=1, payments=1)
    member = world.member("a", "payments", regex="ord.*")
    member.join()
    assert member.owned == {("orders", 0), ("payments", 0)}


def test_a_member_without_topics_changes_nothing_for_the_others() -> None:
    world = GroupWorld(orders=2)
    member = world.member("a", "orders")
    epoch = member.join().member_epoch
    assert world.member("b").join().member_epoch == epoch
    assert member.heartbeat().member_epoch == epoch


def test_the_first_member_has_an_epoch_even_without_topics() -> None:
    world = GroupWorld(orders=2)
    assert world.member("a").join().member_epoch == 1
    world.crash()
    assert world.member("b", "orders").join().member_epoch == 2


def test_the_classic_way_to_describe_does_not_know_the_group() -> None:
    world = GroupWorld(orders=2)
    world.member("a", "orders").join()
    assert world.shard.describe_group("g") == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a classic group.")


def test_members_come_back_soon_until_the_group_has_settled() -> None:
    world = GroupWorld(orders=4)
    first, second = world.member("a", "orders"), world.member("b", "orders")
    assert first.join().heartbeat_interval_ms == 500
    world.advance(2_999)
    assert first.heartbeat().heartbeat_interval_ms == 500, "others may have been started with it"
    world.advance(1)
    assert first.heartbeat().heartbeat_interval_ms == 5_000
    second.join()
    world.advance(3_000)
    assert second.heartbeat().heartbeat_interval_ms == 500, "waits for what the other has to give up"
    world.settle([first, second])
    assert first.heartbeat().heartbeat_interval_ms == second.heartbeat().heartbeat_interval_ms == 5_000


def test_a_group_may_have_times_of_its_own_which_count_from_the_next_heartbeat_on() -> None:
    times = {"g": GroupTimes(session_timeout_ms=20_000, heartbeat_interval_ms=2_000, assignment_interval_ms=0)}
    config = GroupConfig(consumer_times=lambda group_id: times.get(group_id, GroupTimes()))
    world = GroupWorld(config=config, orders=2)
    member, other = world.member("a", "orders"), world.member("b", "orders", group_id="other")
    member.join()
    other.join()
    world.advance(4_000)
    assert (member.heartbeat().heartbeat_interval_ms, other.heartbeat().heartbeat_interval_ms) == (2_000, 5_000)
    world.advance(20_000)
    assert not world.consumer_group().members
    assert world.consumer_group("other").members
    times["other"] = GroupTimes(session_timeout_ms=1_000)
    other.heartbeat()
    world.advance(1_000)
    assert not world.consumer_group("other").members


# Groups that only have members of the classic protocol left


def subscription(*topics: str) -> dict[str, bytes]:
    return {"range": (1).to_bytes(2) + bytes(encode(ConsumerProtocolSubscription(topics=list(topics)), 1))}


def test_a_group_becomes_classic_in_the_epoch_that_it_has() -> None:
    world = GroupWorld(orders=2)
    first = world.member("a", "orders")
    first.join()
    world.join(member_id="classic", protocols=subscription("orders"))
    group_epoch = world.consumer_group().group_epoch
    first.leave()
    world.advance(0)
    group = world.group()
    assert (group.generation_id, set(group.members)) == (group_epoch, {"classic"})


def test_a_group_that_is_joined_before_it_becomes_classic_begins_the_epoch_that_was_left_out() -> None:
    world = GroupWorld(orders=2)
    first, second = world.member("a", "orders"), world.member("b")
    first.join()
    world.join(member_id="classic", protocols=subscription("orders"))
    group_epoch = world.consumer_group().group_epoch
    first.leave()
    second.join()
    assert world.consumer_group().group_epoch == group_epoch
    world.advance(0)
    assert world.consumer_group().group_epoch == group_epoch + 1
