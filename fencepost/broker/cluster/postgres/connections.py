"""Connections to the PostgreSQL of a cluster: its address, its settings per session, and its errors."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit
from weakref import WeakKeyDictionary, WeakSet

import asyncpg

from fencepost.broker.storage.disk import NoRoomError, StorageError

Connection: TypeAlias = asyncpg.Connection

DEFAULT_SCHEMA: Final = "fencepost"
SCHEMES: Final = ("postgresql", "postgres")
_SCHEMA_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,39}")

DEFAULT_PORT: Final = 5432
CONNECT_TIMEOUT_S: Final = 5.0
STATEMENT_TIMEOUT_S: Final = 10.0
"""Bound of the time of a statement, unless its connection sets a shorter one."""
IDLE_IN_TRANSACTION_S: Final = 2.0
"""PostgreSQL ends a session that holds locks and sends nothing: its process may be stopped or gone."""
KEEPALIVE_S: Final = 5
"""After this silence PostgreSQL asks whether the other machine is still there, and ends the session after 3 questions
without an answer."""

SILENCE_S: Final = 3
"""After this silence the other machine, or the way to it, is gone: this end gives the connection up. The system's own
limit for bytes without a confirmation is a quarter of an hour."""

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

_WAITS_FOR_STANDBY: Final = "SyncRep"
"""The beginning of the names of PostgreSQL's functions that wait for a standby; its messages may be translated."""
_BEHIND: Final = "SELECT pg_logical_emit_message(true, 'fencepost', '')"
"""The least that a commit waits for: one that only reads, or writes no WAL, does not wait for a standby."""
_TIMELINE: Final = "SELECT ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int"
_SETTINGS: Final = """
SELECT set_config(name, value, false) FROM unnest($1::text[], $2::text[]) AS one (name, value)
UNION ALL
SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')
"""
"""Not parameters of the start: a pooler such as PgBouncer refuses those. A crash loses commits that `off` acknowledged,
a fail-over to a synchronous standby those of `local`, and one whose machine failed, too, those of `remote_write`."""

_uncertain: WeakSet[Connection] = WeakSet()
"""Connections on which PostgreSQL has ended the wait of a commit for its standby."""
_servers: WeakKeyDictionary[Connection, tuple[str, int]] = WeakKeyDictionary()
"""Of an address with several servers: its URL, and the number of the connection's server."""
_first_server: dict[str, int] = {}
"""By the URL of an address: the server to which to connect first."""
_timelines: dict[str, int] = {}
"""By the URL of an address: the highest timeline that a server of it was on."""


class UnavailableError(StorageError):
    """PostgreSQL cannot be reached now, or has not answered. It may have executed the statement.

    The caller may retry; before it repeats a change, it must check for its effect, unless the change is idempotent.
    """


class LeaseLostError(StorageError):
    """The lease of this node is lost, and other nodes may lead its partitions: it must stop answering as a leader."""


_NEXT_SERVER: Final = (
    UnavailableError,
    asyncpg.CannotConnectNowError,
    asyncpg.PostgresConnectionError,
    asyncpg.TargetServerAttributeNotMatched,
    OSError,
)
"""Errors of one of several servers, after which the next one is tried."""


@dataclass(frozen=True)
class PostgresAddress:
    """Where a cluster's PostgreSQL is. url: with its password, so it is shown nowhere; shown: host and database.

    schema: holds the tables of one cluster; `search_path` in the URL, else `fencepost`. hosts: names and addresses, and
    directories of sockets. servers: host and port of each, if there are several.
    """

    url: str = field(repr=False)
    shown: str
    schema: str = DEFAULT_SCHEMA
    hosts: tuple[str, ...] = ("localhost",)
    servers: tuple[tuple[str, int], ...] = ()

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
    try:
        servers = tuple((_host(one), _port(one)) for one in hosts.split(",")) if "," in hosts else ()
    except ValueError:
        raise ValueError(f"a port of {hosts} is no number of a port; {form}") from None
    return PostgresAddress(rest, shown, schema, tuple(_host(one) for one in shown_hosts.split(",")), servers)


def _port(shown: str) -> int:
    """Raises ValueError."""
    return urlsplit(f"//{shown}").port or DEFAULT_PORT


def _host(shown: str) -> str:
    """The host of a host and a port, which may be left out."""
    if shown.upper().startswith(("/", "%2F")):  # a directory, whose letters keep their case
        return unquote(shown.partition(":")[0])
    return unquote(urlsplit(f"//{shown}").hostname or "localhost")


class _WatchedConnection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg has no types
    """A connection that is lost soon when the other machine vanishes without a word."""

    __slots__ = ()

    def give_up_after_silence(self) -> None:
        used: Any = self._transport.get_extra_info("socket")
        if used is None or used.family not in (socket.AF_INET, socket.AF_INET6):
            return
        used.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            ("TCP_KEEPIDLE", SILENCE_S - 1),
            ("TCP_KEEPINTVL", 1),
            ("TCP_KEEPCNT", SILENCE_S),
            ("TCP_USER_TIMEOUT", SILENCE_S * 1000),
        ):
            if hasattr(socket, option):  # not every system has each
                used.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


