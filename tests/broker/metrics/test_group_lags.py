"""Lags as people mean them: what a consumer can still get, in whatever the scrape has to leave out or to put off."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.group.offsets.records import OffsetAndMetadata
from fencepost.broker.group.shard import GroupSummary
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.append.skipped_offsets import skipped_spans
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.producers.verification import VerificationGuard
from fencepost.broker.metrics import group_lags
from fencepost.broker.metrics.exposition import exposition
from fencepost.broker.metrics.families import FAMILIES
from fencepost.broker.metrics.scrape import Scrape
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import Record, build_batch
from tests.broker.metrics.test_broker_families import values_of
from tests.support.http_node import HttpNode, http_node

ORDERS = TopicPartition("orders", 0)
END, READABLE, BLOCKED, SECONDS = (
    "kafka_consumergroup_lag",
    "fencepost_consumergroup_lag_read_committed",
    "fencepost_consumergroup_lag_blocked",
    "fencepost_consumergroup_lag_seconds",
)


class World:
    """A node with a topic, a producer that writes into its log, and groups that have committed offsets of it."""

    def __init__(self, http: HttpNode, monkeypatch: pytest.MonkeyPatch) -> None:
        self.http = http
        self.committed: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        self._sequence, self._epoch = 0, 0
        services = http.node.services
        self.now_ms = services.clock.now_ms()
        monkeypatch.setattr(type(services.groups), "summaries", lambda _: iter(self.summaries()))
        monkeypatch.setattr(type(services.groups), "summary", lambda _, group_id: self.summary(group_id))

    def summaries(self) -> list[GroupSummary]:
        return [self.summary(group_id) for group_id in self.committed]

    def summary(self, group_id: str) -> GroupSummary:
        return GroupSummary(group_id, "consumer", "Stable", 1, self.committed[group_id])

    def log(self, name: TopicPartition = ORDERS) -> PartitionLog:
        log = self.http.node.services.topics.log(name)
        assert log is not None
        return log

    def commit(self, group_id: str, offset: int, name: TopicPartition = ORDERS) -> None:
        self.committed.setdefault(group_id, {})[name] = OffsetAndMetadata(offset, -1, "", 0)

    def append(self, count: int, *, is_transactional: bool = False, name: TopicPartition = ORDERS) -> None:
        records = [Record(slot, self.now_ms - 60_000, None, b"v") for slot in range(count)]
        log, guard, producer = self.log(name), None, dict[str, Any]()
        if is_transactional:
            producer = {"producer_id": 9, "producer_epoch": self._epoch, "base_sequence": self._sequence}
            found = log.begin_verification(9, self._epoch, self._sequence, transaction_version_2=True)
            guard = found if isinstance(found, VerificationGuard) else None
            self._sequence += count
        batch = memoryview(build_batch(records, is_transactional=is_transactional, **producer))
        assert log.append(batch, now_ms=self.now_ms, guard=guard).error is ErrorCode.NONE

    def end(self, *, committed: bool) -> None:
        self._epoch, self._sequence = self._epoch + 1, 0
        ended = self.log().append_marker(
            producer_id=9,
            producer_epoch=self._epoch,
            committed=committed,
            coordinator_epoch=0,
            transaction_version=2,
            now_ms=self.now_ms,
        )
        assert ended is ErrorCode.NONE

    async def values(self) -> Mapping[str, float]:
        for log in self.http.node.services.topics.directory.logs():
            await log.flushed()
        return values_of((await self.http.get("/metrics")).text)

    async def lags(self, group_id: str, name: TopicPartition = ORDERS) -> list[float | None]:
        """Up to the end, readable, blocked, in seconds; the JSON says the same."""
        found = await self.values()
        labels = f'{{consumergroup="{group_id}",partition="{name.partition}",topic="{name.topic}"}}'
        lags = [found.get(f"{family}{labels}") for family in (END, READABLE, BLOCKED, SECONDS)]
        (told,) = (await self.http.json(f"/v1/groups/{group_id}/lag"))["partitions"]
        assert [told[name] for name in ("lag", "lag_read_committed", "blocked")] == lags[:3]
        assert (told["lag_seconds"] == 0) == (lags[3] == 0)
        return lags


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with http_node(tmp_path, fencepost_metrics_max_partitions=4) as http:
        await http.node.services.topics.create("orders", 1, {})
        yield World(http, monkeypatch)


async def test_a_group_that_has_read_all_has_no_lag_behind_markers_and_aborted_records(world: World) -> None:
    world.append(5, is_transactional=True)
    world.end(committed=True)
    world.commit("billing", 5)
    assert await world.lags("billing") == [1, 0, 0, 0]
    world.append(100, is_transactional=True)
    world.end(committed=False)
    assert await world.lags("billing") == [102, 0, 0, 0]
    world.append(1, is_transactional=True)
    *offsets, seconds = await world.lags("billing")
    assert offsets == [103, 0, 1]
    assert seconds is not None
    assert 60 <= seconds < 120
    world.end(committed=True)
    assert (await world.lags("billing"))[:3] == [104, 1, 0]


async def test_records_that_are_deleted_are_no_lag(world: World) -> None:
    for _ in range(10):
        world.append(100)
    world.commit("billing", 100)
    assert (await world.lags("billing"))[:3] == [900, 900, 0]
    assert world.log().move_log_start(900) is ErrorCode.NONE
    assert (await world.lags("billing"))[:3] == [900, 100, 0]
    assert world.log().move_log_start(1_000) is ErrorCode.NONE
    assert await world.lags("billing") == [900, 0, 0, 0]
    world.commit("billing", 5_000)
    assert await world.lags("billing") == [0, 0, 0, 0]


async def test_a_group_that_stands_still_is_counted_to_the_end_in_several_scrapes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_lags, "BATCHES_PER_STEP", 2)
    monkeypatch.setattr(group_lags, "BATCHES_PER_LAG", 4)
    for _ in range(6):
        world.append(10, is_transactional=True)
        world.end(committed=False)
    world.append(3)
    world.commit("billing", 0)
    labels = '{consumergroup="billing",partition="0",topic="orders"}'
    found = [(await world.values())[f"{READABLE}{labels}"] for _ in range(5)]
    assert found == [47, 25, 3, 3, 3]
    world.append(4)
    assert (await world.values())[f"{READABLE}{labels}"] == 7


async def test_a_scrape_that_leaves_lags_out_says_so_and_shows_the_largest(world: World) -> None:
    world.append(100)
    for number in range(10):
        world.commit(f"group{number}", number * 10)
    found = await world.values()
    shown = {name for name in found if name.startswith(f"{END}{{")}
    assert shown == {f'{END}{{consumergroup="group{number}",partition="0",topic="orders"}}' for number in range(4)}
    assert found['fencepost_metrics_left_out{kind="group_lags"}'] == 6
    assert found['fencepost_metrics_left_out{kind="partitions"}'] == 0
    sums = {name for name in found if name.startswith("kafka_consumergroup_lag_sum")}
    assert sums == {
        f'kafka_consumergroup_lag_sum{{consumergroup="group{number}",topic="orders"}}' for number in range(4)
    }


async def test_a_stuck_partition_is_shown_among_too_many(world: World) -> None:
    await world.http.node.services.topics.create("wide", 9, {})
    world.append(5, is_transactional=True)
    found = await world.values()
    name = "fencepost_last_stable_offset_lag"
    assert {one: value for one, value in found.items() if one.startswith(name)} == {
        f'{name}{{partition="0",topic="orders"}}': 5
    }
    assert found['fencepost_metrics_left_out{kind="partitions"}'] == 10
    world.end(committed=True)
    assert not [one for one in await world.values() if one.startswith(f"{name}{{")]


async def test_families_of_one_scrape_agree_however_many_commits_and_writes_come_between_its_steps(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("scrape", "group_families", "topic_families"):
        monkeypatch.setattr(f"fencepost.broker.metrics.{name}.STEP", 1)
    groups = ("one", "two", "three")
    for group_id in groups:
        world.commit(group_id, 0)
    for _ in range(3):
        text = ""
        assert world.http.node._http is not None
        view = world.http.node._http._view
        assert view is not None
        for slot, piece in enumerate(exposition(FAMILIES, Scrape(view), is_openmetrics=False)):
            text += piece
            world.append(7)
            await world.log().flushed()
            world.commit(groups[slot % 3], world.log().high_watermark - slot % 5)
        found: Any = values_of(text)
        high_watermark = found['kafka_topic_partition_current_offset{partition="0",topic="orders"}']
        for group_id in groups:
            labels = f'{{consumergroup="{group_id}",partition="0",topic="orders"}}'
            committed = found[f"kafka_consumergroup_current_offset{labels}"]
            assert found[f"{END}{labels}"] == high_watermark - committed >= 0
            assert found[f"{END}{labels}"] == found[f"{READABLE}{labels}"] + found[f"{BLOCKED}{labels}"]
            total = f'kafka_consumergroup_lag_sum{{consumergroup="{group_id}",topic="orders"}}'
            assert found[total] == found[f"{END}{labels}"]


@pytest.mark.parametrize("offset", [0, 300, 500_000])
async def test_offsets_that_a_restored_log_has_left_out_are_no_lag_for_readers(world: World, offset: int) -> None:
    for _ in range(300):  # more than one scrape counts
        world.append(1)
    world.log().skip_offsets(skipped_spans(300, 1_000_000_000), now_ms=world.now_ms)
    world.append(3)
    world.commit("billing", offset)
    end_lag, readable, blocked, _ = await world.lags("billing")
    assert (end_lag, blocked) == (1_000_000_303 - offset, 0)
    assert readable == 3 + max(0, 300 - offset)
