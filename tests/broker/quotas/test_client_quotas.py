"""Which quota is whose, what is charged, and what a metered request does to its connection."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.broker.config import Settings
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.quotas.client_quotas import MAXIMUM_RATE_COUNT, ClientQuotas, Quotas, RequestMeter
from fencepost.broker.quotas.entities import QuotaKey, QuotaLimit, entity_of, limit_for
from fencepost.broker.security.principal import ANONYMOUS
from tests.support.handler_context import ManualClock

PRODUCED, CONSUMED, BUSY = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE
BOTH = entity_of([("user", "alice"), ("client-id", "app")])
ALICE, APP = entity_of([("user", "alice")]), entity_of([("client-id", "app")])

# From the strongest to the weakest, with the clients that share it.
PRECEDENCE = [
    (BOTH, BOTH),
    (entity_of([("user", "alice"), ("client-id", None)]), BOTH),
    (ALICE, ALICE),
    (entity_of([("user", None), ("client-id", "app")]), BOTH),
    (entity_of([("user", None), ("client-id", None)]), BOTH),
    (entity_of([("user", None)]), ALICE),
    (APP, APP),
    (entity_of([("client-id", None)]), APP),
]


def test_the_most_specific_quota_counts() -> None:
    for position, (_, owner) in enumerate(PRECEDENCE):
        weaker = enumerate(PRECEDENCE[position:], position)
        quotas: Quotas = {entity: {PRODUCED: float(number)} for number, (entity, _) in weaker}
        assert limit_for(quotas, PRODUCED, user="alice", client_id="app") == QuotaLimit(owner, position)


def test_quotas_of_others_and_of_other_things_do_not_count() -> None:
    quotas: Quotas = {entity_of([("user", "bob")]): {PRODUCED: 1.0}, ALICE: {CONSUMED: 1.0}}
    assert limit_for(quotas, PRODUCED, user="alice", client_id="app") is None


class World:
    """Quotas in a store that lives as long as the test."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = InMemoryMetadataStore()
        self.quotas = self.opened()

    def opened(self, **settings: Any) -> ClientQuotas:
        return ClientQuotas(self.store, Settings(**settings), self.clock)

    async def set(self, value: float | None, key: QuotaKey = PRODUCED, **entity: str | None) -> None:
        parts = [(name.replace("_", "-"), text) for name, text in entity.items()]
        await self.quotas.change(entity_of(parts), {key: value})

    def request(self, client_id: str | None = "app", *, request_bytes: int = 0) -> tuple[RequestMeter, list[float]]:
        muted: list[float] = []
        meter = self.quotas.meter(ANONYMOUS, client_id, produced_bytes=request_bytes, mute=muted.append)
        assert meter is not None, "a quota applies to the client"
        return meter, muted


def no_mute(_: float) -> None:
    raise AssertionError("the connection is muted")


@pytest.fixture
def world() -> World:
    return World()


async def test_without_quotas_nothing_is_metered(world: World) -> None:
    was_active = [world.quotas.is_active]
    await world.set(1.0, QuotaKey.CONNECTION_CREATION_RATE, ip="192.0.2.1")
    was_active.append(world.quotas.is_active)
    await world.set(1.0, user="ANONYMOUS")
    was_active.append(world.quotas.is_active)
    await world.set(None, user="ANONYMOUS")
    was_active.append(world.quotas.is_active)
    assert was_active == [False, False, True, False]


async def test_quotas_outlive_the_broker(world: World) -> None:
    await world.set(1000.0, user="ANONYMOUS", client_id=None)
    again = world.opened()
    await again.open()
    assert again.all == {entity_of([("user", "ANONYMOUS"), ("client-id", None)]): {PRODUCED: 1000.0}}
    assert again.is_active


async def test_every_client_has_a_default_quota_of_its_own(world: World) -> None:
    await world.set(100.0, client_id=None)
    assert world.quotas.charge(PRODUCED, (ANONYMOUS, "one"), 2000) > 0
    assert world.quotas.charge(PRODUCED, (ANONYMOUS, "two"), 1000) == 0


async def test_the_clients_of_a_user_share_its_quota(world: World) -> None:
    await world.set(100.0, user="ANONYMOUS")
    assert world.quotas.charge(PRODUCED, (ANONYMOUS, "one"), 1000) == 0
    assert world.quotas.charge(PRODUCED, (ANONYMOUS, "two"), 1000) == 10_000


@pytest.mark.parametrize("level", range(len(PRECEDENCE)))
async def test_a_user_is_charged_by_the_most_specific_quota_that_is_set(world: World, level: int) -> None:
    for number, (entity, _) in enumerate(PRECEDENCE[level:], level):
        await world.quotas.change(entity, {PRODUCED: 100.0 * (number + 1)})
    rate = 100.0 * (level + 1)
    assert world.quotas.max_burst(PRODUCED, ("User:alice", "app")) == 10 * rate
    assert world.quotas.charge(PRODUCED, ("User:alice", "app"), 10 * rate) == 0
    owner = PRECEDENCE[level][1]
    others = {("User:alice", "other"): owner == ALICE, ("User:bob", "app"): owner == APP}
    for client, shares_it in others.items():
        after = world.quotas.charge(PRODUCED, client, 100.0)
        assert (after > 0) is shares_it, (client, level)


