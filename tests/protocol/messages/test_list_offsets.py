"""ListOffsets as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from tests.protocol.messages.golden import assert_bytes


def test_the_latest_offset_has_a_timestamp_of_its_own() -> None:
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])],
    )
    assert_bytes(request, 1, "ff ff ff ff 00 00 00 01 00 01 74 00 00 00 01 00 00 00 00 ff ff ff ff ff ff ff ff")


def test_the_isolation_level_and_leader_epoch_are_later_fields() -> None:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1,
        topics=[
            ListOffsetsTopic(
                name="t", partitions=[ListOffsetsPartition(partition_index=0, current_leader_epoch=4, timestamp=-2)]
            )
        ],
        timeout_ms=500,
    )
    assert_bytes(
        request, 10, "ff ff ff ff 01 02 02 74 02 00 00 00 00 00 00 00 04 ff ff ff ff ff ff ff fe 00 00 00 00 01 f4 00"
    )


def test_an_offset_comes_with_its_leader_epoch() -> None:
    reply = ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name="t",
                partitions=[ListOffsetsPartitionResponse(partition_index=0, timestamp=1000, offset=42, leader_epoch=1)],
            )
        ]
    )
    assert_bytes(
        reply,
        6,
        "00 00 00 00 02 02 74 02 00 00 00 00 00 00 00 00 00 00 00 00 03 e8 00 00 00 00 00 00 00 2a 00 00",
        "00 01 00 00 00",
    )
