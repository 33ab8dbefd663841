"""Bytes of the offset records in `__consumer_offsets`, written and read by hand: every commit of every group passes
through here.

A test proves them equal to what the message classes of `protocol.stored.consumer_offsets` write and read.
Source: Kafka's OffsetCommitKey.json, OffsetCommitValue.json and GroupCoordinatorRecordHelpers.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812  # an exception class under its usual name
from typing import NamedTuple

from protocol.schema import DecodeError

OFFSET_KEY_VERSIONS = frozenset({0, 1})
GROUP_METADATA_KEY_VERSION = 2
ZERO_TOPIC_ID = bytes(16)

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_KEY_HEAD = Struct(">hh")  # version, length of the group id
_VALUE_HEAD = Struct(">hqi")  # version, offset, leader epoch
_EXPIRING_TAIL = Struct(">qq")  # commit timestamp, expire timestamp
_NO_TAGS = b"\x00"
_TOPIC_ID_TAG = b"\x01\x00\x10"  # one tagged field: tag 0, 16 bytes


class OffsetAndMetadata(NamedTuple):
    """A committed offset.

    leader_epoch:        of the last consumed record, -1 when unknown.
    expire_timestamp_ms: -1 unless the client asked for a retention of its own (OffsetCommit 2 to 4).
    topic_id:            zero when the committing client or the record did not say.
    record_offset:       where the commit stands in the log of `__consumer_offsets`; of two commits the greater one
                         counts.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    topic_id: bytes = ZERO_TOPIC_ID
    record_offset: int = -1


class OffsetKey(NamedTuple):
    """Whose offset of which partition a record holds."""

    group_id: str
    topic: str
    partition: int


def encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    group_bytes = group_id.encode()
    topic_bytes = topic.encode()
    return b"".join(
        (
            _KEY_HEAD.pack(1, len(group_bytes)),
            group_bytes,
            _INT16.pack(len(topic_bytes)),
            topic_bytes,
            _INT32.pack(partition),
        )
    )


def encode_offset_value(value: OffsetAndMetadata) -> bytes:
    """Version 4, or 1 for an offset that expires at a time of its own: only that version can say so."""
    metadata = value.metadata.encode()
    if value.expire_timestamp_ms != -1:
        return b"".join(
            (
                _INT16.pack(1),
                _INT64.pack(value.offset),
                _INT16.pack(len(metadata)),
                metadata,
                _EXPIRING_TAIL.pack(value.commit_timestamp_ms, value.expire_timestamp_ms),
            )
        )
    parts = (
        _VALUE_HEAD.pack(4, value.offset, value.leader_epoch),
        _unsigned_varint(len(metadata) + 1),
        metadata,
        _INT64.pack(value.commit_timestamp_ms),
    )
    if value.topic_id == ZERO_TOPIC_ID:
        return b"".join((*parts, _NO_TAGS))
    return b"".join((*parts, _TOPIC_ID_TAG, value.topic_id))


def decode_offset_key(key: bytes) -> OffsetKey:
    """Versions 0 and 1, which have one layout. Raises DecodeError."""
    try:
        (group_length,) = _INT16.unpack_from(key, 2)
        topic_at = 4 + group_length
        (topic_length,) = _INT16.unpack_from(key, topic_at)
        partition_at = topic_at + 2 + topic_length
        (partition,) = _INT32.unpack_from(key, partition_at)
        if group_length < 0 or topic_length < 0 or partition_at + 4 != len(key):
            raise DecodeError(f"offset key of {len(key)} bytes does not match its string lengths")
        return OffsetKey(key[4:topic_at].decode(), key[topic_at + 2 : partition_at].decode(), partition)
    except (StructError, UnicodeDecodeError) as error:
        raise DecodeError(f"offset key is undecodable: {error}") from error


def decode_offset_value(value: bytes, record_offset: int) -> OffsetAndMetadata | None:
    """Versions 0 to 4; None for a version of the future. Raises DecodeError."""
    try:
        (version,) = _INT16.unpack_from(value)
        if not 0 <= version <= 4:
            return None
        (offset,) = _INT64.unpack_from(value, 2)
        leader_epoch = expire_timestamp_ms = -1
        position = 10
        if version >= 3:
            (leader_epoch,) = _INT32.unpack_from(value, position)
            position += 4
        if version >= 4:
            length, position = _read_unsigned_varint(value, position)
            length -= 1
        else:
            (length,) = _INT16.unpack_from(value, position)
            position += 2
        if length < 0 or position + length > len(value):
            raise DecodeError(f"offset value of {len(value)} bytes holds metadata of {length} bytes")
        metadata = value[position : position + length].decode()
        position += length
        (commit_timestamp_ms,) = _INT64.unpack_from(value, position)
        position += 8
        if version == 1:
            (expire_timestamp_ms,) = _INT64.unpack_from(value, position)
        topic_id = _read_topic_id(value, position) if version >= 4 else ZERO_TOPIC_ID
        return OffsetAndMetadata(
            offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id, record_offset
        )
    except (StructError, IndexError, UnicodeDecodeError) as error:
        raise DecodeError(f"offset value is undecodable: {error}") from error


def _read_topic_id(value: bytes, position: int) -> bytes:
    tag_count, position = _read_unsigned_varint(value, position)
    topic_id = ZERO_TOPIC_ID
    for _ in range(tag_count):
        tag, position = _read_unsigned_varint(value, position)
        size, position = _read_unsigned_varint(value, position)
        if position + size > len(value) or (tag == 0 and size != 16):
            raise DecodeError(f"offset value of {len(value)} bytes holds a tagged field of {size} bytes")
        if tag == 0:
            topic_id = value[position : position + size]
        position += size
    return topic_id


def _unsigned_varint(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _read_unsigned_varint(buffer: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
        if shift > 28:
            raise DecodeError("varint is longer than five bytes")
