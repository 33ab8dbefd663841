"""ShareGroupHeartbeat and ShareGroupDescribe: groups whose members share partitions record by record (KIP-932)."""

from fencepost.protocol.schema import ZERO_UUID, int16, int32, message, struct, uuid


@message(key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatRequest:
    """A member joins, stays or leaves; None means unchanged since its last heartbeat.

    member_epoch: 0 to join, -1 to leave.
    """

    group_id: str = ""
    member_id: str = ""
    member_epoch: int32 = 0
    rack_id: str | None = None
    subscribed_topic_names: list[str] | None = None


@struct
class ShareGroupHeartbeatTopicPartitions:
    """Partitions of a topic that the member may read."""

    topic_id: uuid = ZERO_UUID
    partitions: list[int32] = []


@struct
class ShareGroupHeartbeatAssignment:
    """All partitions that the member may read."""

    topic_partitions: list[ShareGroupHeartbeatTopicPartitions] = []


@message(key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatResponse:
    """Epoch and assignment of the member. `assignment` is None when it has not changed.

    Errors: INVALID_REQUEST, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED,
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, GROUP_AUTHORIZATION_FAILED,
    TOPIC_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    assignment: ShareGroupHeartbeatAssignment | None = None


@message(key=77, versions="1", flexible="0+")
class ShareGroupDescribeRequest:
    """Ask for share groups by their ids."""

    group_ids: list[str] = []
    include_authorized_operations: bool = False


@struct
class ShareGroupDescribeTopicPartitions:
    """Partitions of a topic."""

    topic_id: uuid = ZERO_UUID
    topic_name: str = ""
    partitions: list[int32] = []


@struct
class ShareGroupDescribeAssignment:
    """Partitions that a member reads."""

    topic_partitions: list[ShareGroupDescribeTopicPartitions] = []


@struct
class ShareGroupDescribeMember:
    """A member."""

    member_id: str = ""
    rack_id: str | None = None
    member_epoch: int32 = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []
    assignment: ShareGroupDescribeAssignment = ShareGroupDescribeAssignment()


@struct
class ShareGroupDescribedGroup:
    """A group.

    Errors: GROUP_ID_NOT_FOUND, INVALID_GROUP_ID, INVALID_REQUEST, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE,
    COORDINATOR_LOAD_IN_PROGRESS, GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED.
    """

    error_code: int16 = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int32 = 0
    assignment_epoch: int32 = 0
    assignor_name: str = ""
    members: list[ShareGroupDescribeMember] = []
    authorized_operations: int32 = -2147483648  # the default means not requested


@message(key=77, versions="1", flexible="0+")
class ShareGroupDescribeResponse:
    """One description per group."""

    throttle_time_ms: int32 = 0
    groups: list[ShareGroupDescribedGroup] = []
