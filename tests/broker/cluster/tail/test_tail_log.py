"""Flushes of a cluster's node, on a modelled engine: what is committed, what trouble does, what a take-over finds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest

from fencepost.broker.cluster.objects.object_ids import Uploader, uploader_of
from fencepost.broker.cluster.tail import large_flushes, tail_log
from fencepost.broker.cluster.tail.tail_store import FlushId, PartitionKey, TailRow
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.durability.shared_log import AppendedBytes
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from tests.broker.cluster.tail.tail_world import HeldTenure, KeptObjects, TailWorld
from tests.support.captured_events import capture_logs
from tests.support.log_world import ORDERS, TOPIC_ID, content_of
from tests.support.simulated_engine import EngineFaults, EngineSession, Guard, SimulatedEngine

if TYPE_CHECKING:
    from fencepost.broker.storage.disk import LogFile

KEY = PartitionKey(TOPIC_ID, 0)


def node_of(engine: SimulatedEngine, path: Path, node_id: int = 1, **kept: object) -> tuple[TailWorld, EngineSession]:
    session = engine.session()
    tenure = HeldTenure(node_id, engine.raise_fence(node_id))
    return TailWorld(str(path), session, session, tenure, **kept), session  # type: ignore[arg-type]


async def flushed(world: TailWorld) -> None:
    await asyncio.wait_for(_flushed(world), 20)


async def _flushed(world: TailWorld) -> None:
    await world.orders.flushed()


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110  # nothing announces it
            await asyncio.sleep(0.001)


async def test_a_flush_commits_the_bytes_that_were_appended_with_their_place(tmp_path: Path) -> None:
    engine = SimulatedEngine()
    world, _ = node_of(engine, tmp_path)
    await world.start()
    world.create()
    world.append(b"one")
    await flushed(world)
    world.append(b"two", b"three")
    await flushed(world)
    first, second = engine.tail(KEY)
    assert (first.base_offset, first.end_offset, second.base_offset, second.end_offset) == (0, 1, 1, 3)
    assert second.position == first.length_bytes
    assert bytes(first.content or b"") + bytes(second.content or b"") == content_of(
        f"{world.path}/{ORDERS}/{0:020d}.log"
    )


async def test_a_commit_whose_reply_is_lost_is_found_and_not_repeated(tmp_path: Path) -> None:
    engine = SimulatedEngine(faults=EngineFaults(lost_replies=1.0))
    world, session = node_of(engine, tmp_path)
    await world.start()
    world.create()
    world.append(b"one")
    waiting = asyncio.ensure_future(flushed(world))
    await until(lambda: engine.tail(KEY))
    engine.faults = EngineFaults()
    await waiting
    assert session.commits_count == 1
    assert world.orders.high_watermark == 1


async def test_records_wait_for_an_engine_that_is_away_and_their_log_stays_online(tmp_path: Path) -> None:
    engine = SimulatedEngine()
    world, _ = node_of(engine, tmp_path)
    await world.start()
    world.create()
    engine.begin_fail_over()
    world.append(b"one")
    waiting = asyncio.ensure_future(flushed(world))
    await until(lambda: world.shared.is_waiting)
    world.append(b"two")
    assert world.orders.high_watermark == 0
    assert not world.orders.is_offline
    engine.end_fail_over()
    await waiting
    await flushed(world)
    assert not world.shared.is_waiting
    assert world.orders.high_watermark == 2


async def test_a_refused_flush_makes_the_node_resign_without_an_offline_log(tmp_path: Path) -> None:
    engine = SimulatedEngine()
    world, _ = node_of(engine, tmp_path)
    await world.start()
    log = world.create()
    engine.raise_fence(1)
    world.append(b"one")
    with pytest.raises(StorageError, match="is led by another node now"):
        await flushed(world)
    assert world.tenure.reason == "another node has taken over"
    assert log.is_deleted
    assert engine.tail(KEY) == []


async def test_a_flush_for_a_deleted_topic_is_not_acknowledged_and_ends_what_its_log_serves(tmp_path: Path) -> None:
    engine = SimulatedEngine()
    world, _ = node_of(engine, tmp_path)
    await world.start()
    log = world.create()
    engine.deleted.add(TOPIC_ID)
    world.append(b"meant for the topic that has the name now")
    with pytest.raises(StorageError, match="is led by another node now"):
        await flushed(world)
    assert world.tenure.reason is None
    assert log.is_deleted
    assert engine.tail(KEY) == []


async def test_a_log_that_nobody_releases_goes_offline_when_its_topic_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = SimulatedEngine()
    world, _ = node_of(engine, tmp_path)
    monkeypatch.setattr(world.tenure, "resign_from", lambda keys: None)
    await world.start()
    log = world.create()
    engine.deleted.add(TOPIC_ID)
    world.append(b"one")
    with pytest.raises(StorageError, match="is offline"):
        await flushed(world)
    assert log.high_watermark == 0


async def test_a_node_that_has_resigned_gives_up_the_flush_that_it_was_trying(tmp_path: Path) -> None:
    engine = SimulatedEngine()
    world, _ = node_of(engine, tmp_path)
    await world.start()
    world.create()
    engine.begin_fail_over()
    world.append(b"one")
    waiting = asyncio.ensure_future(flushed(world))
    await until(lambda: world.shared.is_waiting)
    world.tenure.resign("deposed")
    world.tenure.fence += 1
    with pytest.raises(StorageError):
        await waiting
    await asyncio.wait_for(world.logs.flusher.drain(), 20)


async def test_a_late_refusal_leaves_the_next_incarnation_of_the_node_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node was frozen, and has begun anew while a flush of its last incarnation was on its way."""
    engine = SimulatedEngine()
    world, session = node_of(engine, tmp_path)
    commit = session.commit

    async def commit_late(*flush: Any, **objects: Any) -> bool:
        world.tenure.fence += 1
        return await commit(*flush, **objects)

    monkeypatch.setattr(session, "commit", commit_late)
    await world.start()
    log = world.create()
    engine.raise_fence(1)
    world.append(b"one")
    with capture_logs() as lines, pytest.raises(StorageError, match="another node leads the partition now"):
        await flushed(world)
    assert world.tenure.reason is None
    assert log.is_offline
    assert [line["event"] for line in lines] == ["partition_given_up"]


