"""ListOffsets: the ends of a log, and the offset for a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.support.handler_context import NOW_MS, HandlerBroker, batch, open_broker
from tests.support.log_world import overwrite

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path) as opened:
        await opened.create_topic("orders", 2)
        yield opened


def list_offsets(
    *partitions: tuple[int, int], topic: str = "orders", committed: bool = False, leader_epoch: int = -1
) -> ListOffsetsRequest:
    """partitions: (partition, timestamp)."""
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=partition, timestamp=timestamp, current_leader_epoch=leader_epoch
                    )
                    for partition, timestamp in partitions
                ],
            )
        ],
    )


async def written(broker: HandlerBroker, *values: bytes, **build: Any) -> None:
    log = broker.log("orders")
    producer_id, producer_epoch = build.get("producer_id", -1), build.get("producer_epoch", -1)
    guard = log.begin_verification(producer_id, producer_epoch, 0, transaction_version_2=False)
    assert not isinstance(guard, ErrorCode)
    result = log.append(memoryview(batch(*values, **build)), now_ms=NOW_MS, guard=guard)
    assert result.error is ErrorCode.NONE
    await log.flushed()


async def look_up(
    broker: HandlerBroker, timestamp: int, version: int | None = None, **asked: Any
) -> ListOffsetsPartitionResponse:
    response = await broker.call(list_offsets((0, timestamp), **asked), version)
    found: ListOffsetsPartitionResponse = response.topics[0].partitions[0]
    return found


async def test_empty_log_starts_and_ends_at_zero(broker: HandlerBroker) -> None:
    for timestamp in (LATEST, EARLIEST, EARLIEST_LOCAL):
        found = await look_up(broker, timestamp)
        assert (found.error_code, found.offset, found.timestamp) == (0, 0, -1)


async def test_latest_is_the_high_watermark(broker: HandlerBroker) -> None:
    await written(broker, b"a", b"b")
    broker.log("orders").append(memoryview(batch(b"c")), now_ms=NOW_MS)
    assert (await look_up(broker, LATEST)).offset == 2


async def test_latest_of_read_committed_is_the_last_stable_offset(broker: HandlerBroker) -> None:
    await written(broker, b"stable")
    await written(broker, b"open", producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert (await look_up(broker, LATEST)).offset == 2
    assert (await look_up(broker, LATEST, committed=True)).offset == 1


async def test_earliest_is_the_log_start_offset(broker: HandlerBroker) -> None:
    await written(broker, b"a", b"b", b"c")
    broker.log("orders").move_log_start(2)
    for timestamp in (EARLIEST, EARLIEST_LOCAL):
        assert (await look_up(broker, timestamp)).offset == 2


async def test_timestamp_finds_the_first_record_not_before_it(broker: HandlerBroker) -> None:
    for timestamp_ms in (1000, 2000, 3000):
        await written(broker, b"v", timestamp_ms=timestamp_ms)
    found = await look_up(broker, 1500)
    assert (found.error_code, found.offset, found.timestamp) == (0, 1, 2000)


async def test_timestamp_after_every_record_finds_nothing_without_an_error(broker: HandlerBroker) -> None:
    await written(broker, b"v", timestamp_ms=1000)
    found = await look_up(broker, 1001)
    assert (found.error_code, found.offset, found.timestamp, found.leader_epoch) == (0, -1, -1, -1)


async def test_timestamp_search_ignores_records_beyond_the_readers_bound(broker: HandlerBroker) -> None:
    await written(
        broker, b"open", timestamp_ms=1000, producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    assert (await look_up(broker, 1000)).offset == 0
    assert (await look_up(broker, 1000, committed=True)).offset == -1


async def test_maximum_timestamp_is_of_the_record_and_not_of_the_end(broker: HandlerBroker) -> None:
    for timestamp_ms in (1000, 3000, 2000):
        await written(broker, b"v", timestamp_ms=timestamp_ms)
    found = await look_up(broker, MAX_TIMESTAMP)
    assert (found.offset, found.timestamp) == (1, 3000)


@pytest.mark.parametrize("timestamp", [LATEST_TIERED, EARLIEST_PENDING_UPLOAD])
async def test_tiers_hold_nothing(broker: HandlerBroker, timestamp: int) -> None:
    await written(broker, b"a")
    found = await look_up(broker, timestamp)
    assert (found.error_code, found.offset, found.timestamp) == (0, -1, -1)


@pytest.mark.parametrize(
    ("timestamp", "version"),
    [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (EARLIEST_PENDING_UPLOAD, 10), (-7, 11)],
)
async def test_special_timestamp_is_refused_before_its_version(
    broker: HandlerBroker, timestamp: int, version: int
) -> None:
    found = await look_up(broker, timestamp, version)
    assert (found.error_code, found.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)


@pytest.mark.parametrize("version", range(1, 12))
async def test_every_version_is_served(broker: HandlerBroker, version: int) -> None:
    await written(broker, b"a")
    assert (await look_up(broker, LATEST, version)).offset == 1


async def test_partition_requested_twice_is_refused_once(broker: HandlerBroker) -> None:
    response = await broker.call(list_offsets((0, LATEST), (0, EARLIEST), (1, LATEST)))
    assert [(found.partition_index, found.error_code) for found in response.topics[0].partitions] == [
        (0, ErrorCode.INVALID_REQUEST),
        (1, ErrorCode.NONE),
    ]


async def test_a_topic_requested_twice_is_answered_once_and_one_without_partitions_not_at_all(
    broker: HandlerBroker,
) -> None:
    request = list_offsets((0, LATEST))
    request.topics += [*list_offsets((1, LATEST)).topics, ListOffsetsTopic(name="others", partitions=[])]
    response = await broker.call(request)
    assert [(topic.name, [found.partition_index for found in topic.partitions]) for topic in response.topics] == [
        ("orders", [0, 1])
    ]


async def test_unknown_partition_does_not_hold_up_the_others(broker: HandlerBroker) -> None:
    response = await broker.call(list_offsets((9, LATEST), (0, LATEST)))
    assert [found.error_code for found in response.topics[0].partitions] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]


async def test_leader_epoch_is_checked_and_answered(broker: HandlerBroker) -> None:
    broker.log("orders").leader_epoch = 3
    assert (await look_up(broker, LATEST, leader_epoch=2)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (await look_up(broker, LATEST, leader_epoch=4)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    found = await look_up(broker, LATEST, leader_epoch=3)
    assert (found.error_code, found.leader_epoch) == (0, 3)


async def test_a_time_is_not_looked_for_behind_damage(broker: HandlerBroker) -> None:
    await written(broker, b"a")
    await written(broker, b"b")
    path = broker.log("orders").segments.active.files.path(".log")
    overwrite(path, 8, bytes(4))
    found = await look_up(broker, MAX_TIMESTAMP)
    assert (found.error_code, found.offset) == (ErrorCode.CORRUPT_MESSAGE, -1)
