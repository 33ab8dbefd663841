"""Dead letters of three processes, and of three machines: none is lost or copied twice, whichever of them is killed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest

from fencepost.client.blocking import BlockingCluster, BlockingConnection
from fencepost.client.errors import ClusterError
from fencepost.client.options import addresses_of
from fencepost.client.plans import Address
from fencepost.client.session import ClientOptions
from fencepost.client.view import CoordinatorKind
from fencepost.protocol.messages.alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    ShareAcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeTopic,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
)
from fencepost.protocol.messages.share_groups import ShareGroupHeartbeatRequest
from fencepost.protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.support.broker_processes import BrokerProcesses
from tests.support.machines import Machines
from tests.support.object_server import object_server
from tests.support.postgres import postgres_server

pytestmark = pytest.mark.integration

PARTITIONS, RECORDS = 6, 300
GROUP, MEMBER, SOURCE, DEAD = "workers", "m" * 22, "orders", "dlq.orders"
REJECT = 3
OPTIONS = ClientOptions(client_id="rejecting")
SETTINGS = {"offsets.topic.num.partitions": "3", "share.coordinator.state.topic.num.partitions": "3"}
Several = BrokerProcesses | Machines


class Rejecting:
    """A member of the group that rejects all it gets."""

    def __init__(self, cluster: BlockingCluster) -> None:
        self.cluster = cluster
        self.epoch = 0

    def prepare(self) -> None:
        enabled = [CreatableTopicConfig("errors.deadletterqueue.group.enable", "true")]
        topics = [
            CreatableTopic(name=SOURCE, num_partitions=PARTITIONS, replication_factor=1),
            CreatableTopic(name=DEAD, num_partitions=4, replication_factor=1, configs=enabled),
        ]
        self.cluster.send(CreateTopicsRequest(topics=topics, timeout_ms=10_000))
        configs = {
            "share.auto.offset.reset": "earliest",
            "errors.deadletterqueue.topic.name": DEAD,
            "errors.deadletterqueue.copy.record.enable": "true",
        }
        altered = [IncrementalAlterableConfig(name, 0, value) for name, value in configs.items()]
        self.cluster.send(IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(32, GROUP, altered)]))

    def heartbeat(self) -> None:
        request = ShareGroupHeartbeatRequest(GROUP, MEMBER, self.epoch, None, [SOURCE])
        plan = self.cluster.routes.to_coordinator(
            CoordinatorKind.GROUP, GROUP, request, lambda reply: int(reply.error_code)
        )
        self.epoch = self.cluster.run(plan, 60.0).member_epoch

    def reject_once(self) -> int:
        """Reject what each partition has, over connections of their own; return the number of batches."""
        metadata = self.cluster.send(MetadataRequest(topics=[MetadataRequestTopic(name=SOURCE)]))
        nodes = {node.node_id: Address(node.host, node.port) for node in metadata.brokers}
        (topic,) = metadata.topics
        count = 0
        for partition in topic.partitions:
            if partition.leader_id not in nodes:
                return 1  # there may be some
            with self._connected(nodes[partition.leader_id]) as connection:
                count += self._reject_in(connection, topic.topic_id, partition.partition_index)
        return count

    @contextmanager
    def _connected(self, address: Address) -> Iterator[BlockingConnection]:
        connection = BlockingConnection(address, OPTIONS)
        try:
            yield connection
        finally:
            connection.close()

    def _reject_in(self, connection: BlockingConnection, topic_id: bytes, number: int) -> int:
        wanted = [ShareFetchTopic(topic_id, [ShareFetchPartition(number)])]
        fetched = connection.send(ShareFetchRequest(GROUP, MEMBER, 0, 0, 1, max_records=7, batch_size=7, topics=wanted))
        batches = [
            AcknowledgementBatch(acquired.first_offset, acquired.last_offset, [REJECT])
            for answered in fetched.responses
            for partition in answered.partitions
            for acquired in partition.acquired_records
        ]
        if batches:
            rejected = [ShareAcknowledgeTopic(topic_id, [ShareAcknowledgePartition(number, batches)])]
            connection.send(ShareAcknowledgeRequest(GROUP, MEMBER, 1, topics=rejected))
        errors = [one.error_code for answered in fetched.responses for one in answered.partitions]
        return len(batches) + any(errors)


def produce(broker: Several) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "batch.num.messages": 5})
    for number in range(RECORDS):
        producer.produce(SOURCE, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def dead_letters(broker: Several) -> Counter[bytes]:
    """The values in the dead-letter topic."""
    consumer = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.auto.commit": False})
    found: Counter[bytes] = Counter()
    try:
        ends = {number: consumer.get_watermark_offsets(ck.TopicPartition(DEAD, number), 120)[1] for number in range(4)}
        consumer.assign([ck.TopicPartition(DEAD, number, 0) for number in range(4)])
        while sum(found.values()) < sum(ends.values()):
            message: Any = consumer.poll(30)
            assert message is not None, (found, ends)
            if message.error() is None:
                found[message.value()] += 1
    finally:
        consumer.close()
    return found


@pytest.mark.timeout(600)
def test_kills_of_processes_neither_lose_dead_letters_nor_copy_them_twice(tmp_path: Path) -> None:
    with BrokerProcesses(tmp_path / "data", 3, settings=SETTINGS) as broker:
        reject_through_kills(broker, lambda node_id: broker.wait_for_another(node_id, broker.kill_node(node_id)))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_kills_of_machines_neither_lose_dead_letters_nor_copy_them_twice(tmp_path: Path) -> None:
    with (
        postgres_server(is_durable=True) as database,
        object_server(tmp_path / "objects") as objects,
        Machines(database.cluster_url(), objects.make_bucket(), tmp_path, settings=SETTINGS) as machines,
    ):
        reject_through_kills(machines, machines.replace)


def reject_through_kills(broker: Several, kill: Callable[[int], None]) -> None:
    """Reject all records while brokers are killed; the last one after the last rejection, so that no member reads."""
    with closing(BlockingCluster(addresses_of(broker.bootstrap), OPTIONS)) as cluster:
        member = Rejecting(cluster)
        member.prepare()
        produce(broker)
        kills = iter([1, 2, 3, 2])
        deadline_s = time.monotonic() + 500
        quiet_count = 0
        for turn in range(10_000):
            try:
                member.heartbeat()
                quiet_count = 0 if member.reject_once() else quiet_count + 1
            except ClusterError:
                member.epoch = 0
            node_id = next(kills, None) if turn % 2 else None
            if node_id is not None:
                kill(node_id)
            elif quiet_count > 2 and turn > 10:
                break
            assert time.monotonic() < deadline_s, broker.output
    kill(1)
    while len(dead_letters(broker)) < RECORDS:
        assert time.monotonic() < deadline_s, broker.output
        time.sleep(0.2)
    assert dead_letters(broker) == Counter({str(number).encode(): 1 for number in range(RECORDS)})
