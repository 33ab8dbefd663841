"""One commit over a database and a log: `recover` at the start of a session, then `transaction` for each commit.

The database decides: once it has committed, with the token among its changes, the records will be committed, whatever
crashes. Before, they will be aborted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from fencepost.two_phase.coordinator import AsyncCoordinator, Coordinator
from fencepost.two_phase.logs import PreparedLog
from fencepost.two_phase.preparing import prepare, prepare_async, require_accepted, sends_watched
from fencepost.two_phase.tokens import InDoubtError, NeedsRecovery, Token


def recover(coordinator: Coordinator, log: PreparedLog, connection: Any, transactional_id: str) -> int:
    """Begin a session: fence its predecessors in the database, and commit what they have left prepared there.

    Call it before the producer's `init_transactions`, which aborts what is left: a transaction without a token was
    not committed in the database. Returns the session's generation, for `transaction`.
    Raises HeuristicOutcome, Superseded and TimeoutError, as `Coordinator.complete`.
    """
    generation, token = log.claim(connection, transactional_id)
    connection.commit()
    if token is not None:
        coordinator.complete(token, commit=True)
    return generation


@contextmanager
def transaction(
    producer: Any,
    coordinator: Coordinator,
    log: PreparedLog,
    connection: Any,
    *,
    generation: int,
    timeout_s: float = 30,
) -> Iterator[None]:
    """Commit what the block writes to a producer and to a database connection, both or neither.

    producer: of `confluent_producer`, or a kafka.KafkaProducer; after `init_transactions`.
    connection: of the log's database, without a transaction in progress; the block must not commit it.
    An error in the block, or in preparing, rolls both back and is raised. Raises Fenced if a later session has taken
    over, InDoubtError if the database did not say whether it has committed, NeedsRecovery if both have committed and
    the producer cannot go on.
    """
    _begin(log, connection, generation, _transactional_id(producer))
    producer.begin_transaction()
    try:
        yield
        token = prepare(producer, timeout_s=timeout_s)
        log.record(connection, generation, token)
    except BaseException:
        with suppress(Exception):  # a lost connection is rolled back by the database
            connection.rollback()
        with suppress(Exception):  # its successor's session, or time, aborts it
            producer.abort_transaction()
        raise
    try:
        connection.commit()
    except Exception as error:
        raise _in_doubt(token) from error
    try:
        producer.commit_transaction()
    except Exception as error:
        coordinator.complete(token, commit=True)
        raise _needs_recovery(token) from error


async def recover_async(coordinator: AsyncCoordinator, log: PreparedLog, connection: Any, transactional_id: str) -> int:
    """As `recover`, for an `AsyncCoordinator`. The log is used on this thread: its statements are short."""
    generation, token = log.claim(connection, transactional_id)
    connection.commit()
    if token is not None:
        await coordinator.complete(token, commit=True)
    return generation


@asynccontextmanager
async def transaction_async(
    producer: Any,
    coordinator: AsyncCoordinator,
    log: PreparedLog,
    connection: Any,
    *,
    generation: int,
    timeout_s: float = 30,
) -> AsyncIterator[None]:
    """As `transaction`, for an aiokafka.AIOKafkaProducer. The database's calls are made on this thread."""
    _begin(log, connection, generation, _transactional_id(producer))
    await producer.begin_transaction()
    try:
        with sends_watched(producer) as sent:
            yield
        token = await prepare_async(producer, timeout_s=timeout_s)
        await require_accepted(sent)
        log.record(connection, generation, token)
    except BaseException:
        with suppress(Exception):  # as above
            connection.rollback()
        with suppress(Exception):
            await producer.abort_transaction()
        raise
    try:
        connection.commit()
    except Exception as error:
        raise _in_doubt(token) from error
    try:
        await producer.commit_transaction()
    except Exception as error:
        await coordinator.complete(token, commit=True)
        raise _needs_recovery(token) from error


def _begin(log: PreparedLog, connection: Any, generation: int, transactional_id: str) -> None:
    """Forget the token of the transaction before, and begin the database's. Raises Fenced, with nothing left open."""
    try:
        log.clear(connection, generation, transactional_id)
        connection.commit()
    except BaseException:
        with suppress(Exception):
            connection.rollback()
        raise
    log.begin(connection)


def _transactional_id(producer: Any) -> str:
    """The id of a producer of one of the three libraries. Raises TypeError."""
    for path in (
        ("fencepost_transactional_id",),
        ("_transaction_manager", "transactional_id"),
        ("_txn_manager", "transactional_id"),
    ):
        found = producer
        for name in path:
            found = getattr(found, name, None)
        if found:
            return str(found)
    raise TypeError(
        f"expected a producer of confluent_producer(config), or a transactional one of kafka-python or aiokafka; got a "
        f"{type(producer).__qualname__}"
    )


def _in_doubt(token: Token) -> InDoubtError:
    return InDoubtError(
        f"the database did not say whether it has committed {token}: nothing was ended; call recover", token
    )


def _needs_recovery(token: Token) -> NeedsRecovery:
    return NeedsRecovery(
        f"{token} is committed on both sides, but its producer cannot go on: call recover and make another producer",
        token,
    )