async def test_rows_of_another_flush_at_the_same_offsets_make_the_node_resign(tmp_path: Path) -> None:
    engine = SimulatedEngine()
    world, _ = node_of(engine, tmp_path)
    await world.start()
    world.create()
    engine.insert(FlushId(2, 1, 1), [TailRow(KEY, 0, 0, 3, 0, 1, 0, b"abc")])
    world.append(b"one")
    with pytest.raises(StorageError):
        await flushed(world)
    assert world.tenure.reason is not None
    assert engine.tail(KEY)[0].content == b"abc"


async def test_a_large_flush_goes_as_an_object_that_the_rows_point_into(tmp_path: Path) -> None:
    engine, objects = SimulatedEngine(), KeptObjects()
    world, _ = node_of(engine, tmp_path / "a", objects=objects, inline_max_bytes=1_000)
    await world.start()
    world.create(LogConfig(segment_bytes=2_000))
    for number in range(30):
        world.append(b"%d" % number * 100)
    await flushed(world)
    world.append(b"small")
    await flushed(world)
    rows = engine.tail(KEY)
    assert len(objects.objects) == 1
    assert {row.object_id for row in rows[:-1]} == set(objects.objects)
    assert rows[-1].object_id is None
    heir, _ = node_of(engine, tmp_path / "b", node_id=2, objects=objects)
    await heir.start()
    log = await heir.take_over()
    assert log.high_watermark == 31
    assert files_of(heir) == files_of(world)


async def test_a_flush_that_no_object_takes_is_committed_in_statements_that_end_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_log, "STATEMENT_BYTES", 3_000)
    engine = SimulatedEngine()
    world, session = node_of(engine, tmp_path / "a", inline_max_bytes=2**30)
    await world.start()
    world.create(LogConfig(segment_bytes=20_000))
    for number in range(60):
        world.append(b"%02d" % number * 400)
    await flushed(world)
    rows = engine.tail(KEY)
    assert session.commits_count == len(rows) > 10
    assert max(row.length_bytes for row in rows) <= 3_000
    heir, _ = node_of(engine, tmp_path / "b", node_id=2)
    await heir.start()
    assert (await heir.take_over()).high_watermark == 60
    assert files_of(heir) == files_of(world)


