"""Any order of writes, seals, take-overs and failures of the store loses no acknowledged record."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fencepost.broker.cluster.objects import flush_objects
from fencepost.broker.cluster.objects.store import ObjectStoreError
from fencepost.broker.cluster.postgres.connections import parse_address
from fencepost.broker.cluster.remote import remote_fetch, upload_plan
from fencepost.broker.cluster.remote import remote_merge as merging
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.segment import batch_scan, header_check
from fencepost.protocol.errors import ErrorCode
from tests.broker.cluster.remote.remote_world import RemoteCluster, RemoteWorld, content
from tests.support.log_world import ORDERS
from tests.support.modelled_objects import ModelledObjects

STEPS = 60
CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100)
MERGED_COUNT = 3
"""Fewer than a broker takes, so that merges are frequent."""


class Story:
    """One run. acknowledged: the values by offset. start: below it, records may be gone."""

    def __init__(self, cluster: RemoteCluster, store: ModelledObjects, chance: random.Random) -> None:
        self.cluster = cluster
        self.store = store
        self.chance = chance
        self.acknowledged: list[bytes] = []
        self.leader: RemoteWorld
        self.former: list[tuple[RemoteWorld, int]] = []

    async def begin(self) -> None:
        self.leader = await self.cluster.start(CONFIG)
        await self.leader.take_over()

    async def write(self) -> None:
        log = self.leader.orders
        for _ in range(self.chance.randint(1, 6)):
            value = b"%d" % len(self.acknowledged) * self.chance.randint(1, 40)
            assert self.leader.append(value).base_offset == len(self.acknowledged)
            self.acknowledged.append(value)
        await log.flushed()

    async def seal(self) -> None:
        self.leader.sealed.uploads._rests.clear()
        await self.leader.sealed.uploads.upload_once()

    async def merge(self) -> None:
        await self.leader.sealed.merges.merge_once()
        self.leader.sealed.merges._rests_until_s.clear()

    async def roll(self) -> None:
        if self.leader.orders.segments.active.size_bytes:
            self.leader.orders.roll(self.leader.clock.now_ms())
            await self.leader.orders.flushed()

    async def expire(self) -> None:
        log = self.leader.orders
        log.configure(LogConfig(segment_bytes=500, index_interval_bytes=100, retention_bytes=4_000))
        log.sweep(self.leader.clock.now_ms())
        log.configure(CONFIG)

    async def delete(self) -> None:
        log = self.leader.orders
        before = self.chance.randint(log.log_start_offset, log.high_watermark)
        assert await self.leader.logs.delete_records({ORDERS: before}) == {ORDERS: ErrorCode.NONE}

    async def sweep(self) -> None:
        try:
            await self.leader.sweep.discard_abandoned()
            await self.leader.sweep.remove_garbage()
            await self.leader.sweep.find_orphans()
        except ObjectStoreError:
            pass  # it goes on with the next sweep

    async def send_away(self) -> None:
        self.leader.sealed.fetches.scratch_bytes = 0
        await self.leader.sealed.fetches.make_room()
        self.leader.sealed.fetches.scratch_bytes = 10**9

    async def read(self) -> None:
        log = self.leader.orders
        found = await content(log)
        expected = list(enumerate(self.acknowledged))
        assert found == expected[found[0][0] :] if found else log.log_start_offset == len(self.acknowledged)
        assert not found or found[0][0] <= log.log_start_offset
        assert not log.is_offline

    async def take_over(self) -> None:
        """Another node leads; the former one may not have noticed, and tries to seal."""
        former, led_in = self.leader, self.leader.leads_in
        start = former.orders.log_start_offset
        other = await self.cluster.start(CONFIG)
        trouble, self.store.trouble = self.store.trouble, 0.0  # else the test would have to ask again and again
        log = await other.take_over()
        self.store.trouble = trouble
        assert log.high_watermark == len(self.acknowledged)
        assert log.log_start_offset <= start
        if self.chance.random() < 0.5:
            former.leads_in = led_in
            former.sealed.uploads._rests.clear()
            assert await former.sealed.uploads.upload_once() == 0
        former.resign("another node leads")
        self.leader = other

    async def run(self) -> None:
        steps = (
            [self.write] * 6
            + [self.seal] * 6
            + [self.roll] * 3
            + [self.merge] * 2
            + [self.expire, self.delete, self.sweep, self.send_away, self.read, self.take_over]
        )
        for _ in range(STEPS):
            await self.chance.choice(steps)()
        self.store.trouble = 0.0
        await self.read()
        await self.leader.seal_all()
        await self.cluster.check()


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 40))])
async def test_no_acknowledged_record_is_lost(
    cluster_url: str, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush_objects, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(remote_fetch, "LONGEST_PAUSE_S", 0.01)
    for module in (merging, upload_plan):
        monkeypatch.setattr(module, "MERGED_COUNT", MERGED_COUNT)
    for reader in (header_check, batch_scan):
        monkeypatch.setattr(reader, "SCAN_CHUNK_BYTES", 100)
    chance = random.Random(seed)
    store = ModelledObjects(chance)
    store.trouble = chance.choice((0.0, 0.05, 0.2))
    store.slowest_s = chance.choice((0.0, 0.002))
    cluster = await RemoteCluster.found(parse_address(cluster_url), store, str(tmp_path))
    cluster.block_bytes = chance.choice((64, 200, 10**6))
    cluster.inline_max_bytes = chance.choice((0, 200, 10**6))
    try:
        story = Story(cluster, store, chance)
        await story.begin()
        await story.run()
    finally:
        await cluster.close()
