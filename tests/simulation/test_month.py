"""A cluster over an engine does not age: after a month it has no more of anything than after some days."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.broker.cluster.remote.object_sweep import ObjectSweep
from fencepost.broker.kernel.sliced_work import SlicedWork
from fencepost.broker.log.compaction.compaction import RetainedRecords, RetentionRules
from fencepost.protocol.record_batch import RecordBatch
from tests.simulation.census import Census, entries_of, grown
from tests.simulation.month import Calendar, Month, live_through

OF_TAKE_OVERS = "leader_epochs.LeaderEpochs._starts"
"""A compacted topic knows the leaders of all its time, as in Kafka: a few bytes for each take-over."""


def aged(censuses: list[Census]) -> dict[str, tuple[int, int]]:
    """What there is more of at the end than when everything that expires had expired once."""
    found = grown(censuses[7:13], censuses[-5:])
    return {name: counts for name, counts in found.items() if not name.endswith(OF_TAKE_OVERS)}


@pytest.fixture(scope="module")
def month() -> Month:
    return live_through(Calendar(days=32))


def test_a_month_leaves_no_more_of_anything_than_its_first_days(month: Month) -> None:
    assert aged(month.censuses) == {}


def test_rows_and_objects_agree_and_all_that_has_not_expired_is_read_on_each_day_of_a_month(month: Month) -> None:
    assert month.findings == []


def test_a_month_has_all_that_a_cluster_lives_through(month: Month) -> None:
    counted = month.counted
    assert counted["take-overs"] >= 10
    assert counted["restarts"] >= 5
    assert counted["topics deleted"] >= 28
    assert counted["transactions that are left open"] >= 14
    assert counted["whole reads"] == 6
    assert month.world.clock.skew_ms == 32 * 86_400_000


def test_garbage_that_nobody_removes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def remove_nothing(_: ObjectSweep) -> int:
        return 0

    monkeypatch.setattr(ObjectSweep, "remove_garbage", remove_nothing)
    assert any("still garbage" in finding for finding in live_through(Calendar(days=2)).findings)


@pytest.mark.long
def test_batches_that_stay_though_they_are_empty_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = RetentionRules.retain

    def keep_what_is_empty(
        rules: RetentionRules, batch: RecordBatch, *about: Any, **options: Any
    ) -> SlicedWork[RetainedRecords | None]:
        if batch.header.records_count == 0:
            return RetainedRecords(None)
        return (yield from original(rules, batch, *about, **options))

    monkeypatch.setattr(RetentionRules, "retain", keep_what_is_empty)
    assert "bytes of segments of keyed" in aged(live_through(Calendar(days=32)).censuses)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_quarter_of_a_year_leaves_no_more_of_anything_than_its_first_days() -> None:
    quarter = live_through(Calendar(days=90, bouts=3), seed=2)
    assert aged(quarter.censuses) == {}
    assert quarter.findings == []


class _Holder:
    __module__ = "fencepost.planted"

    def __init__(self) -> None:
        self.kept = {"a": [1, 2], "b": []}
        self.later = lambda: self.kept


def test_a_census_counts_containers_by_who_holds_them_and_each_once() -> None:
    holder = _Holder()
    assert entries_of({"one": holder, "again": holder.later}) == {
        "planted._Holder.kept": 2,
        "planted._Holder.kept[]": 2,
    }


def test_what_has_doubled_has_grown_and_what_goes_up_and_down_has_not() -> None:
    before = [Census(rows=40, files=30), Census(rows=50, files=90)]
    after = [Census(rows=100, files=80, new=11), Census(rows=110, files=20, new=12)]
    assert grown(before, after) == {"rows": (50, 100), "new": (0, 11)}
