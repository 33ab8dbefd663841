"""Read replicas: a node that does not lead a partition serves its sealed part as the leader would."""

from __future__ import annotations

import asyncio

import pytest

from fencepost.broker.cluster.remote import read_replicas
from fencepost.broker.cluster.remote.read_replicas import FAILED_REST_S, FRESH_S, UNUSED_S, ReadReplica, ReadReplicas
from fencepost.broker.cluster.tail.scratch import empty_scratch
from fencepost.broker.cluster.tail.tail_store import StoreUnavailableError
from fencepost.broker.log.log_types import Isolation, LogRead
from fencepost.broker.log.segment.remote_segment import RemoteSegment
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import iterate_batches, read_records
from tests.broker.cluster.remote.remote_world import CLUSTER_ID, RemoteCluster, RemoteWorld, content
from tests.broker.supervision.planting import logged, plants, raising, unforeseen, until
from tests.support.captured_events import capture_logs
from tests.support.log_world import ORDERS, TOPIC_ID
from tests.support.modelled_objects import ModelledObjects

UNCOMMITTED, COMMITTED = Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED


@pytest.fixture
def cluster(cluster: RemoteCluster) -> RemoteCluster:
    cluster.with_replicas = True
    return cluster


@pytest.fixture
async def leader(node: RemoteWorld) -> RemoteWorld:
    return node


class Near:
    """The replicas of a node that leads nothing, and its clock, which a test turns."""

    def __init__(self, node: RemoteWorld) -> None:
        assert node.sealed.replicas is not None
        self.node = node
        self.replicas: ReadReplicas = node.sealed.replicas
        self.now_s = 1_000.0
        self.replicas._monotonic_s = lambda: self.now_s

    def find(self, offset: int, isolation: Isolation = UNCOMMITTED) -> ReadReplica | None:
        return self.replicas.find(ORDERS, TOPIC_ID, offset, isolation)

    async def replica(self, offset: int = 0, isolation: Isolation = UNCOMMITTED) -> ReadReplica:
        """A replica whose rows have been read."""
        found = self.find(offset, isolation)
        assert found is not None
        await until(lambda: found.refresh is None)
        return found

    async def read(self, offset: int, isolation: Isolation = UNCOMMITTED) -> LogRead | None:
        """What Fetch finds at an offset, once it is here; None if only the leader can say."""
        while True:
            replica = self.find(offset, isolation)
            if replica is None:
                return None
            found = replica.read(offset, 100_000, isolation=isolation)
            if found.records or found.error:
                return found
            await asyncio.sleep(0.001)

    async def content(self, isolation: Isolation = UNCOMMITTED, offset: int = 0) -> list[tuple[int, bytes]]:
        """All records that a consumer gets here, without those of aborted transactions."""
        found: list[tuple[int, bytes]] = []
        while (read := await self.read(offset, isolation)) is not None:
            assert not read.error, read.error
            aborted = {one.producer_id for one in read.aborted_transactions or ()}
            for batch in iterate_batches(read.records):
                offset = batch.header.last_offset + 1
                if not batch.header.is_control and batch.header.producer_id not in aborted:
                    found += [(record.offset, bytes(record.value or b"")) for record in read_records(batch)]
        return found


def last_offset_in(found: LogRead) -> int:
    return [batch.header.last_offset for batch in iterate_batches(found.records)][-1]


@pytest.fixture
async def near(cluster: RemoteCluster) -> Near:
    return Near(await cluster.start())


async def test_a_replica_has_what_is_sealed_and_sends_consumers_to_the_leader_behind_it(
    leader: RemoteWorld, near: Near
) -> None:
    await leader.write(20)
    before = await content(leader.orders)
    assert await near.content() == []  # nothing is sealed
    near.now_s += FAILED_REST_S
    await leader.seal_all()
    sealed_end = leader.orders.segments.active.base_offset
    assert await near.content() == [one for one in before if one[0] < sealed_end]
    replica = await near.replica()
    assert (replica.log_start_offset, replica.high_watermark) == (0, sealed_end)
    assert replica.end_offset_for_leader_epoch(1) == (1, sealed_end)
    assert leader.sealed.replicas is not None
    assert leader.sealed.replicas.sealed_bound(ORDERS, UNCOMMITTED) == sealed_end
    assert near.replicas.sealed_bound(ORDERS, UNCOMMITTED) == 0  # it does not lead


async def test_a_replica_learns_what_was_sealed_since_before_it_sends_a_consumer_away(
    leader: RemoteWorld, near: Near
) -> None:
    await leader.write(10)
    await leader.seal_all()
    first_end = leader.orders.segments.active.base_offset
    replica = await near.replica()
    segments = list(replica.segments)
    await leader.write(10)
    await leader.seal_all()
    assert await near.read(first_end) is None  # it has just been read
    near.now_s += FRESH_S
    found = await near.read(first_end)
    assert found is not None
    assert found.records
    assert await near.replica() is replica
    assert replica.high_watermark == leader.orders.segments.active.base_offset
    assert len(replica.segments) > len(segments)


