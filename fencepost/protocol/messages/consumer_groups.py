"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: the group protocol in which the broker assigns (KIP-848)."""

from fencepost.protocol.schema import ZERO_UUID, field, int8, int16, int32, message, struct, uuid


@struct
class ConsumerGroupHeartbeatTopicPartitions:
    """Partitions of a topic that the member owns, or may use."""

    topic_id: uuid = ZERO_UUID
    partitions: list[int32] = []


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    """A member joins, stays or leaves; None means unchanged since its last heartbeat.

    member_id:    made by the client; in version 0 it may be empty, and the broker makes one.
    member_epoch: 0 to join, -1 to leave, -2 for a static member that will be back.
    """

    group_id: str = ""
    member_id: str = ""
    member_epoch: int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int32 = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = field(versions="1+", default=None)
    server_assignor: str | None = None
    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] | None = None


@struct
class ConsumerGroupHeartbeatResponseAssignment:
    """All partitions that the member may use; it revokes all others."""

    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] = []


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    """Epoch and assignment of the member. `assignment` is None when it has not changed.

    Errors: INVALID_REQUEST, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID,
    UNSUPPORTED_ASSIGNOR, GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED, INVALID_REGULAR_EXPRESSION (1+), NOT_COORDINATOR,
    COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    assignment: ConsumerGroupHeartbeatResponseAssignment | None = None


@message(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    """Ask for groups of the consumer protocol by their ids."""

    group_ids: list[str] = []
    include_authorized_operations: bool = False


@struct
class ConsumerGroupDescribeTopicPartitions:
    """Partitions of a topic."""

    topic_id: uuid = ZERO_UUID
    topic_name: str = ""
    partitions: list[int32] = []


@struct
class ConsumerGroupDescribeAssignment:
    """Partitions that a member has, or is to have."""

    topic_partitions: list[ConsumerGroupDescribeTopicPartitions] = []


@struct
class ConsumerGroupDescribeMember:
    """A member. `member_type`: 0 for one of the classic protocol, 1 for one of the consumer protocol (KIP-1099)."""

    member_id: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: int32 = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []
    subscribed_topic_regex: str | None = None
    assignment: ConsumerGroupDescribeAssignment = ConsumerGroupDescribeAssignment()
    target_assignment: ConsumerGroupDescribeAssignment = ConsumerGroupDescribeAssignment()
    member_type: int8 = field(versions="1+", default=-1)


@struct
class ConsumerGroupDescribedGroup:
    """A group.

    Errors: GROUP_ID_NOT_FOUND, INVALID_REQUEST, INVALID_GROUP_ID, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE,
    COORDINATOR_LOAD_IN_PROGRESS, GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED.
    """

    error_code: int16 = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int32 = 0
    assignment_epoch: int32 = 0
    assignor_name: str = ""
    members: list[ConsumerGroupDescribeMember] = []
    authorized_operations: int32 = -2147483648  # the default means not requested


@message(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    """One description per group."""

    throttle_time_ms: int32 = 0
    groups: list[ConsumerGroupDescribedGroup] = []
