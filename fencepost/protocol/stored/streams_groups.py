"""The records of `__consumer_offsets` that make up a streams group (KIP-1071). A null value deletes.

The version of a key is the kind of record.
Source: Kafka's StreamsGroup*Key.json and StreamsGroup*Value.json.
"""

from typing import TypeAlias

from fencepost.protocol.schema import field, int8, int32, int64, message, struct
from fencepost.protocol.stored.versioned import RecordKinds
from fencepost.protocol.streams_topology import StreamsEndpoint, StreamsKeyValue, StreamsSubtopology, StreamsTaskIds


@message(versions="17")
class StreamsGroupMetadataKey:
    """Key of the group itself."""

    group_id: str = ""


@message(versions="0", flexible="0+")
class StreamsGroupMetadataValue:
    """Epoch of the group, and the basis of its assignment.

    metadata_hash:            hash of the topics of the topology.
    validated_topology_epoch: epoch of the topology whose topics were all validated; -1 for none.
    last_assignment_configs:  None in records of Kafka 4.1.
    stored_description_topology_epoch, failed_description_topology_epoch: epochs of Kafka 4.4's plugin for topology
                              descriptions; -1 for none. Here always: there is no such plugin.
    """

    epoch: int32 = 0
    metadata_hash: int64 = 0
    validated_topology_epoch: int32 = field(tag=0, default=-1)
    last_assignment_configs: list[StreamsKeyValue] | None = field(tag=1, default=None)
    stored_description_topology_epoch: int32 = field(tag=2, default=-1)
    failed_description_topology_epoch: int32 = field(tag=3, default=-1)


@message(versions="19")
class StreamsGroupMemberMetadataKey:
    """Key of a member."""

    group_id: str = ""
    member_id: str = ""


@message(versions="0", flexible="0+")
class StreamsGroupMemberMetadataValue:
    """A member."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int32 = -1
    topology_epoch: int32 = 0
    process_id: str = ""
    user_endpoint: StreamsEndpoint | None = None
    client_tags: list[StreamsKeyValue] = []


@message(versions="20")
class StreamsGroupTargetAssignmentMetadataKey:
    """Key of the target assignment of the group."""

    group_id: str = ""


@message(versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue:
    """Group epoch and time of the assignment (KIP-1263; 0 if unknown)."""

    assignment_epoch: int32 = 0
    assignment_timestamp: int64 = field(tag=0, default=0)


@message(versions="21")
class StreamsGroupTargetAssignmentMemberKey:
    """Key of a member's part of the target assignment."""

    group_id: str = ""
    member_id: str = ""


@message(versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue:
    """The tasks of the member in the target assignment."""

    active_tasks: list[StreamsTaskIds] = []
    standby_tasks: list[StreamsTaskIds] = []
    warmup_tasks: list[StreamsTaskIds] = []


@message(versions="22")
class StreamsGroupCurrentMemberAssignmentKey:
    """Key of a member's current assignment."""

    group_id: str = ""
    member_id: str = ""


@struct
class StreamsCurrentTaskIds:
    """Tasks of a subtopology; `assignment_epochs`: for each active one the epoch since which the member has it."""

    subtopology_id: str = ""
    partitions: list[int32] = []
    assignment_epochs: list[int32] | None = field(tag=0, default=None)


@message(versions="0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue:
    """The member's current assignment. `state`: 0 stable, 1 has to revoke, 2 waits for revocations by others."""

    member_epoch: int32 = 0
    previous_member_epoch: int32 = 0
    state: int8 = 0
    active_tasks: list[StreamsCurrentTaskIds] = []
    standby_tasks: list[StreamsCurrentTaskIds] = []
    warmup_tasks: list[StreamsCurrentTaskIds] = []
    active_tasks_pending_revocation: list[StreamsCurrentTaskIds] = []
    standby_tasks_pending_revocation: list[StreamsCurrentTaskIds] = []
    warmup_tasks_pending_revocation: list[StreamsCurrentTaskIds] = []


@message(versions="23")
class StreamsGroupTopologyKey:
    """Key of the topology of the application."""

    group_id: str = ""


@message(versions="0", flexible="0+")
class StreamsGroupTopologyValue:
    """The topology as the first member sent it."""

    epoch: int32 = 0
    subtopologies: list[StreamsSubtopology] = []


StreamsGroupKey: TypeAlias = (
    StreamsGroupMetadataKey
    | StreamsGroupMemberMetadataKey
    | StreamsGroupTargetAssignmentMetadataKey
    | StreamsGroupTargetAssignmentMemberKey
    | StreamsGroupCurrentMemberAssignmentKey
    | StreamsGroupTopologyKey
)

STREAMS_GROUP_RECORDS: RecordKinds[StreamsGroupKey] = RecordKinds(
    {
        StreamsGroupMetadataKey: StreamsGroupMetadataValue,
        StreamsGroupMemberMetadataKey: StreamsGroupMemberMetadataValue,
        StreamsGroupTargetAssignmentMetadataKey: StreamsGroupTargetAssignmentMetadataValue,
        StreamsGroupTargetAssignmentMemberKey: StreamsGroupTargetAssignmentMemberValue,
        StreamsGroupCurrentMemberAssignmentKey: StreamsGroupCurrentMemberAssignmentValue,
        StreamsGroupTopologyKey: StreamsGroupTopologyValue,
    }
)
