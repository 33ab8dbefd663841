"""Logs of prepared transactions: one row per transactional id, in the database that the application commits to.

The row's generation fences: a session that has claimed the id makes every earlier session's `record` fail, so a slow
predecessor cannot commit a transaction to the database that its successor has decided to abort.
"""

from __future__ import annotations

import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, NoReturn, Protocol, get_args

from fencepost.two_phase.tokens import Fenced, MisuseError, NeedsRecovery, Token, WeakDatabase

DEFAULT_TABLE = "fencepost_prepared"
SAVEPOINT = "fencepost_begun"
MARK = "fencepost.transaction"
SYNCHRONOUS_EXTRA = 3
IDLE = 0  # libpq's PQTRANS_IDLE
UNDEFINED_TABLE = "42P01"
CLOSED = "the connection to the database is closed: connect again, call recover and make another producer"
IN_PROGRESS = (
    "the connection has a transaction in progress, perhaps begun by a SELECT: commit it or roll it back before, or "
    "move its statements into the block"
)
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


class PreparedLog(Protocol):
    """A database's part of a two-phase commit. Nothing here commits: the caller does.

    Every method raises MisuseError for a connection or a table that cannot be used, with the remedy.
    """

    def claim(self, connection: Any, transactional_id: str) -> tuple[int, Token | None]:
        """Take over an id: returns the new generation, and the token of a predecessor that is not known to have ended.

        Once this is committed, no earlier session can record or clear a token.
        """

    def hold(self, connection: Any, generation: int, transactional_id: str) -> None:
        """Let no later session claim the id until the database's transaction ends. Raises Fenced."""

    def begin(self, connection: Any, generation: int, transactional_id: str) -> None:
        """Begin the database transaction of the application's changes.

        Raises Fenced, and NeedsRecovery if the token of an earlier transaction is still there.
        """

    def record(self, connection: Any, generation: int, token: Token) -> None:
        """Store a token with the application's own changes, after `begin`. Raises Fenced: roll back then.

        Raises MisuseError if the transaction that `begin` has begun was ended meanwhile.
        """

    def clear(self, connection: Any, generation: int, transactional_id: str) -> None:
        """Remove the token of a transaction that has ended, before the next one begins. Raises Fenced.

        Clients of transaction version 1 keep their pair: a token that stays would name their next transaction, too.
        """


