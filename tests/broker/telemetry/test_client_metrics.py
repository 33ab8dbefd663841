"""The client instances of a node: known from their first request until they are gone, in a bounded number."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from fencepost.broker.config import Settings
from fencepost.broker.hosting.client_metrics_configs import ClientMetricsConfigs
from fencepost.broker.kernel.clock import SteadyClock, SystemClock
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.telemetry import client_metrics
from fencepost.broker.telemetry.client_metrics import ZERO_ID, ClientMetrics, instance_text
from fencepost.protocol.compression import Codec, compress
from fencepost.protocol.errors import ErrorCode
from tests.support.handler_context import ManualClock
from tests.support.otlp import gauge, metrics_data, point

INTERVAL_MS = 60_000
TELEMETRY_MAX_BYTES = 1_048_576
MOST_BYTES_OF_AN_INSTANCE = 2_500
"""Of memory, with its place among the instances of its connection."""
CONTENT = metrics_data(gauge("g", point(1.0)))


class Connection:
    """A connection that a test closes."""

    client_host = "192.0.2.1"
    client_port = 50_000
    client_software = ("librdkafka", "2.6")

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []

    def add_close_callback(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def close(self) -> None:
        for callback in self.callbacks:
            callback()


class World:
    """The client metrics of a node with an HTTP listener, whose clock a test moves."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.configs = ClientMetricsConfigs(InMemoryMetadataStore())
        self.ids = iter(bytes(12) + number.to_bytes(4, "big") for number in range(10, 100))
        chosen = Settings(**{"fencepost_http_listener": "127.0.0.1:0"} | settings)
        self.metrics = ClientMetrics(self.configs, chosen, self.clock, lambda: next(self.ids))

    async def subscribe(self, **configs: str) -> None:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        error, message = await self.configs.alter("all", lambda _: named, validate_only=False)
        assert error is ErrorCode.NONE, message

    async def push(
        self, key: bytes, connection: Connection, content: bytes = CONTENT, codec: Codec = Codec.NONE, **pushed: Any
    ) -> ErrorCode:
        _, instance = self.metrics.get(key, "shop", connection)
        options = {"subscription_id": instance.subscription_id, "is_last": False} | pushed
        return await self.metrics.push(key, "shop", connection, compression_type=codec, content=content, **options)

    def series(self) -> list[tuple[str, str, float]]:
        found = [one for one in self.metrics.series() if one is not None]
        return [(one.client_id, metric, value) for one, metric, _, value in found]

    def new(self, connection: Connection) -> bytes:
        return self.metrics.get(ZERO_ID, "shop", connection)[1].client_instance_id


async def test_a_client_gets_an_id_and_keeps_it() -> None:
    world, connection = World(), Connection()
    await world.subscribe(metrics="*", match="client_software_name=librdkafka")
    error, instance = world.metrics.get(ZERO_ID, "shop", connection)
    assert (error, instance.wanted.metrics) == (ErrorCode.NONE, ("*",))
    assert world.metrics.get(instance.client_instance_id, "shop", connection)[1] is instance
    assert len(world.metrics) == 1


async def test_a_change_of_subscriptions_reaches_a_known_client_with_its_next_request() -> None:
    world, connection = World(), Connection()
    key = world.new(connection)
    before = world.metrics.get(key, "shop", connection)[1].subscription_id
    await world.subscribe(metrics="a", interval_ms="1000")
    error, instance = world.metrics.get(key, "shop", connection)
    assert (error, instance.wanted.metrics) == (ErrorCode.NONE, ("a",))
    assert await world.push(key, connection, subscription_id=before) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID


@pytest.mark.parametrize("codec", list(Codec))
async def test_a_push_is_shown_in_any_compression(codec: Codec) -> None:
    world, connection = World(), Connection()
    assert await world.push(world.new(connection), connection, compress(codec, CONTENT), codec) is ErrorCode.NONE
    assert world.series() == [("shop", "g", 1.0)]


