"""DescribeProducers: the producers that a partition knows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.producers import DescribeProducersRequest, PartitionResponse, TopicRequest
from tests.support.handler_context import NOW_MS, HandlerBroker, batch, open_broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path) as opened:
        await opened.create_topic("orders", 1)
        yield opened


async def describe(broker: HandlerBroker, *partitions: int) -> list[PartitionResponse]:
    request = DescribeProducersRequest(topics=[TopicRequest(name="orders", partition_indexes=list(partitions))])
    found: list[PartitionResponse] = (await broker.call(request)).topics[0].partitions
    return found


async def test_partition_without_producers_describes_none(broker: HandlerBroker) -> None:
    (found,) = await describe(broker, 0)
    assert (found.error_code, found.active_producers) == (0, [])


async def test_open_transaction_is_shown_with_its_first_offset(broker: HandlerBroker) -> None:
    log = broker.log("orders")
    log.append(memoryview(batch(b"before")), now_ms=NOW_MS)
    guard = log.begin_verification(5, 2, 0, transaction_version_2=False)
    assert not isinstance(guard, ErrorCode)
    sent = batch(b"a", b"b", producer_id=5, producer_epoch=2, base_sequence=0, is_transactional=True)
    log.append(memoryview(sent), now_ms=NOW_MS, guard=guard)
    ((producer,),) = [found.active_producers for found in await describe(broker, 0)]
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (5, 2, 1)
    assert (producer.last_timestamp, producer.current_txn_start_offset) == (NOW_MS, 1)


async def test_unknown_partition_does_not_hold_up_the_others(broker: HandlerBroker) -> None:
    assert [found.error_code for found in await describe(broker, 9, 0)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
