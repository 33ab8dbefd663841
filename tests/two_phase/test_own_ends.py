"""Whatever a service does to its producer once the database has committed, it does not abort the records."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from types import FrameType
from typing import Any, Self

import pytest

from fencepost.two_phase import InDoubtError, NeedsRecovery
from tests.two_phase.brokers import Orders
from tests.two_phase.conftest import Sessions
from tests.two_phase.databases import Database, sqlite_database
from tests.two_phase.sessions import SESSIONS, AiokafkaSession, Session
from tests.two_phase.test_commit import commit_in_the_database_alone

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]


class ConnectionThatRaisesBehindItsCommit:
    """Commits, and raises: the first commit that has a token of the log."""

    def __init__(self, connection: Any, error: BaseException) -> None:
        self._connection, self._error = connection, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def commit(self) -> None:
        self._connection.commit()
        self._connection.close()
        raise self._error


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = sqlite_database(tmp_path)
    yield made
    made.close()


def done(session: Session, call: Any) -> Any:
    """The result of a call of a producer, which is a coroutine with aiokafka."""
    return session.loop.run_until_complete(call) if isinstance(session, AiokafkaSession) else call


def close(session: Session) -> None:
    done(session, session.producer.stop() if isinstance(session, AiokafkaSession) else session.producer.close())


def leave_with(session: Session) -> None:
    if isinstance(session, AiokafkaSession):
        done(session, session.producer.__aexit__(None, None, None))  # its `__aenter__` would start it
    else:
        with session.producer:
            pass


def drop(session: Session) -> None:
    del session.producer
    gc.collect()


def abort(session: Session) -> None:
    with pytest.raises(NeedsRecovery, match="call recover and make another producer"):
        done(session, session.producer.abort_transaction())
    close(session)


def begin_and_leave(session: Session) -> None:
    session.connection = session.database.connect()
    with pytest.raises(NeedsRecovery):
        session.write("b")
    close(session)


ENDS = (close, leave_with, drop, abort, begin_and_leave)


@pytest.mark.parametrize("error", [OSError("the reply was lost"), KeyboardInterrupt()], ids=["lost", "interrupted"])
@pytest.mark.parametrize("end", ENDS)
def test_no_end_of_a_producer_aborts_what_its_database_has_committed(
    own_orders: Orders,
    session_of: Sessions,
    database: Database,
    end: Callable[[Session], None],
    error: BaseException,
) -> None:
    session = session_of(own_orders)
    session.connection = ConnectionThatRaisesBehindItsCommit(session.connection, error)
    with pytest.raises((InDoubtError, KeyboardInterrupt)):
        session.write("a")
    end(session)
    assert own_orders.state() == "Ongoing"
    session_of(own_orders).write("c")
    assert database.orders() == own_orders.values() == ["a", "c"]
    assert database.tokens() == []


LIBRARY = tuple(
    f"two_phase/{name}.py" for name in ("client_calls", "commit", "coordinator", "databases", "logs", "preparing")
)
MOST_LINES = 2_000


class Interruption:
    """Raises KeyboardInterrupt in this thread at one line of the library, as Ctrl-C may; counted from 1."""

    def __init__(self, at: int) -> None:
        self._left = at

    @property
    def has_come(self) -> bool:
        return self._left <= 0

    def __enter__(self) -> Self:
        sys.settrace(self._on_call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _on_call(self, frame: FrameType, _event: str, _: Any) -> Any:
        return self._on_line if frame.f_code.co_filename.endswith(LIBRARY) else None

    def _on_line(self, _frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self._left -= 1
            if self._left == 0:
                raise KeyboardInterrupt
        return self._on_line


STEPS = [pytest.param(89, id="some lines"), pytest.param(1, id="each line", marks=pytest.mark.long)]


@pytest.mark.timeout(1800)
# A call may be interrupted between the making of its coroutine and its first step.
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("every", STEPS)
@pytest.mark.parametrize("is_start", [False, True], ids=["in a transaction", "in a start"])
@pytest.mark.parametrize("client", SESSIONS)
def test_an_interruption_at_any_line_before_any_end_leaves_both_sides_equal(
    own_orders: Orders, database: Database, client: str, is_start: bool, every: int
) -> None:
    ends = cycle((close, leave_with, drop))
    for line in range(1, MOST_LINES, every):
        session = SESSIONS[client](own_orders.servers, database, own_orders.topic, own_orders.transactional_id)
        session.start()
        if is_start:
            commit_in_the_database_alone(session, f"order-{line}")
            drop(session)
            session.close()
            session = SESSIONS[client](own_orders.servers, database, own_orders.topic, own_orders.transactional_id)
        with Interruption(line) as interruption, suppress(KeyboardInterrupt, NeedsRecovery, InDoubtError):
            if is_start:
                session.start()
            else:
                session.write(f"order-{line}")
        if hasattr(session, "producer"):
            next(ends)(session)
        session.close()
        again = SESSIONS[client](own_orders.servers, database, own_orders.topic, own_orders.transactional_id)
        again.start()
        assert database.orders() == own_orders.values(), f"interrupted at line {line}"
        close(again)
        again.close()
        if not interruption.has_come:
            return
    raise AssertionError("it has more lines than anybody thought")


END_OF_A_PROCESS = """
import atexit, os, sys, threading
from tests.two_phase.databases import Database
from tests.two_phase.sessions import SESSIONS
from tests.two_phase.test_own_ends import ConnectionThatRaisesBehindItsCommit, close
how, client, address, servers, topic, name = sys.argv[1:]
session = SESSIONS[client](servers, Database("sqlite", address), topic, name)
session.start()
session.connection = ConnectionThatRaisesBehindItsCommit(session.connection, KeyboardInterrupt())
try:
    session.write("a")