async def connect(
    address: PostgresAddress,
    *,
    application_name: str,
    statement_timeout_s: float = STATEMENT_TIMEOUT_S,
    answer_timeout_s: float | None = None,
) -> Connection:
    """Open a connection whose statements find the cluster's tables without naming the schema.

    application_name: names the node's incarnation, so that another node can end its sessions.
    statement_timeout_s: time limit at PostgreSQL, which leaves out the wait of a commit for a standby.
    answer_timeout_s:    time limit of a statement here, with that wait.
    A commit on it is acknowledged when it is durable, independent of the server's default.
    Raises UnavailableError; StorageError if a retry would not help.
    """
    if asyncio.current_task() is None:
        # The first step of an eager coroutine, on Python 3.11: asyncpg's time-outs need a task.
        await asyncio.sleep(0)
    settings = {
        "search_path": address.schema,
        "statement_timeout": _milliseconds(statement_timeout_s),
        "idle_in_transaction_session_timeout": _milliseconds(IDLE_IN_TRANSACTION_S),
        "tcp_keepalives_idle": str(KEEPALIVE_S),
        "tcp_keepalives_interval": str(KEEPALIVE_S),
        "tcp_keepalives_count": "3",
        "tcp_user_timeout": _milliseconds(4 * KEEPALIVE_S),
        "timezone": "UTC",
    }
    with translated(address):
        connection = await _open(address, application_name, answer_timeout_s)
        try:
            connection.give_up_after_silence()
            _require_version(connection.get_server_version(), address)
            connection.add_log_listener(_noticed)
            await connection.fetch(_SETTINGS, list(settings), list(settings.values()))
        except BaseException:
            connection.terminate()
            raise
    return connection


async def _open(address: PostgresAddress, application_name: str, answer_timeout_s: float | None) -> Connection:
    """Connect to the server that takes writes; each of several has CONNECT_TIMEOUT_S. Raises errors of asyncpg."""
    if not address.servers:
        return await _open_one(address, application_name, answer_timeout_s)
    count = len(address.servers)
    first = _first_server.get(address.url, 0)
    is_first_time = address.url not in _timelines  # then all are asked, as an old primary may live on
    chosen: Connection | None = None
    failure: Exception | None = None
    try:
        for number in ((first + step) % count for step in range(count)):
            try:
                opened = await _open_server(address, number, application_name, answer_timeout_s)
            except _NEXT_SERVER as error:
                failure = error if isinstance(error, UnavailableError) else failure or error
                continue
            if chosen is not None:
                chosen.terminate()
            chosen = opened
            _first_server[address.url] = number
            _servers[chosen] = address.url, number
            if not is_first_time:
                break
    except BaseException:
        if chosen is not None:
            chosen.terminate()
        raise
    if chosen is not None:
        return chosen
    assert failure is not None
    raise failure


async def _open_server(
    address: PostgresAddress, number: int, application_name: str, answer_timeout_s: float | None
) -> Connection:
    """Connect to one of several servers, unless its timeline is behind one that was seen. Raises _NEXT_SERVER."""
    connection = await _open_one(address, application_name, answer_timeout_s, *address.servers[number])
    try:
        timeline = await connection.fetchval(_TIMELINE, timeout=CONNECT_TIMEOUT_S)
        if timeline < _timelines.get(address.url, 0):
            raise UnavailableError(
                f"PostgreSQL at {address.shown}: server {number + 1} is on timeline {timeline}, from which another one "
                "has taken over. Stop that server"
            )
    except BaseException:
        connection.terminate()
        raise
    _timelines[address.url] = timeline
    return connection


async def _open_one(
    address: PostgresAddress,
    application_name: str,
    answer_timeout_s: float | None,
    host: str | None = None,
    port: int | None = None,
) -> Connection:
    return await asyncpg.connect(
        address.url,
        host=host,
        port=port,
        timeout=CONNECT_TIMEOUT_S,
        command_timeout=answer_timeout_s,
        connection_class=_WatchedConnection,
        target_session_attrs="read-write",
        server_settings={"application_name": application_name},
    )


def drop(connection: Connection) -> None:
    """End a connection without waiting for its server, which may not answer: another server is asked first then."""
    connection.terminate()
    url, number = _servers.pop(connection, ("", 0))
    if url and _first_server[url] == number:
        _first_server[url] = number + 1


# Commits that a synchronous standby has


def _noticed(connection: Connection, message: asyncpg.PostgresLogMessage) -> None:
    """Note a commit that PostgreSQL reports as done although its wait for a standby was ended by an administrator."""
    if (message.server_source_function or "").startswith(_WAITS_FOR_STANDBY):
        _uncertain.add(connection)


def require_certain(connection: Connection, address: PostgresAddress) -> None:
    """Require that the commits on a connection have waited for a standby, where they should have. Raises
    UnavailableError: whether they count is not known before `wait_for_standby` has succeeded on another connection."""
    if connection in _uncertain:
        raise UnavailableError(
            f"PostgreSQL at {address.shown} has ended the wait of a commit for its synchronous standby: a fail-over "
            "may lose what was committed"
        )


async def wait_for_standby(connection: Connection, address: PostgresAddress) -> None:
    """Wait until a synchronous standby has all that this connection can have read.

    A row may be read that only this server has: its commit's wait was ended, or the server has restarted meanwhile.
    Raises UnavailableError, or an error of asyncpg.
    """
    await connection.execute(_BEHIND)
    require_certain(connection, address)


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
    if isinstance(error, ssl.SSLCertVerificationError):
        return UnavailableError(
            f"PostgreSQL at {address.shown} has a certificate that is refused: {error.verify_message.rstrip('.')}. "
            "Name the host in fencepost.cluster.url as the certificate does, its authority in sslrootcert, or renew it"
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
