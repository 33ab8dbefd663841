"""The requests of transactional producers, version by version, over logs in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fencepost.broker.config import Settings
from fencepost.broker.handlers.api_versions import advertised_versions
from fencepost.broker.handlers.transactions import handle_add_partitions_to_txn
from fencepost.broker.kernel.topic_partition import CONSUMER_OFFSETS_TOPIC
from fencepost.broker.requests.api import FEWEST_WRITTEN_IN_SLICES, NoConnection, RequestContext, SlicedResponse
from fencepost.broker.transaction.metadata import TransactionMetadata
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.support.transaction_handlers import TransactionHandlers, transaction_handlers

ID = "tx-1"


@pytest.fixture
async def handlers() -> AsyncIterator[TransactionHandlers]:
    async with transaction_handlers(out=2) as handlers:
        yield handlers


async def init(handlers: TransactionHandlers, version: int = 5, **fields: Any) -> InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000, **fields)
    response: InitProducerIdResponse = await handlers.call(request, version)
    return response


def topics(*partitions: int, name: str = "out") -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=name, partitions=list(partitions))]


def add(producer: InitProducerIdResponse, asked: list[AddPartitionsToTxnTopic]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=asked,
    )


def end(producer: InitProducerIdResponse, *, committed: bool = True) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=ID,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=committed,
    )


def codes(results: list[AddPartitionsToTxnTopicResult]) -> list[ErrorCode]:
    return [ErrorCode(partition.partition_error_code) for topic in results for partition in topic.results_by_partition]


@pytest.mark.parametrize("version", range(6))
async def test_every_version_of_init_producer_id_gives_an_identity(handlers: TransactionHandlers, version: int) -> None:
    first = await init(handlers, version)
    assert (first.error_code, first.producer_epoch) == (0, 0)
    again = await init(handlers, version)
    assert (again.producer_id, again.producer_epoch) == (first.producer_id, 1)
    idempotent = await handlers.call(InitProducerIdRequest(transactional_id=None), version)
    assert (idempotent.error_code, idempotent.producer_epoch) == (0, 0)
    assert idempotent.producer_id != first.producer_id


@pytest.mark.parametrize("version", [3, 4, 5])
async def test_a_fenced_init_producer_id_gets_an_error_that_its_version_has(
    handlers: TransactionHandlers, version: int
) -> None:
    first = await init(handlers)
    await init(handlers)
    fenced = await init(handlers, version, producer_id=first.producer_id, producer_epoch=first.producer_epoch)
    assert fenced.error_code == (ErrorCode.INVALID_PRODUCER_EPOCH if version < 4 else ErrorCode.PRODUCER_FENCED)
    assert (fenced.producer_id, fenced.producer_epoch) == (-1, -1)


@pytest.mark.parametrize("version", range(4))
async def test_a_client_adds_partitions_and_commits(handlers: TransactionHandlers, version: int) -> None:
    producer = await init(handlers)
    added = await handlers.call(add(producer, topics(0, 1)), version)
    assert codes(added.results_by_topic_v3_and_below) == [ErrorCode.NONE] * 2
    ended = await handlers.call(end(producer), min(version, 4))
    assert (ended.error_code, ended.producer_id) == (0, -1)
    again = await handlers.call(end(producer), min(version, 4))
    assert again.error_code == 0


@pytest.mark.parametrize("version", range(4))
async def test_a_fenced_client_gets_an_error_that_its_version_has(handlers: TransactionHandlers, version: int) -> None:
    old = await init(handlers)
    await init(handlers)
    expected = ErrorCode.INVALID_PRODUCER_EPOCH if version < 2 else ErrorCode.PRODUCER_FENCED
    added = await handlers.call(add(old, topics(0)), version)
    assert codes(added.results_by_topic_v3_and_below) == [expected]
    assert (await handlers.call(end(old), version)).error_code == expected
    request = AddOffsetsToTxnRequest(
        transactional_id=ID, producer_id=old.producer_id, producer_epoch=old.producer_epoch, group_id="group"
    )
    assert (await handlers.call(request, version)).error_code == expected


async def test_all_partitions_of_a_request_join_or_none_does(handlers: TransactionHandlers) -> None:
    producer = await init(handlers)
    asked = [*topics(0, 2), *topics(0, name="missing"), *topics(0, name=CONSUMER_OFFSETS_TOPIC)]
    added = await handlers.call(add(producer, asked), 3)
    assert codes(added.results_by_topic_v3_and_below) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ]
    assert (await handlers.call(end(producer), 3)).error_code == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [4, 5])
async def test_a_leader_adds_or_verifies_for_many_transactions(handlers: TransactionHandlers, version: int) -> None:
    producer = await init(handlers)

    def entry(asked: list[AddPartitionsToTxnTopic], **fields: Any) -> AddPartitionsToTxnTransaction:
        known: dict[str, Any] = {
            "transactional_id": ID,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
        }
        return AddPartitionsToTxnTransaction(topics=asked, **(known | fields))

    request = AddPartitionsToTxnRequest(
        transactions=[
            entry(topics(0)),
            entry(topics(0, 1), verify_only=True),
            entry(topics(0), transactional_id="unknown"),
            entry(topics(0, 9)),
        ]
    )
    response = await handlers.call(request, version)
    assert response.error_code == 0
    assert [result.transactional_id for result in response.results_by_transaction] == [ID, ID, "unknown", ID]
    assert [codes(result.topic_results) for result in response.results_by_transaction] == [
        [ErrorCode.NONE],
        [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE],
        [ErrorCode.INVALID_PRODUCER_ID_MAPPING],
        [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    ]


async def test_end_txn_version_5_gives_the_next_epoch_also_when_it_is_retried(
    handlers: TransactionHandlers,
) -> None:
    producer = await init(handlers)
    await handlers.call(add(producer, topics(0)), 3)
    for _ in range(2):
        ended = await handlers.call(end(producer), 5)
        assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (0, producer.producer_id, 1)
    refused = await handlers.call(end(producer, committed=False), 5)
    assert (refused.error_code, refused.producer_id, refused.producer_epoch) == (ErrorCode.INVALID_TXN_STATE, -1, -1)


@pytest.mark.parametrize("version", range(5))
async def test_offsets_join_a_transaction(handlers: TransactionHandlers, version: int) -> None:
    producer = await init(handlers)
    request = AddOffsetsToTxnRequest(
        transactional_id=ID, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, group_id="group"
    )
    assert (await handlers.call(request, version)).error_code == 0
    assert (await handlers.call(end(producer), 4)).error_code == 0
    marked = [log for partition, log in handlers.topics.logs.items() if partition.topic == CONSUMER_OFFSETS_TOPIC]
    await handlers.settled()
    assert sum(len(log.markers) for log in marked) == 1


@pytest.mark.parametrize("version", range(6))
async def test_a_request_that_failed_as_a_whole_names_every_partition(
    handlers: TransactionHandlers, version: int
) -> None:
    request = (
        AddPartitionsToTxnRequest(v3_and_below_topics=topics(0, 1)) if version < 4 else AddPartitionsToTxnRequest()
    )
    response = handlers.failed(request, ErrorCode.UNKNOWN_SERVER_ERROR, version)
    if version < 4:
        assert codes(response.results_by_topic_v3_and_below) == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    else:
        assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_init_producer_id_6_begins_a_two_phase_commit_where_the_broker_allows_it() -> None:
    async with transaction_handlers(Settings(transaction_two_phase_commit_enable=True), out=2) as handlers:
        # The time-out asked for is not looked at: such a transaction has none.
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=-1, enable2_pc=True)
        producer = await handlers.call(request, 6)
        assert (producer.error_code, producer.producer_epoch) == (0, 0)
        assert (producer.ongoing_txn_producer_id, producer.ongoing_txn_producer_epoch) == (-1, -1)
        described = handlers.services.transactions.find(ID)
        assert isinstance(described, TransactionMetadata)
        assert described.timeout_ms == 2**31 - 1
        added = await handlers.call(add(producer, topics(0)), 3)
        assert codes(added.results_by_topic_v3_and_below) == [ErrorCode.NONE]
        # Without keep_prepared_txn the next session aborts it like any other: this is how an operator ends it.
        again = await handlers.call(InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1000), 6)
        assert (again.error_code, again.producer_epoch) == (0, 2)


async def test_init_producer_id_6_requests_no_two_phase_commit_where_the_broker_allows_none(
    handlers: TransactionHandlers,
) -> None:
    refused = await init(handlers, 6, enable2_pc=True)
    assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert (refused.ongoing_txn_producer_id, refused.ongoing_txn_producer_epoch) == (-1, -1)
    assert (await init(handlers, 6)).error_code == 0


async def test_init_producer_id_6_keeps_the_open_transaction_and_tells_its_pair(handlers: TransactionHandlers) -> None:
    writer = await init(handlers, 6)
    await handlers.call(add(writer, topics(0)), 3)
    kept = await init(handlers, 6, keep_prepared_txn=True)
    assert (kept.error_code, kept.producer_id, kept.producer_epoch) == (0, writer.producer_id, 1)
    assert (kept.ongoing_txn_producer_id, kept.ongoing_txn_producer_epoch) == (writer.producer_id, 0)
    ended = await handlers.call(EndTxnRequest(ID, kept.producer_id, 1, committed=True), 5)
    assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (0, writer.producer_id, 2)
    late = await handlers.call(EndTxnRequest(ID, writer.producer_id, 0, committed=False), 5)
    assert late.error_code in (ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS)


@pytest.mark.parametrize("flag", ["enable2_pc", "keep_prepared_txn"])
async def test_a_two_phase_commit_without_a_transactional_id_is_no_request(
    handlers: TransactionHandlers, flag: str
) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    setattr(request, flag, True)
    assert (await handlers.call(request, 6)).error_code == ErrorCode.INVALID_REQUEST


async def test_ids_are_two_phase_by_name_for_clients_that_cannot_say_so() -> None:
    settings = Settings(
        transaction_two_phase_commit_enable=True, fencepost_two_phase_transactional_ids=("other", "tx-*")
    )
    async with transaction_handlers(settings, out=2) as handlers:
        for name, timeout_ms in (("tx-9", 2**31 - 1), ("TX-9", 1000), ("my-tx-9", 1000)):
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000)
            assert (await handlers.call(request, 3)).error_code == 0
            described = handlers.services.transactions.find(name)
            assert isinstance(described, TransactionMetadata)
            assert described.timeout_ms == timeout_ms


async def test_no_id_is_two_phase_by_name_where_the_broker_allows_no_two_phase_commit() -> None:
    async with transaction_handlers(Settings(fencepost_two_phase_transactional_ids=("*",)), out=2) as handlers:
        await init(handlers, 3)
        described = handlers.services.transactions.find(ID)
        assert isinstance(described, TransactionMetadata)
        assert described.timeout_ms < 2**31 - 1


def test_unstable_versions_are_shown_only_where_they_are_switched_on() -> None:
    for with_unstable, highest in ((False, 5), (True, 6)):
        shown = {api.api_key: api.max_version for api in advertised_versions(with_unstable=with_unstable)}
        assert shown[ApiKey.INIT_PRODUCER_ID] == highest


async def test_many_partitions_join_while_others_are_served_and_no_request_of_the_connection_overtakes_them() -> None:
    count = FEWEST_WRITTEN_IN_SLICES
    async with transaction_handlers(many=count) as handlers:
        producer = await handlers.call(InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1000), 5)
        request = add(producer, topics(*range(count), name="many"))
        context = RequestContext(handlers.services, 3, 1, "test", NoConnection())
        adding = asyncio.ensure_future(handle_add_partitions_to_txn(context, request))
        await asyncio.sleep(0)
        assert not adding.done()
        assert context.blocks_connection
        answered = await adding
        assert isinstance(answered, SlicedResponse), "it is written in slices, too"
        assert codes(answered.response.results_by_topic_v3_and_below) == [ErrorCode.NONE] * count
