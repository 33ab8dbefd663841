"""Verification by a coordinator on another node: batches, evictions, replies and missing replies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from fencepost.broker.config import Settings
from fencepost.broker.coordination.runtime import partition_for_key
from fencepost.broker.hosting.placement import NodeAddress, PlacementTable
from fencepost.broker.kernel.clock import SystemClock
from fencepost.broker.kernel.topic_partition import TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.transaction.producer_ids import ProducerIds
from fencepost.broker.transaction.remote_verification import RemoteTransactionVerifier
from fencepost.broker.transaction.service import TransactionService
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from tests.support.fake_peers import FakePeers, SentRequest, turns
from tests.support.memory_topics import MemoryTopics

PARTITION_COUNT = 4
OUT_0, OUT_1 = TopicPartition("out", 0), TopicPartition("out", 1)
OK = ErrorCode.NONE


def id_of(node_id: int, number: int = 0) -> str:
    """A transactional id whose coordinator is node 1, 2 or 3, or nobody (0)."""
    found = [key for key in map(str, range(100)) if partition_for_key(key, PARTITION_COUNT) == node_id]
    return found[number]


class RemoteVerification:
    """The verifier of node 1; partition n of `__transaction_state` is led by node n, partition 0 by nobody."""

    def __init__(self) -> None:
        self.table = PlacementTable(lambda name: name.partition or None)
        for node_id in (1, 2, 3):
            self.table.register(NodeAddress(node_id, "host", node_id))
        self.topics = MemoryTopics(out=2)
        self.topics.placement = self.table.view(1)
        self.peers = FakePeers()
        self.service = TransactionService(
            cast("Any", self.topics), ProducerIds(InMemoryMetadataStore()), Settings(), SystemClock()
        )
        self.verifier = RemoteTransactionVerifier(
            self.service, cast("Any", self.topics), self.peers, request_timeout_ms=30_000
        )

    def ask(
        self,
        transactional_id: str,
        *partitions: TopicPartition,
        producer_id: int = 7,
        epoch: int = 3,
        add: bool = True,
    ) -> asyncio.Task[dict[TopicPartition, ErrorCode]]:
        return asyncio.ensure_future(
            self.verifier.verify(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                topic_partitions=partitions or (OUT_0,),
                add=add,
            )
        )


@pytest.fixture
async def remote() -> AsyncIterator[RemoteVerification]:
    remote = RemoteVerification()
    await remote.service.start()
    remote.topics.add(TRANSACTION_STATE_TOPIC, PARTITION_COUNT)
    yield remote
    await remote.verifier.close()
    await remote.service.close()


def answer(request: SentRequest, error: ErrorCode = OK) -> AddPartitionsToTxnResponse:
    """The same error for every partition."""
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
                            for index in topic.partitions
                        ],
                    )
                    for topic in transaction.topics
                ],
            )
            for transaction in reversed(request.message.transactions)
        ]
    )


def ids(request: SentRequest) -> list[str]:
    return [transaction.transactional_id for transaction in request.message.transactions]


async def test_a_local_coordinator_is_called_directly(remote: RemoteVerification) -> None:
    assert await remote.ask(id_of(1)) == {OUT_0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert remote.peers.sent == []


async def test_only_a_coordinator_here_confirms_at_once(
    remote: RemoteVerification, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirmed: list[object] = []

    def is_partition_confirmed(*about: object) -> bool:
        confirmed.append(about)
        return True

    monkeypatch.setattr(remote.service, "is_partition_confirmed", is_partition_confirmed)
    confirming = [remote.verifier.is_confirmed(id_of(coordinator), 7, 3, OUT_0) for coordinator in (0, 1, 2)]
    assert confirming == [False, True, False]
    assert confirmed == [(id_of(1), 7, 3, OUT_0)]
    remote.topics.remove(TRANSACTION_STATE_TOPIC)
    assert not remote.verifier.is_confirmed(id_of(1), 7, 3, OUT_0)


async def test_a_remote_coordinator_gets_requests_in_the_newest_version(remote: RemoteVerification) -> None:
    asked = remote.ask(id_of(2), OUT_1, OUT_0, add=False)
    await turns()
    (request,) = remote.peers.sent
    assert (request.node_id, request.version) == (2, 5)
    (transaction,) = request.message.transactions
    assert (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch) == (id_of(2), 7, 3)
    assert transaction.verify_only
    assert [(topic.name, topic.partitions) for topic in transaction.topics] == [("out", [0, 1])]
    request.answer(answer(request, ErrorCode.TRANSACTION_ABORTABLE))
    assert await asked == dict.fromkeys((OUT_0, OUT_1), ErrorCode.TRANSACTION_ABORTABLE)


async def test_without_a_leader_or_a_topic_the_coordinator_is_not_available(remote: RemoteVerification) -> None:
    assert await remote.ask(id_of(0)) == {OUT_0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    remote.table.unregister(2)
    assert await remote.ask(id_of(2)) == {OUT_0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    remote.topics.remove(TRANSACTION_STATE_TOPIC)
    assert await remote.ask(id_of(1)) == {OUT_0: ErrorCode.COORDINATOR_NOT_AVAILABLE}


async def test_questions_gather_while_one_is_under_way_and_nodes_do_not_wait_for_each_other(
    remote: RemoteVerification,
) -> None:
    first = remote.ask(id_of(2, 0))
    await turns()
    others = [remote.ask(id_of(2, number), add=number % 2 == 0) for number in (1, 2, 3)]
    elsewhere = remote.ask(id_of(3))
    await turns()
    assert [request.node_id for request in remote.peers.sent] == [2, 3]
    remote.peers.sent[1].answer(answer(remote.peers.sent[1]))
    assert await elsewhere == {OUT_0: OK}
    remote.peers.sent[0].answer(answer(remote.peers.sent[0]))
    assert await first == {OUT_0: OK}
    await turns()
    batch = remote.peers.sent[2]
    assert ids(batch) == [id_of(2, number) for number in (1, 2, 3)]
    assert [transaction.verify_only for transaction in batch.message.transactions] == [True, False, True]
    batch.answer(answer(batch))
    assert await asyncio.gather(*others) == [{OUT_0: OK}] * 3


@pytest.mark.parametrize(
    ("earlier_epoch", "later_epoch", "earlier_outcome"),
    [(3, 4, ErrorCode.INVALID_PRODUCER_EPOCH), (3, 3, ErrorCode.NETWORK_EXCEPTION)],
)
async def test_a_newer_question_about_a_transaction_takes_the_place_of_the_one_that_waits(
    remote: RemoteVerification, earlier_epoch: int, later_epoch: int, earlier_outcome: ErrorCode
) -> None:
    under_way = remote.ask(id_of(2, 1))
    await turns()
    earlier = remote.ask(id_of(2), epoch=earlier_epoch)
    await turns()
    later = remote.ask(id_of(2), OUT_1, epoch=later_epoch)
    assert await earlier == {OUT_0: earlier_outcome}
    remote.peers.sent[0].answer(answer(remote.peers.sent[0]))
    await under_way
    await turns()
    (transaction,) = remote.peers.sent[1].message.transactions
    assert transaction.producer_epoch == later_epoch
    remote.peers.sent[1].answer(answer(remote.peers.sent[1]))
    assert await later == {OUT_1: OK}


async def test_an_older_question_is_refused_while_a_newer_one_waits(remote: RemoteVerification) -> None:
    remote.ask(id_of(2, 1))
    await turns()
    newer = remote.ask(id_of(2), epoch=4)
    await turns()
    assert await remote.ask(id_of(2), OUT_1, epoch=3) == {OUT_1: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert not newer.done()


async def test_epochs_of_two_producer_ids_are_not_compared(remote: RemoteVerification) -> None:
    remote.ask(id_of(2, 1))
    await turns()
    exhausted = remote.ask(id_of(2), producer_id=7, epoch=32766)
    await turns()
    rotated = remote.ask(id_of(2), producer_id=8, epoch=0)
    assert await exhausted == {OUT_0: ErrorCode.NETWORK_EXCEPTION}
    assert not rotated.done()


async def test_a_question_that_got_lost_is_a_network_exception(remote: RemoteVerification) -> None:
    asked = remote.ask(id_of(2))
    await turns()
    remote.peers.sent[0].lose()
    assert await asked == {OUT_0: ErrorCode.NETWORK_EXCEPTION}


@pytest.mark.parametrize(
    ("error", "add", "expected"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, True, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, False, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (ErrorCode.UNSUPPORTED_VERSION, False, OK),
        (ErrorCode.UNSUPPORTED_VERSION, True, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_an_error_of_the_whole_request_is_that_of_every_partition(
    remote: RemoteVerification, error: ErrorCode, add: bool, expected: ErrorCode
) -> None:
    asked = remote.ask(id_of(2), add=add)
    await turns()
    remote.peers.sent[0].answer(AddPartitionsToTxnResponse(error_code=error))
    assert await asked == {OUT_0: expected}


async def test_what_an_answer_leaves_out_has_not_been_confirmed(remote: RemoteVerification) -> None:
    asked = remote.ask(id_of(2))
    await turns()
    remote.peers.sent[0].answer(AddPartitionsToTxnResponse())
    assert await asked == {OUT_0: ErrorCode.NETWORK_EXCEPTION}
    asked = remote.ask(id_of(2))
    await turns()
    remote.peers.sent[1].answered.set_exception(TypeError("a bug"))
    assert await asked == {OUT_0: ErrorCode.UNKNOWN_SERVER_ERROR}


async def test_a_verification_without_a_waiter_is_not_sent(remote: RemoteVerification) -> None:
    under_way = remote.ask(id_of(2, 1))
    await turns()
    gone = remote.ask(id_of(2))
    await turns()
    gone.cancel()
    await turns()
    remote.peers.sent[0].answer(answer(remote.peers.sent[0]))
    await under_way
    await turns()
    assert len(remote.peers.sent) == 1


async def test_an_empty_transactional_id_is_refused_without_asking(remote: RemoteVerification) -> None:
    remote.table.place(TopicPartition(TRANSACTION_STATE_TOPIC, 0), 2)  # where the empty id hashes to
    assert await remote.ask("") == {OUT_0: ErrorCode.INVALID_REQUEST}
    assert remote.peers.sent == []
