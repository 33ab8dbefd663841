"""The records of `__consumer_offsets`: committed offsets and the metadata of groups. A null value deletes.

The version of a key is the kind of record: 0 and 1 an offset, 2 a group. `subscription` and `assignment` are opaque
bytes of the members.
Source: Kafka's OffsetCommitKey.json, OffsetCommitValue.json, GroupMetadataKey.json and GroupMetadataValue.json.
"""

from struct import Struct

from fencepost.protocol.primitives import Buffer
from fencepost.protocol.schema import ZERO_UUID, field, int32, int64, message, struct, uuid
from fencepost.protocol.stored.versioned import COMPACT_LENGTHS, decode_versioned, encode_versioned

OFFSET_COMMIT_KEY_VERSION = 1  # version 0 has the same layout, from the time before Kafka 0.9
GROUP_METADATA_KEY_VERSION = 2
LATEST_OFFSET_COMMIT_VALUE_VERSION = 4
LATEST_GROUP_METADATA_VALUE_VERSION = 4


@message(versions="0-1")
class OffsetCommitKey:
    """Key of a committed offset: group, topic and partition."""

    group: str = ""
    topic: str = ""
    partition: int32 = 0


@message(versions="0-4", flexible="4+")
class OffsetCommitValue:
    """A committed offset. Only version 1 has an expiry time; -1 leaves expiry to the broker's retention."""

    offset: int64 = 0
    leader_epoch: int32 = field(versions="3+", default=-1)
    metadata: str = ""
    commit_timestamp: int64 = 0
    expire_timestamp: int64 = field(versions="1", default=-1)
    topic_id: uuid = field(versions="4+", tag=0, default=ZERO_UUID)


@message(versions="2")
class GroupMetadataKey:
    """Key of the metadata of a group."""

    group: str = ""


@struct
class MemberMetadata:
    """A member of a generation. rebalance_timeout is -1 in version 0, which does not have it."""

    member_id: str = ""
    group_instance_id: str | None = field(versions="3+", default=None)
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: int32 = field(versions="1+", default=-1)
    session_timeout: int32 = 0
    subscription: bytes = b""
    assignment: bytes = b""


@message(versions="0-4", flexible="4+")
class GroupMetadataValue:
    """A generation of a classic group; protocol and leader are None if the group is empty."""

    protocol_type: str = ""
    generation: int32 = 0
    protocol: str | None = ""
    leader: str | None = ""
    current_state_timestamp: int64 = field(versions="2+", default=-1)
    members: list[MemberMetadata] = []


def encode_offset_commit_key(key: OffsetCommitKey) -> bytes:
    """Encode the key of a committed offset."""
    return encode_versioned(key, OFFSET_COMMIT_KEY_VERSION)


def decode_offset_commit_key(key: Buffer) -> OffsetCommitKey | None:
    """Decode the key of a committed offset; None for another version, such as a group's. Raises DecodeError."""
    return decode_versioned(OffsetCommitKey, key)


def encode_offset_commit_value(value: OffsetCommitValue, version: int = LATEST_OFFSET_COMMIT_VALUE_VERSION) -> bytes:
    """Encode a committed offset."""
    return encode_versioned(value, version)


_BEFORE_METADATA = Struct(">hqi")
_TIMESTAMP = Struct(">qB")  # without tagged fields
_TIMESTAMP_AND_TOPIC_ID = Struct(">qBBB16s")  # one tagged field: number 0, of 16 bytes


def pack_offset_commit_value(
    offset: int, leader_epoch: int, metadata: str, commit_timestamp: int, topic_id: bytes
) -> bytes:
    """Encode an `OffsetCommitValue` of the latest version without its object: every commit writes such a value."""
    text = metadata.encode()
    if topic_id == ZERO_UUID:
        end = _TIMESTAMP.pack(commit_timestamp, 0)
    else:
        end = _TIMESTAMP_AND_TOPIC_ID.pack(commit_timestamp, 1, 0, 16, topic_id)
    start = _BEFORE_METADATA.pack(LATEST_OFFSET_COMMIT_VALUE_VERSION, offset, leader_epoch)
    return start + COMPACT_LENGTHS[len(text)] + text + end


def decode_offset_commit_value(value: Buffer) -> OffsetCommitValue | None:
    """Decode a committed offset; None for an unknown version. Raises DecodeError."""
    return decode_versioned(OffsetCommitValue, value)


def encode_group_metadata_key(key: GroupMetadataKey) -> bytes:
    """Encode the key of a group."""
    return encode_versioned(key, GROUP_METADATA_KEY_VERSION)


def decode_group_metadata_key(key: Buffer) -> GroupMetadataKey | None:
    """Decode the key of a group; None for another version. Raises DecodeError."""
    return decode_versioned(GroupMetadataKey, key)


def encode_group_metadata_value(value: GroupMetadataValue, version: int = LATEST_GROUP_METADATA_VALUE_VERSION) -> bytes:
    """Encode the metadata of a group."""
    return encode_versioned(value, version)


def decode_group_metadata_value(value: Buffer) -> GroupMetadataValue | None:
    """Decode the metadata of a group; None for an unknown version. Raises DecodeError."""
    return decode_versioned(GroupMetadataValue, value)