async def test_objects_of_a_flush_that_waits_are_those_that_its_rows_name(tmp_path: Path) -> None:
    engine, objects = SimulatedEngine(), KeptObjects()
    world, _ = node_of(engine, tmp_path / "a", objects=objects, inline_max_bytes=1_000)
    await world.start()
    world.create()
    engine.begin_fail_over()
    world.append(b"x" * 2_000)
    waiting = asyncio.ensure_future(flushed(world))
    await until(lambda: world.shared.is_waiting)
    (object_id,) = objects.objects
    engine.end_fail_over()
    await waiting
    assert [row.object_id for row in engine.tail(KEY)] == [object_id]
    assert uploader_of(object_id) == Uploader(world.shared._tenure.node_id, world.shared._tenure.fence)


async def test_a_very_large_flush_is_divided_into_objects_where_batches_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_log, "divide", partial(large_flushes.divide, object_bytes=3_000))
    engine, objects = SimulatedEngine(), KeptObjects()
    world, _ = node_of(engine, tmp_path / "a", objects=objects, inline_max_bytes=1_000)
    await world.start()
    world.create(LogConfig(segment_bytes=20_000))
    for number in range(60):
        world.append(b"%02d" % number * 400)
    world.append(b"larger than an object" * 200)
    world.append(b"last")
    await flushed(world)
    rows = engine.tail(KEY)
    assert len(objects.objects) > 10
    assert sum(len(content) > 3_000 for content in objects.objects.values()) == 1
    assert [row.base_offset for row in rows[1:]] == [row.end_offset for row in rows[:-1]]
    heir, _ = node_of(engine, tmp_path / "b", node_id=2, objects=objects)
    await heir.start()
    log = await heir.take_over()
    assert log.high_watermark == 62
    assert files_of(heir) == files_of(world)


async def test_what_was_appended_to_one_log_is_read_in_steps_where_it_is_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_log, "READ_AT_ONCE_BYTES", 4_000)
    monkeypatch.setattr(tail_log, "READ_PER_STEP_BYTES", 1_000)
    engine, objects = SimulatedEngine(), KeptObjects()
    world, _ = node_of(engine, tmp_path / "a", objects=objects, inline_max_bytes=1_000)
    await world.start()
    world.create()
    for number in range(60):
        world.append(b"%02d" % number * 400)
    file = world.orders.segments.active.batches.log
    turns, reads = 0, []

    def count_turn() -> None:
        nonlocal turns
        turns += 1
        if world.orders.high_watermark < 60:
            asyncio.get_running_loop().call_soon(count_turn)

    class Counted:
        path = file.path

        def read(self, position: int, length_bytes: int) -> memoryview:
            reads.append((turns, length_bytes))
            return file.read(position, length_bytes)

    (taken,) = world.orders.take_appended()
    count_turn()
    await world.shared.commit([taken._replace(file=cast("LogFile", Counted()))])
    world.orders.high_watermark = 60
    assert max(length for _, length in reads) == 1_000
    assert len({turn for turn, _ in reads}) == len(reads) >= 48, "others run between two reads"
    heir, _ = node_of(engine, tmp_path / "b", node_id=2, objects=objects)
    await heir.start()
    await heir.take_over()
    assert files_of(heir) == files_of(world)


async def test_a_file_that_is_shorter_than_what_was_appended_is_an_error_of_its_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tail_log, "READ_AT_ONCE_BYTES", 1_000)
    engine = SimulatedEngine()
    shared = tail_log.TailLog(engine.session(), HeldTenure(1, engine.raise_fence(1)))
    cut = appended(0, 0)
    with pytest.raises(StorageError, match="orders-0 is shorter than what was appended") as raised:
        await shared.commit([cut._replace(length_bytes=cut.length_bytes + 1), appended(1, 0)])
    assert raised.value.paths == {"orders-0"}
    assert (offsets_of(engine, 0), offsets_of(engine, 1)) == ([], [0])


# Large flushes beside each other


