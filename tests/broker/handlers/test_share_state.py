"""The share coordinator as other nodes ask it: initialize, read, write, delete and summarize states of records."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.share_state import (
    DeleteShareGroupStateRequest,
    DeleteShareStatePartition,
    DeleteShareStateTopic,
    InitializeShareGroupStateRequest,
    InitializeShareStatePartition,
    InitializeShareStateTopic,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    ReadShareStatePartition,
    ReadShareStateTopic,
    WriteShareGroupStateRequest,
    WriteShareStatePartition,
    WriteShareStateTopic,
)
from fencepost.protocol.stored.share_group_state import StateBatch
from tests.support.share_broker import ShareBroker, running_share_broker

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = 0, 1, 2, 4
ANY_EPOCH = -1


class Coordinator:
    """The share coordinator of a broker with the topic `orders` of two partitions. Each call is about one of them."""

    def __init__(self, broker: ShareBroker) -> None:
        self.broker = broker
        topic = broker.node.services.topics.metadata.get("orders")
        assert topic is not None
        self.topic_id = topic.topic_id

    async def ask(self, request: Any, version: int | None = None) -> Any:
        response = await self.broker.call(request, version)
        (topic,) = response.results
        (partition,) = topic.partitions
        assert topic.topic_id == request.topics[0].topic_id
        assert partition.partition == request.topics[0].partitions[0].partition
        assert (partition.error_message is None) is (partition.error_code == 0)
        return partition

    async def initialize(
        self, state_epoch: int = 1, start_offset: int = 0, *, number: int = 0, topic_id: bytes | None = None
    ) -> ErrorCode:
        partition = InitializeShareStatePartition(number, state_epoch, start_offset)
        topic = InitializeShareStateTopic(topic_id or self.topic_id, [partition])
        return ErrorCode((await self.ask(InitializeShareGroupStateRequest("g", [topic]))).error_code)

    async def read(self, leader_epoch: int = 0, *, number: int = 0) -> Any:
        topic = ReadShareStateTopic(self.topic_id, [ReadShareStatePartition(number, leader_epoch)])
        return await self.ask(ReadShareGroupStateRequest("g", [topic]))

    async def write(
        self,
        *batches: StateBatch,
        state_epoch: int = 1,
        leader_epoch: int = 0,
        start_offset: int = -1,
        complete_count: int = 0,
        version: int | None = None,
    ) -> ErrorCode:
        partition = WriteShareStatePartition(0, state_epoch, leader_epoch, start_offset, complete_count, list(batches))
        topic = WriteShareStateTopic(self.topic_id, [partition])
        return ErrorCode((await self.ask(WriteShareGroupStateRequest("g", [topic]), version)).error_code)

    async def delete(self, *, number: int = 0) -> ErrorCode:
        topic = DeleteShareStateTopic(self.topic_id, [DeleteShareStatePartition(number)])
        return ErrorCode((await self.ask(DeleteShareGroupStateRequest("g", [topic]))).error_code)

    async def summary(self, *, number: int = 0, version: int | None = None) -> Any:
        topic = ReadShareStateTopic(self.topic_id, [ReadShareStatePartition(number, ANY_EPOCH)])
        return await self.ask(ReadShareGroupStateSummaryRequest("g", [topic]), version)


@pytest.fixture
async def coordinator(tmp_path: Path) -> AsyncIterator[Coordinator]:
    async with running_share_broker(tmp_path) as running:
        await running.create("orders", 2)
        await running.node.services.shares.coordinator.ensure_available()
        yield Coordinator(running)


async def test_what_is_written_is_read_and_summarized(coordinator: Coordinator) -> None:
    assert await coordinator.initialize(state_epoch=3, start_offset=10) is ErrorCode.NONE
    batches = [StateBatch(10, 12, ACKNOWLEDGED, 1), StateBatch(13, 13, AVAILABLE, 2)]
    assert await coordinator.write(*batches, state_epoch=3, start_offset=10, complete_count=3) is ErrorCode.NONE
    state = await coordinator.read()
    assert (state.state_epoch, state.start_offset, state.state_batches) == (3, 10, batches)
    summary = await coordinator.summary()
    assert (summary.state_epoch, summary.leader_epoch, summary.start_offset) == (3, 0, 10)
    assert summary.delivery_complete_count == 3
    assert await coordinator.write(state_epoch=3, start_offset=13, version=0) is ErrorCode.NONE
    assert (await coordinator.read()).state_batches == [StateBatch(13, 13, AVAILABLE, 2)]
    assert (await coordinator.summary()).delivery_complete_count == -1, "version 0 has no count"
    assert (await coordinator.summary(version=0)).start_offset == 13


async def test_without_state_there_is_nothing_to_read_or_write(coordinator: Coordinator) -> None:
    assert (await coordinator.read()).error_code == ErrorCode.INVALID_REQUEST
    assert await coordinator.write() is ErrorCode.INVALID_REQUEST
    assert await coordinator.delete() is ErrorCode.NONE
    summary = await coordinator.summary()
    assert (summary.error_code, summary.start_offset, summary.state_epoch) == (ErrorCode.NONE, -1, 0)


async def test_deleted_state_is_gone(coordinator: Coordinator) -> None:
    await coordinator.initialize()
    assert await coordinator.delete() is ErrorCode.NONE
    assert (await coordinator.read()).error_code == ErrorCode.INVALID_REQUEST


async def test_older_leaders_and_older_states_are_fenced(coordinator: Coordinator) -> None:
    await coordinator.initialize(state_epoch=5)
    assert (await coordinator.read(leader_epoch=4)).error_code == ErrorCode.NONE
    assert (await coordinator.read(leader_epoch=3)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert await coordinator.write(state_epoch=5, leader_epoch=3) is ErrorCode.FENCED_LEADER_EPOCH
    assert await coordinator.write(state_epoch=4, leader_epoch=4) is ErrorCode.FENCED_STATE_EPOCH
    assert await coordinator.initialize(state_epoch=4) is ErrorCode.FENCED_STATE_EPOCH
    assert await coordinator.write(state_epoch=5, leader_epoch=6) is ErrorCode.NONE
    assert await coordinator.write(state_epoch=5, leader_epoch=4) is ErrorCode.NONE, "only a read fences, as in Kafka"
    assert await coordinator.write(state_epoch=5, leader_epoch=ANY_EPOCH) is ErrorCode.INVALID_REQUEST
    assert await coordinator.write(state_epoch=ANY_EPOCH, leader_epoch=4) is ErrorCode.INVALID_REQUEST
    assert (await coordinator.read(leader_epoch=ANY_EPOCH)).error_code == ErrorCode.INVALID_REQUEST
    assert (await coordinator.summary()).leader_epoch == 4


async def test_a_partition_that_does_not_exist_has_no_state(coordinator: Coordinator) -> None:
    assert await coordinator.initialize(number=2) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await coordinator.initialize(topic_id=b"?" * 16) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await coordinator.delete(number=2) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await coordinator.summary(number=2)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await coordinator.initialize(number=-1) is ErrorCode.INVALID_REQUEST
    assert (await coordinator.read(number=2)).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "batch", [StateBatch(5, 4, AVAILABLE, 1), StateBatch(0, 4, ACQUIRED, 1), StateBatch(0, 4, ARCHIVED, -1)]
)
async def test_states_that_could_not_be_read_again_are_not_stored(coordinator: Coordinator, batch: StateBatch) -> None:
    await coordinator.initialize()
    assert await coordinator.write(batch) is ErrorCode.INVALID_REQUEST
    assert (await coordinator.read()).state_batches == []


async def test_a_request_that_names_nothing_gets_nothing(coordinator: Coordinator) -> None:
    topic = InitializeShareStateTopic(coordinator.topic_id, [InitializeShareStatePartition(0, 1, 0)])
    empty = InitializeShareStateTopic(coordinator.topic_id, [])
    for request in (
        InitializeShareGroupStateRequest("", [topic]),
        InitializeShareGroupStateRequest("g", []),
        InitializeShareGroupStateRequest("g", [topic, empty]),
    ):
        assert (await coordinator.broker.call(request)).results == []
    assert (await coordinator.read()).error_code == ErrorCode.INVALID_REQUEST


async def test_many_partitions_are_answered_in_the_order_of_the_request(coordinator: Coordinator) -> None:
    partitions = [InitializeShareStatePartition(number, 1, 0) for number in (1, 0, 7)]
    topics = [InitializeShareStateTopic(coordinator.topic_id, partitions)]
    response = await coordinator.broker.call(InitializeShareGroupStateRequest("g", topics))
    found = [(one.partition, one.error_code) for one in response.results[0].partitions]
    assert found == [(1, 0), (0, 0), (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
