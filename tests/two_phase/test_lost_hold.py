"""A session whose hold the database has ended while it was slow changes nothing that its successor has committed."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import aiokafka
import pytest

from fencepost.two_phase import Coordinator, InDoubtError, Superseded
from fencepost.two_phase.client_calls import BlockingCalls
from tests.two_phase.brokers import Orders
from tests.two_phase.conftest import Sessions
from tests.two_phase.databases import Database
from tests.two_phase.test_commit import commit_in_the_database_alone
from tests.two_phase.test_own_ends import ConnectionThatRaisesBehindItsCommit

pytestmark = pytest.mark.integration

POINTS = ("describe", "guard", "init")
"""Where a late session stops: before it looks for what is open, before its own InitProducerId, before its client's."""


@pytest.mark.parametrize("point", POINTS)
def test_a_late_session_whose_hold_is_lost_aborts_nothing(
    own_orders: Orders, session_of: Sessions, database: Database, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_late_session(own_orders, session_of, database, point, monkeypatch)


@pytest.mark.parametrize("orders", ["apache-kafka"], indirect=True)
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_on_any_broker_a_session_that_is_late_with_its_look_aborts_nothing(
    orders: Orders, session_of: Sessions, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache Kafka compares no epoch while a transaction is open: an InitProducerId behind the look aborts it there."""
    check_late_session(orders, session_of, database, "describe", monkeypatch)


def check_late_session(
    orders: Orders, session_of: Sessions, database: Database, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_of(orders).write("a")
    holding: list[Any] = []
    hold = database.log.hold

    def held(connection: Any, *about: Any) -> None:
        hold(connection, *about)
        holding.append(connection)

    def overtake() -> None:
        """The hold is lost; a successor starts, and dies after the database has committed."""
        monkeypatch.undo()
        end_hold(database, holding[-1])
        thread = threading.Thread(target=lambda: commit_in_the_database_alone(session_of(orders), "b"))
        thread.start()
        thread.join(60)
        assert database.tokens() != []

    monkeypatch.setattr(database.log, "hold", held)
    stop_at(point, overtake, holding, monkeypatch)
    with pytest.raises(Exception, match=r"another session|terminat|closed|lost|connection"):
        session_of(orders)
    assert orders.state() == "Ongoing"
    session_of(orders).write("c")
    assert database.orders() == orders.values() == ["a", "b", "c"]
    assert database.tokens() == []


def end_hold(database: Database, connection: Any) -> None:
    """What a restart of the database, or a lost connection, does: the session learns nothing of it."""
    if database.kind == "sqlite":
        connection.rollback()
        return
    import psycopg

    process_id = connection.info.backend_pid
    with psycopg.connect(database.address, autocommit=True) as other:
        assert other.execute("SELECT pg_terminate_backend(%s, 10000)", (process_id,)).fetchone() == (True,)


def stop_at(point: str, overtake: Any, holding: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    describe, guard, init, start = (
        Coordinator.describe,
        Coordinator.guard,
        BlockingCalls.initialize,
        aiokafka.AIOKafkaProducer.start,
    )

    def late_describe(*about: Any, **options: Any) -> Any:
        if holding:
            overtake()
        return describe(*about, **options)

    def late_guard(*about: Any, **options: Any) -> None:
        overtake()
        guard(*about, **options)

    async def late_init(*about: Any) -> None:
        overtake()
        await init(*about)

    async def late_start(producer: Any) -> None:
        overtake()
        await start(producer)

    if point == "describe":
        monkeypatch.setattr(Coordinator, "describe", late_describe)
    elif point == "guard":
        monkeypatch.setattr(Coordinator, "guard", late_guard)
    else:
        monkeypatch.setattr(BlockingCalls, "initialize", late_init)
        monkeypatch.setattr(aiokafka.AIOKafkaProducer, "start", late_start)


class ConnectionThatIsFollowed:
    """Commits, and calls: for what others do right behind the database's commit."""

    def __init__(self, connection: Any, then: Any) -> None:
        self._connection, self._then = connection, then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def commit(self) -> None:
        self._connection.commit()
        then, self._then = self._then, lambda: None
        then()


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_transaction_that_an_administrator_has_terminated_is_not_said_to_be_committed_by_others(
    own_orders: Orders, session_of: Sessions, database: Database
) -> None:
    session = session_of(own_orders)
    session.connection = ConnectionThatIsFollowed(
        session.connection, lambda: own_orders.broker.fence(own_orders.transactional_id)
    )
    with pytest.raises(
        Superseded, match=r"the database has committed .* an administrator who has terminated it"
    ) as raised:
        session.write("a")
    assert raised.value.token is not None
    assert (database.orders(), own_orders.values()) == (["a"], [])
    assert database.tokens() == [str(raised.value.token)]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_new_producer_without_a_session_of_the_log_does_not_abort_what_the_database_has_committed(
    own_orders: Orders, session_of: Sessions, database: Database
) -> None:
    from kafka import KafkaProducer
    from kafka.errors import ProducerFencedError

    session = session_of(own_orders)
    commit_in_the_database_alone(session, "a")
    producer = KafkaProducer(bootstrap_servers=own_orders.servers, transactional_id=own_orders.transactional_id)
    with pytest.raises(ProducerFencedError):
        producer.init_transactions()
    producer.close(timeout=1)
    session_of(own_orders).write("b")
    assert database.orders() == own_orders.values() == ["a", "b"]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_the_command_that_terminates_ends_a_session_s_transaction(
    own_orders: Orders, session_of: Sessions, database: Database
) -> None:
    session = session_of(own_orders)
    session.connection = ConnectionThatRaisesBehindItsCommit(session.connection, OSError())
    with pytest.raises(InDoubtError):
        session.write("a")
    command = (sys.executable, "-m", "fencepost", "transactions", "terminate", "--yes", own_orders.transactional_id)
    done = subprocess.run(
        [*command, "--bootstrap", own_orders.servers], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "aborted the transaction" in done.stdout
    assert own_orders.values() == []
