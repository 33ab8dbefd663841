"""Whether the tables are those that brokers have worked on last: a restore to an earlier moment is noticed.

The row of the cluster has the identifiers that a restore changes. A dump makes new tables, with other OIDs, or
on a server of another system identifier; a base backup with its archive begins another timeline. So does a standby that
takes over, which loses nothing if it is synchronous: only a recovery target tells the two apart.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from fencepost.broker.cluster.postgres.connections import Connection, PostgresAddress
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.storage.disk import StorageError

log = get_logger(__name__)

REMEDY: Final = "stop all brokers, run `fencepost cluster restored`, and start them again"
TARGETS: Final = (
    "recovery_target",
    "recovery_target_name",
    "recovery_target_time",
    "recovery_target_lsn",
    "recovery_target_xid",
)
"""Settings of a server that recovers to a moment; they stay when it has."""


class History(NamedTuple):
    """Location of tables. place: ids of the server and the tables; None if the role may not ask. timeline: as place."""

    place: str | None
    timeline: int | None


class Difference(NamedTuple):
    """The change of the tables since brokers worked on them.

    is_certain: whether the tables were restored, or copied; else a standby may have taken over.
    """

    reason: str
    is_certain: bool


async def read_history(connection: Connection) -> History:
    """Read the present location of the tables."""
    table = await connection.fetchval("SELECT 'cluster'::regclass::oid::bigint")
    for function in ("pg_control_system()", "pg_control_checkpoint()"):
        if not await connection.fetchval("SELECT has_function_privilege($1, 'EXECUTE')", function):
            return History(None, None)
    system = await connection.fetchval("SELECT system_identifier FROM pg_control_system()")
    timeline = await connection.fetchval(
        # The control file may be of the last checkpoint before a standby took over; the WAL's names are of now.
        "SELECT CASE WHEN pg_is_in_recovery() THEN (SELECT timeline_id FROM pg_control_checkpoint()) "
        "ELSE ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int END"
    )
    return History(f"{system}/{table}", timeline)


async def record_history(connection: Connection) -> None:
    """Take the tables, as they are now, for those of the cluster."""
    await connection.execute("UPDATE cluster SET place = $1, timeline = $2", *await read_history(connection))


async def find_difference(connection: Connection, address_shown: str) -> Difference | None:
    """Compare the present location of the tables with the recorded one."""
    stored = History(*await connection.fetchrow("SELECT place, timeline FROM cluster"))
    found = await read_history(connection)
    if None not in (stored.place, found.place) and stored.place != found.place:
        return Difference(
            f"the tables of PostgreSQL at {address_shown} are not those that brokers have worked on: they were "
            f"restored from a dump, or copied, without `fencepost cluster restored`. To go on, {REMEDY}",
            is_certain=True,
        )
    if None in (stored.timeline, found.timeline) or stored.timeline == found.timeline:
        return None
    targets = [name for name in TARGETS if await connection.fetchval("SELECT current_setting($1)", name)]
    if targets:
        return Difference(
            f"PostgreSQL at {address_shown} was restored to an earlier moment ({', '.join(targets)}; timeline "
            f"{found.timeline} after {stored.timeline}) without `fencepost cluster restored`. To go on, {REMEDY}",
            is_certain=True,
        )
    return Difference(
        f"PostgreSQL at {address_shown} is on timeline {found.timeline}, and was on {stored.timeline} when brokers "
        "began to work on it: a standby has taken over, or it was restored. If it was restored to an earlier moment, "
        f"{REMEDY}",
        is_certain=False,
    )


async def require_history(connection: Connection, address: PostgresAddress) -> None:
    """Refuse tables that were restored, unless `fencepost cluster restored` has made them safe. Raises StorageError.

    A difference that may come from a fail-over to a standby is logged.
    """
    difference = await find_difference(connection, address.shown)
    if difference is None:
        return
    if difference.is_certain:
        raise StorageError(difference.reason)
    log.error(
        "database_on_another_timeline",
        at=address.shown,
        reason=difference.reason,
        remedy="nothing, if a synchronous standby has taken over; `fencepost cluster restored` ends this message, too",
    )
