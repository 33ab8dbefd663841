"""The records of `__consumer_offsets`, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol.schema import ZERO_UUID, DecodeError
from fencepost.protocol.stored.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group_metadata_key,
    decode_group_metadata_value,
    decode_offset_commit_key,
    decode_offset_commit_value,
    encode_group_metadata_key,
    encode_group_metadata_value,
    encode_offset_commit_key,
    encode_offset_commit_value,
    pack_offset_commit_value,
)

KEY = OffsetCommitKey("g", "topic", 3)
MEMBER = MemberMetadata(
    member_id="m",
    group_instance_id="i",
    client_id="c",
    client_host="/h",
    rebalance_timeout=2,
    session_timeout=1,
    subscription=b"\x01\x02",
    assignment=b"",
)
GROUP = GroupMetadataValue(
    protocol_type="consumer", generation=4, protocol="range", leader="m", current_state_timestamp=9, members=[MEMBER]
)


def test_an_offset_key_is_version_1_group_topic_and_partition() -> None:
    encoded = bytes.fromhex("0001" + "000167" + "0005746f706963" + "00000003")
    assert encode_offset_commit_key(KEY) == encoded
    assert decode_offset_commit_key(encoded) == KEY
    assert decode_offset_commit_key(b"\x00\x00" + encoded[2:]) == KEY


def test_the_version_of_a_key_distinguishes_offsets_from_groups() -> None:
    group_key = encode_group_metadata_key(GroupMetadataKey("g"))
    assert group_key.hex() == "0002" + "000167"
    assert decode_group_metadata_key(group_key) == GroupMetadataKey("g")
    assert decode_offset_commit_key(group_key) is None
    assert decode_group_metadata_key(encode_offset_commit_key(KEY)) is None


@pytest.mark.parametrize(
    ("version", "encoded"),
    [
        (0, "0000" + "000000000000002a" + "00026d65" + "0000000000000005"),
        (1, "0001" + "000000000000002a" + "00026d65" + "0000000000000005" + "0000000000000009"),
        (2, "0002" + "000000000000002a" + "00026d65" + "0000000000000005"),
        (3, "0003" + "000000000000002a" + "00000007" + "00026d65" + "0000000000000005"),
        (4, "0004" + "000000000000002a" + "00000007" + "036d65" + "0000000000000005" + "010010" + "ab" * 16),
    ],
)
def test_each_version_of_an_offset_holds_the_fields_of_that_version(version: int, encoded: str) -> None:
    value = OffsetCommitValue(
        offset=42, leader_epoch=7, metadata="me", commit_timestamp=5, expire_timestamp=9, topic_id=b"\xab" * 16
    )
    assert encode_offset_commit_value(value, version).hex() == encoded
    read = decode_offset_commit_value(bytes.fromhex(encoded))
    assert read == OffsetCommitValue(
        offset=42,
        leader_epoch=7 if version >= 3 else -1,
        metadata="me",
        commit_timestamp=5,
        expire_timestamp=9 if version == 1 else -1,
        topic_id=b"\xab" * 16 if version >= 4 else bytes(16),
    )


def test_an_offset_without_topic_id_has_no_tagged_field() -> None:
    assert encode_offset_commit_value(OffsetCommitValue(offset=1)).hex() == (
        "0004" + "0000000000000001" + "ffffffff" + "01" + "0000000000000000" + "00"
    )


@given(
    offset=st.integers(-(2**63), 2**63 - 1),
    leader_epoch=st.integers(-(2**31), 2**31 - 1),
    metadata=st.one_of(st.text(max_size=5), st.integers(120, 20_000).map("x".__mul__)),
    commit_timestamp=st.integers(-(2**63), 2**63 - 1),
    topic_id=st.one_of(st.just(ZERO_UUID), st.binary(min_size=16, max_size=16)),
)
def test_a_packed_offset_has_the_bytes_of_an_encoded_one(
    offset: int, leader_epoch: int, metadata: str, commit_timestamp: int, topic_id: bytes
) -> None:
    value = OffsetCommitValue(offset, leader_epoch, metadata, commit_timestamp, topic_id=topic_id)
    packed = pack_offset_commit_value(offset, leader_epoch, metadata, commit_timestamp, topic_id)
    assert packed == encode_offset_commit_value(value)


def test_a_group_has_the_bytes_of_version_3() -> None:
    encoded = (
        "0003" + "0008636f6e73756d6572" + "00000004" + "000572616e6765" + "00016d" + "0000000000000009" + "00000001"
        "00016d" + "000169" + "000163" + "00022f68" + "00000002" + "00000001" + "000000020102" + "00000000"
    )
    assert encode_group_metadata_value(GROUP, 3).hex() == encoded
    assert decode_group_metadata_value(bytes.fromhex(encoded)) == GROUP


@pytest.mark.parametrize("version", range(5))
def test_each_version_of_a_group_holds_the_fields_of_that_version(version: int) -> None:
    read = decode_group_metadata_value(encode_group_metadata_value(GROUP, version))
    assert read is not None
    assert read.current_state_timestamp == (9 if version >= 2 else -1)
    assert read.members[0].group_instance_id == ("i" if version >= 3 else None)
    assert read.members[0].rebalance_timeout == (2 if version >= 1 else -1)
    assert read.members[0].subscription == b"\x01\x02"


def test_an_empty_group_has_neither_protocol_nor_leader() -> None:
    value = GroupMetadataValue(protocol_type="consumer", protocol=None, leader=None)
    for version in range(5):
        assert decode_group_metadata_value(encode_group_metadata_value(value, version)) == value


def test_unknown_versions_are_reported_as_none() -> None:
    assert decode_offset_commit_value(b"\x00\x05later") is None
    assert decode_group_metadata_value(b"\x00\x05later") is None
    assert decode_group_metadata_key(b"\x00\x03later") is None


def test_truncated_records_are_undecodable() -> None:
    encoded = encode_group_metadata_value(GROUP)
    for size in range(len(encoded)):
        with pytest.raises(DecodeError):
            decode_group_metadata_value(encoded[:size])
    with pytest.raises(DecodeError):
        decode_offset_commit_key(b"\x00")
