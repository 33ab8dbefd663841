"""Records of many partitions as one sequence: against partitions in memory, of which every offset is known."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fencepost.client.consuming import COMMITTED
from fencepost.client.errors import RefusedError, UnreachableError
from fencepost.client.view import ClusterView, Partition, Topic
from fencepost.console.reading import scan as scanning
from fencepost.console.reading.records import Fetched, Range
from fencepost.console.reading.scan import NEWEST, Budget, Found, Scan
from fencepost.console.reading.topics import PartitionState
from fencepost.console.record_marks import Batch, Mark, Outcomes
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import read_records
from tests.console.partition import WrittenPartition, carry_out


@dataclass
class World:
    """Partitions, and what was asked of their leader. kept: batches that compaction has left; failures: of fetches."""

    written: Sequence[WrittenPartition]
    kept: Mapping[int, list[Batch]]
    block_bytes: int
    fetched: int = 0
    failures: list[Exception] = field(default_factory=list)

    def states(self) -> list[PartitionState]:
        return [
            PartitionState("t", index, 1, 0, start=0, high_watermark=one.end, last_stable_offset=one.last_stable_offset)
            for index, one in enumerate(self.written)
        ]

    def offsets(self, index: int) -> list[int]:
        found = []
        for batch in self.kept[index]:
            header = batch.header
            offsets = [header.base_offset] if header.is_control else [one.offset for one in read_records(batch.content)]
            found += offsets
        return found

    async def fetch(
        self, _: Any, partition: PartitionState, offset: int, isolation: int, __: int, *, wait_ms: int
    ) -> Fetched:
        del wait_ms
        self.fetched += 1
        if self.failures:
            raise self.failures.pop()
        written = self.written[partition.index]
        end = written.last_stable_offset if isolation == COMMITTED else written.end
        found: list[Batch] = []
        for batch in self.kept[partition.index]:
            if batch.header.last_offset < offset or batch.header.base_offset >= end:
                continue
            found.append(batch)
            if sum(one.header.size_bytes for one in found) >= self.block_bytes:
                break
        aborted = written.aborted_from(offset) if isolation == COMMITTED else []
        return Fetched(found, aborted, written.end, written.last_stable_offset)

    async def read_outcomes(self, _: Any, partition: PartitionState, shown: Range, __: int) -> Outcomes:
        written = self.written[partition.index]
        behind = [one for one in self.kept[partition.index] if one.header.base_offset >= shown.next_offset]
        return Outcomes([*shown.batches, *behind], (), written.first_offsets, written.last_stable_offset)

    async def list_offsets(self, _: Any, __: int, places: Any, timestamp: int, ___: int) -> dict[Any, Any]:
        found = {}
        for place in places:
            batches = self.kept[place[1]]
            times = [one.header.max_timestamp_ms for one in batches]
            written_ms = (max(times) if timestamp == NEWEST else times[0]) if times else -1
            found[place] = 0, written_ms, 0
        return found


def world_of(actions: list[list[tuple[str, int, int]]], holes: list[int], block_bytes: int) -> World:
    written = [carry_out(one) for one in actions]
    kept = {}
    for index, one in enumerate(written):
        kept[index] = [
            batch
            for number, batch in enumerate(one.batches)
            if batch.is_marker or batch.header.last_offset >= one.last_stable_offset or number not in holes
        ]
    return World(written, kept, block_bytes)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Any:
    def put(world: World) -> World:
        for name in ("fetch", "read_outcomes", "list_offsets"):
            monkeypatch.setattr(scanning, name, getattr(world, name))
        monkeypatch.setattr(scanning, "BLOCK_BYTES", world.block_bytes)
        monkeypatch.setattr(scanning, "PAUSE_S", 0)
        return world

    return put


def scan_of(
    world: World, at: Mapping[int, int] | None = None, *, is_backwards: bool, most_bytes: int = 1 << 40
) -> Scan:
    states = world.states()
    ends = {one.index: one.high_watermark or 0 for one in states}
    begins = dict.fromkeys(ends, 0)
    positions = at or (ends if is_backwards else begins)
    budget = Budget(1 << 40, most_bytes, 600)
    return Scan(None, states, positions, begins if is_backwards else ends, budget, is_backwards=is_backwards)  # type: ignore[arg-type]


async def page_by_page(world: World, sizes: Sequence[int], *, is_backwards: bool, most_bytes: int) -> list[Found]:
    """Read everything, each page from the positions of the one before, some of which are put back first."""
    found: list[Found] = []
    at: Mapping[int, int] | None = None
    for number in range(10_000):
        scan = scan_of(world, at, is_backwards=is_backwards, most_bytes=most_bytes)
        size = sizes[number % len(sizes)]
        page: list[Found] = []
        while len(page) < size and (one := await scan.next()) is not None:
            page.append(one)
        if scan.ended == "complete":
            assert not scan.has_more
            return found + page
        kept = max(1, len(page) * 2 // 3)
        scan.put_back(page[kept:])
        found += page[:kept]
        at = scan.positions
    raise AssertionError("it never ended")


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["write", "write", "plain", "commit", "abort"]), st.integers(1, 3), st.integers(1, 9)),
    max_size=14,
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(ACTIONS, min_size=1, max_size=4),
    st.lists(st.integers(0, 14)),
    st.booleans(),
    st.lists(st.integers(1, 12), min_size=1, max_size=3),
    st.sampled_from([1, 200, 400, 10_000]),
    st.sampled_from([1, 500, 1 << 30]),
)
def test_pages_have_each_record_once_and_how_it_stands(
    use: Any,
    actions: list[list[tuple[str, int, int]]],
    holes: list[int],
    is_backwards: bool,
    sizes: list[int],
    block_bytes: int,
    most_bytes: int,
) -> None:
    world = use(world_of(actions, holes, block_bytes))
    found = asyncio.run(page_by_page(world, sizes, is_backwards=is_backwards, most_bytes=most_bytes))
    for index, written in enumerate(world.written):
        rows = [one.row for one in found if one.partition.index == index]
        expected = world.offsets(index)
        assert [one.offset for one in rows] == (expected[::-1] if is_backwards else expected)
        for row in rows:
            wanted = written.marks[row.offset]
            assert row.mark is wanted or row.mark is Mark.UNDECIDED


@pytest.mark.parametrize("is_backwards", [True, False])
def test_partitions_are_merged_by_time(use: Any, is_backwards: bool) -> None:
    # The time of a record in these partitions is that of the first offset of its batch: see WrittenPartition.
    world = use(world_of([[("plain", 1, 1)] * 40, [("plain", 1, 1)] * 25, []], [], 10_000))

    async def run() -> list[Found]:
        scan = scan_of(world, is_backwards=is_backwards)
        return [one for part in [part async for part in scan.batches(7)] for one in part]

    found = asyncio.run(run())
    times = [one.row.timestamp_ms for one in found]
    assert times == sorted(times, reverse=is_backwards)
    assert len(found) == 65


def test_the_newest_page_of_a_thousand_partitions_reads_few_of_them(use: Any) -> None:
    world = use(world_of([[("plain", 1, 1)] * (5 + index % 50) for index in range(1_000)], [], 1 << 20))

    async def run() -> None:
        scan = scan_of(world, is_backwards=True)
        for _ in range(50):
            assert await scan.next() is not None

    asyncio.run(run())
    assert world.fetched <= 60


def test_records_that_wait_for_their_turn_are_bounded_and_read_again(use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world = use(world_of([[("plain", 1, 9)] * 30 for _ in range(20)], [], 2_000))
    monkeypatch.setattr(scanning, "MOST_HELD_BYTES", 10_000)

    async def run() -> int:
        scan, most = scan_of(world, is_backwards=False), 0
        seen = set()
        while (one := await scan.next()) is not None:
            assert (one.partition.index, one.row.offset) not in seen
            seen.add((one.partition.index, one.row.offset))
            most = max(most, sum(cursor.held_bytes for cursor in scan._cursors.values()))
        assert len(seen) == 20 * 30 * 9
        return most

    assert asyncio.run(run()) <= 10_000 + 3_000


def test_a_bound_ends_it_with_its_reason_and_the_positions_go_on(use: Any) -> None:
    world = use(world_of([[("plain", 1, 3)] * 20], [], 200))

    async def run() -> None:
        states = world.states()
        gone = False
        budget = Budget(10, 1 << 40, 600, lambda: gone)
        scan = Scan(None, states, {0: 0}, {0: 60}, budget, is_backwards=False)  # type: ignore[arg-type]
        while await scan.next() is not None:
            pass
        assert (scan.ended, scan.positions, budget.records) == ("10 records were looked at", {0: 10}, 10)
        gone = True
        scan = Scan(None, states, {0: 10}, {0: 60}, replace(budget, records=0), is_backwards=False)  # type: ignore[arg-type]
        assert await scan.next() is None
        assert scan.ended == "nobody waits for it any more"

    asyncio.run(run())


class Moving:
    """A cluster whose partition is led by another broker from the second question on."""

    def __init__(self, leader: int) -> None:
        self.leader = leader

    async def view(self, names: Sequence[str]) -> Any:
        partition = Partition(0, self.leader, 1, (), (), 0)
        return ClusterView("c", 1, {}, {name: Topic(name, False, (partition,)) for name in names})


@pytest.mark.parametrize(
    "error", [RefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER), UnreachableError("it closed the connection")]
)
def test_a_leader_that_moves_is_found_again(use: Any, error: Exception) -> None:
    world = use(world_of([[("plain", 1, 3)] * 20], [], 200))
    world.failures = [error]

    async def run() -> None:
        budget = Budget(1 << 40, 1 << 40, 600)
        states = world.states()
        scan = Scan(Moving(7), states, {0: 0}, {0: 60}, budget, is_backwards=False)  # type: ignore[arg-type]
        assert [found.row.offset for part in [one async for one in scan.batches(9)] for found in part] == list(
            range(60)
        )
        assert states[0].leader == 7
        assert not scan.failed

    asyncio.run(run())


def test_a_partition_that_stays_away_is_named_and_its_position_kept(use: Any) -> None:
    world = use(world_of([[("plain", 1, 3)] * 4, [("plain", 1, 3)] * 4], [], 10_000))
    world.failures = [RefusedError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)]

    async def run() -> None:
        scan = scan_of(world, is_backwards=False)
        found = [one for part in [one async for one in scan.batches(9)] for one in part]
        assert len(found) == 12
        [(index, reason)] = scan.failed.items()
        assert "TOPIC_AUTHORIZATION_FAILED" in reason
        assert scan.positions[index] == 0
        assert scan.has_more

    asyncio.run(run())


@pytest.mark.parametrize(("is_backwards", "expected"), [(False, list(range(30, 60))), (True, list(range(59, 29, -1)))])
def test_what_retention_deletes_meanwhile_is_passed_and_told(
    use: Any, monkeypatch: pytest.MonkeyPatch, is_backwards: bool, expected: list[int]
) -> None:
    world = use(world_of([[("plain", 1, 3)] * 20], [], 10_000))
    world.kept[0][:] = [one for one in world.kept[0] if one.header.base_offset >= 30]
    world.failures = [RefusedError(ErrorCode.OFFSET_OUT_OF_RANGE)]

    async def fill(_: Any, partitions: Sequence[PartitionState]) -> None:
        partitions[0].start = 30

    monkeypatch.setattr(scanning, "fill_offsets", fill)

    async def run() -> None:
        scan = scan_of(world, is_backwards=is_backwards)
        assert [found.row.offset for part in [one async for one in scan.batches(9)] for found in part] == expected
        assert scan.deleted == 30
        assert not scan.has_more

    asyncio.run(run())
