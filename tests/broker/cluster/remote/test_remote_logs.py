"""Logs of nodes whose sealed segments are objects: sealed, taken over, read, compacted, deleted."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from fencepost.broker.cluster.machines.check import check_cluster
from fencepost.broker.cluster.objects.names import flush_name
from fencepost.broker.cluster.objects.object_ids import Uploader
from fencepost.broker.cluster.objects.store import StoredObject
from fencepost.broker.cluster.postgres.connections import connect, parse_address
from fencepost.broker.cluster.remote import object_sweep as sweep
from fencepost.broker.cluster.remote import remote_fetch
from fencepost.broker.cluster.remote import remote_merge as merging
from fencepost.broker.cluster.remote import upload as sealing
from fencepost.broker.cluster.remote.segment_objects import SegmentObjects
from fencepost.broker.cluster.remote.upload_plan import UploadLimits
from fencepost.broker.cluster.tail import scratch
from fencepost.broker.hosting.arrivals import Found
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.compaction.cleaner import LogCleaning, dirty_range
from fencepost.broker.log.compaction.segment_merge import merge_segments
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.log_types import Isolation
from fencepost.broker.log.reads.time_search import Searches
from fencepost.broker.log.segment import batch_scan, header_check, remote_segment
from fencepost.broker.storage.disk import NoRoomError, StorageError
from fencepost.broker.storage.local_disk import LocalFile
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import iterate_batches
from tests.broker.cluster.remote.remote_world import CLUSTER_ID, RemoteCluster, RemoteWorld, content
from tests.broker.supervision.planting import logged, plants, raising, unforeseen, until
from tests.support.captured_events import capture_logs
from tests.support.log_world import ORDERS
from tests.support.modelled_objects import ModelledObjects

IN_BLOCKS = LogConfig(segment_bytes=4_096, index_interval_bytes=100)
COMPACTED = LogConfig(segment_bytes=600, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)


async def test_rolled_segments_become_objects_and_leave_the_tail(
    node: RemoteWorld, cluster: RemoteCluster, store: ModelledObjects
) -> None:
    await node.write(20)
    await node.seal_all()
    assert sorted({name.rsplit(".", 1)[1] for name in store.objects}) == ["index", "log", "snapshot", "timeindex"]
    logs = [name for name in store.objects if name.endswith(".log")]
    assert len(logs) == len(node.orders.segments.sealed) > 2
    active = node.orders.segments.active
    assert await cluster.database.fetchval("SELECT min(base_offset) FROM tail") == active.base_offset
    assert await cluster.database.fetchval("SELECT sealed_end FROM partitions") == active.base_offset
    await cluster.check()


async def test_a_node_that_takes_over_has_everything_and_fetches_what_is_read(
    node: RemoteWorld, cluster: RemoteCluster
) -> None:
    await node.write(20)
    before = await content(node.orders)
    await node.seal_all()
    other = await cluster.start()
    log = await other.take_over()
    assert (log.log_start_offset, log.high_watermark) == (0, 20)
    assert log.end_offset_for_leader_epoch(1) == node.orders.end_offset_for_leader_epoch(1)
    assert other.remote_offsets == [segment.base_offset for segment in node.orders.segments.sealed]
    assert await content(log) == before
    assert other.remote_offsets == []
    assert other.sealed.fetches.fetched_count == len(node.orders.segments.sealed)


async def test_a_former_leader_seals_nothing(node: RemoteWorld, cluster: RemoteCluster) -> None:
    await node.write(20)
    other = await cluster.start()
    leads_in = node.leads_in
    await other.take_over()
    node.leads_in = leads_in  # it does not know it yet
    assert await node.sealed.uploads.upload_once() == 0
    assert await cluster.database.fetchval("SELECT count(*) FROM segments") == 0
    await cluster.check()


async def test_producers_and_transactions_go_on_after_a_take_over_from_sealed_segments(
    node: RemoteWorld, cluster: RemoteCluster
) -> None:
    log = node.orders
    for sequence in range(12):
        node.append(b"x" * 150, producer_id=3, producer_epoch=0, base_sequence=sequence)
    node.append(b"aborted" * 10, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    for _ in range(6):
        node.append(b"plain" * 30)
    assert node.end_transaction(7, 1, committed=False) is ErrorCode.NONE
    node.append(b"open" * 10, producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True)
    await node.write(6)
    committed = await content(log, Isolation.READ_COMMITTED)
    await node.seal_all()
    assert len(log.segments.sealed) > 3
    stable_ends = await cluster.database.fetch("SELECT end_offset, stable_end FROM segments ORDER BY end_offset")
    assert [stable for end, stable in stable_ends if end <= 12] == [end for end, _ in stable_ends if end <= 12]
    assert {stable for end, stable in stable_ends if 12 < end <= 19} == {12}  # the first record of the aborted one
    assert stable_ends[-1][1] == log.last_stable_offset
    other = await cluster.start()
    taken = await other.take_over()
    assert await content(taken, Isolation.READ_COMMITTED) == committed
    assert taken.last_stable_offset == log.last_stable_offset < taken.high_watermark
    again = other.append(b"x" * 150, producer_id=3, producer_epoch=0, base_sequence=11)
    assert again.is_duplicate
    assert again.base_offset == 11
    assert other.end_transaction(8, 1, committed=True) is ErrorCode.NONE
    await taken.flushed()
    assert taken.last_stable_offset == taken.high_watermark


async def test_a_log_is_rolled_when_its_segment_is_large_and_when_tails_are_too_much(cluster: RemoteCluster) -> None:
    cluster.limits = UploadLimits(segment_bytes=2_000, tail_budget_bytes=10**9)
    node = await cluster.start(LogConfig())
    await node.take_over()
    await node.write(10)
    assert await node.sealed.uploads.upload_once() == 0
    await node.write(10)
    await node.sealed.uploads.upload_once()
    assert len(node.orders.segments) == 2
    await node.orders.flushed()
    await node.write(1)
    assert await node.sealed.uploads.upload_once() == 1
    node.sealed.uploads.limits = UploadLimits(tail_budget_bytes=100)
    await node.seal_all()
    await node.orders.flushed()
    assert node.orders.segments.active.size_bytes == 0


@pytest.mark.parametrize("failing", range(4))
@pytest.mark.parametrize("failure", ["lost reply", "nothing done", "done later"])
async def test_an_upload_that_fails_is_made_again_with_other_names(
    node: RemoteWorld, cluster: RemoteCluster, store: ModelledObjects, failing: int, failure: str
) -> None:
    await node.write(8)
    store.puts_until_failure = failing
    store.next_put_fails = failure
    assert await node.sealed.uploads.upload_once() == 0
    node.sealed.uploads._rests.clear()
    await node.seal_all()
    assert await cluster.database.fetchval("SELECT count(*) FROM segments") == len(node.orders.segments.sealed)
    await cluster.check()
    other = await cluster.start()
    assert len(await content(await other.take_over())) == 8


async def test_a_log_whose_segment_cannot_be_sealed_rests(
    node: RemoteWorld, store: ModelledObjects, cluster: RemoteCluster
) -> None:
    await node.write(8)
    store.is_refusing = True
    assert await node.sealed.uploads.upload_once() == 0
    asked = store.puts_count
    assert await node.sealed.uploads.upload_once() == 0
    assert store.puts_count == asked
    await node.write(4)
    assert len(await content(node.orders)) == 12, "the log goes on"


async def test_a_log_of_many_small_flushes_is_sealed_also_those_of_an_earlier_leader(cluster: RemoteCluster) -> None:
    cluster.limits = cluster.limits._replace(segment_rows=12)
    node = await cluster.start(LogConfig())
    await node.take_over()
    for _ in range(11):
        await node.write(1)
    for _ in range(2):  # one pass rolls, the next one seals
        await node.sealed.uploads.upload_once()
    assert await cluster.database.fetchval("SELECT sealed_end FROM partitions") == 0
    other = await cluster.start(LogConfig())
    await other.take_over()
    await other.write(1)
    for _ in range(2):
        await other.sealed.uploads.upload_once()
    assert await cluster.database.fetchval("SELECT sealed_end FROM partitions") == 12
    assert await cluster.database.fetchval("SELECT count(*) FROM tail") == 0
    await cluster.check()


async def test_retention_deletes_only_what_is_sealed_and_its_objects_are_removed(
    node: RemoteWorld, cluster: RemoteCluster, store: ModelledObjects
) -> None:
    await node.write(20)
    node.orders.configure(LogConfig(segment_bytes=600, retention_bytes=1))
    node.orders.sweep(node.clock.now_ms())
    assert node.orders.log_start_offset == 0, "nothing is sealed yet"
    await node.seal_all()
    node.orders.sweep(node.clock.now_ms())
    start = node.orders.log_start_offset
    assert start > 10
    await node.sealed.uploads.upload_once()
    assert await node.sweep.remove_garbage() > 8
    await cluster.check()
    left = {int(name.rsplit("/", 1)[1][:20]) for name in store.objects if name.endswith(".log")}
    assert len(left) == 1, "the last one has the state of the producers"
    other = await cluster.start()
    log = await other.take_over()
    assert (log.log_start_offset, log.log_end_offset) == (start, 20)
    assert other.remote_offsets == []


async def test_deleted_records_stay_deleted_after_a_take_over(node: RemoteWorld, cluster: RemoteCluster) -> None:
    await node.write(20)
    await node.seal_all()
    assert await node.logs.delete_records({ORDERS: 13}) == {ORDERS: ErrorCode.NONE}
    other = await cluster.start()
    log = await other.take_over()
    assert log.log_start_offset == 13
    assert (await content(log))[0][0] in range(11, 14)
    await cluster.check()


async def test_all_records_deleted_and_then_taken_over_twice(node: RemoteWorld, cluster: RemoteCluster) -> None:
    await node.write(20)
    node.orders.roll(node.clock.now_ms())
    await node.orders.flushed()
    await node.seal_all()
    assert await node.logs.delete_records({ORDERS: -1}) == {ORDERS: ErrorCode.NONE}
    node.orders.sweep(node.clock.now_ms())
    await node.seal_all()
    for _ in range(2):
        other = await cluster.start()
        log = await other.take_over()
        assert (log.log_start_offset, log.log_end_offset) == (20, 20)
    assert other.append(b"next").base_offset == 20
    await cluster.check()


async def test_compaction_swaps_rows_and_the_old_objects_become_garbage(
    cluster: RemoteCluster, store: ModelledObjects
) -> None:
    node = await cluster.start(COMPACTED)
    log = await node.take_over()
    await node.write(30)
    await node.seal_all()
    sealed_end = await cluster.database.fetchval("SELECT sealed_end FROM partitions")
    await LogCleaning(log, dirty_range(log, 0, node.clock.now_ms()), now_ms=node.clock.now_ms()).run()
    before = await content(log)
    assert len(before) < 15
    await node.seal_all()
    assert await cluster.database.fetchval("SELECT sealed_end FROM partitions") == sealed_end
    assert await node.sweep.remove_garbage() > 0
    await cluster.check()
    other = await cluster.start(COMPACTED)
    assert await content(await other.take_over()) == before


async def test_the_next_leader_does_not_compact_again_what_is_stored_so(cluster: RemoteCluster) -> None:
    node = await cluster.start(COMPACTED)
    log = await node.take_over()
    await node.write(30)
    await node.seal_all()
    cleaned_offset = await LogCleaning(log, dirty_range(log, 0, node.clock.now_ms()), now_ms=node.clock.now_ms()).run()
    node.logs.note_cleaned(ORDERS, cleaned_offset)
    await node.sealed.uploads.store_log_starts()
    assert await cluster.database.fetchval("SELECT cleaned_to FROM partitions") == 0, "it is not stored yet"
    await node.seal_all()
    other = await cluster.start(COMPACTED)
    taken = await other.take_over()
    await other.sealed.uploads.upload_once()
    assert other.logs.cleaned_offset(ORDERS) == cleaned_offset
    assert not dirty_range(taken, cleaned_offset, other.clock.now_ms()).is_due


async def test_the_next_leader_stores_what_it_compacts_of_segments_that_it_has_fetched(cluster: RemoteCluster) -> None:
    node = await cluster.start(COMPACTED)
    await node.take_over()
    await node.write(60, keys=30)
    await node.seal_all()
    other = await cluster.start(COMPACTED)
    log = await other.take_over()
    assert len(other.remote_offsets) > 5
    await LogCleaning(log, dirty_range(log, 0, other.clock.now_ms()), now_ms=other.clock.now_ms()).run()
    assert len(log.segments.sealed) > 2
    before = await content(log)
    assert len(before) < 40
    await other.write(10)
    await other.seal_all()
    rows = await cluster.database.fetch("SELECT base_offset, size_bytes FROM segments ORDER BY base_offset")
    assert [tuple(row) for row in rows] == [(one.base_offset, one.size_bytes) for one in log.segments.sealed]
    await cluster.check()
    third = await cluster.start(COMPACTED)
    assert (await content(await third.take_over()))[: len(before)] == before


async def test_a_log_that_was_compacted_and_not_yet_stored_so_is_taken_over_as_it_was(cluster: RemoteCluster) -> None:
    node = await cluster.start(COMPACTED)
    log = await node.take_over()
    await node.write(30)
    await node.seal_all()
    whole = await content(log)
    await LogCleaning(log, dirty_range(log, 0, node.clock.now_ms()), now_ms=node.clock.now_ms()).run()
    other = await cluster.start(COMPACTED)
    taken = await other.take_over()
    assert await content(taken) == whole
    await cluster.check()


async def test_what_was_read_least_is_evicted_and_fetched_again(cluster: RemoteCluster) -> None:
    cluster.scratch_bytes = 1_500
    node = await cluster.start()
    await node.take_over()
    await node.write(30)
    before = await content(node.orders)
    await node.seal_all()
    here = [one for one in node.orders.segments.sealed if one.base_offset not in node.remote_offsets]
    assert sum(one.size_bytes for one in here) <= 1_500
    assert node.remote_offsets
    assert await content(node.orders) == before
    await node.sealed.uploads.upload_once()
    assert node.remote_offsets
    assert not node.orders.is_offline


async def test_large_flushes_are_objects_until_they_are_sealed(cluster: RemoteCluster, store: ModelledObjects) -> None:
    cluster.inline_max_bytes = 50
    node = await cluster.start()
    await node.take_over()
    await node.write(20)
    flushes = [name for name in store.objects if "/tail/" in name]
    assert flushes
    await cluster.check()
    other = await cluster.start()
    log = await other.take_over()
    assert len(await content(log)) == 20
    await other.seal_all()
    log.roll(other.clock.now_ms())
    await log.flushed()
    await other.seal_all()
    await other.sweep.remove_garbage()
    assert not any("/tail/" in name for name in store.objects)
    await cluster.check()


async def test_what_a_node_gives_up_is_removed_while_it_runs(
    node: RemoteWorld, cluster: RemoteCluster, store: ModelledObjects
) -> None:
    await node.write(20)
    await node.seal_all()
    stored = set(store.objects)
    store.next_put_fails, store.puts_until_failure = "lost reply", 2
    await node.write(20)
    await node.sealed.uploads.upload_once()
    store.next_put_fails = "done later"
    put = asyncio.ensure_future(node.uploads.put(Uploader(node.node_id, node.fence), [b"under way"]))
    await until(lambda: len([name for name in store.objects if "/tail/" in name]) == 2)
    under_way = flush_name(CLUSTER_ID, await put)
    other = await cluster.start()
    assert await other.sweep.find_orphans() == 0, "it is up to the node"
    assert await node.sweep.discard_abandoned() > 3
    assert await node.sweep.discard_abandoned() == 0
    await other.sweep.remove_garbage()
    assert {name for name in store.objects if "/tail/" in name} == {under_way}
    assert stored <= set(store.objects)
    node.sealed.uploads._rests.clear()
    await node.seal_all()
    assert len(await content(node.orders)) == 40
    await cluster.check()


async def test_what_a_lost_node_leaves_behind_is_removed_once_its_fence_is_raised(
    node: RemoteWorld, cluster: RemoteCluster, store: ModelledObjects
) -> None:
    await node.write(20)
    await node.seal_all()
    stored = set(store.objects)
    uploader = Uploader(node.node_id, node.fence)
    left = flush_name(CLUSTER_ID, await node.uploads.put(uploader, [b"never committed"]))
    other = await cluster.start()
    assert await other.sweep.find_orphans() == 0, "it may still be committed"
    await other.take_over()
    assert await other.sweep.find_orphans() == 1
    await other.sweep.remove_garbage()
    assert left not in store.objects
    assert stored <= set(store.objects)
    await cluster.check()


async def test_a_flush_that_waits_for_its_commit_keeps_its_objects_however_long(
    node: RemoteWorld, cluster: RemoteCluster, store: ModelledObjects
) -> None:
    node.shared._inline_max_bytes = 50
    other = await cluster.start()
    locking = await connect(cluster.address, application_name="test locks")
    async with locking.transaction():
        await locking.execute("LOCK TABLE tail IN EXCLUSIVE MODE")
        waiting = asyncio.ensure_future(node.write(1))
        await until(lambda: any("/tail/" in name for name in store.objects))
        for world in (node, other):
            await world.sweep.discard_abandoned()
            assert await world.sweep.find_orphans() == 0
        assert await other.sweep.remove_garbage() == await node.sweep.remove_garbage() == 0
    await waiting
    await locking.close()
    assert len(await content(node.orders)) == 1
    await cluster.check()


async def test_garbage_that_a_row_names_after_all_is_kept_and_reported(
    node: RemoteWorld, cluster: RemoteCluster, store: ModelledObjects
) -> None:
    node.shared._inline_max_bytes = 50
    await node.write(1)
    (name,) = store.objects
    await cluster.database.execute("INSERT INTO garbage VALUES ($1, now() - interval '1 h')", name)
    with capture_logs() as lines:
        assert await node.sweep.remove_garbage() == 0
    assert [(line["event"], line["first"]) for line in lines] == [("garbage_is_needed", name)]
    assert list(store.objects) == [name]
    await cluster.check()


async def test_one_node_sweeps(node: RemoteWorld, cluster: RemoteCluster) -> None:
    other = await cluster.start()
    assert await node.garbage.holds_sweep()
    assert not await other.garbage.holds_sweep()
    await node.garbage.close()
    assert await other.garbage.holds_sweep()


async def test_a_missing_object_is_reported_by_the_check_and_by_a_take_over(
    node: RemoteWorld, cluster: RemoteCluster, store: ModelledObjects
) -> None:
    await node.write(20)
    await node.seal_all()
    last = max(name for name in store.objects if name.endswith(".snapshot"))
    del store.objects[last]
    report = await check_cluster(cluster.database, store, "a-cluster")
    assert len(report.problems) == 1
    assert last in report.problems[0]
    other = await cluster.start()
    with pytest.raises(StorageError, match="records are lost"):
        await other.take_over()


async def test_a_partition_whose_object_is_unavailable_keeps_no_other_of_its_take_over_waiting(
    cluster_url: str, store: ModelledObjects, tmp_path: Path
) -> None:
    cluster = await RemoteCluster.found(parse_address(cluster_url), store, str(tmp_path), partitions=2)
    other_name = TopicPartition(ORDERS.topic, 1)
    try:
        node = await cluster.start()
        await node.take_over(ORDERS, other_name)
        await node.write(20)
        await node.seal_all()
        heir = await cluster.start()
        store.away = {max(name for name in store.objects if name.endswith(".snapshot"))}
        arrivals = await asyncio.wait_for(heir.restoring.prepare([ORDERS, other_name]), 10)
        assert "cannot be had now" in str(arrivals[ORDERS].error)
        assert (arrivals[other_name].found, arrivals[other_name].error) == (Found.HERE, None)
        store.away = set()
        assert (await heir.take_over(ORDERS, other_name)).log_end_offset == 20
    finally:
        await cluster.close()


async def test_a_check_takes_no_object_for_missing_that_was_replaced_and_removed_meanwhile(
    cluster: RemoteCluster, store: ModelledObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.inline_max_bytes = 50
    node = await cluster.start()
    await node.take_over()
    await node.write(20)
    store_list = store.list

    async def list_late(prefix: str) -> AsyncIterator[Sequence[StoredObject]]:
        node.orders.roll(node.clock.now_ms())
        await node.orders.flushed()
        await node.seal_all()
        await node.sweep.remove_garbage()
        async for page in store_list(prefix):
            yield page

    flushes = {name for name in store.objects if "/tail/" in name}
    with monkeypatch.context() as late:
        late.setattr(store, "list", list_late)
        report = await check_cluster(cluster.database, store, "a-cluster")
    assert report.problems == []
    assert report.replaced == len(flushes - store.objects.keys()) > 0
    assert (await check_cluster(cluster.database, store, "a-cluster")).replaced == 0


async def test_readers_of_a_segment_that_is_lost_get_an_error_and_all_others_go_on(
    node: RemoteWorld, cluster: RemoteCluster, store: ModelledObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.write(20)
    await node.seal_all()
    other = await cluster.start()
    log = await other.take_over()
    first = min(name for name in store.objects if name.endswith(".log"))
    lost = store.objects.pop(first)
    assert not log.read(0, 1000, isolation=Isolation.READ_UNCOMMITTED).error
    await until(lambda: log.read(0, 1000, isolation=Isolation.READ_UNCOMMITTED).error)
    assert log.read(0, 1000, isolation=Isolation.READ_UNCOMMITTED).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert not log.is_offline
    later = log.segments.sealed[1].base_offset
    await until(lambda: log.read(later, 1000, isolation=Isolation.READ_UNCOMMITTED).records)
    store.objects[first] = lost
    monkeypatch.setattr(remote_fetch, "FAILED_REST_S", 0)
    other.sealed.fetches._failures.clear()
    assert len(await content(log)) == 20


# Scratch


async def test_files_of_a_log_that_went_to_another_node_are_removed_and_those_that_are_led_stay(
    cluster: RemoteCluster, tmp_path: Path
) -> None:
    node = await cluster.start()
    await node.take_over()
    await node.write(20)
    await node.seal_all()
    directory = tmp_path / "node-1" / "orders-0"
    assert [await node.sealed.leftovers.remove() for _ in range(3)] == [0, 0, 0]
    other = await cluster.start()
    await other.take_over()
    node.resign("it leads no more")
    assert await node.sealed.leftovers.remove() == 0, "it may come back at once"
    assert directory.exists()
    assert await node.sealed.leftovers.remove() == 1
    node.logs.sweep(node.clock.now_ms())
    assert not directory.exists()
    assert not [path for path in directory.parent.iterdir() if path.is_dir()]
    log = await node.take_over()
    assert len(await content(log)) == 20
    assert [await node.sealed.leftovers.remove() for _ in range(2)] == [0, 0]


async def test_a_log_that_comes_back_between_two_passes_is_left_alone(cluster: RemoteCluster) -> None:
    node = await cluster.start()
    await node.take_over()
    await node.write(20)
    node.resign("it leads no more")
    assert await node.sealed.leftovers.remove() == 0
    log = await node.take_over()
    assert await node.sealed.leftovers.remove() == 0
    assert len(await content(log)) == 20


async def test_a_full_disk_refuses_what_needs_room_and_loses_nothing_that_was_acknowledged(
    cluster: RemoteCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await cluster.start()
    log = await node.take_over()
    await node.write(20)
    await node.seal_all()
    before = await content(log)

    def full(file: LocalFile, *buffers: bytes) -> None:
        raise NoRoomError(f"no space is left for {file.path}")

    with monkeypatch.context() as patch:
        patch.setattr(LocalFile, "append", full)
        with pytest.raises(NoRoomError):
            node.append(b"refused")
        assert not log.is_offline
        assert await content(log) == before
        other = await cluster.start()
        with pytest.raises(StorageError, match="no space is left"):
            await other.take_over()
    third = await cluster.start()
    taken = await third.take_over()
    assert await content(taken) == before
    assert third.append(b"next").base_offset == 20
    await taken.flushed()
    await cluster.check()


# Merges of small segments


LARGE = LogConfig(segment_bytes=10_000, index_interval_bytes=100)


async def write_slowly(node: RemoteWorld, segments: int) -> None:
    """Write as a slow topic does: each few records are sealed in a segment of their own."""
    for _ in range(segments):
        await node.write(2)
        node.orders.roll(node.clock.now_ms())
        await node.orders.flushed()
    await node.seal_all()


async def rows_of(cluster: RemoteCluster) -> list[int]:
    rows = await cluster.database.fetch("SELECT base_offset FROM segments ORDER BY base_offset")
    return [row["base_offset"] for row in rows]


async def test_small_segments_become_one_object_and_the_sweep_removes_the_others(
    cluster: RemoteCluster, store: ModelledObjects
) -> None:
    node = await cluster.start(LARGE)
    await node.take_over()
    await write_slowly(node, 12)
    before = await content(node.orders)
    objects = len(store.objects)
    assert await node.sealed.merges.merge_once() == 12
    assert await rows_of(cluster) == list(range(0, 24, 2)), "the rows change when the merged segment is stored"
    await cluster.check()
    await node.seal_all()
    assert await rows_of(cluster) == [0]
    await cluster.check()
    assert await node.sweep.remove_garbage() == objects
    assert len(store.objects) == objects // 12
    await cluster.check()
    assert await content(node.orders) == before
    assert await node.sealed.merges.merge_once() == 0
    other = await cluster.start(LARGE)
    assert await content(await other.take_over()) == before


async def test_a_later_leader_merges_what_others_have_sealed(cluster: RemoteCluster) -> None:
    node = await cluster.start(LARGE)
    await node.take_over()
    await write_slowly(node, 9)
    node.append(b"x", producer_id=3, producer_epoch=0, base_sequence=0)
    await write_slowly(node, 9)
    before = await content(node.orders)
    other = await cluster.start(LARGE)
    log = await other.take_over()
    await other.sealed.uploads.upload_once()
    assert len(other.remote_offsets) == 18
    assert await other.sealed.merges.merge_once() == 18
    await other.seal_all()
    assert await rows_of(cluster) == [0]
    await cluster.check()
    third = await cluster.start(LARGE)
    log = await third.take_over()
    assert await content(log) == before
    assert third.append(b"x", producer_id=3, producer_epoch=0, base_sequence=0).is_duplicate


async def test_consumers_in_the_middle_of_a_log_go_on_while_it_is_merged_over_and_over(cluster: RemoteCluster) -> None:
    node = await cluster.start(LARGE)
    await node.take_over()
    await write_slowly(node, 10)
    offsets = []
    for _ in range(6):
        reading = asyncio.create_task(content(node.orders))
        while not reading.done():
            await node.sealed.merges.merge_once()
            await node.sealed.uploads.upload_once()
            await asyncio.sleep(0)
        offsets = [offset for offset, _ in await reading]
        assert offsets == list(range(node.orders.high_watermark))
        await write_slowly(node, 4)
        node.sealed.fetches.scratch_bytes = 0
        await node.sealed.fetches.make_room()
        node.sealed.fetches.scratch_bytes = 10**9
    assert node.sealed.merges.merged_count > 10
    assert len(await rows_of(cluster)) < 12
    await node.sweep.remove_garbage()
    await cluster.check()


async def test_a_node_that_does_not_lead_any_more_merges_nothing_into_the_store(cluster: RemoteCluster) -> None:
    node = await cluster.start(LARGE)
    await node.take_over()
    await write_slowly(node, 10)
    led_in = node.leads_in
    other = await cluster.start(LARGE)
    await other.take_over()
    node.leads_in = led_in  # it has not noticed
    assert await node.sealed.merges.merge_once() == 10
    await node.seal_all()
    assert len(await rows_of(cluster)) == 10
    await cluster.check()


async def test_compacted_topics_and_topics_with_short_retention_are_not_merged(cluster: RemoteCluster) -> None:
    for config in (COMPACTED, dataclasses.replace(LARGE, retention_bytes=1_000)):
        node = await cluster.start(config)
        await node.take_over()
        await write_slowly(node, 10)
        assert await node.sealed.merges.merge_once() == 0


async def test_a_log_that_cannot_be_merged_rests(
    cluster: RemoteCluster, store: ModelledObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await cluster.start(LARGE)
    await node.take_over()
    await write_slowly(node, 10)
    lost = min(name for name in store.objects if name.endswith(".log"))
    other = await cluster.start(LARGE)
    await other.take_over()
    await other.sealed.uploads.upload_once()
    content_of_lost = store.objects.pop(lost)
    monkeypatch.setattr(remote_fetch, "FAILED_REST_S", 0)
    assert await other.sealed.merges.merge_once() == 0
    store.objects[lost] = content_of_lost
    assert await other.sealed.merges.merge_once() == 0
    other.sealed.merges._monotonic_s = lambda: 10**9
    assert await other.sealed.merges.merge_once() == 10
    await cluster.check()


# Blocks


async def in_blocks(cluster: RemoteCluster, store: ModelledObjects, monkeypatch: pytest.MonkeyPatch) -> RemoteWorld:
    """A node that leads a log of remote segments of 4 KB in blocks of 512 bytes, which it has not written."""
    for module in (header_check, batch_scan):
        monkeypatch.setattr(module, "SCAN_CHUNK_BYTES", 128)
    monkeypatch.setattr(remote_segment, "MARGIN_BYTES", 128)
    cluster.block_bytes = 512
    writer = await cluster.start(IN_BLOCKS)
    await writer.take_over()
    await writer.write(200)
    await writer.seal_all()
    assert len(writer.orders.segments.sealed) > 5
    reader = await cluster.start(IN_BLOCKS)
    await reader.take_over()
    store.read_ranges.clear()
    store.read_whole.clear()
    return reader


async def test_a_reader_of_old_records_has_blocks_fetched_and_no_log_file_as_a_whole(
    cluster: RemoteCluster, store: ModelledObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await in_blocks(cluster, store, monkeypatch)
    log = node.orders
    assert [offset for offset, _ in await content(log)] == list(range(200))
    assert not [name for name in store.read_whole if name.endswith(".log")]
    sizes = [segment.size_bytes for segment in log.segments.sealed]
    assert len(store.read_ranges) == sum(-(-size // 512) for size in sizes), "each block once"
    assert node.sealed.fetches.fetched_bytes == sum(sizes)
    assert node.sealed.fetches.fetched_count == len(sizes)
    parts = node.sealed.fetches.parts
    assert (parts.blocks_count, parts.read_bytes) == (len(store.read_ranges), sum(sizes))
    assert [offset for offset, _ in await content(log)] == list(range(200))
    assert (parts.blocks_count, parts.read_bytes) == (len(store.read_ranges), 2 * sum(sizes)), "from the disk"
    assert parts.reads_count >= 2 * len(sizes)


async def test_a_read_in_the_middle_of_a_segment_fetches_its_block_and_not_those_before(
    cluster: RemoteCluster, store: ModelledObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await in_blocks(cluster, store, monkeypatch)
    log = node.orders
    segment = log.segments.sealed[1]
    offset = (segment.base_offset + segment.next_offset) // 2
    await until(lambda: log.read(offset, 100, isolation=Isolation.READ_UNCOMMITTED).records)
    assert min(position for _, position in store.read_ranges) >= 1_024
    assert len(store.read_ranges) <= 3


async def test_many_readers_of_a_scratch_that_holds_few_blocks_get_each_record_once(
    cluster: RemoteCluster, store: ModelledObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.scratch_bytes = 8_000
    node = await in_blocks(cluster, store, monkeypatch)
    store.slowest_s = 0.002
    found = await asyncio.gather(*(content(node.orders) for _ in range(5)))
    assert [[offset for offset, _ in one] for one in found] == [list(range(200))] * 5
    await node.sealed.fetches.make_room()
    assert node.sealed.fetches.parts.total_bytes <= 8_000
    blocks = [one for one in node.disk.list(f"{node.path}/orders-0") if ".log." in one]
    assert len(blocks) * 512 <= 8_000


@pytest.mark.parametrize(("damage", "said"), [("flip", "does not hold, from position"), ("cut", "has fewer than")])
async def test_a_block_with_other_bytes_than_were_stored_is_named_and_not_served(
    cluster: RemoteCluster, store: ModelledObjects, monkeypatch: pytest.MonkeyPatch, damage: str, said: str
) -> None:
    node = await in_blocks(cluster, store, monkeypatch)
    log = node.orders
    name = min(name for name in store.objects if name.endswith(".log"))
    right = store.objects[name]
    flipped = right[:2_000] + bytes([right[2_000] ^ 1]) + right[2_001:]
    store.objects[name] = flipped if damage == "flip" else right[:2_000]
    await until(lambda: log.read(0, 1_000, isolation=Isolation.READ_UNCOMMITTED).records)
    offset = log.segments.sealed[0].base_offset
    with capture_logs() as lines:
        while not (read := log.read(offset, 1_000, isolation=Isolation.READ_UNCOMMITTED)).error:
            for batch in iterate_batches(read.records):
                offset = batch.header.last_offset + 1
            await asyncio.sleep(0.001)
    assert read.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert offset < log.segments.sealed[0].next_offset, "records before the block are served"
    reasons = [line["reason"] for line in lines if line["event"] == "segment_not_brought"]
    assert name in reasons[0]
    assert said in reasons[0]
    store.objects[name] = right
    monkeypatch.setattr(remote_fetch, "FAILED_REST_S", 0)
    node.sealed.fetches._failures.clear()
    assert len(await content(log)) == 200


async def test_segments_without_checksums_of_blocks_are_fetched_whole(
    cluster: RemoteCluster, store: ModelledObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    await in_blocks(cluster, store, monkeypatch)
    await cluster.database.execute("UPDATE segments SET block_checksums = NULL")
    node = await cluster.start(IN_BLOCKS)
    await node.take_over()
    assert len(await content(node.orders)) == 200
    assert not store.read_ranges
    assert node.remote_offsets == []


async def test_a_segment_of_which_blocks_are_here_is_fetched_whole_for_a_merge_under_its_readers(
    cluster: RemoteCluster, store: ModelledObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await in_blocks(cluster, store, monkeypatch)
    log = node.orders
    before = await content(log)
    reading = asyncio.create_task(content(log))
    end = log.segments.sealed[3].base_offset
    assert await merge_segments(log, 0, end) is not None
    assert await reading == await content(log) == before
    await node.sealed.fetches.make_room()
    await node.seal_all()
    await cluster.check()


async def test_a_time_is_found_with_the_block_that_has_it(
    cluster: RemoteCluster, store: ModelledObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await in_blocks(cluster, store, monkeypatch)
    log = node.orders
    found = await Searches().finish(log.offset_for_timestamp(0, isolation=Isolation.READ_UNCOMMITTED))
    assert found is not None
    assert found.offset == 0
    latest = await Searches().finish(log.offset_of_max_timestamp(Isolation.READ_UNCOMMITTED))
    assert latest is not None
    assert len(store.read_ranges) <= 4
    assert not [name for name in store.read_whole if name.endswith(".log")]


async def test_readers_wait_for_blocks_while_the_store_is_away_and_readers_of_the_tail_do_not(
    cluster: RemoteCluster, store: ModelledObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_fetch, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(remote_fetch, "LONGEST_PAUSE_S", 0.01)
    node = await in_blocks(cluster, store, monkeypatch)
    store.is_away = True
    log = node.orders
    reading = asyncio.create_task(content(log))
    await asyncio.sleep(0.02)
    tail = log.segments.active.base_offset
    assert log.read(tail, 1_000, isolation=Isolation.READ_UNCOMMITTED).records
    assert not reading.done()
    store.is_away = False
    assert len(await reading) == 200


async def test_a_disk_without_room_for_a_block_is_named_and_leaves_nothing_of_it(
    cluster: RemoteCluster, store: ModelledObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await in_blocks(cluster, store, monkeypatch)
    log = node.orders
    append = LocalFile.append

    def full(file: LocalFile, *buffers: bytes | bytearray | memoryview) -> None:
        if ".log." in file.path:
            raise NoRoomError("there is no room")
        append(file, *buffers)

    with monkeypatch.context() as patch, capture_logs() as lines:
        patch.setattr(LocalFile, "append", full)
        await until(lambda: log.read(0, 1_000, isolation=Isolation.READ_UNCOMMITTED).error)
    assert log.read(0, 1_000, isolation=Isolation.READ_UNCOMMITTED).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert [line["reason"] for line in lines if line["event"] == "segment_not_brought"] == ["there is no room"]
    assert not [one for one in node.disk.list(f"{node.path}/orders-0") if ".log." in one]
    assert not log.is_offline
    node.sealed.fetches._failures.clear()
    assert len(await content(log)) == 200


async def test_a_log_that_moves_away_leaves_no_block_behind(
    cluster: RemoteCluster, store: ModelledObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await in_blocks(cluster, store, monkeypatch)
    await content(node.orders)
    reading = node.orders
    node.resign("another node leads")
    assert reading.read(0, 100, isolation=Isolation.READ_UNCOMMITTED).error is ErrorCode.KAFKA_STORAGE_ERROR
    await node.sealed.fetches.make_room()
    assert node.sealed.fetches.parts.total_bytes == 0
    assert not [one for one in node.disk.list(f"{node.path}/orders-0") if ".log." in one]


# Unforeseen exceptions


@plants(scratch.LEFTOVERS)
@unforeseen
async def test_a_removal_of_leftovers_that_fails_is_not_the_last(
    node: RemoteWorld, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "LEFT_INTERVAL_S", 0.005)
    passes: list[int] = []
    monkeypatch.setattr(node.sealed.leftovers, "remove", raising(error, times=1, then=lambda: _note(passes)))
    with logged(scratch.LEFTOVERS):
        node.sealed.start()
        await until(lambda: len(passes) > 1)


@plants(merging.MERGING)
@unforeseen
async def test_a_round_of_merges_that_fails_is_not_the_last(
    node: RemoteWorld, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "INTERVAL_S", 0.005)
    rounds: list[int] = []
    merge_once = raising(error, times=1, then=lambda: _note(rounds))
    monkeypatch.setattr(node.sealed.merges, "merge_once", merge_once)
    with logged(merging.MERGING):
        node.sealed.start()
        await until(lambda: len(rounds) > 1)


@plants(merging.MERGE)
@unforeseen
async def test_a_merge_that_fails_leaves_the_other_logs_to_be_merged(
    cluster: RemoteCluster, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await cluster.start(LARGE)
    await node.take_over()
    await write_slowly(node, 10)
    monkeypatch.setattr(merging, "merge_segments", raising(error, times=1, then=merge_segments))
    with logged(merging.MERGE, ORDERS):
        assert await node.sealed.merges.merge_once() == 0
    assert not node.orders.is_offline
    node.sealed.merges._monotonic_s = lambda: 10**9
    assert await node.sealed.merges.merge_once() == 10


@plants(sealing.UPLOADING)
@unforeseen
async def test_a_pass_that_fails_is_not_the_last(
    node: RemoteWorld, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "INTERVAL_S", 0.005)
    passes: list[int] = []
    monkeypatch.setattr(node.sealed.uploads, "_roll", lambda *_: None)
    monkeypatch.setattr(node.sealed.uploads, "store_log_starts", raising(error, times=1, then=lambda: _note(passes)))
    with logged(sealing.UPLOADING):
        node.sealed.start()
        await until(lambda: len(passes) > 1)


async def _note(calls: list[int]) -> None:
    calls.append(1)


@plants(remote_fetch.FETCHING)
@unforeseen
async def test_a_segment_that_could_not_be_fetched_is_fetched_when_it_is_read_again(
    node: RemoteWorld, cluster: RemoteCluster, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.write(20)
    await node.seal_all()
    other = await cluster.start()
    log = await other.take_over()
    download = SegmentObjects.download
    failing = raising(error, times=1, then=lambda *arguments, **named: download(*arguments, **named))
    with monkeypatch.context() as patch, logged(remote_fetch.FETCHING, ORDERS):
        patch.setattr(SegmentObjects, "download", lambda *arguments, **named: failing(*arguments, **named))
        assert len(await content(log)) == 20


@plants(sweep.SWEEP)
@unforeseen
async def test_a_sweep_that_fails_is_not_the_last(
    node: RemoteWorld, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "INTERVAL_S", 0.005)
    swept: list[int] = []
    monkeypatch.setattr(node.sweep, "remove_garbage", raising(error, times=1, then=lambda: _note(swept)))
    with logged(sweep.SWEEP):
        node.sweep.start()
        await until(lambda: len(swept) > 1)
    await node.sweep.close()
