"""OffsetDelete: what is deleted, and what is answered for topics and groups that do not exist."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.support.group_broker import GroupBroker
from tests.support.offset_requests import commit_request, fetch_request, fetched


@pytest.fixture
async def broker() -> AsyncIterator[GroupBroker]:
    async with GroupBroker() as made:
        yield made


def delete_request(*partitions: tuple[str, int], group_id: str = "g") -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=partition)])
            for name, partition in partitions
        ],
    )


async def test_offsets_are_deleted_partition_by_partition(broker: GroupBroker) -> None:
    await broker.call(commit_request(broker, 9, ("orders", 0), ("payments", 0)), 9)
    response = await broker.call(delete_request(("orders", 0), ("orders", 9), ("nothing", 0)))
    assert response.error_code == ErrorCode.NONE
    found = {(topic.name, one.partition_index): one.error_code for topic in response.topics for one in topic.partitions}
    assert found == {
        ("orders", 0): ErrorCode.NONE,
        ("orders", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nothing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    left = fetched(await broker.call(fetch_request(broker, 9, all_topics=True), 9), 9)
    assert set(left) == {("payments", 0)}


async def test_partitions_that_do_not_exist_are_answered_first_when_offsets_are_deleted(broker: GroupBroker) -> None:
    await broker.call(commit_request(broker, 9, ("orders", 0)), 9)
    partitions = [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(9)]
    topics = [OffsetDeleteRequestTopic("payments", partitions[:1]), OffsetDeleteRequestTopic("orders", partitions)]
    response = await broker.call(OffsetDeleteRequest("g", topics))
    assert [(topic.name, [one.partition_index for one in topic.partitions]) for topic in response.topics] == [
        ("orders", [9, 0]),
        ("payments", [0]),
    ]


async def test_of_topics_without_partitions_only_unknown_ones_are_answered(broker: GroupBroker) -> None:
    await broker.call(commit_request(broker, 9, ("orders", 0)), 9)
    topics = [OffsetDeleteRequestTopic("orders", []), OffsetDeleteRequestTopic("nothing", [])]
    response = await broker.call(OffsetDeleteRequest("g", topics))
    assert [(topic.name, topic.partitions) for topic in response.topics] == [("nothing", [])]


async def test_offsets_of_an_unknown_group_cannot_be_deleted(broker: GroupBroker) -> None:
    response = await broker.call(delete_request(("orders", 0), group_id="unknown"))
    assert (response.error_code, response.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
