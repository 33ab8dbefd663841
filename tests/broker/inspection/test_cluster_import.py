"""A data directory becomes a cluster, with all that it has; interrupted anywhere, a second run completes it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.cluster.machines.check import check_cluster
from fencepost.broker.cluster.machines.export import export_topics
from fencepost.broker.cluster.objects.store import ObjectStoreError
from fencepost.broker.cluster.postgres.connections import Connection, connect, parse_address
from fencepost.broker.cluster.postgres.schema import prepare
from fencepost.broker.config import Settings
from fencepost.broker.inspection.cluster_import import ImportedCluster, import_directory
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.log_types import Isolation
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.metadata.sqlite import FILE_NAME, SqliteMetadataStore
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from tests.broker.cluster.remote.remote_world import content
from tests.support.data_directory import crashed, flip, log_paths
from tests.support.log_world import ORDERS, LogWorld
from tests.support.modelled_objects import NOTHING_DONE, ModelledObjects

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=100)


class Target:
    """Where a directory is imported to: a database without tables, and a bucket."""

    def __init__(self, url: str, path: Path) -> None:
        self.address = parse_address(url)
        self.objects = ModelledObjects()
        self.path = path

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        connection = await connect(self.address, application_name="test")
        try:
            yield connection
        finally:
            await connection.close()

    async def take(self, world: LogWorld, path: str | None = None) -> ImportedCluster:
        """Import the directory of a world, or a copy of it."""
        async with self.connection() as connection:
            return await import_directory(
                path or world.path,
                world.disk,
                Settings(),
                world.clock,
                connection=connection,
                address=self.address,
                store=self.objects,
            )

    async def start_refused(self) -> str:
        """Why a broker does not start on the tables."""
        async with self.connection() as connection:
            with pytest.raises(StorageError) as refused:
                await prepare(connection, self.address)
        return str(refused.value)

    async def problems(self) -> list[str]:
        async with self.connection() as connection:
            cluster_id = await connection.fetchval("SELECT cluster_id FROM cluster")
            return (await check_cluster(connection, self.objects, cluster_id, is_deep=True)).problems

    async def query(self, statement: str) -> Any:
        async with self.connection() as connection:
            return await connection.fetchval(statement)

    async def give_back(self, name: str = "out") -> LogWorld:
        """Export all, and open that as a broker of one machine does."""
        out = str(self.path / name)
        async with self.connection() as connection:
            cluster_id = await connection.fetchval("SELECT cluster_id FROM cluster")
            await export_topics(connection, self.objects, cluster_id, None, out)
        world = LogWorld(out)
        world.config = SMALL
        await world.start()
        return world


@pytest.fixture
def target(cluster_url: str, tmp_path: Path) -> Target:
    return Target(cluster_url, tmp_path)


async def fill(world: LogWorld) -> None:
    """Several segments: records of producers, an aborted transaction, one that is open, and deleted records."""
    world.create(SMALL)
    for sequence in range(8):
        world.append(b"x" * 150, producer_id=3, producer_epoch=0, base_sequence=sequence)
    world.append(b"aborted" * 10, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert world.end_transaction(7, 1, committed=False) is ErrorCode.NONE
    world.append(b"y" * 300, b"z" * 300)
    world.append(b"open", producer_id=9, producer_epoch=2, base_sequence=0, is_transactional=True)
    await world.orders.flushed()
    assert len(world.orders.segments.sealed) > 3
    await world.logs.delete_records({ORDERS: 3})


def batches(world: LogWorld) -> bytes:
    """The bytes of all log files."""
    return b"".join(Path(path).read_bytes() for path in sorted(log_paths(world.path)))


async def state_of(log: PartitionLog) -> list[Any]:
    return [
        log.log_start_offset,
        log.log_end_offset,
        [(one.producer_id, one.producer_epoch) for one in log.producers.snapshot()],
        log.last_stable_offset,
        *[await content(log, isolation) for isolation in Isolation],
    ]


async def test_all_that_a_log_has_comes_into_the_cluster_and_back(world: LogWorld, target: Target) -> None:
    await fill(world)
    before, bytes_before = await state_of(world.orders), batches(world)
    await world.stop()
    store = SqliteMetadataStore(f"{world.path}/{FILE_NAME}")
    await store.open()
    await store.compare_and_set("client-quotas", b"quotas", 0)
    await store.close()
    imported = await target.take(world)
    assert (imported.topics, imported.partitions) == (1, 1)
    assert imported.segments == imported.uploaded > 3
    repeated = await target.take(world)
    assert repeated == imported._replace(uploaded=0, uploaded_bytes=0, is_repeated=True)
    assert await target.problems() == []
    returned = await target.give_back()
    assert await state_of(returned.orders) == before
    assert bytes_before.endswith(batches(returned)), "a batch has changed"
    assert returned.orders.leader_epoch > 0, "clients may know the epoch of the cluster"
    await returned.stop()
    again = SqliteMetadataStore(f"{returned.path}/{FILE_NAME}")
    await again.open()
    assert (await again.read_versioned("client-quotas"))[0] == b"quotas"
    assert await again.cluster_id() == imported.cluster_id
    assert await again.read_versioned("import") == (None, 0)
    await again.close()


async def test_a_directory_that_came_back_can_be_imported_again(
    world: LogWorld, target: Target, durable_postgres: Any
) -> None:
    await fill(world)
    before = await state_of(world.orders)
    await world.stop()
    await target.take(world)
    returned = await target.give_back()
    await returned.stop()
    second = Target(durable_postgres.cluster_url(), target.path)
    await second.take(returned)
    assert await second.problems() == []
    assert await state_of((await second.give_back("again")).orders) == before


@pytest.mark.parametrize("puts", range(0, 21, 3))
async def test_an_import_that_ends_anywhere_is_completed_by_the_next(
    world: LogWorld, target: Target, puts: int
) -> None:
    await fill(world)
    before = await state_of(world.orders)
    await world.stop()
    target.objects.next_put_fails, target.objects.puts_until_failure = NOTHING_DONE, puts
    with pytest.raises(ObjectStoreError):
        await target.take(world)
    assert "is not complete: run `fencepost cluster import` again" in await target.start_refused()
    imported = await target.take(world)
    assert imported.segments - imported.uploaded == puts // 4 or puts > 12, "what was stored is not stored again"
    assert await target.problems() == []
    assert await state_of((await target.give_back()).orders) == before


async def test_what_was_written_between_two_tries_is_imported_too(world: LogWorld, target: Target) -> None:
    await fill(world)
    await world.stop()
    target.objects.next_put_fails, target.objects.puts_until_failure = NOTHING_DONE, 14
    with pytest.raises(ObjectStoreError):
        await target.take(world)
    world.logs = LogDirectory(world.path, disk=world.disk, clock=world.clock)
    await world.start()
    assert world.end_transaction(9, 3, committed=True) is ErrorCode.NONE
    await world.orders.flushed()
    await world.logs.delete_records({ORDERS: 9})
    world.clock.time_ms += 60_000
    world.logs.sweep(world.clock.now_ms())
    before = await state_of(world.orders)
    await world.stop()
    await target.take(world)
    assert await target.problems() == []
    assert await state_of((await target.give_back()).orders) == before


async def test_a_directory_after_a_crash_is_recovered_as_by_the_broker(world: LogWorld, target: Target) -> None:
    await fill(world)
    before = await state_of(world.orders)
    await target.take(world, await crashed(world))
    assert await target.problems() == []
    assert await state_of((await target.give_back()).orders) == before


async def test_a_log_of_which_all_records_are_deleted_goes_on_at_its_offset(world: LogWorld, target: Target) -> None:
    await fill(world)
    assert world.end_transaction(9, 3, committed=True) is ErrorCode.NONE
    await world.orders.flushed()
    end_offset = world.orders.log_end_offset
    world.orders.roll(world.clock.now_ms())
    await world.orders.flushed()
    await world.logs.delete_records({ORDERS: end_offset})
    world.logs.sweep(world.clock.now_ms())
    assert world.orders.size_bytes == 0
    before = await state_of(world.orders)
    await world.stop()
    await target.take(world)
    assert await target.problems() == []
    returned = await target.give_back()
    assert await state_of(returned.orders) == before
    assert returned.append(b"next").base_offset == end_offset


async def test_an_empty_topic_is_there(world: LogWorld, target: Target) -> None:
    await world.stop()
    imported = await target.take(world)
    assert (imported.topics, imported.partitions, imported.segments) == (1, 1, 0)
    assert await target.problems() == []
    assert (await target.give_back()).append(b"first").base_offset == 0


async def test_index_files_that_are_missing_are_made_again(world: LogWorld, target: Target) -> None:
    await fill(world)
    before = await state_of(world.orders)
    await world.stop()
    directory = f"{world.path}/{ORDERS}"
    for name in os.listdir(directory):
        if name.endswith((".index", ".timeindex", ".snapshot", ".txnindex")):
            os.remove(f"{directory}/{name}")
    await target.take(world)
    assert await target.problems() == []
    assert await state_of((await target.give_back()).orders) == before


async def test_a_directory_that_a_broker_uses_is_refused(world: LogWorld, target: Target) -> None:
    with pytest.raises(StorageError, match="is in use by a broker"):
        await target.take(world)


async def test_a_damaged_log_is_refused(world: LogWorld, target: Target) -> None:
    await fill(world)
    await world.stop()
    flip(sorted(log_paths(world.path))[1], 90)
    with pytest.raises(StorageError, match=r"00000000000000000\d+\.log"):
        await target.take(world)
    assert "is not complete" in await target.start_refused()


async def test_a_lost_log_is_refused(world: LogWorld, target: Target) -> None:
    await fill(world)
    await world.stop()
    shutil.rmtree(f"{world.path}/{ORDERS}")
    with pytest.raises(StorageError, match=r"damaged partitions .*orders-0.*`fencepost log verify` says what"):
        await target.take(world)
    assert await target.query("SELECT to_regclass('cluster')") is None


async def test_metadata_of_a_later_version_or_none_are_refused(world: LogWorld, target: Target) -> None:
    await world.stop()
    store = SqliteMetadataStore(f"{world.path}/{FILE_NAME}")
    await store.open()
    await store._query(lambda database: database.execute("PRAGMA user_version = 9").fetchall())
    await store.close()
    with pytest.raises(StorageError, match="has format 9, this broker reads format 1; start the version"):
        await target.take(world)
    os.remove(f"{world.path}/{FILE_NAME}")
    with pytest.raises(StorageError, match=r"there is no .*metadata\.sqlite"):
        await target.take(world)


async def test_a_cluster_that_is_there_is_left_alone(world: LogWorld, target: Target) -> None:
    await world.stop()
    async with target.connection() as connection:
        await prepare(connection, target.address)
    cluster_id = await target.query("SELECT cluster_id FROM cluster")
    with pytest.raises(StorageError, match=r"has the tables of a cluster already.*DROP SCHEMA cluster_"):
        await target.take(world)
    assert await target.query("SELECT cluster_id FROM cluster") == cluster_id


async def test_the_rest_of_another_directorys_import_is_left_alone(
    world: LogWorld, target: Target, tmp_path: Path
) -> None:
    await fill(world)
    await world.stop()
    target.objects.next_put_fails = NOTHING_DONE
    with pytest.raises(ObjectStoreError):
        await target.take(world)
    other = tmp_path / "other"
    other.mkdir()
    store = SqliteMetadataStore(str(other / FILE_NAME))
    await store.open()
    await store.close()
    with pytest.raises(StorageError, match=r"is not complete: .*with the same directory .*DROP SCHEMA"):
        await target.take(world, str(other))
