"""The records of `__share_group_state`: delivery states of the records of share partitions (KIP-932).

A snapshot has the whole state of a share partition, an update the changes since; a null snapshot deletes.
The version of a key distinguishes them.
Source: Kafka's ShareSnapshotKey.json, ShareSnapshotValue.json, ShareUpdateKey.json and ShareUpdateValue.json.
"""

from typing import TypeAlias

from fencepost.protocol.schema import ZERO_UUID, field, int8, int16, int32, int64, message, struct, uuid
from fencepost.protocol.stored.versioned import RecordKinds


@message(versions="0")
class ShareSnapshotKey:
    """Key of a share partition."""

    group_id: str = ""
    topic_id: uuid = ZERO_UUID
    partition: int32 = 0


@struct
class StateBatch:
    """Records, first and last inclusive. delivery_state: 0 available, 2 acknowledged, 3 archiving, 4 archived."""

    first_offset: int64 = 0
    last_offset: int64 = 0
    delivery_state: int8 = 0
    delivery_count: int16 = 0


@struct
class DeadLetterCopy:
    """The copies of a share partition's records in one partition of a dead-letter topic. Ours; Kafka has none.

    producer_id:   wrote them, with the epoch 0; no other copies have it.
    base_sequence: sequence of the first record that is being copied, else of the next one.
    first_offset, last_offset: the records that are being copied, in their own partition, inclusive; -1 if none are.
    """

    topic_id: uuid = ZERO_UUID
    partition: int32 = 0
    producer_id: int64 = 0
    base_sequence: int32 = 0
    first_offset: int64 = -1
    last_offset: int64 = -1


@message(versions="0", flexible="0+")
class ShareSnapshotValue:
    """The whole state of a share partition.

    start_offset: -1 until the group has read from it. delivery_complete_count: number of the records from there on that
    are acknowledged or archived; -1 if unknown. dead_letters: at most one; ours.
    """

    snapshot_epoch: int32 = 0
    state_epoch: int32 = 0
    leader_epoch: int32 = 0
    start_offset: int64 = 0
    delivery_complete_count: int32 = field(tag=0, default=-1)
    create_timestamp: int64 = 0
    write_timestamp: int64 = 0
    state_batches: list[StateBatch] = []
    dead_letters: list[DeadLetterCopy] = field(tag=10_000, default=[])


@message(versions="1")
class ShareUpdateKey:
    """Key of a share partition."""

    group_id: str = ""
    topic_id: uuid = ZERO_UUID
    partition: int32 = 0


@message(versions="0", flexible="0+")
class ShareUpdateValue:
    """Changes of a share partition. start_offset: -1 if it has not changed. dead_letters: empty if not; ours."""

    snapshot_epoch: int32 = 0
    leader_epoch: int32 = 0
    start_offset: int64 = 0
    delivery_complete_count: int32 = field(tag=0, default=-1)
    state_batches: list[StateBatch] = []
    dead_letters: list[DeadLetterCopy] = field(tag=10_000, default=[])


ShareStateKey: TypeAlias = ShareSnapshotKey | ShareUpdateKey
ShareStateValue: TypeAlias = ShareSnapshotValue | ShareUpdateValue

SHARE_STATE_RECORDS: RecordKinds[ShareStateKey] = RecordKinds(
    {
        ShareSnapshotKey: ShareSnapshotValue,
        ShareUpdateKey: ShareUpdateValue,
    }
)
