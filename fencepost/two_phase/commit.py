"""One commit over a database and a log: `start_session` once, then `transaction` for each commit.

The database decides: once it has committed, with the token among its changes, the records will be committed, even after
crashes. Before, they will be aborted.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from fencepost.two_phase.client_calls import (
    BlockingCalls,
    ClientCalls,
    LoopCalls,
    error_code,
    run_blocking,
    settled,
)
from fencepost.two_phase.commit_ids import Commit, new_commit
from fencepost.two_phase.coordinator import NOT_CURRENT, AsyncCoordinator, Coordinator, Description
from fencepost.two_phase.databases import Database, opened
from fencepost.two_phase.logs import PreparedLog, SqlLog
from fencepost.two_phase.preparing import hand_over, sends_watched, take_back
from fencepost.two_phase.tokens import (
    NO_RIGHT_TO_ID,
    Fenced,
    HeuristicOutcome,
    InDoubtError,
    NeedsRecovery,
    Superseded,
    Token,
    no_right_to_init,
)

FENCED_OF_LIBRDKAFKA = -144
SHORTEST_WAIT_S = 0.5
BLOCKING, LOOP = BlockingCalls(), LoopCalls()


def start_session(
    producer: Any, coordinator: Coordinator, log: PreparedLog, connection: Any, *, timeout_s: float = 60
) -> int:
    """Begin the session of a producer: `recover`, and then `init_transactions`, which aborts an open transaction.

    producer: one from `confluent_producer`, or a kafka.KafkaProducer; not yet initialised.
    It asks the coordinator first: a client that the brokers refuse must not fence the session that runs. Then, while it
    initialises, the database holds the id's row: a late session that was replaced must not initialise, since that
    would abort a transaction that its successor has committed in the database. The database may end that hold, if it
    restarts or loses the connection: so this aborts the open transaction by its pair, which is never that of a
    successor, checks the hold before and after each step, and has a Fencepost refuse any InitProducerId without that
    pair that would abort a transaction. Returns the session's generation, for `transaction`. If it raises, nothing is
    lost: repeat it with another producer. Raises as `recover`, Fenced, and the client's errors.
    """
    transactional_id = _transactional_id(producer)
    return run_blocking(_Steps(BLOCKING, producer, coordinator, log, connection, transactional_id, timeout_s).start())


async def start_session_async(
    producer: Any, coordinator: AsyncCoordinator, log: PreparedLog, connection: Any, *, timeout_s: float = 60
) -> int:
    """As `start_session`, for an aiokafka.AIOKafkaProducer, which it starts."""
    transactional_id = _transactional_id(producer)
    return await _Steps(LOOP, producer, coordinator, log, connection, transactional_id, timeout_s).start()


def recover(coordinator: Coordinator, log: PreparedLog, connection: Any, transactional_id: str) -> int:
    """Fence the earlier sessions of an id in the database, and commit their transaction that is prepared there.

    The first half of `start_session`. The second, the producer's `init_transactions`, aborts any other one: a
    transaction without a token was not committed in the database. Returns the session's generation, for
    `transaction`. If it raises, nothing is lost: repeat it.
    connection: one to the log's database, without a transaction in progress.
    Raises MisuseError, and HeuristicOutcome, Superseded, Refused and TimeoutError as `Coordinator.complete`.
    """
    return run_blocking(_Steps(BLOCKING, None, coordinator, log, connection, transactional_id).recover())


@contextmanager
def transaction(
    producer: Any,
    coordinator: Coordinator,
    log: PreparedLog,
    connection: Any,
    *,
    generation: int,
    timeout_s: float = 30,
) -> Iterator[Commit]:
    """Commit the block's writes to a producer and to a database connection, both or neither.

    producer: one from `confluent_producer`, or a kafka.KafkaProducer; after `start_session`.
    connection: one to the log's database, without a transaction in progress; the block must not end its transaction.
    timeout_s: limit of each wait for the broker.
    The block gets the commit's name: an id for a column of the rows, headers for the records, for `two-phase compare`.
    An error in the block, in preparing or in the database's commit leaves nothing on either side and is raised. Raises
    MisuseError for unsuitable arguments, Fenced if a later session has taken over, InDoubtError if the database
    did not say whether it has committed, NeedsRecovery if it has, and the producer cannot continue.
    """
    transactional_id = _transactional_id(producer)
    steps = _Steps(BLOCKING, producer, coordinator, log, connection, transactional_id, timeout_s, generation)
    run_blocking(steps.begin())
    try:
        yield new_commit()
        token = run_blocking(steps.prepare())
    except BaseException:
        run_blocking(steps.abandon())
        raise
    run_blocking(steps.commit(token))


async def recover_async(coordinator: AsyncCoordinator, log: PreparedLog, connection: Any, transactional_id: str) -> int:
    """As `recover`, for an `AsyncCoordinator`. The log is used on this thread: its statements are short."""
    return await _Steps(LOOP, None, coordinator, log, connection, transactional_id).recover()


@asynccontextmanager
async def transaction_async(
    producer: Any,
    coordinator: AsyncCoordinator,
    log: PreparedLog,
    connection: Any,
    *,
    generation: int,
    timeout_s: float = 30,
) -> AsyncIterator[Commit]:
    """As `transaction`, for an aiokafka.AIOKafkaProducer. The database's calls are made on this thread.

    A cancellation before the database's commit leaves nothing on either side; a later one leaves the rest to `recover`.
    """
    transactional_id = _transactional_id(producer)
    steps = _Steps(LOOP, producer, coordinator, log, connection, transactional_id, timeout_s, generation)
    await steps.begin()
    try:
        with sends_watched(producer) as sent:
            yield new_commit()
        token = await steps.prepare(sent)
    except BaseException:
        await steps.abandon()
        raise
    await steps.commit(token)


@dataclass(slots=True)
class _Steps:
    """The steps of a session, for clients and coordinators that block and for those of asyncio.

    producer: None for a recovery alone. generation: the session's, which `recover` sets.
    """

    calls: ClientCalls
    producer: Any
    coordinator: Coordinator | AsyncCoordinator
    log: PreparedLog
    connection: Any
    transactional_id: str
    timeout_s: float = 60
    generation: int = 0
    database: Database = field(init=False)

    def __post_init__(self) -> None:
        self.database = opened(self.connection)
        if self.database.has_state and isinstance(self.log, SqlLog):  # else a log gets the caller's connection
            self.connection = self.database

    # The start

    async def start(self) -> int:
        coordinator, transactional_id = self.coordinator, self.transactional_id
        await settled(coordinator.describe(transactional_id, timeout_s=self.timeout_s))
        await self.recover()
        release_at_s = time.monotonic() + self.timeout_s  # of the hold, with or without answers of the brokers
        async with _rolled_back_on_error(self.database):
            await self._hold()
            while True:
                described = await settled(coordinator.describe(transactional_id, timeout_s=_until(release_at_s)))
                await self._hold_again()
                left = _left_open(described, transactional_id, release_at_s)
                if left is None:
                    break
                with suppress(HeuristicOutcome, Superseded):  # ended otherwise meanwhile: look again
                    await settled(coordinator.complete(left, commit=False, timeout_s=_until(release_at_s)))
            guarded = await settled(coordinator.guard(transactional_id, described, timeout_s=_until(release_at_s)))
            await self._hold_again()
            try:
                await self.calls.initialize(self.producer, _until(release_at_s))
            except Exception as error:
                _raise_if_refused(transactional_id, error)
                raise
            if hasattr(self.producer, "note_pair"):
                found = await settled(coordinator.describe(transactional_id, timeout_s=_until(release_at_s)))
                # Else a stranger has begun a session before the client or behind it: its own statistics have its pair.
                if found is not None and (found.producer_id, found.producer_epoch - 1) == guarded:
                    self.producer.note_pair(found.producer_id, found.producer_epoch)
            await self._hold_again()
            await self.database.rollback()
        return self.generation

    async def recover(self) -> int:
        self.generation, token = await self._claim()
        if token is not None:
            await settled(self.coordinator.complete(token, commit=True))
            await self._clear()
        return self.generation

    async def _claim(self) -> tuple[int, Token | None]:
        """Claim the id, and commit that."""
        async with _rolled_back_on_error(self.database):
            claimed = await settled(self.log.claim(self.connection, self.transactional_id))
            await self.database.commit()
        return claimed

    async def _hold(self) -> None:
        await settled(self.log.hold(self.connection, self.generation, self.transactional_id))

    async def _hold_again(self) -> None:
        """Check that the database has not ended the hold, and that nobody has claimed the id since.

        Raises Fenced, and the driver's error if the connection is lost.
        """
        await self.database.rollback()
        await self._hold()

    # A transaction: `begin`, the caller's block, `prepare`, `commit`; or `abandon` in place of the last

    async def begin(self) -> None:
        async with _rolled_back_on_error(self.database):  # if that raises, none is left open
            await self._begin_in_database()
        try:
            await self.calls.begin(self.producer)
        except BaseException as error:
            await _roll_back(self.database)
            if isinstance(error, Exception):
                raise _cannot_begin(self.transactional_id, error) from error
            raise

    async def prepare(self, sent: Sequence[Awaitable[Any]] = ()) -> Token:
        token = await self.calls.prepare(self.producer, self.timeout_s, sent)
        await settled(self.log.record(self.connection, self.generation, token))
        return token

    async def abandon(self) -> None:
        await _roll_back(self.database)
        with suppress(Exception):  # its successor's session, or time, aborts it
            await self.calls.abort(self.producer, self.timeout_s)

    async def commit(self, token: Token) -> None:
        hand_over(self.producer, token)
        try:
            await self.database.commit()
        except Exception as error:
            if not await self._is_rolled_back():
                raise _in_doubt(token) from error
            take_back(self.producer)
            with suppress(Exception):  # as above
                await self.calls.abort(self.producer, self.timeout_s)
            raise
        try:
            await self.calls.commit(self.producer, self.timeout_s)
        except Exception as error:
            try:
                await settled(self.coordinator.complete(token, commit=True, timeout_s=self.timeout_s))
            except Superseded as left:
                raise await self._replaced_or_ended(token, left) from error
            except TimeoutError as left:
                raise _left_to_recovery(token, left) from error
            raise _needs_recovery(token) from error
        take_back(self.producer)
        await self._forget(token)

    async def _begin_in_database(self) -> None:
        await settled(self.log.begin(self.connection, self.generation, self.transactional_id))

    async def _clear(self) -> None:
        """Remove the token of a transaction that has ended, and commit that."""
        async with _rolled_back_on_error(self.database):
            await settled(self.log.clear(self.connection, self.generation, self.transactional_id))
            await self.database.commit()

    async def _forget(self, token: Token) -> None:
        """Remove the token of a transaction that both sides have committed. Raises NeedsRecovery."""
        try:
            await self._clear()
        except Exception as error:
            raise NeedsRecovery(
                f"{token} is committed on both sides, but the database did not note that it is done ({error}): call "
                "recover and make another producer",
                token,
            ) from error

    async def _is_rolled_back(self) -> bool:
        """After a commit that failed: whether the database answers, and has no token, so it has not committed."""
        try:
            await self.database.rollback()
            if isinstance(self.log, SqlLog):  # a library may have connected again while the commit is under way
                await settled(self.log.begin_alone(self.connection, self.generation, self.transactional_id))
            else:
                await self._begin_in_database()
        except Exception:  # noqa: BLE001  # no error of the driver is an answer
            return False
        finally:
            await _roll_back(self.database)
        return True

    async def _replaced_or_ended(self, token: Token, reason: Superseded) -> NeedsRecovery | Superseded:
        """Return the error for a transaction that the database has committed, and that its coordinator has no more."""
        try:
            await self._begin_in_database()
        except Fenced:
            return NeedsRecovery(
                f"the database has committed {token}, and a later session has claimed its id, and was to commit its "
                "records or to say why it could not: end this one",
                token,
            )
        except Exception:  # noqa: BLE001  # NeedsRecovery: the token is still there; or the database is away
            pass
        finally:
            await _roll_back(self.database)
        return Superseded(
            f"the database has committed {token}, but something else than a later session has taken its place at the "
            f"coordinator, such as an administrator who has terminated it: its records may be aborted ({reason})",
            token,
        )


def _until(at_s: float) -> float:
    """Seconds until a time of the monotonic clock, at least a little: an answer may be there already."""
    return max(SHORTEST_WAIT_S, at_s - time.monotonic())


def _left_open(described: Description | None, transactional_id: str, give_up_at_s: float) -> Token | None:
    """The transaction that an earlier session has left, or None if nothing is open. Raises TimeoutError."""
    if described is None or not described.state.startswith(("Ongoing", "Prepare")):
        return None
    if time.monotonic() > give_up_at_s:
        raise TimeoutError(f"the transaction of {transactional_id} stays in state {described.state}")
    return Token(described.producer_id, described.producer_epoch, transactional_id)


@asynccontextmanager
async def _rolled_back_on_error(database: Database) -> AsyncIterator[None]:
    """Leave no transaction of our own open. One that was in progress before is the caller's, and stays."""
    was_open = _is_in_progress(database)
    try:
        yield
    except BaseException:
        if not was_open:
            await _roll_back(database)
        raise


def _is_in_progress(database: Database) -> bool:
    with suppress(Exception):
        return database.is_in_progress
    return False


async def _roll_back(database: Database) -> None:
    with suppress(Exception):  # the database rolls back for a connection that is lost
        await database.rollback()


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


def _raise_if_refused(transactional_id: str, error: Exception) -> None:
    """Raise Refused for the error of a client whose producer may not use its id, Fenced if another session has it."""
    code = error_code(error)
    if code == NO_RIGHT_TO_ID:
        raise no_right_to_init(transactional_id) from error
    if code in NOT_CURRENT or code == FENCED_OF_LIBRDKAFKA:
        raise Fenced(f"another session of {transactional_id} has an open transaction: end this one") from error


def _cannot_begin(transactional_id: str, error: Exception) -> NeedsRecovery:
    return NeedsRecovery(
        f"the producer of {transactional_id} cannot begin a transaction ({error}): end the one that it has, or call "
        "recover and make another producer"
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


def _left_to_recovery(token: Token, reason: Exception) -> NeedsRecovery:
    return NeedsRecovery(
        f"the database has committed {token}, but its records wait for a coordinator ({reason}): call recover, which "
        "commits them, and make another producer",
        token,
    )
