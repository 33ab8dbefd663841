"""What a service may do wrong around a two-phase commit: one sentence says what to do, and nothing is lost."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from fencepost.two_phase import (
    Coordinator,
    Fenced,
    HeuristicOutcome,
    MisuseError,
    NeedsRecovery,
    Outcome,
    Superseded,
    Token,
    recover,
    transaction_async,
)
from fencepost.two_phase.client_calls import BlockingCalls, LoopCalls
from tests.two_phase.brokers import Orders
from tests.two_phase.conftest import Sessions
from tests.two_phase.databases import Database
from tests.two_phase.sessions import AiokafkaSession, ConfluentSession, Session

pytestmark = pytest.mark.integration


def assert_goes_on(session: Session, orders: Orders, database: Database, *before: str) -> None:
    """The session writes one more order, and both sides have it with those of before."""
    session.write("last")
    assert database.orders() == orders.values() == sorted([*before, "last"])
    assert database.tokens() == []


def test_a_transaction_inside_another_is_refused_and_both_sides_stay_empty(
    orders: Orders, session_of: Sessions, database: Database
) -> None:
    session = session_of(orders)

    def nest() -> None:
        with session.transaction():
            database.insert(session.connection, "outer")
            session.send("outer")
            session.write("inner")

    with pytest.raises(MisuseError, match="has a transaction in progress"):
        nest()
    assert database.orders() == orders.values() == []
    assert_goes_on(session, orders, database)


def test_a_producer_that_has_a_transaction_begins_no_other(
    orders: Orders, session_of: Sessions, database: Database
) -> None:
    session = session_of(orders)
    session.begin()
    with pytest.raises(NeedsRecovery, match=r"cannot begin a transaction .* end the one that it has, or call recover"):
        session.write("a")
    assert database.orders() == orders.values() == []
    session_of(orders).write("b")  # no lock was left
    assert database.orders() == orders.values() == ["b"]


def test_a_block_that_commits_by_itself_is_refused_and_its_records_are_not_there(
    orders: Orders, session_of: Sessions, database: Database
) -> None:
    session = session_of(orders)

    def commit_inside() -> None:
        with session.transaction():
            session.send("a")
            session.connection.commit()
            database.insert(session.connection, "a")

    with pytest.raises(MisuseError, match="leave commit and rollback to"):
        commit_inside()
    assert database.orders() == orders.values() == []
    assert_goes_on(session, orders, database)


def test_a_connection_with_changes_in_progress_keeps_them(
    orders: Orders, session_of: Sessions, database: Database
) -> None:
    session = session_of(orders)
    database.insert(session.connection, "mine")
    with pytest.raises(MisuseError, match="commit it or roll it back before"):
        session.write("a")
    session.connection.commit()
    assert (database.orders(), orders.values()) == (["mine"], [])
    session.write("b")
    assert (database.orders(), orders.values()) == (["b", "mine"], ["b"])


def test_a_connection_that_closes_in_the_block_leaves_nothing(
    orders: Orders, session_of: Sessions, database: Database
) -> None:
    session = session_of(orders)

    def close_inside() -> None:
        with session.transaction():
            database.insert(session.connection, "a")
            session.send("a")
            session.connection.close()

    with pytest.raises(Exception, match="closed"):
        close_inside()
    assert database.orders() == orders.values() == []
    with pytest.raises(MisuseError, match="is closed: connect again"):
        session.write("b")
    session.connection = database.connect()
    assert_goes_on(session, orders, database)


def test_a_generation_that_was_not_given_writes_nothing(
    orders: Orders, session_of: Sessions, database: Database
) -> None:
    session = session_of(orders)
    given = session.generation
    for wrong, error in ((given + 1, MisuseError), (given - 1, Fenced)):
        session.generation = wrong
        with pytest.raises(error, match=session.transactional_id):
            session.write("a")
    session.generation = given
    assert database.orders() == orders.values() == []
    assert_goes_on(session, orders, database)


def test_a_missing_table_is_named_before_anything_is_written(
    own_orders: Orders, session_of: Sessions, database: Database
) -> None:
    session = session_of(own_orders)
    session.connection.cursor().execute("ALTER TABLE fencepost_prepared RENAME TO elsewhere")
    session.connection.commit()
    uses: list[Callable[[], object]] = [lambda: session.write("a"), lambda: session_of(own_orders)]
    for use in uses:
        with pytest.raises(MisuseError, match=r"has no table fencepost_prepared: call the log's create\(connection\)"):
            use()
    session.connection.cursor().execute("ALTER TABLE elsewhere RENAME TO fencepost_prepared")
    session.connection.commit()
    assert_goes_on(session, own_orders, database)


@pytest.mark.parametrize("pair", [(0, 30), (2**40, 0)], ids=["later epoch", "other producer id"])
def test_a_token_that_is_not_of_this_cluster_ends_nothing(
    orders: Orders, pair: tuple[int, int], database: Database
) -> None:
    session = ConfluentSession(orders.servers, database, orders.topic, orders.transactional_id)
    session.start()
    session.begin()
    session.send("a")
    token = session.prepare()
    with Coordinator(orders.servers) as coordinator:
        foreign = Token(token.producer_id + pair[0], token.producer_epoch + pair[1], token.transactional_id)
        for commit in (True, False):
            with pytest.raises(Superseded, match=r"is not the current transaction of its id .*: compare both sides"):
                coordinator.complete(foreign, commit=commit)
        unknown = token._replace(transactional_id=f"{orders.transactional_id}-elsewhere")
        for commit in (True, False):
            with pytest.raises(Superseded, match=r"is of another cluster, or was forgotten; check the bootstrap"):
                coordinator.complete(unknown, commit=commit)
        assert coordinator.outcome(token) is Outcome.PREPARED
        coordinator.complete(token, commit=True)
    assert orders.values() == ["a"]
    session.close()


def test_an_old_token_neither_ends_nor_names_the_next_transaction(orders: Orders, database: Database) -> None:
    def start() -> Session:
        session = ConfluentSession(orders.servers, database, orders.topic, orders.transactional_id)
        session.start()
        return session

    first = start()
    first.begin()
    first.send("a")
    old = first.prepare()
    with Coordinator(orders.servers) as coordinator:
        coordinator.complete(old, commit=True)
        second = start()
        second.begin()
        second.send("b")
        token = second.prepare()
        assert coordinator.outcome(old) is Outcome.UNKNOWN
        for commit in (True, False):
            with pytest.raises((Superseded, HeuristicOutcome)):
                coordinator.complete(old, commit=commit)
        assert coordinator.outcome(token) is Outcome.PREPARED
        coordinator.complete(token, commit=True)
    assert orders.values() == ["a", "b"]
    first.close()
    second.close()


def test_a_recovery_at_another_cluster_loses_nothing_and_can_be_repeated(
    orders: Orders, fencepost_fresh: Any, session_of: Sessions, database: Database
) -> None:
    session = session_of(orders)
    session.log.begin(session.connection, session.generation, session.transactional_id)
    session.begin()
    database.insert(session.connection, "a")
    session.send("a")
    session.log.record(session.connection, session.generation, session.prepare())
    session.connection.commit()  # and here it dies
    connection = database.connect()
    with (
        Coordinator(fencepost_fresh.bootstrap_servers) as elsewhere,
        pytest.raises(Superseded, match="check the bootstrap servers"),
    ):
        recover(elsewhere, database.log, connection, session.transactional_id)
    assert len(database.tokens()) == 1
    assert_goes_on(session_of(orders), orders, database, "a")


def test_an_idle_service_starts_after_its_id_was_forgotten(
    fencepost_fresh: Any, session_of: Sessions, database: Database
) -> None:
    orders = Orders(fencepost_fresh, "orders")
    session = session_of(orders)
    session.write("a")
    session.close()
    fencepost_fresh.advance(days=8)
    assert orders.state() == ""
    assert_goes_on(session_of(orders), orders, database, "a")


@pytest.mark.parametrize("at", ["block", "prepare", "commit", "clear"])
def test_an_interruption_leaves_both_sides_to_the_next_session(
    orders: Orders, session_of: Sessions, database: Database, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_arguments: Any, **_options: Any) -> None:
        raise KeyboardInterrupt

    async def interrupt_async(*_arguments: Any, **_options: Any) -> None:
        raise asyncio.CancelledError

    session = session_of(orders)
    with monkeypatch.context() as patches:
        if at == "clear":
            patches.setattr("fencepost.two_phase.commit._Steps._forget", interrupt)
        elif at != "block":
            patches.setattr(BlockingCalls, at, interrupt)
            patches.setattr(LoopCalls, at, interrupt_async)

        def write() -> None:
            with session.transaction():
                database.insert(session.connection, "a")
                session.send("a")
                if at == "block":
                    raise KeyboardInterrupt

        with pytest.raises((KeyboardInterrupt, asyncio.CancelledError)):
            write()
    is_committed = at in ("commit", "clear")
    assert database.orders() == (["a"] if is_committed else [])
    if is_committed:
        with pytest.raises(NeedsRecovery, match="call recover and make another producer"):
            session.write("b")
        session = session_of(orders)
    assert_goes_on(session, orders, database, *(["a"] if is_committed else []))


@pytest.mark.parametrize("api", ["nothing", "Produce", "EndTxn"])
def test_a_cancellation_leaves_both_sides_whole(own_orders: Orders, database: Database, api: str) -> None:
    """Cancelled in the block, while records are on their way, and while the commit is."""

    def start() -> AiokafkaSession:
        session = AiokafkaSession(own_orders.servers, database, own_orders.topic, own_orders.transactional_id)
        session.start()
        return session

    session = start()

    async def write(reached: asyncio.Event) -> None:
        from fencepost.two_phase import AsyncCoordinator

        async with (
            AsyncCoordinator(own_orders.servers) as coordinator,
            transaction_async(
                session.producer, coordinator, session.log, session.connection, generation=session.generation
            ),
        ):
            database.insert(session.connection, "a")
            await session.producer.send(own_orders.topic, b"a")
            reached.set()
            if api == "nothing":
                await asyncio.Event().wait()

    async def cancel() -> None:
        reached = asyncio.Event()
        task = asyncio.create_task(write(reached))
        if api == "nothing":
            await asyncio.wait_for(reached.wait(), 20)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return
        with own_orders.broker.hold(api) as fault:
            await asyncio.to_thread(fault.wait_until_fired)
            task.cancel()
            await asyncio.sleep(0)
            fault.release()
            with pytest.raises(asyncio.CancelledError):
                await task

    session.loop.run_until_complete(cancel())
    is_committed = api == "EndTxn"
    assert database.orders() == (["a"] if is_committed else [])
    with suppress(NeedsRecovery):
        session.write("last")
    if "last" not in database.orders():
        session.close()
        session = start()
        session.write("last")
    assert database.orders() == own_orders.values() == (["a", "last"] if is_committed else ["last"])
    session.close()


def test_a_broker_that_is_away_at_the_commit_leaves_it_to_recovery(
    fencepost_process: Any, session_of: Sessions, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = Orders(fencepost_process, "orders")
    session = session_of(orders)
    session.timeout_s = 3

    def write() -> None:
        with session.transaction():
            database.insert(session.connection, "a")
            session.send("a")
            record = session.log.record

            def recorded(*about: Any) -> None:
                record(*about)
                fencepost_process.kill()

            monkeypatch.setattr(session.log, "record", recorded)

    with pytest.raises(NeedsRecovery, match=r"the database has committed .* wait for a coordinator"):
        write()
    monkeypatch.undo()
    fencepost_process.restart()
    assert database.orders() == ["a"]
    assert_goes_on(session_of(orders), orders, database, "a")


def test_the_package_alone_loads_neither_a_broker_nor_a_client_nor_uvloop() -> None:
    program = (
        "import sys, fencepost.two_phase; "
        "names = ('fencepost.broker', 'fencepost.protocol', 'uvloop', 'kafka', 'aiokafka', 'confluent_kafka', "
        "'asyncio', 'psycopg', 'sqlite3', 'ssl', 'click'); "
        "print([name for name in sys.modules if name.split('.')[0] in names or name.startswith(names[:2])])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_process_that_does_not_use_it_loads_none_of_it() -> None:
    program = (
        "import sys, fencepost, fencepost.cli.main, fencepost.broker.node, fencepost.testing.plugin; "
        "print([name for name in sys.modules if name.startswith('fencepost.two_phase')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
