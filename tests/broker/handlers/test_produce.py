"""Produce: which partitions get which answer, when it leaves, and what the log holds afterwards."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from fencepost.broker.handlers.produce import handle_produce
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.partition_log import Isolation
from fencepost.broker.produce.produce_append import produce_failed
from fencepost.broker.requests.api import CloseConnection
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalDisk, LocalFile
from fencepost.protocol.compression import Codec
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.handler_context import NOW_MS, HandlerBroker, batch, finished, open_broker
from tests.support.markers import end_in_log

BY_NAME = 11
TRANSACTION_VERSION_2 = 12
BY_ID = 13


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path) as opened:
        await opened.create_topic("orders", 3)
        yield opened


def produce(
    *records: tuple[int, bytes | None], topic: str = "orders", acks: int = -1, transactional_id: str | None = None
) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[PartitionProduceData(index=partition, records=sent) for partition, sent in records],
            )
        ],
    )


def transactional(
    *values: bytes, producer_id: int = 9, producer_epoch: int = 0, base_sequence: int = 0, **build: Any
) -> bytes:
    return batch(
        *values,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=True,
        **build,
    )


def answers(response: ProduceResponse) -> list[PartitionProduceResponse]:
    return [answer for topic in response.responses for answer in topic.partition_responses]


def errors(response: ProduceResponse) -> dict[int, int]:
    return {answer.index: answer.error_code for answer in answers(response)}


async def only_answer(
    broker: HandlerBroker, request: ProduceRequest, version: int = BY_NAME
) -> PartitionProduceResponse:
    (answer,) = answers(await broker.call(request, version))
    return answer


def end_offsets(broker: HandlerBroker) -> list[int]:
    return [broker.log("orders", partition).log_end_offset for partition in range(3)]


# Success


async def test_batch_is_appended_and_answered_with_its_offset(broker: HandlerBroker) -> None:
    first = await only_answer(broker, produce((0, batch(b"a", b"b"))))
    second = await only_answer(broker, produce((0, batch(b"c"))))
    assert (first.error_code, first.base_offset, second.base_offset) == (0, 0, 2)
    assert broker.log("orders").log_end_offset == 3


async def test_success_carries_no_append_time_on_a_create_time_topic(broker: HandlerBroker) -> None:
    answer = await only_answer(broker, produce((0, batch())))
    assert (answer.log_append_time_ms, answer.log_start_offset) == (-1, 0)
    assert (answer.record_errors, answer.error_message) == ([], None)


async def test_success_carries_the_append_time_on_a_log_append_time_topic(broker: HandlerBroker) -> None:
    await broker.create_topic("events", 1, {"message.timestamp.type": "LogAppendTime"})
    answer = await only_answer(broker, produce((0, batch(timestamp_ms=5)), topic="events"))
    assert (answer.error_code, answer.log_append_time_ms) == (0, NOW_MS)


async def test_every_partition_of_a_request_gets_its_own_answer(broker: HandlerBroker) -> None:
    response = await broker.call(produce((2, batch()), (9, batch()), (0, batch())), BY_NAME)
    assert [answer.index for answer in answers(response)] == [2, 9, 0]
    assert errors(response) == {2: 0, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0: 0}
    assert end_offsets(broker) == [1, 0, 1]


async def test_refused_partition_has_no_offsets(broker: HandlerBroker) -> None:
    answer = await only_answer(broker, produce((9, batch())))
    assert (answer.base_offset, answer.log_append_time_ms, answer.log_start_offset) == (-1, -1, -1)


@pytest.mark.parametrize("version", [3, 5, 7, 8, 9, 10, 11, 12])
async def test_every_version_by_name_is_served(broker: HandlerBroker, version: int) -> None:
    response = await broker.call(produce((0, batch())), version)
    assert response.responses[0].name == "orders"
    assert errors(response) == {0: 0}


async def test_version_13_names_topics_by_id(broker: HandlerBroker) -> None:
    request = produce((0, batch()), (7, batch()))
    request.topic_data[0].topic_id = broker.topic_id("orders")
    response = await broker.call(request, BY_ID)
    assert response.responses[0].topic_id == broker.topic_id("orders")
    assert errors(response) == {0: 0, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_unknown_topic_id_has_another_error_than_an_unknown_name(broker: HandlerBroker) -> None:
    request = produce((0, batch()))
    request.topic_data[0].topic_id = b"no such topic id"
    assert (await only_answer(broker, request, BY_ID)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert (await only_answer(broker, produce((0, batch()), topic="nowhere"))).error_code == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


# When the answer leaves


async def test_acks_all_is_answered_only_when_the_batch_is_durable(broker: HandlerBroker) -> None:
    outcome = broker.start(produce((0, batch())), BY_NAME)
    log = broker.log("orders")
    assert (log.log_end_offset, log.high_watermark) == (1, 0)
    response = await finished(outcome)
    assert log.high_watermark == 1
    assert errors(response) == {0: 0}


async def test_acks_all_is_answered_at_once_where_the_page_cache_is_enough(tmp_path: Path) -> None:
    async with open_broker(tmp_path, log_flush_interval_messages=10_000) as broker:
        await broker.create_topic("orders", 1)
        assert isinstance(broker.start(produce((0, batch())), BY_NAME), ProduceResponse)


async def test_acks_leader_is_answered_when_the_batch_can_be_read(broker: HandlerBroker) -> None:
    outcome = broker.start(produce((0, batch()), acks=1), BY_NAME)
    assert not isinstance(outcome, ProduceResponse)
    assert broker.log("orders").high_watermark == 0
    assert errors(await finished(outcome)) == {0: 0}
    assert broker.log("orders").high_watermark == 1


async def test_the_frame_is_released_while_the_append_becomes_durable(broker: HandlerBroker) -> None:
    context = broker.context(BY_NAME)
    outcome = handle_produce(context, produce((0, batch(b"a"))))
    assert broker.log("orders").high_watermark == 0
    assert not context.needs_frame
    await finished(outcome)


async def test_the_frame_is_needed_while_a_batch_waits_to_be_verified(broker: HandlerBroker) -> None:
    broker.verifier.is_elsewhere = True
    context = broker.context(BY_NAME)
    outcome = handle_produce(context, produce((0, transactional(b"a")), transactional_id="tx"))
    assert broker.log("orders").log_end_offset == 0
    assert context.needs_frame
    await finished(outcome)
    assert broker.log("orders").log_end_offset == 1


async def test_acks_none_is_not_answered(broker: HandlerBroker) -> None:
    assert broker.start(produce((0, batch()), acks=0), BY_NAME) is None
    assert broker.log("orders").log_end_offset == 1


async def test_acks_none_closes_the_connection_on_an_error(broker: HandlerBroker) -> None:
    with pytest.raises(CloseConnection):
        broker.start(produce((0, batch()), (9, batch()), acks=0), BY_NAME)
    assert broker.log("orders").log_end_offset == 1


async def test_duplicate_is_answered_with_the_offset_of_the_original(broker: HandlerBroker) -> None:
    sent = batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0)
    await only_answer(broker, produce((0, batch(b"before"))))
    first = await only_answer(broker, produce((0, sent)))
    again = await only_answer(broker, produce((0, sent)))
    assert (first.base_offset, again.error_code, again.base_offset) == (1, 0, 1)
    assert broker.log("orders").log_end_offset == 2


# A disk that fails


def fail(*_: object) -> None:
    raise StorageError("the disk is gone")


async def test_batch_that_cannot_be_written_is_a_storage_error(
    broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalFile, "append", fail)
    answer = await only_answer(broker, produce((0, batch())))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert broker.log("orders").is_offline


async def test_batch_that_cannot_be_made_durable_is_a_storage_error(
    broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sync(*_: object) -> None:
        fail()

    monkeypatch.setattr(LocalDisk, "sync", sync)
    response = await broker.call(produce((0, batch()), (1, batch())), BY_NAME)
    assert errors(response) == dict.fromkeys((0, 1), ErrorCode.KAFKA_STORAGE_ERROR)
    assert [answer.base_offset for answer in answers(response)] == [-1, -1]


async def test_offline_partition_does_not_hold_up_the_others(
    broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(LocalFile, "append", fail)
        await broker.call(produce((0, batch())), BY_NAME)
    response = await broker.call(produce((0, batch()), (1, batch())), BY_NAME)
    assert errors(response) == {0: ErrorCode.KAFKA_STORAGE_ERROR, 1: 0}


# Refusals of one partition


def with_magic(sent: bytes, magic: int) -> bytes:
    return sent[:16] + bytes([magic]) + sent[17:]


def with_length(sent: bytes, length: int) -> bytes:
    return sent[:8] + length.to_bytes(4, signed=True) + sent[12:]


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        pytest.param(None, ErrorCode.INVALID_RECORD, id="null"),
        pytest.param(b"", ErrorCode.INVALID_RECORD, id="empty"),
        pytest.param(batch() + batch(), ErrorCode.INVALID_RECORD, id="two batches"),
        pytest.param(batch()[:-1], ErrorCode.INVALID_RECORD, id="a torn batch"),
        pytest.param(batch()[:40], ErrorCode.INVALID_RECORD, id="less than a header"),
        pytest.param(with_magic(batch(), 1), ErrorCode.INVALID_RECORD, id="the old format"),
        pytest.param(batch()[:-1] + b"\x7f", ErrorCode.CORRUPT_MESSAGE, id="a wrong checksum"),
        pytest.param(batch(is_control=True), ErrorCode.INVALID_RECORD, id="a control batch"),
        pytest.param(batch(base_offset=5), ErrorCode.INVALID_RECORD, id="an offset of its own"),
        pytest.param(
            batch(producer_id=4, producer_epoch=0), ErrorCode.INVALID_RECORD, id="a producer without sequence"
        ),
        pytest.param(batch(b"x" * 2_000_000), ErrorCode.MESSAGE_TOO_LARGE, id="too large a batch"),
    ],
)
async def test_unacceptable_batch_is_refused_and_leaves_nothing(
    broker: HandlerBroker, sent: bytes | None, error: ErrorCode
) -> None:
    answer = await only_answer(broker, produce((0, sent)))
    assert (ErrorCode(answer.error_code), answer.base_offset) == (error, -1)
    assert end_offsets(broker) == [0, 0, 0]


async def test_keyless_record_on_a_compacted_topic_is_refused_by_its_index(broker: HandlerBroker) -> None:
    await broker.create_topic("latest", 1, {"cleanup.policy": "compact"})
    answer = await only_answer(broker, produce((0, batch(b"a", b"b")), topic="latest"))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [refused.batch_index for refused in answer.record_errors] == [0, 1]
    assert answer.error_message


async def test_record_too_far_in_the_future_is_refused(broker: HandlerBroker) -> None:
    answer = await only_answer(broker, produce((0, batch(timestamp_ms=NOW_MS + 7_200_000))))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP


async def test_zstd_needs_version_7(broker: HandlerBroker) -> None:
    sent = batch(b"a" * 100, codec=Codec.ZSTD)
    assert (await only_answer(broker, produce((0, sent)), 6)).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert (await only_answer(broker, produce((0, sent)), 7)).error_code == 0


async def test_internal_topic_takes_no_records_of_clients(broker: HandlerBroker) -> None:
    await broker.topics.ensure_internal("__consumer_offsets")
    answer = await only_answer(broker, produce((0, batch()), topic="__consumer_offsets"))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_min_insync_replicas_above_the_replica_count_refuses_no_produce(broker: HandlerBroker) -> None:
    await broker.create_topic("careful", 1, {"min.insync.replicas": "2"})
    assert (await only_answer(broker, produce((0, batch()), topic="careful"))).error_code == 0


async def test_sequence_with_a_gap_is_refused(broker: HandlerBroker) -> None:
    await only_answer(broker, produce((0, batch(producer_id=1, producer_epoch=0, base_sequence=0))))
    answer = await only_answer(broker, produce((0, batch(producer_id=1, producer_epoch=0, base_sequence=5))))
    assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


# Refusals of the whole request


@pytest.mark.parametrize("acks", [-2, 2, 100])
async def test_unknown_acks_refuse_all_that_could_be_appended(broker: HandlerBroker, acks: int) -> None:
    response = await broker.call(produce((0, batch()), (1, b""), (9, batch()), acks=acks), BY_NAME)
    assert errors(response) == {
        0: ErrorCode.INVALID_REQUIRED_ACKS,
        1: ErrorCode.INVALID_RECORD,
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert end_offsets(broker) == [0, 0, 0]


async def test_a_transactional_batch_without_a_transactional_id_counts_more_than_unknown_acks(
    broker: HandlerBroker,
) -> None:
    response = await broker.call(produce((0, transactional()), acks=2), BY_NAME)
    assert errors(response) == {0: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}


async def test_a_transactional_batch_without_a_transactional_id_counts_more_than_an_unknown_partition(
    broker: HandlerBroker,
) -> None:
    response = await broker.call(produce((9, transactional()), (0, batch())), BY_NAME)
    assert errors(response) == dict.fromkeys((0, 9), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    response = await broker.call(produce((9, b"short"), (0, batch())), BY_NAME)
    assert errors(response) == {9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0: ErrorCode.NONE}


async def test_a_refused_request_says_nothing_of_topics_without_batches(broker: HandlerBroker) -> None:
    request = produce((0, transactional()))
    request.topic_data.append(TopicProduceData(name="orders"))
    response = await broker.call(request, BY_NAME)
    assert [len(topic.partition_responses) for topic in response.responses] == [1]


async def test_transactional_batch_without_a_transactional_id_refuses_the_whole_request(broker: HandlerBroker) -> None:
    response = await broker.call(produce((0, batch()), (1, transactional())), BY_NAME)
    assert errors(response) == dict.fromkeys((0, 1), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert end_offsets(broker) == [0, 0, 0]


@pytest.mark.parametrize("other", [{"producer_id": 10}, {"producer_epoch": 1}])
async def test_two_producers_in_one_transactional_request_refuse_it(
    broker: HandlerBroker, other: dict[str, int]
) -> None:
    request = produce((0, transactional()), (1, transactional(**other)), transactional_id="t")
    response = await broker.call(request, BY_NAME)
    assert errors(response) == dict.fromkeys((0, 1), ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert all(one.error_message for topic in response.responses for one in topic.partition_responses)
    assert end_offsets(broker) == [0, 0, 0]


@pytest.mark.parametrize(
    "unreadable",
    [
        pytest.param(with_length(batch(), 0), id="no length"),
        pytest.param(with_length(batch(), -1), id="a negative length"),
        pytest.param(with_magic(batch(), 3), id="a format that does not exist"),
        pytest.param(with_length(batch(), 0)[:12], id="only a length"),
    ],
)
async def test_bytes_that_begin_no_batch_refuse_the_whole_request(broker: HandlerBroker, unreadable: bytes) -> None:
    response = await broker.call(produce((0, batch()), (1, unreadable), (9, batch())), BY_NAME)
    assert errors(response) == dict.fromkeys((0, 1, 9), ErrorCode.CORRUPT_MESSAGE)
    assert all(answer.error_message for answer in response.responses[0].partition_responses)
    assert end_offsets(broker) == [0, 0, 0]


async def test_bytes_after_a_transactional_batch_refuse_only_its_partition(broker: HandlerBroker) -> None:
    request = produce((0, transactional()), (1, with_magic(batch(), 3)), transactional_id="t")
    response = await broker.call(request, BY_NAME)
    assert errors(response)[1] == ErrorCode.CORRUPT_MESSAGE
    assert errors(response)[0] != ErrorCode.CORRUPT_MESSAGE


async def test_refused_request_with_acks_none_closes_the_connection(broker: HandlerBroker) -> None:
    with pytest.raises(CloseConnection):
        broker.start(produce((0, transactional()), acks=0), BY_NAME)


def test_failed_reply_holds_every_partition() -> None:
    request = produce((0, batch()), (1, batch()))
    assert errors(produce_failed(request, ErrorCode.UNKNOWN_SERVER_ERROR, BY_NAME)) == {0: -1, 1: -1}


# Transactions


async def test_first_batch_of_a_transaction_is_verified_and_the_next_is_not(broker: HandlerBroker) -> None:
    assert (await only_answer(broker, produce((0, transactional()), transactional_id="t"))).error_code == 0
    second = produce((0, transactional(base_sequence=1)), transactional_id="t")
    assert (await only_answer(broker, second)).error_code == 0
    assert broker.verifier.calls == [
        {
            "topic_partitions": [TopicPartition("orders", 0)],
            "transactional_id": "t",
            "producer_id": 9,
            "producer_epoch": 0,
            "add": False,
        }
    ]


async def test_version_12_has_the_partition_added_to_the_transaction(broker: HandlerBroker) -> None:
    await only_answer(broker, produce((0, transactional()), transactional_id="t"), TRANSACTION_VERSION_2)
    assert [call["add"] for call in broker.verifier.calls] == [True]


async def test_partition_that_is_not_confirmed_does_not_hold_up_the_others(broker: HandlerBroker) -> None:
    broker.verifier.answers = [
        {TopicPartition("orders", 0): ErrorCode.TRANSACTION_ABORTABLE, TopicPartition("orders", 1): ErrorCode.NONE}
    ]
    request = produce((0, transactional()), (1, transactional()), (2, batch()), transactional_id="t")
    assert errors(await broker.call(request, BY_NAME)) == {0: ErrorCode.TRANSACTION_ABORTABLE, 1: 0, 2: 0}
    assert end_offsets(broker) == [0, 1, 1]


@pytest.mark.parametrize(
    ("version", "coordinator", "answered"),
    [
        (11, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (10, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (11, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_ENOUGH_REPLICAS),
        (11, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (11, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
        (12, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (11, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (11, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
async def test_coordinator_error_is_answered_in_the_words_of_produce(
    broker: HandlerBroker, version: int, coordinator: ErrorCode, answered: ErrorCode
) -> None:
    broker.verifier.answers = [coordinator]
    answer = await only_answer(broker, produce((0, transactional()), transactional_id="t"), version)
    assert (ErrorCode(answer.error_code), answer.base_offset) == (answered, -1)
    assert len(broker.verifier.calls) == 1
    assert end_offsets(broker) == [0, 0, 0]


async def test_version_12_waits_for_the_markers_of_the_transaction_before(broker: HandlerBroker) -> None:
    broker.verifier.answers = [
        {
            TopicPartition("orders", 0): ErrorCode.NONE,
            TopicPartition("orders", 1): ErrorCode.CONCURRENT_TRANSACTIONS,
        },
        ErrorCode.NONE,
    ]
    request = produce((0, transactional()), (1, transactional()), transactional_id="t")
    assert errors(await broker.call(request, TRANSACTION_VERSION_2)) == {0: 0, 1: 0}
    assert [call["topic_partitions"] for call in broker.verifier.calls] == [
        [TopicPartition("orders", 0), TopicPartition("orders", 1)],
        [TopicPartition("orders", 1)],
    ]


async def test_version_12_does_not_wait_for_markers_for_ever(tmp_path: Path) -> None:
    async with open_broker(
        tmp_path, add_partitions_to_txn_retry_backoff_ms=1, add_partitions_to_txn_retry_backoff_max_ms=5
    ) as broker:
        await broker.create_topic("orders", 1)
        broker.verifier.answers = [ErrorCode.CONCURRENT_TRANSACTIONS] * 100
        request = produce((0, transactional()), transactional_id="t")
        assert (await only_answer(broker, request, TRANSACTION_VERSION_2)).error_code == (
            ErrorCode.CONCURRENT_TRANSACTIONS
        )
        assert 2 <= len(broker.verifier.calls) < 100


async def test_pipelined_batches_keep_their_order_while_the_first_waits_for_verification(broker: HandlerBroker) -> None:
    broker.verifier.answers = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE]
    outcomes = [
        broker.start(
            produce((0, transactional(b"v", base_sequence=sequence)), transactional_id="t"), TRANSACTION_VERSION_2
        )
        for sequence in range(3)
    ]
    responses = await asyncio.gather(*outcomes)
    assert [errors(response) for response in responses] == [{0: 0}] * 3
    assert [answers(response)[0].base_offset for response in responses] == [0, 1, 2]
    assert len(broker.verifier.calls) == 2  # the first batch opened the transaction for all
    assert broker.services.verifier.waiting == {}


async def test_batch_does_not_overtake_those_that_still_wait_when_the_transaction_is_open(
    broker: HandlerBroker,
) -> None:
    broker.verifier.answers = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE]

    def started(sequence: int) -> Any:
        request = produce((0, transactional(b"v", base_sequence=sequence)), transactional_id="t")
        return broker.start(request, TRANSACTION_VERSION_2)

    outcomes = [started(0), started(1)]
    while broker.log("orders").log_end_offset == 0:  # noqa: ASYNC110 - nothing tells of an append in the same turn
        await asyncio.sleep(0)
    # The first is in the log and has opened the transaction; the verification of the second is about to end.
    outcomes.append(started(2))
    responses = await asyncio.gather(*outcomes)
    assert [answers(response)[0].base_offset for response in responses] == [0, 1, 2]


async def test_batch_of_a_fenced_epoch_is_refused_without_asking_the_coordinator(broker: HandlerBroker) -> None:
    await only_answer(broker, produce((0, transactional(producer_epoch=3)), transactional_id="t"))
    broker.verifier.calls.clear()
    answer = await only_answer(broker, produce((0, transactional(producer_epoch=2)), transactional_id="t"))
    assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert broker.verifier.calls == []


async def test_batch_is_verified_and_appended_in_one_step_where_the_coordinator_is_here(broker: HandlerBroker) -> None:
    outcome = broker.start(produce((0, transactional()), transactional_id="t"), BY_NAME)
    assert broker.log("orders").log_end_offset == 1
    assert broker.services.verifier.waiting == {}
    assert errors(await finished(outcome)) == {0: ErrorCode.NONE}


@pytest.mark.parametrize("committed", [True, False])
async def test_a_sequence_used_again_in_the_next_transaction_is_an_error_and_not_a_repeat(
    broker: HandlerBroker, committed: bool
) -> None:
    """Answered as a repeat, the new record would be lost although its transaction commits."""
    lost = produce((0, transactional(b"lost reply")), transactional_id="t")
    await only_answer(broker, lost)
    again = await only_answer(broker, lost)
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
    log = broker.log("orders")
    end_in_log(log, 9, committed=committed)
    end_offset = log.log_end_offset
    other = await only_answer(broker, produce((0, transactional(b"new record")), transactional_id="t"))
    assert (other.error_code, other.base_offset) == (ErrorCode.UNKNOWN_PRODUCER_ID, -1)
    assert log.log_end_offset == end_offset


async def test_marker_between_verification_and_append_refuses_the_batch(broker: HandlerBroker) -> None:
    broker.verifier.is_elsewhere = True
    log = broker.log("orders")
    outcome = broker.start(produce((0, transactional()), transactional_id="t"), BY_NAME)
    end_in_log(log, 9, committed=False)
    assert errors(await finished(outcome)) == {0: ErrorCode.INVALID_TXN_STATE}


async def test_stored_batch_differs_from_the_sent_one_only_in_offset_and_epoch(broker: HandlerBroker) -> None:
    await only_answer(broker, produce((0, batch(b"first"))))
    sent = batch(b"second", codec=Codec.GZIP)
    await only_answer(broker, produce((0, sent)))
    stored = bytes(broker.log("orders").read(1, 10_000, isolation=Isolation.READ_UNCOMMITTED).records)
    assert struct.unpack_from(">q", stored) == (1,)
    assert (stored[8:12], stored[16:]) == (sent[8:12], sent[16:])


class RevokedRights:
    """A gate that allows nothing more."""

    def may(self, *asked: object) -> bool:
        return False


@pytest.mark.parametrize("waiting_count", [1, 2])
async def test_a_right_that_is_taken_away_during_the_verification_counts(
    broker: HandlerBroker, waiting_count: int
) -> None:
    broker.verifier.is_elsewhere = True
    waiting = [
        broker.start(produce((0, transactional(base_sequence=sequence)), transactional_id="t"), TRANSACTION_VERSION_2)
        for sequence in range(waiting_count)
    ]
    broker.services.gate = cast("Any", RevokedRights())
    for response in await asyncio.gather(*waiting):
        assert errors(response) == {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert broker.log("orders").log_end_offset == 0