finally:
    if how == "atexit":
        atexit.register(close, session)
    elif how == "thread":
        ended = threading.Thread(target=close, args=(session,))
        ended.start()
        ended.join()
    elif how == "fork":
        os.fork()  # both end
"""


@pytest.mark.parametrize("how", ["exit", "atexit", "thread", "fork"])
@pytest.mark.parametrize("client", SESSIONS)
def test_a_process_that_ends_by_an_interruption_does_not_abort_what_its_database_has_committed(
    own_orders: Orders, database: Database, client: str, how: str
) -> None:
    about = (client, database.address, own_orders.servers, own_orders.topic, own_orders.transactional_id)
    ended = subprocess.run(
        [sys.executable, "-c", END_OF_A_PROCESS, how, *about],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "KeyboardInterrupt" in ended.stderr
    assert own_orders.state() == "Ongoing"
    session = SESSIONS[client](own_orders.servers, database, own_orders.topic, own_orders.transactional_id)
    session.start()
    session.write("c")
    session.close()
    assert database.orders() == own_orders.values() == ["a", "c"]


def test_a_producer_that_is_closed_after_a_prepared_transaction_writes_nothing_more_into_it(
    own_orders: Orders, database: Database
) -> None:
    session = SESSIONS["confluent-kafka"](own_orders.servers, database, own_orders.topic, own_orders.transactional_id)
    session.start()
    session.begin()
    session.send("a")
    session.prepare()
    session.producer.close()
    with pytest.raises(RuntimeError, match="make another producer"):
        session.send("b")


def test_a_transaction_that_is_not_prepared_is_aborted_by_the_end_of_its_producer(
    own_orders: Orders, database: Database
) -> None:
    session = SESSIONS["confluent-kafka"](own_orders.servers, database, own_orders.topic, own_orders.transactional_id)
    session.start()
    session.write("a")
    session.begin()
    session.send("b")
    session.producer.flush(10)
    with session.producer:
        pass
    own_orders.broker.wait_until(
        lambda: own_orders.state() == "CompleteAbort", 30, lambda: f"it is {own_orders.state()}"
    )
