"""The connections to databases that services have, behind one set of calls.

Each class is for the connections of one library: psycopg, psycopg2, sqlite3, asyncpg, SQLAlchemy or Django. None of
them is imported here: a connection brings its own. Nothing here knows the log's table.
"""

from __future__ import annotations

import itertools
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from fencepost.two_phase.tokens import MisuseError

POSTGRES, SQLITE = "postgresql", "sqlite"
IDLE = 0  # libpq's PQTRANS_IDLE
CLOSED = (
    "the connection to the database is closed: connect again, and after an InDoubtError or NeedsRecovery call recover "
    "and make another producer"
)
IN_PROGRESS = (
    "the connection has a transaction in progress, perhaps begun by a SELECT: commit it or roll it back before, or "
    "move its statements into the block"
)
COMMITS_ITSELF = "the connection commits each statement by itself"
IN_ATOMIC = (
    "the connection is inside atomic(), perhaps because of ATOMIC_REQUESTS or of a TestCase: transaction() begins and "
    "commits by itself. Leave atomic(), take the view out of it with non_atomic_requests, and test with "
    "TransactionTestCase"
)
WAIT_FOR_STANDBY = "SyncRepWaitForLSN"
"""PostgreSQL's function that warns if it was cancelled: the only sign of it."""
_MARK = re.compile(r"\?")
_READS = re.compile(r"\s*SELECT\b", re.IGNORECASE)


class UnreplicatedError(Exception):
    """A commit is on the primary, and nobody knows whether it is on the standby that it had to wait for."""


class Database(ABC):
    """A connection of one library, for one transaction after another.

    kind: POSTGRES, SQLITE, or a name for another one. is_awaited: whether its calls suspend; if not, they can be run
    without an event loop. has_state: whether one object serves a transaction from its begin to its end.
    """

    is_awaited = False
    has_state = False

    def __init__(self, connection: Any, kind: str) -> None:
        self.connection = connection
        self.kind = kind

    @property
    @abstractmethod
    def is_in_progress(self) -> bool:
        """Whether a transaction is open."""

    @abstractmethod
    def require_usable(self) -> None:
        """Raise MisuseError unless the connection is open, and commits nothing by itself."""

    def require_free(self) -> None:
        """Raise MisuseError unless a transaction can begin."""
        self.require_usable()
        if self.is_in_progress:
            raise MisuseError(IN_PROGRESS)

    @abstractmethod
    async def execute(self, statement: str, *parameters: object) -> Sequence[Any]:
        """Execute a statement, with `?` for each parameter; returns its rows. Raises the library's errors."""

    @abstractmethod
    async def commit(self) -> None: ...

    @abstractmethod
    async def rollback(self) -> None: ...

    async def begin(self) -> None:  # noqa: B027  # most have nothing to do
        """Begin a transaction, in a library whose statements do not."""

    def require_begun(self) -> None:  # noqa: B027  # as above
        """After the first statement of a transaction: raise MisuseError if the database has committed it."""

    async def complete(self) -> None:  # noqa: B027  # as above
        """Send the changes that the library holds back. Raises MisuseError if they are in two databases."""


class _DbApi(Database):
    """A connection of Python's DB-API: its statements begin transactions."""

    mark = "%s"

    @property
    def _options(self) -> dict[str, Any]:
        """Further arguments of the driver's `execute`."""
        return {}

    def _cursor(self) -> Any:
        """A cursor whose rows are tuples, even if the connection's own are not."""
        return self.connection.cursor()

    async def execute(self, statement: str, *parameters: object) -> Sequence[Any]:
        cursor = self._cursor()
        cursor.execute(_MARK.sub(self.mark, statement), parameters, **self._options)
        return cursor.fetchall() if cursor.description else ()

    async def commit(self) -> None:
        self.connection.commit()

    async def rollback(self) -> None:
        self.connection.rollback()


