"""What a command has changed at one process is in force on all when the command returns."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages.acls import AclCreation, CreateAclsRequest, DeleteAclsFilter, DeleteAclsRequest
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from fencepost.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from tests.differences.connection import Connection
from tests.support.broker_processes import BrokerProcesses
from tests.support.clients_of_processes import SETTINGS
from tests.support.conditions import until
from tests.support.connected_nodes import ConnectedNodes, refused_right_after_creation

pytestmark = pytest.mark.integration

COUNT = 3
RULES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
DENY, WRITE, TOPIC, LITERAL = 2, 4, 2, 3
TOPIC_DENIED = 29


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcesses]:
    settings = {**SETTINGS, **RULES}
    with BrokerProcesses(tmp_path_factory.mktemp("confirm") / "data", COUNT, settings=settings) as broker:
        until(lambda: len(broker.output) > 0 and len(_alive(broker)) == COUNT)
        yield broker
        assert "change_not_confirmed" not in broker.output


@pytest.fixture(scope="module")
def nodes(broker: BrokerProcesses) -> Iterator[ConnectedNodes]:
    with ExitStack() as cleanup:
        connections = [Connection(broker.host, broker.port + number) for number in range(COUNT)]
        for connection in connections:
            cleanup.callback(connection.close)
        yield ConnectedNodes(connections)


def _alive(broker: BrokerProcesses) -> set[int]:
    with Connection(broker.host, broker.port) as connection:
        connection.send(MetadataRequest(topics=[]), 9)
        return {one.node_id for one in connection.receive(ApiKey.METADATA, 9).brokers}


def test_a_topic_is_written_and_read_at_the_leader_that_any_node_names_as_soon_as_its_creation_returns(
    nodes: ConnectedNodes,
) -> None:
    assert refused_right_after_creation(nodes, 300) == []


def test_a_right_counts_on_all_nodes_as_soon_as_the_command_returns(nodes: ConnectedNodes) -> None:
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


def test_users_are_known_and_forgotten_on_all_nodes_as_soon_as_the_command_returns(nodes: ConnectedNodes) -> None:
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


def test_what_is_refused_asks_no_node_for_confirmation(broker: BrokerProcesses, nodes: ConnectedNodes) -> None:
    wrong, fine = CreatableTopic("wrong name!", 1, 1), CreatableTopic("fine", 1, 1)
    refused = [
        (CreateTopicsRequest(topics=[wrong], timeout_ms=10_000), 5),
        (CreateTopicsRequest(topics=[fine], timeout_ms=10_000, validate_only=True), 5),
        (CreateTopicsRequest(topics=[], timeout_ms=10_000), 5),
        (DeleteTopicsRequest(topic_names=["unknown"], timeout_ms=10_000), 5),
        (MetadataRequest(topics=[MetadataRequestTopic(name="wrong name!")], allow_auto_topic_creation=True), 9),
    ]
    process_id = broker.freeze_node(COUNT)
    try:
        for request, version in refused:
            nodes.call(0, request, version)
    finally:
        os.kill(process_id, signal.SIGCONT)
    assert "change_not_confirmed" not in broker.output
