"""The persister of a node that is one of several: whom it asks, in which order, and what becomes of what waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.share import remote_persister
from fencepost.broker.share.sessions import TopicIdPartition
from fencepost.broker.share.shard import ShareState
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.share_state import (
    DeleteShareGroupStateRequest,
    InitializeShareGroupStateRequest,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadShareStatePartitionResult,
    ReadShareStateTopicResult,
    ShareStatePartitionResult,
    ShareStateSummary,
    ShareStateSummaryTopic,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)
from fencepost.protocol.stored.share_group_state import StateBatch
from tests.broker.supervision.planting import until
from tests.support.fake_peers import SentRequest, turns
from tests.support.remote_share_state import (
    AT,
    HERE,
    KEY,
    NEXT_KEY,
    OTHER,
    STATE,
    THIRD,
    TOPIC_ID,
    RemoteState,
    written,
)

AVAILABLE, ACKNOWLEDGED = 0, 2


def batches(request: SentRequest, number: int = 0) -> list[StateBatch]:
    found = [one for topic in request.message.topics for one in topic.partitions if one.partition == number]
    assert len(found) == 1
    result: list[StateBatch] = list(found[0].state_batches)
    return result


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RemoteState]:
    monkeypatch.setattr(remote_persister, "LONGEST_WAIT_S", 0.5)
    monkeypatch.setattr(remote_persister, "LONGEST_READ_S", 0.2)
    world = RemoteState(tmp_path)
    await world.open()
    yield world
    await world.close()


async def test_a_write_is_durable_when_the_other_node_has_said_so(world: RemoteState) -> None:
    world.write(0)
    durable = asyncio.ensure_future(world.persister.durable(KEY))
    request = await world.sent()
    assert (request.node_id, type(request.message), request.version) == (OTHER, WriteShareGroupStateRequest, 1)
    assert request.message.group_id == "g"
    (partition,) = request.message.topics[0].partitions
    assert (partition.state_epoch, partition.leader_epoch) == (1, 0)
    assert (partition.start_offset, partition.delivery_complete_count) == (0, 1)
    assert partition.state_batches == [StateBatch(0, 0, ACKNOWLEDGED, 1)]
    await turns()
    assert not durable.done()
    request.answer(written())
    assert await durable is ErrorCode.NONE
    assert await world.persister.durable(KEY) is ErrorCode.NONE, "there is nothing to wait for any more"


async def test_writes_that_wait_for_one_on_its_way_go_together_and_the_later_one_wins(world: RemoteState) -> None:
    world.write(0)
    first = await world.sent()
    world.write(1, state=AVAILABLE)
    world.write(1, state=ACKNOWLEDGED)
    world.write(2)
    durable = asyncio.ensure_future(world.persister.durable(KEY))
    first.answer(written())
    second = await world.sent(2)
    assert batches(second) == [StateBatch(1, 2, ACKNOWLEDGED, 1)]
    assert second.message.topics[0].partitions[0].delivery_complete_count == 3
    assert not durable.done()
    second.answer(written())
    assert await durable is ErrorCode.NONE


async def test_writes_of_different_state_epochs_are_not_mixed(world: RemoteState) -> None:
    world.write(0)
    first = await world.sent()
    world.write(1)
    world.write(2, epoch=2)
    first.answer(written())
    second = await world.sent(2)
    assert batches(second) == [StateBatch(1, 1, ACKNOWLEDGED, 1)]
    second.answer(written())
    third = await world.sent(3)
    assert third.message.topics[0].partitions[0].state_epoch == 2
    third.answer(written())


async def test_partitions_of_a_group_that_are_written_together_are_one_request(world: RemoteState) -> None:
    world.write(0)
    world.write(5, key=NEXT_KEY)
    request = await world.sent()
    assert [one.partition for one in request.message.topics[0].partitions] == [0, 1]
    outcomes = [asyncio.ensure_future(world.persister.durable(key)) for key in (KEY, NEXT_KEY)]
    request.answer(written(ErrorCode.NONE, 0, 1))
    assert await asyncio.gather(*outcomes) == [ErrorCode.NONE, ErrorCode.NONE]


@pytest.mark.parametrize(
    "error",
    [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE],
)
async def test_a_write_follows_the_coordinator_to_another_node(world: RemoteState, error: ErrorCode) -> None:
    world.write(0)
    first = await world.sent()
    world.table.place(STATE, THIRD)
    durable = asyncio.ensure_future(world.persister.durable(KEY))
    first.answer(written(error))
    second = await world.sent(2)
    assert second.node_id == THIRD
    assert batches(second) == batches(first)
    second.answer(written())
    assert await durable is ErrorCode.NONE
    assert not world.lost


async def test_a_write_without_an_answer_is_repeated(world: RemoteState) -> None:
    world.write(0)
    first = await world.sent()
    first.lose()
    second = await world.sent(2)
    assert batches(second) == batches(first)
    second.answer(written())
    assert await world.persister.durable(KEY) is ErrorCode.NONE


@pytest.mark.parametrize(
    "error", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH, ErrorCode.INVALID_REQUEST]
)
async def test_a_refused_write_takes_those_behind_it_along(world: RemoteState, error: ErrorCode) -> None:
    world.write(0)
    request = await world.sent()
    first = asyncio.ensure_future(world.persister.durable(KEY))
    world.write(1)
    second = asyncio.ensure_future(world.persister.durable(KEY))
    await turns()
    request.answer(written(error))
    assert await first is error
    assert await second is error
    assert world.lost == [KEY]
    await turns()
    assert len(world.peers.sent) == 1


@pytest.mark.parametrize("error", [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR])
async def test_other_refusals_are_those_of_a_coordinator_that_is_not_available(
    world: RemoteState, error: ErrorCode
) -> None:
    world.write(0)
    durable = asyncio.ensure_future(world.persister.durable(KEY))
    while not durable.done():
        for request in world.peers.sent:
            if not request.answered.done():
                request.answer(written(error))
        await asyncio.sleep(0.005)
    assert await durable is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.lost == [KEY]


async def test_a_write_is_given_up_after_a_while_without_a_coordinator(world: RemoteState) -> None:
    world.table.place(STATE, None)
    world.write(0)
    assert await world.persister.durable(KEY) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.lost == [KEY]
    assert not world.peers.sent


async def test_a_write_is_appended_in_its_step_where_the_coordinator_is_here(world: RemoteState) -> None:
    world.table.place(STATE, HERE)
    await until(lambda: world.topics.log(STATE) is not None)
    await world.coordinator.ensure_loaded()
    assert await world.persister.initialize("g", {AT: 0}, state_epoch=1) == {AT: ErrorCode.NONE}
    world.write(0)
    log = world.topics.log(STATE)
    assert log is not None
    assert log.log_end_offset == 2
    assert await world.persister.durable(KEY) is ErrorCode.NONE
    state = await world.persister.read(KEY, leader_epoch=0)
    assert isinstance(state, ShareState)
    assert state.state_batches == (StateBatch(0, 0, ACKNOWLEDGED, 1),)
    assert not world.peers.sent


async def test_a_write_behind_one_on_its_way_does_not_overtake_it_when_the_coordinator_comes_here(
    world: RemoteState,
) -> None:
    world.write(0, state=AVAILABLE)
    first = await world.sent()
    world.table.place(STATE, HERE)
    await until(lambda: world.topics.log(STATE) is not None)
    await world.coordinator.ensure_loaded()
    await world.coordinator.execute(KEY, lambda shard: shard.initialize(KEY, state_epoch=1, start_offset=0, now_ms=0))
    world.write(0, state=ACKNOWLEDGED)
    durable = asyncio.ensure_future(world.persister.durable(KEY))
    first.lose()
    assert await durable is ErrorCode.NONE
    state = await world.persister.read(KEY, leader_epoch=0)
    assert isinstance(state, ShareState)
    assert state.state_batches == (StateBatch(0, 0, ACKNOWLEDGED, 1),)


async def test_state_is_read_from_the_other_node(world: RemoteState) -> None:
    reading = asyncio.ensure_future(world.persister.read(KEY, leader_epoch=7))
    request = await world.sent()
    assert isinstance(request.message, ReadShareGroupStateRequest)
    assert request.message.topics[0].partitions[0].leader_epoch == 7
    stored = [StateBatch(5, 6, AVAILABLE, 2)]
    partition = ReadShareStatePartitionResult(0, state_epoch=3, start_offset=5, state_batches=stored)
    request.answer(ReadShareGroupStateResponse([ReadShareStateTopicResult(TOPIC_ID, [partition])]))
    state = await reading
    assert isinstance(state, ShareState)
    assert (state.state_epoch, state.leader_epoch, state.start_offset) == (3, 7, 5)
    assert state.state_batches == tuple(stored)


async def test_state_is_read_after_what_was_written_before(world: RemoteState) -> None:
    world.write(0)
    request = await world.sent()
    reading = asyncio.ensure_future(world.persister.read(KEY, leader_epoch=0))
    await turns()
    assert len(world.peers.sent) == 1
    request.answer(written())
    assert isinstance((await world.sent(2)).message, ReadShareGroupStateRequest)
    reading.cancel()


async def test_a_read_that_finds_no_coordinator_has_the_client_fetch_again(world: RemoteState) -> None:
    world.table.place(STATE, None)
    assert await world.persister.read(KEY, leader_epoch=0) is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_read_does_not_wait_for_a_write_for_long(world: RemoteState) -> None:
    world.write(0)
    await world.sent()
    assert await world.persister.read(KEY, leader_epoch=0) is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_summaries_initializations_and_deletions_are_asked_of_the_other_node(world: RemoteState) -> None:
    summary = asyncio.ensure_future(world.persister.summary(KEY))
    request = await world.sent()
    assert isinstance(request.message, ReadShareGroupStateSummaryRequest)
    of_partition = ShareStateSummary(0, state_epoch=1, leader_epoch=2, start_offset=3, delivery_complete_count=4)
    request.answer(ReadShareGroupStateSummaryResponse([ShareStateSummaryTopic(TOPIC_ID, [of_partition])]))
    state = await summary
    assert isinstance(state, ShareState)
    assert (state.leader_epoch, state.start_offset, state.delivery_complete_count) == (2, 3, 4)

    other = TopicIdPartition(TOPIC_ID, 1)
    initialized = asyncio.ensure_future(world.persister.initialize("g", {AT: -1, other: 9}, state_epoch=5))
    request = await world.sent(2)
    assert isinstance(request.message, InitializeShareGroupStateRequest)
    asked = [(one.partition, one.state_epoch, one.start_offset) for one in request.message.topics[0].partitions]
    assert asked == [(0, 5, -1), (1, 5, 9)]
    results: Any = written(ErrorCode.NONE, 0).results
    results[0].partitions.append(ShareStatePartitionResult(1, ErrorCode.FENCED_STATE_EPOCH))
    request.answer(WriteShareGroupStateResponse(results))
    assert await initialized == {AT: ErrorCode.NONE, other: ErrorCode.FENCED_STATE_EPOCH}

    deleted = asyncio.ensure_future(world.persister.delete("g", {TOPIC_ID: [0, 1]}))
    request = await world.sent(3)
    assert isinstance(request.message, DeleteShareGroupStateRequest)
    assert [one.partition for one in request.message.topics[0].partitions] == [0, 1]
    request.answer(written(ErrorCode.NONE, 0, 1))
    assert await deleted == {TOPIC_ID: ErrorCode.NONE}


async def test_an_answer_that_leaves_a_partition_out_is_none_for_it(world: RemoteState) -> None:
    world.write(0)
    first = await world.sent()
    first.answer(written(ErrorCode.NONE, 5))
    second = await world.sent(2)
    second.answer(written())
    assert await world.persister.durable(KEY) is ErrorCode.NONE


async def test_a_close_refuses_what_waits(world: RemoteState) -> None:
    world.write(0)
    durable = asyncio.ensure_future(world.persister.durable(KEY))
    await world.sent()
    await world.persister.close()
    assert await durable is ErrorCode.COORDINATOR_NOT_AVAILABLE