async def test_readers_of_committed_records_get_the_same_as_at_the_leader_up_to_the_first_open_transaction(
    leader: RemoteWorld, near: Near
) -> None:
    leader.append(b"aborted" * 10, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    for _ in range(6):
        leader.append(b"plain" * 30)
    assert leader.end_transaction(7, 1, committed=False) is ErrorCode.NONE
    leader.append(b"open" * 10, producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True)
    await leader.write(6)
    committed = [value for value in await content(leader.orders, COMMITTED) if b"aborted" not in value[1]]
    open_offset = leader.orders.last_stable_offset
    await leader.seal_all()
    assert await near.content(COMMITTED) == committed
    replica = await near.replica()
    assert replica.last_stable_offset == open_offset < replica.high_watermark
    found = await near.read(0, COMMITTED)
    assert found is not None
    assert [one.producer_id for one in found.aborted_transactions or ()] == [7]
    assert leader.sealed.replicas is not None
    # The open transaction ends in the tail: that a replica knows nothing of.
    assert leader.end_transaction(8, 1, committed=False) is ErrorCode.NONE
    await leader.orders.flushed()
    assert leader.orders.last_stable_offset > open_offset
    assert leader.sealed.replicas.sealed_bound(ORDERS, COMMITTED) == open_offset
    near.now_s += FRESH_S
    assert await near.read(open_offset, COMMITTED) is None


async def test_rows_of_an_earlier_version_give_no_committed_records(
    leader: RemoteWorld, near: Near, cluster: RemoteCluster
) -> None:
    await leader.write(20)
    await leader.seal_all()
    await cluster.database.execute("UPDATE segments SET stable_end = NULL")
    assert await near.read(0, COMMITTED) is None
    assert await near.content() != []


async def test_deleted_records_are_gone_after_the_next_look(leader: RemoteWorld, near: Near) -> None:
    await leader.write(20)
    await leader.seal_all()
    replica = await near.replica()
    first, second = list(replica.segments)[:2]
    assert leader.orders.move_log_start(second.base_offset + 1) is ErrorCode.NONE
    leader.orders.sweep(leader.clock.now_ms())
    await leader.sealed.uploads.store_log_starts()
    await near.replicas.keep_up()
    assert await near.replica(second.base_offset + 1) is replica
    assert replica.log_start_offset == second.base_offset + 1
    assert first not in list(replica.segments)
    near.now_s += FRESH_S
    assert await near.read(0) is None


async def test_a_log_that_was_compacted_or_merged_gets_a_new_replica(
    leader: RemoteWorld, near: Near, cluster: RemoteCluster
) -> None:
    await leader.write(20)
    await leader.seal_all()
    before = await near.content()
    replica = await near.replica()
    # As a merge does: another object of the same offsets.
    await cluster.database.execute("UPDATE segments SET object = gen_random_uuid() WHERE base_offset = 0")
    waiting: list[None] = []
    replica.add_watcher(lambda: waiting.append(None))
    await near.replicas.keep_up()
    assert replica.is_deleted
    assert waiting
    assert (await near.replica()) is not replica
    assert before != []


async def test_another_topic_of_the_name_has_another_replica(leader: RemoteWorld, near: Near) -> None:
    await leader.write(20)
    await leader.seal_all()
    replica = await near.replica()
    other = near.replicas.find(ORDERS, b"n" * 16, 0, UNCOMMITTED)
    assert other is not None
    assert other is not replica
    assert replica.is_deleted
    await until(lambda: other.is_deleted)  # there are no rows of it
    assert near.replicas.find(ORDERS, b"n" * 16, 0, UNCOMMITTED) is None


async def test_a_replica_that_nobody_reads_is_removed_with_its_files(leader: RemoteWorld, near: Near) -> None:
    await leader.write(20)
    await leader.seal_all()
    await near.content()
    directory = (await near.replica()).files.directory
    assert [name for name in near.node.disk.list(directory) if name.endswith(".log")]
    near.now_s += UNUSED_S + 1
    await near.replicas.keep_up()
    assert len(near.replicas) == 0
    assert not near.node.disk.exists(directory)


async def test_segments_that_nobody_reads_leave_when_the_replicas_have_too_much(
    leader: RemoteWorld, near: Near
) -> None:
    await leader.write(20)
    await leader.seal_all()
    before = await near.content()
    near.replicas.fetches.scratch_bytes = 700
    for _ in range(3):
        await near.replicas.fetches.make_room()
    local = [one for one in (await near.replica()).segments if not isinstance(one, RemoteSegment)]
    assert sum(segment.size_bytes for segment in local) <= 700
    assert await near.content() == before


async def test_consumers_read_at_the_leader_while_the_rows_cannot_be_read(
    leader: RemoteWorld, near: Near, monkeypatch: pytest.MonkeyPatch
) -> None:
    await leader.write(20)
    await leader.seal_all()
    unavailable = raising(StoreUnavailableError("PostgreSQL does not answer"), times=1, then=near.node.rows.read)
    monkeypatch.setattr(near.node.rows, "read", unavailable)
    assert await near.read(0) is None
    assert await near.read(0) is None
    near.now_s += FAILED_REST_S
    assert await near.content() != []


async def test_what_the_store_has_lost_is_asked_of_the_leader(
    leader: RemoteWorld, near: Near, store: ModelledObjects
) -> None:
    await leader.write(20)
    await leader.seal_all()
    del store.objects[min(name for name in store.objects if name.endswith(".log"))]
    found = await near.read(0)
    assert found is not None
    assert found.error is ErrorCode.KAFKA_STORAGE_ERROR


async def test_consumers_read_at_the_leader_while_the_store_does_not_answer(
    leader: RemoteWorld, near: Near, store: ModelledObjects
) -> None:
    await leader.write(20)
    await leader.seal_all()
    replica = await near.replica()
    store.is_away = True
    with capture_logs() as lines:
        found = await asyncio.wait_for(near.read(0), 10)
    assert found is not None
    assert found.error is ErrorCode.KAFKA_STORAGE_ERROR, "which sends them there"
    assert [line["log_level"] for line in lines if line["event"] == "segment_waits"] == ["warning"]
    assert not replica.is_deleted
    store.is_away = False
    near.replicas.fetches._failures.clear()
    assert await near.content() != []


async def test_a_wall_clock_that_jumps_changes_nothing_for_readers(leader: RemoteWorld, near: Near) -> None:
    await leader.write(20)
    await leader.seal_all()
    before = await near.content()
    for hours in (5, -10):
        leader.clock.time_ms += hours * 3_600_000
        near.node.clock.time_ms += hours * 3_600_000
        await near.replicas.keep_up()
        assert await near.content() == before
    assert len(near.replicas) == 1


async def test_readers_go_on_when_another_broker_takes_over_and_compacts_or_seals_more(
    leader: RemoteWorld, near: Near, cluster: RemoteCluster
) -> None:
    await leader.write(20)
    await leader.seal_all()
    first_end = leader.orders.segments.active.base_offset
    found = await near.read(0)
    assert found is not None
    offset = last_offset_in(found) + 1
    heir = await cluster.start()
    await heir.take_over()
    await heir.write(20)
    await heir.seal_all()
    near.now_s += FRESH_S
    truth = await content(heir.orders)
    sealed_end = heir.orders.segments.active.base_offset
    assert sealed_end > first_end
    read_on = await near.content(offset=offset)
    assert read_on == [one for one in truth if offset <= one[0] < sealed_end]


async def test_a_topic_that_is_made_again_while_it_is_read_shows_nothing_of_the_old_one(
    leader: RemoteWorld, near: Near, cluster: RemoteCluster
) -> None:
    await leader.write(20)
    await leader.seal_all()
    assert await near.read(0) is not None
    await cluster.database.execute("DELETE FROM segments")
    await cluster.database.execute("DELETE FROM tail")
    await cluster.database.execute("DELETE FROM partitions")
    other = near.replicas.find(ORDERS, b"n" * 16, 10, UNCOMMITTED)
    assert other is not None
    await until(lambda: other.is_deleted)
    assert near.replicas.find(ORDERS, b"n" * 16, 10, UNCOMMITTED) is None, "the leader knows its offsets"
    near.now_s += FAILED_REST_S
    late = near.find(0)  # by the id that is gone: this broker has not heard of the deletion
    assert late is not None
    await until(lambda: late.is_deleted)
    assert near.find(0) is None


async def test_a_replica_whose_disk_fails_is_replaced(leader: RemoteWorld, near: Near) -> None:
    await leader.write(20)
    await leader.seal_all()
    before = await near.content()
    replica = await near.replica()
    replica.give_up(StorageError("the disk fails"))
    assert await near.content() == before
    assert await near.replica() is not replica
    assert replica.is_deleted


async def test_a_start_removes_the_files_of_replicas(leader: RemoteWorld, near: Near) -> None:
    await leader.write(20)
    await leader.seal_all()
    directory = (await near.replica()).files.directory
    empty_scratch(near.node.disk, near.node.path, CLUSTER_ID)
    assert not near.node.disk.exists(directory)


# Unforeseen exceptions


@plants(read_replicas.REFRESHING)
@unforeseen
async def test_a_refresh_that_fails_is_not_the_last(
    leader: RemoteWorld, near: Near, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    await leader.write(20)
    await leader.seal_all()
    monkeypatch.setattr(near.replicas, "_take", raising(error, times=1, then=near.replicas._take))
    with logged(read_replicas.REFRESHING, ORDERS):
        assert await near.content() != []


@plants(read_replicas.KEEPING)
@unforeseen
async def test_a_pass_over_the_replicas_that_fails_is_not_the_last(
    near: Near, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_replicas, "INTERVAL_S", 0.005)
    passes: list[int] = []

    async def note() -> None:
        passes.append(1)

    monkeypatch.setattr(near.replicas, "keep_up", raising(error, times=1, then=note))
    with logged(read_replicas.KEEPING):
        near.replicas.start()
        await until(lambda: len(passes) > 1)
