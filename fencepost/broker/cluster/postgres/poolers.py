"""Poolers between a broker and PostgreSQL: one that gives each transaction another session is refused."""

from __future__ import annotations

from typing import Final

import asyncpg

from fencepost.broker.cluster.postgres.connections import (
    CONNECT_TIMEOUT_S,
    Connection,
    PostgresAddress,
    connect,
    translated,
)
from fencepost.broker.storage.disk import StorageError

NAME: Final = "fencepost session check"
ROUNDS: Final = 3
"""A pooler may give a client the session of before by chance."""
_OF_OTHERS: Final = (
    asyncpg.InvalidSQLStatementNameError,  # a prepared statement is missing
    asyncpg.DuplicatePreparedStatementError,
)
_NO_TRANSACTIONS: Final = "statement pooling mode"
"""In PgBouncer's words for a transaction in statement mode."""


async def require_own_sessions(address: PostgresAddress) -> None:
    """Refuse a pooler whose clients share sessions between transactions. Raises StorageError."""
    try:
        one = await connect(address, application_name=NAME)
        try:
            other = await connect(address, application_name=NAME)
            try:
                with translated(address):
                    keeps = [await _keeps_setting(one, other, str(number)) for number in range(ROUNDS)]
            finally:
                other.terminate()
        finally:
            one.terminate()
    except StorageError as error:
        if isinstance(error.__cause__, _OF_OTHERS) or _NO_TRANSACTIONS in str(error):
            raise _refused(address, str(error.__cause__)) from error
        raise
    if not all(keeps):
        raise _refused(address, "a setting of a session was lost between two transactions")


async def _keeps_setting(one: Connection, other: Connection, value: str) -> bool:
    """Whether a connection has its session for itself while another one is in a transaction."""
    await one.execute(f"SET fencepost.session_check = '{value}'")
    async with other.transaction():
        await other.execute("SELECT")
        found = await one.fetchval("SELECT current_setting('fencepost.session_check', true)", timeout=CONNECT_TIMEOUT_S)
    return bool(found == value)


def _refused(address: PostgresAddress, reason: str) -> StorageError:
    return StorageError(
        f"PostgreSQL at {address.shown} is behind a pooler, such as PgBouncer, in transaction or statement mode "
        f"({reason}): brokers need sessions of their own. Set pool_mode = session, or name PostgreSQL itself in "
        "fencepost.cluster.url"
    )
