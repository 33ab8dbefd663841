"""Brokers, databases and sessions for the tests of two-phase commits: a test runs with each kind that it asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fencepost.soak.free_port import free_port
from fencepost.testing.process import ProcessBroker
from scripts.apache_kafka import ApacheKafka
from tests.support.abandoned_producers import abandoned_producers_end  # noqa: F401
from tests.support.covering import mark_all_but_few_as_long
from tests.support.missing_tools import require_apache_kafka
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.refused_connections import refused_connections_are_closed  # noqa: F401
from tests.two_phase.brokers import BROKERS, FENCEPOST_SETTINGS, KAFKA_JAVA, KAFKA_SETTINGS, KillableKafka, Orders
from tests.two_phase.databases import KINDS, Database, postgres_database, sqlite_database
from tests.two_phase.sessions import SESSIONS, Session

_numbers = count(1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if "tests/two_phase/" in item.path.as_posix()]
    for item in ours:
        # One Apache Kafka for all of these tests, in one of the processes of `pytest --dist loadgroup`.
        if "apache-kafka" in item.name:
            item.add_marker(pytest.mark.xdist_group("two-phase-apache-kafka"))
    # Each client, database and broker has its turn in each test; the marker `long` has all combinations.
    mark_all_but_few_as_long(item for item in ours if item.get_closest_marker("integration") is not None)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """An Apache Kafka for all tests of a process."""
    require_apache_kafka()
    kafka = ApacheKafka(
        tmp_path_factory.mktemp("kafka"), free_port(), properties=KAFKA_SETTINGS, java_options=KAFKA_JAVA
    )
    with kafka:
        yield kafka
        kafka.kill()


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database with nothing in it, of each kind."""
    is_sqlite = request.param == "sqlite"
    made = sqlite_database(tmp_path) if is_sqlite else postgres_database(request.getfixturevalue("postgres"))
    yield made
    made.close()


@pytest.fixture(params=BROKERS)
def orders(request: pytest.FixtureRequest) -> Iterator[Orders]:
    """Orders on each broker."""
    name = f"orders-{next(_numbers)}"
    if request.param == "fencepost":
        yield Orders(request.getfixturevalue("fencepost"), name)
        return
    remote = KillableKafka(request.getfixturevalue("apache_kafka"))
    try:
        yield Orders(remote, name)
    finally:
        remote.close()


@pytest.fixture(scope="session")
def fencepost_that_is_killed() -> Iterator[ProcessBroker]:
    """A Fencepost in a process of its own, for all tests of a process that kill it and start it again."""
    with ProcessBroker(settings=FENCEPOST_SETTINGS) as broker:
        yield broker


@pytest.fixture
def killable_orders(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Orders]]:
    """Orders on the broker of a name, whose `broker` has `kill` and `restart`."""
    remotes: list[KillableKafka] = []

    def on(broker: str) -> Orders:
        name = f"orders-{next(_numbers)}"
        if broker == "fencepost":
            return Orders(request.getfixturevalue("fencepost_that_is_killed"), name)
        remotes.append(KillableKafka(request.getfixturevalue("apache_kafka")))
        return Orders(remotes[-1], name)

    yield on
    for remote in remotes:
        remote.close()


@pytest.fixture
def own_orders(fencepost: Any) -> Orders:
    """Orders on Fencepost, for tests of faults. Clients of earlier tests that still run cannot create this topic."""
    return Orders(fencepost, f"orders-{next(_numbers)}")


Sessions = Callable[[Orders], Session]


@pytest.fixture(params=list(SESSIONS))
def session_of(request: pytest.FixtureRequest, database: Database) -> Iterator[Sessions]:
    """Starts sessions of one service, each with the same transactional id, with every client library."""
    made: list[Session] = []

    def start(orders: Orders) -> Session:
        session = SESSIONS[request.param](orders.servers, database, orders.topic, orders.transactional_id)
        made.append(session)
        session.start()
        return session

    yield start
    for session in made:
        session.close()
