"""Several processes whose clients connect to other addresses than those that are bound, as in containers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient

from fencepost.cli.commands import fencepost
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.leaders import NodeEndpoint
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.soak.free_port import free_ports
from tests.differences.connection import Connection
from tests.support.broker_processes import BrokerProcesses
from tests.support.clients_of_processes import PARTITIONS, SETTINGS, Transactions, create, leaders, read, write
from tests.support.conditions import noted, until
from tests.support.loopback_proxy import Conversation, LoopbackProxy

pytestmark = pytest.mark.integration

COUNT = 3


class Forwarder(LoopbackProxy):
    """Forwards a port for each process, and keeps nothing."""

    def conversation(self) -> Conversation:
        return _Forwarded()

    def failed(self, error: Exception) -> None:
        raise error

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{self.port + index}" for index in range(COUNT)]

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses)


class _Forwarded(Conversation):
    async def request(self, frame: bytes) -> None:
        """It passes."""

    async def reply(self, frame: bytes) -> None:
        """It passes."""


@pytest.fixture
def forwarded(tmp_path: Path) -> Iterator[tuple[BrokerProcesses, Forwarder]]:
    broker = BrokerProcesses(tmp_path / "data", COUNT, settings=SETTINGS)
    proxy = Forwarder(free_ports(COUNT), broker.port, "forwarder", count=COUNT)
    broker.settings["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{proxy.port}"
    with broker, proxy:
        create(proxy.bootstrap, "orders")
        yield broker, proxy


def test_clients_transact_through_forwarded_ports_while_a_partition_moves_and_a_process_dies(
    forwarded: tuple[BrokerProcesses, Forwarder],
) -> None:
    broker, proxy = forwarded
    found = AdminClient({"bootstrap.servers": proxy.addresses[0]}).list_topics(timeout=60).brokers
    assert {node_id: f"{node.host}:{node.port}" for node_id, node in found.items()} == dict(
        enumerate(proxy.addresses, 1)
    )
    write(proxy.addresses[0], ["a"])
    transactions = Transactions(proxy.addresses[1], 2)

    def go_on() -> None:
        before = len(transactions.committed)
        until(lambda: len(transactions.committed) > before + 20, timeout_s=60)

    try:
        with noted(lambda: broker.output):
            go_on()
            move = ["cluster", "move", "orders", "0", "--to", "2", "--wait", "--bootstrap", proxy.bootstrap]
            moved = CliRunner().invoke(fencepost, move, prog_name="fencepost")
            assert moved.exit_code == 0, moved.output
            assert leaders(proxy.bootstrap)[0] == 2
            go_on()
            broker.wait_for_another(3, than=broker.kill_node(3))
            go_on()
    finally:
        transactions.stop()
    values = read(proxy.bootstrap)
    assert sorted(values["a"]) == list(range(PARTITIONS))
    transactions.check(values)


def test_a_refused_request_names_the_leaders_forwarded_port(forwarded: tuple[BrokerProcesses, Forwarder]) -> None:
    _, proxy = forwarded
    partition = leaders(proxy.bootstrap).index(2)
    with Connection("127.0.0.1", proxy.port) as connection:
        connection.send(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 12)
        (topic,) = connection.receive(3, 12).topics
        wanted = FetchPartition(partition=partition, partition_max_bytes=1_000)
        connection.send(FetchRequest(max_wait_ms=0, topics=[FetchTopic("", topic.topic_id, [wanted])]), 17)
        answer = connection.receive(1, 17)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.node_endpoints == [NodeEndpoint(2, "127.0.0.1", proxy.port + 1)]


def test_the_broker_says_which_addresses_are_bound_and_which_clients_are_given(
    forwarded: tuple[BrokerProcesses, Forwarder],
) -> None:
    broker, proxy = forwarded
    ready = re.search(r"is ready: (.*), advertised as (.*) \(", broker.output)
    assert ready is not None, broker.output
    assert ready[1].split(", ") == [broker.address(node_id) for node_id in broker.node_ids]
    assert ready[2].split(", ") == proxy.addresses
