"""Rows of an import: brokers refuse them until it is complete, and one import at a time goes on where one ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import MappingProxyType
from uuid import UUID, uuid4

import pytest

from fencepost.broker.cluster.postgres.connections import Connection, PostgresAddress, connect, parse_address
from fencepost.broker.cluster.postgres.import_rows import CompleteImport, ImportedPartition, ImportRows
from fencepost.broker.cluster.postgres.lease_store import PostgresLeaseStore
from fencepost.broker.cluster.postgres.schema import FORMAT, prepare
from fencepost.broker.cluster.tail.tail_store import PartitionKey
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.segment.remote_segment import RemoteSegmentMetadata
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.storage.disk import StorageError

ORDERS = TopicMetadata("orders", bytes(range(16)), 1, MappingProxyType({"cleanup.policy": "compact"}))
PARTITION = PartitionKey(ORDERS.topic_id, 0)
SEGMENT = RemoteSegmentMetadata(0, 10, 100, 5, False, 3, uuid4(), b"sums", 10)


@pytest.fixture
def address(cluster_url: str) -> PostgresAddress:
    return parse_address(cluster_url)


@pytest.fixture
async def connection(address: PostgresAddress) -> AsyncIterator[Connection]:
    connection = await connect(address, application_name="test")
    yield connection
    await connection.close()


async def begun_anew(address: PostgresAddress, source: str = "a") -> dict[PartitionKey, list[RemoteSegmentMetadata]]:
    connection = await connect(address, application_name="test")
    try:
        return await ImportRows(connection, address, source).begin()
    finally:
        await connection.close()


async def test_no_broker_starts_until_an_import_is_complete(address: PostgresAddress, connection: Connection) -> None:
    rows = ImportRows(connection, address, "a")
    assert await rows.begin() == {}
    store = PostgresLeaseStore(address, lease_s=3)
    with pytest.raises(StorageError, match=r"import of a data directory .* is not complete: run `fencepost cluster im"):
        await store.open()
    await store.close()
    await rows.add(PARTITION, SEGMENT)
    imported = ImportedPartition(PARTITION, 7, 4, b"epochs", 2, [SEGMENT])
    await rows.complete([ORDERS], [imported], {"acls": b"rules"})
    await store.open()
    assert await store.load_topics() == [ORDERS]
    assert await store.read_versioned("acls") == (b"rules", 1)
    assert await store.cluster_id() == rows.cluster_id
    leases = await store.load_leases()
    lease = leases.table.partitions[TopicPartition("orders", 0)]
    assert (lease.leader, lease.epoch) == (None, 7), "the first broker that starts leads it"
    assert leases.last_state[TopicPartition("orders", 0)][:2] == (10, 4)
    await store.close()


async def test_an_import_goes_on_where_an_earlier_one_ended(address: PostgresAddress, connection: Connection) -> None:
    rows = ImportRows(connection, address, "a")
    await rows.begin()
    await rows.add(PARTITION, SEGMENT)
    await connection.close()
    assert await begun_anew(address) == {PARTITION: [SEGMENT]}


async def test_a_segment_that_is_discarded_leaves_garbage(address: PostgresAddress, connection: Connection) -> None:
    rows = ImportRows(connection, address, "a")
    await rows.begin()
    await rows.add(PARTITION, SEGMENT)
    await rows.discard(PARTITION, [SEGMENT])
    assert not await connection.fetch("SELECT FROM segments")
    assert len(await connection.fetch("SELECT FROM garbage")) == 4


async def test_two_imports_do_not_run_at_a_time(address: PostgresAddress, connection: Connection) -> None:
    await ImportRows(connection, address, "a").begin()
    with pytest.raises(StorageError, match=r"another import .* is running"):
        await begun_anew(address)


async def test_the_rest_of_another_import_is_refused(address: PostgresAddress, connection: Connection) -> None:
    await ImportRows(connection, address, "a").begin()
    await connection.close()
    with pytest.raises(StorageError, match=r"not complete: .* \(of cluster a\), or begin anew: DROP SCHEMA"):
        await begun_anew(address, "b")


async def test_an_import_that_another_version_began_is_refused(
    address: PostgresAddress, connection: Connection
) -> None:
    await ImportRows(connection, address, "a").begin()
    await connection.execute("UPDATE documents SET value = $1", b'{"source": "a", "format": 2}')
    await connection.close()
    with pytest.raises(StorageError, match=f"format 2, and this one is {FORMAT}"):
        await begun_anew(address)


async def test_an_import_that_is_complete_is_found_by_its_repetition(
    address: PostgresAddress, connection: Connection
) -> None:
    rows = ImportRows(connection, address, "a")
    assert await rows.find_complete() is None
    await rows.begin()
    assert await rows.find_complete() is None
    await rows.add(PARTITION, SEGMENT)
    await rows.complete([ORDERS], [ImportedPartition(PARTITION, 7, 4, b"epochs", 2, [SEGMENT])], {})
    assert await rows.find_complete() == CompleteImport(rows.cluster_id, 1, 1, 1)
    assert await ImportRows(connection, address, "b").find_complete() is None


async def test_a_row_that_cannot_be_read_is_refused(address: PostgresAddress, connection: Connection) -> None:
    await ImportRows(connection, address, "a").begin()
    await connection.execute("UPDATE documents SET value = $1", b"[")
    await connection.close()
    with pytest.raises(StorageError, match=r"\(of cluster unknown\), or begin anew"):
        await begun_anew(address)


async def test_tables_of_a_cluster_are_refused(address: PostgresAddress, connection: Connection) -> None:
    await prepare(connection, address)
    with pytest.raises(StorageError, match="has the tables of a cluster already"):
        await ImportRows(connection, address, "a").begin()


async def test_the_rows_name_topics_by_their_ids(address: PostgresAddress, connection: Connection) -> None:
    rows = ImportRows(connection, address, "a")
    await rows.begin()
    await rows.complete([ORDERS], [ImportedPartition(PARTITION, 0, 0, b"", 0, [])], {})
    assert await connection.fetchval("SELECT topic_id FROM partitions") == UUID(bytes=ORDERS.topic_id)
    assert await connection.fetchval("SELECT sealed_end FROM partitions") == 0
