"""A right that is revoked ends requests at once that repeat earlier ones, found by their bytes: single and together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.metadata.image import MetadataImage
from fencepost.broker.network.dispatch import Dispatcher
from fencepost.broker.requests.fetch_sessions import FetchSessionCache
from fencepost.broker.security.acls import AclOperation, AclResource
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import EqualLengthFrames, request_frame
from fencepost.protocol.messages import fetch, produce, transactions
from fencepost.protocol.messages import group_offsets as offsets
from tests.support.batch_runs import equal_batch
from tests.support.handler_context import batch
from tests.support.secured_broker import SecuredBroker, rule, secured_broker

READ, WRITE = AclOperation.READ, AclOperation.WRITE
TOPIC, GROUP, TXN = AclResource.TOPIC, AclResource.GROUP, AclResource.TRANSACTIONAL_ID
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[SecuredBroker]:
    async with secured_broker(tmp_path) as running:
        await running.create_topics(["orders"])
        yield running


def produced(version: int, broker: SecuredBroker) -> Any:
    topic_id = broker.topic_id("orders")
    partition = produce.PartitionProduceData(0, batch(b"v"))
    return produce.ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[produce.TopicProduceData("orders", topic_id, [partition])]
    )


def end_offset(broker: SecuredBroker) -> int:
    log = broker.services.topics.log(TopicPartition("orders", 0))
    assert log is not None
    return log.log_end_offset


@pytest.mark.parametrize("version", [9, 13])
async def test_a_repeated_produce_is_refused_from_the_revocation_on(broker: SecuredBroker, version: int) -> None:
    request = produced(version, broker)

    async def error() -> int:
        answered = await broker.alice.call(request, version)
        found: int = answered.responses[0].partition_responses[0].error_code
        return found

    await broker.allow(rule(WRITE, TOPIC, "orders"))
    assert [await error() for _ in range(4)] == [0] * 4
    assert broker.alice.known_count >= 2
    await broker.revoke_all()
    assert [await error() for _ in range(3)] == [REFUSED] * 3
    assert end_offset(broker) == 4
    await broker.allow(rule(WRITE, TOPIC, "orders"))
    assert [await error() for _ in range(3)] == [0] * 3
    assert end_offset(broker) == 7


async def test_a_repeated_fetch_is_refused_from_the_revocation_on(broker: SecuredBroker) -> None:
    topic = fetch.FetchTopic("orders", partitions=[fetch.FetchPartition(0, partition_max_bytes=100)])
    request = fetch.FetchRequest(topics=[topic], max_wait_ms=0)

    async def error() -> int:
        found: int = (await broker.alice.call(request, 12)).responses[0].partitions[0].error_code
        return found

    await broker.allow(rule(READ, TOPIC, "orders"))
    assert [await error() for _ in range(4)] == [0] * 4
    assert broker.alice.known_count >= 2
    await broker.revoke_all()
    assert [await error() for _ in range(3)] == [REFUSED] * 3


async def test_a_verdict_about_the_topics_of_a_fetch_is_none_about_those_of_a_session(
    broker: SecuredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epoch of a session is a field that varies: the same bytes around it may mean a session."""
    await broker.create_topics(["hidden"])
    await broker.allow(rule(READ, TOPIC, "orders"))
    monkeypatch.setattr(FetchSessionCache, "_random_id", lambda _: 7)

    def asked(session_id: int, epoch: int, *names: str) -> Any:
        topics = [
            fetch.FetchTopic(name, partitions=[fetch.FetchPartition(0, partition_max_bytes=100)]) for name in names
        ]
        return fetch.FetchRequest(topics=topics, session_id=session_id, session_epoch=epoch)

    for _ in range(4):
        assert (await broker.alice.call(asked(7, -1, "orders"), 12)).responses[0].partitions[0].error_code == 0
    assert (await broker.alice.call(asked(0, 0, "orders", "hidden"), 12)).session_id == 7
    known_count = broker.alice.known_count
    found = (await broker.alice.call(asked(7, 1, "orders"), 12)).responses
    assert broker.alice.known_count == known_count + 1
    assert [(one.topic, one.partitions[0].error_code) for one in found] == [("hidden", REFUSED)]


