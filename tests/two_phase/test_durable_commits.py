"""What a transaction has returned for is in the database after a failure, whatever the database's own default is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from fencepost.two_phase import MisuseError, SqliteLog, Token
from tests.support.postgres import PostgresServer, postgres_server
from tests.two_phase.brokers import Orders
from tests.two_phase.databases import Database
from tests.two_phase.sessions import SESSIONS

WEAK = ("off", "local", "remote_write")


@pytest.fixture
def postgres_that_is_killed() -> Iterator[PostgresServer]:
    """A server that writes nothing before it is asked to: what a commit did not wait for is lost with it."""
    import psycopg

    with postgres_server() as server:
        with psycopg.connect(server.uri, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
            connection.execute("ALTER SYSTEM SET wal_writer_flush_after = 0")
            connection.execute("SELECT pg_reload_conf()")
        yield server


@pytest.mark.integration
def test_an_order_is_there_after_a_kill_of_a_database_that_commits_in_the_background(
    own_orders: Orders, postgres_that_is_killed: PostgresServer
) -> None:
    server = postgres_that_is_killed
    address = make_conninfo(server.uri, options="-csynchronous_commit=off")
    database = Database("postgres", address).create()
    names = []
    for number in range(3):
        session = SESSIONS["confluent-kafka"](
            own_orders.servers, database, own_orders.topic, own_orders.transactional_id
        )
        session.start()
        names.append(f"order {number}")
        session.write(names[-1])
        server.kill()
        session.close()
        database.close()
        server.start()
        assert database.orders() == own_orders.values() == names
        assert database.tokens() == []
    database.close()


@pytest.mark.parametrize("weak", WEAK)
def test_each_commit_of_the_log_is_synchronous_and_those_of_the_service_are_as_it_says(
    postgres: PostgresServer, weak: str
) -> None:
    database = Database("postgres", postgres.make_schema()).create()
    connection = database.connect()

    def current() -> str:
        (found,) = connection.execute("SHOW synchronous_commit").fetchone()
        return str(found)

    connection.execute(f"SET synchronous_commit = {weak}")
    connection.commit()
    log = database.log
    generation, _ = log.claim(connection, "a")
    assert current() == "on"
    connection.commit()
    log.begin(connection, generation, "a")
    connection.execute("SET LOCAL synchronous_commit = off")  # as a service may do in the block
    log.record(connection, generation, Token(1, 0, "a"))
    assert current() == "on"
    connection.commit()
    log.clear(connection, generation, "a")
    assert current() == "on"
    connection.commit()
    assert current() == weak
    connection.rollback()
    database.close()


def test_a_stronger_commit_than_on_is_left_as_it_is(postgres: PostgresServer) -> None:
    database = Database("postgres", postgres.make_schema()).create()
    connection = database.connect()
    connection.execute("SET synchronous_commit = remote_apply")
    connection.commit()
    database.log.claim(connection, "a")
    assert connection.execute("SHOW synchronous_commit").fetchone() == ("remote_apply",)
    connection.rollback()
    database.close()


@pytest.mark.parametrize("journal", ["wal", "delete", "truncate", "persist"])
@pytest.mark.parametrize("synchronous", [0, 1, 2])
def test_sqlite_syncs_each_commit_of_the_log(tmp_path: Path, journal: str, synchronous: int) -> None:
    connection, log = opened(tmp_path, journal)
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    generation, _ = log.claim(connection, "a")
    assert connection.execute("PRAGMA synchronous").fetchone() == (3,)
    connection.commit()
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    log.begin(connection, generation, "a")
    log.record(connection, generation, Token(1, 0, "a"))
    assert connection.execute("PRAGMA synchronous").fetchone() == (3,)
    connection.close()


@pytest.mark.parametrize("journal", ["memory", "off"])
def test_sqlite_without_a_journal_on_the_disk_is_refused(tmp_path: Path, journal: str) -> None:
    connection, log = opened(tmp_path, journal)
    with pytest.raises(MisuseError, match=f"journal_mode = {journal} a crash may damage the database"):
        log.claim(connection, "a")
    assert not connection.in_transaction
    connection.close()


def opened(directory: Path, journal: str) -> tuple[Any, SqliteLog]:
    connection = sqlite3.connect(directory / "a.sqlite")
    log = SqliteLog()
    log.create(connection)
    connection.commit()
    assert connection.execute(f"PRAGMA journal_mode = {journal}").fetchone() == (journal,)
    return connection, log