class HeldObjects(KeptObjects):
    """Objects whose puts end when the test says so. waiting: what is to be put, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[tuple[bytes, asyncio.Future[None]]] = []

    async def put(self, uploader: Uploader, contents: Sequence[bytes | memoryview]) -> UUID:
        may_end = asyncio.get_running_loop().create_future()
        self.waiting.append((b"".join(contents), may_end))
        await may_end
        return await super().put(uploader, contents)

    def end(self, number: int) -> None:
        self.waiting[number][1].set_result(None)

    async def end_all(self, flushes: Sequence[asyncio.Future[None]]) -> None:
        """End all puts as they come, until all flushes are done."""
        while not all(flush.done() for flush in flushes):
            for _, may_end in self.waiting:
                if not may_end.done():
                    may_end.set_result(None)
            await asyncio.sleep(0.001)


LARGE = b"large" * 500


async def with_large_flushes(
    engine: SimulatedEngine, path: Path, monkeypatch: pytest.MonkeyPatch, count: int = 2
) -> tuple[TailWorld, EngineSession, HeldObjects]:
    """A node with flushes of one large record each under way, side by side."""
    monkeypatch.setattr(tail_log, "ANOTHER_FROM_BYTES", len(LARGE))
    objects = HeldObjects()
    world, session = node_of(engine, path, objects=objects, inline_max_bytes=1_000)
    await world.start()
    world.create()
    for number in range(count):
        append_large(world)
        await until(lambda: len(objects.waiting) > number)  # noqa: B023  # called at once
    return world, session, objects


def append_large(world: TailWorld) -> None:
    """Append a record as a Produce does, and ask for a flush."""
    world.append(LARGE)
    world.orders.flush_soon()
    world.shared.room_after(len(LARGE))


async def some_turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_large_flush_is_stored_beside_the_one_before_and_committed_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = SimulatedEngine()
    world, _, objects = await with_large_flushes(engine, tmp_path / "a", monkeypatch)
    objects.end(1)
    await some_turns()
    assert engine.tail(KEY) == []
    assert world.orders.high_watermark == 0
    objects.end(0)
    await until(lambda: world.orders.high_watermark == 2)
    assert [(row.base_offset, row.end_offset) for row in engine.tail(KEY)] == [(0, 1), (1, 2)]
    assert world.shared.unflushed_bytes == 0
    heir, _ = node_of(engine, tmp_path / "b", node_id=2, objects=objects)
    await heir.start()
    assert (await heir.take_over()).high_watermark == 2
    assert files_of(heir) == files_of(world)


async def test_four_flushes_are_under_way_at_most_and_the_next_begins_when_one_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = SimulatedEngine()
    world, _, objects = await with_large_flushes(engine, tmp_path, monkeypatch, tail_log.FLUSHES_UNDER_WAY)
    for _ in range(3):
        append_large(world)
    await some_turns()
    assert len(objects.waiting) == tail_log.FLUSHES_UNDER_WAY
    objects.end(0)
    await until(lambda: len(objects.waiting) > tail_log.FLUSHES_UNDER_WAY)
    content, _ = objects.waiting[-1]
    assert len(content) > 3 * len(LARGE), "all that was appended meanwhile goes with one flush"
    for number in range(1, len(objects.waiting)):
        objects.end(number)
    await until(lambda: world.orders.high_watermark == tail_log.FLUSHES_UNDER_WAY + 3)


async def test_flushes_are_counted_by_where_their_bytes_went(tmp_path: Path) -> None:
    engine = SimulatedEngine()
    world, _ = node_of(engine, tmp_path, objects=KeptObjects(), inline_max_bytes=1_000)
    await world.start()
    world.create()
    for value in (b"one", LARGE, b"two"):
        world.append(value)
        await flushed(world)
    shared, rows = world.shared, engine.tail(KEY)
    assert (shared.flushes_count, shared.large_count, shared.rows_count) == (3, 1, 3)
    assert shared.flushed_bytes == sum(row.length_bytes for row in rows)
    assert shared.large_bytes == rows[1].length_bytes


async def test_a_small_flush_does_not_begin_beside_a_large_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = SimulatedEngine()
    world, session, objects = await with_large_flushes(engine, tmp_path, monkeypatch, 1)
    for number in range(3):
        world.append(b"%d" % number)
        world.orders.flush_soon()
        world.shared.room_after(1)
        await some_turns()
    objects.end(0)
    await until(lambda: world.orders.high_watermark == 4)
    assert session.commits_count == 2


async def test_a_fence_that_rises_refuses_all_flushes_that_are_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = SimulatedEngine()
    world, session, objects = await with_large_flushes(engine, tmp_path, monkeypatch, 3)
    log = world.orders
    engine.raise_fence(1)
    for number in (2, 1, 0):
        objects.end(number)
    await asyncio.wait_for(world.logs.flusher.drain(), 20)
    assert world.tenure.reason == "another node has taken over"
    assert engine.tail(KEY) == []
    assert session.commits_count == 1, "what is refused is not tried again by the flushes behind it"
    assert log.is_deleted
    assert log.high_watermark == 0


@pytest.mark.parametrize("ended", [0, 1, 2])
async def test_a_take_over_between_flushes_finds_those_that_were_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: int
) -> None:
    engine = SimulatedEngine()
    world, _, objects = await with_large_flushes(engine, tmp_path / "a", monkeypatch, 3)
    log = world.orders
    for number in range(ended):
        objects.end(number)
    await until(lambda: log.high_watermark == ended)
    engine.raise_fence(1)
    heir, _ = node_of(engine, tmp_path / "b", node_id=2, objects=objects)
    await heir.start()
    assert (await heir.take_over()).high_watermark == ended
    for number in range(ended, 3):
        objects.end(number)
    await asyncio.wait_for(world.logs.flusher.drain(), 20)
    assert world.tenure.reason is not None
    assert log.high_watermark == ended == len(engine.tail(KEY))


async def test_offsets_that_are_taken_stop_all_flushes_behind_though_the_fence_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = SimulatedEngine()
    world, _, objects = await with_large_flushes(engine, tmp_path, monkeypatch)
    engine.insert(FlushId(2, 1, 1), [TailRow(KEY, 0, 0, 3, 0, 1, 0, b"abc")])
    for number in (0, 1):
        objects.end(number)
    await asyncio.wait_for(world.logs.flusher.drain(), 20)
    assert world.tenure.reason == "another flush holds the offsets of this node's"
    assert [row.content for row in engine.tail(KEY)] == [b"abc"]


async def test_flushes_that_wait_for_an_engine_that_is_away_are_committed_once_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = SimulatedEngine(faults=EngineFaults(lost_replies=0.5))
    world, _, objects = await with_large_flushes(engine, tmp_path, monkeypatch, 3)
    engine.begin_fail_over()
    for number in (2, 0, 1):
        objects.end(number)
    await until(lambda: world.shared.is_waiting)
    engine.end_fail_over()
    await until(lambda: world.orders.high_watermark == 3)
    assert [row.base_offset for row in engine.tail(KEY)] == [0, 1, 2]


async def test_flushes_that_would_be_committed_in_no_order_are_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush that does not wait for the one before leaves a hole where that one is refused."""
    in_order = tail_log.TailLog._commit_all

    def in_no_order(
        shared: tail_log.TailLog, appended: Sequence[AppendedBytes], fence: int, before: asyncio.Future[None] | None
    ) -> Awaitable[None]:
        return in_order(shared, appended, fence, None)

    monkeypatch.setattr(tail_log.TailLog, "_commit_all", in_no_order)
    engine = SimulatedEngine()
    world, _, objects = await with_large_flushes(engine, tmp_path / "a", monkeypatch)
    objects.end(1)
    await until(lambda: engine.tail(KEY))
    engine.raise_fence(1)
    objects.end(0)
    await asyncio.wait_for(world.logs.flusher.drain(), 20)
    heir, _ = node_of(engine, tmp_path / "b", node_id=2, objects=objects)
    await heir.start()
    with pytest.raises(StorageError, match="acknowledged records between them are missing"):
        await heir.take_over()


