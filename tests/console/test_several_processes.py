"""The console of a broker of several processes: what any of them knows is on its pages."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.client.blocking import BlockingConnection
from fencepost.client.plans import Address
from fencepost.client.session import ClientOptions
from fencepost.console.options import ConsoleOptions
from fencepost.protocol.messages.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from fencepost.soak.free_port import free_ports
from tests.console.running import RunningConsole
from tests.support.broker_processes import BrokerProcesses
from tests.support.otlp import gauge, metrics_data, point

pytestmark = pytest.mark.integration

IDS = [f"id-{number}" for number in range(12)]
PARTITIONS = 12


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """A console of three processes, with open transactions at all coordinators."""
    http = free_ports(3)
    settings = {"fencepost.http.listener": f"127.0.0.1:{http}", "transaction.state.log.num.partitions": "6"}
    with BrokerProcesses(tmp_path_factory.mktemp("several") / "data", 3, settings=settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result()
        producers = []
        for name in IDS:
            producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name, "client.id": name})
            producer.init_transactions(60)
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                producer.produce("orders", name, partition=partition)
            assert producer.flush(60) == 0
            producers.append(producer)
        options = ConsoleOptions(
            bootstrap=((broker.host, broker.port),),
            broker_http=",".join(f"http://127.0.0.1:{port}" for port in range(http, http + 3)),
        )
        with RunningConsole(options) as running:
            yield running


def page(console: RunningConsole, path: str) -> str:
    with console.browser() as browser:
        answer = browser.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text


def test_the_transactions_of_all_coordinators_are_listed(console: RunningConsole) -> None:
    deadline = time.monotonic() + 60
    while True:
        shown = page(console, "/transactions")
        if all(f"id={name}" in shown for name in IDS):
            break
        assert time.monotonic() < deadline, shown
        time.sleep(0.2)


@pytest.mark.parametrize("partition", [0, 5, 11])
def test_a_stuck_partition_of_any_node_names_its_client(console: RunningConsole, partition: int) -> None:
    shown = page(console, f"/stuck/orders/{partition}")
    assert "The transaction of id-0 is still open" in shown
    assert "User:ANONYMOUS" in shown


def test_the_connections_of_all_nodes_are_listed(console: RunningConsole) -> None:
    shown = page(console, "/connections")
    counted = re.search(r"Open connections\D*(\d+)", re.sub(r"<[^>]+>", " ", shown))
    assert counted is not None
    assert int(counted[1]) >= 3 * len(IDS), "each producer is connected to each node"
    listeners = shown[shown.index("Listeners") : shown.index("Open connections")]
    assert len(set(re.findall(r"127\.0\.0\.1:(\d+)", listeners))) == 3


def test_the_metrics_that_a_client_pushes_are_counted_at_its_connection(console: RunningConsole) -> None:
    ((host, port),) = console.bootstrap
    client = BlockingConnection(Address(host, port), ClientOptions(client_id="self-measured"))
    try:
        known = client.send(GetTelemetrySubscriptionsRequest())
        content = metrics_data(*(gauge(f"metric.{number}", point(1.0)) for number in range(471)))
        push = PushTelemetryRequest(known.client_instance_id, known.subscription_id, metrics=content)
        assert client.send(push).error_code == 0
        shown = page(console, "/connections?q=self-measured")
    finally:
        client.close()
    (row,) = [one for one in shown.split("<tr>") if "self-measured</td>" in one]
    assert re.search(r'<td class="number">471</td>', row)


@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_each_node_has_its_settings_and_log_levels(console: RunningConsole, node_id: int) -> None:
    assert f"Settings of broker {node_id}" in page(console, f"/settings?broker={node_id}")
    assert "broker.security.audit" in page(console, f"/log-levels?broker={node_id}")