@pytest.mark.parametrize(
    ("content", "codec"),
    [
        (b"\x0a", Codec.NONE),
        (b"garbage", Codec.ZSTD),
        (compress(Codec.GZIP, bytes(TELEMETRY_MAX_BYTES + 1)), Codec.GZIP),
        (compress(Codec.ZSTD, bytes(100 * 1024 * 1024)), Codec.ZSTD),
        (compress(Codec.SNAPPY, bytes(TELEMETRY_MAX_BYTES + 1)), Codec.SNAPPY),
    ],
    ids=["no metrics data", "no zstd", "a bit too much", "a bomb", "snappy"],
)
async def test_metrics_that_cannot_be_read_or_grow_too_large_are_refused(content: bytes, codec: Codec) -> None:
    world, connection = World(), Connection()
    assert await world.push(world.new(connection), connection, content, codec) is ErrorCode.INVALID_RECORD
    assert not world.series()


@pytest.mark.parametrize("reserved", sorted(client_metrics.RESERVED_IDS))
async def test_a_push_without_an_id_is_refused_and_not_remembered(reserved: bytes) -> None:
    world = World()
    error = await world.metrics.push(
        reserved, "shop", Connection(), subscription_id=0, compression_type=0, is_last=False, content=b""
    )
    assert (error, len(world.metrics)) == (ErrorCode.INVALID_REQUEST, 0)


async def test_without_an_http_listener_pushes_are_taken_and_not_read() -> None:
    world, connection = World(fencepost_http_listener=None), Connection()
    assert await world.push(world.new(connection), connection, b"\x0a") is ErrorCode.NONE
    assert not world.series()


async def test_the_series_of_a_client_go_with_its_connection() -> None:
    world, first, second = World(), Connection(), Connection()
    keys = [world.new(first), world.new(second)]
    for key, connection in zip(keys, (first, second), strict=True):
        assert await world.push(key, connection) is ErrorCode.NONE
    first.close()
    assert (len(world.metrics), len(world.series())) == (1, 1)


async def test_a_client_that_pushes_over_another_connection_outlives_the_first() -> None:
    world, first, second = World(), Connection(), Connection()
    key = world.new(first)
    assert await world.push(key, second) is ErrorCode.NONE
    assert [world.metrics.series_count(one) for one in (first, second)] == [0, 1]
    first.close()
    assert len(world.series()) == 1
    second.close()
    assert (len(world.metrics), world.series()) == (0, [])


async def test_a_client_without_requests_expires() -> None:
    world, connection = World(), Connection()
    await world.subscribe(metrics="*", interval_ms=str(INTERVAL_MS))
    assert await world.push(world.new(connection), connection) is ErrorCode.NONE
    world.clock.time_ms += 3 * INTERVAL_MS - 1
    assert len(world.series()) == 1
    world.clock.time_ms += 1
    assert (world.series(), len(world.metrics)) == ([], 0)


async def test_an_expired_client_begins_anew_with_its_next_request() -> None:
    world, connection = World(), Connection()
    key = world.new(connection)
    world.clock.time_ms += 10**9
    assert world.metrics.get(key, "shop", connection)[0] is ErrorCode.NONE
    assert len(world.metrics) == 1


def test_of_too_many_clients_the_one_without_a_request_for_longest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_metrics, "MAXIMUM_INSTANCES", 3)
    world = World()
    connections = [Connection() for _ in range(4)]
    keys = [world.new(connection) for connection in connections[:3]]
    world.metrics.get(keys[0], "shop", connections[0])
    world.new(connections[3])
    assert len(world.metrics) == 3
    assert keys[1] not in world.metrics._instances
    for connection in connections:
        connection.close()
    assert (len(world.metrics), world.metrics._by_connection) == (0, {})


def test_a_connection_that_names_many_instances_takes_the_place_of_nobody_else() -> None:
    world, connection = World(), Connection()
    other = world.new(Connection())
    for _ in range(client_metrics.MOST_OF_A_CONNECTION + 5):
        world.new(connection)
    assert len(world.metrics) == client_metrics.MOST_OF_A_CONNECTION + 1
    assert other in world.metrics._instances
    assert len(connection.callbacks) == 1