async def test_a_quota_of_a_user_costs_other_users_nothing(world: World) -> None:
    await world.set(100.0, user="alice")
    assert world.quotas.meter("User:alice", "app", produced_bytes=0, mute=no_mute) is not None
    for principal in (ANONYMOUS, "User:bob", "User:ali"):
        assert world.quotas.meter(principal, "app", produced_bytes=1_000_000, mute=no_mute) is None


async def test_a_user_may_have_colons_in_its_name(world: World) -> None:
    await world.set(100.0, user="CN=a:b")
    assert world.quotas.meter("User:CN=a:b", "app", produced_bytes=0, mute=no_mute) is not None


async def test_a_changed_quota_counts_for_the_next_request(world: World) -> None:
    await world.set(1_000_000.0, client_id="app")
    assert world.quotas.charge(PRODUCED, (ANONYMOUS, "app"), 100_000) == 0
    await world.set(10.0, client_id="app")
    assert world.quotas.charge(PRODUCED, (ANONYMOUS, "app"), 1) > 0


async def test_clients_that_invent_ids_do_not_fill_the_memory(world: World) -> None:
    await world.set(100.0, client_id=None)
    for number in range(MAXIMUM_RATE_COUNT + 10):
        world.quotas.charge(PRODUCED, (ANONYMOUS, f"client-{number}"), 1)
    assert len(world.quotas._rates) <= MAXIMUM_RATE_COUNT
    assert len(world.quotas._limits) <= MAXIMUM_RATE_COUNT


async def test_the_windows_are_settings(world: World) -> None:
    world.quotas = world.opened(quota_window_num=2, quota_window_size_seconds=3)
    await world.set(100.0, client_id="app")
    assert world.quotas.max_burst(PRODUCED, (ANONYMOUS, "app")) == 300
    assert world.quotas.charge(PRODUCED, (ANONYMOUS, "app"), 300) == 0
    assert world.quotas.charge(PRODUCED, (ANONYMOUS, "app"), 300) == 3000


async def test_a_client_over_its_quota_gets_a_throttle_time_and_its_connection_is_muted(world: World) -> None:
    await world.set(100.0, client_id="app")
    meter, muted = world.request(request_bytes=1500)
    assert muted == [5.0]  # before what was sent behind it is begun
    assert (meter.finish(), muted) == (5000, [5.0])


async def test_others_are_not_metered(world: World) -> None:
    await world.set(100.0, client_id="app")
    muted: list[float] = []
    for client_id in (None, "", "application", "ap"):
        assert world.quotas.meter(ANONYMOUS, client_id, produced_bytes=1_000_000, mute=muted.append) is None
    assert muted == []


async def test_a_client_is_metered_from_the_first_quota_of_its_own_to_the_last(world: World) -> None:
    def is_metered() -> bool:
        return world.quotas.meter(ANONYMOUS, "app", produced_bytes=0, mute=no_mute) is not None

    found = [is_metered()]
    for value, key in ((1.0, PRODUCED), (1.0, CONSUMED), (None, PRODUCED), (None, CONSUMED)):
        await world.set(value, key, client_id="app")
        found.append(is_metered())
    assert found == [False, True, True, True, False]


async def test_clients_that_invent_ids_are_not_all_remembered(world: World) -> None:
    await world.set(100.0, client_id="app")
    for number in range(MAXIMUM_RATE_COUNT + 10):
        world.quotas.meter(ANONYMOUS, f"client-{number}", produced_bytes=0, mute=no_mute)
    assert len(world.quotas._limited) <= MAXIMUM_RATE_COUNT


async def test_records_over_the_quota_are_not_given_and_not_charged(world: World) -> None:
    await world.set(100.0, CONSUMED, client_id="app")
    meter, _ = world.request()
    assert meter.fetch_limit_bytes == 1000
    assert meter.charge_fetch(1000)
    assert not meter.charge_fetch(1)
    assert not meter.charge_fetch(500)
    world.clock.time_ms += 11_000
    assert meter.charge_fetch(1000)


async def test_a_batch_that_no_quota_has_room_for_is_given_and_paid_for_afterwards(world: World) -> None:
    await world.set(10.0, CONSUMED, client_id="app")
    meter, muted = world.request()
    assert meter.charge_fetch(1_000_000)
    throttle_ms = meter.finish()
    assert muted == [throttle_ms / 1000]
    assert throttle_ms > 60_000
    meter, _ = world.request()
    assert not meter.charge_fetch(1)


async def test_time_on_the_processor_is_paid_back_in_small_pauses(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.set(1.0, BUSY, client_id="app")
    now_ns = 1
    monkeypatch.setattr("fencepost.broker.quotas.client_quotas.time", SimpleNamespace(perf_counter_ns=lambda: now_ns))
    meter, muted = world.request()
    now_ns += 50_000_000  # 5 % of a second: within what ten windows have room for
    meter.finish()
    assert muted == []
    meter, muted = world.request()
    now_ns += 2_000_000_000
    meter.pause_timing()
    now_ns += 60_000_000_000  # waiting for others costs nothing
    meter.finish()
    assert muted == [1.0]


async def test_the_time_that_a_reply_takes_counts_towards_the_next_request(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.set(1.0, BUSY, client_id="app")
    now_ns = 1
    monkeypatch.setattr("fencepost.broker.quotas.client_quotas.time", SimpleNamespace(perf_counter_ns=lambda: now_ns))
    meter, muted = world.request()
    meter.finish()
    now_ns += 2_000_000_000
    meter.finish_timing()
    assert muted == []
    meter, muted = world.request()
    meter.finish()
    assert muted == [1.0]
