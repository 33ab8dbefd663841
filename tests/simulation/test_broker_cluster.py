"""Partitions that move between brokers, at moments at which it is hard to keep track of them."""

from __future__ import annotations

import pytest

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.record_batch import Record, build_batch, iterate_batches, read_records
from tests.simulation.broker import SimulatedBroker
from tests.simulation.broker_cluster import BrokerCluster
from tests.simulation.client import SimulatedClient
from tests.simulation.loop import START_MS, run
from tests.simulation.world import World

OUT_0 = TopicPartition("out", 0)
SLOW_SYNC_S = 0.05


async def _create(client: SimulatedClient, broker: SimulatedBroker) -> None:
    topic = CreatableTopic(name=OUT_0.topic, num_partitions=1, replication_factor=1)
    await client.send(broker.address, CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)


async def _produce(client: SimulatedClient, broker: SimulatedBroker, value: bytes) -> int:
    """The error code."""
    batch = bytes(build_batch([Record(0, START_MS, None, value)]))
    topic = TopicProduceData(
        name=OUT_0.topic, partition_data=[PartitionProduceData(index=OUT_0.partition, records=batch)]
    )
    response = await client.send(broker.address, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 9)
    error_code: int = response.responses[0].partition_responses[0].error_code
    return error_code


async def _fetch(client: SimulatedClient, broker: SimulatedBroker) -> list[bytes | None]:
    partition = FetchPartition(partition=OUT_0.partition, fetch_offset=0, partition_max_bytes=10_000)
    request = FetchRequest(max_bytes=10_000, topics=[FetchTopic(topic=OUT_0.topic, partitions=[partition])])
    response = await client.send(broker.address, request, 11)
    content = response.responses[0].partitions[0].records or b""
    return [record.value for batch in iterate_batches(content) for record in read_records(batch)]


@pytest.mark.parametrize("after_syncs", [0.5, 1.5, 2.5])
def test_a_partition_that_goes_and_comes_back_while_its_broker_starts_is_read_anew(after_syncs: float) -> None:
    async def move_to_and_fro() -> list[bytes | None]:
        world = World(1)
        cluster = BrokerCluster(world, lambda _: 2)
        first, second = (cluster.add_broker(node_id, {}) for node_id in (1, 2))
        await first.start()
        await second.start()
        client = world.client("client")
        await _create(client, second)
        assert await _produce(client, second, b"before") == 0
        second.crash()
        second.sync_latency_s = (SLOW_SYNC_S, SLOW_SYNC_S)
        starting = world.loop.create_task(second.start())
        await world.wait(SLOW_SYNC_S * after_syncs)
        cluster.move(OUT_0, 1)
        await world.wait(SLOW_SYNC_S / 10)
        assert await _produce(client, first, b"meanwhile") == 0
        await starting
        cluster.move(OUT_0, 2)
        await world.wait(1.0)
        assert await _produce(client, second, b"after") == 0
        return await _fetch(client, second)

    assert run(move_to_and_fro()) == [b"before", b"meanwhile", b"after"]


def test_a_deposed_broker_that_has_not_heard_of_it_changes_nothing() -> None:
    async def write_in_the_dark() -> tuple[int, list[bytes | None]]:
        world = World(1)
        cluster = BrokerCluster(world, lambda _: 2)
        first, second = (cluster.add_broker(node_id, {}) for node_id in (1, 2))
        await first.start()
        await second.start()
        client = world.client("client")
        await _create(client, second)
        view = cluster.view(2)
        assert view is not None
        view.pause_updates()
        cluster.move(OUT_0, 1)
        error_code = await _produce(client, second, b"too late")
        await world.wait(1.0)
        assert await _produce(client, first, b"in time") == 0
        return error_code, await _fetch(client, first)

    error_code, values = run(write_in_the_dark())
    assert error_code != 0
    assert values == [b"in time"]
