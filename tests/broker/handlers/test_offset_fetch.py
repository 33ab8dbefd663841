"""OffsetFetch, as each version says it on the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.support.group_broker import GroupBroker
from tests.support.offset_requests import NO_OFFSET, UNKNOWN_ID, commit_request, fetch_request, fetched


@pytest.fixture
async def broker() -> AsyncIterator[GroupBroker]:
    async with GroupBroker() as made:
        yield made


@pytest.mark.parametrize("version", range(1, 11))
async def test_offsets_are_fetched_in_every_version(broker: GroupBroker, version: int) -> None:
    await broker.call(commit_request(broker, 9), 9)
    response = await broker.call(fetch_request(broker, version), version)
    topic = broker.topic_id("orders") if version >= 10 else "orders"
    assert fetched(response, version) == {
        (topic, 0): (5, 3 if version >= 5 else -1, "note", ErrorCode.NONE),
        (topic, 1): (*NO_OFFSET, ErrorCode.NONE),
    }


@pytest.mark.parametrize("version", range(2, 11))
async def test_null_topics_are_all_topics(broker: GroupBroker, version: int) -> None:
    await broker.call(commit_request(broker, 9, ("payments", 0), ("orders", 1), ("orders", 0)), 9)
    response = await broker.call(fetch_request(broker, version, all_topics=True), version)
    assert [name if version < 10 else name[:6] for name, _ in fetched(response, version)] == (  # type: ignore[index]
        ["orders", "orders", "payments"] if version < 10 else [b"orders", b"orders", b"paymen"]
    )
    assert [partition for _, partition in fetched(response, version)] == [0, 1, 0]


async def test_a_fetch_by_an_id_that_no_topic_has_is_refused_for_that_topic(broker: GroupBroker) -> None:
    await broker.call(commit_request(broker, 9), 9)
    request = fetch_request(broker, 10)
    topics = request.groups[0].topics
    assert topics is not None
    topics.insert(0, OffsetFetchRequestTopics(topic_id=UNKNOWN_ID, partition_indexes=[4]))
    response = await broker.call(request, 10)
    assert fetched(response, 10)[UNKNOWN_ID, 4] == (*NO_OFFSET, ErrorCode.UNKNOWN_TOPIC_ID)
    assert fetched(response, 10)[broker.topic_id("orders"), 0][0] == 5


async def test_many_groups_are_fetched_in_one_request(broker: GroupBroker) -> None:
    for group_id in ("a", "b"):
        commit = commit_request(broker, 9)
        commit.group_id = group_id
        await broker.call(commit, 9)
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in ("a", "b", "unknown")]
    )
    response = await broker.call(request, 9)
    assert [(group.group_id, group.error_code, len(group.topics)) for group in response.groups] == [
        ("a", ErrorCode.NONE, 1),
        ("b", ErrorCode.NONE, 1),
        ("unknown", ErrorCode.NONE, 0),
    ]


async def test_missing_metadata_comes_back_as_empty(broker: GroupBroker) -> None:
    request = commit_request(broker, 5)
    request.topics[0].partitions[0].committed_metadata = None
    await broker.call(request, 5)
    assert fetched(await broker.call(fetch_request(broker, 5), 5), 5)["orders", 0] == (5, -1, "", ErrorCode.NONE)


@pytest.mark.parametrize("version", range(1, 11))
async def test_a_fetch_that_fails_as_a_whole_says_so_where_its_version_does(broker: GroupBroker, version: int) -> None:
    response = broker.failed(fetch_request(broker, version), ErrorCode.NOT_COORDINATOR, version)
    if version >= 8:
        assert [group.error_code for group in response.groups] == [ErrorCode.NOT_COORDINATOR]
    elif version >= 2:
        assert (response.error_code, response.topics) == (ErrorCode.NOT_COORDINATOR, [])
    else:
        assert set(fetched(response, version).values()) == {(*NO_OFFSET, ErrorCode.NOT_COORDINATOR)}
