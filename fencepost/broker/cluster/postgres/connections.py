"""Connections to the PostgreSQL of a cluster: its address, its settings per session, and its errors."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

import asyncpg

from fencepost.broker.storage.disk import NoRoomError, StorageError

Connection: TypeAlias = asyncpg.Connection

DEFAULT_SCHEMA: Final = "fencepost"
SCHEMES: Final = ("postgresql", "postgres")
_SCHEMA_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,39}")

CONNECT_TIMEOUT_S: Final = 5.0
STATEMENT_TIMEOUT_S: Final = 10.0
"""Bound of the time of a statement, unless its connection sets a shorter one."""
IDLE_IN_TRANSACTION_S: Final = 2.0
"""PostgreSQL ends a session that holds locks and sends nothing: its process may be stopped or gone."""
KEEPALIVE_S: Final = 5
"""After this silence PostgreSQL asks whether the other machine is still there, and ends the session after 3 questions
without an answer."""

CONNECTIONS_COUNT: Final = 6
"""Of one broker: leases, metadata, flushes, sealed segments, the sweep, the tails of partitions that come to it."""

_PASSING: Final = (
    "08",  # connection exceptions
    "25006",  # read-only: a standby, perhaps about to be promoted
    "25P03",  # idle in a transaction for too long
    "40",  # rolled back: serialization failure, deadlock
    "53300",  # too many connections
    "55P03",  # lock not available
    "57",  # cancelled, shutting down, starting up, database dropped
)
"""SQLSTATEs, or their beginnings, after which the same statement may succeed."""
_FULL: Final = "53100"
_REMEDIES: Final = (
    ("28", "Check the user and its password, in ~/.pgpass or PGPASSWORD, and the server's pg_hba.conf"),
    ("3D", "Create the database, or name another in fencepost.cluster.url"),
    ("42501", "Give the role the right: it has to own the schema, or to have CREATE on the database"),
    ("53300", f"Raise its max_connections: each broker has up to {CONNECTIONS_COUNT}"),
)
"""The operator's remedy for a SQLSTATE, by its first characters."""
OLDEST_MAJOR_VERSION: Final = 13
"""Older ones lack functions that the tables need."""
CONNECTION_LOST: Final = (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""The errors of asyncpg for a lost connection; the second if it is lost between two messages."""


class UnavailableError(StorageError):
    """PostgreSQL cannot be reached now, or has not answered. It may have executed the statement.

    The caller may retry; before it repeats a change, it must check for its effect, unless the change is idempotent.
    """


class LeaseLostError(StorageError):
    """The lease of this node is lost, and other nodes may lead its partitions: it must stop answering as a leader."""


@dataclass(frozen=True)
class PostgresAddress:
    """Where a cluster's PostgreSQL is. url: with its password, so it is shown nowhere; shown: host and database.

    schema: holds the tables of one cluster; `search_path` in the URL, else `fencepost`. hosts: names and addresses, and
    directories of sockets.
    """

    url: str = field(repr=False)
    shown: str
    schema: str = DEFAULT_SCHEMA
    hosts: tuple[str, ...] = ("localhost",)

    @property
    def channel(self) -> str:
        """The channel on which changes are announced."""
        return f"{self.schema}_changes"


def parse_address(url: str) -> PostgresAddress:
    """Parse `postgresql://user:password@host:port/database?option=value`. Raises ValueError, without the password.

    Several hosts may be named, separated by commas: the one that accepts writes is used.
    """
    form = "expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError:
        raise ValueError(f"it cannot be read as a URL; {form}") from None
    if parts.scheme not in SCHEMES:
        raise ValueError(f"it begins with {parts.scheme + '://' if parts.scheme else 'no scheme'!r}; {form}")
    schema = options.pop("search_path", DEFAULT_SCHEMA)
    if not _SCHEMA_NAME.fullmatch(schema):
        raise ValueError(
            f"search_path names the schema {schema!r}; expected one name of at most 40 lower-case letters, digits and _"
        )
    _, _, hosts = parts.netloc.rpartition("@")
    shown_hosts = hosts or options.get("host", "localhost")
    database = parts.path.removeprefix("/") or options.get("dbname", options.get("database", ""))
    shown = f"{shown_hosts}/{database}" if schema == DEFAULT_SCHEMA else f"{shown_hosts}/{database}, schema {schema}"
    rest = urlunsplit((*parts[:3], urlencode(options, quote_via=quote), ""))
    return PostgresAddress(rest, shown, schema, tuple(_host(one) for one in shown_hosts.split(",")))


def _host(shown: str) -> str:
    """The host of a host and a port, which may be left out."""
    host = shown if shown.startswith("/") else urlsplit(f"//{shown}").hostname
    return unquote(host or "localhost")


async def connect(
    address: PostgresAddress, *, application_name: str, statement_timeout_s: float = STATEMENT_TIMEOUT_S
) -> Connection:
    """Open a connection whose statements find the cluster's tables without naming the schema.

    application_name: names the node's incarnation, so that another node can end its sessions.
    A commit on it is acknowledged when it is durable, independent of the server's default.
    Raises UnavailableError; StorageError if a retry would not help.
    """
    if asyncio.current_task() is None:
        # The first step of an eager coroutine, on Python 3.11: asyncpg's time-outs need a task.
        await asyncio.sleep(0)
    with translated(address):
        connection = await asyncpg.connect(
            address.url,
            timeout=CONNECT_TIMEOUT_S,
            target_session_attrs="read-write",
            server_settings={
                "application_name": application_name,
                "search_path": address.schema,
                "statement_timeout": _milliseconds(statement_timeout_s),
                "idle_in_transaction_session_timeout": _milliseconds(IDLE_IN_TRANSACTION_S),
                "tcp_keepalives_idle": str(KEEPALIVE_S),
                "tcp_keepalives_interval": str(KEEPALIVE_S),
                "tcp_keepalives_count": "3",
                "timezone": "UTC",
            },
        )
        try:
            _require_version(connection.get_server_version(), address)
            # A crash loses commits that `off` acknowledged; a fail-over to a synchronous standby, those of `local`.
            if await connection.fetchval("SELECT current_setting('synchronous_commit')") in ("off", "local"):
                await connection.execute("SET synchronous_commit = on")
        except BaseException:
            connection.terminate()
            raise
    return connection


@contextmanager
def translated(address: PostgresAddress) -> Iterator[None]:
    """Raise the errors of asyncpg as those of `storage_error`."""
    try:
        yield
    except StorageError:
        raise
    except (asyncpg.PostgresError, *CONNECTION_LOST, ValueError) as error:
        raise storage_error(error, address) from error


def storage_error(error: BaseException, address: PostgresAddress) -> StorageError:
    """Translate an error of asyncpg: UnavailableError, NoRoomError, or a StorageError that a retry does not cure."""
    reason = str(error).strip() or type(error).__name__
    if isinstance(error, TimeoutError):
        reason = "it has not answered in time"
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        reason += next((f". {remedy}" for beginning, remedy in _REMEDIES if state.startswith(beginning)), "")
        if state.startswith(_FULL):
            return NoRoomError(f"the disk of PostgreSQL at {address.shown} is full: {reason}")
        if state.startswith(_PASSING):
            return UnavailableError(f"PostgreSQL at {address.shown} does not answer: {reason}")
        return StorageError(f"PostgreSQL at {address.shown} refuses: {reason}")
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return UnavailableError(
            f"PostgreSQL at {address.shown} takes no writes: it is a standby, or default_transaction_read_only is on "
            "for the server, the database or the role. Name the primary, or switch that off"
        )
    if isinstance(error, CONNECTION_LOST) and not isinstance(error, asyncpg.DataError):
        return UnavailableError(f"PostgreSQL at {address.shown} cannot be reached: {reason}")
    return StorageError(f"PostgreSQL at {address.shown}: {reason}")


def _require_version(version: asyncpg.ServerVersion, address: PostgresAddress) -> None:
    """Raises StorageError."""
    if version.major < OLDEST_MAJOR_VERSION:
        raise StorageError(
            f"PostgreSQL at {address.shown} is version {version.major}.{version.minor}; a cluster needs "
            f"{OLDEST_MAJOR_VERSION} or later"
        )


def _milliseconds(seconds: float) -> str:
    return str(round(seconds * 1000))
