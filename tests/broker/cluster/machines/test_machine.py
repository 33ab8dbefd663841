"""A broker of a cluster of machines, as it is put together: what it needs before it leads."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fencepost.broker.cluster.machines import machine
from fencepost.broker.cluster.postgres.connections import (
    CONNECTIONS_COUNT,
    Connection,
    PostgresAddress,
    connect,
    parse_address,
)
from fencepost.broker.cluster.postgres.lease_store import PostgresLeaseStore
from fencepost.broker.storage.disk import StorageError

ROLE = "few_connections"


@pytest.fixture
async def few(cluster_url: str) -> AsyncIterator[tuple[Connection, PostgresAddress]]:
    """A role with a bound on its connections, and a connection of the superuser who sets it."""
    address = parse_address(cluster_url)
    database = await connect(address, application_name="test")
    await database.execute(f"CREATE SCHEMA {address.schema}")
    await database.execute(f"CREATE ROLE {ROLE} LOGIN CONNECTION LIMIT {CONNECTIONS_COUNT}")
    await database.execute(f"ALTER SCHEMA {address.schema} OWNER TO {ROLE}")
    yield database, parse_address(cluster_url.replace("postgres:@", f"{ROLE}:@"))
    await database.execute(f"DROP SCHEMA {address.schema} CASCADE; DROP ROLE {ROLE}")
    await database.close()


async def test_a_broker_opens_as_many_connections_as_it_says_and_refuses_fewer(
    few: tuple[Connection, PostgresAddress],
) -> None:
    database, address = few
    store = PostgresLeaseStore(address, lease_s=50)
    await store.open()
    rows = machine._rows(store, await store.cluster_id())
    try:
        await rows.connect()
        found = await database.fetchval("SELECT count(*) FROM pg_stat_activity WHERE usename = $1", ROLE)
        assert found == CONNECTIONS_COUNT
        assert rows.unconnected_since_s() is None
        await rows.connect()
        await rows.close()
        await database.execute(f"ALTER ROLE {ROLE} CONNECTION LIMIT {CONNECTIONS_COUNT - 1}")
        needs = rf"this broker needs {CONNECTIONS_COUNT} connections to PostgreSQL, .*too many connections for role"
        with pytest.raises(StorageError, match=needs):
            await rows.connect()
        assert rows.unconnected_since_s() is not None
        await database.execute(f"ALTER ROLE {ROLE} CONNECTION LIMIT {CONNECTIONS_COUNT}")
        await rows.connect()
        assert rows.unconnected_since_s() is None
    finally:
        await rows.close()
        await store.close()
