"""The records of `__consumer_offsets` that make up a share group (KIP-932). A null value deletes.

The version of a key says what kind of record it is.
Source: Kafka's ShareGroup*Key.json and ShareGroup*Value.json.
"""

from typing import Any, TypeAlias

from fencepost.protocol.primitives import Buffer
from fencepost.protocol.schema import ZERO_UUID, field, int8, int32, int64, message, struct, uuid
from fencepost.protocol.stored.versioned import decode_known, decode_versioned, encode_versioned, read_version


@message(versions="10")
class ShareGroupMemberMetadataKey:
    """What a member has said of itself."""

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
    """The group itself."""

    group_id: str = ""


@message(versions="0", flexible="0+")
class ShareGroupMetadataValue:
    """How often the group has changed, and a hash of the topics that it is subscribed to."""

    epoch: int32 = 0
    metadata_hash: int64 = 0


@message(versions="12")
class ShareGroupTargetAssignmentMetadataKey:
    """The assignment that the group has."""

    group_id: str = ""


@message(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    """For which group epoch it was made, and when (KIP-1263; 0 when not known)."""

    assignment_epoch: int32 = 0
    assignment_timestamp: int64 = field(tag=0, default=0)


@message(versions="13")
class ShareGroupTargetAssignmentMemberKey:
    """The part of a member in the assignment."""

    group_id: str = ""
    member_id: str = ""


@struct
class ShareTopicPartitions:
    """Partitions of a topic."""

    topic_id: uuid = ZERO_UUID
    partitions: list[int32] = []


@message(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    """What the member is to read."""

    topic_partitions: list[ShareTopicPartitions] = []


@message(versions="14")
class ShareGroupCurrentMemberAssignmentKey:
    """What a member has been told."""

    group_id: str = ""
    member_id: str = ""


@message(versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    """What the member reads. `state` is 0: a member of a share group has nothing to wait for."""

    member_epoch: int32 = 0
    previous_member_epoch: int32 = 0
    state: int8 = 0
    assigned_partitions: list[ShareTopicPartitions] = []


@message(versions="15")
class ShareGroupStatePartitionMetadataKey:
    """Which share partitions of the group have state in `__share_group_state`."""

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
    """Share partitions whose state is being made, is there, or is being deleted."""

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
    """The bytes of a key."""
    return encode_versioned(key, _KEY_VERSIONS[type(key)])


def decode_share_group_key(key: Buffer) -> ShareGroupKey | None:
    """The key; None if it is of another kind of record. Raises DecodeError."""
    declared = _KEYS.get(read_version(key))
    return None if declared is None else decode_versioned(declared, key)


def encode_share_group_value(value: Any) -> bytes:
    """The bytes of one of the values declared here."""
    return encode_versioned(value, VALUE_VERSION)


def decode_share_group_value(key: ShareGroupKey, value: Buffer) -> Any:
    """The value that belongs to a key. Raises DecodeError, also for a version not known."""
    return decode_known(_VALUES[type(key)], value)
