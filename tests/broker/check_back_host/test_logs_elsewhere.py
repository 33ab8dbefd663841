"""Logs that another node leads, read and written through that node: as if they were led here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from fencepost.broker.check_back_host.committed_reads import CommittedRead
from fencepost.broker.check_back_host.logs import LogHere, PlainRecord, ReadableLog
from fencepost.broker.check_back_host.logs_elsewhere import LogElsewhere
from fencepost.broker.hosting.peers import TcpPeers
from fencepost.broker.hosting.placement import NodeAddress
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.node import Node
from fencepost.check_back.ports import Unavailable
from tests.broker.test_node import running

PLACE = TopicPartition("orders", 0)
OPEN_PRODUCER, ABORTED_PRODUCER, COMMITTED_PRODUCER = 7, 8, 9


class World:
    """A node with the topic `orders`, and its log: on the node, and through it."""

    def __init__(self, node: Node, peers: TcpPeers) -> None:
        log = node.services.topics.log(PLACE)
        assert log is not None
        self.log: PartitionLog = log
        self.node = node
        self.here = LogHere(log, node.services.clock)
        self.elsewhere = LogElsewhere(PLACE, 1, peers, node.services.clock)
        self.missing = LogElsewhere(TopicPartition("missing", 0), 1, peers, node.services.clock)

    def append(self, value: bytes, producer_id: int) -> None:
        self.log.append_records([PlainRecord(b"k", value)], now_ms=1_000, producer=(producer_id, 0))

    def end(self, producer_id: int, *, committed: bool) -> None:
        self.log.append_marker(producer_id, 0, committed, coordinator_epoch=0, transaction_version=0, now_ms=2_000)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running(tmp_path) as node:
        await node.services.topics.create(PLACE.topic, 1, {})
        peers = TcpPeers(2, lambda _: NodeAddress(1, node.address.host, node.address.port))
        yield World(node, peers)
        await peers.close()


async def committed(log: ReadableLog) -> list[bytes | None]:
    return [record.value async for record, _ in CommittedRead().records(log)]


either = pytest.mark.parametrize("where", [lambda w: w.here, lambda w: w.elsewhere], ids=["here", "elsewhere"])
Where = Callable[[World], ReadableLog]


@either
async def test_what_is_appended_is_durable_and_read_again(world: World, where: Where) -> None:
    log = where(world)
    assert log.place == PLACE
    await log.append([PlainRecord(b"a", b"1"), PlainRecord(b"b", None)])
    await log.append([PlainRecord(None, b"3")])
    assert world.log.high_watermark == 3
    assert await committed(log) == [b"1", None, b"3"]
    assert (await log.high_watermark(), await log.last_stable_offset()) == (3, 3)


@either
async def test_a_log_without_transactions_of_its_own_is_read_past_those_of_strangers(
    world: World, where: Where
) -> None:
    await world.here.append([PlainRecord(b"k", b"before")])
    world.append(b"open", OPEN_PRODUCER)
    await world.here.append([PlainRecord(b"k", b"behind")])
    reading = CommittedRead(is_committed=False)
    found = [record.value async for record, _ in reading.records(where(world))]
    assert found == [b"before", b"open", b"behind"]
    assert reading.next_offset == 3
    assert await committed(where(world)) == [b"before"]


@either
async def test_only_committed_records_are_read_and_none_behind_an_open_transaction(world: World, where: Where) -> None:
    world.append(b"aborted", ABORTED_PRODUCER)
    world.end(ABORTED_PRODUCER, committed=False)
    world.append(b"committed", COMMITTED_PRODUCER)
    world.end(COMMITTED_PRODUCER, committed=True)
    world.append(b"open", OPEN_PRODUCER)
    await world.here.append([PlainRecord(b"k", b"behind")])
    log = where(world)
    assert await committed(log) == [b"committed"]
    assert (await log.high_watermark(), await log.last_stable_offset()) == (6, 4)


@either
async def test_a_read_goes_on_where_deleted_records_end(world: World, where: Where) -> None:
    for number in range(4):
        await world.here.append([PlainRecord(b"k", b"%d" % number)])
    await world.node.services.topics.delete_records({PLACE: 2})
    assert await committed(where(world)) == [b"2", b"3"]


async def test_a_node_that_does_not_lead_the_partition_is_no_answer(world: World) -> None:
    with pytest.raises(Unavailable, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await world.missing.read(0)
    with pytest.raises(Unavailable, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await world.missing.append([PlainRecord(b"k", b"v")])
    with pytest.raises(Unavailable, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await world.missing.high_watermark()
