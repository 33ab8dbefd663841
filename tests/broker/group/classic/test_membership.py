"""Members of a classic group, from the first join to the last: what each request is answered, and when."""

from __future__ import annotations

import pytest

from fencepost.broker.group.classic.group import ClassicState
from fencepost.broker.group.decision_builder import GroupConfig
from fencepost.broker.group.offsets.commits import Committer
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_membership import JoinGroupResponse, SyncGroupResponse
from tests.support.group_shard import ShardHarness, Waiting

EMPTY, STABLE, DEAD = ClassicState.EMPTY, ClassicState.STABLE, ClassicState.DEAD
PREPARING, COMPLETING = ClassicState.PREPARING_REBALANCE, ClassicState.COMPLETING_REBALANCE
RANGE = {"range": b"metadata"}


@pytest.fixture
def shard() -> ShardHarness:
    return ShardHarness()


def joined(waiting: object) -> JoinGroupResponse:
    assert isinstance(waiting, Waiting)
    assert isinstance(waiting.answer, JoinGroupResponse)
    return waiting.answer


# Joining


def test_a_first_join_gets_its_member_id_and_the_second_forms_a_generation(shard: ShardHarness) -> None:
    refused = shard.join(client_id="app")
    assert refused.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert refused.member_id == "app-1"
    assert (refused.generation_id, refused.protocol_name, refused.protocol_type, refused.leader) == (-1, None, None, "")
    response = joined(shard.join(member_id="app-1"))
    assert response.error_code == ErrorCode.NONE
    assert (response.generation_id, response.leader, response.member_id) == (1, "app-1", "app-1")
    assert (response.protocol_type, response.protocol_name) == ("consumer", "range")
    assert [(member.member_id, member.metadata) for member in response.members] == [("app-1", b"metadata")]
    assert shard.state() is COMPLETING


def test_before_version_4_a_new_member_joins_at_once(shard: ShardHarness) -> None:
    assert joined(shard.join(version=3)).generation_id == 1


def test_all_wait_until_the_last_member_has_joined_again(shard: ShardHarness) -> None:
    (leader,) = shard.stable_group()
    follower, waiting = shard.join_known()
    assert not waiting.is_answered
    assert shard.state() is PREPARING
    assert shard.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    of_leader = joined(shard.join(member_id=leader))
    of_follower = joined(waiting)
    assert of_leader.generation_id == of_follower.generation_id == 2
    assert of_leader.leader == of_follower.leader == leader
    assert {member.member_id for member in of_leader.members} == {leader, follower}
    assert of_follower.members == []


def test_members_that_do_not_join_in_time_are_out(shard: ShardHarness) -> None:
    leader, late = shard.stable_group(2, session_timeout_ms=60_000)
    waiting = shard.join(member_id=leader, session_timeout_ms=60_000)
    shard.advance(59_999)
    assert not waiting.is_answered
    shard.advance(1)
    assert [member.member_id for member in joined(waiting).members] == [leader]
    assert shard.heartbeat(late, 3) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("session_timeout_ms", [5_999, 1_800_001])
def test_a_session_timeout_out_of_bounds_is_refused(shard: ShardHarness, session_timeout_ms: int) -> None:
    assert shard.join(session_timeout_ms=session_timeout_ms).error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_join_without_a_group_id_is_refused(shard: ShardHarness) -> None:
    assert shard.join("").error_code == ErrorCode.INVALID_GROUP_ID


