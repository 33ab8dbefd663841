"""Logs of prepared transactions: one row per transactional id, in the database that the application commits to.

The row's generation fences: a session that has claimed the id makes every earlier session's `record` fail, so a slow
predecessor cannot commit a transaction to the database that its successor has decided to abort.
"""

from __future__ import annotations

import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Literal, NoReturn, Protocol, TypeAlias, get_args

from fencepost.two_phase.client_calls import run_blocking
from fencepost.two_phase.databases import POSTGRES, SQLITE, Database, opened
from fencepost.two_phase.tokens import Fenced, MisuseError, NeedsRecovery, Token, WeakDatabase

DEFAULT_TABLE = "fencepost_prepared"
COLUMNS = "(transactional_id text PRIMARY KEY, generation bigint NOT NULL, token text)"
"""Version 1 of docs/two-phase-table.md: programs in other languages use the same table."""
SAVEPOINT = "fencepost_begun"
MARK = "fencepost.transaction"
SYNCHRONOUS_EXTRA = 3
UNDEFINED_TABLE = "42P01"
Weak = Literal["refuse", "warn", "accept"]
"""The answer to a database that may lose transactions it has committed: MisuseError, WeakDatabase, or none."""
# Subscribers of logical replication and running backups are no standbys. Without the right of pg_read_all_stats, states
# are NULL.
STANDBYS = """
SELECT sender.application_name, sender.sync_state FROM pg_stat_replication AS sender
LEFT JOIN pg_replication_slots AS slot ON slot.active_pid = sender.pid
WHERE sender.state IS DISTINCT FROM 'backup' AND slot.slot_type IS DISTINCT FROM 'logical'
ORDER BY sender.application_name
"""
_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")


Claimed: TypeAlias = tuple[int, Token | None]


class PreparedLog(Protocol):
    """A database's part of a two-phase commit. Nothing here commits: the caller does.

    connection: the argument of `transaction`. A method may return an awaitable of its result.
    Every method raises MisuseError for a connection or a table that cannot be used, with the remedy.
    """

    def claim(
        self, connection: Any, transactional_id: str
    ) -> tuple[int, Token | None] | Awaitable[tuple[int, Token | None]]:
        """Take over an id: returns the new generation, and the token of a predecessor that is not known to have ended.

        Once this is committed, no earlier session can record or clear a token.
        """

    def hold(self, connection: Any, generation: int, transactional_id: str) -> Awaitable[None] | None:
        """Let no later session claim the id until the database's transaction ends. Raises Fenced."""

    def begin(self, connection: Any, generation: int, transactional_id: str) -> Awaitable[None] | None:
        """Begin the database transaction of the application's changes.

        Raises Fenced, and NeedsRecovery if the token of an earlier transaction is still there.
        """

    def record(self, connection: Any, generation: int, token: Token) -> Awaitable[None] | None:
        """Store a token with the application's own changes, after `begin`. Raises Fenced: roll back then.

        Raises MisuseError if the transaction that `begin` has begun was ended meanwhile.
        """

    def clear(self, connection: Any, generation: int, transactional_id: str) -> Awaitable[None] | None:
        """Remove the token of a transaction that has ended, before the next one begins. Raises Fenced.

        Clients of transaction version 1 keep their pair: a token that stays would name their next transaction, too.
        """


