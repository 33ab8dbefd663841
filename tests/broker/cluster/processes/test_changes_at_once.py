"""Topics that two nodes create, change and delete within moments: each change is decided on what is there by then.

The nodes do not poll: what one has changed, the other knows only if it looks.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3

import pytest

from fencepost.broker.hosting import store_poll as store_poll
from fencepost.broker.metadata import shared_sqlite
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.metadata.shared_sqlite import SharedSqliteMetadataStore
from fencepost.broker.metadata.sqlite import FILE_NAME
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.broker.cluster.processes.members import Members
from tests.support.longest_step import steps_until_done

TOPIC = 2  # of configs
NONE, EXISTS, INVALID = ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.fixture
async def two(members: Members, monkeypatch: pytest.MonkeyPatch) -> Members:
    monkeypatch.setattr(shared_sqlite, "POLL_INTERVAL_S", 60.0)
    monkeypatch.setattr(store_poll, "LONGEST_WAIT_S", 60.0)  # a busy machine may need longer than a request waits
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


async def test_a_deletion_decides_by_what_the_store_has_where_a_look_was_overtaken(
    two: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await create(two, 1, "orders") == NONE
    topics = two.nodes[2].services.topics
    await topics.catch_up()
    known = topics.metadata.get("orders")
    assert known is not None

    async def look_before() -> None:
        """The other node makes its changes between this look and the deletion."""

    async def create_again() -> None:
        assert await delete(two, 1, "orders") == NONE
        await two.members[2]._store.follow()  # it closes the logs that it led, and does not hear of what comes next
        assert await create(two, 1, "orders") == NONE

    look = topics.catch_up
    monkeypatch.setattr(topics, "catch_up", look_before)
    await create_again()
    by_id = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=known.topic_id)], timeout_ms=5_000)
    (answer,) = (await two.ask(2, by_id, 6)).responses
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert two.nodes[1].services.topics.metadata.get("orders") is not None
    assert topics.metadata.get("orders") is not known, "the refusal was decided anew"
    await create_again()
    monkeypatch.setattr(topics, "catch_up", look)
    assert await delete(two, 2, "orders") == NONE, "by its name, any topic is meant"
    assert await delete(two, 2, "orders") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


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


async def test_a_store_that_another_process_has_locked_holds_up_only_what_changes_it(
    two: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked meanwhile is answered from what is known, no later than StorePoll waits; no step is long."""
    is_creating = asyncio.Event()
    create_topic = SharedSqliteMetadataStore.create_topic

    async def observed(store: SharedSqliteMetadataStore, topic: TopicMetadata) -> bool:
        is_creating.set()  # it takes the store's thread in this step
        return await create_topic(store, topic)

    assert await create(two, 1, "orders", 3) == NONE
    assert await topics(two) == {"orders": 3}
    monkeypatch.setattr(SharedSqliteMetadataStore, "create_topic", observed)
    monkeypatch.setattr(store_poll, "LONGEST_WAIT_S", 0.2)
    loop = asyncio.get_running_loop()
    with contextlib.closing(sqlite3.connect(f"{two.directory}/{FILE_NAME}", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        creating = asyncio.create_task(create(two, 2, "returns"))
        await is_creating.wait()
        asked = [asyncio.create_task(two.ask(2, MetadataRequest(topics=None), 9)) for _ in range(20)]
        began_s = loop.time()
        known = two.ask(2, MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 9)
        assert [topic.name for topic in (await known).topics] == ["orders"]
        work = await steps_until_done(asyncio.gather(*asked))
        assert [[topic.name for topic in one.result().topics] for one in asked] == [["orders"]] * 20
        assert loop.time() - began_s >= 0.2, "none of them waited for the store, which was not asked then"
        assert work.longest_s < 0.02
        assert not creating.done()
        other.execute("COMMIT")
    assert await creating == NONE
    assert await topics(two) == {"orders": 3, "returns": 2}
