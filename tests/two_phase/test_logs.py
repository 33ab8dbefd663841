"""The log of prepared transactions in a database: its generation fences sessions that were replaced."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from fencepost.two_phase import Fenced, PostgresLog, SqliteLog, Token
from tests.two_phase.conftest import Database

TOKEN = Token(7, 0, "orders-1")


def claimed(database: Database, connection: Any) -> tuple[int, Token | None]:
    found: tuple[int, Token | None] = database.log.claim(connection, "orders-1")
    connection.commit()
    return found


def test_each_session_has_a_generation_of_its_own_and_finds_what_was_recorded(database: Database) -> None:
    first, second = database.connect(), database.connect()
    assert claimed(database, first) == (1, None)
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
    claimed(database, later)
    database.log.record(later, 2, TOKEN)
    later.commit()
    database.log.begin(earlier)
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
    database.log.begin(connection)
    database.log.record(connection, 1, TOKEN)
    connection.rollback()
    assert claimed(database, connection) == (2, None)


def test_a_claim_waits_for_a_session_that_is_recording_and_finds_its_token(database: Database) -> None:
    recording = database.connect()
    claimed(database, recording)
    database.log.begin(recording)
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


def test_a_connection_that_commits_by_itself_is_refused(postgres_uri: str) -> None:
    import psycopg

    with (
        psycopg.connect(postgres_uri, autocommit=True) as connection,
        pytest.raises(ValueError, match="set autocommit to False"),
    ):
        PostgresLog().claim(connection, "orders-1")


def test_sqlite_without_transactions_of_its_own_gets_one(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "a.sqlite", isolation_level=None)
    log = SqliteLog()
    log.create(connection)
    log.claim(connection, "orders-1")
    assert connection.in_transaction


def test_a_table_may_have_another_name_and_nothing_else() -> None:
    PostgresLog("billing.prepared")
    for name in ("", "a b", "a;drop table b", "a.b.c", '"a"'):
        with pytest.raises(ValueError, match="not a name of a table"):
            PostgresLog(name)