class BytesInFile:
    """What of a file was appended, from a position on; an error where it cannot be read."""

    def __init__(self, path: str, first: int, content: bytes | StorageError) -> None:
        self.path = path
        self._first = first
        self._content = content

    def read(self, position: int, length_bytes: int) -> memoryview:
        if isinstance(self._content, StorageError):
            raise self._content
        start = position - self._first
        return memoryview(self._content)[start : start + length_bytes]


def appended(partition: int, offset: int, content: bytes | StorageError = LARGE) -> AppendedBytes:
    """A record of 2,500 bytes that was appended to a partition at an offset."""
    size = len(LARGE)
    file = BytesInFile(f"orders-{partition}", offset * size, content)
    name = TopicPartition("orders", partition)
    return AppendedBytes(name, TOPIC_ID, 1, 0, offset * size, size, offset, offset + 1, cast("LogFile", file))


def offsets_of(engine: SimulatedEngine, partition: int) -> list[int]:
    return [row.base_offset for row in engine.tail(PartitionKey(TOPIC_ID, partition))]


@pytest.mark.parametrize("inline_max_bytes", [1_000, 1_000_000])
async def test_a_log_that_one_flush_could_not_read_gets_no_rows_from_those_behind_it(inline_max_bytes: int) -> None:
    engine, objects = SimulatedEngine(), HeldObjects()
    tenure = HeldTenure(1, engine.raise_fence(1))
    shared = tail_log.TailLog(engine.session(), tenure, objects=objects, inline_max_bytes=inline_max_bytes)
    unreadable = StorageError("unreadable", paths=["orders-0"])
    flushes = [
        asyncio.ensure_future(shared.commit(each))
        for each in (
            [appended(0, 0, unreadable), appended(1, 0)],
            [appended(0, 1), appended(1, 1)],
            [appended(0, 2), appended(1, 2)],
            [appended(1, 3)],
        )
    ]
    await objects.end_all(flushes)
    *failed, last = await asyncio.gather(*flushes, return_exceptions=True)
    assert last is None
    for error in failed:
        assert isinstance(error, StorageError)
        assert error.paths == {"orders-0"}
    assert offsets_of(engine, 0) == []
    assert offsets_of(engine, 1) == [0, 1, 2, 3]
    named = {row.object_id for row in engine.tail(PartitionKey(TOPIC_ID, 1))}
    assert named == set(objects.objects) or named == {None}
    assert objects.abandoned == []
    assert tenure.reason is None
    later = asyncio.ensure_future(shared.commit([appended(0, 3)]))
    await objects.end_all([later])
    await later
    assert offsets_of(engine, 0) == [3], "the log was opened again meanwhile: nothing of it is left out for good"


