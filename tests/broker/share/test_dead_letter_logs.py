"""Copies in a partition that another node leads go to its leader, by the topic's id; nothing goes to a namesake."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.broker.config import Settings
from fencepost.broker.share.dead_letter_logs import DeadLetterLogs, NoDeadLetterTopic
from fencepost.broker.share.dead_letters import DeadLetterTarget
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tests.support.fake_peers import FakePeers, turns
from tests.support.share_broker import ManualClock

TARGET = DeadLetterTarget("dlq.orders", b"t" * 16, 2, 1_000)


def logs(
    peers: FakePeers | None, *, topic_id: bytes = TARGET.topic_id, leader: int | None = 2, has_store: bool = True
) -> DeadLetterLogs:
    topic = SimpleNamespace(name=TARGET.topic, topic_id=topic_id)

    async def catch_up() -> bool:
        return has_store

    topics: Any = SimpleNamespace(
        catch_up=catch_up,
        log=lambda _place: None,
        metadata=SimpleNamespace(
            get=lambda _name: topic, get_by_id=lambda wanted: topic if wanted == topic_id else None
        ),
        placement=SimpleNamespace(leader=lambda _: None if leader is None else SimpleNamespace(node_id=leader)),
        log_config=lambda _name: SimpleNamespace(max_message_bytes=1_000),
    )
    return DeadLetterLogs(topics, Settings(), ManualClock(), peers)


async def sent(found: DeadLetterLogs, peers: FakePeers) -> asyncio.Task[ErrorCode]:
    appending = asyncio.ensure_future(found.append(TARGET, bytearray(b"batch")))
    await turns()
    (request,) = peers.sent
    assert (request.node_id, request.version) == (2, 13)
    (topic,) = request.message.topic_data
    assert topic.topic_id == TARGET.topic_id
    assert [(one.index, bytes(one.records)) for one in topic.partition_data] == [(2, b"batch")]
    return appending


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_TOPIC_ID])
async def test_the_leaders_answer_is_the_outcome(error: ErrorCode) -> None:
    peers = FakePeers()
    appending = await sent(logs(peers), peers)
    partitions = [PartitionProduceResponse(2, error)]
    peers.sent[0].answer(ProduceResponse([TopicProduceResponse(partition_responses=partitions)]))
    assert await appending is error


async def test_an_answer_that_is_lost_leaves_the_outcome_open() -> None:
    peers = FakePeers()
    appending = await sent(logs(peers), peers)
    peers.sent[0].lose()
    assert await appending is ErrorCode.LEADER_NOT_AVAILABLE


async def test_an_answer_without_the_partition_leaves_the_outcome_open() -> None:
    peers = FakePeers()
    appending = await sent(logs(peers), peers)
    peers.sent[0].answer(ProduceResponse([]))
    assert await appending is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_without_a_leader_nothing_is_sent() -> None:
    peers = FakePeers()
    assert await logs(peers, leader=None).append(TARGET, bytearray()) is ErrorCode.LEADER_NOT_AVAILABLE
    assert await logs(None).append(TARGET, bytearray()) is ErrorCode.LEADER_NOT_AVAILABLE
    assert peers.sent == []


async def test_a_topic_that_was_created_again_is_another_one() -> None:
    peers = FakePeers()
    found = logs(peers, topic_id=b"u" * 16)
    assert await found.append(TARGET, bytearray()) is ErrorCode.UNKNOWN_TOPIC_ID
    assert await found.of_copy(TARGET.topic_id, 2) is None
    assert peers.sent == []


async def test_a_topic_counts_as_deleted_only_after_a_look_at_the_store() -> None:
    with pytest.raises(NoDeadLetterTopic, match="metadata cannot be read"):
        await logs(FakePeers(), topic_id=b"u" * 16, has_store=False).of_copy(TARGET.topic_id, 2)


async def test_a_copy_is_continued_in_the_topic_it_was_decided_for() -> None:
    assert await logs(None).of_copy(TARGET.topic_id, 2) == TARGET
