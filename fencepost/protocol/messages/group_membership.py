"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: the classic protocol of consumer groups (KIP-345, KIP-394)."""

from fencepost.protocol.schema import field, int16, int32, message, struct


@struct
class JoinGroupRequestProtocol:
    """An assignment strategy of the member, with its metadata for the leader; opaque to the broker."""

    name: str = ""
    metadata: bytes = b""


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupRequest:
    """Join a group, or begin a new generation of it. Without a `rebalance_timeout_ms` the session time-out counts."""

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
    """A member of the generation; only the leader gets it."""

    member_id: str = ""
    group_instance_id: str | None = field(versions="5+", default=None)
    metadata: bytes = b""


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    """The generation, once every member has joined or was removed.

    Errors: MEMBER_ID_REQUIRED (4+, with the id to use), UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
    INCONSISTENT_GROUP_PROTOCOL, INVALID_SESSION_TIMEOUT, GROUP_MAX_SIZE_REACHED, REBALANCE_IN_PROGRESS,
    INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
    GROUP_AUTHORIZATION_FAILED.
    """

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
    """The assignment of a member by the leader; opaque to the broker."""

    member_id: str = ""
    assignment: bytes = b""


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    """Ask for the member's assignment; the leader sends those of all members."""

    group_id: str = ""
    generation_id: int32 = 0
    member_id: str = ""
    group_instance_id: str | None = field(versions="3+", default=None)
    protocol_type: str | None = field(versions="5+", default=None)
    protocol_name: str | None = field(versions="5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = []


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    """The member's assignment, once the leader has sent it. Version 5 repeats the group's protocol.

    Errors: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID,
    INCONSISTENT_GROUP_PROTOCOL, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
    GROUP_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int32 = field(versions="1+", default=0)
    error_code: int16 = 0
    protocol_type: str | None = field(versions="5+", default=None)
    protocol_name: str | None = field(versions="5+", default=None)
    assignment: bytes = b""


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatRequest:
    """The member is alive."""

    group_id: str = ""
    generation_id: int32 = 0
    member_id: str = ""
    group_instance_id: str | None = field(versions="3+", default=None)


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    """Whether the generation is still the group's.

    Errors: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID,
    COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, GROUP_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int32 = field(versions="1+", default=0)
    error_code: int16 = 0


@struct
class MemberIdentity:
    """A member that leaves; a static one may be known by its instance id alone."""

    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = field(versions="5+", default=None)


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    """Members leave: one up to version 2, several from then on."""

    group_id: str = ""
    member_id: str = field(versions="0-2", default="")
    members: list[MemberIdentity] = field(versions="3+", default=[])


@struct
class MemberResponse:
    """Result of one member.

    Errors: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """

    member_id: str = ""
    group_instance_id: str | None = ""
    error_code: int16 = 0


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    """Whether they left. Up to version 2 the error at the top is that of the one member.

    Errors: UNKNOWN_MEMBER_ID, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
    GROUP_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int32 = field(versions="1+", default=0)
    error_code: int16 = 0
    members: list[MemberResponse] = field(versions="3+", default=[])