class _Psycopg(_DbApi):
    """psycopg 3, psycopg2."""

    @property
    def _options(self) -> dict[str, Any]:
        # psycopg 3 would prepare a statement that it sends often, for the server's session; behind a pooler the next
        # transaction may have another one.
        return {"prepare": False} if self._is_psycopg_3 else {}

    @property
    def _is_psycopg_3(self) -> bool:
        return hasattr(self.connection, "row_factory")

    def _cursor(self) -> Any:
        if self._is_psycopg_3:
            return self.connection.cursor(row_factory=sys.modules["psycopg.rows"].tuple_row)
        return self.connection.cursor(cursor_factory=sys.modules["psycopg2.extensions"].cursor)

    @property
    def is_in_progress(self) -> bool:
        return not self.connection.closed and self.connection.info.transaction_status != IDLE

    def require_usable(self) -> None:
        if self.connection.closed:
            raise MisuseError(CLOSED)
        if self.connection.autocommit:
            raise MisuseError(f"{COMMITS_ITSELF}: set autocommit to False")

    async def commit(self) -> None:
        with self._standby_required():
            self.connection.commit()

    @contextmanager
    def _standby_required(self) -> Iterator[None]:
        """Raise UnreplicatedError if a COMMIT succeeds only because somebody has cancelled its wait for the standby."""
        cancelled: list[str] = []

        def notice(diagnostic: Any) -> None:
            if diagnostic.source_function == WAIT_FOR_STANDBY:
                cancelled.append(str(diagnostic.message_primary))

        if not self._is_psycopg_3:
            yield
            return
        self.connection.add_notice_handler(notice)
        try:
            yield
        finally:
            self.connection.remove_notice_handler(notice)
        if cancelled:
            raise UnreplicatedError(f"the standby may lack the commit: {cancelled[0]}")


class _AsyncPsycopg(_Psycopg):
    """psycopg.AsyncConnection."""

    is_awaited = True

    async def execute(self, statement: str, *parameters: object) -> Sequence[Any]:
        cursor = self._cursor()
        await cursor.execute(_MARK.sub(self.mark, statement), parameters, **self._options)
        return await cursor.fetchall() if cursor.description else ()

    async def commit(self) -> None:
        with self._standby_required():
            await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()


class _Sqlite(_DbApi):
    """sqlite3."""

    mark = "?"

    def _cursor(self) -> Any:
        cursor = self.connection.cursor()
        cursor.row_factory = None
        return cursor

    @property
    def is_in_progress(self) -> bool:
        return bool(self.connection.in_transaction)

    def require_usable(self) -> None:
        try:
            self.connection.total_changes  # noqa: B018  # raises if it is closed
        except Exception as error:
            if "closed" in str(error):
                raise MisuseError(CLOSED) from error
            raise
        # After that: this attribute of a closed one raises as well, from Python 3.14 on.
        if isinstance(getattr(self.connection, "autocommit", None), bool):
            raise MisuseError("connect with sqlite3.connect(path), without autocommit: the log begins transactions")

    async def begin(self) -> None:
        self.connection.execute("BEGIN")