async def test_an_unforeseen_failure_of_a_flush_leaves_its_logs_out_of_those_behind_it_and_no_others() -> None:
    engine, objects = SimulatedEngine(), HeldObjects()
    tenure = HeldTenure(1, engine.raise_fence(1))
    shared = tail_log.TailLog(engine.session(), tenure, objects=objects, inline_max_bytes=1_000)
    flushes = [
        asyncio.ensure_future(shared.commit(each)) for each in ([appended(0, 0)], [appended(0, 1), appended(1, 0)])
    ]
    await until(lambda: len(objects.waiting) == 2)
    objects.waiting[0][1].set_exception(RuntimeError("unforeseen"))
    objects.end(1)
    first, second = await asyncio.gather(*flushes, return_exceptions=True)
    assert isinstance(first, RuntimeError)
    assert isinstance(second, StorageError)
    assert second.paths == {"orders-0"}
    assert (offsets_of(engine, 0), offsets_of(engine, 1)) == ([], [0])


async def test_objects_of_which_no_row_is_committed_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_flushes, "OBJECT_BYTES", 2_000)
    engine, objects = SimulatedEngine(), HeldObjects()
    shared = tail_log.TailLog(
        engine.session(), HeldTenure(1, engine.raise_fence(1)), objects=objects, inline_max_bytes=1_000
    )
    first = asyncio.ensure_future(shared.commit([appended(0, 0)]))
    second = asyncio.ensure_future(shared.commit([appended(0, 1)]))
    await until(lambda: len(objects.waiting) == 2)
    objects.waiting[0][1].set_exception(RuntimeError("unforeseen"))
    objects.end(1)
    await asyncio.gather(first, second, return_exceptions=True)
    assert engine.rows == {}
    assert objects.abandoned == list(objects.objects)


def files_of(world: TailWorld) -> dict[int, bytes]:
    return {one.base_offset: content_of(one.files.path(".log")) for one in world.orders.segments if one.size_bytes}


