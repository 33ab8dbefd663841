"""A broker of several processes with protected listeners: how the processes know each other, and which addresses the
clients of each listener get."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages.cluster import DescribeClusterRequest
from fencepost.protocol.messages.coordinators import FindCoordinatorRequest
from fencepost.soak.free_port import free_ports
from tests.differences.connection import Connection, Login
from tests.support import conditions
from tests.support.broker_processes import BrokerProcesses
from tests.support.certificates import Authority
from tests.support.clients_of_processes import retried

pytestmark = pytest.mark.integration

COUNT = 3
PARTITIONS = 12
PATIENCE_S = 60.0
until = partial(conditions.until, timeout_s=PATIENCE_S)
T = TypeVar("T")
SMALL = {
    "transaction.state.log.num.partitions": "6",
    "offsets.topic.num.partitions": "6",
    "share.coordinator.state.topic.num.partitions": "6",
}
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = 'user_admin="admin-secret" user_alice="alice-secret" user_broker="broker-secret"'
ADMIN = Login("admin", "admin-secret")
GROUP, TRANSACTION = 0, 1


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def processes(directory: Path, listeners: Mapping[str, str], settings: Mapping[str, str]) -> BrokerProcesses:
    """Three processes. listeners: the protocol of each by name, in order; `port_of` says where they are."""
    broker = BrokerProcesses(directory / "data", COUNT, settings={**SMALL, **settings})
    first = free_ports(COUNT * len(listeners))
    places = [f"{name}://127.0.0.1:{first + COUNT * number}" for number, name in enumerate(listeners)]
    protocols = [f"{name}:{protocol}" for name, protocol in listeners.items()]
    broker.config = directory / "server.properties"
    broker.config.write_text(f"listeners={','.join(places)}\nlistener.security.protocol.map={','.join(protocols)}\n")
    broker.port = first
    return broker


def work_across_processes(client: Mapping[str, Any]) -> None:
    """A topic, and transactions with offsets, whose coordinators and partitions are on all processes."""
    admin = AdminClient(dict(client))
    admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result()
    until(lambda: {one.leader for one in admin.list_topics("orders").topics["orders"].partitions.values()} == {1, 2, 3})
    for number in range(4):
        producer = Producer({**client, "transactional.id": f"id-{number}"})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce("orders", str(number), partition=partition)
        consumer = Consumer({**client, "group.id": f"group-{number}"})
        offsets = [TopicPartition("orders", partition, number + 1) for partition in range(PARTITIONS)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), PATIENCE_S)
        producer.commit_transaction(PATIENCE_S)
        consumer.close()
    consumer = Consumer({**client, "group.id": "group-3", "isolation.level": "read_committed"})
    committed = retried(lambda: consumer.committed(offsets, PATIENCE_S))
    assert [one.offset for one in committed] == [4] * PARTITIONS
    consumer.assign([TopicPartition("orders", partition, 0) for partition in range(PARTITIONS)])
    found: list[str] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < 4 * PARTITIONS:
        assert time.monotonic() < deadline, found
        found.extend(one.value().decode() for one in consumer.consume(100, 0.2) if not one.error())
    assert sorted(found) == sorted([str(number) for number in range(4)] * PARTITIONS)
    consumer.close()


def logged_in(bootstrap: str, protocol: str = "SASL_PLAINTEXT", login: Login = ADMIN) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": protocol,
        "sasl.mechanism": "PLAIN",
        "sasl.username": login.user,
        "sasl.password": login.password,
    }


def ports(bootstrap_port: int) -> set[int]:
    return set(range(bootstrap_port, bootstrap_port + COUNT))


def shown_ports(connection: Connection) -> set[int]:
    """The ports in all answers that name brokers: DescribeCluster, and FindCoordinator of many groups and ids."""
    connection.send(DescribeClusterRequest(), 0)
    shown = {one.port for one in connection.receive(ApiKey.DESCRIBE_CLUSTER, 0).brokers}
    for key_type in (GROUP, TRANSACTION):
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[f"key-{number}" for number in range(30)])
        until(lambda: _coordinator_ports(connection, request))  # noqa: B023  # called at once
        shown |= _coordinator_ports(connection, request)
    return shown


def _coordinator_ports(connection: Connection, request: FindCoordinatorRequest) -> set[int]:
    connection.send(request, 4)
    found = connection.receive(ApiKey.FIND_COORDINATOR, 4).coordinators
    return set() if any(one.error_code for one in found) else {one.port for one in found}


def test_processes_need_no_setting_to_know_each_other_where_clients_log_in_and_have_rights(tmp_path: Path) -> None:
    settings = {
        **AUTHORIZER,
        "super.users": "User:admin",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": f"{PLAIN} {USERS};",
    }
    with processes(tmp_path, {"CLIENTS": "SASL_PLAINTEXT"}, settings) as broker:
        work_across_processes(logged_in(broker.bootstrap))
        stranger = AdminClient(logged_in(broker.bootstrap, login=Login("alice", "alice-secret")))
        creating = stranger.create_topics([NewTopic("others", 1, 1)])["others"]
        with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
            creating.result()
        assert "Traceback" not in broker.output, broker.output
        assert broker.terminate() == 0


def test_the_clients_of_each_listener_get_its_addresses_and_nodes_log_in_at_theirs(
    tmp_path: Path, authority: Authority
) -> None:
    server = authority.server()
    settings = {
        **AUTHORIZER,
        "super.users": "User:admin;User:broker;User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "inter.broker.listener.name": "NODES",
        "listener.name.nodes.plain.sasl.jaas.config": (
            f'{PLAIN} username="broker" password="broker-secret" user_broker="broker-secret";'
        ),
        "listener.name.external.plain.sasl.jaas.config": f"{PLAIN} {USERS};",
        "ssl.keystore.location": str(server.both),
        "ssl.truststore.location": str(authority.path),
    }
    listeners = {"LOCAL": "PLAINTEXT", "EXTERNAL": "SASL_SSL", "NODES": "SASL_SSL"}
    with processes(tmp_path, listeners, settings) as broker:
        local, external = broker.port, broker.port + COUNT
        client = logged_in(f"127.0.0.1:{external}", "SASL_SSL") | {"ssl.ca.location": str(authority.path)}
        work_across_processes(client)
        seen = AdminClient(client).list_topics(timeout=PATIENCE_S)
        assert {one.port for one in seen.brokers.values()} == ports(external)
        for port in ports(local):
            with Connection("127.0.0.1", port) as connection:
                assert shown_ports(connection) == ports(local)
        assert "Traceback" not in broker.output, broker.output


def test_nodes_know_each_other_by_their_certificates(tmp_path: Path, authority: Authority) -> None:
    node = authority.server("node")
    settings = {
        **AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:node",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/",
        "inter.broker.listener.name": "NODES",
        "listener.name.nodes.ssl.client.auth": "required",
        "ssl.keystore.location": str(node.both),
        "ssl.truststore.location": str(authority.path),
    }
    with processes(tmp_path, {"LOCAL": "PLAINTEXT", "NODES": "SSL"}, settings) as broker:
        work_across_processes({"bootstrap.servers": broker.bootstrap})
        assert "refused" not in broker.output, broker.output


def test_nodes_with_a_wrong_password_say_so_and_try_again_with_pauses(tmp_path: Path) -> None:
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "inter.broker.listener.name": "NODES",
        "listener.name.nodes.plain.sasl.jaas.config": (
            f'{PLAIN} username="broker" password="wrong" user_broker="broker-secret";'
        ),
    }
    with processes(tmp_path, {"LOCAL": "PLAINTEXT", "NODES": "SASL_PLAINTEXT"}, settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result()
        producers = []
        for number in range(6):
            producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"id-{number}"})
            producer.init_transactions(PATIENCE_S)
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                producer.produce("orders", "x", partition=partition)
            producer.poll(0)
            producers.append(producer)
        line = broker.wait_for_output("node_not_logged_in_to")
        assert "it refuses the log-in as broker: Authentication failed" in line
        time.sleep(3)
        assert broker.output.count("node_not_logged_in_to") < 40, broker.output
        for producer in producers:
            producer.purge()
