"""WriteTxnMarkers: every marker and partition has its own outcome, and the reply waits for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.transaction import markers
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.support.transaction_handlers import TransactionHandlers, transaction_handlers

OUT_0 = TopicPartition("out", 0)


@pytest.fixture
async def handlers() -> AsyncIterator[TransactionHandlers]:
    async with transaction_handlers(out=2) as handlers:
        yield handlers


def marker(producer_id: int, *partitions: int, topic: str = "out", committed: bool = True) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=3,
        transaction_result=committed,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(partitions))],
        coordinator_epoch=5,
    )


@pytest.mark.parametrize("version", [1, 2])
async def test_every_marker_and_partition_has_its_own_outcome(handlers: TransactionHandlers, version: int) -> None:
    request = WriteTxnMarkersRequest(
        markers=[marker(7, 0, 1), marker(8, 1, 2, committed=False), marker(9, 0, topic="x")]
    )
    response = await handlers.call(request, version)
    outcomes = [
        (
            result.producer_id,
            topic.name,
            [(partition.partition_index, partition.error_code) for partition in topic.partitions],
        )
        for result in response.markers
        for topic in result.topics
    ]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert outcomes == [(7, "out", [(0, 0), (1, 0)]), (8, "out", [(1, 0), (2, unknown)]), (9, "x", [(0, unknown)])]
    written = [
        (seen.producer_id, seen.marker.committed) for seen in handlers.topics.logs[TopicPartition("out", 1)].markers
    ]
    assert written == [(7, True), (8, False)]


async def test_a_partition_whose_log_is_elsewhere_or_not_open_yet_is_not_taken_for_unknown(
    handlers: TransactionHandlers,
) -> None:
    del handlers.topics.logs[OUT_0]
    answered = await handlers.call(WriteTxnMarkersRequest(markers=[marker(7, 0, 1), marker(-1, 0)]), 2)
    errors = [[partition.error_code for partition in result.topics[0].partitions] for result in answered.markers]
    assert errors == [[ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE], [ErrorCode.NOT_LEADER_OR_FOLLOWER]]


async def test_no_markers_are_answered_with_none(handlers: TransactionHandlers) -> None:
    assert (await handlers.call(WriteTxnMarkersRequest(), 2)).markers == []


async def test_the_reply_waits_until_all_partitions_are_durable(handlers: TransactionHandlers) -> None:
    handlers.topics.logs[OUT_0].flush_gate.clear()
    writing = asyncio.create_task(handlers.call(WriteTxnMarkersRequest(markers=[marker(7, 0, 1)]), 2))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not writing.done()
    handlers.topics.logs[OUT_0].flush_gate.set()
    assert (await writing).markers[0].topics[0].partitions[0].error_code == 0


async def test_many_markers_are_written_while_others_are_served(
    handlers: TransactionHandlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers, "SLICE_S", 0.0)
    partition_count = 10 * markers.MARKERS_PER_STEP
    handlers.topics.add("many", partition_count)
    logs = [handlers.topics.logs[TopicPartition("many", index)] for index in range(partition_count)]
    logs[3].refusal = ErrorCode.INVALID_PRODUCER_EPOCH
    request = WriteTxnMarkersRequest(markers=[marker(7, 0, 1), marker(8, *range(partition_count), topic="many")])
    writing = asyncio.ensure_future(handlers.call(request, 2))
    most_in_a_turn = before = 0
    while not writing.done():
        await asyncio.sleep(0)
        now = sum(len(log.markers) for log in logs)
        most_in_a_turn, before = max(most_in_a_turn, now - before), now
    assert 0 < most_in_a_turn <= markers.MARKERS_PER_STEP
    small, large = (await writing).markers
    assert [partition.error_code for partition in small.topics[0].partitions] == [0, 0]
    errors = {partition.partition_index: partition.error_code for partition in large.topics[0].partitions}
    assert errors == dict.fromkeys(range(partition_count), 0) | {3: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert all(log.high_watermark == log.log_end_offset for log in logs)


async def test_a_topic_may_be_deleted_while_its_markers_are_written(
    handlers: TransactionHandlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers, "SLICE_S", 0.0)
    partition_count = 10 * markers.MARKERS_PER_STEP
    handlers.topics.add("many", partition_count)
    request = WriteTxnMarkersRequest(markers=[marker(8, *range(partition_count), topic="many")])
    writing = asyncio.ensure_future(handlers.call(request, 2))
    await asyncio.sleep(0)
    handlers.topics.remove("many")
    (answered,) = (await writing).markers
    errors = [partition.error_code for partition in answered.topics[0].partitions]
    assert errors[-1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert set(errors) == {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("fails_at", ["append", "flush"])
async def test_a_failed_disk_is_reported_for_its_partition_only(handlers: TransactionHandlers, fails_at: str) -> None:
    log = handlers.topics.logs[OUT_0]
    log.disk_failed = fails_at == "append"
    log.flush_gate.clear()
    writing = asyncio.create_task(handlers.call(WriteTxnMarkersRequest(markers=[marker(7, 0, 1)]), 2))
    await asyncio.sleep(0)
    log.disk_failed = True
    log.flush_gate.set()
    outcome = [partition.error_code for partition in (await writing).markers[0].topics[0].partitions]
    assert outcome == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]


async def test_a_partition_that_goes_before_its_marker_is_durable_is_as_one_that_was_not_there(
    handlers: TransactionHandlers,
) -> None:
    log = handlers.topics.logs[OUT_0]
    log.flush_gate.clear()
    writing = asyncio.create_task(handlers.call(WriteTxnMarkersRequest(markers=[marker(7, 0, 1)]), 2))
    await asyncio.sleep(0)
    log.disk_failed = log.is_deleted = True
    log.flush_gate.set()
    outcome = [partition.error_code for partition in (await writing).markers[0].topics[0].partitions]
    assert outcome == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]


async def test_a_marker_of_no_producer_is_refused_and_one_without_partitions_left_out(
    handlers: TransactionHandlers,
) -> None:
    nobody, nothing, other = marker(-1, 0), WritableTxnMarker(producer_id=4), marker(8, 1)
    response = await handlers.call(WriteTxnMarkersRequest(markers=[nobody, nothing, other]), 2)
    outcomes = [(result.producer_id, result.topics[0].partitions[0].error_code) for result in response.markers]
    assert outcomes == [(-1, ErrorCode.INVALID_PRODUCER_EPOCH), (8, ErrorCode.NONE)]


async def test_a_marker_of_no_epoch_is_refused_where_there_is_a_partition(handlers: TransactionHandlers) -> None:
    nobody = marker(7, 0, 9)
    nobody.producer_epoch = -1
    response = await handlers.call(WriteTxnMarkersRequest(markers=[nobody]), 2)
    codes = [partition.error_code for partition in response.markers[0].topics[0].partitions]
    assert codes == [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert handlers.topics.logs[OUT_0].log_end_offset == 0


async def test_a_marker_of_a_negative_version_of_transactions_is_refused(handlers: TransactionHandlers) -> None:
    unknown = marker(7, 0)
    unknown.transaction_version = -1
    response = await handlers.call(WriteTxnMarkersRequest(markers=[unknown]), 2)
    assert response.markers[0].topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
    assert handlers.topics.logs[OUT_0].log_end_offset == 0


async def test_a_request_that_failed_as_a_whole_names_every_partition(handlers: TransactionHandlers) -> None:
    request = WriteTxnMarkersRequest(markers=[marker(7, 0, 1)])
    response = handlers.failed(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 2)
    codes = [partition.error_code for partition in response.markers[0].topics[0].partitions]
    assert codes == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 2
