"""A connection to each node of a broker, for what one has changed and others are to know."""

from __future__ import annotations

import time
from typing import Any

from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from tests.differences.connection import Connection
from tests.support.handler_context import batch

UNKNOWN_TOPIC = 3


class ConnectedNodes:
    """A connection to each process."""

    def __init__(self, connections: list[Connection]) -> None:
        self._connections = connections
        self.count = len(connections)

    def call(self, node: int, request: Any, version: int) -> Any:
        connection = self._connections[node % self.count]
        connection.send(request, version)
        return connection.receive(request.api_key, version)

    def create(self, node: int, name: str, partitions: int = 1) -> None:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        reply = self.call(node, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
        assert reply.topics[0].error_code == 0

    def leader(self, node: int, name: str, partition: int = 0) -> int:
        """Which of the connections goes to the leader that a node names."""
        found = self.call(node, MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 9).topics[0]
        assert found.error_code == 0
        return int(found.partitions[partition].leader_id) - 1

    def produce(self, node: int, name: str) -> int:
        records = batch(b"v", timestamp_ms=int(time.time() * 1000))
        data = TopicProduceData(name=name, partition_data=[PartitionProduceData(0, records)])
        reply = self.call(node, ProduceRequest(None, -1, 10_000, [data]), 12)
        return int(reply.responses[0].partition_responses[0].error_code)

    def fetch(self, node: int, name: str) -> int:
        topic = FetchTopic(topic=name, partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])
        reply = self.call(node, FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic]), 11)
        return int(reply.responses[0].partitions[0].error_code)


def refused_right_after_creation(nodes: ConnectedNodes, rounds: int) -> list[int]:
    """Create topics at one node, and use each at once at the leader that another names: the errors of what was refused.

    Every tenth topic is deleted at a third node; then none may know it any more.
    """
    refused: list[int] = []
    for number in range(rounds):
        name = f"new-{number}"
        nodes.create(number, name)
        leader = nodes.leader(number + 1, name)
        refused += [error for error in (nodes.produce(leader, name), nodes.fetch(leader, name)) if error]
        if number % 10 == 0:
            reply = nodes.call(number + 2, DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5)
            assert reply.responses[0].error_code == 0
            assert {nodes.produce(node, name) for node in range(nodes.count)} == {UNKNOWN_TOPIC}
    return refused
