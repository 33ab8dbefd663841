"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.group_membership import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tests.protocol.messages.golden import assert_bytes


def test_a_member_joins_with_its_protocols() -> None:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\x01")],
    )
    assert_bytes(
        request,
        0,
        "00 01 67 00 00 27 10 00 00 00 08 63 6f 6e 73 75 6d 65 72 00 00 00 01 00 05 72 61 6e 67 65 00 00",
        "00 01 01",
    )


def test_a_static_member_has_an_instance_id() -> None:
    request = JoinGroupRequest(
        group_id="g", rebalance_timeout_ms=5, member_id="m", group_instance_id="i", protocol_type="consumer"
    )
    assert_bytes(
        request, 5, "00 01 67 00 00 00 00 00 00 00 05 00 01 6d 00 01 69 00 08 63 6f 6e 73 75 6d 65 72 00 00 00 00"
    )


def test_many_members_leave_at_once_from_version_3_on() -> None:
    request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m", reason="bye")])
    assert_bytes(request, 5, "02 67 02 02 6d 00 04 62 79 65 00 00")


def test_the_leader_sends_the_assignments() -> None:
    request = SyncGroupRequest(
        group_id="g",
        generation_id=2,
        member_id="m",
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id="m", assignment=b"\x01\x02")],
    )
    assert_bytes(
        request, 5, "02 67 00 00 00 02 02 6d 00 09 63 6f 6e 73 75 6d 65 72 06 72 61 6e 67 65 02 02 6d 03 01 02 00 00"
    )
