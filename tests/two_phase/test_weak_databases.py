"""A log looks at the settings of its database that let a failure lose what was committed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from fencepost.two_phase import MisuseError, PostgresLog, SqliteLog, WeakDatabase
from tests.support.conditions import until
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.postgres_standby import standby_of


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server(is_durable=True) as server:
        yield server


@contextmanager
def setting(server: PostgresServer, name: str, value: str) -> Iterator[None]:
    """Change a setting for all connections of a server."""
    before = server.execute(f"SHOW {name}")
    for wanted in (value, before):
        server.execute(f"ALTER SYSTEM SET {name} = '{wanted}'")
        server.execute("SELECT pg_reload_conf()")
        until(lambda: server.execute(f"SHOW {name}") == wanted, timeout_s=60)  # noqa: B023
        if wanted == value:
            yield


@contextmanager
def connected(server: PostgresServer) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server.make_schema()) as connection:
        yield connection


def test_a_database_that_loses_nothing_is_taken_in_silence(server: PostgresServer) -> None:
    with connected(server) as connection:
        log = PostgresLog(weak="refuse")
        log.create(connection)
        connection.commit()
        assert log.claim(connection, "a") == (1, None)


@pytest.mark.parametrize("name", ["fsync", "full_page_writes"])
def test_a_setting_that_loses_commits_is_warned_of_refused_or_accepted(server: PostgresServer, name: str) -> None:
    with connected(server) as connection:
        PostgresLog().create(connection)
        connection.commit()
        with setting(server, name, "off"):
            with pytest.warns(WeakDatabase, match=f"{name} is off.*: set it on"):
                PostgresLog().claim(connection, "a")
            connection.rollback()
            with pytest.raises(MisuseError, match=f"{name} is off"):
                PostgresLog(weak="refuse").claim(connection, "a")
            connection.rollback()
            with pytest.raises(MisuseError, match=f"{name} is off"):
                PostgresLog(weak="refuse").create(connection)
            connection.rollback()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                PostgresLog(weak="accept").claim(connection, "a")


def test_a_session_on_a_database_that_does_not_sync_begins_only_if_it_accepts_that(server: PostgresServer) -> None:
    with connected(server) as connection:
        log = PostgresLog(weak="refuse")
        log.create(connection)
        connection.commit()
        with setting(server, "fsync", "off"), pytest.raises(MisuseError):
            log.claim(connection, "a")
        connection.rollback()
        assert log.claim(connection, "a") == (1, None), "the refused session has claimed nothing"


def test_a_standby_that_commits_wait_for_is_no_weakness(server: PostgresServer) -> None:
    with standby_of(server, "second", is_synchronous=True), connected(server) as connection:
        log = PostgresLog(weak="refuse")
        log.create(connection)
        connection.commit()
        log.claim(connection, "a")


def test_a_standby_that_commits_do_not_wait_for_is_named(server: PostgresServer) -> None:
    with standby_of(server, "second", is_synchronous=False) as standby, connected(server) as connection:
        log = PostgresLog(weak="refuse")
        with pytest.raises(MisuseError, match=r"do not wait for \(second\).*synchronous_standby_names"):
            log.create(connection)
        with (
            psycopg.connect(standby.uri) as second,
            pytest.raises(MisuseError, match="a standby, which takes no writes"),
        ):
            PostgresLog().claim(second, "a")


def test_a_user_without_the_right_to_statistics_hears_of_standbys_too(server: PostgresServer) -> None:
    with standby_of(server, "second", is_synchronous=False), connected(server) as connection:
        server.execute("CREATE ROLE clerk")
        connection.execute("SET ROLE clerk")
        with pytest.raises(MisuseError, match=r"do not wait for \(second\)"):
            PostgresLog(weak="refuse").create(connection)


def test_only_the_three_answers_exist() -> None:
    with pytest.raises(ValueError, match="refuse, warn, accept"):
        SqliteLog(weak="ignore")  # type: ignore[arg-type]
