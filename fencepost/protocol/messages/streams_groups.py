"""StreamsGroupHeartbeat, StreamsGroupDescribe and StreamsGroupTopologyDescriptionUpdate: groups of Kafka Streams' own
rebalance protocol (KIP-1071, KIP-1331)."""

from fencepost.protocol.schema import field, int8, int16, int32, int64, message, struct
from fencepost.protocol.streams_topology import (
    StreamsEndpoint,
    StreamsKeyValue,
    StreamsSubtopology,
    StreamsTaskIds,
    StreamsTopicInfo,
    StreamsTopologyDescription,
)


@struct
class StreamsTaskOffset:
    """Sum of the offsets of a task in its changelog topics."""

    subtopology_id: str = ""
    partition: int32 = 0
    offset: int64 = 0


@struct
class StreamsGroupHeartbeatTopology:
    """The topology of the application."""

    epoch: int32 = 0
    subtopologies: list[StreamsSubtopology] = []


@message(key=88, versions="0-1", flexible="0+")
class StreamsGroupHeartbeatRequest:
    """A member joins, stays or leaves; None means unchanged since its last heartbeat.

    member_id:    made by the client.
    member_epoch: 0 to join, -1 to leave, -2 for a static member that will be back.
    topology:     only when it joins.
    """

    group_id: str = ""
    member_id: str = ""
    member_epoch: int32 = 0
    endpoint_information_epoch: int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int32 = -1
    topology: StreamsGroupHeartbeatTopology | None = None
    active_tasks: list[StreamsTaskIds] | None = None
    standby_tasks: list[StreamsTaskIds] | None = None
    warmup_tasks: list[StreamsTaskIds] | None = None
    process_id: str | None = None
    user_endpoint: StreamsEndpoint | None = None
    client_tags: list[StreamsKeyValue] | None = None
    task_offsets: list[StreamsTaskOffset] | None = None
    task_end_offsets: list[StreamsTaskOffset] | None = None
    shutdown_application: bool = False


@struct
class StreamsGroupHeartbeatStatus:
    """A status of the group, for the member.

    status_code: 0 its topology is old, 1 source topics are missing, 2 topics have wrong partition counts, 3 internal
    topics are missing, 4 the application is to shut down, 5 the assignment is still to come, 6 (1+) client tags are
    missing.
    """

    status_code: int8 = 0
    status_detail: str = ""


@struct
class StreamsTopicPartitions:
    """Partitions of a topic."""

    topic: str = ""
    partitions: list[int32] = []


@struct
class StreamsEndpointToPartitions:
    """Partitions that an endpoint can be queried for."""

    user_endpoint: StreamsEndpoint = StreamsEndpoint()
    active_partitions: list[StreamsTopicPartitions] = []
    standby_partitions: list[StreamsTopicPartitions] = []


@message(key=88, versions="0-1", flexible="0+")
class StreamsGroupHeartbeatResponse:
    """Epoch and tasks of the member. The tasks are None when they have not changed.

    acceptable_recovery_lag:       largest lag of a task that has warmed up, in records; -1 without a membership.
    topology_description_required: the member is to send StreamsGroupTopologyDescriptionUpdate.

    Errors: INVALID_REQUEST, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED,
    UNRELEASED_INSTANCE_ID, FENCED_INSTANCE_ID,
    STREAMS_INVALID_TOPOLOGY, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS,
    GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    member_id: str = ""
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    acceptable_recovery_lag_legacy: int32 = field(versions="0", default=0)
    task_offset_interval_ms: int32 = 0
    acceptable_recovery_lag: int64 = field(versions="1+", default=-1)
    status: list[StreamsGroupHeartbeatStatus] | None = []
    active_tasks: list[StreamsTaskIds] | None = None
    standby_tasks: list[StreamsTaskIds] | None = None
    warmup_tasks: list[StreamsTaskIds] | None = None
    topology_description_required: bool = field(versions="1+", default=False)
    endpoint_information_epoch: int32 = 0
    partitions_by_user_endpoint: list[StreamsEndpointToPartitions] | None = None


@message(key=89, versions="0-1", flexible="0+")
class StreamsGroupDescribeRequest:
    """Ask for streams groups by their ids."""

    group_ids: list[str] = []
    include_authorized_operations: bool = False
    include_topology_description: bool = field(versions="1+", default=False)


@struct
class StreamsGroupDescribeSubtopology:
    """A part of the topology; partition counts are known once all of its topics are."""

    subtopology_id: str = ""
    source_topics: list[str] = []
    repartition_sink_topics: list[str] = []
    state_changelog_topics: list[StreamsTopicInfo] = []
    repartition_source_topics: list[StreamsTopicInfo] = []


@struct
class StreamsGroupDescribeTopology:
    """The topology of the application."""

    epoch: int32 = 0
    subtopologies: list[StreamsGroupDescribeSubtopology] | None = None


@struct
class StreamsGroupDescribeAssignment:
    """Tasks that a member has, or is to have."""

    active_tasks: list[StreamsTaskIds] = []
    standby_tasks: list[StreamsTaskIds] = []
    warmup_tasks: list[StreamsTaskIds] = []


@struct
class StreamsGroupDescribeMember:
    """A member, which is a thread of a process."""

    member_id: str = ""
    member_epoch: int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topology_epoch: int32 = 0
    process_id: str = ""
    user_endpoint: StreamsEndpoint | None = None
    client_tags: list[StreamsKeyValue] = []
    task_offsets: list[StreamsTaskOffset] = []
    task_end_offsets: list[StreamsTaskOffset] = []
    assignment: StreamsGroupDescribeAssignment = StreamsGroupDescribeAssignment()
    target_assignment: StreamsGroupDescribeAssignment = StreamsGroupDescribeAssignment()
    is_classic: bool = False


@struct
class StreamsGroupDescribedGroup:
    """A group.

    topology_description_status: 0 not requested, 1 not stored, 2 could not be read, 3 it is there.
    assignor_name:               the assignor of the next assignment.

    Errors: GROUP_ID_NOT_FOUND, INVALID_GROUP_ID, INVALID_REQUEST, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE,
    COORDINATOR_LOAD_IN_PROGRESS, GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED.
    """

    error_code: int16 = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int32 = 0
    assignment_epoch: int32 = 0
    topology: StreamsGroupDescribeTopology | None = None
    members: list[StreamsGroupDescribeMember] = []
    authorized_operations: int32 = -2147483648  # the default means not requested
    topology_description: StreamsTopologyDescription | None = field(versions="1+", default=None)
    topology_description_status: int8 = field(versions="1+", default=0)
    assignor_name: str | None = field(versions="1+", default=None)


@message(key=89, versions="0-1", flexible="0+")
class StreamsGroupDescribeResponse:
    """One description per group."""

    throttle_time_ms: int32 = 0
    groups: list[StreamsGroupDescribedGroup] = []


@message(key=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateRequest:
    """A member describes the topology of its application, for a plugin of the broker that keeps such descriptions."""

    group_id: str = ""
    member_id: str = ""
    topology_epoch: int32 = 0
    topology_description: StreamsTopologyDescription = StreamsTopologyDescription()


@message(key=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateResponse:
    """Errors: UNSUPPORTED_VERSION (no such plugin), GROUP_AUTHORIZATION_FAILED."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
