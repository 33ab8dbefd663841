"""Standbys of a real PostgreSQL: which are refused, and that nothing counts as committed that a standby lacks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from fencepost.broker.cluster.postgres import connections
from fencepost.broker.cluster.postgres.connections import (
    Connection,
    PostgresAddress,
    UnavailableError,
    connect,
    parse_address,
)
from fencepost.broker.cluster.postgres.schema import prepare
from fencepost.broker.cluster.postgres.session import Session
from fencepost.broker.cluster.postgres.standbys import StandbyWatch, require_durability
from fencepost.broker.cluster.postgres.tail import PostgresTail
from fencepost.broker.cluster.tail.tail_store import FlushId, PartitionKey, StoreUnavailableError, TailRow
from fencepost.broker.storage.disk import StorageError
from tests.support.captured_events import capture_logs
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.postgres_over_tcp import postgres_over_tcp
from tests.support.postgres_standby import Standby, standby_of

KEY = PartitionKey(bytes(range(16)), 0)
ROWS = [TailRow(KEY, 0, 0, 5, 0, 1, 0, b"batch")]
FLUSH = FlushId(1, 1, 1)


@pytest.fixture(scope="module")
def primary() -> Iterator[PostgresServer]:
    with postgres_server(is_durable=True) as server:
        yield server


@pytest.fixture
def standby(primary: PostgresServer) -> Iterator[Standby]:
    with standby_of(primary, "second", is_synchronous=True) as standby:
        yield standby


@asynccontextmanager
async def session(url: str, name: str = "test") -> AsyncIterator[tuple[Connection, PostgresAddress]]:
    address = parse_address(url)
    connection = await connect(address, application_name=name)
    try:
        yield connection, address
    finally:
        await connection.close()


async def look(connection: Connection, statement: str) -> object:
    """The value of a query, once there is one."""
    async with asyncio.timeout(60):
        found = await connection.fetchval(statement)
        while found is None:
            await asyncio.sleep(0.01)
            found = await connection.fetchval(statement)
        return found


WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'waits'"


async def test_a_server_that_does_not_sync_is_refused(cluster_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with session(cluster_url) as (connection, address):
        await require_durability(connection, address)
        fetch = connection.fetchval

        async def fetchval(query: str, *arguments: object) -> object:
            return "off" if arguments == ("fsync",) else await fetch(query, *arguments)

        monkeypatch.setattr(type(connection), "fetchval", lambda _, *arguments: fetchval(*arguments))
        with pytest.raises(StorageError, match="fsync = off: a crash of its machine would lose acknowledged records"):
            await require_durability(connection, address)


async def test_a_standby_that_commits_do_not_wait_for_is_refused_unless_that_is_accepted(
    primary: PostgresServer,
) -> None:
    with standby_of(primary, "reports", is_synchronous=False):
        async with session(primary.cluster_url()) as (connection, address):
            with pytest.raises(StorageError, match=r"do not wait for \(reports\).*synchronous_standby_names"):
                await require_durability(connection, address)
            await require_durability(connection, address, asynchronous_accepted=True)
            await connection.execute("DROP ROLE IF EXISTS guest")
            await connection.execute("CREATE ROLE guest")
            await connection.execute("SET SESSION AUTHORIZATION guest")
            with pytest.raises(StorageError, match=r"do not wait for \(reports\)"):
                await require_durability(connection, address)
            await connection.execute("RESET SESSION AUTHORIZATION")
            await connection.execute("DROP ROLE guest")
            watch = StandbyWatch()
            with capture_logs() as lines:
                await watch.look(connection, address)
                await watch.look(connection, address)
            assert [line["event"] for line in lines] == ["fail_over_may_lose_records"]
            assert watch.asynchronous_count == 1


async def test_a_standby_that_commits_wait_for_is_accepted_and_its_absence_named(
    primary: PostgresServer, standby: Standby
) -> None:
    async with session(primary.cluster_url()) as (connection, address):
        with capture_logs() as lines:
            await require_durability(connection, address)
        assert lines == []
        assert standby.follows()


async def test_a_flush_whose_wait_is_ended_counts_once_the_standby_has_it(
    primary: PostgresServer, standby: Standby
) -> None:
    async with session(primary.cluster_url()) as (connection, address):
        await prepare(connection, address)
        await connection.execute("INSERT INTO fences VALUES (1, 1)")
        await connection.execute("INSERT INTO nodes VALUES (1, gen_random_uuid(), 'alive', '{}', NULL, now(), now())")
        await connection.execute("INSERT INTO partitions VALUES ($1, 0, 1, 0)", UUID(bytes=KEY.topic_id))
        tail = PostgresTail(address, lambda: "waits")
        await tail.open()
        with standby.frozen():
            flush = asyncio.create_task(tail.commit(FLUSH, ROWS))
            process = await look(connection, WAITING)
            await connection.execute(f"SELECT pg_cancel_backend({process})")
            with pytest.raises(StoreUnavailableError, match="has ended the wait of a commit for its synchronous"):
                await flush
            assert await connection.fetchval("SELECT count(*) FROM tail") == 1, "this server has it"
            with pytest.raises(StoreUnavailableError):
                await tail.is_committed(FLUSH, ROWS)
            with pytest.raises(StoreUnavailableError):
                await tail.commit(FLUSH, ROWS)
        assert await tail.is_committed(FLUSH, ROWS)
        await tail.close()


async def test_a_change_whose_wait_is_ended_is_repeated_until_the_standby_has_it(
    primary: PostgresServer, standby: Standby
) -> None:
    async with session(primary.cluster_url()) as (connection, address):
        await prepare(connection, address)
        changing = Session(address, lambda: "waits")

        async def write(one: Connection) -> str:
            statement = "INSERT INTO garbage VALUES ('a') ON CONFLICT DO NOTHING"
            return str(await one.execute(statement))

        with standby.frozen():
            changed = asyncio.create_task(changing.run(write))
            process = await look(connection, WAITING)
            await connection.execute(f"SELECT pg_cancel_backend({process})")
            # Its second attempt finds the row, and writes nothing: by itself it would not wait.
            again = await look(connection, f"{WAITING} AND pid <> {process}")
            assert not changed.done()
            await connection.execute(f"SELECT pg_terminate_backend({again})")
            await look(connection, f"{WAITING} AND pid <> {again}")
            assert not changed.done()
        assert await changed == "INSERT 0 0"
        await changing.close()


async def test_the_server_that_has_taken_over_is_found_and_the_one_before_it_refused(primary: PostgresServer) -> None:
    with (
        standby_of(primary, "third", is_synchronous=False) as third,
        postgres_over_tcp(primary.uri) as first,
        postgres_over_tcp(third.uri) as second,
    ):
        hosts = f"127.0.0.1:{first.port},127.0.0.1:{second.port}"
        address = parse_address(
            f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write&sslmode=disable"
        )
        before = await connect(address, application_name="test")
        third.promote()
        connections.drop(before)  # as after a commit without an answer
        after = await connect(address, application_name="test")
        assert await after.fetchval(connections._TIMELINE) == 2
        connections.drop(after)
        again = await connect(address, application_name="test")
        assert await again.fetchval(connections._TIMELINE) == 2, "not the old one, which still takes writes"
        second.shutdown()
        second.server_close()
        second.cut()
        with pytest.raises(UnavailableError, match="is on timeline 1, from which another one has taken over"):
            await connect(address, application_name="test")
        again.terminate()