async def test_the_next_leader_has_the_same_log_producers_and_transactions(tmp_path: Path) -> None:
    engine = SimulatedEngine()
    world, _ = node_of(engine, tmp_path / "a")
    await world.start()
    world.create(LogConfig(segment_bytes=3_000))
    sequences, epoch = {7: count(), 8: count()}, 0
    for number in range(60):
        producer_id = 7 + number % 2
        result = world.append(
            b"%d" % number * 20,
            producer_id=producer_id,
            producer_epoch=epoch if producer_id == 7 else 0,
            base_sequence=next(sequences[producer_id]),
            is_transactional=True,
        )
        assert result.error is ErrorCode.NONE
        if number % 10 == 9:
            epoch, sequences[7] = epoch + 1, count()
            assert world.end_transaction(7, epoch, committed=number % 20 == 9) is ErrorCode.NONE
    await flushed(world)
    before = world.orders
    end_offset, stable_offset = before.log_end_offset, before.last_stable_offset
    transactions, producers = before.producers.open_transactions(), before.producers.snapshot()
    heir, _ = node_of(engine, tmp_path / "b", node_id=2)
    await heir.start()
    log = await heir.take_over()
    assert log.log_end_offset == log.high_watermark == end_offset
    assert log.last_stable_offset == stable_offset
    assert log.producers.open_transactions() == transactions
    assert log.producers.snapshot() == producers
    retry = heir.append(b"%d" % 59 * 20, producer_id=8, producer_epoch=0, base_sequence=29, is_transactional=True)
    assert retry.error is ErrorCode.NONE
    assert retry.last_offset < log.log_end_offset
    heir.append(b"by the heir")
    await flushed(heir)
    assert log.high_watermark == end_offset + 1


async def test_a_partition_without_records_is_restored_empty_and_grows(tmp_path: Path) -> None:
    engine = SimulatedEngine()
    world, _ = node_of(engine, tmp_path)
    await world.start()
    log = await world.take_over()
    assert (log.log_end_offset, log.topic_id) == (0, TOPIC_ID)
    world.append(b"one")
    await flushed(world)
    assert len(engine.tail(KEY)) == 1


async def test_a_partition_that_comes_back_has_what_others_wrote_meanwhile(tmp_path: Path) -> None:
    engine = SimulatedEngine()
    first, _ = node_of(engine, tmp_path / "a")
    second, _ = node_of(engine, tmp_path / "b", node_id=2)
    await first.start()
    await second.start()
    first.create()
    first.append(b"one")
    await flushed(first)
    first.logs.release(ORDERS)
    await second.take_over()
    second.append(b"two")
    await flushed(second)
    second.logs.release(ORDERS)
    log = await first.take_over(leader_epoch=2)
    assert log.high_watermark == 2
    assert files_of(first) == {0: b"".join(bytes(row.content or b"") for row in engine.tail(KEY))}


@pytest.mark.parametrize("lost", [0, 1])
async def test_a_tail_with_a_hole_is_refused_and_not_served_short(tmp_path: Path, lost: int) -> None:
    engine = SimulatedEngine()
    world, _ = node_of(engine, tmp_path / "a")
    await world.start()
    world.create()
    for value in (b"one", b"two", b"three"):
        world.append(value)
        await flushed(world)
    del engine.rows[(KEY, lost)]
    heir, _ = node_of(engine, tmp_path / "b", node_id=2)
    await heir.start()
    with pytest.raises(StorageError, match="acknowledged records between them are missing"):
        await heir.take_over()


@pytest.mark.parametrize("damaged", [0, 1, 2])
async def test_a_tail_with_damaged_bytes_is_not_served_short_either(tmp_path: Path, damaged: int) -> None:
    engine = SimulatedEngine()
    world, _ = node_of(engine, tmp_path / "a")
    await world.start()
    world.create()
    for value in (b"one", b"two", b"three"):
        world.append(value)
        await flushed(world)
    stored = engine.rows[(KEY, damaged)]
    content = bytearray(stored.row.content or b"")
    content[-2] ^= 1
    engine.rows[(KEY, damaged)] = stored._replace(row=stored.row._replace(content=bytes(content)))
    heir, _ = node_of(engine, tmp_path / "b", node_id=2)
    await heir.start()
    log = await heir.take_over()
    assert log.is_offline
    assert "Records had been on the disk up to offset 3" in (log.offline_reason or "")


async def test_a_take_over_waits_for_an_engine_that_is_away(tmp_path: Path) -> None:
    engine = SimulatedEngine()
    world, _ = node_of(engine, tmp_path)
    await world.start()
    engine.begin_fail_over()
    taking_over = asyncio.ensure_future(world.take_over())
    await asyncio.sleep(0.1)
    assert not taking_over.done()
    engine.end_fail_over()
    assert (await taking_over).log_end_offset == 0


# Take-overs under load and faults


class SlowObjects(KeptObjects):
    """Objects whose puts end in any order."""

    def __init__(self, randomness: random.Random) -> None:
        super().__init__()
        self._randomness = randomness

    async def put(self, uploader: Uploader, contents: Sequence[bytes | memoryview]) -> UUID:
        await asyncio.sleep(self._randomness.random() * 0.005)
        return await super().put(uploader, contents)


