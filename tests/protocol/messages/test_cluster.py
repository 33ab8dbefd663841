"""DescribeCluster and DescribeTopicPartitions as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.cluster import (
    Cursor,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tests.protocol.messages.golden import assert_bytes


def test_nodes_are_described_with_racks() -> None:
    reply = DescribeClusterResponse(
        cluster_id="c", controller_id=1, brokers=[DescribeClusterBroker(broker_id=1, host="h", port=9092, rack="r")]
    )
    assert_bytes(
        reply,
        1,
        "00 00 00 00 00 00 00 01 02 63 00 00 00 01 02 00 00 00 01 02 68 00 00 23 84 02 72 00 80 00 00 00",
        "00",
    )


def test_fenced_nodes_are_asked_for_from_version_2_on() -> None:
    request = DescribeClusterRequest(endpoint_type=1, include_fenced_brokers=True)
    assert_bytes(request, 2, "00 01 01 00")


def test_a_cursor_says_where_to_go_on() -> None:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="t")], response_partition_limit=10, cursor=Cursor(topic_name="t", partition_index=7)
    )
    assert_bytes(request, 0, "02 02 74 00 00 00 00 0a 01 02 74 00 00 00 07 00 00")
