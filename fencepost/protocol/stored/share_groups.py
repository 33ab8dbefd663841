"""The records of `__consumer_offsets` that make up a share group (KIP-932). A null value deletes.

The version of a key is the kind of record.
Source: Kafka's ShareGroup*Key.json and ShareGroup*Value.json.
"""

from typing import TypeAlias

from fencepost.protocol.schema import ZERO_UUID, field, int8, int32, int64, message, struct, uuid
from fencepost.protocol.stored.consumer_groups import AssignedTopicPartitions
from fencepost.protocol.stored.versioned import RecordKinds


@message(versions="10")
class ShareGroupMemberMetadataKey:
    """Key of a member."""

    group_id: str = ""
    member_id: str = ""


@message(versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    """A member."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []


@message(versions="11")
class ShareGroupMetadataKey:
    """Key of the group itself."""

    group_id: str = ""


@message(versions="0", flexible="0+")
class ShareGroupMetadataValue:
    """Epoch of the group, and a hash of the topics that it is subscribed to."""

    epoch: int32 = 0
    metadata_hash: int64 = 0


@message(versions="12")
class ShareGroupTargetAssignmentMetadataKey:
    """Key of the assignment of the group."""

    group_id: str = ""


@message(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    """Group epoch and time of the assignment (KIP-1263; 0 if unknown)."""

    assignment_epoch: int32 = 0
    assignment_timestamp: int64 = field(tag=0, default=0)


@message(versions="13")
class ShareGroupTargetAssignmentMemberKey:
    """Key of a member's part of the assignment."""

    group_id: str = ""
    member_id: str = ""


@message(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    """The partitions of the member in the assignment."""

    topic_partitions: list[AssignedTopicPartitions] = []


@message(versions="14")
class ShareGroupCurrentMemberAssignmentKey:
    """Key of the assignment that a member got."""

    group_id: str = ""
    member_id: str = ""


@message(versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    """The assignment that the member got. `state` is 0: members of share groups never wait."""

    member_epoch: int32 = 0
    previous_member_epoch: int32 = 0
    state: int8 = 0
    assigned_partitions: list[AssignedTopicPartitions] = []


@message(versions="15")
class ShareGroupStatePartitionMetadataKey:
    """Key of the share partitions of the group that have state in `__share_group_state`."""

    group_id: str = ""


@struct
class ShareTopicPartitionsInfo:
    """Partitions of a topic, with its name at the time."""

    topic_id: uuid = ZERO_UUID
    topic_name: str = ""
    partitions: list[int32] = []


@struct
class ShareTopicInfo:
    """A topic, with its name at the time."""

    topic_id: uuid = ZERO_UUID
    topic_name: str = ""


@message(versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    """Share partitions whose state is being initialized, exists, or is being deleted."""

    initializing_topics: list[ShareTopicPartitionsInfo] = []
    initialized_topics: list[ShareTopicPartitionsInfo] = []
    deleting_topics: list[ShareTopicInfo] = []


ShareGroupKey: TypeAlias = (
    ShareGroupMemberMetadataKey
    | ShareGroupMetadataKey
    | ShareGroupTargetAssignmentMetadataKey
    | ShareGroupTargetAssignmentMemberKey
    | ShareGroupCurrentMemberAssignmentKey
    | ShareGroupStatePartitionMetadataKey
)

SHARE_GROUP_RECORDS: RecordKinds[ShareGroupKey] = RecordKinds(
    {
        ShareGroupMemberMetadataKey: ShareGroupMemberMetadataValue,
        ShareGroupMetadataKey: ShareGroupMetadataValue,
        ShareGroupTargetAssignmentMetadataKey: ShareGroupTargetAssignmentMetadataValue,
        ShareGroupTargetAssignmentMemberKey: ShareGroupTargetAssignmentMemberValue,
        ShareGroupCurrentMemberAssignmentKey: ShareGroupCurrentMemberAssignmentValue,
        ShareGroupStatePartitionMetadataKey: ShareGroupStatePartitionMetadataValue,
    }
)
