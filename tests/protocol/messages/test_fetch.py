"""Fetch as bytes."""

from __future__ import annotations

from fencepost.protocol.leaders import LeaderIdAndEpoch, NodeEndpoint
from fencepost.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tests.protocol.messages.golden import TOPIC_ID, assert_bytes


def test_topics_have_names_until_version_12() -> None:
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        session_id=7,
        session_epoch=1,
        topics=[
            FetchTopic(
                topic="t",
                partitions=[
                    FetchPartition(partition=3, current_leader_epoch=2, fetch_offset=42, partition_max_bytes=1024)
                ],
            )
        ],
    )
    assert_bytes(
        request,
        12,
        "ff ff ff ff 00 00 01 f4 00 00 00 01 7f ff ff ff 00 00 00 00 07 00 00 00 01 02 02 74 02 00 00 00",
        "03 00 00 00 02 00 00 00 00 00 00 00 2a ff ff ff ff ff ff ff ff ff ff ff ff 00 00 04 00 00 00 01",
        "01 00",
    )


def test_topics_have_ids_from_version_13_on() -> None:
    request = FetchRequest(
        isolation_level=1,
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[FetchPartition(fetch_offset=1)])],
        rack_id="r",
    )
    assert_bytes(
        request,
        13,
        "ff ff ff ff 00 00 00 00 00 00 00 00 7f ff ff ff 01 00 00 00 00 ff ff ff ff 02 00 01 02 03 04 05",
        "06 07 08 09 0a 0b 0c 0d 0e 0f 02 00 00 00 00 ff ff ff ff 00 00 00 00 00 00 00 01 ff ff ff ff ff",
        "ff ff ff ff ff ff ff 00 00 00 00 00 00 01 02 72 00",
    )


def test_aborted_transactions_come_with_the_records() -> None:
    reply = FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic="t",
                partitions=[
                    PartitionData(
                        high_watermark=9,
                        last_stable_offset=8,
                        aborted_transactions=[AbortedTransaction(producer_id=5, first_offset=2)],
                        records=b"rec",
                    )
                ],
            )
        ]
    )
    assert_bytes(
        reply,
        4,
        "00 00 00 00 00 00 00 01 00 01 74 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 00 00 09 00 00 00",
        "00 00 00 00 08 00 00 00 01 00 00 00 00 00 00 00 05 00 00 00 00 00 00 00 02 00 00 00 03 72 65 63",
    )


def test_the_present_leader_is_a_tagged_field() -> None:
    reply = FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic_id=TOPIC_ID,
                partitions=[
                    PartitionData(
                        error_code=6, current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=4), records=b""
                    )
                ],
            )
        ],
        node_endpoints=[NodeEndpoint(node_id=2, host="h", port=9092)],
    )
    assert_bytes(
        reply,
        16,
        "00 00 00 00 00 00 00 00 00 00 02 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 02 00 00 00 00",
        "00 06 00 00 00 00 00 00 00 00 ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff 01 ff ff ff ff 01",
        "01 01 09 00 00 00 02 00 00 00 04 00 00 01 00 0d 02 00 00 00 02 02 68 00 00 23 84 00 00",
    )
