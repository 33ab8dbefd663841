"""One connection to a cluster's PostgreSQL over the life of a node: work in turn, opened again when it is lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeVar

import asyncpg

from fencepost.broker.cluster.postgres.connections import (
    CONNECTION_LOST,
    STATEMENT_TIMEOUT_S,
    Connection,
    PostgresAddress,
    UnavailableError,
    connect,
    drop,
    require_certain,
    translated,
    wait_for_standby,
)
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.storage.disk import StorageError

log = get_logger(__name__)

T = TypeVar("T")
Work = Callable[[Connection], Awaitable[T]]

REPEAT_FOR_S: Final = 10.0
"""How long work is repeated while PostgreSQL does not answer: a restart of it takes less."""
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
CLOSE_TIMEOUT_S: Final = 1.0


class Attempts:
    """Attempts to connect. failing_since_s: of the loop's clock, since when all have failed; None after a success."""

    def __init__(self) -> None:
        self.failing_since_s: float | None = None

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Note how the attempt in the block ends."""
        try:
            yield
        except StorageError:
            if self.failing_since_s is None:
                self.failing_since_s = asyncio.get_running_loop().time()
            raise
        self.failing_since_s = None


class Session:
    """A connection that one piece of work uses at a time.

    application_name: asked for with each connection. on_connected: prepares each connection.
    attempts:         attempts to connect.
    """

    def __init__(
        self,
        address: PostgresAddress,
        application_name: Callable[[], str],
        *,
        statement_timeout_s: float = STATEMENT_TIMEOUT_S,
        on_connected: Work[None] | None = None,
    ) -> None:
        self.address = address
        self.attempts = Attempts()
        self._application_name = application_name
        self._statement_timeout_s = statement_timeout_s
        self._on_connected = on_connected
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()
        # Whether a statement was sent whose outcome is unknown: its effect may be seen, and be on one server only.
        self._is_uncertain = False

    async def open(self) -> None:
        """Connect. Raises StorageError."""
        async with self._turn:
            await self._connected()

    async def close(self) -> None:
        async with self._turn:
            connection, self._connection = self._connection, None
            if connection is not None:
                with contextlib.suppress(asyncpg.PostgresError, *CONNECTION_LOST):
                    await connection.close(timeout=CLOSE_TIMEOUT_S)  # or else it terminates

    async def run(self, work: Work[T], *, repeat_for_s: float = REPEAT_FOR_S) -> T:
        """Run work, and repeat it while PostgreSQL does not answer, so it must be safe to do twice.

        Raises UnavailableError once the time for repeating is over; StorageError if a retry would not help.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + repeat_for_s
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return await self._run_once(work)
            except UnavailableError as error:
                if loop.time() + pause_s >= deadline_s:
                    raise
                log.warning("metadata_asked_again", reason=str(error))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def transaction(self, work: Work[T], *, repeat_for_s: float = REPEAT_FOR_S) -> T:
        """Run work as one transaction, which is undone if it raises, and repeat it as `run` does."""

        async def in_transaction(connection: Connection) -> T:
            async with connection.transaction():
                return await work(connection)

        return await self.run(in_transaction, repeat_for_s=repeat_for_s)

    async def _run_once(self, work: Work[T]) -> T:
        async with self._turn:
            connection = await self._connected()
            try:
                with translated(self.address):
                    done = await work(connection)
                    require_certain(connection, self.address)
                    if self._is_uncertain:
                        await wait_for_standby(connection, self.address)
                        self._is_uncertain = False
                    return done
            except StorageError as error:
                if isinstance(error, UnavailableError):
                    self._is_uncertain = True
                    await self._drop()
                raise
            except BaseException:
                # Cancelled in the middle: the connection's next answer may belong to this request.
                self._is_uncertain = True
                await self._drop()
                raise

    async def _connected(self) -> Connection:
        """Return the connection, or a new one. Raises StorageError."""
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        with self.attempts.one():
            connection = await connect(
                self.address,
                application_name=self._application_name(),
                statement_timeout_s=self._statement_timeout_s,
                answer_timeout_s=self._statement_timeout_s + 1,
            )
        self._connection = connection
        if self._on_connected is not None:
            try:
                with translated(self.address):
                    await self._on_connected(connection)
            except BaseException:
                await self._drop()
                raise
        return connection

    async def _drop(self) -> None:
        """End the connection without waiting for its server, which may not answer."""
        connection, self._connection = self._connection, None
        if connection is not None:
            drop(connection)