class _Asyncpg(Database):
    """asyncpg's connections, also those of its pools. A `transaction()` inside the block is a savepoint."""

    is_awaited = has_state = True
    _transaction: Any = None

    @property
    def is_in_progress(self) -> bool:
        return bool(self.connection.is_in_transaction())

    def require_usable(self) -> None:
        if self.connection.is_closed():
            raise MisuseError(CLOSED)

    async def begin(self) -> None:
        self._transaction = self.connection.transaction()
        await self._transaction.start()

    async def execute(self, statement: str, *parameters: object) -> Sequence[Any]:
        numbers = itertools.count(1)
        rows: Sequence[Any] = await self.connection.fetch(
            _MARK.sub(lambda _: f"${next(numbers)}", statement), *parameters
        )
        return rows

    async def commit(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            await transaction.commit()

    async def rollback(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            await transaction.rollback()


class _SqlAlchemy(Database):
    """SQLAlchemy's Session and Connection: their statements begin transactions, those that load an object as well."""

    has_state = True

    def __init__(self, connection: Any) -> None:
        super().__init__(connection, _dialect_name(connection))
        self._sync = getattr(connection, "sync_session", None) or getattr(connection, "sync_connection", connection)
        self._engines: list[Any] = []

    @property
    def _is_session(self) -> bool:
        return hasattr(self._sync, "get_bind")

    @property
    def is_in_progress(self) -> bool:
        return bool(self._sync.in_transaction())

    def require_usable(self) -> None:
        if getattr(self._sync, "closed", False):
            raise MisuseError(CLOSED)

    async def begin(self) -> None:
        if self._is_session:
            self._forget()
            self._engines = [self._sync.get_bind().engine]
            if not self.is_in_progress:
                self._sync.begin()
            _event().listen(self._sync, "after_begin", self._after_begin)

    def _after_begin(self, _session: Any, _transaction: Any, connection: Any) -> None:
        if connection.engine not in self._engines:
            self._engines.append(connection.engine)

    async def execute(self, statement: str, *parameters: object) -> Sequence[Any]:
        return _rows(self.connection.execute(*_bound(statement, parameters)))

    async def commit(self) -> None:
        self._forget()
        self.connection.commit()

    async def rollback(self) -> None:
        self._forget()
        self.connection.rollback()

    async def complete(self) -> None:
        if self._is_session:
            self.connection.flush()
        self._require_one()

    def require_begun(self) -> None:
        core = self._sync.connection() if self._is_session else self._sync
        if not opened(core.connection.driver_connection).is_in_progress:
            raise MisuseError(f"{COMMITS_ITSELF}: make the engine without isolation_level='AUTOCOMMIT'")

    def _require_one(self) -> None:
        if others := [str(engine.url) for engine in self._engines[1:]]:
            raise MisuseError(
                f"the session has used two databases, and one commit covers {self._engines[0].url} alone: use a "
                f"session of its own, outside the block, for {', '.join(others)}"
            )

    def _forget(self) -> None:
        if self._is_session and _event().contains(self._sync, "after_begin", self._after_begin):
            _event().remove(self._sync, "after_begin", self._after_begin)


class _AsyncSqlAlchemy(_SqlAlchemy):
    """SQLAlchemy's AsyncSession and AsyncConnection."""

    is_awaited = True

    async def execute(self, statement: str, *parameters: object) -> Sequence[Any]:
        return _rows(await self.connection.execute(*_bound(statement, parameters)))

    async def commit(self) -> None:
        self._forget()
        await self.connection.commit()

    async def rollback(self) -> None:
        self._forget()
        await self.connection.rollback()

    async def complete(self) -> None:
        if self._is_session:
            await self.connection.flush()
        self._require_one()


class _Django(Database):
    """A connection of django.db. The block is inside an `atomic` of its own; an `atomic` in it is a savepoint."""

    has_state = True

    def __init__(self, connection: Any) -> None:
        super().__init__(connection, connection.vendor)
        self._atomic: ExitStack | None = None

    @property
    def is_in_progress(self) -> bool:
        return bool(self.connection.in_atomic_block)

    def require_usable(self) -> None:
        if self._atomic is None and self.connection.in_atomic_block:
            raise MisuseError(IN_ATOMIC)
        if not self.connection.in_atomic_block and not self.connection.get_autocommit():
            raise MisuseError("Django's own transactions are needed: leave the database's AUTOCOMMIT on")

    async def begin(self) -> None:
        database = sys.modules["django.db"]
        stack = ExitStack()
        for alias in database.connections:
            if alias != self.connection.alias:
                stack.enter_context(database.connections[alias].execute_wrapper(_reads_only(alias)))
        stack.enter_context(database.transaction.atomic(using=self.connection.alias, durable=True))
        self._atomic = stack

    async def execute(self, statement: str, *parameters: object) -> Sequence[Any]:
        with self.connection.cursor() as cursor:
            cursor.execute(_MARK.sub("%s", statement), parameters or None)
            rows: Sequence[Any] = cursor.fetchall() if cursor.description else ()
        return rows

    async def commit(self) -> None:
        stack, self._atomic = self._atomic, None
        if stack is not None:
            stack.close()

    async def rollback(self) -> None:
        if self._atomic is not None:
            self.connection.set_rollback(True)
        await self.commit()


class _Other(_DbApi):
    """A connection of another library, for a log of the caller's."""

    @property
    def is_in_progress(self) -> bool:
        return False

    def require_usable(self) -> None:
        pass


def opened(connection: Any) -> Database:
    """The calls on a connection of any library."""
    if isinstance(connection, Database):
        return connection
    if callable(connection) and hasattr(connection, "registry"):
        connection = connection()  # SQLAlchemy's scoped_session
    for base in connection.__class__.__mro__:  # of a class derived from a library's, or a proxy that stands for one
        for beginning, made in _LIBRARIES:
            if f"{base.__module__}.".startswith(beginning):
                return made(connection)
    # An object of the caller's own that passes calls on, such as one that measures them.
    if hasattr(connection, "total_changes"):
        return _sqlite(connection)
    if hasattr(getattr(connection, "info", None), "transaction_status"):
        return _psycopg(connection)
    return _Other(connection, f"{type(connection).__module__}.{type(connection).__qualname__}")


def _psycopg(connection: Any) -> Database:
    is_async = any(base.__name__ == "AsyncConnection" for base in connection.__class__.__mro__)
    return (_AsyncPsycopg if is_async else _Psycopg)(connection, POSTGRES)


def _sqlite(connection: Any) -> Database:
    return _Sqlite(connection, SQLITE)


_LIBRARIES: tuple[tuple[str, Callable[[Any], Database]], ...] = (
    ("sqlite3.", _sqlite),
    ("aiosqlite.", _sqlite),
    ("psycopg.", _psycopg),
    ("psycopg2.", _psycopg),
    ("asyncpg.", lambda connection: _Asyncpg(connection, POSTGRES)),
    ("sqlalchemy.ext.asyncio.", _AsyncSqlAlchemy),
    ("sqlalchemy.", _SqlAlchemy),
    ("django.", _Django),
)


def _dialect_name(connection: Any) -> str:
    """The kind of database behind an object of SQLAlchemy's."""
    try:
        dialect = connection.dialect if hasattr(connection, "dialect") else connection.get_bind().dialect
    except Exception as error:
        raise MisuseError(f"the session has no database for the log's table: give it a `bind` ({error})") from error
    return str(dialect.name)


def _event() -> Any:
    return sys.modules["sqlalchemy.event"]


def _bound(statement: str, parameters: Sequence[object]) -> tuple[Any, dict[str, object]]:
    """A statement for SQLAlchemy, and its parameters by name."""
    numbers = itertools.count()
    text = _MARK.sub(lambda _: f":p{next(numbers)}", statement)
    return sys.modules["sqlalchemy"].text(text), {f"p{number}": value for number, value in enumerate(parameters)}


def _rows(result: Any) -> Sequence[Any]:
    rows: Sequence[Any] = result.fetchall() if result.returns_rows else ()
    return rows


def _reads_only(alias: str) -> Callable[..., Any]:
    """Return a wrapper of Django's statements on another database, which lets only SELECT pass."""

    def execute(execute: Callable[..., Any], statement: str, *others: Any) -> Any:
        if not _READS.match(statement):
            raise MisuseError(
                f"the block writes to the database {alias!r} as well, and one commit covers one database: write to it "
                "outside of the block"
            )
        return execute(statement, *others)

    return execute
