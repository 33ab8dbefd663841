"""The hand-made codec of offset records against the message classes, which are proven against Kafka's schemas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.group.offset_records import (
    OffsetAndMetadata,
    OffsetKey,
    decode_offset_key,
    decode_offset_value,
    encode_offset_key,
    encode_offset_value,
)
from protocol.schema import DecodeError
from protocol.stored.consumer_offsets import (
    OffsetCommitKey,
    OffsetCommitValue,
    decode_offset_commit_key,
    decode_offset_commit_value,
    encode_offset_commit_key,
    encode_offset_commit_value,
)

int64s = st.integers(-(2**63), 2**63 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
texts = st.text(max_size=200)


@given(texts, texts, int32s)
def test_keys_are_the_bytes_of_the_message_class(group_id: str, topic: str, partition: int) -> None:
    key = encode_offset_key(group_id, topic, partition)
    assert key == encode_offset_commit_key(OffsetCommitKey(group=group_id, topic=topic, partition=partition))
    assert decode_offset_key(key) == OffsetKey(group_id, topic, partition)
    assert decode_offset_commit_key(key) is not None


@given(int64s, int32s, texts, int64s, st.binary(min_size=16, max_size=16))
def test_values_are_the_bytes_of_the_message_class(
    offset: int, leader_epoch: int, metadata: str, commit_timestamp_ms: int, topic_id: bytes
) -> None:
    value = OffsetAndMetadata(offset, leader_epoch, metadata, commit_timestamp_ms, topic_id=topic_id)
    encoded = encode_offset_value(value)
    assert encoded == encode_offset_commit_value(
        OffsetCommitValue(
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=metadata,
            commit_timestamp=commit_timestamp_ms,
            topic_id=topic_id,
        )
    )
    assert decode_offset_value(encoded, 5) == value._replace(record_offset=5)
    assert decode_offset_commit_value(encoded) is not None


def test_an_offset_with_an_expiry_of_its_own_is_written_in_the_version_that_has_one() -> None:
    value = OffsetAndMetadata(5, -1, "note", 1_000, expire_timestamp_ms=9_000)
    encoded = encode_offset_value(value)
    assert encoded == encode_offset_commit_value(
        OffsetCommitValue(offset=5, metadata="note", commit_timestamp=1_000, expire_timestamp=9_000), 1
    )
    assert decode_offset_value(encoded, -1) == value


@pytest.mark.parametrize("version", range(5))
def test_values_of_every_version_are_read(version: int) -> None:
    encoded = encode_offset_commit_value(
        OffsetCommitValue(offset=5, leader_epoch=3 if version >= 3 else -1, metadata="m" * 300, commit_timestamp=1_000),
        version,
    )
    decoded = decode_offset_value(encoded, 8)
    assert decoded is not None
    assert (decoded.offset, decoded.metadata, decoded.commit_timestamp_ms) == (5, "m" * 300, 1_000)
    assert decoded.leader_epoch == (3 if version >= 3 else -1)


def test_a_value_of_a_future_version_is_left_to_the_caller() -> None:
    assert decode_offset_value(b"\x00\x05future", 0) is None


def test_unknown_tagged_fields_are_skipped() -> None:
    value = OffsetAndMetadata(5, 1, "", 1_000, topic_id=bytes(range(16)))
    encoded = encode_offset_value(value)
    tagged = encoded[: -len(b"\x01\x00\x10") - 16] + b"\x02" + encoded[-18:] + b"\x07\x02ab"
    assert decode_offset_value(tagged, -1) == value


@given(st.binary(max_size=60))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    for decode in (decode_offset_key, lambda value: decode_offset_value(b"\x00\x04" + value, 0)):
        try:
            decode(data)
        except DecodeError:
            pass


@given(st.integers(0, 60))
def test_a_truncated_record_is_refused(length: int) -> None:
    key = encode_offset_key("group", "topic", 3)
    value = encode_offset_value(OffsetAndMetadata(5, 1, "metadata", 1_000, topic_id=bytes(range(16))))
    if length < len(key):
        with pytest.raises(DecodeError):
            decode_offset_key(key[:length])
    if length < len(value):
        with pytest.raises(DecodeError):
            decode_offset_value(value[:length], 0)
