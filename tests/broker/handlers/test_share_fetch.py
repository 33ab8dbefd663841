"""ShareFetch and ShareAcknowledge against a node: what is lent, what comes back, and what is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.producers.verification import VerificationGuard
from fencepost.broker.requests.api import RequestGate
from fencepost.broker.security.acls import AclResource
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    ShareAcknowledgeRequest,
    ShareFetchForgottenTopic,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
)
from fencepost.protocol.record_batch import Record, build_batch
from tests.support.markers import end_in_log
from tests.support.share_broker import ShareBroker, lent, only_partition, running_share_broker

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ShareBroker]:
    async with running_share_broker(tmp_path) as running:
        await running.create("orders")
        await running.configure("g", share_auto_offset_reset="earliest")
        yield running


@pytest.fixture
async def member(broker: ShareBroker) -> str:
    """A member that has joined, over ten records."""
    await broker.produce("orders", 10)
    await broker.join("a", ["orders"])
    return "a"


async def test_records_are_acquired_with_their_batch(broker: ShareBroker, member: str) -> None:
    response = await broker.fetch(member, 0)
    assert lent(response) == [(0, 9, 1)]
    assert len(only_partition(response).records) > 61
    assert response.acquisition_lock_timeout_ms == 30_000
    assert (await broker.fetch(member, 1)).responses == []


async def test_accepted_records_are_not_delivered_again(broker: ShareBroker, member: str) -> None:
    await broker.fetch(member, 0)
    response = await broker.acknowledge(member, 1, (0, 8, [ACCEPT]), (9, 9, [RELEASE]))
    assert response.responses[0].partitions[0].error_code == ErrorCode.NONE
    assert lent(await broker.fetch(member, 2)) == [(9, 9, 2)]


async def test_a_fetch_acknowledges_on_the_way(broker: ShareBroker, member: str) -> None:
    await broker.fetch(member, 0)
    response = await broker.fetch(member, 1, (0, 9, [RELEASE]))
    assert lent(response) == [(0, 9, 2)]
    assert only_partition(response).acknowledge_error_code == ErrorCode.NONE
    response = await broker.fetch(member, 2, (0, 10, [ACCEPT]))
    assert only_partition(response).acknowledge_error_code == ErrorCode.INVALID_REQUEST


async def test_a_fetch_answers_its_partitions_and_its_acknowledgements(broker: ShareBroker, member: str) -> None:
    await broker.create("returns")
    await broker.join("b", ["returns"])

    async def answered_topics(epoch: int, *batches: AcknowledgementBatch) -> set[bytes]:
        listed = [
            ShareFetchTopic(broker.topic_id("orders"), [ShareFetchPartition(0, list(batches))]),
            ShareFetchTopic(broker.topic_id("returns"), [ShareFetchPartition(0)]),
        ]
        request = ShareFetchRequest("g", member, epoch, max_records=500, batch_size=500, topics=listed)
        response: ShareFetchResponse = await broker.call(request)
        return {topic.topic_id for topic in response.responses}

    orders, returns = broker.topic_id("orders"), broker.topic_id("returns")
    assert await answered_topics(0) == {orders, returns}
    assert await answered_topics(1) == set()
    assert await answered_topics(2, AcknowledgementBatch(0, 0, [ACCEPT])) == {orders, returns}
    assert await answered_topics(3, AcknowledgementBatch(0, 0, [7])) == {orders}


async def test_a_partition_at_its_limit_of_acquired_records_is_left_out(broker: ShareBroker, member: str) -> None:
    await broker.configure("g", share_partition_max_record_locks="100")
    await broker.produce("orders", 90)
    await broker.produce("orders", 1)
    assert lent(await broker.fetch(member, 0)) == [(0, 99, 1)]
    assert (await broker.fetch("b", 0)).responses == []
    await broker.acknowledge(member, 1, (0, 0, [ACCEPT]))
    assert lent(await broker.fetch("b", 1)) == [(100, 100, 1)]


async def test_an_acknowledgement_that_says_nothing_is_not_answered(broker: ShareBroker, member: str) -> None:
    await broker.fetch(member, 0)
    assert (await broker.acknowledge(member, 1)).responses == []


async def test_no_more_records_than_asked_for_in_record_limit_mode(broker: ShareBroker, member: str) -> None:
    assert lent(await broker.fetch(member, 0, max_records=3, share_acquire_mode=1)) == [(0, 2, 1)]
    assert lent(await broker.fetch(member, 1, max_records=3, share_acquire_mode=1)) == [(3, 5, 1)]


async def test_a_waiting_fetch_is_answered_when_records_come_back(broker: ShareBroker, member: str) -> None:
    await broker.fetch(member, 0)
    await broker.join("b", ["orders"])
    waiting = asyncio.ensure_future(broker.fetch("b", 0, max_wait_ms=30_000))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    await broker.acknowledge(member, 1, (4, 4, [RELEASE]))
    assert lent(await waiting) == [(4, 4, 2)]


async def test_a_waiting_fetch_is_answered_when_records_are_written(broker: ShareBroker, member: str) -> None:
    await broker.fetch(member, 0)
    waiting = asyncio.ensure_future(broker.fetch(member, 1, max_wait_ms=30_000))
    await asyncio.sleep(0.01)
    await broker.produce("orders", 2)
    assert lent(await waiting) == [(10, 11, 1)]


class Gate:
    """Lets a client read all but what was taken away from it."""

    def __init__(self) -> None:
        self.taken: set[AclResource] = set()

    def may(self, _context: Any, _api: str, _operation: Any, resource: AclResource, _name: str) -> bool:
        return resource not in self.taken


@pytest.mark.parametrize("taken", [AclResource.TOPIC, AclResource.GROUP])
@pytest.mark.parametrize("ends_by_time", [False, True])
async def test_a_waiting_fetch_gets_nothing_of_what_its_client_may_not_read_any_more(
    broker: ShareBroker, member: str, taken: AclResource, *, ends_by_time: bool
) -> None:
    gate = Gate()
    broker.node.services.gate = cast("RequestGate", gate)
    await broker.fetch(member, 0)
    waiting = asyncio.ensure_future(broker.fetch(member, 1, max_wait_ms=20 if ends_by_time else 30_000))
    await asyncio.sleep(0.01)
    gate.taken = {taken}
    if not ends_by_time:
        await broker.produce("orders", 2)
    response = await waiting
    if taken is AclResource.GROUP:
        assert response.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    else:
        answer = only_partition(response)
        assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not answer.records
    # What was not given to this client is there for others.
    gate.taken = set()
    await broker.produce("orders", 2)
    await broker.join("b", ["orders"])
    assert lent(await broker.fetch("b", 0)) == ([(10, 11, 1)] if ends_by_time else [(10, 13, 1)])


async def test_a_fetch_waits_for_its_minimum_bytes(broker: ShareBroker, member: str) -> None:
    assert lent(await broker.fetch(member, 0, min_bytes=10_000, max_wait_ms=20)) == [(0, 9, 1)]


async def test_a_fetch_that_waits_in_vain_has_nothing(broker: ShareBroker, member: str) -> None:
    await broker.fetch(member, 0)
    assert (await broker.fetch(member, 1, max_wait_ms=20)).responses == []


async def test_records_of_a_member_whose_connection_breaks_go_to_others(broker: ShareBroker, member: str) -> None:
    await broker.fetch(member, 0)
    broker.connection.close()
    assert (await broker.fetch(member, 1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    await broker.join("b", ["orders"])
    assert lent(await broker.fetch("b", 0)) == [(0, 9, 2)]


async def test_records_of_a_member_that_closes_its_session_go_to_others(broker: ShareBroker, member: str) -> None:
    await broker.fetch(member, 0)
    response = await broker.fetch(member, -1, (0, 4, [ACCEPT]))
    assert only_partition(response).acknowledge_error_code == ErrorCode.NONE
    await broker.join("b", ["orders"])
    assert lent(await broker.fetch("b", 0)) == [(5, 9, 2)]
    assert (await broker.acknowledge("b", -1)).error_code == ErrorCode.NONE
    assert (await broker.acknowledge("b", -1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


async def test_a_share_partition_leaves_memory_with_its_last_member(broker: ShareBroker, member: str) -> None:
    await broker.fetch(member, 0)
    await broker.fetch(member, -1)
    assert broker.node.services.shares.share_partitions.loaded_count == 1
    broker.connection.close()
    assert broker.node.services.shares.share_partitions.loaded_count == 0


async def test_locks_run_out(broker: ShareBroker, member: str) -> None:
    await broker.configure("g", share_record_lock_duration_ms="1000")
    assert (await broker.fetch(member, 0)).acquisition_lock_timeout_ms == 1_000
    await broker.join("b", ["orders"])  # which takes a second of the clock
    waiting = asyncio.ensure_future(broker.fetch("b", 0, max_wait_ms=10_000))
    assert lent(await waiting) == [(0, 9, 2)]
    response = await broker.acknowledge(member, 1, (0, 9, [ACCEPT]))
    assert response.responses[0].partitions[0].error_code == ErrorCode.INVALID_RECORD_STATE


async def test_locks_are_renewed_by_requests_that_only_do_that(broker: ShareBroker, member: str) -> None:
    await broker.fetch(member, 0)
    response = await broker.fetch(
        member, 1, (0, 9, [RENEW]), is_renew_ack=True, min_bytes=0, max_bytes=0, max_records=0
    )
    assert only_partition(response).acknowledge_error_code == ErrorCode.NONE
    refused = await broker.fetch(member, 2, (0, 9, [RENEW]), is_renew_ack=True, max_bytes=0)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert refused.error_message == "minBytes must be set to 0, maxRecords must be set to 0, if isRenewAck is true."
    response = await broker.fetch(member, 2, (0, 9, [RENEW]))
    assert only_partition(response).acknowledge_error_code == ErrorCode.INVALID_REQUEST


async def test_sessions_go_on_epoch_by_epoch(broker: ShareBroker, member: str) -> None:
    assert (await broker.fetch(member, 1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert (await broker.fetch(member, -1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert (await broker.fetch(member, 0, (0, 0, [ACCEPT]))).error_code == ErrorCode.INVALID_REQUEST
    await broker.fetch(member, 0)
    assert (await broker.fetch(member, 5)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert (await broker.acknowledge(member, 0)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert (await broker.acknowledge(member, 9)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH


async def test_a_fetch_whose_session_was_opened_anew_lends_nothing(broker: ShareBroker, member: str) -> None:
    await broker.fetch(member, 0)
    waiting = asyncio.ensure_future(broker.fetch(member, 1, max_wait_ms=30_000))
    await asyncio.sleep(0.01)
    await broker.fetch(member, 0)
    await broker.produce("orders", 1)
    assert (await waiting).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert lent(await broker.fetch(member, 1)) == [(10, 10, 1)]


async def test_no_more_sessions_than_allowed(tmp_path: Path) -> None:
    async with running_share_broker(tmp_path, group_share_max_share_sessions=1) as broker:
        await broker.create("orders")
        await broker.join("a", ["orders"])
        await broker.fetch("a", 0)
        assert (await broker.fetch("b", 0)).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED


async def test_partitions_are_forgotten_and_added(broker: ShareBroker, member: str) -> None:
    await broker.fetch(member, 0)
    await broker.produce("orders", 1)
    forgotten = [ShareFetchForgottenTopic(broker.topic_id("orders"), [0])]
    assert (await broker.fetch(member, 1, forgotten_topics_data=forgotten)).responses == []
    assert lent(await broker.fetch(member, 2)) == [(10, 10, 1)]


async def test_missing_partitions_are_reported_one_by_one(broker: ShareBroker, member: str) -> None:
    await broker.create("gone")
    gone_id = broker.topic_id("gone")
    await broker.fetch(member, 0, topic="gone")
    # Nobody has subscribed to it, so nothing is kept of it.
    assert only_partition(await broker.fetch(member, 0, topic="gone")).error_code == ErrorCode.INVALID_REQUEST
    await broker.node.services.topics.delete("gone")
    response = await broker.fetch(member, 1)
    errors = {topic.topic_id: topic.partitions[0].error_code for topic in response.responses}
    assert errors[gone_id] == ErrorCode.UNKNOWN_TOPIC_ID
    assert errors[broker.topic_id("orders")] == ErrorCode.NONE


@pytest.mark.parametrize(("group_id", "member_id"), [(None, "m"), ("g", None), ("g", ""), ("g", "m" * 37)])
async def test_requests_without_a_name_are_refused(
    broker: ShareBroker, group_id: str | None, member_id: str | None
) -> None:
    fetch = ShareFetchRequest(group_id=group_id, member_id=member_id)
    acknowledge = ShareAcknowledgeRequest(group_id=group_id, member_id=member_id)
    assert (await broker.call(fetch)).error_code == ErrorCode.INVALID_REQUEST
    assert (await broker.call(acknowledge)).error_code == ErrorCode.INVALID_REQUEST


async def test_acknowledgements_survive_a_restart(tmp_path: Path) -> None:
    async with running_share_broker(tmp_path) as broker:
        await broker.create("orders")
        await broker.configure("g", share_auto_offset_reset="earliest")
        await broker.produce("orders", 10)
        await broker.join("a", ["orders"])
        await broker.fetch("a", 0)
        await broker.acknowledge("a", 1, (0, 2, [ACCEPT]), (3, 3, [RELEASE]), (5, 5, [REJECT]))
    async with running_share_broker(tmp_path) as broker:
        epoch = (await broker.heartbeat("a", 0, ["orders"])).member_epoch
        assert epoch > 0
        # Of what was lent at the time nothing had been kept: it counts as never delivered.
        assert lent(await broker.fetch("a", 0)) == [(3, 3, 2), (4, 4, 1), (6, 9, 1)]


async def test_records_that_were_deleted_are_passed_over(broker: ShareBroker, member: str) -> None:
    await broker.produce("orders", 5)
    await broker.node.services.topics.delete_records({TopicPartition("orders", 0): 10})
    assert lent(await broker.fetch(member, 0)) == [(10, 14, 1)]


async def test_acquired_records_can_be_released_after_their_deletion(broker: ShareBroker, member: str) -> None:
    await broker.fetch(member, 0)
    await broker.node.services.topics.delete_records({TopicPartition("orders", 0): 10})
    response = await broker.acknowledge(member, 1, (0, 9, [ACCEPT]))
    assert response.responses[0].partitions[0].error_code == ErrorCode.NONE


async def test_a_fetch_that_meets_only_aborted_records_does_not_wait(broker: ShareBroker, member: str) -> None:
    await broker.configure("g", share_isolation_level="read_committed")
    await broker.fetch(member, 0)
    await produce_aborted(broker, "orders", 2)
    fetch = broker.fetch(member, 1, max_records=2, max_wait_ms=60_000)  # without the marker behind them
    assert lent(await asyncio.wait_for(fetch, 30)) == []
    await broker.produce("orders", 1)
    assert lent(await broker.fetch(member, 2)) == [(12, 13, 1)]


async def produce_aborted(broker: ShareBroker, topic: str, record_count: int) -> None:
    """One batch of a transaction, and its marker."""
    log = broker.node.services.topics.log(TopicPartition(topic, 0))
    assert log is not None
    guard = log.begin_verification(7, 0, 0, transaction_version_2=False)
    assert isinstance(guard, VerificationGuard)
    records = [Record(offset, broker.clock.time_ms, None, b"value", ()) for offset in range(record_count)]
    batch = build_batch(records, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert log.append(memoryview(batch), now_ms=broker.clock.time_ms, guard=guard).error is ErrorCode.NONE
    end_in_log(log, 7, committed=False, now_ms=broker.clock.time_ms)
    await log.flushed()
