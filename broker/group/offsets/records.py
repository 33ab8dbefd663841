"""A committed offset as the coordinator keeps it, and as a record of `__consumer_offsets`. Pure.

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
LONGEST_REMEMBERED_KEY_BYTES = 600  # of an id and a topic's name: clients choose ids, of up to 32 KiB


class OffsetAndMetadata(NamedTuple):
    """A committed offset.

    leader_epoch:        of the last consumed record, -1 when unknown.
    expire_timestamp_ms: -1 unless the client asked for a retention of its own (OffsetCommit 2 to 4).
    topic_id:            zero when the committing client or the record did not say.
    record_offset:       where the commit stands in the log of `__consumer_offsets`; of two commits the greater counts.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    topic_id: bytes = ZERO_UUID
    record_offset: int = -1


class OffsetCommitted(NamedTuple):
    """What the record of a commit means to the shard that decides it."""

    group_id: str
    topic_partition: TopicPartition
    value: OffsetAndMetadata

    def at(self, record_offset: int) -> OffsetAndMetadata:
        """The committed offset, once it is known where in the log it stands."""
        return OffsetAndMetadata(*self.value[:-1], record_offset)


def offset_record(group_id: str, topic_partition: TopicPartition, value: OffsetAndMetadata) -> CoordinatorRecord:
    """The record of a commit: version 4, or 1 for an offset that expires at a time of its own, which only that has."""
    encode = _encode_remembered if len(group_id) <= LONGEST_REMEMBERED_KEY else _encode_key
    key = encode(group_id, topic_partition)
    offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id, _ = value
    if expire_timestamp_ms != -1:
        # That version has room neither for the leader's epoch nor for the topic's id: its bytes mean less than `value`.
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
    """The record that removes a committed offset, and what open transactions have committed for the partition."""
    return CoordinatorRecord(_encode_key(group_id, topic_partition), None)


def decode_offset(value: bytes, record_offset: int) -> OffsetAndMetadata:
    """The committed offset. Raises DecodeError, also for a version of the future.

    Any number may be an offset: OffsetCommit takes each that a client sends, as Kafka's does.
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


# Groups commit for the same few partitions again and again.


def _encode_key(group_id: str, topic_partition: TopicPartition) -> bytes:
    topic, partition = topic_partition
    return encode_offset_commit_key(OffsetCommitKey(group=group_id, topic=topic, partition=partition))


_encode_remembered = lru_cache(MAX_REMEMBERED_KEYS)(_encode_key)


def decode_key(key: bytes) -> tuple[str, TopicPartition] | None:
    """Whose offset of which partition a record holds; None for a record of another kind.

    Raises DecodeError, also for a partition that cannot be.
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
