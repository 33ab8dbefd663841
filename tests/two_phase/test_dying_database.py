"""The service's database dies, is promoted, full, locked, or cut off around a COMMIT: rows equal records all the same.

Each row of the table "When the database dies" of docs/two-phase.md has a test here, with a PostgreSQL of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import errors

from fencepost.soak.cutting_proxy import Place
from fencepost.soak.postgres_pair import go
from fencepost.soak.service_database import ServiceDatabase
from fencepost.two_phase import InDoubtError, MisuseError, NeedsRecovery
from fencepost.two_phase.client_calls import BlockingCalls
from tests.support.conditions import until
from tests.support.missing_tools import missing
from tests.two_phase.brokers import Orders
from tests.two_phase.conftest import Sessions
from tests.two_phase.databases import Database
from tests.two_phase.sessions import SESSIONS, Session
from tests.two_phase.test_lost_hold import ConnectionThatIsFollowed

# One PostgreSQL for all of them, in one of the processes of `pytest --dist loadgroup`.
pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("dying-database")]
END_OTHERS = (
    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
    "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
)
CLIENT = "kafka-python"
Started = Callable[[Orders, Database], Session]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceDatabase]:
    made = ServiceDatabase(tmp_path_factory.mktemp("logs"))
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture(params=["direct", "pooled"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database(request: pytest.FixtureRequest, server: ServiceDatabase) -> Iterator[Database]:
    """The database, empty, by the way of the test."""
    way = request.getfixturevalue("way") if "way" in request.fixturenames else "direct"
    if way == "pooled" and not server.has_pooler:
        missing("PgBouncer is not installed: .ci/run installs it")
    server.proxy.forget()
    with psycopg.connect(server.own_url, autocommit=True) as connection:
        # Not a database for each test: a new standby would have to copy them all.
        connection.execute(END_OTHERS)
        connection.execute("DROP TABLE IF EXISTS orders, papers, fencepost_prepared")
    made = Database("postgres", server.pooled_url() if way == "pooled" else server.url()).create()
    yield made
    made.close()


@pytest.fixture
def competitor(server: ServiceDatabase, database: Database) -> Iterator[psycopg.Connection]:
    """Another user of the database, on whose connection nothing is cut."""
    with psycopg.connect(server.own_url) as connection:
        yield connection
        connection.rollback()


def check(database: Database, orders: Orders, names: list[str] | None = None) -> None:
    """Rows equal records, and nothing is in doubt."""
    assert database.orders() == orders.values()
    assert database.tokens() == []
    if names is not None:
        assert database.orders() == names


@pytest.fixture
def started() -> Iterator[Started]:
    """Starts sessions with one client, where the client makes no difference."""
    made: list[Session] = []

    def start(orders: Orders, database: Database) -> Session:
        made.append(SESSIONS[CLIENT](orders.servers, database, orders.topic, orders.transactional_id))
        made[-1].start()
        return made[-1]

    yield start
    for session in made:
        session.close()


@contextmanager
def limited(session: Session, **timeouts: str) -> Iterator[None]:
    """Set time-outs of a session's connection to PostgreSQL."""
    for name, value in timeouts.items():
        session.connection.execute(f"SET {name} = '{value}'")
    session.connection.commit()
    yield


# A connection that is cut around a COMMIT


@pytest.mark.parametrize("place", Place, ids=lambda place: place.value)
def test_a_commit_that_is_cut_is_in_doubt_and_the_next_start_finds_out(
    server: ServiceDatabase, own_orders: Orders, database: Database, way: str, session_of: Sessions, place: Place
) -> None:
    session = session_of(own_orders)
    session.write("a")
    server.proxy.cut_next(place)
    with pytest.raises(InDoubtError):
        session.write("b")
    successor = session_of(own_orders)
    if place is not Place.AFTER or way == "direct":  # else PgBouncer may have given up before it forwarded the COMMIT
        assert database.orders() == (["a"] if place is Place.BEFORE else ["a", "b"])
    check(database, own_orders)
    successor.write("c")
    check(database, own_orders)


@pytest.mark.parametrize("place", Place, ids=lambda place: place.value)
def test_a_cut_behind_both_commits_asks_for_a_new_session(
    server: ServiceDatabase, own_orders: Orders, database: Database, session_of: Sessions, place: Place
) -> None:
    session = session_of(own_orders)
    session.connection = ConnectionThatIsFollowed(session.connection, lambda: server.proxy.cut_next(place))
    with pytest.raises(NeedsRecovery, match="committed on both sides"):
        session.write("a")
    session_of(own_orders).write("b")
    check(database, own_orders, ["a", "b"])


