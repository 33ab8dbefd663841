"""Addresses of a cluster's PostgreSQL, and what its errors mean."""

from __future__ import annotations

import asyncpg
import pytest

from fencepost.broker.cluster.postgres import connections
from fencepost.broker.cluster.postgres.connections import UnavailableError, connect, parse_address, storage_error
from fencepost.broker.cluster.postgres.schema import prepare
from fencepost.broker.storage.disk import NoRoomError, StorageError

HERE = parse_address("postgresql://fencepost:secret@db.example:5433/brokers?sslmode=require")


def test_an_address_is_shown_without_its_password() -> None:
    assert HERE.shown == "db.example:5433/brokers"
    assert HERE.schema == "fencepost"
    assert "sslmode=require" in HERE.url
    assert "secret" not in repr(HERE)


def test_an_address_may_name_its_schema_and_several_hosts() -> None:
    address = parse_address("postgres://a,b:5433/brokers?search_path=second&application_name=x")
    assert address.shown == "a,b:5433/brokers, schema second"
    assert (address.schema, address.channel) == ("second", "second_changes")
    assert "search_path" not in address.url


def test_hosts_may_be_directories_of_sockets_whose_letters_keep_their_case() -> None:
    address = parse_address("postgresql://fencepost@%2Ftmp%2FA,%2ftmp%2Fb:5433/brokers")
    assert address.servers == (("/tmp/A", 5432), ("/tmp/b", 5433))


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("mysql://user:secret@db/brokers", "begins with 'mysql://'"),
        ("db/brokers", "begins with 'no scheme'"),
        ("postgresql://user:secret@db/brokers?search_path=a,b", "schema 'a,b'"),
        ("postgresql://user:secret@[db/brokers", "cannot be read as a URL"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_its_password(url: str, problem: str) -> None:
    with pytest.raises(ValueError, match=r"expected") as refused:
        parse_address(url)
    assert problem in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionRefusedError(), UnavailableError),
        (TimeoutError(), UnavailableError),
        (asyncpg.InterfaceError("connection is closed"), UnavailableError),
        (asyncpg.ConnectionDoesNotExistError("lost"), UnavailableError),
        (asyncpg.InternalClientError("cannot switch to state 12"), UnavailableError),
        (asyncpg.DataError("an integer is required"), StorageError),
        (asyncpg.AdminShutdownError("stopped"), UnavailableError),
        (asyncpg.CannotConnectNowError("starting up"), UnavailableError),
        (asyncpg.QueryCanceledError("statement timeout"), UnavailableError),
        (asyncpg.DeadlockDetectedError("deadlock"), UnavailableError),
        (asyncpg.ReadOnlySQLTransactionError("a standby"), UnavailableError),
        (asyncpg.DiskFullError("no space left"), NoRoomError),
        (asyncpg.InvalidPasswordError("wrong password"), StorageError),
        (asyncpg.UndefinedTableError("no such table"), StorageError),
    ],
)
def test_errors_that_pass_can_be_distinguished_from_those_that_stay(error: Exception, kind: type) -> None:
    found = storage_error(error, HERE)
    assert type(found) is kind
    assert "db.example:5433/brokers" in str(found)
    assert "secret" not in str(found)


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (asyncpg.InvalidPasswordError("wrong password"), "~/.pgpass or PGPASSWORD"),
        (asyncpg.InvalidAuthorizationSpecificationError("no such role"), "Check the user"),
        (asyncpg.InvalidCatalogNameError("no such database"), "Create the database"),
        (asyncpg.InsufficientPrivilegeError("permission denied"), "CREATE on the database"),
        (asyncpg.TooManyConnectionsError("too many clients"), "max_connections: each broker has up to 6"),
    ],
)
def test_what_an_operator_has_to_do_is_said(error: Exception, remedy: str) -> None:
    assert f"{error}. " in str(storage_error(error, HERE))
    assert remedy in str(storage_error(error, HERE))


async def test_a_server_that_takes_no_writes_is_named_with_what_makes_it_so(cluster_url: str) -> None:
    address = parse_address(f"{cluster_url}&default_transaction_read_only=on")
    with pytest.raises(UnavailableError, match=r"takes no writes: it is a standby, or default_transaction_read_only"):
        await connect(address, application_name="test")


async def test_an_old_postgresql_is_refused(cluster_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "OLDEST_MAJOR_VERSION", 99)
    with pytest.raises(StorageError, match=r"is version [0-9]+\.[0-9]+; a cluster needs 99 or later"):
        await connect(parse_address(cluster_url), application_name="test")


async def test_a_role_that_may_not_create_the_schema_is_named_its_remedy(cluster_url: str) -> None:
    owner = await connect(parse_address(cluster_url), application_name="test")
    await owner.execute("DROP ROLE IF EXISTS guest")
    await owner.execute("CREATE ROLE guest LOGIN PASSWORD 'guest'")
    try:
        address = parse_address(cluster_url)
        connection = await connect(address, application_name="test")
        try:
            await connection.execute("SET SESSION AUTHORIZATION guest")
            with pytest.raises(StorageError, match=r"refuses: permission denied .*\. Give the role the right"):
                await prepare(connection, address)
        finally:
            await connection.close()
    finally:
        await owner.execute("DROP ROLE guest")
        await owner.close()


def test_a_server_that_is_silent_is_described_in_words() -> None:
    assert str(storage_error(TimeoutError(), HERE)).endswith("cannot be reached: it has not answered in time")


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    address = parse_address("postgresql://user:secret@127.0.0.1:1/brokers")
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1/brokers cannot be reached"):
        await connect(address, application_name="test")