class _SqlLog(ABC):
    """The statements, for a DB-API connection.

    placeholder: the driver's mark of a parameter. locking: suffix that makes a SELECT lock its rows, if the database
    needs one. made_durable: a value that each statement that writes returns too, and that makes the commit of its
    transaction durable even if the database's default is not.
    """

    placeholder: str
    locking = ""
    made_durable = "1"

    def __init__(self, table: str = DEFAULT_TABLE, *, weak: Weak = "warn") -> None:
        """weak: the answer of `create` and `claim` to a database whose settings let a failure lose commits."""
        if not _TABLE.fullmatch(table):
            raise ValueError(f"not a name of a table: {table!r}")
        if weak not in get_args(Weak):
            raise ValueError(f"weak is one of {', '.join(get_args(Weak))}; got {weak!r}")
        self._table = table
        self._weak = weak

    def create(self, connection: Any) -> None:
        """Create the table unless it is there. Raises MisuseError, or warns, as `claim` does."""
        self._look(connection)
        self._execute(
            connection,
            f"CREATE TABLE IF NOT EXISTS {self._table} "
            "(transactional_id text PRIMARY KEY, generation bigint NOT NULL, token text)",
        )

    def claim(self, connection: Any, transactional_id: str) -> tuple[int, Token | None]:
        self._open(connection)
        self._look(connection)
        cursor = self._execute(
            connection,
            f"INSERT INTO {self._table} AS prepared (transactional_id, generation) VALUES (?, 1) "
            "ON CONFLICT (transactional_id) DO UPDATE SET generation = prepared.generation + 1 "
            f"RETURNING generation, token, {self.made_durable}",
            transactional_id,
        )
        generation, token, _ = cursor.fetchone()
        return generation, None if token is None else Token.parse(token)

    def hold(self, connection: Any, generation: int, transactional_id: str) -> None:
        self._open(connection)
        row = self._execute(
            connection,
            f"SELECT generation FROM {self._table} WHERE transactional_id = ?{self.locking}",
            transactional_id,
        ).fetchone()
        if row is None or row[0] != generation:
            self._refuse(row, generation, transactional_id, None)

    def begin(self, connection: Any, generation: int, transactional_id: str) -> None:
        self._open(connection)
        row = self._execute(
            connection, f"SELECT generation, token FROM {self._table} WHERE transactional_id = ?", transactional_id
        ).fetchone()
        if row is None or row[0] != generation:
            self._refuse(row, generation, transactional_id, None)
        if row[1] is not None:
            token = Token.parse(row[1])
            raise NeedsRecovery(
                f"the database has committed {token}, and nobody knows yet whether its records are: call recover and "
                "make another producer",
                token,
            )
        self._mark(connection)

    def record(self, connection: Any, generation: int, token: Token) -> None:
        if not self._is_marked(connection):
            raise MisuseError(
                f"the transaction that the database had begun for {token} was ended inside the block: leave commit and "
                "rollback to transaction()",
                token,
            )
        self._update(connection, generation, token.transactional_id, str(token), token)

    def clear(self, connection: Any, generation: int, transactional_id: str) -> None:
        self._open(connection)
        self._update(connection, generation, transactional_id, None, None)

    def _update(
        self, connection: Any, generation: int, transactional_id: str, text: str | None, token: Token | None
    ) -> None:
        cursor = self._execute(
            connection,
            f"UPDATE {self._table} SET token = ? WHERE transactional_id = ? AND generation = ? "
            f"RETURNING {self.made_durable}",
            text,
            transactional_id,
            generation,
        )
        if not cursor.fetchall():
            row = self._execute(
                connection, f"SELECT generation FROM {self._table} WHERE transactional_id = ?", transactional_id
            ).fetchone()
            self._refuse(row, generation, transactional_id, token)

    def _refuse(self, row: Any, generation: int, transactional_id: str, token: Token | None) -> NoReturn:
        """Raise the error why a session may not continue. row: the table's row of its id, or None."""
        if row is None:
            raise MisuseError(
                f"{transactional_id} was never claimed in this database: call recover first, with the same log", token
            )
        if row[0] < generation:
            raise MisuseError(
                f"this database has never given generation {generation} of {transactional_id}, its latest is {row[0]}: "
                "use what recover has returned, with the same database",
                token,
            )
        raise Fenced(
            f"another session has claimed {transactional_id}: this one can commit nothing any more, end it", token
        )

    def _look(self, connection: Any) -> None:
        """Refuse a database whose settings let a failure lose commits, or warn of it, as the log was told."""
        weaknesses = () if self._weak == "accept" else self._weaknesses(connection)
        if not weaknesses:
            return
        text = f"a failure may lose what this database has committed: {'; '.join(weaknesses)}"
        if self._weak == "refuse":
            raise MisuseError(f"{text}. Mend it, or make the log with weak='warn'")
        warnings.warn(f"{text}. The log's argument `weak` refuses or accepts it", WeakDatabase, stacklevel=3)

    def _weaknesses(self, connection: Any) -> Sequence[str]:
        """The settings of a database by which a failure may lose commits, each with its remedy."""
        return ()

    @abstractmethod
    def _open(self, connection: Any) -> None:
        """Check that a connection can be used and has no transaction; the next statement begins one."""

    @abstractmethod
    def _mark(self, connection: Any) -> None:
        """Mark the transaction in progress in a way that its end removes."""

    @abstractmethod
    def _is_marked(self, connection: Any) -> bool:
        """Whether the transaction in progress is the one that was marked."""

    @abstractmethod
    def _is_missing_table(self, error: Exception) -> bool:
        """Whether a statement failed because the table does not exist."""

    def _execute(self, connection: Any, statement: str, *parameters: object) -> Any:
        cursor = connection.cursor()
        try:
            cursor.execute(statement.replace("?", self.placeholder), parameters)
        except Exception as error:
            if self._is_missing_table(error):
                raise MisuseError(
                    f"this database has no table {self._table}: call the log's create(connection) once, and commit"
                ) from error
            raise
        return cursor


