"""A commit over the connection that a service has: psycopg's pools, asyncpg, SQLAlchemy and Django."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.two_phase import (
    AsyncCoordinator,
    Coordinator,
    InDoubtError,
    MisuseError,
    PostgresLog,
    SqliteLog,
    Superseded,
    Token,
    confluent_producer,
    start_session,
    start_session_async,
    transaction,
    transaction_async,
)
from fencepost.two_phase.client_calls import run_blocking
from fencepost.two_phase.coordinator import Description
from fencepost.two_phase.databases import opened
from tests.support.closed_loop import close_with_connections
from tests.testing.clients import QUIET
from tests.two_phase.brokers import Orders
from tests.two_phase.databases import Database, postgres_database, sqlite_database
from tests.two_phase.libraries import LIBRARIES, Django, Library, SqlAlchemy

pytestmark = pytest.mark.integration

Step = Callable[[], Coroutine[Any, Any, None]]


class Service:
    """Writes orders by a library's connection: on an event loop if that needs one, with the client of its kind."""

    def __init__(self, library: Library, orders: Orders) -> None:
        self.library = library
        self.orders = orders
        self.log = library.database.log
        self.loop = asyncio.new_event_loop() if library.is_awaited else None

    def run(self, steps: Coroutine[Any, Any, Any]) -> Any:
        return run_blocking(steps) if self.loop is None else self.loop.run_until_complete(steps)

    def start(self) -> None:
        servers, transactional_id, library = self.orders.servers, self.orders.transactional_id, self.library
        self.run(library.open())
        if self.loop is None:
            self.producer = confluent_producer(
                {"bootstrap.servers": servers, "transactional.id": transactional_id, **QUIET}
            )
            self.producer.list_topics(timeout=10)
            with Coordinator(servers) as coordinator:
                self.generation = start_session(self.producer, coordinator, self.log, library.connection)
            return

        async def start() -> None:
            import aiokafka

            self.producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id=transactional_id)
            async with AsyncCoordinator(servers) as coordinator:
                self.generation = await start_session_async(self.producer, coordinator, self.log, library.connection)

        self.run(start())

    def write(self, name: str, inside: Step | None = None) -> None:
        """Write an order in a transaction, and run a step in its block."""
        servers, library, topic = self.orders.servers, self.library, self.orders.topic
        about = (self.log, library.connection)
        if self.loop is None:
            with (
                Coordinator(servers) as coordinator,
                transaction(self.producer, coordinator, *about, generation=self.generation),
            ):
                self.run(library.insert(name))
                self.producer.produce(topic, name.encode())
                if inside is not None:
                    self.run(inside())
            return

        async def write() -> None:
            async with (
                AsyncCoordinator(servers) as coordinator,
                transaction_async(self.producer, coordinator, *about, generation=self.generation),
            ):
                await library.insert(name)
                await self.producer.send(topic, name.encode())
                if inside is not None:
                    await inside()

        self.run(write())

    def close(self) -> None:
        self.run(self.library.close())
        self.library.database.close()
        if self.loop is not None:
            self.loop.run_until_complete(self.producer.stop())
            close_with_connections(self.loop)
        else:
            self.producer.close()


@pytest.fixture(params=list(LIBRARIES))
def library(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Library]:
    made = LIBRARIES[request.param]
    is_sqlite = getattr(made, "kind", "") == "sqlite"
    database = sqlite_database(tmp_path) if is_sqlite else postgres_database(request.getfixturevalue("postgres"))
    yield made(database)
    database.close()


@pytest.fixture
def service(library: Library, own_orders: Orders) -> Iterator[Service]:
    made = Service(library, own_orders)
    made.start()
    yield made
    made.close()


def assert_on_both_sides(service: Service, *names: str) -> None:
    database: Database = service.library.database
    assert database.orders() == service.orders.values() == sorted(names)
    assert database.tokens() == []


def test_both_sides_have_each_order_and_none_after_an_error(service: Service) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    service.write("a")
    with pytest.raises(ZeroDivisionError):
        service.write("b", fail)
    service.write("c")
    assert_on_both_sides(service, "a", "c")


