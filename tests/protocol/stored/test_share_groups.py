"""The records of share groups in `__consumer_offsets` and `__share_group_state`, byte for byte as Apache Kafka 4.4
writes them."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.stored.consumer_groups import AssignedTopicPartitions
from fencepost.protocol.stored.share_group_state import (
    SHARE_STATE_RECORDS,
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatch,
)
from fencepost.protocol.stored.share_groups import (
    SHARE_GROUP_RECORDS,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    ShareTopicInfo,
    ShareTopicPartitionsInfo,
)

TOPIC_ID = bytes.fromhex("00000000000000010000000000000002")
GROUP_RECORDS: list[tuple[Any, str, Any, str]] = [
    (
        ShareGroupMemberMetadataKey("g", "m"),
        "000a00016700016d",
        ShareGroupMemberMetadataValue(client_id="c", client_host="/h", subscribed_topic_names=["a", "b"]),
        "0000000263032f68030261026200",
    ),
    (ShareGroupMetadataKey("g"), "000b000167", ShareGroupMetadataValue(3, 5), "000000000003000000000000000500"),
    (
        ShareGroupTargetAssignmentMetadataKey("g"),
        "000c000167",
        ShareGroupTargetAssignmentMetadataValue(3, 7),
        "0000000000030100080000000000000007",
    ),
    (
        ShareGroupTargetAssignmentMemberKey("g", "m"),
        "000d00016700016d",
        ShareGroupTargetAssignmentMemberValue([AssignedTopicPartitions(TOPIC_ID, [0, 1])]),
        "000002000000000000000100000000000000020300000000000000010000",
    ),
    (
        ShareGroupCurrentMemberAssignmentKey("g", "m"),
        "000e00016700016d",
        ShareGroupCurrentMemberAssignmentValue(3, 2, 0, [AssignedTopicPartitions(TOPIC_ID, [0])]),
        "0000000000030000000200020000000000000001000000000000000202000000000000",
    ),
    (
        ShareGroupStatePartitionMetadataKey("g"),
        "000f000167",
        ShareGroupStatePartitionMetadataValue(
            [ShareTopicPartitionsInfo(TOPIC_ID, "a", [1])],
            [ShareTopicPartitionsInfo(TOPIC_ID, "a", [0])],
            [ShareTopicInfo(TOPIC_ID, "b")],
        ),
        (
            "00000200000000000000010000000000000002026102000000010002000000000000000100000000000000020261020000000000020000"
            "000000000001000000000000000202620000"
        ),
    ),
]
STATE_RECORDS: list[tuple[Any, str, Any, str]] = [
    (
        ShareSnapshotKey("g", TOPIC_ID, 1),
        "00000001670000000000000001000000000000000200000001",
        ShareSnapshotValue(1, 2, 3, 4, 5, 6, 7, [StateBatch(4, 8, 2, 1)]),
        (
            "00000000000100000002000000030000000000000004000000000000000600000000000000070200000000000000040000000000000008"
            "0200010001000400000005"
        ),
    ),
    (
        ShareUpdateKey("g", TOPIC_ID, 1),
        "00010001670000000000000001000000000000000200000001",
        ShareUpdateValue(1, 3, 4, -1, [StateBatch(4, 8, 2, 1)]),
        "00000000000100000003000000000000000402000000000000000400000000000000080200010000",
    ),
]


@pytest.mark.parametrize(
    ("key", "key_bytes", "value", "value_bytes"), GROUP_RECORDS, ids=lambda part: type(part).__name__
)
def test_records_of_share_groups_have_the_bytes_of_kafka(
    key: Any, key_bytes: str, value: Any, value_bytes: str
) -> None:
    assert SHARE_GROUP_RECORDS.encode_key(key).hex() == key_bytes
    assert SHARE_GROUP_RECORDS.encode_value(value).hex() == value_bytes
    assert SHARE_GROUP_RECORDS.decode_key(bytes.fromhex(key_bytes)) == key
    assert SHARE_GROUP_RECORDS.decode_value(key, bytes.fromhex(value_bytes)) == value


@pytest.mark.parametrize(
    ("key", "key_bytes", "value", "value_bytes"), STATE_RECORDS, ids=lambda part: type(part).__name__
)
def test_records_of_share_partitions_have_the_bytes_of_kafka(
    key: Any, key_bytes: str, value: Any, value_bytes: str
) -> None:
    assert SHARE_STATE_RECORDS.encode_key(key).hex() == key_bytes
    assert SHARE_STATE_RECORDS.encode_value(value).hex() == value_bytes
    assert SHARE_STATE_RECORDS.decode_key(bytes.fromhex(key_bytes)) == key
    assert SHARE_STATE_RECORDS.decode_value(key, bytes.fromhex(value_bytes)) == value


def test_keys_of_other_kinds_are_left_to_others() -> None:
    assert SHARE_GROUP_RECORDS.decode_key(b"\x00\x03\x00\x01g") is None
    assert SHARE_STATE_RECORDS.decode_key(b"\x00\x02") is None


def test_values_of_the_future_are_refused() -> None:
    with pytest.raises(DecodeError, match="version 1"):
        SHARE_GROUP_RECORDS.decode_value(ShareGroupMetadataKey("g"), b"\x00\x01")
    with pytest.raises(DecodeError, match="version 1"):
        SHARE_STATE_RECORDS.decode_value(ShareSnapshotKey("g"), b"\x00\x01")


def test_a_key_that_ends_early_is_undecodable() -> None:
    with pytest.raises(DecodeError):
        SHARE_STATE_RECORDS.decode_key(b"\x00\x00\x00\x05g")