class PostgresLog(_SqlLog):
    """Log in PostgreSQL 9.6 or newer, over a connection of psycopg 3 or psycopg2 without autocommit.

    Its transactions are durable once committed: it raises `synchronous_commit` to `on` for each, unless that is higher.
    `create` and `claim` look at fsync, full_page_writes and the standbys that are connected; a standby is refused.
    """

    placeholder = "%s"
    locking = " FOR UPDATE"
    made_durable = (
        "CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') "
        "THEN set_config('synchronous_commit', 'on', true) END"
    )

    def _open(self, connection: Any) -> None:
        if connection.closed:
            raise MisuseError(CLOSED)
        if connection.autocommit:
            raise MisuseError("the connection commits each statement by itself: set autocommit to False")
        if connection.info.transaction_status != IDLE:
            raise MisuseError(IN_PROGRESS)

    def _weaknesses(self, connection: Any) -> list[str]:
        (is_standby, fsync, full_page_writes, listed) = self._execute(
            connection,
            "SELECT pg_is_in_recovery(), current_setting('fsync'), current_setting('full_page_writes'), "
            "current_setting('synchronous_standby_names')",
        ).fetchone()
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
        standbys = self._execute(connection, STANDBYS).fetchall()
        behind = [
            name or "one without a name"
            for name, state in standbys
            if state == "async" or (state is None and not listed)
        ]
        if behind:
            found.append(
                f"standbys that commits do not wait for ({', '.join(behind)}) lack the last ones if they are promoted: "
                "list them in synchronous_standby_names, or never promote them"
            )
        return found

    def _mark(self, connection: Any) -> None:
        self._execute(connection, f"SELECT set_config('{MARK}', 'begun', true)")  # until the transaction ends

    def _is_marked(self, connection: Any) -> bool:
        (mark,) = self._execute(connection, f"SELECT current_setting('{MARK}', true)").fetchone()
        return bool(mark == "begun")

    def _is_missing_table(self, error: Exception) -> bool:
        return UNDEFINED_TABLE in (getattr(error, "sqlstate", None), getattr(error, "pgcode", None))


class SqliteLog(_SqlLog):
    """Log in SQLite 3.35 or newer, over a connection of the sqlite3 module.

    Its transactions are durable once committed: it sets the connection's `PRAGMA synchronous` to EXTRA, and refuses a
    journal in memory, or none.
    """

    placeholder = "?"

    def _open(self, connection: Any) -> None:
        from sqlite3 import ProgrammingError

        if isinstance(getattr(connection, "autocommit", None), bool):
            raise MisuseError("connect with sqlite3.connect(path), without autocommit: the log begins transactions")
        try:
            if connection.in_transaction:
                raise MisuseError(IN_PROGRESS)
            self._make_durable(connection)
            # At once exclusive to writers: a transaction that has read first could not be upgraded.
            connection.execute("BEGIN IMMEDIATE")
        except ProgrammingError as error:
            if "closed" in str(error):
                raise MisuseError(CLOSED) from error
            raise

    def _make_durable(self, connection: Any) -> None:
        (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
        if journal in ("memory", "off"):
            raise MisuseError(
                f"with PRAGMA journal_mode = {journal} a crash may damage the database or lose the order: use WAL or "
                "DELETE, in a file"
            )
        # FULL would do with a WAL. With another journal, only EXTRA syncs the directory from which it is deleted.
        connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS_EXTRA}")

    def _mark(self, connection: Any) -> None:
        connection.execute(f"SAVEPOINT {SAVEPOINT}")

    def _is_marked(self, connection: Any) -> bool:
        from sqlite3 import OperationalError

        try:
            connection.execute(f"RELEASE {SAVEPOINT}")
        except OperationalError:
            return False
        return True

    def _is_missing_table(self, error: Exception) -> bool:
        return str(error).startswith("no such table")