async def test_a_bound_on_series_is_that_of_the_setting() -> None:
    world, connection = World(fencepost_client_metrics_max_series=1), Connection()
    content = metrics_data(gauge("g", point(1.0), point(2.0, topic="x")))
    assert await world.push(world.new(connection), connection, content) is ErrorCode.NONE
    assert (len(world.series()), world.metrics.left_out) == (1, 1)


async def test_a_push_of_one_byte_too_many_is_refused_before_it_is_read() -> None:
    world, connection = World(), Connection()
    answer = await world.push(world.new(connection), connection, bytes(TELEMETRY_MAX_BYTES + 1))
    assert (answer, world.series()) == (ErrorCode.TELEMETRY_TOO_LARGE, [])


async def test_of_ten_thousand_metrics_a_client_has_a_thousand_and_the_others_are_counted() -> None:
    world, connection = World(), Connection()
    content = metrics_data(*(gauge(f"metric.{number}", point(1.0)) for number in range(10_000)))
    assert await world.push(world.new(connection), connection, content) is ErrorCode.NONE
    assert (len(world.series()), world.metrics.left_out) == (1_000, 9_000)


async def test_a_value_that_is_no_number_is_kept_until_the_next_one() -> None:
    world, connection = World(), Connection()
    await world.subscribe(metrics="*", interval_ms="100")
    key = world.new(connection)
    assert await world.push(key, connection, metrics_data(gauge("g", point(math.nan)))) is ErrorCode.NONE
    assert math.isnan(world.series()[0][2])
    world.clock.time_ms += 100
    assert await world.push(key, connection) is ErrorCode.NONE
    assert world.series() == [("shop", "g", 1.0)]


async def test_two_clients_with_one_instance_id_share_its_interval() -> None:
    world, first, second = World(), Connection(), Connection()
    key = world.new(first)
    assert await world.push(key, first) is ErrorCode.NONE
    assert await world.push(key, second) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert (len(world.metrics), len(world.series())) == (1, 1)


async def test_a_subscription_that_changes_between_two_pushes_is_asked_for_at_once() -> None:
    world, connection = World(), Connection()
    key = world.new(connection)
    old = world.metrics.get(key, "shop", connection)[1].subscription_id
    await world.subscribe(metrics="a")
    assert (
        await world.metrics.push(
            key, "shop", connection, subscription_id=old, compression_type=0, is_last=False, content=CONTENT
        )
        is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    )
    error, instance = world.metrics.get(key, "shop", connection)
    assert (error, instance.wanted.metrics) == (ErrorCode.NONE, ("a",))


async def test_a_client_of_a_broker_that_was_restarted_pushes_on_with_its_id() -> None:
    before, after, connection = World(), World(), Connection()
    key = before.new(connection)
    known = before.metrics.get(key, "shop", connection)[1].subscription_id
    answer = await after.metrics.push(
        key, "shop", Connection(), subscription_id=known, compression_type=0, is_last=False, content=CONTENT
    )
    assert (answer, after.series()) == (ErrorCode.NONE, [("shop", "g", 1.0)])


def test_instances_that_never_come_back_take_a_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_metrics, "MAXIMUM_INSTANCES", 1_000)
    world = World()
    world.ids = iter(number.to_bytes(16, "big") for number in range(10, 1_000_000))
    beyond = client_metrics.MAXIMUM_INSTANCES + 1_000
    connections = [Connection() for _ in range(beyond // 16 + 1)]
    tracemalloc.start()
    try:
        for number in range(beyond):
            world.new(connections[number // 16])
        held_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(world.metrics) == client_metrics.MAXIMUM_INSTANCES
    assert held_bytes < client_metrics.MAXIMUM_INSTANCES * MOST_BYTES_OF_AN_INSTANCE


def test_a_machine_whose_clock_is_set_neither_expires_clients_nor_holds_them() -> None:
    metrics = ClientMetrics(ClientMetricsConfigs(InMemoryMetadataStore()), Settings(), SystemClock(), lambda: ZERO_ID)
    assert isinstance(metrics._clock, SteadyClock)


def test_an_instance_id_is_shown_as_in_kafka() -> None:
    assert instance_text(bytes(15) + b"\xff") == "AAAAAAAAAAAAAAAAAAAA_w"
