"""A resolver that asks a PostgreSQL database, by a claim: after it, the local transaction can no longer commit.

There are three ways, chosen by `claim` and `query`. Each is one READ COMMITTED transaction, and its commit is awaited
before the answer is given.

- `outcome`: a row of `fencepost_outcome` for each transaction. The application's local transaction inserts 'commit';
  the claim inserts 'abort' unless a row exists. The unique index lets the later of the two wait, and then conflict.
- `session`: the row of `fencepost.two_phase.PostgresLog`. The claim raises its generation, as a session does that
  takes over, so its writer can record no more token; the stored token means `commit`.
- `query`: a question of the application's own, read-only. It claims nothing, so no row means unknown.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final, LiteralString

try:
    import psycopg
    from psycopg import sql
    from psycopg.conninfo import conninfo_to_dict
except ImportError:
    raise ValueError("a resolver of type sql needs psycopg: pip install 'fencepost[check-back]'") from None

from fencepost.check_back.places import PLACES, TOKEN, filled
from fencepost.check_back.question import Answer, Question, ResolverUnreachable
from fencepost.check_back.settings import ResolverSettings

OUTCOME, SESSION = "outcome", "session"
OUTCOME_TABLE: Final = "fencepost_outcome"
SESSION_TABLE: Final = "fencepost_prepared"
LONGEST_DSN_BYTES: Final = 16 * 1024
LOCK_SHARE: Final = 0.5
"""Of timeout.ms, how long a claim waits for a local transaction. The rest is for connecting and committing."""

LOCK_NOT_AVAILABLE = "55P03"
CANNOT_HOLD = frozenset({LOCK_NOT_AVAILABLE, "22001", "22021", "22P05", "54000"})
"""The local transaction is running and has written its row; or the token is of a length or an alphabet that the
column does not have, so no row can have it. Clients choose their ids: such a one is no fault of the database."""
SHUT_DOWN = frozenset({"57P01", "57P02", "57P03", "08003", "08006"})
REMEDIES: Final = {
    "42P01": "has no table {table}; create it as docs/check-back.md says, or correct table",
    "42703": "lacks a column of {table}; create it as docs/check-back.md says",
    "42501": "refuses this user the right; GRANT {rights} ON {table} TO it",
    "42P10": "has no unique index on the tokens of {table}; make the column the primary key",
    "25006": "is read-only, as a standby is; name the primary in dsn.file, or ask by query",
    "22P02": "has a column of another type in {table}; make it text",
    "42804": "has a column of another type in {table}; make it text",
    "42883": "has a column of another type in {table}; make it text",
    "23502": "needs values for other columns of {table}; give them defaults",
    "23514": "refuses the claim's row by a check of {table}; allow the outcome 'abort'",
    "57014": "did not carry out the statement in time; look whether it is overloaded, or raise timeout.ms",
    "53300": "has no connection left; raise its max_connections, or lower concurrency",
}
"""By SQLSTATE, the error and the remedy."""

Connection = psycopg.AsyncConnection[tuple[Any, ...]]


class _LostError(Exception):
    """The server has closed the connection; whether it had executed the claim is unknown."""


class SqlResolver:
    """settings.options: `dsn.file`, whose text is a URI or `key=value` pairs of libpq, read again for each connection;
    `claim`, `table`, `key` or `query`."""

    def __init__(self, settings: ResolverSettings) -> None:
        self._name = settings.name
        self._timeout_s = settings.timeout_ms / 1000
        self._timeout_ms = settings.timeout_ms
        self._most_idle = settings.concurrency
        options = settings.options
        self._dsn_file = options["dsn.file"]
        claim = options.get("claim", OUTCOME)
        self._table = options.get("table", SESSION_TABLE if claim == SESSION else OUTCOME_TABLE)
        self._key = options.get("key", TOKEN)
        self._query = options.get("query")
        self._ask_by = self._claim_session if claim == SESSION else self._claim_outcome
        if self._query is not None:
            self._ask_by = self._ask_query
        self._idle: list[Connection] = []
        try:
            self._read_dsn()
        except ResolverUnreachable as error:
            raise ValueError(error.reason) from None

    async def ask(self, question: Question) -> Answer:
        if "\0" in question.token.transactional_id:
            return Answer.UNKNOWN  # no text of PostgreSQL has it, so no row
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._ask(question)
        except TimeoutError:
            pass
        # Not inside of except: psycopg closes a connection that it was making when nothing refers to it any more.
        raise self._unreachable(
            f"did not answer within {self._timeout_s:g} s; look whether it is overloaded, or raise timeout.ms"
        )

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    async def _ask(self, question: Question) -> Answer:
        while self._idle:
            try:
                return await self._ask_on(self._idle.pop(), question)
            except _LostError:
                pass  # while it was idle, as a rule; to claim again changes nothing
        try:
            return await self._ask_on(await self._connect(), question)
        except _LostError:
            raise self._unreachable("closed the connection; look whether it was restarted") from None

    async def _ask_on(self, connection: Connection, question: Question) -> Answer:
        """Ask on a connection, and keep it for another question if nothing went wrong. Raises _LostError."""
        is_good = False
        try:
            await self._set_limits(connection)
            answer = await self._ask_by(connection, question)
            # Not before the claim is durable: a claim that is lost decides nothing.
            await connection.commit()
            is_good = True
        except psycopg.Error as error:
            if error.sqlstate in CANNOT_HOLD:
                return Answer.UNKNOWN
            if connection.closed or error.sqlstate in SHUT_DOWN:
                raise _LostError from None
            raise self._unreachable(self._refused(error)) from None
        finally:
            if is_good and len(self._idle) < self._most_idle:
                self._idle.append(connection)
            else:
                await connection.close()
        return answer

    async def _set_limits(self, connection: Connection) -> None:
        """Bound each wait of the transaction, and make its commit durable, also if the database's default is not."""
        await connection.execute(
            "SELECT set_config('lock_timeout', %s, true), set_config('statement_timeout', %s, true),"
            " set_config('idle_in_transaction_session_timeout', %s, true),"
            " CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')"
            " THEN set_config('synchronous_commit', 'on', true) END",
            (f"{max(1, int(self._timeout_ms * LOCK_SHARE))}ms", f"{self._timeout_ms}ms", f"{self._timeout_ms}ms"),
        )

    async def _claim_outcome(self, connection: Connection, question: Question) -> Answer:
        key = filled(self._key, lambda name: str(PLACES[name](question)))
        await connection.execute(
            self._statement("INSERT INTO {} (token, outcome) VALUES (%s, 'abort') ON CONFLICT (token) DO NOTHING"),
            (key,),
        )
        # A statement of its own: it sees the row that another transaction committed while the claim waited for it.
        cursor = await connection.execute(self._statement("SELECT token, outcome FROM {} WHERE token = %s"), (key,))
        rows = await cursor.fetchall()
        if not rows:
            raise self._unreachable(
                f"did not keep the claim's row; look for triggers and row-level policies of {self._table}"
            )
        if len(rows) != 1 or rows[0][0] != key:
            raise self._unreachable(
                f"takes different tokens for the same; make {self._table}.token text, and the primary key"
            )
        return self._answer(rows[0][1], (Answer.COMMIT, Answer.ABORT))

    async def _claim_session(self, connection: Connection, question: Question) -> Answer:
        cursor = await connection.execute(
            self._statement("UPDATE {} SET generation = generation + 1 WHERE transactional_id = %s RETURNING token"),
            (question.token.transactional_id,),
        )
        row = await cursor.fetchone()
        if row is None:
            return Answer.UNKNOWN  # no session has ever claimed it, so perhaps its writer uses another database
        return Answer.COMMIT if row[0] == str(question.token) else Answer.ABORT

    async def _ask_query(self, connection: Connection, question: Question) -> Answer:
        assert self._query is not None
        query = filled(self._query.replace("%", "%%"), lambda name: f"%({name})s")
        values = {name: value(question) for name, value in PLACES.items()}
        # A cursor of the server's: a query with a million rows costs no memory here.
        async with connection.cursor(name="fencepost_outcome") as cursor:
            await cursor.execute(query, values)
            rows = await cursor.fetchmany(2)
        if not rows:
            return Answer.UNKNOWN
        if len(rows) > 1 or len(rows[0]) != 1:
            raise self._unreachable("answered the query with more than one row or column; let it give one outcome")
        return self._answer(rows[0][0], tuple(Answer))

    def _answer(self, outcome: object, expected: tuple[Answer, ...]) -> Answer:
        for answer in expected:
            if outcome == answer.value:
                return answer
        words = ", ".join(f"'{answer.value}'" for answer in expected)
        raise self._unreachable(f"has another outcome for it than {words}; correct the row")

    def _statement(self, text: LiteralString) -> sql.Composed:
        # Without quotes, so that case does not count, as in the statements of applications.
        return sql.SQL(text).format(sql.SQL(self._table))

    async def _connect(self) -> Connection:
        dsn = await asyncio.to_thread(self._read_dsn)
        try:
            connection = await psycopg.AsyncConnection.connect(dsn, prepare_threshold=None)
        except psycopg.Error as error:
            raise self._unreachable(
                f"cannot be connected to ({_redacted(error, dsn)}); start it, or correct dsn.file"
            ) from None
        try:
            await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
            if self._query is not None:
                await connection.set_read_only(True)
        except BaseException:
            await connection.close()
            raise
        return connection

    def _read_dsn(self) -> str:
        try:
            with open(self._dsn_file, encoding="utf-8") as file:
                dsn = file.read(LONGEST_DSN_BYTES).strip()
        except OSError as error:
            raise self._wrong_file(
                f"cannot be read ({(error.strerror or 'an error').lower()}); correct the path"
            ) from None
        except UnicodeDecodeError:
            dsn = ""
        try:
            is_whole = bool(conninfo_to_dict(dsn))
        except psycopg.ProgrammingError:  # its message has pieces of the text
            is_whole = False
        if not is_whole:
            raise self._wrong_file("holds no DSN; write one line such as postgresql://USER:PASSWORD@HOST/DATABASE")
        return dsn

    def _refused(self, error: psycopg.Error) -> str:
        """Describe an error and its remedy, by SQLSTATE: the message itself may hold data."""
        remedy = REMEDIES.get(error.sqlstate or "")
        if remedy is None:
            name = type(error).__name__
            remedy = f"refused the statement ({name}, SQLSTATE {error.sqlstate or 'none'}); look at its log"
        if self._query is not None:
            return remedy.format(table="the query's table", rights="SELECT")
        session = self._ask_by == self._claim_session
        return remedy.format(table=self._table, rights="SELECT, UPDATE" if session else "SELECT, INSERT")

    def _wrong_file(self, what: str) -> ResolverUnreachable:
        return ResolverUnreachable(f"resolver {self._name}: dsn.file: {self._dsn_file} {what}")

    def _unreachable(self, what: str) -> ResolverUnreachable:
        return ResolverUnreachable(f"resolver {self._name}: the database of {self._dsn_file} {what}")


def _redacted(error: psycopg.Error, dsn: str) -> str:
    """The server's or libpq's reason in one line, without any part of the DSN."""
    line = str(error).partition("\n")[0]
    reason = line.rpartition("failed: ")[2] or line
    for value in conninfo_to_dict(dsn).values():
        reason = re.sub(rf"(?<!\w){re.escape(str(value))}(?!\w)", "…", reason)
    return reason.strip()