@pytest.mark.parametrize("place", Place, ids=lambda place: place.value)
def test_a_start_that_is_cut_is_repeated(
    server: ServiceDatabase, own_orders: Orders, database: Database, session_of: Sessions, place: Place
) -> None:
    session_of(own_orders).write("a")
    server.proxy.cut_next(place)  # the claim's commit
    with pytest.raises(psycopg.OperationalError):
        session_of(own_orders)
    session_of(own_orders).write("b")
    check(database, own_orders, ["a", "b"])


# Time-outs of PostgreSQL

TIMEOUTS = [
    pytest.param({"lock_timeout": "100ms"}, errors.LockNotAvailable, id="lock_timeout"),
    pytest.param({"statement_timeout": "100ms"}, errors.QueryCanceled, id="statement_timeout"),
]


@pytest.mark.parametrize(("timeouts", "expected"), TIMEOUTS)
def test_a_time_out_in_the_block_leaves_nothing_and_the_session_goes_on(
    own_orders: Orders,
    database: Database,
    session_of: Sessions,
    competitor: Any,
    timeouts: dict[str, str],
    expected: type[Exception],
) -> None:
    session = session_of(own_orders)
    database.insert(competitor, "a")  # until it is committed or rolled back, nobody else can
    with limited(session, **timeouts), pytest.raises(expected):
        session.write("a")
    competitor.rollback()
    check(database, own_orders, [])
    session.write("a")
    check(database, own_orders, ["a"])


@pytest.mark.parametrize(("timeouts", "expected"), TIMEOUTS)
def test_a_time_out_at_the_token_leaves_nothing_and_the_session_goes_on(
    own_orders: Orders,
    database: Database,
    session_of: Sessions,
    competitor: Any,
    timeouts: dict[str, str],
    expected: type[Exception],
) -> None:
    session = session_of(own_orders)
    competitor.execute("SELECT * FROM fencepost_prepared FOR UPDATE")
    with limited(session, **timeouts), pytest.raises(expected):
        session.write("a")
    competitor.rollback()
    check(database, own_orders, [])
    session.write("a")
    check(database, own_orders, ["a"])


@pytest.mark.parametrize(("timeouts", "expected"), TIMEOUTS)
def test_a_time_out_behind_both_commits_asks_for_a_new_session(
    own_orders: Orders,
    database: Database,
    competitor: Any,
    timeouts: dict[str, str],
    expected: type[Exception],
    started: Started,
) -> None:
    session = started(own_orders, database)
    with limited(session, **timeouts):
        session.connection = ConnectionThatIsFollowed(
            session.connection, lambda: competitor.execute("SELECT * FROM fencepost_prepared FOR UPDATE")
        )
        with pytest.raises(NeedsRecovery, match="committed on both sides") as raised:
            session.write("a")
    assert isinstance(raised.value.__cause__, expected)
    competitor.rollback()
    session.close()
    started(own_orders, database).write("b")
    check(database, own_orders, ["a", "b"])


@pytest.mark.parametrize(("timeouts", "expected"), TIMEOUTS)
def test_a_start_that_times_out_is_repeated(
    own_orders: Orders,
    database: Database,
    competitor: Any,
    timeouts: dict[str, str],
    expected: type[Exception],
    started: Started,
) -> None:
    started(own_orders, database).write("a")
    competitor.execute("SELECT * FROM fencepost_prepared FOR UPDATE")
    late = SESSIONS[CLIENT](own_orders.servers, database, own_orders.topic, own_orders.transactional_id)
    with limited(late, **timeouts), pytest.raises(expected):
        late.start()
    late.close()
    competitor.rollback()
    started(own_orders, database).write("b")
    check(database, own_orders, ["a", "b"])


def test_a_session_that_was_idle_in_its_block_for_too_long_leaves_nothing_and_goes_on_with_another_connection(
    own_orders: Orders,
    database: Database,
    competitor: Any,
    started: Started,
) -> None:
    session = started(own_orders, database)
    server_process = session.connection.info.backend_pid

    def is_gone() -> bool:
        gone = competitor.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (server_process,)).fetchone() is None
        competitor.rollback()
        return gone

    def write_slowly() -> None:
        with session.transaction():
            database.insert(session.connection, "a")
            session.send("a")
            until(is_gone, timeout_s=60)  # as a process that is frozen

    with (
        limited(session, idle_in_transaction_session_timeout="100ms"),
        pytest.raises(errors.IdleInTransactionSessionTimeout),
    ):
        write_slowly()
    check(database, own_orders, [])
    with pytest.raises(MisuseError, match="the connection to the database is closed: connect again"):
        session.write("a")
    session.connection = database.connect()
    session.write("a")
    check(database, own_orders, ["a"])


