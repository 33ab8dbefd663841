"""The tables of a cluster: who creates them, who refuses them, and what is counted as a change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fencepost.broker.cluster.postgres import schema
from fencepost.broker.cluster.postgres.connections import Connection, PostgresAddress, connect, parse_address
from fencepost.broker.cluster.postgres.schema import FORMAT, prepare
from fencepost.broker.storage.disk import StorageError
from tests.support.captured_events import capture_logs


@asynccontextmanager
async def session(url: str, name: str = "test") -> AsyncIterator[tuple[Connection, PostgresAddress]]:
    address = parse_address(url)
    connection = await connect(address, application_name=name)
    try:
        yield connection, address
    finally:
        await connection.close()


async def counts(connection: Connection) -> dict[str, int]:
    return {row["kind"]: row["count"] for row in await connection.fetch("SELECT kind, count FROM changes")}


async def test_the_first_of_several_nodes_founds_the_cluster(cluster_url: str) -> None:
    async def start() -> str:
        async with session(cluster_url) as (connection, address):
            await prepare(connection, address)
            return str(await connection.fetchval("SELECT cluster_id FROM cluster"))

    with capture_logs() as lines:
        ids = await asyncio.gather(*(start() for _ in range(5)))
    assert len(set(ids)) == 1
    assert len(ids[0]) == 22
    assert [line["event"] for line in lines].count("cluster_founded") == 1


async def test_a_schema_that_an_administrator_has_made_is_used(cluster_url: str) -> None:
    async with session(cluster_url) as (connection, address):
        await connection.execute(f"CREATE SCHEMA {address.schema}")
        await prepare(connection, address)
        assert await connection.fetchval("SELECT format FROM cluster") == FORMAT


async def test_tables_of_a_later_version_are_refused_and_not_touched(cluster_url: str) -> None:
    async with session(cluster_url) as (connection, address):
        await prepare(connection, address)
        await connection.execute("UPDATE cluster SET format = $1, oldest_reader = $1", FORMAT + 1)
        with pytest.raises(StorageError, match=rf"have format {FORMAT + 1}, this broker reads format {FORMAT}; start"):
            await prepare(connection, address)
        assert await connection.fetchval("SELECT format FROM cluster") == FORMAT + 1


async def test_tables_that_the_next_version_has_upgraded_are_still_used(cluster_url: str) -> None:
    async with session(cluster_url) as (connection, address):
        await prepare(connection, address)
        await connection.execute("UPDATE cluster SET format = $1, oldest_reader = $2", FORMAT + 1, FORMAT)
        await prepare(connection, address)
        assert await connection.fetchval("SELECT format FROM cluster") == FORMAT + 1
        await connection.execute("UPDATE cluster SET format = $1, oldest_reader = $2", FORMAT + 2, FORMAT + 1)
        with pytest.raises(StorageError, match=rf"have format {FORMAT + 2}, this broker reads format {FORMAT}; start"):
            await prepare(connection, address)


async def test_tables_that_brokers_use_are_upgraded_from_the_format_before_alone(
    cluster_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with session(cluster_url) as (connection, address):
        await prepare(connection, address)
        await connection.execute(
            "INSERT INTO nodes VALUES "
            "(1, gen_random_uuid(), 'alive', '[]', NULL, clock_timestamp() + interval '99 s', now())"
        )
        monkeypatch.setitem(schema._UPGRADES, FORMAT, "ALTER TABLE cluster ADD COLUMN note text")
        monkeypatch.setitem(schema._UPGRADES, FORMAT + 1, "ALTER TABLE cluster ADD COLUMN another text")
        with monkeypatch.context() as skipping:
            skipping.setattr(schema, "FORMAT", FORMAT + 2)
            skipping.setattr(schema, "OLDEST_READER", FORMAT + 1)
            with pytest.raises(
                StorageError, match=rf"use from format {FORMAT + 1} alone: stop all brokers first, or up"
            ):
                await prepare(connection, address)
        assert await connection.fetchval("SELECT format FROM cluster") == FORMAT
        monkeypatch.setattr(schema, "FORMAT", FORMAT + 1)
        monkeypatch.setattr(schema, "OLDEST_READER", FORMAT)
        await prepare(connection, address)
        assert await connection.fetchrow("SELECT format, oldest_reader FROM cluster") == (FORMAT + 1, FORMAT)


async def test_tables_are_not_upgraded_under_brokers_beside_which_this_one_cannot_work(
    cluster_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with session(cluster_url) as (connection, address):
        await prepare(connection, address)
        await connection.execute(
            "INSERT INTO nodes (node_id, incarnation, state, listeners, lease_until, since, version, compatibility) "
            "VALUES (7, gen_random_uuid(), 'alive', '[]', clock_timestamp() + interval '99 s', now(), '0.1', 1)"
        )
        monkeypatch.setattr(schema, "FORMAT", FORMAT + 1)
        monkeypatch.setattr(schema, "OLDEST_READER", FORMAT)
        monkeypatch.setattr(schema, "COMPATIBILITY", 3)
        monkeypatch.setitem(schema._UPGRADES, FORMAT, "ALTER TABLE cluster ADD COLUMN note text")
        with pytest.raises(StorageError, match=r"node 7 works on the tables .* with version 0\.1, beside which"):
            await prepare(connection, address)
        assert await connection.fetchval("SELECT format FROM cluster") == FORMAT
        monkeypatch.setattr(schema, "COMPATIBILITY", 2)
        await prepare(connection, address)


async def test_an_upgrade_waits_for_a_long_query_without_holding_up_flushes(
    cluster_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "UPGRADE_LOCK_TIMEOUT", "10ms")
    monkeypatch.setattr(schema, "UPGRADE_PAUSE_S", 0.01)
    async with session(cluster_url) as (connection, address), session(cluster_url) as (reading, _):
        await prepare(connection, address)
        monkeypatch.setattr(schema, "FORMAT", FORMAT + 1)
        monkeypatch.setitem(schema._UPGRADES, FORMAT, "ALTER TABLE tail ADD COLUMN note text")
        async with reading.transaction():
            await reading.fetch("SELECT FROM tail")
            upgrading = asyncio.create_task(prepare(connection, address))
            for _ in range(10):
                async with session(cluster_url) as (flushing, _):
                    await flushing.execute("DELETE FROM tail")
            assert not upgrading.done()
        await upgrading
        assert await connection.fetchval("SELECT format FROM cluster") == FORMAT + 1


async def test_tables_of_an_earlier_version_are_upgraded_once(
    cluster_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with session(cluster_url) as (connection, address):
        await prepare(connection, address)
        monkeypatch.setattr(schema, "FORMAT", FORMAT + 1)
        monkeypatch.setitem(schema._UPGRADES, FORMAT, "ALTER TABLE cluster ADD COLUMN note text")
        await prepare(connection, address)
        await prepare(connection, address)
        assert await connection.fetchval("SELECT format FROM cluster") == FORMAT + 1
        assert await connection.fetchval("SELECT note FROM cluster") is None


async def test_tables_of_the_first_format_are_upgraded_and_keep_their_rows(cluster_url: str) -> None:
    async with session(cluster_url) as (connection, address):
        await prepare(connection, address)
        await connection.execute(
            "ALTER TABLE segments DROP COLUMN checksums, DROP COLUMN stable_end, DROP COLUMN block_checksums; "
            "ALTER TABLE tail DROP COLUMN checksum; "
            "ALTER TABLE cluster DROP COLUMN place, DROP COLUMN timeline, DROP COLUMN oldest_reader; "
            "ALTER TABLE nodes DROP COLUMN version, DROP COLUMN compatibility; "
            "ALTER TABLE fences DROP COLUMN named_from; UPDATE cluster SET format = 1"
        )
        await connection.execute(
            "INSERT INTO segments VALUES (gen_random_uuid(), 0, 0, 5, gen_random_uuid(), 100, 0, false, 0)"
        )
        await prepare(connection, address)
        assert await connection.fetchval("SELECT format FROM cluster") == FORMAT
        columns = "end_offset, checksums, stable_end, block_checksums"
        assert await connection.fetch(f"SELECT {columns} FROM segments") == [(5, None, None, None)]
        assert await connection.fetchval("SELECT place IS NOT NULL FROM cluster")


async def test_an_upgrade_that_fails_changes_nothing(cluster_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with session(cluster_url) as (connection, address):
        await prepare(connection, address)
        monkeypatch.setattr(schema, "FORMAT", FORMAT + 1)
        statements = "ALTER TABLE cluster ADD COLUMN note text; ALTER TABLE nowhere ADD COLUMN note text"
        monkeypatch.setitem(schema._UPGRADES, FORMAT, statements)
        with pytest.raises(StorageError, match="nowhere"):
            await prepare(connection, address)
        assert await connection.fetchval("SELECT format FROM cluster") == FORMAT
        columns = await connection.fetch(
            "SELECT FROM information_schema.columns WHERE table_schema = $1 AND column_name = 'note'", address.schema
        )
        assert not columns


async def test_tables_that_were_restored_in_part_are_refused(cluster_url: str) -> None:
    async with session(cluster_url) as (connection, address):
        await prepare(connection, address)
        await connection.execute("DELETE FROM cluster")
        with pytest.raises(StorageError, match="restored in part"):
            await prepare(connection, address)


async def test_two_clusters_share_a_database(cluster_url: str) -> None:
    other_url = f"{cluster_url}_other"
    async with session(cluster_url) as (one, address), session(other_url) as (other, other_address):
        await prepare(one, address)
        await prepare(other, other_address)
        await one.execute("INSERT INTO documents VALUES ('rights', '', 1, gen_random_uuid())")
        assert (await counts(one))["documents"] == 1
        assert (await counts(other))["documents"] == 0
        assert address.channel != other_address.channel


async def test_a_change_is_counted_by_its_kind_and_announced_when_it_is_committed(cluster_url: str) -> None:
    async with session(cluster_url) as (connection, address), session(cluster_url) as (listening, _):
        await prepare(connection, address)
        heard: list[object] = []
        first = asyncio.Event()

        def hear(_connection: object, _pid: int, _channel: str, kind: object) -> None:
            heard.append(kind)
            first.set()

        await listening.add_listener(address.channel, hear)
        before = await counts(connection)
        async with connection.transaction():
            await connection.execute("INSERT INTO documents VALUES ('rights', '', 1, gen_random_uuid())")
            await connection.execute("INSERT INTO topics VALUES ('a', gen_random_uuid(), 1, '{}')")
            assert not heard
        await asyncio.wait_for(first.wait(), 10)
        after = await counts(connection)
    assert sorted(map(str, heard)) == ["documents", "topics"]
    assert {kind: after[kind] - before[kind] for kind in after} == {"topics": 1, "documents": 1, "placement": 0}


async def test_renewed_leases_and_sealed_segments_are_no_changes_for_other_nodes(cluster_url: str) -> None:
    async with session(cluster_url) as (connection, address):
        await prepare(connection, address)
        await connection.execute("INSERT INTO nodes VALUES (1, gen_random_uuid(), 'alive', '{}', NULL, now(), now())")
        await connection.execute("INSERT INTO partitions VALUES (gen_random_uuid(), 0, 1, 0)")
        before = await counts(connection)
        await connection.execute("UPDATE nodes SET lease_until = now()")
        await connection.execute("UPDATE partitions SET sealed_end = 10, log_start_offset = 5, epochs = 'x'")
        assert await counts(connection) == before
        await connection.execute("UPDATE partitions SET leader = NULL")
        await connection.execute("UPDATE nodes SET state = 'gone'")
        assert (await counts(connection))["placement"] == before["placement"] + 2


async def test_a_session_commits_durably_where_the_server_does_not(cluster_url: str) -> None:
    for default, used in (("off", "on"), ("local", "on"), ("remote_write", "on"), ("remote_apply", "remote_apply")):
        async with session(f"{cluster_url}&synchronous_commit={default}") as (connection, _):
            assert await connection.fetchval("SHOW synchronous_commit") == used
