"""Logs of prepared transactions: one row per transactional id, in the database that the application commits to.

The row's generation fences: a session that has claimed the id makes every earlier session's `record` fail, so a slow
predecessor cannot commit to the database what its successor has decided to abort.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

from fencepost.two_phase.tokens import Fenced, Token

DEFAULT_TABLE = "fencepost_prepared"
_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")


class PreparedLog(Protocol):
    """What a two-phase commit needs of a database. Nothing here commits: the caller does."""

    def claim(self, connection: Any, transactional_id: str) -> tuple[int, Token | None]:
        """Take over an id: returns the new generation, and the token of a predecessor that is not known to have ended.

        Once this is committed, no earlier session can record or clear a token.
        """

    def begin(self, connection: Any) -> None:
        """Begin the database transaction of the application's changes. Raises ValueError for one that has no end."""

    def record(self, connection: Any, generation: int, token: Token) -> None:
        """Store a token with the application's own changes. Raises Fenced: roll back then."""

    def clear(self, connection: Any, generation: int, transactional_id: str) -> None:
        """Remove the token of a transaction that has ended, before the next one begins. Raises Fenced.

        Clients of transaction version 1 keep their pair: a token that stays would name their next transaction, too.
        """


class _SqlLog:
    """The statements, for a DB-API connection. placeholder: of the driver's parameters."""

    placeholder: str

    def __init__(self, table: str = DEFAULT_TABLE) -> None:
        if not _TABLE.fullmatch(table):
            raise ValueError(f"not a name of a table: {table!r}")
        self._table = table

    def create(self, connection: Any) -> None:
        """Create the table unless it is there."""
        self._execute(
            connection,
            f"CREATE TABLE IF NOT EXISTS {self._table} "
            "(transactional_id text PRIMARY KEY, generation bigint NOT NULL, token text)",
        )

    def claim(self, connection: Any, transactional_id: str) -> tuple[int, Token | None]:
        self.begin(connection)
        cursor = self._execute(
            connection,
            f"INSERT INTO {self._table} AS prepared (transactional_id, generation) VALUES (?, 1) "
            "ON CONFLICT (transactional_id) DO UPDATE SET generation = prepared.generation + 1 "
            "RETURNING generation, token",
            transactional_id,
        )
        generation, token = cursor.fetchone()
        return generation, None if token is None else Token.parse(token)

    def record(self, connection: Any, generation: int, token: Token) -> None:
        self._update(connection, generation, token.transactional_id, str(token), token)

    def clear(self, connection: Any, generation: int, transactional_id: str) -> None:
        self.begin(connection)
        self._update(connection, generation, transactional_id, None, None)

    def _update(
        self, connection: Any, generation: int, transactional_id: str, text: str | None, token: Token | None
    ) -> None:
        cursor = self._execute(
            connection,
            f"UPDATE {self._table} SET token = ? WHERE transactional_id = ? AND generation = ?",
            text,
            transactional_id,
            generation,
        )
        if cursor.rowcount != 1:
            raise Fenced(f"another session has claimed {transactional_id}: this one must not commit", token)

    def begin(self, connection: Any) -> None:
        """Check that the driver begins a transaction with the next statement."""
        if getattr(connection, "autocommit", False) is True:
            raise ValueError("the connection commits each statement by itself: set autocommit to False")

    def _execute(self, connection: Any, statement: str, *parameters: object) -> Any:
        cursor = connection.cursor()
        cursor.execute(statement.replace("?", self.placeholder), parameters)
        return cursor


class PostgresLog(_SqlLog):
    """Log in PostgreSQL 9.5 or newer, over a connection of psycopg 3 or psycopg2 without autocommit."""

    placeholder = "%s"


class SqliteLog(_SqlLog):
    """Log in SQLite 3.35 or newer, over a connection of the sqlite3 module."""

    placeholder = "?"

    def begin(self, connection: Any) -> None:
        # At once exclusive to writers: a transaction that has read first could not be upgraded.
        if not connection.in_transaction:
            connection.execute("BEGIN IMMEDIATE")
