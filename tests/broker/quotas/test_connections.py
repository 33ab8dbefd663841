"""Which connections are served, which have to wait, and which are closed."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from fencepost.broker.config import DynamicLayers, Settings
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.quotas.client_quotas import MAXIMUM_RATE_COUNT, ClientQuotas
from fencepost.broker.quotas.connections import AdmissionDecision, ConnectionQuotas
from fencepost.broker.quotas.entities import QuotaKey, entity_of
from fencepost.broker.storage.descriptors import ENOUGH_DESCRIPTORS, Descriptors
from tests.support.handler_context import ManualClock

INSIDE, OUTSIDE = "INSIDE", "OUTSIDE"
ONE, OTHER = "10.0.0.1", "10.0.0.2"
SERVED = AdmissionDecision()


class World:
    def __init__(self, *, descriptor_limit: int = ENOUGH_DESCRIPTORS, **settings: Any) -> None:
        self.descriptors = Descriptors(descriptor_limit)
        self.clock = ManualClock()
        self.settings = dataclasses.replace(Settings(**settings), layers=DynamicLayers())
        self.client_quotas = ClientQuotas(InMemoryMetadataStore(), self.settings, self.clock)
        self.quotas = ConnectionQuotas(self.settings, self.client_quotas, self.clock, self.descriptors)

    def admit(self, listener: str = INSIDE, host: str = ONE) -> AdmissionDecision:
        return self.quotas.admit(listener, host)

    def close(self, listener: str = INSIDE, host: str = ONE) -> None:
        self.quotas.closed(listener, host)

    async def limit_rate(self, rate_per_s: float | None, address: str | None) -> None:
        await self.client_quotas.change(entity_of([("ip", address)]), {QuotaKey.CONNECTION_CREATION_RATE: rate_per_s})

    async def take_over(self, **texts: str) -> None:
        configs = {name.replace("_", "."): text for name, text in texts.items()}
        assert not self.settings.override(of_this_broker=configs, of_all_brokers={})
        self.quotas.settings_changed()
        for _ in range(3):
            await asyncio.sleep(0)


def test_connections_of_all_listeners_count_together() -> None:
    world = World(max_connections=2)
    assert world.admit(INSIDE) == world.admit(OUTSIDE) == SERVED
    assert world.admit(INSIDE).refusal == "max.connections (2) are open"
    world.close(INSIDE)
    world.close(OUTSIDE)
    assert world.admit(INSIDE) == SERVED


def test_a_connection_beyond_its_listeners_own_limit_takes_no_place_of_another() -> None:
    world = World(max_connections=2, of_listeners={"listener.name.inside.max.connections": "1"})
    assert world.admit(INSIDE) == world.admit(OUTSIDE) == SERVED
    assert world.admit(OUTSIDE).is_full
    world.close(OUTSIDE)
    beyond = world.admit(INSIDE)
    assert (beyond.refusal, beyond.is_full) == ("max.connections (2) are open", False)


def test_connections_leave_descriptors_for_files() -> None:
    world = World(descriptor_limit=16)
    most = world.descriptors.connection_limit
    files_before = world.descriptors.file_limit
    assert [world.admit().refusal for _ in range(most)] == [None] * most
    refusal = world.admit().refusal
    assert refusal is not None
    assert f"limit of open files (16) leaves room for {most} connections" in refusal
    assert world.descriptors.file_limit < files_before
    for _ in range(2):
        world.close()
    assert world.admit() == SERVED
    while world.descriptors.connection_count:
        world.close()
    assert world.descriptors.file_limit == files_before


def test_a_listener_can_have_a_limit_of_its_own() -> None:
    world = World(of_listeners={"listener.name.inside.max.connections": "1"})
    assert world.admit(INSIDE) == SERVED
    assert world.admit(INSIDE).refusal == "max.connections (1) are open on INSIDE"
    assert world.admit(OUTSIDE) == world.admit(OUTSIDE) == SERVED


async def test_an_address_can_have_a_limit_of_its_own() -> None:
    world = World(max_connections_per_ip=1)
    await world.take_over(max_connections_per_ip_overrides=f" {ONE}:2 , ")
    assert world.admit(host=ONE) == world.admit(host=ONE) == world.admit(host=OTHER) == SERVED
    assert world.admit(host=ONE).refusal == "max.connections.per.ip (2) are open from this address"
    assert world.admit(host=OTHER).refusal == "max.connections.per.ip (1) are open from this address"
    await world.take_over()
    assert world.admit(host=ONE).refusal == "max.connections.per.ip (1) are open from this address"


async def test_hosts_with_limits_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def getaddrinfo(host: str, *_: Any, **__: Any) -> list[Any]:
        assert host == "backup.example"
        return [(None, None, None, "", (OTHER, 0))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    world = World()
    await world.take_over(max_connections_per_ip_overrides="backup.example:1")
    await world.limit_rate(1, "backup.example")
    assert world.admit(host=OTHER) == SERVED
    assert world.client_quotas.connection_rate_limit(OTHER) == 1
    assert "max.connections.per.ip (1)" in str(world.admit(host=OTHER).refusal)


async def test_an_address_that_connects_too_often_is_made_to_wait_and_closed() -> None:
    world = World(quota_window_num=2, quota_window_size_seconds=1)
    await world.limit_rate(3, ONE)
    for _ in range(3):
        assert world.admit(host=ONE) == SERVED
    throttled = world.admit(host=ONE)
    assert throttled.refusal is not None
    assert 0 < throttled.delay_ms <= 1000
    assert world.admit(host=ONE) == throttled, "what was not served does not count"
    assert world.admit(host=OTHER) == SERVED
    world.clock.time_ms += 2000
    assert world.admit(host=ONE) == SERVED


async def test_the_rate_of_all_addresses_counts_for_each_of_them_and_can_be_taken_away() -> None:
    world = World(quota_window_num=2, quota_window_size_seconds=1)
    await world.limit_rate(1, None)
    await world.limit_rate(100, OTHER)
    assert world.admit(host=ONE) == SERVED
    assert world.admit(host=ONE).refusal is not None
    assert all(world.admit(host=OTHER) == SERVED for _ in range(50))
    await world.limit_rate(None, None)
    assert world.admit(host=ONE) == SERVED


async def test_addresses_are_not_remembered_without_end() -> None:
    world = World()
    await world.limit_rate(1, None)
    for number in range(MAXIMUM_RATE_COUNT + 50):
        world.admit(host=str(number))
    assert len(world.quotas._rates) == MAXIMUM_RATE_COUNT


def test_above_the_rate_of_the_broker_connections_wait_for_their_turn() -> None:
    world = World(max_connection_creation_rate=10, quota_window_num=2, quota_window_size_seconds=1)
    assert all(world.admit() == SERVED for _ in range(20)), "a burst of all windows"
    assert [world.admit().delay_ms for _ in range(3)] == [100, 200, 300]
    world.clock.time_ms += 300
    assert world.admit().delay_ms == 100
    world.clock.time_ms += 10_000
    assert world.admit() == SERVED


async def test_a_listener_can_have_a_rate_of_its_own_while_the_broker_runs() -> None:
    world = World(quota_window_num=1, quota_window_size_seconds=1)
    name = "listener.name.inside.max.connection.creation.rate"
    assert not world.settings.override(of_this_broker={name: "1"}, of_all_brokers={})
    assert world.admit(INSIDE) == SERVED
    assert world.admit(INSIDE).delay_ms == 1000
    assert world.admit(OUTSIDE) == world.admit(OUTSIDE) == SERVED
    assert not world.settings.override(of_this_broker={}, of_all_brokers={})
    assert world.admit(INSIDE) == SERVED


@pytest.mark.parametrize("written", ["::ffff:10.0.0.1", "0:0:0:0:0:ffff:a00:1", "10.0.0.1"])
async def test_limits_of_an_address_count_however_it_is_written(written: str) -> None:
    world = World()
    await world.take_over(max_connections_per_ip_overrides=f"{written}:1,0:0:0:0:0:0:0:1:1")
    for host in (ONE, "::1"):
        assert world.admit(host=host) == SERVED
        assert world.admit(host=host).refusal == "max.connections.per.ip (1) are open from this address"
    await world.limit_rate(1, written)
    await world.limit_rate(2, ONE)
    assert world.client_quotas.connection_rate_limit(ONE) == 2
    assert len(world.client_quotas.all) == 1
