"""Transactions meet what nobody foresaw: none stays prepared in silence, nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fencepost.broker.coordination import reloads as coordinator_reloads
from fencepost.broker.coordination.shard import Decision
from fencepost.broker.hosting import peers
from fencepost.broker.kernel import supervision
from fencepost.broker.kernel.topic_partition import TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.transaction import (
    abandoned,
    completion,
    coordinator_reload,
    markers,
    producer_ids,
    remote_markers,
    remote_verification,
    service,
)
from fencepost.broker.transaction.abandoned import Abandoned
from fencepost.broker.transaction.completion import Completion
from fencepost.broker.transaction.coordinator_reload import CoordinatorReload
from fencepost.broker.transaction.producer_ids import ProducerIds
from fencepost.broker.transaction.state_machine import COMPLETE_COMMIT
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.markers import WriteTxnMarkersResponse
from tests.broker.hosting.test_peers import ask, other_node
from tests.broker.supervision.planting import logged, plants, raising, unforeseen, until
from tests.broker.transaction.test_remote_markers import NEAR, Sending
from tests.broker.transaction.test_remote_verification import OUT_0 as ASKED
from tests.broker.transaction.test_remote_verification import RemoteVerification, id_of
from tests.broker.transaction.test_service import ID, OK, OUT_0, OUT_1, Broker
from tests.support.memory_topics import in_page_cache


@pytest.fixture
async def broker(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Broker]:
    monkeypatch.setattr(coordinator_reloads, "FIRST_PAUSE_S", 0.001)
    broker = Broker()
    await broker.service.start()
    await broker.service.ensure_loaded()
    yield broker
    await broker.service.close()


@plants(abandoned.ABANDONED)
@unforeseen
async def test_a_look_for_abandoned_transactions_that_fails_is_repeated(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abandoned, "SHORTEST_PAUSE_S", 0.001)
    monkeypatch.setattr(supervision, "FIRST_RETRY_PAUSE_S", 0.001)
    rounds = 0

    async def end_all(_self: Abandoned) -> int:
        nonlocal rounds
        rounds += 1
        return 0

    monkeypatch.setattr(Abandoned, "end_all", raising(error, times=2, then=end_all))
    looking = Abandoned([("pool-*", 1)], None, None, None)  # type: ignore[arg-type]  # it asks nobody
    with logged(abandoned.ABANDONED, times=2):
        looking.start()
        await until(lambda: rounds > 0)
    await looking.close()


@plants(completion.COMPLETION)
@unforeseen
@pytest.mark.parametrize("step", ["_send", "_append_completion", "_undelivered"])
async def test_a_completion_that_fails_is_done_again(
    broker: Broker, error: BaseException, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await broker.begin()
    monkeypatch.setattr(Completion, step, raising(error, times=2, then=getattr(Completion, step)))
    with logged(completion.COMPLETION, broker.state_log().topic_partition, times=2) as lines:
        assert (await broker.end(producer)).error is OK
        await broker.reaches(COMPLETE_COMMIT)
    assert lines[-1]["transactional_id"] == ID
    assert broker.markers(OUT_0)


@plants(completion.COMPLETION)
@unforeseen
async def test_a_completion_that_fails_in_its_first_step_is_done_again(
    broker: Broker, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_page_cache():
        producer = await broker.begin()
        monkeypatch.setattr(Completion, "_destinations", raising(error, times=1, then=Completion._destinations))
        with logged(completion.COMPLETION, broker.state_log().topic_partition):
            assert (await broker.end(producer)).error is OK
            await broker.reaches(COMPLETE_COMMIT)


@plants(completion.COMPLETION_TASK, service.COMPLETIONS)
@unforeseen
@pytest.mark.parametrize("in_one_step", [False, True])
async def test_a_completion_that_cannot_end_has_its_partition_loaded_again(
    broker: Broker, error: BaseException, in_one_step: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await broker.begin()
    if in_one_step:
        monkeypatch.setattr(Completion, "begin", raising(error, times=1, then=Completion.begin))
    else:
        monkeypatch.setattr(Completion, "_run", failing_run(error, Completion._run))
    place = service.COMPLETIONS if in_one_step else completion.COMPLETION_TASK
    with logged(place, broker.state_log().topic_partition):
        assert (await broker.end(producer)).error is OK
        await until(lambda: not isinstance(broker.service.find(ID), ErrorCode) and is_complete(broker))


def failing_run(error: BaseException, then: Any) -> Any:
    left = [1]

    async def run(self: Completion, rest: Any) -> None:
        if left:
            left.clear()
            rest.close()
            await asyncio.sleep(0)
            raise type(error)(*error.args)
        await then(self, rest)

    return run


def is_complete(broker: Broker) -> bool:
    return broker.transaction.state is COMPLETE_COMMIT


@plants(markers.MARKER_APPEND)
@unforeseen
async def test_a_marker_that_cannot_be_appended_is_sent_again_and_the_others_are_written(
    broker: Broker, error: BaseException
) -> None:
    producer = await broker.begin(OUT_0, OUT_1)
    log: Any = broker.topics.logs[OUT_0]
    log.append_marker = raising(error, times=2, then=log.append_marker)
    with logged(markers.MARKER_APPEND, OUT_0, times=2):
        await broker.end(producer)
        await until(lambda: broker.markers(OUT_1))
        await broker.reaches(COMPLETE_COMMIT)
    assert broker.markers(OUT_0)


async def test_producers_that_keep_fencing_each_other_are_waited_for_within_bounds(broker: Broker) -> None:
    await broker.begin()

    def decide(_: object) -> Decision[ErrorCode]:
        return Decision(ErrorCode.CONCURRENT_TRANSACTIONS)

    async with asyncio.timeout(60):
        reply = await broker.service._decide(ID, decide, lambda error: error)
    assert reply is ErrorCode.CONCURRENT_TRANSACTIONS


@plants(coordinator_reload.REELECTION)
@unforeseen
async def test_a_reelection_that_fails_is_held_again(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_reload, "FIRST_PAUSE_S", 0.001)
    partition = TopicPartition(TRANSACTION_STATE_TOPIC, 1)
    reloaded: list[TopicPartition] = []
    elections = CoordinatorReload(raising(error, times=2, then=lambda name, _: reloaded.append(name)))
    with logged(coordinator_reload.REELECTION, partition, times=2):
        elections.refused(partition, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
        await until(lambda: reloaded == [partition])
    elections.close()


@plants(producer_ids.RESERVATION)
async def test_a_reservation_of_producer_ids_that_fails_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "FIRST_RETRY_PAUSE_S", 0.001)
    ids = ProducerIds(InMemoryMetadataStore())
    monkeypatch.setattr(ids, "_reserve_block", raising(Base("planted"), times=2, then=ids._reserve_block))
    with logged(producer_ids.RESERVATION, times=2):
        assert ids.take() is None
        await until(lambda: ids.take() is not None)
    await ids.close()


class Base(BaseException):  # others are foreseen, as whatever the store's engine raises
    pass


@plants(remote_markers.REMOTE_MARKERS)
@unforeseen
async def test_markers_whose_answer_cannot_be_taken_in_are_answered_and_the_next_are_sent(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending = Sending()
    monkeypatch.setattr(remote_markers, "_outcomes", raising(error))
    with logged(remote_markers.REMOTE_MARKERS, "node 2"):
        task = sending.send(NEAR)
        await until(lambda: sending.peers.sent)
        sending.peers.sent[0].answer(WriteTxnMarkersResponse(markers=[]))
        assert await task == {NEAR: ErrorCode.UNKNOWN_SERVER_ERROR}
    again = sending.send(NEAR)
    await until(lambda: len(sending.peers.sent) == 2)
    sending.peers.sent[1].lose()
    assert await again == {NEAR: ErrorCode.REQUEST_TIMED_OUT}
    await sending.channel.close()


@plants(remote_markers.REMOTE_MARKERS)
@unforeseen
async def test_a_task_that_fails_while_sending_markers_leaves_no_waiter_behind(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending = Sending()
    monkeypatch.setattr(remote_markers._NodeMarkerQueue, "_take_batch", raising(error))
    with logged(remote_markers.REMOTE_MARKERS, "node 2"):
        assert await sending.send(NEAR) == {NEAR: ErrorCode.UNKNOWN_SERVER_ERROR}
    await sending.channel.close()


@plants(remote_verification.REMOTE_VERIFICATION)
@unforeseen
@pytest.mark.parametrize("step", ["_answer", "_verify_all"])
async def test_a_verification_that_fails_leaves_no_waiter_behind(
    error: BaseException, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = RemoteVerification()

    async def fail(_: object) -> None:
        raise type(error)(*error.args)

    monkeypatch.setattr(
        remote_verification._NodeVerificationQueue, step, fail if step == "_verify_all" else raising(error)
    )
    queue = remote.verifier._queue(2)
    with logged(remote_verification.REMOTE_VERIFICATION, "node 2"):
        question: Any = type("Question", (), {"transactional_id": id_of(2), "producer_epoch": 0, "producer_id": 1})()
        monkeypatch.setattr(remote_verification, "AddPartitionsToTxnRequest", lambda **_: object())
        task = asyncio.ensure_future(queue.verify(question, [ASKED]))
        if step == "_answer":
            await until(lambda: remote.peers.sent)
            remote.peers.sent[0].answer(object())
        async with asyncio.timeout(60):
            assert await task == {ASKED: ErrorCode.UNKNOWN_SERVER_ERROR}
    await remote.verifier.close()


@plants(peers.CONNECTING)
@unforeseen
async def test_the_failure_of_a_connection_to_another_node_is_reported_at_once(error: BaseException) -> None:
    async with other_node() as (node, reached):
        reached._connect = raising(error)
        with logged(peers.CONNECTING, "node 2"), pytest.raises(peers.PeerUnreachable, match="cannot be connected"):
            await ask(reached)
        reached._connect = None
        assert await ask(reached) == 0
        assert node.connection_count == 1


@plants(peers.RESPONSE)
@unforeseen
async def test_a_response_that_fails_ends_the_connection_and_the_next_request_opens_another(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with other_node() as (node, reached):
        with monkeypatch.context() as patch, logged(peers.RESPONSE):
            patch.setattr(peers, "find_frame", raising(error))
            with pytest.raises(peers.PeerUnreachable, match="failed"):
                await ask(reached)
        assert await ask(reached) == 0
        assert node.connection_count == 2
