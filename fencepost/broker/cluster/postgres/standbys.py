"""Losses at a failure of PostgreSQL's machine: by settings of the server, and by standbys that may lack commits."""

from __future__ import annotations

from typing import Final

from fencepost.broker.cluster.postgres.connections import Connection, PostgresAddress, translated
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.storage.disk import StorageError

log = get_logger(__name__)

_STANDBYS: Final = """
SELECT application_name, sync_state FROM pg_stat_replication AS sender
WHERE coalesce(state, 'streaming') = 'streaming'
AND application_name NOT IN ('pg_basebackup', 'pg_receivewal', 'barman_receive_wal')
AND NOT EXISTS (SELECT FROM pg_replication_slots WHERE active_pid = sender.pid AND slot_type = 'logical')
ORDER BY application_name
"""
"""Backups, archives and logical replication are no standbys. A role without pg_read_all_stats sees that a standby is
there, by a row whose state is NULL."""
REMEDY: Final = "name the standbys in synchronous_standby_names"


async def require_durability(
    connection: Connection, address: PostgresAddress, *, asynchronous_accepted: bool = False
) -> None:
    """Refuse a PostgreSQL that loses acknowledged commits when its machine fails, or at a fail-over.

    asynchronous_accepted: value of `fencepost.cluster.asynchronous.standby.accepted`. Raises StorageError.
    """
    with translated(address):
        unsafe = [
            name
            for name in ("fsync", "full_page_writes")
            if await connection.fetchval("SELECT current_setting($1)", name) == "off"
        ]
        if unsafe:
            raise StorageError(
                f"PostgreSQL at {address.shown} has {' and '.join(f'{name} = off' for name in unsafe)}: a crash of its "
                "machine would lose acknowledged records. Set it to on, and start the broker again"
            )
        asynchronous = await find_asynchronous(connection)
        if asynchronous and not asynchronous_accepted:
            raise StorageError(
                f"PostgreSQL at {address.shown} has a standby that commits do not wait for "
                f"({', '.join(asynchronous)}), as synchronous_standby_names is empty: a fail-over to it would lose "
                f"acknowledged records. To go on, {REMEDY}; or, if you never fail over to it or accept the loss, set "
                "fencepost.cluster.asynchronous.standby.accepted=true"
            )
        await _warn_of_no_standby(connection, address)


async def find_asynchronous(connection: Connection) -> list[str]:
    """The names of standbys, if no commit waits for one of them. Raises errors of asyncpg."""
    if await connection.fetchval("SELECT current_setting('synchronous_standby_names')"):
        return []
    return [row["application_name"] or "without a name" for row in await connection.fetch(_STANDBYS)]


async def _warn_of_no_standby(connection: Connection, address: PostgresAddress) -> None:
    names = await connection.fetchval("SELECT current_setting('synchronous_standby_names')")
    states = {row["sync_state"] for row in await connection.fetch(_STANDBYS)}
    if names and not states & {"sync", "quorum", None}:
        log.warning(
            "synchronous_standby_missing",
            at=address.shown,
            synchronous_standby_names=names,
            reason="no standby that is named there follows: commits wait until one does",
            remedy="start the standby; its name is the application_name in its primary_conninfo",
        )


class StandbyWatch:
    """Repeated looks at the standbys of a server. asynchronous_count: as of the last look."""

    def __init__(self) -> None:
        self.asynchronous_count = 0

    async def look(self, connection: Connection, address: PostgresAddress) -> None:
        """Log it when a standby appears that commits do not wait for. Raises errors of asyncpg."""
        found = await find_asynchronous(connection)
        if found and not self.asynchronous_count:
            log.error(
                "fail_over_may_lose_records",
                at=address.shown,
                standbys=", ".join(found),
                reason="synchronous_standby_names is empty: a standby that takes over may lack acknowledged records",
                remedy=f"{REMEDY}, or never fail over to one",
            )
        self.asynchronous_count = len(found)
