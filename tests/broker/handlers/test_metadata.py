"""Metadata: which topics are answered, how missing ones come about, and what stands for "not asked for"."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from fencepost.broker.handlers.metadata import metadata_failed
from fencepost.broker.hosting.placement import NodeAddress, SingleNodePlacement
from fencepost.broker.requests.near_reads import NearReads
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tests.support.handler_context import CLUSTER_ID, HOST, NODE_ID, PORT, HandlerBroker, open_broker

NOT_ASKED_FOR = -(2**31)
LATEST = 13


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path, num_partitions=2) as opened:
        await opened.create_topic("orders", 3)
        await opened.create_topic("events", 1)
        yield opened


def metadata(*names: str, create: bool = False) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=create)


async def only_topic(broker: HandlerBroker, request: MetadataRequest, version: int = LATEST) -> MetadataResponseTopic:
    topic: MetadataResponseTopic
    (topic,) = (await broker.call(request, version)).topics
    return topic


async def test_cluster_is_described_in_every_answer(broker: HandlerBroker) -> None:
    response = await broker.call(metadata(), LATEST)
    assert [(node.node_id, node.host, node.port, node.rack) for node in response.brokers] == [
        (NODE_ID, HOST, PORT, None)
    ]
    assert (response.cluster_id, response.controller_id, response.error_code) == (CLUSTER_ID, NODE_ID, 0)


async def test_topic_is_described_with_its_id_and_partitions(broker: HandlerBroker) -> None:
    topic = await only_topic(broker, metadata("orders"))
    assert (topic.error_code, topic.name, topic.topic_id) == (0, "orders", broker.topic_id("orders"))
    assert topic.is_internal is False
    assert [partition.partition_index for partition in topic.partitions] == [0, 1, 2]
    for partition in topic.partitions:
        assert (partition.error_code, partition.leader_id) == (0, NODE_ID)
        assert partition.leader_epoch == broker.log("orders", partition.partition_index).leader_epoch
        assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([NODE_ID], [NODE_ID], [])


async def test_brokers_of_other_racks_that_serve_reads_are_shown_as_replicas(broker: HandlerBroker) -> None:
    class Racks(SingleNodePlacement):
        def other_nodes(self) -> list[NodeAddress]:
            return [NodeAddress(9, "elsewhere", 9092, rack="c"), NodeAddress(8, "elsewhere", 9092, rack="b")]

    placement = Racks(NodeAddress(NODE_ID, "", 9092))
    broker.services.near_reads = NearReads(NODE_ID, "a", placement, cast("Any", None))
    topic = await only_topic(broker, metadata("orders"))
    for partition in topic.partitions:
        assert partition.leader_id == NODE_ID
        assert partition.replica_nodes == partition.isr_nodes == [NODE_ID, 8, 9]
        assert partition.offline_replicas == []


@pytest.mark.parametrize("version", range(14))
async def test_every_version_is_served(broker: HandlerBroker, version: int) -> None:
    request = metadata("orders", create=version < 4)
    assert (await only_topic(broker, request, version)).name == "orders"


async def test_null_means_all_topics(broker: HandlerBroker) -> None:
    response = await broker.call(MetadataRequest(topics=None), LATEST)
    assert [topic.name for topic in response.topics] == ["events", "orders"]


@pytest.mark.parametrize(("version", "names"), [(0, ["events", "orders"]), (1, []), (13, [])])
async def test_empty_means_none_but_in_version_0_all(broker: HandlerBroker, version: int, names: list[str]) -> None:
    response = await broker.call(metadata(create=version < 4), version)
    assert [topic.name for topic in response.topics] == names


async def test_asking_for_all_creates_nothing(broker: HandlerBroker) -> None:
    await broker.call(MetadataRequest(topics=None, allow_auto_topic_creation=True), LATEST)
    assert len(broker.topics.metadata) == 2


async def test_topic_named_twice_is_answered_once(broker: HandlerBroker) -> None:
    assert (await only_topic(broker, metadata("orders", "orders"))).name == "orders"


async def test_internal_topic_is_marked(broker: HandlerBroker) -> None:
    await broker.topics.ensure_internal("__consumer_offsets")
    topic = await only_topic(broker, metadata("__consumer_offsets"))
    assert (topic.error_code, topic.is_internal) == (0, True)


# By topic id


@pytest.mark.parametrize("version", [12, 13])
async def test_topic_is_found_by_its_id(broker: HandlerBroker, version: int) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=broker.topic_id("orders"), name=None)])
    topic = await only_topic(broker, request, version)
    assert (topic.error_code, topic.name) == (0, "orders")


async def test_unknown_id_is_answered_without_a_name(broker: HandlerBroker) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"no such topic id", name=None)])
    topic = await only_topic(broker, request)
    assert (topic.error_code, topic.name, topic.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, b"no such topic id")


async def test_operations_are_not_listed_for_an_unknown_id(broker: HandlerBroker) -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=b"no such topic id", name=None)],
        include_topic_authorized_operations=True,
    )
    topic = await only_topic(broker, request)
    assert topic.topic_authorized_operations == MetadataResponseTopic().topic_authorized_operations


@pytest.mark.parametrize("version", [10, 11])
async def test_asking_by_id_before_version_12_is_refused(broker: HandlerBroker, version: int) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=broker.topic_id("orders"), name=None)])
    topic = await only_topic(broker, request, version)
    assert topic.error_code == ErrorCode.INVALID_REQUEST


# Topics that are missing


async def test_missing_topic_is_created_and_answered_at_once(broker: HandlerBroker) -> None:
    topic = await only_topic(broker, metadata("new", create=True))
    assert (topic.error_code, topic.topic_id) == (0, broker.topic_id("new"))
    assert [partition.leader_id for partition in topic.partitions] == [NODE_ID, NODE_ID]
    assert broker.log("new", 1).log_end_offset == 0


async def test_missing_topic_is_created_once_by_many_requests(broker: HandlerBroker) -> None:
    responses: list[MetadataResponse] = await asyncio.gather(
        *(broker.call(metadata("new", create=True)) for _ in range(5))
    )
    assert {(topic.error_code, topic.topic_id) for response in responses for topic in response.topics} == {
        (0, broker.topic_id("new"))
    }


async def test_missing_internal_topic_is_created_as_the_broker_needs_it(broker: HandlerBroker) -> None:
    topic = await only_topic(broker, metadata("__consumer_offsets", create=True))
    assert (topic.error_code, topic.is_internal, len(topic.partitions)) == (
        0,
        True,
        broker.services.settings.offsets_topic_num_partitions,
    )


async def test_missing_topic_is_not_created_against_the_clients_will(broker: HandlerBroker) -> None:
    topic = await only_topic(broker, metadata("new"))
    assert (topic.error_code, topic.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    assert broker.topics.metadata.get("new") is None


async def test_missing_topic_is_not_created_against_the_brokers_will(tmp_path: Path) -> None:
    async with open_broker(tmp_path, auto_create_topics_enable=False) as broker:
        topic = await only_topic(broker, metadata("new", create=True))
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_one_request_creates_a_bounded_number_of_topics_and_the_next_ones_the_rest(
    broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.broker.handlers.metadata.MAX_CREATED_PER_REQUEST", 3)
    names = [f"flood-{number}" for number in range(5)]
    created_counts = []
    for _ in range(2):
        response = await broker.call(metadata(*names, create=True), LATEST)
        errors = [topic.error_code for topic in response.topics]
        assert set(errors) <= {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        created_counts.append(errors.count(ErrorCode.NONE))
    assert created_counts == [3, 5]


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "ö", "x" * 250])
async def test_an_invalid_name_has_another_error_than_an_unknown_one(
    broker: HandlerBroker, name: str, create: bool
) -> None:
    topic = await only_topic(broker, metadata(name, create=create))
    assert (topic.error_code, topic.name) == (ErrorCode.INVALID_TOPIC_EXCEPTION, name)


async def test_missing_topics_do_not_hold_up_the_others(broker: HandlerBroker) -> None:
    response = await broker.call(metadata("orders", "a/b", "new", create=True))
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("orders", 0),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("new", 0),
    ]


# Authorized operations


async def test_operations_are_shown_only_on_request(broker: HandlerBroker) -> None:
    request = metadata("orders")
    assert (await only_topic(broker, request)).topic_authorized_operations == NOT_ASKED_FOR
    request.include_topic_authorized_operations = True
    request.include_cluster_authorized_operations = True
    response = await broker.call(request, 10)
    # What Apache Kafka 4.4 answers without an authorizer.
    assert response.topics[0].topic_authorized_operations == 3576
    assert response.cluster_authorized_operations == 8096


def test_failed_reply_holds_every_topic() -> None:
    response = metadata_failed(metadata("a", "b"), ErrorCode.UNKNOWN_SERVER_ERROR, LATEST)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("a", -1), ("b", -1)]
    assert response.error_code == -1