def test_a_member_id_in_a_group_that_does_not_know_it_is_refused(shard: ShardHarness) -> None:
    assert shard.join(member_id="made-up").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    shard.stable_group()
    assert shard.join(member_id="made-up").error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("protocol_type", "protocols"), [("connect", RANGE), ("consumer", {"sticky": b""}), ("consumer", {})]
)
def test_a_member_without_a_common_protocol_is_refused(
    shard: ShardHarness, protocol_type: str, protocols: dict[str, bytes]
) -> None:
    shard.stable_group()
    if not protocols:
        shard = ShardHarness()
        response = shard.join(protocol_type="")
    else:
        response = shard.join(protocol_type=protocol_type, protocols=protocols)
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_full_group_takes_no_new_member() -> None:
    shard = ShardHarness(GroupConfig(initial_rebalance_delay_ms=0, max_size=1))
    (leader,) = shard.stable_group()
    assert shard.join(version=3).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert shard.heartbeat(leader, 1) is ErrorCode.NONE


def test_members_whose_record_could_not_be_written_are_not_taken() -> None:
    shard = ShardHarness(GroupConfig(initial_rebalance_delay_ms=0, max_record_bytes=1_000))
    (leader,) = shard.stable_group(protocols={"range": bytes(600)})
    assert shard.join(version=3, protocols={"range": bytes(401)}).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert shard.heartbeat(leader, 1) is ErrorCode.NONE
    assert isinstance(shard.join(version=3, protocols={"range": bytes(400)}), Waiting)


def test_the_protocols_of_all_members_are_bounded_together() -> None:
    shard = ShardHarness(GroupConfig(initial_rebalance_delay_ms=0, max_record_bytes=1_000))
    protocols = {f"p{number}": bytes(400) for number in range(9)}
    assert shard.join(version=3, protocols=protocols).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert shard.join(version=3, protocols={"range": bytes(1_001)}).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert joined(shard.join(version=3, protocols=dict(list(protocols.items())[:8]))).generation_id == 1


def test_a_member_may_join_again_with_as_much_as_it_had() -> None:
    shard = ShardHarness(GroupConfig(initial_rebalance_delay_ms=0, max_record_bytes=1_000))
    (leader,) = shard.stable_group(protocols={"range": bytes(900)})
    assert joined(shard.join(member_id=leader, protocols={"range": b"\x01" * 900})).generation_id == 2
    assert shard.join(member_id=leader, protocols={"range": bytes(1_001)}).error_code == (
        ErrorCode.GROUP_MAX_SIZE_REACHED
    )


def test_a_follower_that_joins_a_stable_group_as_it_was_gets_the_same_generation(shard: ShardHarness) -> None:
    leader, follower = shard.stable_group(2)
    response = shard.join(member_id=follower)
    assert (response.error_code, response.generation_id, response.leader) == (ErrorCode.NONE, 2, leader)
    assert response.members == []
    assert shard.state() is STABLE


def test_a_follower_with_new_metadata_starts_a_rebalance(shard: ShardHarness) -> None:
    _, follower = shard.stable_group(2)
    shard.join(member_id=follower, protocols={"range": b"other"})
    assert shard.state() is PREPARING


def test_a_leader_that_joins_a_stable_group_again_starts_a_rebalance(shard: ShardHarness) -> None:
    (leader,) = shard.stable_group()
    assert joined(shard.join(member_id=leader)).generation_id == 2


def test_a_join_repeated_before_the_assignment_gets_the_same_generation(shard: ShardHarness) -> None:
    leader, first = shard.join_known()
    again = shard.join(member_id=leader)
    assert again.generation_id == joined(first).generation_id == 1
    assert [member.member_id for member in again.members] == [leader]


