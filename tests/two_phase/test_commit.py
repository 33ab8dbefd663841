"""A commit over a database and a topic: both sides have it, or neither, whatever fails."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fencepost import two_phase
from fencepost.two_phase import (
    Coordinator,
    Fenced,
    HeuristicOutcome,
    InDoubtError,
    NeedsRecovery,
    NotPrepared,
    Outcome,
    Superseded,
    Token,
    commit,
)
from tests.two_phase.brokers import Orders
from tests.two_phase.conftest import Sessions
from tests.two_phase.databases import Database
from tests.two_phase.sessions import Session

pytestmark = pytest.mark.integration


def commit_in_the_database_alone(session: Session, name: str) -> Token:
    """Do what `transaction` does, up to the database's commit; and there it dies."""
    session.log.begin(session.connection, session.generation, session.transactional_id)
    session.begin()
    session.database.insert(session.connection, name)
    session.send(name)
    token = session.prepare()
    session.log.record(session.connection, session.generation, token)
    session.connection.commit()
    return token


def test_both_sides_have_each_order(orders: Orders, session_of: Sessions, database: Database) -> None:
    session = session_of(orders)
    for name in ("a", "b", "c"):
        session.write(name)
    assert database.orders() == orders.values() == ["a", "b", "c"]
    assert database.tokens() == []


