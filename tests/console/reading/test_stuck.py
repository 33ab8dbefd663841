"""The facts about a stuck partition, gathered from a leader, coordinators and groups."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.client.errors import ClusterError
from fencepost.console.broker_http import BrokerHttp
from fencepost.console.reading import stuck
from fencepost.console.reading.groups import GroupList
from fencepost.console.reading.records import Range
from fencepost.console.reading.topics import PartitionState
from fencepost.console.reading.transactions import Producer, ProducerList
from fencepost.diagnosis.lag import Lag
from fencepost.diagnosis.stuck import CoordinatorView, Facts
from tests.console.partition import BEGINNING_MS, WrittenPartition

NO_CLUSTER: Any = None
KNOWN = CoordinatorView("till", "Ongoing", 7, 0, 60_000, BEGINNING_MS, (("orders", 0),))


class Leader:
    """A partition with an open transaction of two records at offset 3, and three committed records behind it."""

    def __init__(self) -> None:
        self.written = WrittenPartition()
        self.written.write(1, 3, in_transaction=False)
        self.written.write(7, 2)
        self.written.write(8, 3)
        self.written.finish(8, commit=True)
        self.is_whole = True
        self.error: ClusterError | None = None

    async def partition(self, *_: Any) -> PartitionState:
        return PartitionState("orders", 0, 1, 0, 0, self.written.end, self.written.last_stable_offset)

    async def producers(self, *_: Any) -> ProducerList:
        return ProducerList([Producer("orders", 0, 7, 0, 1, BEGINNING_MS + 9, -1, 3)])

    async def range(self, _: Any, __: Any, start: int, *___: Any, **____: Any) -> Range:
        if self.error is not None:
            raise self.error
        batches = [one for one in self.written.batches if one.header.base_offset >= start]
        return Range(batches, self.written.end, self.is_whole)


async def coordinator(*_: Any) -> tuple[CoordinatorView, None]:
    return KNOWN, None


async def groups(*_: Any) -> GroupList:
    return GroupList()


async def committed(*_: Any) -> dict[str, dict[tuple[str, int], tuple[int, str]]]:
    return {"billing": {("orders", 0): (3, "")}, "elsewhere": {("payments", 0): (0, "")}}


@pytest.fixture
def leader(monkeypatch: pytest.MonkeyPatch) -> Leader:
    found = Leader()
    for name, answer in (
        ("read_partition", found.partition),
        ("read_producers", found.producers),
        ("read_range", found.range),
        ("coordinator_view_of", coordinator),
        ("list_groups", groups),
        ("read_committed", committed),
    ):
        monkeypatch.setattr(stuck, name, answer)
    return found


async def facts() -> Facts:
    return await stuck.read_facts(NO_CLUSTER, BrokerHttp(None), "orders", 0)


@pytest.mark.usefixtures("leader")
async def test_the_holder_its_first_record_and_what_waits_behind_it_are_read() -> None:
    found = await facts()
    (holder,) = found.open
    assert (holder.producer_id, holder.first_offset, holder.began_ms) == (7, 3, BEGINNING_MS + 3)
    assert (found.coordinator, found.coordinator_error) == (KNOWN, None)
    assert (found.own_records, found.committed_behind) == (2, 3)
    assert [(one.group_id, one.lag) for one in found.waiting] == [("billing", Lag(end=6, deliverable=0, blocked=6))]


async def test_what_is_too_long_is_not_counted_and_what_may_not_be_read_has_no_time(leader: Leader) -> None:
    leader.is_whole = False
    found = await facts()
    assert (found.own_records, found.committed_behind, found.open[0].began_ms) == (None, None, BEGINNING_MS + 3)
    leader.error = ClusterError("TOPIC_AUTHORIZATION_FAILED")
    found = await facts()
    assert (found.own_records, found.open[0].began_ms) == (None, -1)


async def test_a_partition_that_is_not_stuck_is_asked_for_no_more(leader: Leader) -> None:
    leader.written.finish(7, commit=True)
    leader.error = ClusterError("nobody asks")
    found = await facts()
    assert (found.last_stable_offset, found.coordinator, found.waiting) == (leader.written.end, None, ())
