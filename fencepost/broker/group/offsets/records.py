"""Records of committed offsets in `__consumer_offsets`, and the type of a committed offset. Pure.

Source: Kafka's OffsetAndMetadata and GroupCoordinatorRecordHelpers.newOffsetCommitRecord.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from fencepost.broker.coordination.shard import LONGEST_REMEMBERED_KEY, CoordinatorRecord
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.schema import ZERO_UUID
from fencepost.protocol.stored.consumer_offsets import (
    OffsetCommitKey,
    OffsetCommitValue,
    decode_offset_commit_key,
    encode_offset_commit_key,
    encode_offset_commit_value,
    pack_offset_commit_value,
)
from fencepost.protocol.stored.versioned import decode_known

EXPIRING_OFFSET_VALUE_VERSION = 1
MAX_REMEMBERED_KEYS = 16_384
LONGEST_REMEMBERED_KEY_BYTES = 600  # group id plus topic name in the key cache: clients choose ids of up to 32 KiB


class OffsetAndMetadata(NamedTuple):
    """A committed offset.

    leader_epoch:        epoch of the last consumed record, -1 when unknown.
    expire_timestamp_ms: -1 unless the client requested a retention (OffsetCommit 2 to 4).
    topic_id:            zero when the committing client or the record has none.
    record_offset:       offset of the commit in the log of `__consumer_offsets`; of two commits the greater wins.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    topic_id: bytes = ZERO_UUID
    record_offset: int = -1


class OffsetCommitted(NamedTuple):
    """Decoded record of a commit, for the shard that decides it."""

    group_id: str
    topic_partition: TopicPartition
    value: OffsetAndMetadata

    def at(self, record_offset: int) -> OffsetAndMetadata:
        """Return the committed offset of a record with this offset in the log."""
        return OffsetAndMetadata(*self.value[:-1], record_offset)


def offset_record(group_id: str, topic_partition: TopicPartition, value: OffsetAndMetadata) -> CoordinatorRecord:
    """Return the record of a commit: version 4, or version 1, which alone can hold an expiry time, if it has one."""
    encode = _encode_remembered if len(group_id) <= LONGEST_REMEMBERED_KEY else _encode_key
    key = encode(group_id, topic_partition)
    offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id, _ = value
    if expire_timestamp_ms != -1:
        # Version 1 holds neither the leader epoch nor the topic id, so its bytes decode to less than `value`.
        stored = OffsetCommitValue(
            offset=offset,
            metadata=metadata,
            commit_timestamp=commit_timestamp_ms,
            expire_timestamp=expire_timestamp_ms,
        )
        return CoordinatorRecord(key, encode_offset_commit_value(stored, EXPIRING_OFFSET_VALUE_VERSION))
    packed = pack_offset_commit_value(offset, leader_epoch, metadata, commit_timestamp_ms, topic_id)
    return CoordinatorRecord(key, packed, OffsetCommitted(group_id, topic_partition, value))


def offset_tombstone(group_id: str, topic_partition: TopicPartition) -> CoordinatorRecord:
    """Return the record that removes the committed and the pending offsets of a partition."""
    return CoordinatorRecord(_encode_key(group_id, topic_partition), None)


def decode_offset(value: bytes, record_offset: int) -> OffsetAndMetadata:
    """Decode a committed offset. Raises DecodeError, also for a later version.

    Any number is a valid offset: OffsetCommit accepts every number from a client, as in Kafka.
    """
    stored = decode_known(OffsetCommitValue, value)
    return OffsetAndMetadata(
        stored.offset,
        stored.leader_epoch,
        stored.metadata,
        stored.commit_timestamp,
        stored.expire_timestamp,
        stored.topic_id,
        record_offset,
    )


# Cached because groups commit for the same few partitions repeatedly.


def _encode_key(group_id: str, topic_partition: TopicPartition) -> bytes:
    topic, partition = topic_partition
    return encode_offset_commit_key(OffsetCommitKey(group=group_id, topic=topic, partition=partition))


_encode_remembered = lru_cache(MAX_REMEMBERED_KEYS)(_encode_key)


def decode_key(key: bytes) -> tuple[str, TopicPartition] | None:
    """Return the group and partition of an offset record; None for a record of another kind.

    Raises DecodeError, also for an invalid partition.
    """
    return _decode_remembered(key) if len(key) <= LONGEST_REMEMBERED_KEY_BYTES else _decode_key(key)


def _decode_key(key: bytes) -> tuple[str, TopicPartition] | None:
    decoded = decode_offset_commit_key(key)
    if decoded is None:
        return None
    if decoded.partition < 0:
        raise DecodeError(f"it is about the partition {decoded.topic}-{decoded.partition}")
    return decoded.group, TopicPartition(decoded.topic, decoded.partition)


_decode_remembered = lru_cache(MAX_REMEMBERED_KEYS)(_decode_key)
