"""Metadata as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.protocol.messages.golden import TOPIC_ID, assert_bytes


def test_all_topics_are_asked_for_by_null() -> None:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    assert_bytes(request, 4, "ff ff ff ff 00")


def test_a_topic_may_be_asked_for_by_id_from_version_10_on() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=TOPIC_ID, name=None)])
    assert_bytes(request, 12, "02 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 00 00 01 00 00")


def test_a_partition_comes_with_leader_and_epoch() -> None:
    reply = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="h", port=9092)],
        cluster_id="c",
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                name="t",
                partitions=[
                    MetadataResponsePartition(
                        partition_index=0, leader_id=1, leader_epoch=5, replica_nodes=[1], isr_nodes=[1]
                    )
                ],
            )
        ],
    )
    assert_bytes(
        reply,
        7,
        "00 00 00 00 00 00 00 01 00 00 00 01 00 01 68 00 00 23 84 ff ff 00 01 63 00 00 00 01 00 00 00 01",
        "00 00 00 01 74 00 00 00 00 01 00 00 00 00 00 00 00 00 00 01 00 00 00 05 00 00 00 01 00 00 00 01",
        "00 00 00 01 00 00 00 01 00 00 00 00",
    )
