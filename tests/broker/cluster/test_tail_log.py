"""Flushes of a cluster's node, on a modelled engine: what is committed, what trouble does, what a take-over finds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.cluster import large_flushes, tail_log
from fencepost.broker.cluster.tail_store import FlushId, PartitionKey, TailRow
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from tests.broker.cluster.tail_world import HeldTenure, KeptObjects, TailWorld
from tests.support.captured_events import capture_logs
from tests.support.log_world import ORDERS, TOPIC_ID, content_of
from tests.support.simulated_engine import EngineFaults, EngineSession, Guard, SimulatedEngine

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


async def test_objects_of_a_flush_that_waits_for_long_are_stored_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_log, "OBJECT_KEPT_S", 0.01)
    engine, objects = SimulatedEngine(), KeptObjects()
    world, _ = node_of(engine, tmp_path / "a", objects=objects, inline_max_bytes=1_000)
    await world.start()
    world.create()
    engine.begin_fail_over()
    world.append(b"x" * 2_000)
    waiting = asyncio.ensure_future(flushed(world))
    await until(lambda: world.shared.is_waiting)
    await asyncio.sleep(0.05)
    engine.end_fail_over()
    await waiting
    assert len(objects.objects) == 2
    (row,) = engine.tail(KEY)
    assert row.object_id == list(objects.objects)[1]


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
    transactions, producers = before.open_transactions(), before.producer_snapshots()
    heir, _ = node_of(engine, tmp_path / "b", node_id=2)
    await heir.start()
    log = await heir.take_over()
    assert log.log_end_offset == log.high_watermark == end_offset
    assert log.last_stable_offset == stable_offset
    assert log.open_transactions() == transactions
    assert log.producer_snapshots() == producers
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


async def late_or_lost(tmp_path: Path, seed: int, guard: Guard) -> int:
    """Run two nodes that take a partition over from each other under load and faults.

    Returns how many acknowledged records are missing at the end, and how many rows came too late.
    """
    randomness = random.Random(seed)
    engine = SimulatedEngine(randomness, EngineFaults(0.002, lost_replies=0.2, refusals=0.1), guard)
    acknowledged: list[bytes] = []
    worlds: list[TailWorld] = []
    writers: list[asyncio.Task[None]] = []
    late = 0
    numbers = count()

    async def write(world: TailWorld) -> None:
        try:
            while True:
                value = b"%d" % next(numbers)
                world.append(value)
                await world.orders.flushed()
                acknowledged.append(value)
        except (StorageError, AssertionError):
            pass  # it has resigned

    for turn in range(8):
        if worlds:
            engine.raise_fence(worlds[-1].tenure.node_id)  # the old leader does not know it yet
        seen = len(engine.tail(KEY))
        world, _ = node_of(engine, tmp_path / f"{seed}-{guard.name}-{turn}", node_id=turn)
        await world.start()
        try:
            await world.take_over(leader_epoch=turn)
        except StorageError:
            return late + 1  # a hole
        after = len(engine.tail(KEY))
        if turn:
            late += after - seen if after > seen else 0
        worlds.append(world)
        writers.append(asyncio.ensure_future(write(world)))
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
    last, _ = node_of(engine, tmp_path / f"{seed}-{guard.name}-last", node_id=100)
    engine.raise_fence(worlds[-1].tenure.node_id)
    await last.start()
    try:
        log = await last.take_over(leader_epoch=100)
    except StorageError:
        return late + 1
    stored = values_of([bytes(row.content or b"") for row in engine.tail(KEY)])
    assert log.log_end_offset == len(stored)
    for world in worlds:
        world.disk.close()
    return late + len(set(acknowledged) - set(stored))


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


async def test_a_guard_that_does_not_lock_is_found_out(tmp_path: Path) -> None:
    """Commits after a take-over has read the tail: the same run finds them where the guard is wrong."""
    found = [await late_or_lost(tmp_path, seed, Guard.PLAIN_READ) for seed in range(6)]
    assert any(found)