class SqlLog(ABC):
    """The statements, for the connections of any library in `databases`.

    kind: the databases that it is for. locking: suffix that makes a SELECT lock its rows, if the database needs one.
    made_durable: a value that each statement that writes returns too, and that makes the commit of its transaction
    durable even if the database's default is not.
    The methods return awaitables if the connection's own do.
    """

    kind: str
    locking = ""
    nowait = ""
    made_durable = "1"

    def __init__(self, table: str = DEFAULT_TABLE, *, weak: Weak = "warn") -> None:
        """weak: the answer of `create` and `claim` to a database whose settings let a failure lose commits."""
        if not _TABLE.fullmatch(table):
            raise ValueError(f"not a name of a table: {table!r}")
        if weak not in get_args(Weak):
            raise ValueError(f"weak is one of {', '.join(get_args(Weak))}; got {weak!r}")
        self._table = table
        self._weak = weak

    def create(self, connection: Any) -> Any:
        """Create the table unless it is there. Raises MisuseError, or warns, as `claim` does."""
        return self._run(self._create, connection)

    def claim(self, connection: Any, transactional_id: str) -> Any:
        return self._run(self._claim, connection, transactional_id)

    def hold(self, connection: Any, generation: int, transactional_id: str) -> Any:
        return self._run(self._hold, connection, generation, transactional_id)

    def begin(self, connection: Any, generation: int, transactional_id: str) -> Any:
        return self._run(self._begin, connection, generation, transactional_id)

    def record(self, connection: Any, generation: int, token: Token) -> Any:
        return self._run(self._record, connection, generation, token)

    def clear(self, connection: Any, generation: int, transactional_id: str) -> Any:
        return self._run(self._clear, connection, generation, transactional_id)

    def begin_alone(self, connection: Any, generation: int, transactional_id: str) -> Any:
        """As `begin`; raises the database's error if a transaction is under way that has changed the id's row."""
        return self._run(self._begin, connection, generation, transactional_id, locking=self.locking + self.nowait)

    def _run(self, steps: Callable[..., Coroutine[Any, Any, Any]], connection: Any, *about: Any, **options: Any) -> Any:
        database = opened(connection)
        if database.kind != self.kind:
            raise MisuseError(f"{type(self).__name__} needs a connection to {self.kind}; got one of {database.kind}")
        running = steps(database, *about, **options)
        return running if database.is_awaited else run_blocking(running)

    async def _create(self, database: Database) -> None:
        await self._look(database)
        await self._execute(
            database,
            f"CREATE TABLE IF NOT EXISTS {self._table} {COLUMNS}",
        )

    async def _claim(self, database: Database, transactional_id: str) -> Claimed:
        await self._open(database)
        await self._look(database)
        ((generation, token, _),) = await self._execute(
            database,
            f"INSERT INTO {self._table} AS prepared (transactional_id, generation) VALUES (?, 1) "
            "ON CONFLICT (transactional_id) DO UPDATE SET generation = prepared.generation + 1 "
            f"RETURNING generation, token, {self.made_durable}",
            transactional_id,
        )
        database.require_begun()
        return generation, None if token is None else Token.parse(token)

    async def _hold(self, database: Database, generation: int, transactional_id: str) -> None:
        await self._open(database)
        await self._row(database, generation, transactional_id, self.locking)
        database.require_begun()

    async def _begin(self, database: Database, generation: int, transactional_id: str, locking: str = "") -> None:
        await self._open(database)
        text = await self._row(database, generation, transactional_id, locking)
        database.require_begun()
        if text is not None:
            token = Token.parse(text)
            raise NeedsRecovery(
                f"the database has committed {token}, and nobody knows yet whether its records are: call recover and "
                "make another producer",
                token,
            )
        await self._mark(database)

    async def _record(self, database: Database, generation: int, token: Token) -> None:
        await database.complete()
        if not await self._is_marked(database):
            raise MisuseError(
                f"the transaction that the database had begun for {token} was ended inside the block: leave commit and "
                "rollback to transaction()",
                token,
            )
        await self._update(database, generation, token.transactional_id, str(token), token)

    async def _clear(self, database: Database, generation: int, transactional_id: str) -> None:
        await self._open(database)
        await self._update(database, generation, transactional_id, None, None)

    async def _row(self, database: Database, generation: int, transactional_id: str, locking: str) -> str | None:
        """The token's text in the row of an id. Raises Fenced and MisuseError."""
        rows = await self._execute(
            database,
            f"SELECT generation, token FROM {self._table} WHERE transactional_id = ?{locking}",
            transactional_id,
        )
        if not rows or rows[0][0] != generation:
            self._refuse(rows, generation, transactional_id, None)
        text: str | None = rows[0][1]
        return text

    async def _update(
        self, database: Database, generation: int, transactional_id: str, text: str | None, token: Token | None
    ) -> None:
        changed = await self._execute(
            database,
            f"UPDATE {self._table} SET token = ? WHERE transactional_id = ? AND generation = ? "
            f"RETURNING {self.made_durable}",
            text,
            transactional_id,
            generation,
        )
        if not changed:
            rows = await self._execute(
                database, f"SELECT generation FROM {self._table} WHERE transactional_id = ?", transactional_id
            )
            self._refuse(rows, generation, transactional_id, token)

    def _refuse(self, rows: Sequence[Any], generation: int, transactional_id: str, token: Token | None) -> NoReturn:
        """Raise the error why a session may not continue. rows: the table's rows of its id, at most one."""
        if not rows:
            raise MisuseError(
                f"{transactional_id} was never claimed in this database: call recover first, with the same log", token
            )
        if rows[0][0] < generation:
            raise MisuseError(
                f"this database has never given generation {generation} of {transactional_id}, its latest is "
                f"{rows[0][0]}: use what recover has returned, with the same database",
                token,
            )
        raise Fenced(
            f"another session has claimed {transactional_id}: this one can commit nothing any more, end it", token
        )

    async def _look(self, database: Database) -> None:
        """Refuse a database whose settings let a failure lose commits, or warn of it, as the log was told."""
        weaknesses = () if self._weak == "accept" else await self._weaknesses(database)
        if not weaknesses:
            return
        text = f"a failure may lose what this database has committed: {'; '.join(weaknesses)}"
        if self._weak == "refuse":
            raise MisuseError(f"{text}. Mend it, or make the log with weak='warn'")
        warnings.warn(f"{text}. The log's argument `weak` refuses or accepts it", WeakDatabase, stacklevel=3)

    async def _weaknesses(self, database: Database) -> Sequence[str]:
        """The settings of a database by which a failure may lose commits, each with its remedy."""
        return ()

    async def _open(self, database: Database) -> None:
        """Check that a connection can be used and has no transaction, and begin one."""
        database.require_free()
        await database.begin()

    @abstractmethod
    async def _mark(self, database: Database) -> None:
        """Mark the transaction in progress in a way that its end removes."""

    @abstractmethod
    async def _is_marked(self, database: Database) -> bool:
        """Whether the transaction in progress is the one that was marked."""

    @abstractmethod
    def _is_missing_table(self, error: BaseException) -> bool:
        """Whether a driver's error says that the table does not exist."""

    async def _execute(self, database: Database, statement: str, *parameters: object) -> Sequence[Any]:
        try:
            return await database.execute(statement, *parameters)
        except Exception as error:
            cause = getattr(error, "orig", None) or error.__cause__  # the driver's, in SQLAlchemy's and Django's
            if any(self._is_missing_table(one) for one in (error, cause) if one is not None):
                raise MisuseError(
                    f"this database has no table {self._table}: call the log's create(connection) once, and commit"
                ) from error
            raise


