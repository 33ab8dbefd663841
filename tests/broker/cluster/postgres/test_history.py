"""Tables that were restored to an earlier moment, without the command that makes them safe."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fencepost.broker.cluster.machines.check import check_cluster
from fencepost.broker.cluster.postgres import history
from fencepost.broker.cluster.postgres.connections import Connection, PostgresAddress, connect, parse_address
from fencepost.broker.cluster.postgres.history import History, read_history
from fencepost.broker.cluster.postgres.restored import after_restore
from fencepost.broker.cluster.postgres.schema import prepare
from fencepost.broker.storage.disk import StorageError
from tests.support.captured_events import capture_logs
from tests.support.modelled_objects import ModelledObjects


@pytest.fixture
def address(cluster_url: str) -> PostgresAddress:
    return parse_address(cluster_url)


@pytest.fixture
async def database(address: PostgresAddress) -> AsyncIterator[Connection]:
    connection = await connect(address, application_name="test")
    await prepare(connection, address)
    yield connection
    await connection.close()


async def restore_dump(database: Connection) -> None:
    """As pg_restore does: the table is made anew, with the rows that it had."""
    await database.execute(
        "ALTER TABLE cluster RENAME TO dumped; CREATE TABLE cluster (LIKE dumped INCLUDING ALL); "
        "INSERT INTO cluster SELECT * FROM dumped; DROP TABLE dumped"
    )


async def test_tables_that_stay_where_they_are_are_used_again(database: Connection, address: PostgresAddress) -> None:
    with capture_logs() as lines:
        await prepare(database, address)
    assert lines == []
    report = await check_cluster(database, ModelledObjects(), "a-cluster")
    assert (report.problems, report.warnings) == ([], [])


@pytest.mark.parametrize("how", ["a dump", "another server"])
async def test_tables_of_a_dump_are_refused_until_they_are_made_safe(
    database: Connection, address: PostgresAddress, how: str
) -> None:
    if how == "a dump":
        await restore_dump(database)
    else:
        await database.execute("UPDATE cluster SET place = '123/' || split_part(place, '/', 2)")
    with pytest.raises(StorageError, match=r"restored from a dump, or copied, .*`fencepost cluster restored`"):
        await prepare(database, address)
    report = await check_cluster(database, ModelledObjects(), "a-cluster")
    assert ["`fencepost cluster restored`" in problem for problem in report.problems] == [True]
    await after_restore(database, address, lambda _: {}, now_ms=0)
    await prepare(database, address)
    assert (await check_cluster(database, ModelledObjects(), "a-cluster")).problems == []


async def test_another_timeline_may_be_that_of_a_standby_and_is_named_at_each_start(
    database: Connection, address: PostgresAddress
) -> None:
    await database.execute("UPDATE cluster SET timeline = 0")
    with capture_logs() as lines:
        await prepare(database, address)
    (line,) = lines
    assert (line["event"], line["log_level"]) == ("database_on_another_timeline", "error")
    assert (
        "If it was restored to an earlier moment, stop all brokers, run `fencepost cluster restored`" in line["reason"]
    )
    report = await check_cluster(database, ModelledObjects(), "a-cluster")
    assert (report.problems, len(report.warnings)) == ([], 1)
    await after_restore(database, address, lambda _: {}, now_ms=0)
    with capture_logs() as lines:
        await prepare(database, address)
    assert lines == []


async def test_another_timeline_with_a_recovery_target_was_restored_to_an_earlier_moment(
    database: Connection, address: PostgresAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The target is a setting of the server, which another one stands for.
    monkeypatch.setattr(history, "TARGETS", ("search_path",))
    await prepare(database, address)
    await database.execute("UPDATE cluster SET timeline = 0")
    with pytest.raises(StorageError, match=r"was restored to an earlier moment \(search_path; timeline 1 after 0\)"):
        await prepare(database, address)


async def test_a_role_that_may_not_ask_for_the_server_is_served(database: Connection, address: PostgresAddress) -> None:
    statements = (
        "CREATE ROLE asks_nothing",
        f"GRANT USAGE ON SCHEMA {address.schema} TO asks_nothing",
        "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC",
        "SET LOCAL ROLE asks_nothing",
    )
    transaction = database.transaction()
    await transaction.start()
    try:
        await database.execute("; ".join(statements))
        assert await read_history(database) == History(None, None)
    finally:
        await transaction.rollback()
