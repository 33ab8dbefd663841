"""Export of topics: a data directory with all that the cluster has, which a broker of one machine opens."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.broker.cluster.machines.export import ExportError, export_topics
from fencepost.broker.cluster.postgres.connections import parse_address
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.log_types import Isolation
from fencepost.broker.metadata.sqlite import FILE_NAME, SqliteMetadataStore
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from tests.broker.cluster.remote.remote_world import CLUSTER_ID, RemoteCluster, RemoteWorld, content
from tests.support.log_world import ORDERS, TOPIC_ID, LogWorld
from tests.support.modelled_objects import ModelledObjects


@pytest.fixture
async def cluster(cluster_url: str, tmp_path: Path) -> AsyncIterator[RemoteCluster]:
    made = await RemoteCluster.found(parse_address(cluster_url), ModelledObjects(random.Random(1)), str(tmp_path))
    yield made
    await made.close()


@pytest.fixture
async def node(cluster: RemoteCluster) -> RemoteWorld:
    cluster.inline_max_bytes = 400
    world = await cluster.start()
    await world.take_over()
    return world


async def opened(directory: Path) -> LogWorld:
    """A broker's log directory on what was exported."""
    world = LogWorld(str(directory))
    world.logs = LogDirectory(str(directory), disk=world.disk, clock=world.clock)
    await world.start()
    return world


async def test_an_exported_topic_has_all_records_producers_and_transactions(
    node: RemoteWorld, cluster: RemoteCluster, tmp_path: Path
) -> None:
    for sequence in range(10):
        node.append(b"x" * 150, producer_id=3, producer_epoch=0, base_sequence=sequence)
    node.append(b"aborted" * 10, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    await node.write(12)
    assert node.end_transaction(7, 1, committed=False) is ErrorCode.NONE
    await node.seal_all()
    await node.write(5)
    assert len(node.orders.segments.sealed) > 3
    exported = await export_topics(cluster.database, cluster.store, CLUSTER_ID, ["orders"], str(tmp_path / "out"))
    assert [(one.partition, one.log_start_offset, one.end_offset) for one in exported] == [(0, 0, 29)]
    local = await opened(tmp_path / "out")
    for isolation in (Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED):
        assert await content(local.orders, isolation) == await content(node.orders, isolation)
    assert local.append(b"x" * 150, producer_id=3, producer_epoch=0, base_sequence=9).is_duplicate
    await local.stop()


async def test_the_metadata_name_the_topic_and_its_log_start_stays(
    node: RemoteWorld, cluster: RemoteCluster, tmp_path: Path
) -> None:
    await node.write(20)
    await node.seal_all()
    await node.logs.delete_records({ORDERS: 8})
    await export_topics(cluster.database, cluster.store, CLUSTER_ID, ["orders"], str(tmp_path / "out"))
    metadata = SqliteMetadataStore(str(tmp_path / "out" / FILE_NAME))
    await metadata.open()
    assert [(one.name, one.topic_id, one.partition_count) for one in await metadata.load_topics()] == [
        ("orders", TOPIC_ID, 1)
    ]
    await metadata.close()
    local = await opened(tmp_path / "out")
    assert local.orders.log_start_offset == 8
    assert await content(local.orders) == await content(node.orders)
    await local.stop()


async def test_an_export_goes_on_through_seals_and_deletions(
    node: RemoteWorld, cluster: RemoteCluster, tmp_path: Path
) -> None:
    await node.write(20)
    before = await content(node.orders)
    exporting = asyncio.ensure_future(
        export_topics(cluster.database, cluster.store, CLUSTER_ID, ["orders"], str(tmp_path / "out"))
    )
    await node.seal_all()
    await exporting
    local = await opened(tmp_path / "out")
    assert await content(local.orders) == before
    await local.stop()


async def test_what_cannot_be_exported_is_named(node: RemoteWorld, cluster: RemoteCluster, tmp_path: Path) -> None:
    await node.write(10)
    await node.seal_all()

    async def export(*topics: str, to: str = "out") -> None:
        await export_topics(cluster.database, cluster.store, CLUSTER_ID, topics, str(tmp_path / to))

    with pytest.raises(ExportError, match="no topic nothing"):
        await export("orders", "nothing")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    with pytest.raises(ExportError, match="is not empty"):
        await export("orders", to="full")
    assert isinstance(cluster.store, ModelledObjects)
    del cluster.store.objects[next(name for name in cluster.store.objects if name.endswith(".log"))]
    with pytest.raises(StorageError, match="records are lost"):
        await export("orders", to="third")
    assert not (tmp_path / "third" / FILE_NAME).exists()