async def test_repeated_commits_and_transactions_are_refused_from_the_revocation_on(broker: SecuredBroker) -> None:
    committed = offsets.OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[offsets.OffsetCommitRequestTopic("orders", partitions=[offsets.OffsetCommitRequestPartition(0, 1)])],
    )
    ended = transactions.EndTxnRequest("x", committed=True)
    rights = rule(READ, TOPIC, "orders"), rule(READ, GROUP, "g"), rule(WRITE, TXN, "x")
    await broker.allow(*rights)
    for _ in range(4):
        assert (await broker.alice.call(committed, 8)).topics[0].partitions[0].error_code == 0
        assert (await broker.alice.call(ended, 3)).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    await broker.revoke_all()
    for _ in range(2):
        answered = await broker.alice.call(committed, 8)
        assert answered.topics[0].partitions[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert (await broker.alice.call(ended, 3)).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    await broker.allow(*rights[1:])
    assert (await broker.alice.call(committed, 8)).topics[0].partitions[0].error_code == REFUSED


async def test_requests_that_arrive_together_are_not_carried_out_together_without_the_right(
    broker: SecuredBroker,
) -> None:
    await broker.allow(rule(WRITE, TOPIC, "orders"))
    request = produced(9, broker)
    request.topic_data[0].partition_data[0].records = equal_batch()
    frame = bytes(request_frame(1, "client", request, 9))
    for _ in range(2):
        await broker.alice.call(request, 9)
    dispatcher = cast("Dispatcher", broker.alice._dispatcher)

    def run() -> Any:
        frames = EqualLengthFrames(memoryview(bytearray(frame * 3)), len(frame))
        return dispatcher.dispatch_run(frames, cast("Any", broker.alice.connection))

    started = run()
    assert started is not None
    assert started.requests_count == 3
    before = end_offset(broker)
    await broker.revoke_all()
    assert run() is None
    assert end_offset(broker) == before


async def test_an_allowed_request_that_repeats_asks_no_rule_again(broker: SecuredBroker) -> None:
    await broker.allow(rule(WRITE, TOPIC, "orders"))
    request = produced(9, broker)
    for _ in range(3):
        await broker.alice.call(request, 9)
    gate = cast("Any", broker.services.gate)

    def asked(*_: Any) -> Any:
        raise AssertionError("the verdict is kept with the cached request")

    gate.rights_of = asked
    assert (await broker.alice.call(request, 9)).responses[0].partition_responses[0].error_code == 0


async def test_a_topic_id_that_was_unknown_is_judged_when_it_is_known(
    broker: SecuredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verdict about an id that nobody has is not kept."""
    request = produced(13, broker)
    monkeypatch.setattr(MetadataImage, "get_by_id", lambda *_: None)
    for _ in range(3):
        answered = await broker.alice.call(request, 13)
        assert answered.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    monkeypatch.undo()
    answered = await broker.alice.call(request, 13)
    assert answered.responses[0].partition_responses[0].error_code == REFUSED


async def test_plain_records_under_a_transactional_id_do_not_let_transactional_ones_pass(
    broker: SecuredBroker,
) -> None:
    await broker.allow(rule(WRITE, TOPIC, "orders"))
    plain, transactional = produced(9, broker), produced(9, broker)
    records = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    transactional.topic_data[0].partition_data[0].records = records
    plain.transactional_id = transactional.transactional_id = "x"
    for _ in range(3):
        assert (await broker.alice.call(plain, 9)).responses[0].partition_responses[0].error_code == 0
    answered = await broker.alice.call(transactional, 9)
    expected = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert answered.responses[0].partition_responses[0].error_code == expected
