"""group_membership"""

from protocol.schema import field, int16, int32, message, struct


@struct
class JoinGroupRequestProtocol:
    """JoinGroupRequestProtocol."""

    name: str = ""
    metadata: bytes = b""


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupRequest:
    """JoinGroupRequest."""

    group_id: str = ""
    session_timeout_ms: int32 = 0
    rebalance_timeout_ms: int32 = field(versions="1+", default=-1)
    member_id: str = ""
    group_instance_id: str | None = field(versions="5+", default=None)
    protocol_type: str = ""
    protocols: list[JoinGroupRequestProtocol] = []
    reason: str | None = field(versions="8+", default=None)


@struct
class JoinGroupResponseMember:
    """JoinGroupResponseMember."""

    member_id: str = ""
    group_instance_id: str | None = field(versions="5+", default=None)
    metadata: bytes = b""


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    """JoinGroupResponse."""

    throttle_time_ms: int32 = field(versions="2+", default=0)
    error_code: int16 = 0
    generation_id: int32 = -1
    protocol_type: str | None = field(versions="7+", default=None)
    protocol_name: str | None = field(nullable="7+", default="")
    leader: str = ""
    skip_assignment: bool = field(versions="9+", default=False)
    member_id: str = ""
    members: list[JoinGroupResponseMember] = []


@struct
class SyncGroupRequestAssignment:
    """SyncGroupRequestAssignment."""

    member_id: str = ""
    assignment: bytes = b""


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    """SyncGroupRequest."""

    group_id: str = ""
    generation_id: int32 = 0
    member_id: str = ""
    group_instance_id: str | None = field(versions="3+", default=None)
    protocol_type: str | None = field(versions="5+", default=None)
    protocol_name: str | None = field(versions="5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = []


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    """SyncGroupResponse."""

    throttle_time_ms: int32 = field(versions="1+", default=0)
    error_code: int16 = 0
    protocol_type: str | None = field(versions="5+", default=None)
    protocol_name: str | None = field(versions="5+", default=None)
    assignment: bytes = b""


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatRequest:
    """HeartbeatRequest."""

    group_id: str = ""
    generation_id: int32 = 0
    member_id: str = ""
    group_instance_id: str | None = field(versions="3+", default=None)


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    """HeartbeatResponse."""

    throttle_time_ms: int32 = field(versions="1+", default=0)
    error_code: int16 = 0


@struct
class MemberIdentity:
    """MemberIdentity."""

    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = field(versions="5+", default=None)


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    """LeaveGroupRequest."""

    group_id: str = ""
    member_id: str = field(versions="0-2", default="")
    members: list[MemberIdentity] = field(versions="3+", default=[])


@struct
class MemberResponse:
    """MemberResponse."""

    member_id: str = ""
    group_instance_id: str | None = ""
    error_code: int16 = 0


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    """LeaveGroupResponse."""

    throttle_time_ms: int32 = field(versions="1+", default=0)
    error_code: int16 = 0
    members: list[MemberResponse] = field(versions="3+", default=[])
