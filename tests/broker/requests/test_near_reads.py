"""The broker at which a consumer reads: of its own rack, as long as it gets records there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.broker.hosting.placement import NodeAddress, SingleNodePlacement
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.log_types import Isolation
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.reads.reading import FetchedLog
from fencepost.broker.metadata.image import MetadataImage, TopicMetadata
from fencepost.broker.requests import near_reads
from fencepost.broker.requests.fetch_sessions import FetchedPartition
from fencepost.broker.requests.near_reads import STAYS_S, NearReads
from fencepost.protocol.errors import ErrorCode
from tests.support.log_world import LogWorld

READER = 7
UNCOMMITTED, COMMITTED = Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED
OFFSETS = TopicPartition("__consumer_offsets", 0)


class Nodes(SingleNodePlacement):
    """Node 1 is this one; nodes 2 and 3 are in rack b, 4 in c, 5 in none, 6 in that of node 1."""

    def __init__(self) -> None:
        super().__init__(NodeAddress(1, "a", 9092))
        self.others = [
            NodeAddress(node_id, "a", 9092, rack=rack) for node_id, rack in ((2, "b"), (3, "b"), (4, "c"), (6, "a"))
        ] + [NodeAddress(5, "a", 9092)]

    def other_nodes(self) -> list[NodeAddress]:
        return self.others

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        return 7


class Sealed:
    """Replicas with the offsets below 10, of committed records below 8."""

    def __init__(self, log: FetchedLog) -> None:
        self.log = log

    def sealed_bound(self, topic_partition: TopicPartition, isolation: Isolation) -> int:
        return 8 if isolation is COMMITTED else 10

    def find(
        self, topic_partition: TopicPartition, topic_id: bytes, offset: int, isolation: Isolation
    ) -> FetchedLog | None:
        return self.log if offset < self.sealed_bound(topic_partition, isolation) else None


def wanted(offset: int, topic: str = "orders", leader_epoch: int = -1) -> FetchedPartition:
    return FetchedPartition(topic, bytes(16), 0, offset, 1_000_000, leader_epoch)


class World:
    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.now_s = 100.0
        self.nodes = Nodes()
        self.reads = NearReads(1, "a", self.nodes, Sealed(log), monotonic_s=lambda: self.now_s)

    def node_for(self, rack: str, offset: int, isolation: Isolation = UNCOMMITTED, reader: int = READER) -> int | None:
        answer = self.reads.elsewhere(rack, reader, self.log, wanted(offset), isolation)
        return None if answer is None else answer.preferred_read_replica


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    logs = LogWorld(str(tmp_path))
    await logs.start()
    log = logs.create()
    yield World(log)
    await logs.stop()


async def test_a_consumer_is_sent_to_a_broker_of_its_rack_for_what_is_sealed(world: World) -> None:
    node = world.node_for("b", 0)
    assert node in (2, 3)
    others = iter(range(100, 105))
    assert world.node_for("b", 1, reader=next(others)) == node
    assert world.node_for("c", 9, reader=next(others)) == 4
    assert world.node_for("c", 10, reader=next(others)) is None
    assert world.node_for("c", 7, COMMITTED, reader=next(others)) == 4
    assert world.node_for("c", 8, COMMITTED, reader=next(others)) is None


async def test_a_consumer_of_the_same_rack_or_of_one_without_brokers_reads_at_the_leader(world: World) -> None:
    assert world.node_for("a", 0) is None
    assert world.node_for("d", 0) is None
    world.nodes.others = []
    assert world.node_for("b", 0) is None


async def test_deleted_records_are_the_leaders_to_refuse(world: World) -> None:
    world.log.log_start_offset = 5
    assert world.node_for("c", 4) is None


async def test_a_consumer_that_comes_back_stays_for_a_while(world: World) -> None:
    assert world.node_for("c", 3) == 4
    assert world.node_for("c", 3, reader=8) == 4
    assert world.node_for("c", 5) is None
    world.now_s += STAYS_S - 1
    assert world.node_for("c", 6) is None
    world.now_s += 1
    assert world.node_for("c", 7) == 4


async def test_the_memory_of_consumers_that_were_sent_away_is_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near_reads, "MOST_REMEMBERED", 10)
    for number in range(25):
        assert world.node_for("c", 3, reader=number) == 4
    assert len(world.reads._sent_s) == 10
    assert world.node_for("c", 3, reader=24) is None, "the newest are remembered"


@pytest.mark.parametrize(
    ("software", "error", "node_id"),
    [
        (("librdkafka", "2.12.1"), ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        (("confluent-kafka-python", "2.12.1-rdkafka-2.12.1"), ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        (("apache-kafka-java", "4"), ErrorCode.NONE, 1),
        (("kgo", "v1.22.3"), ErrorCode.NONE, 1),
        (("unknown", "unknown"), ErrorCode.NONE, 1),
    ],
)
async def test_each_client_is_sent_back_to_the_leader_in_the_way_that_it_follows(
    world: World, software: tuple[str, str], error: ErrorCode, node_id: int
) -> None:
    answer = world.reads.to_leader(wanted(10), software)
    assert (answer.error_code, answer.preferred_read_replica, answer.records) == (error, node_id, b"")


async def test_without_a_leader_nobody_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.nodes, "leader", lambda _: None)
    answer = world.reads.to_leader(wanted(10), ("kgo", "v1"))
    assert (answer.error_code, answer.preferred_read_replica) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


async def test_metadata_names_one_broker_of_each_other_rack(world: World) -> None:
    name = TopicPartition("orders", 0)
    nodes = world.reads.nodes_named(name, world.log.topic_id, 1)
    assert nodes == [world.node_for("b", 0), 4]
    without_rack = world.reads.nodes_named(name, world.log.topic_id, 5)
    assert without_rack[1:] == nodes
    assert without_rack[0] in (1, 6)
    assert world.reads.nodes_named(name, world.log.topic_id, 4) == without_rack[:2]
    assert world.reads.nodes_named(OFFSETS, bytes(16), 1) == []


async def test_partitions_of_a_rack_are_shared_among_its_brokers(world: World) -> None:
    found = {world.reads.nodes_named(TopicPartition("orders", each), world.log.topic_id, 1)[0] for each in range(20)}
    assert found == {2, 3}


@pytest.mark.parametrize(
    ("rack", "topic", "epoch", "offset", "expected"),
    [
        ("b", "orders", -1, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("a", "__consumer_offsets", -1, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("a", "orders", 6, 0, ErrorCode.FENCED_LEADER_EPOCH),
        ("a", "orders", 8, 0, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ("a", "orders", 7, 10, None),
        ("a", "missing", 7, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_a_replica_is_read_in_its_rack_by_consumers_that_know_the_leader_epoch(
    world: World, rack: str, topic: str, epoch: int, offset: int, expected: ErrorCode | None
) -> None:
    metadata = MetadataImage()
    for number, name in enumerate(("orders", OFFSETS.topic)):
        metadata.put(TopicMetadata(name, number.to_bytes(16, "big"), 1))
    assert world.reads.replica(rack, wanted(offset, topic, epoch), metadata, UNCOMMITTED) is expected
    for good_epoch in (-1, 7):
        found = world.reads.replica("a", wanted(9, "orders", good_epoch), metadata, UNCOMMITTED)
        assert found is world.log