class PostgresLog(SqlLog):
    """Log in PostgreSQL 9.6 or newer, over a connection without autocommit.

    connection: one of psycopg (also an AsyncConnection), psycopg2, asyncpg, SQLAlchemy or Django.
    Its transactions are durable once committed: it raises `synchronous_commit` to `on` for each, unless that is higher.
    `create` and `claim` look at fsync, full_page_writes and the standbys that are connected; a standby is refused.
    """

    kind = POSTGRES
    locking = " FOR UPDATE"
    nowait = " NOWAIT"
    made_durable = (
        "CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') "
        "THEN set_config('synchronous_commit', 'on', true) END"
    )

    async def _weaknesses(self, database: Database) -> list[str]:
        ((is_standby, fsync, full_page_writes, listed),) = await database.execute(
            "SELECT pg_is_in_recovery(), current_setting('fsync'), current_setting('full_page_writes'), "
            "current_setting('synchronous_standby_names')"
        )
        if is_standby:
            raise MisuseError(
                "this PostgreSQL is a standby, which takes no writes: connect to its primary, or add "
                "target_session_attrs=read-write to the URL of both"
            )
        found = []
        if fsync == "off":
            found.append("fsync is off, so a power failure loses commits or the database: set it on")
        if full_page_writes == "off":
            found.append(
                "full_page_writes is off, so a power failure may damage pages unless the file system writes them whole:"
                " set it on"
            )
        behind = [
            name or "one without a name"
            for name, state in await database.execute(STANDBYS)
            if state == "async" or (state is None and not listed)
        ]
        if behind:
            found.append(
                f"standbys that commits do not wait for ({', '.join(behind)}) lack the last ones if they are promoted: "
                "list them in synchronous_standby_names, or never promote them"
            )
        return found

    async def _mark(self, database: Database) -> None:
        await database.execute(f"SELECT set_config('{MARK}', 'begun', true)")  # until the transaction ends

    async def _is_marked(self, database: Database) -> bool:
        ((mark,),) = await database.execute(f"SELECT current_setting('{MARK}', true)")
        return bool(mark == "begun")

    def _is_missing_table(self, error: BaseException) -> bool:
        return UNDEFINED_TABLE in (getattr(error, "sqlstate", None), getattr(error, "pgcode", None))


class SqliteLog(SqlLog):
    """Log in SQLite 3.35 or newer, over a connection of the sqlite3 module, SQLAlchemy or Django.

    Its transactions are durable once committed: it sets the connection's `PRAGMA synchronous` to EXTRA, and refuses a
    journal in memory, or none.
    """

    kind = SQLITE

    async def _open(self, database: Database) -> None:
        database.require_free()
        await self._make_durable(database)
        await database.begin()
        # At once exclusive to writers: a transaction that has read first could not be upgraded.
        await self._execute(database, f"UPDATE {self._table} SET token = NULL WHERE FALSE")

    async def _make_durable(self, database: Database) -> None:
        ((journal,),) = await database.execute("PRAGMA journal_mode")
        if journal in ("memory", "off"):
            raise MisuseError(
                f"with PRAGMA journal_mode = {journal} a crash may damage the database or lose the order: use WAL or "
                "DELETE, in a file"
            )
        # FULL would do with a WAL. With another journal, only EXTRA syncs the directory from which it is deleted.
        if await database.execute("PRAGMA synchronous") == [(SYNCHRONOUS_EXTRA,)]:
            return
        try:
            await database.execute(f"PRAGMA synchronous = {SYNCHRONOUS_EXTRA}")
        except Exception as error:
            raise MisuseError(
                f"PRAGMA synchronous cannot be set to EXTRA ({error}): set it when the connection is made"
            ) from error

    async def _mark(self, database: Database) -> None:
        await database.execute(f"SAVEPOINT {SAVEPOINT}")

    async def _is_marked(self, database: Database) -> bool:
        try:
            await database.execute(f"RELEASE {SAVEPOINT}")
        except Exception as error:  # the library's
            if "no such savepoint" in str(error):
                return False
            raise
        return True

    def _is_missing_table(self, error: BaseException) -> bool:
        return str(error).startswith("no such table")
