"""Markers for partitions of other nodes: which request each node gets, and what follows from the replies."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from fencepost.broker.hosting.placement import NodeAddress, PlacementTable
from fencepost.broker.kernel.clock import SystemClock
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.transaction.markers import TransactionMarker
from fencepost.broker.transaction.remote_markers import RemoteMarkerChannel
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.support.fake_peers import FakePeers, SentRequest, turns
from tests.support.memory_topics import MemoryTopics

HERE, NEAR, FAR = TopicPartition("out", 0), TopicPartition("out", 1), TopicPartition("out", 2)
LEADERLESS = TopicPartition("out", 3)
OK, NOT_LEADER = ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER


class Sending:
    """A channel of node 1; partition 1 is led by node 2, partition 2 by node 3, partition 3 by nobody."""

    def __init__(self) -> None:
        self.table = PlacementTable(lambda name: (1, 2, 3, None)[name.partition])
        for node_id in (1, 2, 3):
            self.table.register(NodeAddress(node_id, "host", node_id))
        self.topics = MemoryTopics(out=4)
        self.topics.placement = self.table.view(1)
        self.peers = FakePeers()
        self.channel = RemoteMarkerChannel(
            cast("Any", self.topics), self.peers, SystemClock(), request_timeout_ms=30_000
        )

    def send(self, *partitions: TopicPartition, producer_id: int = 7) -> asyncio.Task[dict[TopicPartition, ErrorCode]]:
        return asyncio.create_task(
            self.channel.send(
                TransactionMarker(
                    producer_id=producer_id,
                    producer_epoch=3,
                    committed=True,
                    coordinator_epoch=5,
                    transaction_version=2,
                    partitions=frozenset(partitions),
                )
            )
        )


@pytest.fixture
def sending() -> Sending:
    return Sending()


def producers(request: SentRequest) -> list[int]:
    return [marker.producer_id for marker in request.message.markers]


def outcome(request: SentRequest, errors: Mapping[TopicPartition, ErrorCode] | None = None) -> WriteTxnMarkersResponse:
    """A reply with the requested partitions in the opposite order; NONE unless given."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index,
                                error_code=(errors or {}).get(TopicPartition(topic.name, index), OK),
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in reversed(request.message.markers)
        ]
    )


async def test_each_leader_is_sent_its_partitions_and_its_own_are_written_here(sending: Sending) -> None:
    sent = sending.send(HERE, NEAR, FAR)
    await turns()
    assert [(request.node_id, request.version) for request in sending.peers.sent] == [(2, 2), (3, 2)]
    near, far = sending.peers.sent
    assert isinstance(near.message, WriteTxnMarkersRequest)
    (marker,) = near.message.markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (7, 3, True)
    assert (marker.coordinator_epoch, marker.transaction_version) == (5, 2)
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("out", [1])]
    assert len(sending.topics.logs[HERE].markers) == 1
    near.answer(outcome(near))
    far.answer(outcome(far, {FAR: ErrorCode.TRANSACTION_COORDINATOR_FENCED}))
    assert await sent == {HERE: OK, NEAR: OK, FAR: ErrorCode.TRANSACTION_COORDINATOR_FENCED}


async def test_where_everything_is_local_nothing_is_sent(sending: Sending) -> None:
    assert await sending.send(HERE) == {HERE: OK}
    assert sending.peers.sent == []


async def test_a_partition_without_a_leader_is_neither_sent_nor_taken_for_deleted(sending: Sending) -> None:
    assert await sending.send(HERE, LEADERLESS) == {HERE: OK, LEADERLESS: NOT_LEADER}
    assert not sending.channel.is_deleted(LEADERLESS)
    assert sending.channel.is_deleted(TopicPartition("out", 4))
    assert sending.channel.is_deleted(TopicPartition("gone", 0))
    sending.table.unregister(2)
    assert await sending.send(NEAR) == {NEAR: NOT_LEADER}
    sending.table.place(LEADERLESS, 3)
    sent = sending.send(LEADERLESS)
    await turns()
    assert [request.node_id for request in sending.peers.sent] == [3]
    sending.peers.sent[0].answer(outcome(sending.peers.sent[0]))
    assert await sent == {LEADERLESS: OK}


async def test_destinations_do_not_wait_for_each_other(sending: Sending) -> None:
    shares = sending.channel.group_by_destination(frozenset((HERE, NEAR, FAR, LEADERLESS)))
    assert shares == [{HERE}, {NEAR}, {FAR}, {LEADERLESS}]
    assert sending.channel.group_by_destination(frozenset()) == []


async def test_what_comes_while_a_request_is_under_way_goes_together_into_the_next(sending: Sending) -> None:
    sends = [sending.send(NEAR, producer_id=producer_id) for producer_id in range(4)]
    await turns()
    sends += [sending.send(NEAR, producer_id=producer_id) for producer_id in range(4, 8)]
    await turns()
    (first,) = sending.peers.sent
    first.answer(outcome(first))
    await turns()
    _, second = sending.peers.sent
    assert producers(first) + producers(second) == list(range(8))
    second.answer(outcome(second))
    assert await asyncio.gather(*sends) == [{NEAR: OK}] * 8


async def test_two_markers_of_one_producer_go_one_after_the_other(sending: Sending) -> None:
    sends = [sending.send(NEAR), sending.send(NEAR)]
    for number in range(2):
        await turns()
        assert len(sending.peers.sent) == number + 1
        assert producers(sending.peers.sent[number]) == [7]
        sending.peers.sent[number].answer(outcome(sending.peers.sent[number]))
    assert await asyncio.gather(*sends) == [{NEAR: OK}] * 2


async def test_a_node_that_does_not_answer_times_out_for_all_partitions(sending: Sending) -> None:
    sent = sending.send(HERE, NEAR)
    await turns()
    sending.peers.sent[0].lose()
    assert await sent == {HERE: OK, NEAR: ErrorCode.REQUEST_TIMED_OUT}


async def test_what_an_answer_leaves_out_is_an_unknown_error(sending: Sending) -> None:
    sent = sending.send(NEAR)
    await turns()
    sending.peers.sent[0].answer(WriteTxnMarkersResponse(markers=[]))
    assert await sent == {NEAR: ErrorCode.UNKNOWN_SERVER_ERROR}
    sent = sending.send(NEAR)
    await turns()
    sending.peers.sent[1].answered.set_exception(TypeError("a bug"))
    assert await sent == {NEAR: ErrorCode.UNKNOWN_SERVER_ERROR}


async def test_markers_without_a_waiter_are_not_sent(sending: Sending) -> None:
    first, second, third = (sending.send(NEAR, producer_id=number) for number in range(3))
    await turns()
    late = sending.send(NEAR, producer_id=3)
    await turns()
    late.cancel()
    third.cancel()  # on its way already
    await turns()
    (request,) = sending.peers.sent
    assert producers(request) == [0, 1, 2]
    request.answer(outcome(request))
    assert list(await asyncio.gather(first, second)) == [{NEAR: OK}] * 2
    await turns()
    assert len(sending.peers.sent) == 1


async def test_a_closed_channel_sends_nothing_any_more(sending: Sending) -> None:
    sent = sending.send(NEAR)
    await turns()
    await sending.channel.close()
    assert not sent.done()
    sent.cancel()
