"""OffsetForLeaderEpoch as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.leader_epochs import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from tests.protocol.messages.golden import assert_bytes


def test_a_consumer_names_the_epoch_that_it_has_read() -> None:
    request = OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            OffsetForLeaderTopic(
                topic="t", partitions=[OffsetForLeaderPartition(partition=0, current_leader_epoch=3, leader_epoch=2)]
            )
        ],
    )
    assert_bytes(request, 4, "ff ff ff ff 02 02 74 02 00 00 00 00 00 00 00 03 00 00 00 02 00 00 00")


def test_the_reply_has_the_end_of_that_epoch() -> None:
    reply = OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic="t", partitions=[EpochEndOffset(partition=0, leader_epoch=2, end_offset=42)]
            )
        ]
    )
    assert_bytes(
        reply,
        2,
        "00 00 00 00 00 00 00 01 00 01 74 00 00 00 01 00 00 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00",
        "2a",
    )