async def late_or_lost(tmp_path: Path, seed: int, guard: Guard, *, is_large: bool = False) -> int:
    """Run two nodes that take a partition over from each other under load and faults.

    is_large: all flushes go as objects, and several are under way at a time.

    Returns how many acknowledged records are missing at the end, and how many rows came too late.
    """
    randomness = random.Random(seed)
    engine = SimulatedEngine(randomness, EngineFaults(0.002, lost_replies=0.2, refusals=0.1), guard)
    acknowledged: list[bytes] = []
    worlds: list[TailWorld] = []
    writers: list[asyncio.Task[None]] = []
    late = 0
    numbers = count()
    objects = SlowObjects(randomness)
    kept: dict[str, object] = {"objects": objects, "inline_max_bytes": 0} if is_large else {}

    async def write(world: TailWorld) -> None:
        try:
            while True:
                value = b"%d" % next(numbers)
                world.append(value)
                acknowledgement = world.orders.flushed()
                world.shared.room_after(len(value))
                await acknowledgement
                acknowledged.append(value)
                if is_large:
                    await asyncio.sleep(randomness.random() * 0.005)  # the writers keep no step
        except (StorageError, AssertionError):
            pass  # it has resigned

    for turn in range(8):
        if worlds:
            engine.raise_fence(worlds[-1].tenure.node_id)  # the old leader does not know it yet
        seen = len(engine.tail(KEY))
        world, _ = node_of(engine, tmp_path / f"{seed}-{guard.name}-{turn}", node_id=turn, **kept)
        await world.start()
        try:
            await world.take_over(leader_epoch=turn)
        except StorageError:
            return late + 1  # a hole
        after = len(engine.tail(KEY))
        if turn:
            late += after - seen if after > seen else 0
        worlds.append(world)
        writers += [asyncio.ensure_future(write(world)) for _ in range(4 if is_large else 1)]
        await asyncio.sleep(randomness.random() * 0.02)
        if randomness.random() < 0.3:
            engine.begin_fail_over()
            await asyncio.sleep(0.003)
            engine.end_fail_over()
    for writer in writers:
        writer.cancel()
    await asyncio.gather(*writers, return_exceptions=True)
    engine.faults = EngineFaults()
    await asyncio.sleep(0.02)
    last, _ = node_of(engine, tmp_path / f"{seed}-{guard.name}-last", node_id=100, **kept)
    engine.raise_fence(worlds[-1].tenure.node_id)
    await last.start()
    try:
        log = await last.take_over(leader_epoch=100)
    except StorageError:
        return late + 1
    stored = values_of([await content_in(row, objects) for row in engine.tail(KEY)])
    assert log.log_end_offset == len(stored)
    for world in worlds:
        world.disk.close()
    return late + len(set(acknowledged) - set(stored))


async def content_in(row: TailRow, objects: KeptObjects) -> bytes:
    if row.object_id is None:
        return bytes(row.content or b"")
    return await objects.get(row.object_id, row.object_position, row.length_bytes, row.checksum)


def values_of(contents: Sequence[bytes]) -> list[bytes]:
    """The values of all records in batches."""
    from kafka.record import MemoryRecords

    values: list[bytes] = []
    records = MemoryRecords(b"".join(contents))
    while (batch := records.next_batch()) is not None:
        values += [record.value for record in batch]
    return values


@pytest.mark.parametrize("seed", range(6))
async def test_no_acknowledged_record_is_lost_in_take_overs_under_faults(tmp_path: Path, seed: int) -> None:
    assert await late_or_lost(tmp_path, seed, Guard.LOCK) == 0


@pytest.mark.parametrize("seed", range(6))
async def test_no_acknowledged_record_is_lost_in_take_overs_between_flushes_that_are_under_way(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_log, "ANOTHER_FROM_BYTES", 1)
    assert await late_or_lost(tmp_path, seed, Guard.LOCK, is_large=True) == 0


async def test_a_guard_that_does_not_lock_is_found_out(tmp_path: Path) -> None:
    """Commits after a take-over has read the tail: the same run finds them where the guard is wrong."""
    found = [await late_or_lost(tmp_path, seed, Guard.PLAIN_READ) for seed in range(6)]
    assert any(found)
