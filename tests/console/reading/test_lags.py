"""Records that a group can still get are counted by Fetch, within bounds."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.client.errors import ClusterError
from fencepost.console.reading import lags
from fencepost.console.reading.groups import GroupLag, lags_of
from fencepost.console.reading.records import Fetched
from fencepost.console.reading.topics import PartitionState
from fencepost.diagnosis.lag import Lag
from tests.console.partition import WrittenPartition

NO_CLUSTER: Any = None


class Leader:
    """Answers Fetch requests from a partition, one batch at a time."""

    def __init__(self) -> None:
        self.written = WrittenPartition()
        self.fetches = 0
        self.may_be_read = True

    async def fetch(self, _: Any, __: PartitionState, offset: int, *___: int) -> Fetched:
        self.fetches += 1
        if not self.may_be_read:
            raise ClusterError("TOPIC_AUTHORIZATION_FAILED")
        stable = self.written.last_stable_offset
        batches = [one for one in self.written.batches if offset <= one.header.last_offset < stable][:1]
        return Fetched(batches, self.written.aborted_from(offset), self.written.end, stable)

    @property
    def state(self) -> PartitionState:
        written = self.written
        return PartitionState("orders", 0, 1, 0, 0, written.end, written.last_stable_offset)


@pytest.fixture
def leader(monkeypatch: pytest.MonkeyPatch) -> Leader:
    found = Leader()
    monkeypatch.setattr(lags, "fetch", found.fetch)
    return found


def lag_of_offset(leader: Leader, committed: int) -> GroupLag:
    (lag,) = lags_of({("orders", 0): (committed, "")}, {("orders", 0): leader.state})
    return lag


async def test_markers_and_aborted_records_are_no_lag_and_nothing_is_fetched_twice(leader: Leader) -> None:
    leader.written.write(1, 5)
    leader.written.finish(1, commit=True)
    leader.written.write(1, 3)
    leader.written.write(1, 3)
    leader.written.finish(1, commit=False)
    leader.written.write(2, 4)
    counts = lags.ReadableCounts()
    first = lag_of_offset(leader, 3)
    assert first.lag == Lag(end=14, deliverable=10, blocked=4)
    await counts.fill(NO_CLUSTER, [(first, leader.state)])
    assert first.lag == Lag(end=14, deliverable=2, blocked=4)
    assert first.first_ms is not None
    fetches, again = leader.fetches, lag_of_offset(leader, 3)
    await counts.fill(NO_CLUSTER, [(again, leader.state)])
    assert (again.lag, leader.fetches) == (first.lag, fetches)


async def test_offsets_stand_for_the_records_behind_the_bound(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        leader.written.write(1, 5)
        leader.written.finish(1, commit=False)
    found = lag_of_offset(leader, 0)
    monkeypatch.setattr(lags, "MOST_BYTES", 1)
    await lags.ReadableCounts().fill(NO_CLUSTER, [(found, leader.state)])
    assert found.lag == Lag(end=18, deliverable=13, blocked=0)


async def test_a_lag_that_may_not_be_read_keeps_its_offsets(leader: Leader) -> None:
    leader.written.write(1, 5)
    leader.written.finish(1, commit=False)
    leader.may_be_read = False
    found = lag_of_offset(leader, 0)
    await lags.ReadableCounts().fill(NO_CLUSTER, [(found, leader.state)])
    assert found.lag == Lag(end=6, deliverable=6, blocked=0)
    assert found.first_ms is None