def test_an_error_in_the_block_leaves_nothing_on_either_side(
    orders: Orders, session_of: Sessions, database: Database
) -> None:
    session = session_of(orders)

    def fail(error: BaseException) -> None:
        with session.transaction():
            database.insert(session.connection, "a")
            session.send("a")
            raise error

    for error in (ZeroDivisionError(), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            fail(error)
    assert database.orders() == orders.values() == []
    session.write("b")
    assert database.orders() == orders.values() == ["b"]


def test_a_prepared_transaction_is_ended_by_anyone_who_has_its_token(orders: Orders, session_of: Sessions) -> None:
    session = session_of(orders)
    for is_commit, outcome in ((True, Outcome.COMMITTED), (False, Outcome.ABORTED)):
        session.begin()
        session.send(outcome.value)
        token = Token.parse(str(session.prepare()))
        session.close()
        with Coordinator(orders.servers) as coordinator:
            assert coordinator.outcome(token) is Outcome.PREPARED
            (open_one,) = coordinator.in_doubt(orders.transactional_id)
            assert open_one.token == token
            assert {f"{orders.topic}-0", f"{orders.topic}-1"} >= set(open_one.partitions) != set()
            for _ in range(2):  # repeats change nothing
                coordinator.complete(token, commit=is_commit)
                assert coordinator.outcome(token) is outcome
            with pytest.raises(HeuristicOutcome, match="compare both sides") as raised:
                coordinator.complete(token, commit=not is_commit)
            assert raised.value.token == token
            assert coordinator.in_doubt(orders.transactional_id) == []
        session = session_of(orders)
    assert orders.values() == ["committed"]


def test_a_session_commits_what_its_predecessor_had_committed_in_the_database_alone(
    orders: Orders, session_of: Sessions, database: Database
) -> None:
    session = session_of(orders)
    session.write("a")
    commit_in_the_database_alone(session, "b")
    assert orders.values() == ["a"]
    session_of(orders).write("c")
    assert database.orders() == orders.values() == ["a", "b", "c"]
    assert database.tokens() == []


def test_a_session_that_is_late_does_not_abort_what_its_successor_has_committed(
    orders: Orders, session_of: Sessions, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_of(orders).write("a")
    recover = commit._Steps.recover

    def overtake() -> None:
        """A successor starts, and dies after the database has committed."""
        monkeypatch.undo()
        thread = threading.Thread(target=lambda: commit_in_the_database_alone(session_of(orders), "b"))
        thread.start()
        thread.join(30)

    async def late(steps: Any) -> int:
        generation = await recover(steps)
        overtake()
        return generation

    monkeypatch.setattr(commit._Steps, "recover", late)
    with pytest.raises(Fenced, match="another session has claimed"):
        session_of(orders)
    session_of(orders).write("c")
    assert database.orders() == orders.values() == ["a", "b", "c"]


def test_a_session_aborts_what_its_predecessor_had_not_committed_in_the_database(
    orders: Orders, session_of: Sessions, database: Database
) -> None:
    session = session_of(orders)
    session.write("a")
    entered = session.transaction()
    entered.__enter__()
    database.insert(session.connection, "b")
    session.send("b")
    token = session.prepare()
    session.connection.rollback()  # it dies before the database has its token
    with Coordinator(orders.servers) as coordinator:
        assert coordinator.outcome(token) is Outcome.PREPARED
    session_of(orders).write("c")
    assert database.orders() == orders.values() == ["a", "c"]


def test_a_session_that_was_replaced_commits_nothing(orders: Orders, session_of: Sessions, database: Database) -> None:
    slow = session_of(orders)

    def be_replaced() -> None:
        with slow.transaction():
            slow.send("slow")
            slow.connection.rollback()  # SQLite would let no other session in
            session_of(orders).write("quick")
            database.insert(slow.connection, "slow")

    with pytest.raises((Fenced, NotPrepared, two_phase.MisuseError)):
        be_replaced()
    assert database.orders() == orders.values() == ["quick"]


def test_a_session_that_was_replaced_begins_nothing_and_keeps_no_lock(
    orders: Orders, session_of: Sessions, database: Database
) -> None:
    replaced, current = session_of(orders), session_of(orders)
    with pytest.raises(Fenced, match="end it"):
        replaced.write("late")
    current.write("a")  # would wait for a lock that is left
    assert database.orders() == orders.values() == ["a"]


def test_a_session_that_is_replaced_between_the_two_commits_leaves_the_second_to_its_successor(
    orders: Orders, session_of: Sessions, database: Database
) -> None:
    slow = session_of(orders)
    connection = slow.connection

    class Connection:
        """Once its changes are committed, a successor starts and writes."""

        def __getattr__(self, name: str) -> Any:
            return getattr(connection, name)

        def commit(self) -> None:
            connection.commit()
            # On a thread: this one may be an event loop's.
            successor = threading.Thread(target=lambda: session_of(orders).write("b"))
            successor.start()
            successor.join(30)

    slow.connection = Connection()
    with pytest.raises(NeedsRecovery, match=r"the database has committed .* end this one"):
        slow.write("a")
    assert database.orders() == orders.values() == ["a", "b"]
    assert database.tokens() == []


class LostReplyError(Exception):
    """What a connection raises whose reply is lost."""


class ConnectionThatLosesReplies:
    """A connection whose commit raises. done: if it was done all the same; lost: if nothing can be asked any more."""

    def __init__(self, connection: Any, *, done: bool, lost: bool) -> None:
        self._connection, self._done, self._lost = connection, done, lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def commit(self) -> None:
        if self._done:
            self._connection.commit()
        if self._lost:
            self._connection.close()
        raise LostReplyError


@pytest.mark.parametrize(("done", "lost"), [(True, False), (True, True), (False, True)])
def test_a_database_that_does_not_say_whether_it_has_committed_leaves_it_to_recovery(
    orders: Orders, session_of: Sessions, database: Database, done: bool, lost: bool
) -> None:
    session = session_of(orders)
    session.connection = ConnectionThatLosesReplies(session.connection, done=done, lost=lost)
    with pytest.raises(InDoubtError, match="call recover") as raised:
        session.write("a")
    assert isinstance(raised.value.__cause__, LostReplyError)
    session.connection = database.connect()
    # The session cannot make it worse.
    with pytest.raises(NeedsRecovery, match="call recover"):
        session.write("b")
    session_of(orders).write("c")
    assert database.orders() == orders.values() == (["a", "c"] if done else ["c"])


def test_a_commit_that_the_database_refuses_leaves_nothing_and_the_session_goes_on(
    orders: Orders, session_of: Sessions, database: Database
) -> None:
    session = session_of(orders)
    intact = session.connection
    session.connection = ConnectionThatLosesReplies(intact, done=False, lost=False)
    with pytest.raises(LostReplyError):
        session.write("a")
    session.connection = intact
    session.write("b")
    assert database.orders() == orders.values() == ["b"]


def test_records_that_the_broker_refuses_are_not_prepared(
    own_orders: Orders, session_of: Sessions, database: Database
) -> None:
    session = session_of(own_orders)
    fault = own_orders.broker.fail("Produce", error="TOPIC_AUTHORIZATION_FAILED", count=1)
    with pytest.raises(NotPrepared):
        session.write("a")
    assert fault.fired == 1
    assert database.orders() == own_orders.values() == []


def test_a_token_of_a_session_that_was_replaced_is_no_success(orders: Orders, session_of: Sessions) -> None:
    session = session_of(orders)
    session.begin()
    session.send("a")
    token = session.prepare()
    session_of(orders)  # aborts it
    with Coordinator(orders.servers) as coordinator:
        with pytest.raises((Superseded, HeuristicOutcome)):
            coordinator.complete(token, commit=True)
        assert orders.values() == []


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
