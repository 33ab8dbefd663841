"""Replies about many partitions are made and written a part at a time, and are byte by byte what they would be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.handlers import (
    cluster,
    delete_records,
    leader_epochs,
    list_offsets,
    metadata,
    producers,
    scram_credentials,
)
from fencepost.broker.kernel.sliced_work import run_to_end
from fencepost.broker.requests import api
from fencepost.broker.requests.api import SlicedResponse
from fencepost.protocol.framing import response_frame, response_frame_in_slices
from fencepost.protocol.messages.cluster import DescribeTopicPartitionsRequest
from fencepost.protocol.messages.cluster import TopicRequest as TopicOfPage
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from fencepost.protocol.messages.leader_epochs import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from fencepost.protocol.messages.producers import DescribeProducersRequest, TopicRequest
from fencepost.protocol.messages.scram_credentials import DescribeUserScramCredentialsRequest, UserName
from fencepost.protocol.primitives import EncodeError
from tests.support.handler_context import NOW_MS, HandlerBroker, batch, finished, open_broker
from tests.support.longest_step import steps_until_done

ALL = MetadataRequest(topics=None)
SOME = MetadataRequest(
    topics=[MetadataRequestTopic(name="b"), MetadataRequestTopic(name="none")], allow_auto_topic_creation=False
)
NODE_ID = 7


def many(count: int) -> MetadataResponse:
    partitions = [MetadataResponsePartition(partition_index=index, replica_nodes=[1]) for index in range(count)]
    return MetadataResponse(topics=[MetadataResponseTopic(name="one", partitions=partitions)])


@pytest.mark.parametrize("version", range(14))
def test_what_is_written_in_steps_is_the_same(version: int) -> None:
    response = many(30)
    assert run_to_end(response_frame_in_slices(7, response, version)) == response_frame(7, response, version)


def test_each_step_writes_one_struct() -> None:
    assert sum(1 for _ in response_frame_in_slices(7, many(30), 9)) > 30


def test_a_value_that_cannot_be_written_is_named() -> None:
    response = many(3)
    response.topics[0].partitions[2].leader_id = 2**40
    with pytest.raises(EncodeError, match="leader_id"):
        run_to_end(response_frame_in_slices(7, response, 9))


@asynccontextmanager
async def open_with_topics(directory: Path) -> AsyncIterator[HandlerBroker]:
    """A broker with a small topic and a larger one."""
    async with open_broker(directory) as broker:
        await broker.create_topic("a", 3)
        await broker.create_topic("b", 60)
        yield broker


async def answered(broker: HandlerBroker, request: Any) -> Any:
    context = broker.context(9)
    return await finished(metadata.handle_metadata(context, request))


@pytest.mark.parametrize("request_", [ALL, SOME], ids=["all", "some"])
async def test_a_large_description_equals_a_small_one(
    request_: MetadataRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_with_topics(tmp_path) as broker:
        at_once = await answered(broker, request_)
        monkeypatch.setattr(metadata, "FEWEST_IN_SLICES", 1)
        in_slices = await answered(broker, request_)
        assert isinstance(in_slices, SlicedResponse)
        assert in_slices.response == at_once


@pytest.mark.parametrize("request_", [ALL, SOME], ids=["all", "some"])
async def test_a_topic_that_is_deleted_while_it_is_described_is_not_there(
    request_: MetadataRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_with_topics(tmp_path) as broker:
        monkeypatch.setattr(metadata, "FEWEST_IN_SLICES", 1)
        monkeypatch.setattr(api, "SLICE_S", 0.0)
        describing = asyncio.ensure_future(answered(broker, request_))
        deleting = asyncio.ensure_future(broker.topics.delete("b"))
        in_slices, _ = await asyncio.gather(describing, deleting)
        for topic in in_slices.response.topics:
            assert topic.error_code or all(partition.leader_id == NODE_ID for partition in topic.partitions)
        monkeypatch.setattr(metadata, "FEWEST_IN_SLICES", 0)
        after = await answered(broker, request_)
        assert [topic.name for topic in after.response.topics if not topic.error_code] == (
            ["a"] if request_ is ALL else []
        )


async def test_many_offsets_are_looked_up_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1, 2, 2, 9)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="a", partitions=partitions)])
    async with open_broker(tmp_path) as broker:
        await broker.create_topic("a", 3)
        context = broker.context(7)
        at_once = list_offsets.handle_list_offsets(context, request)
        monkeypatch.setattr(list_offsets, "FEWEST_IN_SLICES", 4)
        in_slices = await finished(list_offsets.handle_list_offsets(context, request))
        assert isinstance(in_slices, SlicedResponse)
        assert in_slices.response == at_once


async def test_records_of_many_topics_are_deleted_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delete_records, "SLICE_S", 0.0)
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(name=f"none-{number}", partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])
            for number in range(20)
        ]
    )
    async with open_broker(tmp_path) as broker:
        context = broker.context(2)
        deleting = asyncio.ensure_future(finished(delete_records.handle_delete_records(context, request)))
        steps = await steps_until_done(deleting)
        assert steps.turns_count > 20
        assert len((await deleting).topics) == 20


async def test_many_producers_are_described_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = DescribeProducersRequest(topics=[TopicRequest(name="a", partition_indexes=[0, 1, 2])])
    async with open_broker(tmp_path) as broker:
        await broker.create_topic("a", 3)
        for partition in range(3):
            broker.log("a", partition).append(
                memoryview(batch(b"v", producer_id=partition, producer_epoch=0, base_sequence=0)), now_ms=NOW_MS
            )
        context = broker.context(0)
        at_once = await finished(producers.handle_describe_producers(context, request))
        monkeypatch.setattr(producers, "LISTED_PER_SLICE", 3)
        monkeypatch.setattr(producers, "SLICE_S", 0.0)
        describing = asyncio.ensure_future(finished(producers.handle_describe_producers(context, request)))
        steps = await steps_until_done(describing)
        assert steps.turns_count > 3
        in_slices = await describing
        assert isinstance(in_slices, SlicedResponse)
        assert in_slices.response == at_once


async def test_many_users_and_leader_epochs_are_described_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = [UserName(f"user-{number}") for number in range(api.FEWEST_WRITTEN_IN_SLICES)]
    partitions = [
        OffsetForLeaderPartition(partition=number % 4, leader_epoch=0) for number in range(api.FEWEST_WRITTEN_IN_SLICES)
    ]
    requests: list[tuple[Any, Any]] = [
        (scram_credentials, DescribeUserScramCredentialsRequest(users=users)),
        (leader_epochs, OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="a", partitions=partitions)])),
    ]
    async with open_broker(tmp_path) as broker:
        await broker.create_topic("a", 3)
        for module, request in requests:
            handler = api.APIS[request.api_key].handler
            context = broker.context(0)
            with monkeypatch.context() as patched:
                patched.setattr(api, "SLICE_S", 0.0)
                describing = asyncio.ensure_future(finished(handler(context, request)))
                steps = await steps_until_done(describing)
                assert steps.turns_count > api.FEWEST_WRITTEN_IN_SLICES
                in_slices = await describing
                assert isinstance(in_slices, SlicedResponse)
                patched.setattr(module, "FEWEST_WRITTEN_IN_SLICES", 10 * api.FEWEST_WRITTEN_IN_SLICES)
                assert in_slices.response == handler(context, request)


async def test_many_partitions_of_a_page_are_described_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = DescribeTopicPartitionsRequest(topics=[TopicOfPage("b"), TopicOfPage("none")])
    async with open_with_topics(tmp_path) as broker:
        context = broker.context(0)
        at_once = cluster.handle_describe_topic_partitions(context, request)
        monkeypatch.setattr(cluster, "FEWEST_WRITTEN_IN_SLICES", 60)
        monkeypatch.setattr(api, "SLICE_S", 0.0)
        describing = asyncio.ensure_future(finished(cluster.handle_describe_topic_partitions(context, request)))
        steps = await steps_until_done(describing)
        assert steps.turns_count > 60
        in_slices = await describing
        assert isinstance(in_slices, SlicedResponse)
        assert in_slices.response == at_once
