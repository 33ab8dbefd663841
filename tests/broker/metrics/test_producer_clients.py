"""Who is behind a producer id: what is remembered, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from fencepost.broker.metrics import producer_clients
from fencepost.broker.metrics.producer_clients import ProducerClients
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.transactions import AddPartitionsToTxnRequest, EndTxnRequest
from fencepost.protocol.record_batch import Record, build_batch
from tests.support.handler_context import ManualClock


class Connection:
    """A connection that a test closes."""

    def __init__(self, port: int = 50_000) -> None:
        self.principal = "User:shop"
        self.authentication = None
        self.client_host = "192.0.2.1"
        self.client_port = port
        self.client_software = ("unknown", "unknown")
        self.connection_id = port
        self.last_activity_s = asyncio.get_running_loop().time()
        self.callbacks: list[Callable[[], None]] = []

    def add_close_callback(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def close(self) -> None:
        for callback in self.callbacks:
            callback()


class Context:
    """The part of a request's context that is looked at."""

    def __init__(self, connection: Connection, client_id: str | None = "shop") -> None:
        self.connection = connection
        self.client_id = client_id


def act(clients: ProducerClients, producer_id: int, connection: Connection, client_id: str | None = "shop") -> None:
    clients.act(producer_id, cast("Any", Context(connection, client_id)))


async def test_the_last_client_of_a_producer_id_counts() -> None:
    clock = ManualClock()
    clients = ProducerClients(clock)
    first, second = Connection(1), Connection(2)
    clients.seen(ApiKey.API_VERSIONS, first, ApiVersionsRequest("librdkafka", "2.16"))
    act(clients, 7, first)
    found = clients.get(7)
    assert found is not None
    assert (found.client.port, found.client.software, found.principal) == (1, ("librdkafka", "2.16"), "User:shop")
    first_seen_ms = found.first_seen_ms
    clock.time_ms += 5_000
    act(clients, 7, first)
    found = clients.get(7)
    assert found is not None
    assert (found.first_seen_ms, found.seen_ms) == (first_seen_ms, first_seen_ms + 5_000)
    act(clients, 7, second, "other")
    found = clients.get(7)
    assert found is not None
    assert (found.client.port, found.client_id, found.first_seen_ms) == (2, "other", first_seen_ms + 5_000)
    assert len(clients) == 1


async def test_the_oldest_is_forgotten_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_clients, "MAXIMUM_PRODUCERS", 3)
    clients = ProducerClients(ManualClock())
    connection = Connection()
    for producer_id in (1, 2, 3, 1, 4):
        act(clients, producer_id, connection)
    assert [clients.get(number) is not None for number in (1, 2, 3, 4)] == [True, False, True, True]


async def test_a_closed_connection_is_dropped_and_its_last_event_kept() -> None:
    clock = ManualClock()
    clients = ProducerClients(clock)
    connection = Connection()
    act(clients, 7, connection, None)
    clock.time_ms += 60_000
    connection.last_activity_s = asyncio.get_running_loop().time() - 10
    connection.close()
    clock.time_ms += 60_000
    found = clients.get(7)
    assert found is not None
    assert found.client.connection is None
    assert clients.last_seen_ms(found) == pytest.approx(clock.time_ms - 70_000, abs=1_000)
    assert not clients._clients
    connection.close()


async def test_a_long_client_id_is_cut() -> None:
    clients = ProducerClients(ManualClock())
    act(clients, 7, Connection(), "x" * 30_000)
    found = clients.get(7)
    assert found is not None
    assert found.client_id == "x" * 256


def produce(records: bytes | None) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=records)]
    return ProduceRequest(topic_data=[TopicProduceData(name="orders", partition_data=data)])


BATCH = bytes(build_batch([Record(offset=0, timestamp_ms=0, key=None, value=b"x")], producer_id=7))


@pytest.mark.parametrize(
    ("api_key", "request_", "producer_id"),
    [
        (ApiKey.PRODUCE, produce(BATCH), 7),
        (ApiKey.PRODUCE, produce(BATCH[:40]), -1),
        (ApiKey.PRODUCE, produce(b""), -1),
        (ApiKey.PRODUCE, produce(None), -1),
        (ApiKey.PRODUCE, ProduceRequest(), -1),
        (ApiKey.PRODUCE, produce(BATCH[:16] + b"\1" + BATCH[17:]), -1),
        (ApiKey.END_TXN, EndTxnRequest(producer_id=8), 8),
        (
            ApiKey.ADD_PARTITIONS_TO_TXN,
            AddPartitionsToTxnRequest(v3_and_below_transactional_id="a", v3_and_below_producer_id=9),
            9,
        ),
        (ApiKey.ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest(), -1),
        (ApiKey.METADATA, object(), -1),
    ],
)
async def test_requests_of_producers_name_them(api_key: ApiKey, request_: Any, producer_id: int) -> None:
    assert ProducerClients(ManualClock()).seen(api_key, Connection(), request_) == producer_id
