"""Requests for the offsets of share groups as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.share_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from tests.protocol.messages.golden import TOPIC_ID, assert_bytes


def test_all_topics_of_a_group_are_asked_for_by_null() -> None:
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)]
    )
    assert_bytes(request, 0, "02 02 67 00 00 00")


def test_lag_comes_from_version_1_on() -> None:
    reply = DescribeShareGroupOffsetsResponse(
        groups=[
            DescribeShareGroupOffsetsResponseGroup(
                group_id="g",
                topics=[
                    DescribeShareGroupOffsetsResponseTopic(
                        topic_name="t",
                        topic_id=TOPIC_ID,
                        partitions=[
                            DescribeShareGroupOffsetsResponsePartition(
                                partition_index=0, start_offset=40, leader_epoch=1, lag=2
                            )
                        ],
                    )
                ],
            )
        ]
    )
    assert_bytes(
        reply,
        1,
        "00 00 00 00 02 02 67 02 02 74 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 02 00 00 00 00 00",
        "00 00 00 00 00 00 28 00 00 00 01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 00 00 00",
    )


def test_offsets_are_set_by_topic() -> None:
    request = AlterShareGroupOffsetsRequest(
        group_id="g",
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name="t", partitions=[AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=7)]
            )
        ],
    )
    assert_bytes(request, 0, "02 67 02 02 74 02 00 00 00 00 00 00 00 00 00 00 00 07 00 00 00")