def test_a_join_that_replaces_a_waiting_one_ends_that_one(shard: ShardHarness) -> None:
    shard.stable_group()
    follower, first = shard.join_known()
    second = shard.join(member_id=follower)
    assert joined(first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert not second.is_answered


def test_a_member_id_that_is_not_used_in_time_is_forgotten(shard: ShardHarness) -> None:
    refused = shard.join()
    shard.advance(10_000)
    assert shard.join(member_id=refused.member_id).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.state() is None


def test_a_rebalance_waits_for_a_member_id_given_out(shard: ShardHarness) -> None:
    (leader,) = shard.stable_group()
    shard.join()
    waiting = shard.join(member_id=leader)
    assert not waiting.is_answered
    shard.advance(10_000)
    assert joined(waiting).generation_id == 2


# The first rebalance of an empty group


def test_the_first_rebalance_waits_for_more_members() -> None:
    shard = ShardHarness(GroupConfig(initial_rebalance_delay_ms=3_000))
    _, first = shard.join_known()
    shard.advance(2_000)
    _, second = shard.join_known()
    shard.advance(1_000)
    assert not first.is_answered, "a member came meanwhile, so the wait is prolonged"
    shard.advance(3_000)
    assert joined(first).generation_id == joined(second).generation_id == 1
    assert len(joined(first).members) == 2


def test_the_first_rebalance_ends_after_the_rebalance_timeout_however_many_come() -> None:
    shard = ShardHarness(GroupConfig(initial_rebalance_delay_ms=3_000))
    first = shard.join(version=3, rebalance_timeout_ms=7_000)
    for _ in range(6):
        shard.advance(1_000)
        shard.join(version=3, rebalance_timeout_ms=7_000)
    assert not first.is_answered
    shard.advance(1_000)
    assert joined(first).generation_id == 1
    assert len(joined(first).members) == 7


# Syncing


def test_followers_wait_for_the_leaders_assignment(shard: ShardHarness) -> None:
    leader, _ = shard.join_known()
    follower, _ = shard.join_known()
    shard.join(member_id=leader)
    waiting = shard.sync(follower, 2)
    assert not waiting.is_answered
    response = shard.sync(leader, 2, {leader: b"one", follower: b"two"})
    assert (response.error_code, response.assignment) == (ErrorCode.NONE, b"one")
    assert (response.protocol_type, response.protocol_name) == ("consumer", "range")
    assert waiting.answer.assignment == b"two"
    assert shard.state() is STABLE
    assert shard.sync(follower, 2).assignment == b"two"


def test_a_member_that_the_leader_left_out_gets_an_empty_assignment(shard: ShardHarness) -> None:
    leader, _ = shard.join_known()
    follower, _ = shard.join_known()
    shard.join(member_id=leader)
    waiting = shard.sync(follower, 2)
    shard.sync(leader, 2, {leader: b"all"})
    assert waiting.answer == SyncGroupResponse(protocol_type="consumer", protocol_name="range", assignment=b"")


@pytest.mark.parametrize(
    ("member_id", "generation_id", "names", "error"),
    [
        ("made-up", 1, (None, None), ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 0, (None, None), ErrorCode.ILLEGAL_GENERATION),
        (None, 2, (None, None), ErrorCode.ILLEGAL_GENERATION),
        (None, 1, ("connect", "range"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (None, 1, ("consumer", "sticky"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (None, 1, ("consumer", "range"), ErrorCode.NONE),
    ],
)
def test_sync_is_checked(
    shard: ShardHarness,
    member_id: str | None,
    generation_id: int,
    names: tuple[str | None, str | None],
    error: ErrorCode,
) -> None:
    (leader,) = shard.stable_group()
    response = shard.sync(member_id or leader, generation_id, protocol_type=names[0], protocol_name=names[1])
    assert response.error_code == error


def test_sync_of_an_unknown_group_is_refused(shard: ShardHarness) -> None:
    assert shard.sync("m", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.sync("m", 1, group_id="").error_code == ErrorCode.INVALID_GROUP_ID


def test_a_new_member_sends_waiting_followers_back_to_join(shard: ShardHarness) -> None:
    leader, _ = shard.join_known()
    follower, _ = shard.join_known()
    shard.join(member_id=leader)
    waiting = shard.sync(follower, 2)
    shard.join(version=3)
    assert waiting.answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert shard.sync(leader, 2, {leader: b""}).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_generation_that_ends_without_an_assignment_takes_the_one_before_with_it(shard: ShardHarness) -> None:
    (leader,) = shard.stable_group()
    assert shard.group().members[leader].assignment
    shard.join_known()
    assert shard.group().members[leader].assignment
    shard.join(member_id=leader)
    shard.join(version=3)
    assert not shard.group().members[leader].assignment


def test_members_that_do_not_sync_in_time_are_out(shard: ShardHarness) -> None:
    leader, late = shard.stable_group(2, session_timeout_ms=600_000)
    shard.join(member_id=late, session_timeout_ms=600_000, protocols={"range": b"other"})
    shard.join(member_id=leader, session_timeout_ms=600_000)
    assert shard.state() is COMPLETING
    shard.sync(leader, 3, {leader: b"all"})
    assert shard.state() is STABLE
    shard.advance(60_000)
    assert shard.state() is PREPARING
    assert set(shard.group().members) == {leader}


def test_a_leader_that_never_assigns_is_out_and_the_follower_leads(shard: ShardHarness) -> None:
    leader, follower = shard.stable_group(2, session_timeout_ms=600_000)
    shard.join(member_id=follower, session_timeout_ms=600_000, protocols={"range": b"other"})
    shard.join(member_id=leader, session_timeout_ms=600_000)
    waiting = shard.sync(follower, 3)
    shard.advance(60_000)
    assert waiting.answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    response = joined(shard.join(member_id=follower, session_timeout_ms=600_000))
    assert response.leader == follower


def test_an_assignment_that_the_log_refuses_leaves_the_group_unassigned(shard: ShardHarness) -> None:
    leader, _ = shard.join_known()
    follower, _ = shard.join_known()
    shard.join(member_id=leader)
    waiting = shard.sync(follower, 2)
    shard.is_log_refusing = True
    shard.sync(leader, 2, {leader: b"too large", follower: b"too large"})
    shard.is_log_refusing = False
    assert shard.state() is COMPLETING
    assert not waiting.is_answered
    shard.run(shard.shard.assignment_failed("g", 2, ErrorCode.UNKNOWN_SERVER_ERROR, shard.now_ms))
    assert waiting.answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert shard.state() is PREPARING


# Heartbeats and sessions


def test_heartbeats_keep_a_member_alive(shard: ShardHarness) -> None:
    (leader,) = shard.stable_group()
    for _ in range(5):
        shard.advance(9_000)
        assert shard.heartbeat(leader, 1) is ErrorCode.NONE


def test_a_commit_keeps_a_member_alive(shard: ShardHarness) -> None:
    (leader,) = shard.stable_group()
    shard.advance(9_000)
    assert shard.commit(1, committer=Committer(1, leader)) is ErrorCode.NONE
    shard.advance(9_000)
    assert shard.heartbeat(leader, 1) is ErrorCode.NONE


def test_a_silent_member_is_out_and_the_group_rebalances(shard: ShardHarness) -> None:
    leader, silent = shard.stable_group(2)
    shard.advance(9_999)
    assert shard.heartbeat(leader, 2) is ErrorCode.NONE
    shard.advance(1)
    assert shard.heartbeat(leader, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert shard.heartbeat(silent, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert [member.member_id for member in joined(shard.join(member_id=leader)).members] == [leader]


def test_a_group_whose_members_are_all_silent_becomes_empty(shard: ShardHarness) -> None:
    shard.stable_group(3)
    shard.advance(10_000)
    assert shard.state() is EMPTY
    assert shard.group().generation_id == 4
    assert shard.next_deadline_is_only_the_sweep


@pytest.mark.parametrize(
    ("member_id", "generation_id", "error"),
    [("made-up", 1, ErrorCode.UNKNOWN_MEMBER_ID), (None, 0, ErrorCode.ILLEGAL_GENERATION), (None, 1, ErrorCode.NONE)],
)
def test_heartbeats_are_checked(
    shard: ShardHarness, member_id: str | None, generation_id: int, error: ErrorCode
) -> None:
    (leader,) = shard.stable_group()
    assert shard.heartbeat(member_id or leader, generation_id) is error


def test_a_heartbeat_before_the_assignment_is_fine(shard: ShardHarness) -> None:
    leader, _ = shard.join_known()
    assert shard.heartbeat(leader, 1) is ErrorCode.NONE


def test_a_heartbeat_for_an_unknown_group_is_refused(shard: ShardHarness) -> None:
    assert shard.heartbeat("m", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.heartbeat("m", 1, group_id="") is ErrorCode.INVALID_GROUP_ID


def test_a_member_that_waits_for_others_does_not_time_out(shard: ShardHarness) -> None:
    leader, other = shard.stable_group(2, session_timeout_ms=60_000)
    waiting = shard.join(member_id=leader, session_timeout_ms=6_000)
    shard.advance(30_000)
    assert not waiting.is_answered
    joining = shard.join(member_id=other, session_timeout_ms=60_000)
    assert joined(waiting).generation_id == joined(joining).generation_id == 3


# Leaving


def test_a_member_that_leaves_is_out_at_once(shard: ShardHarness) -> None:
    leader, follower = shard.stable_group(2)
    response = shard.leave(leader)
    assert [member.error_code for member in response.members] == [ErrorCode.NONE]
    assert shard.state() is PREPARING
    assert joined(shard.join(member_id=follower)).leader == follower


def test_the_last_member_leaves_an_empty_group_behind(shard: ShardHarness) -> None:
    (leader,) = shard.stable_group()
    shard.leave(leader)
    assert shard.state() is EMPTY
    assert shard.group().generation_id == 2
    assert shard.replayed().state() is EMPTY


def test_each_member_that_leaves_has_an_answer_of_its_own(shard: ShardHarness) -> None:
    _, follower = shard.stable_group(2)
    response = shard.leave(follower, "made-up")
    assert [member.error_code for member in response.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    response = shard.leave("m", group_id="unknown")
    assert [member.error_code for member in response.members] == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert shard.leave("m", group_id="").error_code == ErrorCode.INVALID_GROUP_ID


def test_a_member_that_leaves_while_it_waits_is_answered(shard: ShardHarness) -> None:
    shard.stable_group()
    follower, waiting = shard.join_known()
    shard.leave(follower)
    assert joined(waiting).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert joined(waiting).member_id == ""


def test_a_group_that_its_last_member_leaves_is_empty_even_if_a_member_id_was_given_out(shard: ShardHarness) -> None:
    (leader,) = shard.stable_group()
    shard.join()
    shard.leave(leader)
    assert shard.state() is EMPTY


def test_a_member_id_given_out_can_leave(shard: ShardHarness) -> None:
    (leader,) = shard.stable_group()
    refused = shard.join()
    waiting = shard.join(member_id=leader)
    shard.leave(refused.member_id)
    assert joined(waiting).generation_id == 2


def test_a_member_id_given_out_is_unknown_once_the_group_was_deleted(shard: ShardHarness) -> None:
    refused = shard.join()
    assert shard.run(shard.shard.delete_group("g")) is ErrorCode.NONE
    assert shard.join(member_id=refused.member_id).error_code == ErrorCode.UNKNOWN_MEMBER_ID


# Broken connections


def test_a_waiting_member_that_does_not_know_its_id_is_out_when_its_connection_breaks(shard: ShardHarness) -> None:
    (leader,) = shard.stable_group()
    waiting = shard.join(version=3)
    shard.abandon(waiting)
    assert set(shard.group().members) == {leader}


def test_a_waiting_member_that_knows_its_id_has_a_session_to_come_back(shard: ShardHarness) -> None:
    leader, follower = shard.stable_group(2)
    waiting = shard.join(member_id=leader)
    shard.abandon(waiting)
    shard.advance(9_000)
    shard.heartbeat(follower, 2)
    assert set(shard.group().members) == {leader, follower}
    shard.advance(1_000)
    assert set(shard.group().members) == {follower}


def test_a_member_that_stops_waiting_for_its_assignment_must_ask_again(shard: ShardHarness) -> None:
    leader, _ = shard.join_known()
    follower, _ = shard.join_known()
    shard.join(member_id=leader)
    shard.abandon(shard.sync(follower, 2))
    shard.sync(leader, 2, {follower: b"two"})
    assert shard.sync(follower, 2).assignment == b"two"


def test_a_new_member_that_waits_too_long_is_out(shard: ShardHarness) -> None:
    shard.stable_group(session_timeout_ms=1_000_000, rebalance_timeout_ms=1_000_000)
    waiting = shard.join(version=3)
    shard.advance(300_000)
    assert joined(waiting).error_code == ErrorCode.UNKNOWN_MEMBER_ID


# Static members


def static(shard: ShardHarness, instance_id: str, member_id: str = "", **options: object) -> object:
    return shard.join(member_id=member_id, instance_id=instance_id, **options)  # type: ignore[arg-type]


def stable_static_group(shard: ShardHarness) -> tuple[str, str]:
    """A leader `a` and a follower `b`, both static, in generation 2."""
    leader = joined(static(shard, "a")).member_id
    waiting = static(shard, "b")
    static(shard, "a", leader)
    follower = joined(waiting).member_id
    shard.sync_all()
    return leader, follower


def test_a_static_member_joins_with_one_request(shard: ShardHarness) -> None:
    response = joined(static(shard, "instance"))
    assert response.member_id.startswith("instance-")
    assert response.members[0].group_instance_id == "instance"


def test_a_static_follower_that_restarts_keeps_its_assignment_without_a_rebalance(shard: ShardHarness) -> None:
    leader, follower = stable_static_group(shard)
    response = static(shard, "b")
    assert isinstance(response, JoinGroupResponse)
    assert (response.error_code, response.generation_id, response.leader) == (ErrorCode.NONE, 2, leader)
    assert response.member_id != follower
    assert not response.skip_assignment
    assert shard.state() is STABLE
    assert shard.sync(response.member_id, 2, instance_id="b").assignment == follower.encode()
    assert shard.heartbeat(follower, 2, instance_id="b") is ErrorCode.FENCED_INSTANCE_ID
    assert shard.heartbeat(follower, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.heartbeat(leader, 2, instance_id="a") is ErrorCode.NONE


def test_a_static_leader_that_restarts_leads_but_need_not_assign(shard: ShardHarness) -> None:
    stable_static_group(shard)
    response = static(shard, "a")
    assert isinstance(response, JoinGroupResponse)
    assert response.skip_assignment
    assert response.leader == response.member_id
    assert len(response.members) == 2


def test_before_version_9_a_static_leader_that_restarts_becomes_a_follower(shard: ShardHarness) -> None:
    leader, _ = stable_static_group(shard)
    response = static(shard, "a", version=8)
    assert isinstance(response, JoinGroupResponse)
    assert (response.leader, response.skip_assignment, response.members) == (leader, False, [])
    assert shard.group().leader_id == response.member_id


def test_a_restarted_static_member_survives_a_restart_of_the_broker(shard: ShardHarness) -> None:
    stable_static_group(shard)
    response = static(shard, "b")
    assert isinstance(response, JoinGroupResponse)
    again = shard.replayed()
    assert again.heartbeat(response.member_id, 2, instance_id="b") is ErrorCode.NONE


def test_a_static_member_whose_new_protocols_change_the_choice_rebalances(shard: ShardHarness) -> None:
    both = {"range": b"", "sticky": b""}
    leader = joined(static(shard, "a", protocols=both)).member_id
    shard.sync_all()
    assert shard.group().protocol_name == "range"
    waiting = static(shard, "a", protocols={"sticky": b"", "range": b""})
    assert joined(waiting).protocol_name == "sticky"
    assert joined(waiting).member_id != leader


def test_a_static_member_that_restarts_during_a_rebalance_fences_the_waiting_one(shard: ShardHarness) -> None:
    leader, _ = stable_static_group(shard)
    waiting = static(shard, "a", leader)
    assert isinstance(waiting, Waiting)
    static(shard, "a")
    assert joined(waiting).error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_restarts_before_the_assignment_starts_another_rebalance(shard: ShardHarness) -> None:
    leader, follower = stable_static_group(shard)
    static(shard, "b", follower, protocols={"range": b"other"})
    static(shard, "a", leader)
    waiting = shard.sync(follower, 3, instance_id="b")
    static(shard, "b")
    assert waiting.answer.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert shard.state() is PREPARING


def test_a_static_leader_that_restarts_during_a_rebalance_still_leads(shard: ShardHarness) -> None:
    _, follower = stable_static_group(shard)
    waiting = static(shard, "b", follower, protocols={"range": b"other"})
    restarted = static(shard, "a")
    assert joined(waiting).leader == joined(restarted).member_id
    assert joined(restarted).leader == joined(restarted).member_id


def test_a_restarted_static_member_still_speaks_all_its_protocols(shard: ShardHarness) -> None:
    both = {"range": b"", "sticky": b""}
    joined(static(shard, "a", protocols=both))
    shard.sync_all()
    static(shard, "a", protocols=both)
    assert shard.join(protocols={"sticky": b""}).error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_absent_static_members_keep_their_place_until_their_session_ends(shard: ShardHarness) -> None:
    leader, follower = stable_static_group(shard)
    for _ in range(7):
        shard.advance(9_000)
        shard.heartbeat(follower, 2, instance_id="b")
        shard.heartbeat(leader, 2, instance_id="a")
    waiting = static(shard, "a", leader, session_timeout_ms=200_000)
    shard.heartbeat(follower, 2, instance_id="b")
    for _ in range(6):
        shard.advance(9_000)
        shard.heartbeat(follower, 2, instance_id="b")
    shard.advance(6_000)
    assert joined(waiting).generation_id == 3
    assert {member.group_instance_id for member in joined(waiting).members} == {"a", "b"}


def test_an_administrator_removes_a_static_member_by_its_instance_id(shard: ShardHarness) -> None:
    stable_static_group(shard)
    response = shard.leave("", instance_id="b")
    assert [member.error_code for member in response.members] == [ErrorCode.NONE]
    assert set(shard.group().static_members) == {"a"}
    response = shard.leave("", instance_id="nobody")
    assert [member.error_code for member in response.members] == [ErrorCode.UNKNOWN_MEMBER_ID]
    response = shard.leave("made-up", instance_id="a")
    assert [member.error_code for member in response.members] == [ErrorCode.FENCED_INSTANCE_ID]


# Restarts


def test_members_of_a_stable_group_survive_a_restart(shard: ShardHarness) -> None:
    leader, follower = shard.stable_group(2)
    again = shard.replayed()
    assert again.state() is STABLE
    assert again.heartbeat(leader, 2) is ErrorCode.NONE
    assert again.sync(follower, 2).assignment == follower.encode()
    again.advance(9_999)
    assert again.heartbeat(follower, 2) is ErrorCode.NONE
    again.advance(1)
    assert set(again.group().members) == {follower}


def test_a_generation_without_an_assignment_does_not_survive_a_restart(shard: ShardHarness) -> None:
    (leader,) = shard.stable_group()
    follower, _ = shard.join_known()
    shard.join(member_id=leader)
    assert shard.group().generation_id == 2
    again = shard.replayed()
    assert again.heartbeat(follower, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert again.heartbeat(leader, 2) is ErrorCode.ILLEGAL_GENERATION
    assert joined(again.join(member_id=leader)).generation_id == 2
