"""What of a committed offset survives in its record, and which version says it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.coordination import shard
from fencepost.broker.group.offsets import records
from fencepost.broker.group.offsets.records import (
    OffsetAndMetadata,
    decode_key,
    decode_offset,
    offset_record,
    offset_tombstone,
)
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.stored import transaction_state
from fencepost.protocol.stored.consumer_offsets import OffsetCommitKey, decode_offset_commit_key

ORDERS = TopicPartition("orders", 3)
int64s = st.integers(-(2**63), 2**63 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)


@given(int64s, int32s, st.text(max_size=200), int64s, st.binary(min_size=16, max_size=16), st.integers(0, 2**63 - 1))
def test_everything_said_in_a_commit_is_in_its_record(
    offset: int, leader_epoch: int, metadata: str, commit_timestamp_ms: int, topic_id: bytes, record_offset: int
) -> None:
    value = OffsetAndMetadata(offset, leader_epoch, metadata, commit_timestamp_ms, topic_id=topic_id)
    record = offset_record("g", ORDERS, value)
    assert record.value is not None
    assert record.value[:2] == b"\x00\x04"
    assert decode_offset(record.value, record_offset) == value._replace(record_offset=record_offset)
    assert decode_offset_commit_key(record.key) == OffsetCommitKey(group="g", topic="orders", partition=3)


def test_an_offset_with_an_expiry_of_its_own_is_written_in_the_version_that_has_one() -> None:
    value = OffsetAndMetadata(5, 3, "note", 1_000, expire_timestamp_ms=9_000, topic_id=bytes(range(16)))
    record = offset_record("g", ORDERS, value)
    assert record.value is not None
    assert record.value[:2] == b"\x00\x01"
    assert decode_offset(record.value, 7) == OffsetAndMetadata(5, -1, "note", 1_000, 9_000, record_offset=7)


def test_a_tombstone_has_the_key_of_the_commit_and_no_value() -> None:
    commit = offset_record("g", ORDERS, OffsetAndMetadata(5, -1, "", 1_000))
    assert (offset_tombstone("g", ORDERS).key, offset_tombstone("g", ORDERS).value) == (commit.key, None)


def test_a_value_of_a_future_version_is_refused() -> None:
    with pytest.raises(DecodeError, match="version 5"):
        decode_offset(b"\x00\x05future", 0)


def test_cached_client_chosen_ids_are_bounded() -> None:
    short, long = "g" * 256, "g" * 30_000
    caches = (
        records._encode_remembered,
        records._decode_remembered,
        shard._remembered_partition,
        transaction_state._encode_remembered,
    )
    for group_id, grows in ((short, 1), (long, 0)):
        for cache in caches:
            cache.cache_clear()
        key = offset_record(group_id, ORDERS, OffsetAndMetadata(5, -1, "", 1_000)).key
        assert decode_key(key) == (group_id, ORDERS)
        assert shard.partition_for_key(group_id, 50) == shard._partition_for_key(group_id, 50)
        decoded = transaction_state.decode_transaction_log_key(transaction_state.encode_transaction_log_key(group_id))
        assert decoded == group_id
        assert [cache.cache_info().currsize for cache in caches] == [grows] * 4


@given(st.text(st.characters(), max_size=700), st.integers(1, 1_000))
def test_long_and_short_keys_are_placed_as_java_places_them(key: str, count: int) -> None:
    encoded = key.encode("utf-16-be", "surrogatepass")
    code = 0
    for position in range(0, len(encoded), 2):
        code = (31 * code + int.from_bytes(encoded[position : position + 2])) % 2**32
    signed = code - 2**32 if code >= 2**31 else code
    assert shard.partition_for_key(key, count) == (0 if signed == -(2**31) else abs(signed)) % count
