"""DeleteRecords: the partition's new start, the requests that notice it, and what may not be deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory import log_directory
from fencepost.broker.log.partition_log import Isolation
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.support.handler_context import NOW_MS, HandlerBroker, batch, finished, open_broker

EARLIEST = -2
TO_HIGH_WATERMARK = -1
ORDERS = TopicPartition("orders", 0)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path) as opened:
        await opened.create_topic("orders", 2)
        yield opened


async def written(broker: HandlerBroker, count: int, topic: str = "orders", partition: int = 0) -> None:
    log = broker.log(topic, partition)
    for _ in range(count):
        log.append(memoryview(batch(b"v")), now_ms=NOW_MS)
    await log.flushed()


async def delete(
    broker: HandlerBroker, *partitions: tuple[int, int], topic: str = "orders", version: int = 2
) -> list[tuple[int, ErrorCode]]:
    """partitions: (partition, offset). Returns low watermark and error of each."""
    wanted = [DeleteRecordsPartition(partition_index=partition, offset=offset) for partition, offset in partitions]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=wanted)], timeout_ms=1000)
    (answered,) = (await broker.call(request, version)).topics
    assert answered.name == topic
    assert [answer.partition_index for answer in answered.partitions] == [partition for partition, _ in partitions]
    return [(answer.low_watermark, ErrorCode(answer.error_code)) for answer in answered.partitions]


async def test_records_of_a_topic_that_is_created_again_while_others_are_deleted_stay(
    broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(broker, 5)
    await written(broker, 5, partition=1)
    logs = broker.topics.directory
    monkeypatch.setattr(log_directory, "MOVED_PER_TURN", 1)
    deleting = logs.delete_records({ORDERS: TO_HIGH_WATERMARK, TopicPartition("orders", 1): TO_HIGH_WATERMARK})
    deleting.send(None)  # up to the first pause for others
    await broker.topics.delete("orders")
    await broker.create_topic("orders", 2)
    await written(broker, 3)
    await written(broker, 3, partition=1)
    errors = await asyncio.ensure_future(deleting)
    assert set(errors.values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert [broker.log("orders", partition).log_start_offset for partition in (0, 1)] == [0, 0]


async def earliest(broker: HandlerBroker) -> int:
    wanted = ListOffsetsTopic(name="orders", partitions=[ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)])
    (topic,) = (await broker.call(ListOffsetsRequest(replica_id=-1, topics=[wanted]))).topics
    offset: int = topic.partitions[0].offset
    return offset


def fetch(offset: int, *, max_wait_ms: int = 0) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=10_000)
    topics = [FetchTopic(topic="orders", partitions=[partition])]
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1_000_000, max_bytes=1_000_000, session_epoch=-1, topics=topics
    )


async def fetched(broker: HandlerBroker, request: FetchRequest) -> tuple[ErrorCode, int]:
    response = broker.received(await finished(broker.start(request, 12)), 12)
    (partition,) = response.responses[0].partitions
    return ErrorCode(partition.error_code), partition.log_start_offset


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_records_below_the_offset_are_gone_for_every_reader_at_once(broker: HandlerBroker, version: int) -> None:
    await written(broker, 5)
    assert await delete(broker, (0, 3), version=version) == [(3, ErrorCode.NONE)]
    assert await earliest(broker) == 3
    assert (await fetched(broker, fetch(2)))[0] is ErrorCode.OFFSET_OUT_OF_RANGE
    assert await fetched(broker, fetch(3)) == (ErrorCode.NONE, 3)


async def test_minus_one_means_the_high_watermark(broker: HandlerBroker) -> None:
    await written(broker, 5)
    assert await delete(broker, (0, TO_HIGH_WATERMARK), (1, TO_HIGH_WATERMARK)) == [
        (5, ErrorCode.NONE),
        (0, ErrorCode.NONE),
    ]


async def test_an_earlier_offset_than_before_changes_nothing(broker: HandlerBroker) -> None:
    await written(broker, 5)
    await delete(broker, (0, 4))
    assert await delete(broker, (0, 1)) == [(4, ErrorCode.NONE)]


@pytest.mark.parametrize("offset", [6, -2])
async def test_offsets_that_are_not_there_are_out_of_range(broker: HandlerBroker, offset: int) -> None:
    await written(broker, 5)
    assert await delete(broker, (0, offset)) == [(-1, ErrorCode.OFFSET_OUT_OF_RANGE)]
    assert await earliest(broker) == 0


async def test_a_partition_that_does_not_exist_is_refused_alone(broker: HandlerBroker) -> None:
    await written(broker, 2)
    assert await delete(broker, (0, 1), (9, 1)) == [
        (1, ErrorCode.NONE),
        (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert await delete(broker, (0, 1), topic="nowhere") == [(-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


@pytest.mark.parametrize(
    ("policy", "error"), [("compact", ErrorCode.POLICY_VIOLATION), ("compact,delete", ErrorCode.NONE)]
)
async def test_delete_records_needs_the_cleanup_policy_delete(
    broker: HandlerBroker, policy: str, error: ErrorCode
) -> None:
    await broker.create_topic("states", 1, {"cleanup.policy": policy})
    assert await delete(broker, (0, 0), topic="states") == [(-1 if error else 0, error)]


async def test_the_brokers_own_topics_keep_their_records(broker: HandlerBroker) -> None:
    await broker.topics.ensure_internal("__consumer_offsets")
    refused = [(-1, ErrorCode.INVALID_TOPIC_EXCEPTION)]
    assert await delete(broker, (0, TO_HIGH_WATERMARK), topic="__consumer_offsets") == refused


async def test_a_waiting_fetch_below_the_new_start_is_answered_at_once(broker: HandlerBroker) -> None:
    await written(broker, 5)
    waiting = asyncio.ensure_future(fetched(broker, fetch(2, max_wait_ms=60_000)))
    await asyncio.sleep(0)
    assert not waiting.done()
    await delete(broker, (0, 4))
    assert (await asyncio.wait_for(waiting, 30))[0] is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_an_open_transaction_holds_readers_back_no_longer_than_its_records_are_there(
    broker: HandlerBroker,
) -> None:
    log = broker.log("orders")
    guard = log.begin_verification(1, 0, 0, transaction_version_2=False)
    assert not isinstance(guard, ErrorCode)
    sent = batch(b"a", b"b", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.append(memoryview(sent), now_ms=NOW_MS, guard=guard)
    await written(broker, 1)
    assert log.last_stable_offset == 0
    await delete(broker, (0, 2))
    assert log.last_stable_offset == 2
    again = batch(b"c", producer_id=1, producer_epoch=0, base_sequence=2, is_transactional=True)
    result = log.append(memoryview(again), now_ms=NOW_MS)
    assert result.error is ErrorCode.NONE


async def test_deleted_records_stay_deleted_over_a_crash(tmp_path: Path) -> None:
    async with open_broker(tmp_path) as broker:
        await broker.create_topic("orders", 2)
        await written(broker, 5)
        await delete(broker, (0, 3))
        kept = (tmp_path / "log-start-offset-checkpoint").read_text()
        assert kept == "0\n1\norders 0 3\n"
        log = broker.log("orders")
        assert log.read(3, 100, isolation=Isolation.READ_UNCOMMITTED).error is ErrorCode.NONE


async def test_a_disk_that_fails_to_store_the_start_offset_is_reported(
    broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise StorageError("no space left")

    await written(broker, 2)
    monkeypatch.setattr(LocalDisk, "write_file", full)
    assert await delete(broker, (0, 1), (9, 0)) == [
        (-1, ErrorCode.KAFKA_STORAGE_ERROR),
        (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    monkeypatch.undo()


async def test_many_partitions_are_noted_in_one_write(broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[str] = []
    write_file = LocalDisk.write_file

    def counted(disk: LocalDisk, path: str, content: bytes, *, durable: bool) -> None:
        writes.append(path)
        write_file(disk, path, content, durable=durable)

    await written(broker, 2)
    await written(broker, 2, partition=1)
    monkeypatch.setattr(LocalDisk, "write_file", counted)
    await delete(broker, (0, 1), (1, 2))
    assert len(writes) == 1
