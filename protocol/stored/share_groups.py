"""The records of `__consumer_offsets` that make up a share group (KIP-932). A null value deletes.

The version of a key is the kind of record.
Source: Kafka's ShareGroup*Key.json and ShareGroup*Value.json.
"""

from typing import Any, TypeAlias

from fencepost.protocol.primitives import Buffer
from fencepost.protocol.schema import ZERO_UUID, field, int8, int32, int64, message, struct, uuid
from fencepost.protocol.stored.versioned import decode_known, decode_versioned, encode_versioned, read_version


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


@struct
class ShareTopicPartitions:
    """Partitions of a topic."""

    topic_id: uuid = ZERO_UUID
    partitions: list[int32] = []


@message(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    """The partitions of the member in the assignment."""

    topic_partitions: list[ShareTopicPartitions] = []


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
    assigned_partitions: list[ShareTopicPartitions] = []


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

_KEYS: dict[int, type[Any]] = {
    10: ShareGroupMemberMetadataKey,
    11: ShareGroupMetadataKey,
    12: ShareGroupTargetAssignmentMetadataKey,
    13: ShareGroupTargetAssignmentMemberKey,
    14: ShareGroupCurrentMemberAssignmentKey,
    15: ShareGroupStatePartitionMetadataKey,
}
_KEY_VERSIONS = {declared: version for version, declared in _KEYS.items()}
_VALUES: dict[type[Any], type[Any]] = {
    ShareGroupMemberMetadataKey: ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey: ShareGroupMetadataValue,
    ShareGroupTargetAssignmentMetadataKey: ShareGroupTargetAssignmentMetadataValue,
    ShareGroupTargetAssignmentMemberKey: ShareGroupTargetAssignmentMemberValue,
    ShareGroupCurrentMemberAssignmentKey: ShareGroupCurrentMemberAssignmentValue,
    ShareGroupStatePartitionMetadataKey: ShareGroupStatePartitionMetadataValue,
}
VALUE_VERSION = 0


def encode_share_group_key(key: ShareGroupKey) -> bytes:
    """Encode a key."""
    return encode_versioned(key, _KEY_VERSIONS[type(key)])


def decode_share_group_key(key: Buffer) -> ShareGroupKey | None:
    """Decode a key; None for another kind of record. Raises DecodeError."""
    declared = _KEYS.get(read_version(key))
    return None if declared is None else decode_versioned(declared, key)


def encode_share_group_value(value: Any) -> bytes:
    """Encode one of the values declared here."""
    return encode_versioned(value, VALUE_VERSION)


def decode_share_group_value(key: ShareGroupKey, value: Buffer) -> Any:
    """Decode the value of a key. Raises DecodeError, also for an unknown version."""
    return decode_known(_VALUES[type(key)], value)
