"""The records of `__consumer_offsets` that make up a group of the consumer protocol (KIP-848). A null value deletes.

The version of a key says what kind of record it is.
Source: Kafka's ConsumerGroup*Key.json and ConsumerGroup*Value.json.
"""

from typing import Any, TypeAlias

from fencepost.protocol.primitives import Buffer
from fencepost.protocol.schema import ZERO_UUID, field, int8, int32, int64, message, struct, uuid
from fencepost.protocol.stored.versioned import decode_versioned, encode_versioned, read_version


@message(versions="3")
class ConsumerGroupMetadataKey:
    """The group itself."""

    group_id: str = ""


@message(versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    """How often the group has changed, and a hash of the topics that it is subscribed to (KIP-1101)."""

    epoch: int32 = 0
    metadata_hash: int64 = field(tag=0, default=0)


@message(versions="4")
class ConsumerGroupPartitionMetadataKey:
    """The topics of a group as Kafka 4.0 kept them; since 4.1 only a hash is kept."""

    group_id: str = ""


@message(versions="5")
class ConsumerGroupMemberMetadataKey:
    """What a member has said of itself."""

    group_id: str = ""
    member_id: str = ""


@struct
class ClassicProtocol:
    """A protocol of the classic kind with what the member said in it."""

    name: str = ""
    metadata: bytes = b""


@struct
class ClassicMemberMetadata:
    """What only a member of the classic protocol has."""

    session_timeout_ms: int32 = 0
    supported_protocols: list[ClassicProtocol] = []


@message(versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    """A member; `classic_member_metadata` is None for one of the consumer protocol, which is always written down."""

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
    """The assignment that the group moves towards."""

    group_id: str = ""


@message(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    """For which group epoch it was made, and when (KIP-1263; 0 when not known)."""

    assignment_epoch: int32 = 0
    assignment_timestamp: int64 = field(tag=0, default=0)


@message(versions="7")
class ConsumerGroupTargetAssignmentMemberKey:
    """The part of a member in the target assignment."""

    group_id: str = ""
    member_id: str = ""


@struct
class TargetTopicPartitions:
    """Partitions of a topic."""

    topic_id: uuid = ZERO_UUID
    partitions: list[int32] = []


@message(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    """What the member is to have."""

    topic_partitions: list[TargetTopicPartitions] = []


@message(versions="8")
class ConsumerGroupCurrentMemberAssignmentKey:
    """How far a member has come."""

    group_id: str = ""
    member_id: str = ""


@struct
class CurrentTopicPartitions:
    """Partitions of a topic; `assignment_epochs`, as long, says since which epoch the member has each."""

    topic_id: uuid = ZERO_UUID
    partitions: list[int32] = []
    assignment_epochs: list[int32] | None = field(tag=0, default=None)


@message(versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    """What the member has. `state`: 0 stable, 1 has to revoke, 2 waits for what others revoke."""

    member_epoch: int32 = 0
    previous_member_epoch: int32 = 0
    state: int8 = 0
    assigned_partitions: list[CurrentTopicPartitions] = []
    partitions_pending_revocation: list[CurrentTopicPartitions] = []


@message(versions="16")
class ConsumerGroupRegularExpressionKey:
    """A regular expression that members are subscribed with."""

    group_id: str = ""
    regular_expression: str = ""


@message(versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    """The topics that it matched, as of which version of the metadata, and when."""

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

_KEYS: dict[int, type[Any]] = {
    3: ConsumerGroupMetadataKey,
    4: ConsumerGroupPartitionMetadataKey,
    5: ConsumerGroupMemberMetadataKey,
    6: ConsumerGroupTargetAssignmentMetadataKey,
    7: ConsumerGroupTargetAssignmentMemberKey,
    8: ConsumerGroupCurrentMemberAssignmentKey,
    16: ConsumerGroupRegularExpressionKey,
}
_KEY_VERSIONS = {declared: version for version, declared in _KEYS.items()}
VALUE_VERSION = 0


def encode_consumer_group_key(key: ConsumerGroupKey) -> bytes:
    """The bytes of a key."""
    return encode_versioned(key, _KEY_VERSIONS[type(key)])


def decode_consumer_group_key(key: Buffer) -> ConsumerGroupKey | None:
    """The key; None if it is of another kind of record. Raises DecodeError."""
    declared = _KEYS.get(read_version(key))
    return None if declared is None else decode_versioned(declared, key)


def encode_consumer_group_value(value: Any) -> bytes:
    """The bytes of one of the values declared here."""
    return encode_versioned(value, VALUE_VERSION)
