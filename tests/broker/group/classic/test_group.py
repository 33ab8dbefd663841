"""The table of the classic group, and the choices a group makes about protocol and leader."""

from __future__ import annotations

import pytest

from fencepost.broker.group.classic.group import (
    CLASSIC_TABLE,
    ClassicEvent,
    ClassicGroup,
    ClassicMember,
    ClassicState,
    GroupTableAction,
    Protocols,
)
from fencepost.protocol.errors import ErrorCode

# Source: Kafka's ClassicGroupState.validPreviousStates. Here only an empty group can be deleted or expire.
LEGAL_MOVES = {
    ClassicState.EMPTY: {ClassicState.PREPARING_REBALANCE, ClassicState.DEAD},
    ClassicState.PREPARING_REBALANCE: {ClassicState.COMPLETING_REBALANCE, ClassicState.EMPTY},
    ClassicState.COMPLETING_REBALANCE: {ClassicState.STABLE, ClassicState.PREPARING_REBALANCE},
    ClassicState.STABLE: {ClassicState.PREPARING_REBALANCE},
    ClassicState.DEAD: set(),
}


def test_the_table_has_a_cell_for_every_event_in_every_state() -> None:
    assert set(CLASSIC_TABLE) == {(event, state) for event in ClassicEvent for state in ClassicState}


@pytest.mark.parametrize("state", ClassicState)
def test_a_state_leads_only_where_a_group_may_go(state: ClassicState) -> None:
    next_states = {
        cell for (_, before), cell in CLASSIC_TABLE.items() if before is state and isinstance(cell, ClassicState)
    }
    assert next_states <= LEGAL_MOVES[state]


@pytest.mark.parametrize("state", set(ClassicState) - {ClassicState.DEAD, ClassicState.EMPTY})
def test_every_state_but_the_first_can_be_reached(state: ClassicState) -> None:
    assert state in CLASSIC_TABLE.values()


@pytest.mark.parametrize("event", ClassicEvent)
def test_a_dead_group_accepts_nothing(event: ClassicEvent) -> None:
    cell = CLASSIC_TABLE[event, ClassicState.DEAD]
    assert cell is GroupTableAction.IGNORE or cell in (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.GROUP_ID_NOT_FOUND,
    )


def test_move_goes_to_the_state_of_the_cell_and_otherwise_stays() -> None:
    group = ClassicGroup("g")
    assert group.move(ClassicEvent.HEARTBEAT) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.state_name == "Empty"
    assert group.move(ClassicEvent.MEMBER_ADDED) is ClassicState.PREPARING_REBALANCE
    assert group.state_name == "PreparingRebalance"


def member(member_id: str, *protocol_names: str, instance_id: str | None = None) -> ClassicMember:
    protocols: Protocols = tuple((name, name.encode()) for name in protocol_names)
    return ClassicMember(member_id, instance_id, "client", "/host", 60_000, 10_000, protocols)


def group_of(*members: ClassicMember) -> ClassicGroup:
    group = ClassicGroup("g")
    for one in members:
        group.add(one, "consumer")
    return group


def test_the_protocol_with_the_most_first_choices_wins() -> None:
    group = group_of(member("a", "range", "sticky"), member("b", "sticky", "range"), member("c", "sticky", "range"))
    assert group.choose_protocol() == "sticky"


def test_a_protocol_that_one_member_does_not_speak_is_no_candidate() -> None:
    group = group_of(
        member("a", "sticky", "range"),
        member("b", "sticky", "range"),
        member("c", "sticky", "range"),
        member("d", "range"),
    )
    assert group.choose_protocol() == "range"


def test_of_protocols_with_equal_votes_the_one_that_kafka_counts_first_wins() -> None:
    group = group_of(member("a", "range", "sticky"), member("b", "sticky", "range"))
    assert group.choose_protocol() == "sticky"
    group = group_of(member("a", "roundrobin", "range"), member("b", "range", "roundrobin"))
    assert group.choose_protocol() == "range"


def test_a_member_without_a_common_protocol_is_not_supported() -> None:
    group = group_of(member("a", "range", "sticky"), member("b", "range"))
    assert group.supports("consumer", (("range", b""),))
    assert not group.supports("consumer", (("sticky", b""),))
    assert not group.supports("connect", (("range", b""),))
    group.remove("b")
    assert group.supports("consumer", (("sticky", b""),))


def test_an_empty_group_supports_any_protocol_but_none() -> None:
    group = ClassicGroup("g")
    assert group.supports("connect", (("default", b""),))
    assert not group.supports("connect", ())
    assert not group.supports("", (("default", b""),))


def test_when_the_leader_goes_the_member_leads_that_is_first_in_kafkas_table() -> None:
    group = group_of(*(member(name, "range") for name in ("one", "two", "three", "four", "five", "six")))
    group.remove("one")
    assert group.leader_id == "six"
    for name in ("six", "two", "three", "four", "five"):
        group.remove(name)
    assert group.leader_id is None


def test_a_leader_that_did_not_join_is_replaced_by_one_that_did() -> None:
    group = group_of(member("a", "range", instance_id="i"), member("b", "range"))
    assert not group.elect_joined_leader()
    group.change(group.members["b"], join_token=7)
    assert group.elect_joined_leader()
    assert group.leader_id == "b"


def test_of_members_that_did_join_the_one_leads_that_is_first_in_kafkas_table() -> None:
    group = group_of(*(member(name, "range") for name in ("one", "two", "three", "four", "five", "six")))
    for name in ("two", "five", "four"):
        group.change(group.members[name], join_token=7)
    assert group.elect_joined_leader()
    assert group.leader_id == "four"


def test_members_that_wait_are_counted_however_they_come_and_go() -> None:
    group = group_of(member("a", "range"), member("b", "range"))
    group.change(group.members["a"], join_token=1)
    group.change(group.members["a"], join_token=2)
    assert group.awaiting_join_count == 1
    assert [group.have_all_joined, group.remove("b").member_id, group.have_all_joined] == [False, "b", True]
    group.remove("a")
    assert group.awaiting_join_count == 0


@pytest.mark.parametrize(
    ("member_id", "instance_id", "error"),
    [
        ("a", None, ErrorCode.NONE),
        ("a", "i", ErrorCode.NONE),
        ("b", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("b", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("a", "j", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_static_member_is_fenced_by_the_one_that_took_its_place(
    member_id: str, instance_id: str | None, error: ErrorCode
) -> None:
    assert group_of(member("a", "range", instance_id="i")).check_member(member_id, instance_id) is error
