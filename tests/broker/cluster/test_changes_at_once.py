"""Topics that two nodes create, change and delete within moments: each change is decided on what is there by then.

The nodes do not poll: what one has changed, the other knows only if it looks.
"""

from __future__ import annotations

import asyncio

import pytest

from fencepost.broker.metadata import shared_sqlite
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from fencepost.protocol.messages.metadata import MetadataRequest
from fencepost.protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.broker.cluster.members import Members

TOPIC = 2  # of configs
NONE, EXISTS, INVALID = ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.fixture
async def two(members: Members, monkeypatch: pytest.MonkeyPatch) -> Members:
    monkeypatch.setattr(shared_sqlite, "POLL_INTERVAL_S", 60.0)
    await members.start(1)
    await members.start(2)
    await members.members[1].placement.refresh()  # it knows of node 2
    return members


async def create(members: Members, node_id: int, name: str, partitions: int = 2, *, is_asked: bool = False) -> int:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)],
        timeout_ms=5_000,
        validate_only=is_asked,
    )
    (answer,) = (await members.ask(node_id, request, 7)).topics
    return int(answer.error_code)


async def delete(members: Members, node_id: int, name: str) -> int:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5_000)
    (answer,) = (await members.ask(node_id, request, 6)).responses
    return int(answer.error_code)


async def grow(members: Members, node_id: int, name: str, count: int) -> int:
    wanted = CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=5_000)
    (answer,) = (await members.ask(node_id, request, 3)).results
    return int(answer.error_code)


async def configure(members: Members, node_id: int, topic: str, name: str, value: str) -> int:
    config = IncrementalAlterableConfig(name=name, config_operation=0, value=value)
    request = IncrementalAlterConfigsRequest(
        resources=[IncrementalAlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=[config])]
    )
    (answer,) = (await members.ask(node_id, request, 1)).responses
    return int(answer.error_code)


async def topics(members: Members) -> dict[str, int]:
    """The topics and their numbers of partitions, on which all nodes agree."""
    answers = [await members.ask(node_id, MetadataRequest(topics=None), 9) for node_id in members.nodes]
    one, other = ({topic.name: len(topic.partitions) for topic in answer.topics} for answer in answers)
    assert one == other
    return one


@pytest.mark.parametrize("second", ["a_b", "a.b"])
async def test_of_two_names_that_collide_one_is_created(two: Members, second: str) -> None:
    for attempt in range(5):
        first = f"{attempt}-a.b"
        answers = await asyncio.gather(create(two, 1, first), create(two, 2, f"{attempt}-{second}"))
        assert sorted(answers) == sorted([NONE, EXISTS if first.endswith(second) else INVALID])
    assert len(await topics(two)) == 5


async def test_a_name_that_collides_with_what_another_node_has_created_is_refused(two: Members) -> None:
    assert await create(two, 1, "a.b") == NONE
    assert await create(two, 2, "a_b", is_asked=True) == INVALID
    assert await create(two, 2, "a_b") == INVALID
    assert await create(two, 2, "a.b") == EXISTS
    assert await delete(two, 2, "a.b") == NONE
    assert await create(two, 1, "a_b") == NONE
    assert await topics(two) == {"a_b": 2}


async def test_a_topic_is_deleted_and_created_anew_through_any_node(two: Members) -> None:
    for node_id in (1, 2, 1):
        other = 3 - node_id
        assert await create(two, node_id, "orders") == NONE
        assert await create(two, other, "orders") == EXISTS
        assert await delete(two, other, "orders") == NONE
        assert await delete(two, node_id, "orders") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await create(two, 2, "orders", 3) == NONE
    assert await topics(two) == {"orders": 3}


async def test_a_topic_that_two_nodes_grow_never_shrinks(two: Members) -> None:
    for attempt in range(5):
        name = f"orders-{attempt}"
        assert await create(two, 1, name) == NONE
        more, fewer = await asyncio.gather(grow(two, 1, name, 6), grow(two, 2, name, 4))
        assert more == NONE
        assert fewer in (NONE, ErrorCode.INVALID_PARTITIONS)
        assert (await topics(two))[name] == 6


async def test_configs_that_two_nodes_set_are_both_in_force(two: Members) -> None:
    wanted = {"retention.ms": "1000000", "segment.bytes": "2000000"}
    for attempt in range(5):
        name = f"orders-{attempt}"
        assert await create(two, 1, name) == NONE
        answers = await asyncio.gather(
            *(configure(two, node_id, name, *each) for node_id, each in enumerate(wanted.items(), 1))
        )
        assert answers == [NONE, NONE]
        for node_id in two.nodes:
            await two.nodes[node_id].services.topics.catch_up()
            topic = two.nodes[node_id].services.topics.metadata.get(name)
            assert topic is not None
            assert topic.configs == wanted
