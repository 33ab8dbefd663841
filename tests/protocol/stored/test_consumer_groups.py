"""The records of groups of the consumer protocol, as Apache Kafka 4.4 writes them into `__consumer_offsets`."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.protocol.schema import decode
from fencepost.protocol.stored.consumer_groups import (
    CONSUMER_GROUP_RECORDS,
    AssignedTopicPartitions,
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
)

TOPIC_ID = bytes.fromhex("3b392d8abb524a358d908e768189b0b8")
REVOKED_ID = bytes.fromhex("cc464e36f4764a3194f610f5ce65650c")
SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\nmig-d0d346\xff\xff\xff\xff\x00\x00\x00\x00"

KEYS: list[tuple[ConsumerGroupKey, str]] = [
    (ConsumerGroupMetadataKey("emp2-850aa3"), "0003000b656d70322d383530616133"),
    (ConsumerGroupPartitionMetadataKey("inv-54ac85"), "0004000a696e762d353461633835"),
    (ConsumerGroupMemberMetadataKey("inv-54ac85", "m2"), "0005000a696e762d35346163383500026d32"),
    (ConsumerGroupTargetAssignmentMetadataKey("inv-54ac85"), "0006000a696e762d353461633835"),
    (ConsumerGroupTargetAssignmentMemberKey("inv-54ac85", "m2"), "0007000a696e762d35346163383500026d32"),
    (ConsumerGroupCurrentMemberAssignmentKey("inv-54ac85", "m2"), "0008000a696e762d35346163383500026d32"),
    (
        ConsumerGroupRegularExpressionKey("regex-169d14", "rx.*-169d14"),
        "0010000c72656765782d313639643134000b72782e2a2d313639643134",
    ),
]
VALUES: list[tuple[Any, str]] = [
    (ConsumerGroupMetadataValue(epoch=9), "00000000000900"),
    (
        ConsumerGroupMemberMetadataValue(
            client_id="raw",
            client_host="/127.0.0.1",
            subscribed_topic_names=["inv-54ac85"],
            subscribed_topic_regex="",
            rebalance_timeout_ms=1,
            classic_member_metadata=None,
        ),
        "00000000047261770b2f3132372e302e302e31020b696e762d35346163383501000000010001000100",
    ),
    (
        ConsumerGroupMemberMetadataValue(
            client_id="raw",
            client_host="/127.0.0.1",
            subscribed_topic_names=["mig-d0d346"],
            subscribed_topic_regex="",
            rebalance_timeout_ms=10_000,
            classic_member_metadata=ClassicMemberMetadata(10_000, [ClassicProtocol("range", SUBSCRIPTION)]),
        ),
        (
            "00000000047261770b2f3132372e302e302e31020b6d69672d6430643334360100002710000100290100002710020672616e67651b"
            "000100000001000a6d69672d643064333436ffffffff000000000000"
        ),
    ),
    (
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=3, assignment_timestamp=1795279701137),
        "000000000003010008000001a1ff024491",
    ),
    (
        ConsumerGroupTargetAssignmentMemberValue([AssignedTopicPartitions(TOPIC_ID, [1])]),
        "0000023b392d8abb524a358d908e768189b0b802000000010000",
    ),
    (ConsumerGroupCurrentMemberAssignmentValue(member_epoch=3, state=2), "0000000000030000000002010100"),
    (
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=4,
            previous_member_epoch=4,
            state=1,
            partitions_pending_revocation=[CurrentTopicPartitions(REVOKED_ID, [0, 1, 2], [4, 4, 4])],
        ),
        (
            "00000000000400000004010102cc464e36f4764a3194f610f5ce65650c0400000000000000010000000201000d04000000040000000400"
            "00000400"
        ),
    ),
    (
        ConsumerGroupRegularExpressionValue(["rx.one-169d14", "rx.two-169d14"], 752, 1795278986757),
        "0000030e72782e6f6e652d3136396431340e72782e74776f2d31363964313400000000000002f0000001a1fef75e0500",
    ),
]


@pytest.mark.parametrize(("key", "recorded"), KEYS, ids=lambda value: type(value).__name__)
def test_keys_are_those_of_kafka(key: ConsumerGroupKey, recorded: str) -> None:
    assert CONSUMER_GROUP_RECORDS.encode_key(key).hex() == recorded
    assert CONSUMER_GROUP_RECORDS.decode_key(bytes.fromhex(recorded)) == key


@pytest.mark.parametrize(("value", "recorded"), VALUES, ids=lambda value: type(value).__name__)
def test_values_are_those_of_kafka(value: Any, recorded: str) -> None:
    assert CONSUMER_GROUP_RECORDS.encode_value(value).hex() == recorded
    assert decode(type(value), bytes.fromhex(recorded), 0, 2) == value
