"""The records of `__consumer_offsets` that make up a group of the consumer protocol (KIP-848). A null value deletes.

The version of a key is the kind of record.
Source: Kafka's ConsumerGroup*Key.json and ConsumerGroup*Value.json.
"""

from typing import TypeAlias

from fencepost.protocol.schema import ZERO_UUID, field, int8, int32, int64, message, struct, uuid
from fencepost.protocol.stored.versioned import RecordKinds


@message(versions="3")
class ConsumerGroupMetadataKey:
    """Key of the group itself."""

    group_id: str = ""


@message(versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    """Epoch of the group, and a hash of the topics that it is subscribed to (KIP-1101)."""

    epoch: int32 = 0
    metadata_hash: int64 = field(tag=0, default=0)


@message(versions="4")
class ConsumerGroupPartitionMetadataKey:
    """Key of a group's topics as in Kafka 4.0; since 4.1 only their hash is stored."""

    group_id: str = ""


@message(versions="5")
class ConsumerGroupMemberMetadataKey:
    """Key of a member."""

    group_id: str = ""
    member_id: str = ""


@struct
class ClassicProtocol:
    """A classic protocol with the member's metadata for it."""

    name: str = ""
    metadata: bytes = b""


@struct
class ClassicMemberMetadata:
    """Fields that only members of the classic protocol have."""

    session_timeout_ms: int32 = 0
    supported_protocols: list[ClassicProtocol] = []


@message(versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    """A member; `classic_member_metadata` is None for the consumer protocol, and is written then, too."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []
    subscribed_topic_regex: str | None = None
    rebalance_timeout_ms: int32 = -1
    server_assignor: str | None = None
    classic_member_metadata: ClassicMemberMetadata | None = field(tag=0, default=ClassicMemberMetadata())


@message(versions="6")
class ConsumerGroupTargetAssignmentMetadataKey:
    """Key of the target assignment of the group."""

    group_id: str = ""


@message(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    """Group epoch and time of the assignment (KIP-1263; 0 if unknown)."""

    assignment_epoch: int32 = 0
    assignment_timestamp: int64 = field(tag=0, default=0)


@message(versions="7")
class ConsumerGroupTargetAssignmentMemberKey:
    """Key of a member's part of the target assignment."""

    group_id: str = ""
    member_id: str = ""


@struct
class AssignedTopicPartitions:
    """Partitions of a topic."""

    topic_id: uuid = ZERO_UUID
    partitions: list[int32] = []


@message(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    """The partitions of the member in the target assignment."""

    topic_partitions: list[AssignedTopicPartitions] = []


@message(versions="8")
class ConsumerGroupCurrentMemberAssignmentKey:
    """Key of a member's current assignment."""

    group_id: str = ""
    member_id: str = ""


@struct
class CurrentTopicPartitions:
    """Partitions of a topic; `assignment_epochs`: for each the epoch since which the member has it."""

    topic_id: uuid = ZERO_UUID
    partitions: list[int32] = []
    assignment_epochs: list[int32] | None = field(tag=0, default=None)


@message(versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    """The member's current assignment. `state`: 0 stable, 1 has to revoke, 2 waits for revocations by others."""

    member_epoch: int32 = 0
    previous_member_epoch: int32 = 0
    state: int8 = 0
    assigned_partitions: list[CurrentTopicPartitions] = []
    partitions_pending_revocation: list[CurrentTopicPartitions] = []


@message(versions="16")
class ConsumerGroupRegularExpressionKey:
    """Key of a regular expression to which members are subscribed."""

    group_id: str = ""
    regular_expression: str = ""


@message(versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    """The topics that it matched, with version of the metadata and time."""

    topics: list[str] = []
    version: int64 = 0
    timestamp: int64 = 0


ConsumerGroupKey: TypeAlias = (
    ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)

CONSUMER_GROUP_RECORDS: RecordKinds[ConsumerGroupKey] = RecordKinds(
    {
        ConsumerGroupMetadataKey: ConsumerGroupMetadataValue,
        ConsumerGroupPartitionMetadataKey: None,
        ConsumerGroupMemberMetadataKey: ConsumerGroupMemberMetadataValue,
        ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroupTargetAssignmentMetadataValue,
        ConsumerGroupTargetAssignmentMemberKey: ConsumerGroupTargetAssignmentMemberValue,
        ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroupCurrentMemberAssignmentValue,
        ConsumerGroupRegularExpressionKey: ConsumerGroupRegularExpressionValue,
    }
)
