"""The log of prepared transactions in a database: its generation fences sessions that were replaced."""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.two_phase import Fenced, MisuseError, NeedsRecovery, PostgresLog, SqliteLog, Token
from fencepost.two_phase.client_calls import run_blocking
from fencepost.two_phase.databases import opened
from tests.support.postgres import PostgresServer
from tests.two_phase.databases import Database

TOKEN = Token(7, 0, "orders-1")


def claimed(database: Database, connection: Any) -> tuple[int, Token | None]:
    found: tuple[int, Token | None] = database.log.claim(connection, "orders-1")
    connection.commit()
    return found


def begin_unchecked(database: Database, connection: Any) -> None:
    """Begin as a session does that is replaced after it has begun; SQLite would not let its successor in."""
    run_blocking(database.log._open(opened(connection)))
    run_blocking(database.log._mark(opened(connection)))


def test_each_session_has_a_generation_of_its_own_and_finds_what_was_recorded(database: Database) -> None:
    first, second = database.connect(), database.connect()
    assert claimed(database, first) == (1, None)
    database.log.begin(first, 1, "orders-1")
    database.log.record(first, 1, TOKEN)
    first.commit()
    assert claimed(database, second) == (2, TOKEN)
    database.log.clear(second, 2, "orders-1")
    second.commit()
    assert claimed(database, first) == (3, None)
    assert database.log.claim(first, "orders-2") == (1, None)


def test_a_session_that_was_replaced_can_neither_record_nor_clear(database: Database) -> None:
    earlier, later = database.connect(), database.connect()
    claimed(database, earlier)
    database.log.begin(earlier, 1, "orders-1")
    earlier.rollback()
    claimed(database, later)
    database.log.begin(later, 2, "orders-1")
    database.log.record(later, 2, TOKEN)
    later.commit()
    with pytest.raises(Fenced):
        database.log.begin(earlier, 1, "orders-1")
    earlier.rollback()
    begin_unchecked(database, earlier)
    database.insert(earlier, "late")
    with pytest.raises(Fenced, match="another session has claimed orders-1") as raised:
        database.log.record(earlier, 1, Token(6, 5, "orders-1"))
    assert raised.value.token == Token(6, 5, "orders-1")
    earlier.rollback()
    with pytest.raises(Fenced):
        database.log.clear(earlier, 1, "orders-1")
    earlier.rollback()
    assert claimed(database, later) == (3, TOKEN)
    assert database.orders() == []


def test_what_is_rolled_back_was_not_recorded(database: Database) -> None:
    connection = database.connect()
    claimed(database, connection)
    database.log.begin(connection, 1, "orders-1")
    database.log.record(connection, 1, TOKEN)
    connection.rollback()
    assert claimed(database, connection) == (2, None)


def test_a_claim_waits_for_a_session_that_is_recording_and_finds_its_token(database: Database) -> None:
    recording = database.connect()
    claimed(database, recording)
    database.log.begin(recording, 1, "orders-1")
    database.log.record(recording, 1, TOKEN)
    found: list[object] = []

    def claim() -> None:
        connection = database.connect()
        found.append(claimed(database, connection))
        connection.close()

    claiming = threading.Thread(target=claim)
    claiming.start()
    claiming.join(0.2)
    assert not found, "the claim did not wait"
    recording.commit()
    claiming.join(10)
    assert found == [(2, TOKEN)]


def test_a_token_that_was_not_cleared_lets_no_transaction_begin(database: Database) -> None:
    connection = database.connect()
    claimed(database, connection)
    database.log.begin(connection, 1, "orders-1")
    database.log.record(connection, 1, TOKEN)
    connection.commit()
    with pytest.raises(NeedsRecovery, match=r"the database has committed 7:0:orders-1, .* call recover"):
        database.log.begin(connection, 1, "orders-1")


def test_a_transaction_that_was_ended_in_between_records_nothing(database: Database) -> None:
    connection = database.connect()
    claimed(database, connection)
    for end in (connection.commit, connection.rollback):
        database.log.begin(connection, 1, "orders-1")
        end()
        database.insert(connection, end.__name__)
        with pytest.raises(MisuseError, match="was ended inside the block: leave commit and rollback to"):
            database.log.record(connection, 1, TOKEN)
        connection.rollback()
    assert claimed(database, connection) == (2, None)


def test_a_generation_that_this_database_has_not_given_is_refused(database: Database) -> None:
    connection = database.connect()
    with pytest.raises(MisuseError, match="orders-1 was never claimed in this database: call recover first"):
        database.log.begin(connection, 1, "orders-1")
    connection.rollback()
    claimed(database, connection)
    with pytest.raises(MisuseError, match="has never given generation 2 of orders-1, its latest is 1: use what"):
        database.log.begin(connection, 2, "orders-1")


def test_a_missing_table_is_named_with_what_makes_it(database: Database) -> None:
    connection = database.connect()
    log = type(database.log)("elsewhere", weak="accept")
    uses: list[Callable[[], Any]] = [lambda: log.claim(connection, "a"), lambda: log.begin(connection, 1, "a")]
    for use in uses:
        with pytest.raises(MisuseError, match=r"has no table elsewhere: call the log's create\(connection\) once"):
            use()
        connection.rollback()


def test_a_closed_connection_is_named_with_what_to_do(database: Database) -> None:
    connection = database.connect()
    connection.close()
    with pytest.raises(
        MisuseError, match=r"is closed: connect again, and after an InDoubtError or NeedsRecovery call recover"
    ):
        database.log.claim(connection, "a")


def test_a_transaction_in_progress_is_neither_committed_nor_rolled_back(database: Database) -> None:
    connection = database.connect()
    claimed(database, connection)
    database.insert(connection, "mine")
    uses: list[Callable[[], Any]] = [
        lambda: database.log.claim(connection, "a"),
        lambda: database.log.begin(connection, 1, "orders-1"),
    ]
    for use in uses:
        with pytest.raises(MisuseError, match=r"has a transaction in progress, .*: commit it or roll it back"):
            use()
    connection.commit()
    assert database.orders() == ["mine"]


def test_a_connection_that_commits_by_itself_is_refused(postgres: PostgresServer) -> None:
    import psycopg

    with (
        psycopg.connect(postgres.uri, autocommit=True) as connection,
        pytest.raises(MisuseError, match="set autocommit to False"),
    ):
        PostgresLog().claim(connection, "orders-1")


if sys.version_info >= (3, 12):  # sqlite3 has no autocommit before

    def test_sqlite_with_autocommit_of_its_own_is_refused(tmp_path: Path) -> None:
        for autocommit in (True, False):
            connection = sqlite3.connect(tmp_path / "a.sqlite", autocommit=autocommit)
            with pytest.raises(MisuseError, match=r"connect with sqlite3.connect\(path\), without autocommit"):
                SqliteLog().claim(connection, "orders-1")
            connection.close()


def test_sqlite_without_transactions_of_its_own_gets_one(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "a.sqlite", isolation_level=None)
    log = SqliteLog()
    log.create(connection)
    log.claim(connection, "orders-1")
    assert connection.in_transaction
    connection.close()


def test_a_table_may_have_another_name_and_nothing_else() -> None:
    PostgresLog("billing.prepared")
    for name in ("", "a b", "a;drop table b", "a.b.c", '"a"'):
        with pytest.raises(ValueError, match="not a name of a table"):
            PostgresLog(name)