# PostgreSQL is killed, full, promoted


def test_a_database_that_is_killed_in_the_block_leaves_nothing_and_the_session_goes_on_with_another_connection(
    server: ServiceDatabase,
    own_orders: Orders,
    database: Database,
    started: Started,
) -> None:
    session = started(own_orders, database)
    session.write("a")

    def write_into_the_end() -> None:
        with session.transaction():
            database.insert(session.connection, "b")
            session.send("b")
            server.kill()

    try:
        with pytest.raises(psycopg.OperationalError):
            write_into_the_end()
    finally:
        go(server.start_again())
    check(database, own_orders, ["a"])
    session.connection = database.connect()
    session.write("b")
    check(database, own_orders, ["a", "b"])


def test_a_database_that_is_killed_between_both_commits_has_its_records_committed(
    server: ServiceDatabase,
    own_orders: Orders,
    database: Database,
    started: Started,
) -> None:
    session = started(own_orders, database)
    session.connection = ConnectionThatIsFollowed(session.connection, server.kill)
    try:
        with pytest.raises(NeedsRecovery, match="committed on both sides"):
            session.write("a")
    finally:
        go(server.start_again())
    started(own_orders, database).write("b")
    check(database, own_orders, ["a", "b"])


def test_a_full_disk_leaves_nothing_and_the_session_goes_on_once_there_is_room(
    server: ServiceDatabase,
    own_orders: Orders,
    database: Database,
    competitor: Any,
    started: Started,
) -> None:
    competitor.execute("CREATE TABLE papers (text text)")
    competitor.execute("INSERT INTO papers SELECT repeat('x', 1500) FROM generate_series(1, 1000)")
    (path,) = competitor.execute("SELECT pg_relation_filepath('papers')").fetchone()
    competitor.commit()
    competitor.execute("CHECKPOINT")
    competitor.commit()
    session = started(own_orders, database)

    def write_much() -> None:
        with session.transaction():
            database.insert(session.connection, "a")
            session.connection.execute("INSERT INTO papers SELECT repeat('x', 1500) FROM generate_series(1, 40)")
            session.send("a")

    go(server.limit_file_size(server.file(path).stat().st_size))
    try:
        with pytest.raises(psycopg.Error, match=r"could not (extend|write)"):
            write_much()
    finally:
        go(server.limit_file_size(None))
    check(database, own_orders, [])
    write_much()
    check(database, own_orders, ["a"])


def test_a_full_disk_of_the_write_ahead_log_ends_the_database_and_nothing_is_lost(
    server: ServiceDatabase,
    own_orders: Orders,
    database: Database,
    started: Started,
) -> None:
    session = started(own_orders, database)
    session.write("a")

    def write_until_it_ends() -> None:
        for number in range(100):  # the first pages of a segment have room
            session.write(f"b{number}")

    go(server.limit_file_size(8192))
    try:
        with pytest.raises((InDoubtError, NeedsRecovery, psycopg.OperationalError)):
            write_until_it_ends()
    finally:
        go(server.limit_file_size(None))
        go(server.start_again())
    started(own_orders, database).write("c")
    check(database, own_orders)
    assert {"a", "c"} <= set(database.orders())


def test_a_promoted_synchronous_standby_has_all_rows_and_tokens(
    server: ServiceDatabase,
    own_orders: Orders,
    database: Database,
    started: Started,
) -> None:
    session = started(own_orders, database)
    session.write("a")
    session.connection = ConnectionThatIsFollowed(session.connection, lambda: go(server.promote()))
    try:
        with pytest.raises(NeedsRecovery):
            session.write("b")
        started(own_orders, database).write("c")
        check(database, own_orders, ["a", "b", "c"])
    finally:
        go(server.make_standby())


def test_a_commit_that_the_standby_has_not_got_is_in_doubt_and_is_not_there_after_its_promotion_or_on_both_sides(
    server: ServiceDatabase,
    own_orders: Orders,
    database: Database,
    competitor: Any,
    started: Started,
) -> None:
    session = started(own_orders, database)
    raised: list[BaseException] = []
    server.freeze_standby()
    writing = threading.Thread(target=lambda: raised.append(_raised(lambda: session.write("a"))))
    writing.start()
    until(lambda: _waits_for_standby(competitor), timeout_s=60)
    assert own_orders.values() == []
    try:
        server.kill()
        server.thaw()
        writing.join(60)
        assert isinstance(raised[0], InDoubtError)
        session.close()
        go(server.promote())
        started(own_orders, database).write("b")
        check(database, own_orders)
        assert "b" in database.orders()
    finally:
        go(server.make_standby())