def test_a_savepoint_in_the_block_may_be_rolled_back_or_kept(service: Service) -> None:
    service.write("a", lambda: service.library.insert_in_savepoint("undone", fails=True))

    async def insert_and_send() -> None:
        await service.library.insert_in_savepoint("c", fails=False)
        sent = service.producer.send if service.loop is not None else None
        if sent is not None:
            await sent(service.orders.topic, b"c")
        else:
            service.producer.produce(service.orders.topic, b"c")

    service.write("b", insert_and_send)
    assert_on_both_sides(service, "a", "b", "c")


def test_a_commit_that_the_database_refuses_leaves_nothing_and_the_session_goes_on(service: Service) -> None:
    library = service.library
    reference = "REFERENCES orders DEFERRABLE INITIALLY DEFERRED"

    async def make() -> None:
        await library.execute(f"CREATE TABLE invoices (name text {reference})")
        if not isinstance(library, Django):  # which commits by itself outside of atomic()
            await library.commit()

    async def refer_to_nothing() -> None:
        if library.kind == "sqlite":
            await library.execute("SELECT no_such_column FROM orders")  # SQLite's references are off
        await library.execute("INSERT INTO invoices VALUES ('nothing')")

    service.run(make()) if not library.connection.__class__.__module__.startswith("asyncpg") else service.run(
        library.execute(f"CREATE TABLE invoices (name text {reference})")
    )
    with pytest.raises(Exception, match=r"foreign key|no such column") as raised:
        service.write("a", refer_to_nothing)
    assert not isinstance(raised.value, InDoubtError)
    service.write("b")
    assert_on_both_sides(service, "b")


def test_a_block_that_commits_is_refused_with_one_sentence(service: Service) -> None:
    with pytest.raises(Exception, match=r"ended inside the block|forbidden|isn't allowed|not allowed") as raised:
        service.write("a", service.library.commit)
    assert service.orders.values() == []
    if isinstance(raised.value, MisuseError):
        assert "leave commit and rollback to transaction()" in str(raised.value)


def test_a_transaction_in_progress_is_refused_and_stays(service: Service) -> None:
    library = service.library
    if isinstance(library, Django):
        from django.db import transaction as django

        with django.atomic(using=library.alias):
            with pytest.raises(MisuseError, match=r"is inside atomic\(\), perhaps because of ATOMIC_REQUESTS"):
                service.write("a")
            service.run(library.insert("mine"))
    else:

        async def begin() -> None:
            if hasattr(library.connection, "is_in_transaction"):
                await library.connection.execute("BEGIN")
            await library.insert("mine")

        service.run(begin())
        with pytest.raises(MisuseError, match="has a transaction in progress"):
            service.write("a")
        service.run(library.commit())
    assert library.database.orders() == ["mine"]
    assert service.orders.values() == []


def test_two_databases_of_one_session_are_refused(postgres: Any, own_orders: Orders, tmp_path: Path) -> None:
    from sqlalchemy import create_engine, text

    service = Service(SqlAlchemy(postgres_database(postgres)), own_orders)
    service.start()
    session = service.library.connection
    other = create_engine(f"sqlite:///{tmp_path}/other.sqlite")

    async def write_elsewhere() -> None:
        session.execute(text("CREATE TABLE b (a text)"), bind_arguments={"bind": other})

    with pytest.raises(MisuseError, match=r"has used two databases, and one commit covers .* alone: use a session"):
        service.write("a", write_elsewhere)
    service.write("b")
    assert_on_both_sides(service, "b")
    service.close()
    other.dispose()


def test_a_write_to_another_database_of_django_is_refused(postgres: Any, own_orders: Orders) -> None:
    service = Service(Django(postgres_database(postgres)), own_orders)
    service.start()

    async def write_elsewhere() -> None:
        from django.db import connections

        with connections["other"].cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.execute("CREATE TABLE b (a text)")

    with pytest.raises(MisuseError, match=r"writes to the database 'other' as well, and one commit covers one"):
        service.write("a", write_elsewhere)
    service.write("b")
    assert_on_both_sides(service, "b")
    service.close()


