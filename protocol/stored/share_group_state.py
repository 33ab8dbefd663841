"""The records of `__share_group_state`: what became of the records of a share partition (KIP-932).

A snapshot says everything about a share partition, an update what has changed since; a null snapshot deletes.
The version of a key says which of the two it is.
Source: Kafka's ShareSnapshotKey.json, ShareSnapshotValue.json, ShareUpdateKey.json and ShareUpdateValue.json.
"""

from typing import TypeAlias

from fencepost.protocol.primitives import Buffer
from fencepost.protocol.schema import ZERO_UUID, field, int8, int16, int32, int64, message, struct, uuid
from fencepost.protocol.stored.versioned import decode_known, decode_versioned, encode_versioned, read_version


@message(versions="0")
class ShareSnapshotKey:
    """A share partition."""

    group_id: str = ""
    topic_id: uuid = ZERO_UUID
    partition: int32 = 0


@struct
class StateBatch:
    """Records, first and last inclusive. delivery_state: 0 available, 2 acknowledged, 4 archived."""

    first_offset: int64 = 0
    last_offset: int64 = 0
    delivery_state: int8 = 0
    delivery_count: int16 = 0


@message(versions="0", flexible="0+")
class ShareSnapshotValue:
    """All that is known of a share partition.

    start_offset: -1 until the group has read from it. delivery_complete_count: of the records from there on, how many
    are done with; -1 when not known.
    """

    snapshot_epoch: int32 = 0
    state_epoch: int32 = 0
    leader_epoch: int32 = 0
    start_offset: int64 = 0
    delivery_complete_count: int32 = field(tag=0, default=-1)
    create_timestamp: int64 = 0
    write_timestamp: int64 = 0
    state_batches: list[StateBatch] = []


@message(versions="1")
class ShareUpdateKey:
    """A share partition."""

    group_id: str = ""
    topic_id: uuid = ZERO_UUID
    partition: int32 = 0


@message(versions="0", flexible="0+")
class ShareUpdateValue:
    """What has changed of a share partition. start_offset: -1 when that has not."""

    snapshot_epoch: int32 = 0
    leader_epoch: int32 = 0
    start_offset: int64 = 0
    delivery_complete_count: int32 = field(tag=0, default=-1)
    state_batches: list[StateBatch] = []


ShareStateKey: TypeAlias = ShareSnapshotKey | ShareUpdateKey
ShareStateValue: TypeAlias = ShareSnapshotValue | ShareUpdateValue

_KEYS: dict[int, type[ShareStateKey]] = {0: ShareSnapshotKey, 1: ShareUpdateKey}
_KEY_VERSIONS: dict[type[ShareStateKey], int] = {ShareSnapshotKey: 0, ShareUpdateKey: 1}
VALUE_VERSION = 0


def encode_share_state_key(key: ShareStateKey) -> bytes:
    """The bytes of a key."""
    return encode_versioned(key, _KEY_VERSIONS[type(key)])


def decode_share_state_key(key: Buffer) -> ShareStateKey | None:
    """The key; None for one of an unknown kind. Raises DecodeError."""
    declared = _KEYS.get(read_version(key))
    return None if declared is None else decode_versioned(declared, key)


def encode_share_state_value(value: ShareStateValue) -> bytes:
    """The bytes of a value."""
    return encode_versioned(value, VALUE_VERSION)


def decode_share_state_value(key: ShareStateKey, value: Buffer) -> ShareStateValue:
    """The value that belongs to a key. Raises DecodeError, also for a version not known."""
    if isinstance(key, ShareSnapshotKey):
        return decode_known(ShareSnapshotValue, value)
    return decode_known(ShareUpdateValue, value)