def test_a_row_that_only_the_primary_has_gets_its_records_once_the_standby_has_it(
    server: ServiceDatabase,
    own_orders: Orders,
    database: Database,
    competitor: Any,
    started: Started,
) -> None:
    """A restart shows rows whose commit was waiting for the standby: the next start waits for it, too."""
    session = started(own_orders, database)
    raised: list[BaseException] = []
    server.freeze_standby()
    try:
        writing = threading.Thread(target=lambda: raised.append(_raised(lambda: session.write("a"))))
        writing.start()
        until(lambda: _waits_for_standby(competitor), timeout_s=60)
        server.kill()
        writing.join(60)
        assert isinstance(raised[0], InDoubtError)
        session.close()
        go(server.start_again())
        starting = threading.Thread(target=lambda: started(own_orders, database).close())
        starting.start()
        with psycopg.connect(server.own_url) as other:
            until(lambda: _waits_for_standby(other), timeout_s=60)
        assert database.orders() == ["a"]
        assert own_orders.values() == []
    finally:
        server.thaw()
    starting.join(60)
    check(database, own_orders, ["a"])


def test_a_commit_whose_wait_for_the_standby_is_cancelled_is_in_doubt(
    server: ServiceDatabase, own_orders: Orders, database: Database, competitor: Any, started: Started
) -> None:
    """PostgreSQL calls it committed, with a warning; the row would be lost if the standby were promoted."""
    session = started(own_orders, database)
    raised: list[BaseException] = []
    server.freeze_standby()
    try:
        writing = threading.Thread(target=lambda: raised.append(_raised(lambda: session.write("a"))))
        writing.start()
        until(lambda: _waits_for_standby(competitor), timeout_s=60)
        competitor.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        writing.join(60)
        assert isinstance(raised[0], InDoubtError)
        assert "the standby may lack the commit" in str(raised[0].__cause__)
        assert own_orders.values() == []
    finally:
        server.thaw()
    competitor.rollback()
    started(own_orders, database).write("b")
    check(database, own_orders, ["a", "b"])


def _raised(call: Any) -> BaseException:
    with pytest.raises(Exception) as raised:  # noqa: PT011  # the caller looks at it
        call()
    return raised.value


def _waits_for_standby(connection: Any) -> bool:
    found = connection.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'").fetchone()
    connection.rollback()
    return found is not None


# PgBouncer in transaction mode


@pytest.mark.parametrize("way", ["pooled"], indirect=True)
def test_the_hold_of_a_start_holds_through_a_pooler(
    own_orders: Orders,
    database: Database,
    way: str,
    competitor: Any,
    monkeypatch: pytest.MonkeyPatch,
    started: Started,
) -> None:
    seen: list[type[BaseException]] = []
    initialize = BlockingCalls.initialize

    async def looked_at(*about: Any) -> None:
        competitor.execute("SET LOCAL lock_timeout = '100ms'")
        seen.append(type(_raised(lambda: competitor.execute("SELECT * FROM fencepost_prepared FOR UPDATE"))))
        competitor.rollback()
        await initialize(*about)

    monkeypatch.setattr(BlockingCalls, "initialize", looked_at)
    started(own_orders, database).write("a")
    assert seen == [errors.LockNotAvailable]
    check(database, own_orders, ["a"])


@pytest.mark.parametrize("way", ["pooled"], indirect=True)
def test_a_log_needs_no_prepared_statements_which_a_pooler_loses(
    own_orders: Orders,
    database: Database,
    way: str,
    started: Started,
) -> None:
    """psycopg prepares a statement that it has sent five times, for the server's session: the next one is another."""
    session = started(own_orders, database)

    def write(name: str) -> None:
        with session.transaction():
            session.connection.execute("INSERT INTO orders VALUES (%s)", (name,), prepare=False)
            session.send(name)

    names = [f"{number:02}" for number in range(12)]
    for name in names[:8]:
        write(name)
    other = database.connect()
    other.execute("SELECT 1")  # it has the server's session of before
    for name in names[8:]:
        write(name)
    check(database, own_orders, names)


@pytest.mark.parametrize("way", ["pooled"], indirect=True)
def test_a_pooler_that_is_killed_in_the_block_leaves_nothing(
    server: ServiceDatabase,
    own_orders: Orders,
    database: Database,
    way: str,
    started: Started,
) -> None:
    session = started(own_orders, database)

    def write_into_the_end() -> None:
        with session.transaction():
            database.insert(session.connection, "a")
            session.send("a")
            server.kill_pooler()

    try:
        with pytest.raises(psycopg.OperationalError):
            write_into_the_end()
    finally:
        go(server.start_pooler_again())
    check(database, own_orders, [])
    session.connection = database.connect()
    session.write("a")
    check(database, own_orders, ["a"])
