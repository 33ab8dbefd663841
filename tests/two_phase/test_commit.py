"""A commit over a database and a topic: both sides have it, or neither, whatever fails."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost import two_phase
from fencepost.two_phase import (
    Coordinator,
    Fenced,
    HeuristicOutcome,
    InDoubtError,
    NotPrepared,
    Outcome,
    Superseded,
    Token,
)
from tests.two_phase.conftest import Database, Sessions

pytestmark = pytest.mark.integration


def values(fencepost: Any) -> list[str]:
    return sorted(record.value.decode() for record in fencepost.records("orders"))


@pytest.fixture
def orders(fencepost: Any) -> Any:
    fencepost.topic("orders", partitions=2)
    return fencepost


def test_both_sides_have_each_order(orders: Any, writer: Sessions, database: Database) -> None:
    session = writer()
    for name in ("a", "b", "c"):
        session.write("orders", name)
    assert database.orders() == values(orders) == ["a", "b", "c"]


def test_an_error_in_the_block_leaves_nothing_on_either_side(orders: Any, writer: Sessions, database: Database) -> None:
    session = writer()

    def fail() -> None:
        with session.transaction():
            database.insert(session.connection, "a")
            session.send("orders", "a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert database.orders() == values(orders) == []
    session.write("orders", "b")
    assert database.orders() == values(orders) == ["b"]


def test_a_prepared_transaction_is_ended_by_anyone_who_has_its_token(orders: Any, writer: Sessions) -> None:
    session = writer()
    for commit, outcome in ((True, Outcome.COMMITTED), (False, Outcome.ABORTED)):
        session.begin()
        session.send("orders", outcome.value)
        token = Token.parse(str(session.prepare()))
        session.close()
        with Coordinator(orders.bootstrap_servers) as coordinator:
            assert coordinator.outcome(token) is Outcome.PREPARED
            (open_one,) = coordinator.in_doubt("orders-.*")
            assert open_one.token == token
            assert {"orders-0", "orders-1"} >= set(open_one.partitions) != set()
            for _ in range(2):  # repeats change nothing
                coordinator.complete(token, commit=commit)
                assert coordinator.outcome(token) is outcome
            with pytest.raises(HeuristicOutcome, match="compare both sides") as raised:
                coordinator.complete(token, commit=not commit)
            assert raised.value.token == token
            assert coordinator.in_doubt() == []
        session = writer()
    assert values(orders) == ["committed"]


def test_a_session_commits_what_its_predecessor_had_committed_in_the_database_alone(
    orders: Any, writer: Sessions, database: Database
) -> None:
    session = writer()
    session.write("orders", "a")
    log = database.log
    log.clear(session.connection, session.generation, session.transactional_id)
    session.connection.commit()
    session.begin()
    log.begin(session.connection)
    database.insert(session.connection, "b")
    session.send("orders", "b")
    log.record(session.connection, session.generation, session.prepare())
    session.connection.commit()  # and here it dies
    assert values(orders) == ["a"]
    writer().write("orders", "c")
    assert database.orders() == values(orders) == ["a", "b", "c"]


def test_a_session_aborts_what_its_predecessor_had_not_committed_in_the_database(
    orders: Any, writer: Sessions, database: Database
) -> None:
    session = writer()
    session.write("orders", "a")
    entered = session.transaction()
    entered.__enter__()
    database.insert(session.connection, "b")
    session.send("orders", "b")
    token = session.prepare()
    session.connection.rollback()  # it dies before the database has its token
    with Coordinator(orders.bootstrap_servers) as coordinator:
        assert coordinator.outcome(token) is Outcome.PREPARED
    writer().write("orders", "c")
    assert database.orders() == values(orders) == ["a", "c"]


def test_a_session_that_was_replaced_commits_nothing(orders: Any, writer: Sessions, database: Database) -> None:
    slow = writer()

    def be_replaced() -> None:
        with slow.transaction():
            slow.send("orders", "slow")
            slow.connection.rollback()  # SQLite would let no other session in
            writer().write("orders", "quick")
            database.log.begin(slow.connection)
            database.insert(slow.connection, "slow")

    with pytest.raises((Fenced, NotPrepared)):
        be_replaced()
    assert database.orders() == values(orders) == ["quick"]


def test_a_session_that_was_replaced_begins_nothing_and_keeps_no_lock(
    orders: Any, writer: Sessions, database: Database
) -> None:
    replaced, current = writer(), writer()
    with pytest.raises(Fenced):
        replaced.write("orders", "late")
    current.write("orders", "a")  # would wait for a lock that is left
    assert database.orders() == values(orders) == ["a"]


def test_a_database_that_does_not_say_whether_it_has_committed_leaves_it_to_recovery(
    orders: Any, writer: Sessions, database: Database
) -> None:
    class LostReplyError(Exception):
        pass

    class Connection:
        """A connection whose reply to the second commit, of the changes, is lost; done says if it was done."""

        def __init__(self, connection: Any, *, done: bool) -> None:
            self._connection, self._done, self._commits = connection, done, 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

        def commit(self) -> None:
            self._commits += 1
            if self._commits == 1 or self._done:
                self._connection.commit()
            if self._commits == 2:
                self._connection.rollback()
                raise LostReplyError

    for done, name in ((True, "a"), (False, "b")):
        session = writer()
        session.connection = Connection(session.connection, done=done)
        with pytest.raises(InDoubtError, match="call recover") as raised:
            session.write("orders", name)
        assert isinstance(raised.value.__cause__, LostReplyError)
        writer().write("orders", f"after-{name}")
    assert database.orders() == values(orders) == ["a", "after-a", "after-b"]


def test_records_that_the_broker_refuses_are_not_prepared(orders: Any, writer: Sessions, database: Database) -> None:
    session = writer()
    fault = orders.fail("Produce", error="TOPIC_AUTHORIZATION_FAILED", count=1)
    with pytest.raises(NotPrepared):
        session.write("orders", "a")
    assert fault.fired == 1
    assert database.orders() == values(orders) == []


def test_a_token_of_a_session_that_was_replaced_is_no_success(orders: Any, writer: Sessions) -> None:
    session = writer()
    session.begin()
    session.send("orders", "a")
    token = session.prepare()
    writer()  # aborts it
    with Coordinator(orders.bootstrap_servers) as coordinator:
        with pytest.raises((Superseded, HeuristicOutcome)):
            coordinator.complete(token, commit=True)
        assert values(orders) == []


def test_no_coordinator_is_a_time_out_with_the_reason() -> None:
    with (
        Coordinator("127.0.0.1:9", bootstrap_timeout_ms=100) as coordinator,
        pytest.raises(TimeoutError, match=r"no coordinator answered within 0\.3 s"),
    ):
        coordinator.complete(Token(1, 0, "a"), commit=True, timeout_s=0.3)


def test_a_producer_whose_pair_cannot_be_found_is_refused_with_the_remedy() -> None:
    with pytest.raises(TypeError, match="use confluent_producer"):
        two_phase.prepare(object())
    with pytest.raises(ValueError, match=r"needs a transactional.id"):
        two_phase.confluent_producer({"bootstrap.servers": "127.0.0.1:9"})


def test_nothing_of_the_broker_is_imported() -> None:
    import subprocess
    import sys

    program = (
        "import sys, fencepost.two_phase; "
        "print([name for name in sys.modules if name.startswith(('fencepost.broker', 'uvloop', 'kafka'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
