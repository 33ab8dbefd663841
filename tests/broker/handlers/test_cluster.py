"""DescribeCluster, and DescribeTopicPartitions page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import (
    Cursor,
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tests.support.handler_context import CLUSTER_ID, HOST, NODE_ID, PORT, HandlerBroker, open_broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path) as opened:
        for name, partition_count in (("a", 2), ("b", 3), ("c", 1)):
            await opened.create_topic(name, partition_count)
        yield opened


# DescribeCluster


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_this_node_is_the_cluster(broker: HandlerBroker, version: int) -> None:
    response = await broker.call(DescribeClusterRequest(), version)
    assert (response.error_code, response.cluster_id, response.controller_id) == (0, CLUSTER_ID, NODE_ID)
    assert [(node.broker_id, node.host, node.port, node.is_fenced) for node in response.brokers] == [
        (NODE_ID, HOST, PORT, False)
    ]
    assert response.cluster_authorized_operations == -(2**31)


@pytest.mark.parametrize(
    ("endpoint_type", "error"),
    [
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
async def test_only_brokers_are_described(broker: HandlerBroker, endpoint_type: int, error: ErrorCode) -> None:
    response = await broker.call(DescribeClusterRequest(endpoint_type=endpoint_type))
    assert (response.error_code, response.brokers) == (error, [])
    assert response.error_message


# DescribeTopicPartitions


def describe(*names: str, limit: int = 2000, cursor: Cursor | None = None) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
    )


def page(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(topic.name, [partition.partition_index for partition in topic.partitions]) for topic in response.topics]


async def test_topics_are_answered_by_name_and_once(broker: HandlerBroker) -> None:
    response = await broker.call(describe("c", "a", "c"))
    assert page(response) == [("a", [0, 1]), ("c", [0])]
    assert response.next_cursor is None
    partition = response.topics[0].partitions[0]
    assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (NODE_ID, [NODE_ID], [NODE_ID])
    assert response.topics[0].topic_id == broker.topic_id("a")


async def test_no_names_mean_all_topics(broker: HandlerBroker) -> None:
    assert page(await broker.call(describe())) == [("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 6, 100])
async def test_pages_hold_every_partition_once(broker: HandlerBroker, limit: int) -> None:
    cursor: Cursor | None = None
    seen: list[tuple[str | None, int]] = []
    for _ in range(20):
        response = await broker.call(describe(limit=limit, cursor=cursor))
        found = [(name, partition) for name, partitions in page(response) for partition in partitions]
        assert len(found) <= limit
        seen += found
        cursor = response.next_cursor
        if cursor is None:
            break
    assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]


async def test_full_page_points_to_the_next_topic(broker: HandlerBroker) -> None:
    response = await broker.call(describe(limit=2))
    assert (response.next_cursor.topic_name, response.next_cursor.partition_index) == ("b", 0)


async def test_cursor_in_a_topic_that_is_gone_goes_on_with_the_next(broker: HandlerBroker) -> None:
    cursor = Cursor(topic_name="aa", partition_index=1)
    assert page(await broker.call(describe(cursor=cursor))) == [("b", [0, 1, 2]), ("c", [0])]


async def test_unknown_and_impossible_topics_do_not_hold_up_the_others(broker: HandlerBroker) -> None:
    response = await broker.call(describe("a", "nowhere", "a/b"))
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("a", 0),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


async def test_cursor_before_the_first_partition_is_refused(broker: HandlerBroker) -> None:
    response = await broker.call(describe("a", cursor=Cursor(topic_name="a", partition_index=-1)))
    assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_REQUEST]
