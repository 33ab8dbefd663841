"""Metrics of clients with several processes: each node asks for the same, of a client that keeps its instance id."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from fencepost.client.blocking import BlockingConnection
from fencepost.client.plans import Address
from fencepost.client.session import ClientOptions
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from fencepost.protocol.messages.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
)
from fencepost.soak.free_port import free_ports
from tests.support import conditions
from tests.support.broker_processes import BrokerProcesses
from tests.support.otlp import gauge, metrics_data, point

CLIENT_METRICS = 16
NODES = 3
NEW = bytes(16)
CONTENT = metrics_data(gauge("g", point(1.0)))
until = partial(conditions.until, timeout_s=120)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcesses]:
    settings = {"fencepost.http.listener": f"127.0.0.1:{free_ports(NODES)}"}
    with BrokerProcesses(tmp_path / "data", NODES, settings=settings) as processes:
        yield processes


@contextmanager
def connected(broker: BrokerProcesses, node_id: int) -> Iterator[BlockingConnection]:
    connection = BlockingConnection(Address(broker.host, broker.port + node_id - 1), ClientOptions(client_id="shop"))
    try:
        yield connection
    finally:
        connection.close()


def asked(broker: BrokerProcesses, node_id: int, instance: bytes = NEW) -> GetTelemetrySubscriptionsResponse:
    with connected(broker, node_id) as connection:
        answer: GetTelemetrySubscriptionsResponse = connection.send(GetTelemetrySubscriptionsRequest(instance))
    return answer


def _wanted(broker: BrokerProcesses, node_id: int) -> list[str]:
    return asked(broker, node_id).requested_metrics


def pushed(broker: BrokerProcesses, node_id: int, known: GetTelemetrySubscriptionsResponse) -> int:
    push = PushTelemetryRequest(known.client_instance_id, known.subscription_id, metrics=CONTENT)
    with connected(broker, node_id) as connection:
        return int(connection.send(push).error_code)


def test_every_node_asks_for_the_same_and_a_client_keeps_its_id_on_another_and_after_a_restart(
    broker: BrokerProcesses,
) -> None:
    changes = [IncrementalAlterableConfig("metrics", 0, "org.apache.")]
    with connected(broker, 1) as connection:
        resource = IncrementalAlterConfigsResource(CLIENT_METRICS, "all", changes)
        (result,) = connection.send(IncrementalAlterConfigsRequest([resource])).responses
    assert result.error_code == 0, result.error_message
    for node_id in broker.node_ids:
        assert until(partial(_wanted, broker, node_id)) == ["org.apache."]
    first = asked(broker, 1)
    assert first.error_code == 0
    for node_id in (2, 3):
        moved = asked(broker, node_id, first.client_instance_id)
        assert moved.error_code == ErrorCode.NONE
        assert (moved.client_instance_id, moved.subscription_id) == (first.client_instance_id, first.subscription_id)
        assert pushed(broker, node_id, first) == ErrorCode.NONE
    broker.wait_for_another(2, than=broker.kill_node(2))
    broker.wait_for_answer(2)
    assert pushed(broker, 2, first) == ErrorCode.NONE