@pytest.mark.parametrize("library_name", ["sqlalchemy-session", "sqlalchemy-session-sqlite"])
def test_an_engine_that_commits_each_statement_is_refused(
    library_name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session

    is_sqlite = library_name.endswith("sqlite")
    database = sqlite_database(tmp_path) if is_sqlite else postgres_database(request.getfixturevalue("postgres"))
    library = LIBRARIES[library_name](database)
    assert isinstance(library, SqlAlchemy)
    engine = create_engine(library.url, isolation_level="AUTOCOMMIT")
    with Session(engine) as session, pytest.raises(MisuseError, match=r"without isolation_level='AUTOCOMMIT'"):
        database.log.claim(session, "orders")
    engine.dispose()
    database.close()


def test_a_log_for_another_kind_of_database_says_so(tmp_path: Path) -> None:
    connection = sqlite_database(tmp_path).connect()
    with pytest.raises(MisuseError, match="PostgresLog needs a connection to postgresql; got one of sqlite"):
        PostgresLog().create(connection)
    with pytest.raises(MisuseError, match=r"SqliteLog needs a connection to sqlite; got one of builtins.dict"):
        SqliteLog().create({})


def test_a_connection_of_a_derived_class_or_an_object_around_one_is_one_of_its_library(tmp_path: Path) -> None:
    import sqlite3

    class Traced(sqlite3.Connection):
        pass

    class Around:
        def __init__(self, connection: Any) -> None:
            self._connection = connection

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

    connection = sqlite3.connect(tmp_path / "a.sqlite", factory=Traced)
    assert opened(connection).kind == opened(Around(connection)).kind == "sqlite"
    connection.close()


def test_a_commit_under_way_on_a_connection_that_a_library_replaced_is_in_doubt(
    postgres: Any, own_orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy.orm import Session

    service = Service(SqlAlchemy(postgres_database(postgres)), own_orders)
    service.start()
    replaced = service.library.connection

    async def lose_the_answer(self: Any) -> None:
        self.connection = self._sync = service.library.connection = Session(replaced.get_bind())
        raise ConnectionError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(f"{opened.__module__}._SqlAlchemy.commit", lose_the_answer)
        with pytest.raises(InDoubtError):
            service.write("a")
    replaced.commit()
    service.library.connection.close()
    again = Service(service.library, own_orders)
    again.start()
    assert_on_both_sides(again, "a")
    again.write("b")
    assert_on_both_sides(again, "a", "b")
    service.producer.close()
    again.close()
    replaced.get_bind().dispose()


class SilentCoordinator:
    """Answers that a transaction is open, however often it is ended; notes the time that each call has."""

    def __init__(self) -> None:
        self.timeouts_s: list[float] = []

    def describe(self, _transactional_id: str, *, timeout_s: float) -> Description:
        self.timeouts_s.append(timeout_s)
        return Description(7, 0, "Ongoing", 60_000, 0)

    def complete(self, token: Token, *, commit: bool, timeout_s: float) -> None:
        assert not commit
        self.timeouts_s.append(timeout_s)
        time.sleep(0.1)
        raise Superseded("it is open again", token)


def test_a_start_holds_the_row_no_longer_than_its_time_whatever_the_brokers_do(tmp_path: Path) -> None:
    database = sqlite_database(tmp_path)
    coordinator = SilentCoordinator()
    producer = SimpleNamespace(fencepost_transactional_id="orders")
    began_at_s = time.monotonic()
    with pytest.raises(TimeoutError, match="stays in state Ongoing"):
        start_session(producer, coordinator, database.log, database.connect(), timeout_s=1)  # type: ignore[arg-type]
    assert time.monotonic() - began_at_s < 5
    assert len(coordinator.timeouts_s) > 5
    assert max(coordinator.timeouts_s) <= 1
    assert min(coordinator.timeouts_s) < 0.6
    database.close()


class Measured:
    """An object of a service's own that passes the calls of a connection on, and counts commits."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.commits = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def commit(self) -> None:
        self.commits += 1
        self._connection.commit()


def test_a_connection_in_an_object_of_the_service_s_own_is_recognised(database: Database) -> None:
    measured = Measured(database.connect())
    assert database.log.claim(measured, "a") == (1, None)
    assert opened(measured).is_in_progress
    measured.commit()
    database.log.begin(measured, 1, "a")
    database.log.record(measured, 1, Token(7, 0, "a"))
    measured.commit()
    assert database.tokens() == ["7:0:a"]
    assert measured.commits == 2
