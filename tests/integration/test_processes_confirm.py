"""What a command has changed at one process is in force on all when the command returns."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages.acls import AclCreation, CreateAclsRequest, DeleteAclsFilter, DeleteAclsRequest
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from fencepost.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from tests.differences.connection import Connection
from tests.support.broker_processes import BrokerProcesses
from tests.support.clients_of_processes import SETTINGS
from tests.support.conditions import until
from tests.support.handler_context import batch

pytestmark = pytest.mark.integration

COUNT = 3
RULES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
NAME_VERSION = 12
DENY, WRITE, TOPIC, LITERAL = 2, 4, 2, 3
TOPIC_DENIED, UNKNOWN_TOPIC = 29, 3


class Nodes:
    """A connection to each process."""

    def __init__(self, connections: list[Connection]) -> None:
        self._connections = connections

    def call(self, node: int, request: Any, version: int) -> Any:
        connection = self._connections[node % COUNT]
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
        reply = self.call(node, ProduceRequest(None, -1, 10_000, [data]), NAME_VERSION)
        return int(reply.responses[0].partition_responses[0].error_code)

    def fetch(self, node: int, name: str) -> int:
        topic = FetchTopic(topic=name, partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])
        reply = self.call(node, FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic]), 11)
        return int(reply.responses[0].partitions[0].error_code)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    settings = {**SETTINGS, **RULES}
    with BrokerProcesses(tmp_path_factory.mktemp("confirm") / "data", COUNT, settings=settings) as broker:
        until(lambda: len(broker.output) > 0 and len(_alive(broker)) == COUNT)
        with ExitStack() as cleanup:
            connections = [Connection(broker.host, broker.port + number) for number in range(COUNT)]
            for connection in connections:
                cleanup.callback(connection.close)
            yield Nodes(connections)
        assert "change_not_confirmed" not in broker.output


def _alive(broker: BrokerProcesses) -> set[int]:
    with Connection(broker.host, broker.port) as connection:
        connection.send(MetadataRequest(topics=[]), 9)
        return {one.node_id for one in connection.receive(ApiKey.METADATA, 9).brokers}


def test_a_topic_is_written_and_read_at_the_leader_that_any_node_names_as_soon_as_its_creation_returns(
    nodes: Nodes,
) -> None:
    refused: list[int] = []
    for number in range(300):
        name = f"new-{number}"
        nodes.create(number, name)
        leader = nodes.leader(number + 1, name)
        refused += [error for error in (nodes.produce(leader, name), nodes.fetch(leader, name)) if error]
        if number % 10 == 0:
            reply = nodes.call(number + 2, DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5)
            assert reply.responses[0].error_code == 0
            assert {nodes.produce(node, name) for node in range(COUNT)} == {UNKNOWN_TOPIC}
    assert refused == []


def test_a_right_counts_on_all_nodes_as_soon_as_the_command_returns(nodes: Nodes) -> None:
    name = "guarded"
    nodes.create(0, name)
    leader = nodes.leader(0, name)
    rule = AclCreation(TOPIC, name, LITERAL, "User:ANONYMOUS", "*", WRITE, DENY)
    chosen = DeleteAclsFilter(TOPIC, name, LITERAL, None, None, 1, 1)
    outcomes = []
    for number in range(60):
        assert nodes.call(number, CreateAclsRequest(creations=[rule]), 3).results[0].error_code == 0
        outcomes.append(nodes.produce(leader, name))
        assert len(nodes.call(number + 1, DeleteAclsRequest(filters=[chosen]), 3).filter_results[0].matching_acls) == 1
        # Without any rule for the topic everybody may write again.
        outcomes.append(nodes.produce(leader, name))
    assert outcomes == [TOPIC_DENIED, 0] * 60


def test_users_are_known_and_forgotten_on_all_nodes_as_soon_as_the_command_returns(nodes: Nodes) -> None:
    added = AlterUserScramCredentialsRequest(
        upsertions=[ScramCredentialUpsertion("u", 1, 4096, b"salt" * 4, b"x" * 32)]
    )
    removed = AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion("u", 1)])
    asked = DescribeUserScramCredentialsRequest([UserName("u")])
    found = []
    for number in range(30):
        for request in (added, removed):
            assert nodes.call(number, request, 0).results[0].error_code == 0
            found.append({bool(nodes.call(node, asked, 0).results[0].credential_infos) for node in range(COUNT)})
    assert found == [{True}, {False}] * 30
