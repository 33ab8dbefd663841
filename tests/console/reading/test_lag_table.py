"""Lag of all groups in few requests, by topic, with the age of what waits; and what is missing in it is said."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fencepost.client.errors import ClusterError
from fencepost.console.reading import groups, lag_table, lags
from fencepost.console.reading.lag_table import MOST_TIMED, GroupRow, age_ms, lag_table_of
from fencepost.console.reading.lags import MOST_COUNTED
from fencepost.console.reading.sharing import Reads
from fencepost.diagnosis.lag import Lag
from tests.console.simulated import SimulatedCluster, large


class Clock:
    """Times of waiting records; counts how often one is read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read = 0
        self.time_ms: int | None = 5_000

        async def time_at(*_: Any) -> int | None:
            self.read += 1
            if self.time_ms is None:
                raise ClusterError("TOPIC_AUTHORIZATION_FAILED")
            return self.time_ms

        async def no_count(*_: Any) -> None:
            return None

        monkeypatch.setattr(lag_table, "time_at", time_at)
        monkeypatch.setattr(lags, "count_in", no_count)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def reads_of(cluster: SimulatedCluster) -> Reads:
    reads = Reads(60, 30)
    reads.add(cluster)
    return reads


async def test_two_thousand_groups_take_few_requests(clock: Clock) -> None:
    cluster = large()
    table = (await lag_table_of(reads_of(cluster))).value
    assert len(table.rows) == 2_000
    assert cluster.asked["OffsetFetch"] == sum(math.ceil(len(cluster.groups[node::3]) / 100) for node in range(3))
    assert cluster.asked["ListGroups"] == 3
    assert clock.read == MOST_TIMED > 0
    assert cluster.asked["Fetch"] <= MOST_COUNTED
    assert 0 < table.untimed <= 2_000 - MOST_TIMED
    assert not table.missing


async def test_a_row_has_the_lag_in_each_topic_and_the_rows_of_a_topic_are_known(clock: Clock) -> None:
    cluster = SimulatedCluster({"orders": 2, "payments": 3}, groups=1)
    cluster.ends["payments"] = 4
    cluster.stable["payments"] = 1
    table = (await lag_table_of(reads_of(cluster))).value
    (row,) = table.rows
    assert row.topics == {"orders": Lag(20, 20, 0), "payments": Lag(12, 3, 9)}
    assert row.lag == Lag(32, 23, 9)
    assert row.has("pay")
    assert not row.has("refunds")
    assert row.within("pay").lag == Lag(12, 3, 9)
    assert table.by_topic["orders"] == [row]
    assert row.since_ms == 5_000
    assert (age_ms(row) or 0) > 0


async def test_a_record_is_read_once_for_its_time_however_often_the_table_is(clock: Clock) -> None:
    reads = reads_of(SimulatedCluster({"orders": 2}, groups=5))
    await lag_table_of(reads)
    assert clock.read == 1, "all groups wait at the same record"
    for _ in range(3):
        reads.forget()
        assert (await lag_table_of(reads)).value.rows[0].since_ms == 5_000
    assert clock.read == 1


async def test_records_that_may_not_be_read_leave_the_time_unknown(clock: Clock) -> None:
    clock.time_ms = None
    table = (await lag_table_of(reads_of(SimulatedCluster({"orders": 1}, groups=2)))).value
    assert [row.since_ms for row in table.rows] == [None, None]
    assert table.untimed == 2


async def test_a_coordinator_that_refuses_or_is_silent_is_named(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "BROKER_S", 0.05)
    cluster = SimulatedCluster({"orders": 1}, groups=9)
    cluster.refused = {2}
    table = (await lag_table_of(reads_of(cluster))).value
    assert len(table.rows) == 6
    assert table.missing == ["Broker 2 could not be asked: COORDINATOR_NOT_AVAILABLE."]
    cluster.silent = {3}
    table = (await lag_table_of(reads_of(cluster))).value
    assert len(table.rows) == 3
    assert "Broker 3 could not be asked: broker 3 gave no answer in 0.05 s." in table.missing


def test_a_group_that_has_read_all_waits_for_nothing() -> None:
    assert not GroupRow("a", "classic", "Stable", Lag(1, 0, 0)).waits
    assert GroupRow("a", "classic", "Stable", Lag(1, 0, 1)).waits
