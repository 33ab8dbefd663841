"""Leases in PostgreSQL: each change is one transaction that locks, reads, decides as `leases` does, and writes.

Two locks make it safe. Each decision on the leaders of partitions holds PLACING. Each flush of a node locks the
row of its fence until it is committed; a start or a take-over raises the fence, so it waits for a flush under way, and
refuses all later ones. No clock counts but that of PostgreSQL.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import asyncpg

from fencepost.broker.cluster.leases.lease_store import Endpoints, StoredLeases
from fencepost.broker.cluster.leases.lease_table import (
    Move,
    NodeEvent,
    NodeId,
    NodeState,
    PartitionLease,
    Placed,
    decide_event,
    decide_move,
    heirs,
)
from fencepost.broker.cluster.postgres.connections import Connection, LeaseLostError, PostgresAddress, UnavailableError
from fencepost.broker.cluster.postgres.lease_rows import (
    decode_endpoints,
    encode_endpoints,
    read_leases,
    write_node,
    write_placed,
)
from fencepost.broker.cluster.postgres.metadata_store import PostgresMetadataStore, session_prefix
from fencepost.broker.cluster.postgres.schema import COMPATIBILITY, FIRST_COMPATIBILITY, PLACING, lock
from fencepost.broker.cluster.postgres.session import Session
from fencepost.broker.config.cluster_settings import LONGEST_LEASE_MS
from fencepost.broker.kernel.addresses import canonical_host
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.kernel.version import build_version
from fencepost.broker.log.directory.last_leader_state import LastLeaderState
from fencepost.broker.storage.disk import StorageError

log = get_logger(__name__)

FENCE_LOCK_TIMEOUT: Final = "1s"
"""How long a start or a take-over waits for a flush of the node before its sessions are ended: a statement that was
sent in half would hold the lock until PostgreSQL notices."""
FENCE_ATTEMPTS: Final = 5
RESERVED_FOR_S: Final = 60.0
"""How long a node id is kept for a process that is starting."""


class NodeIdInUseError(StorageError):
    """Another process has the lease of this node id, or is at one of this node's addresses."""


class IncompatibleVersionError(StorageError):
    """Brokers of a version work on the cluster with which this one cannot."""


class Renewal(NamedTuple):
    """The answer to a renewal.

    lost:          nodes whose leases are over and have not been taken over, or that are gone and still lead something.
    counts:        numbers of changes, by kind; see `PostgresMetadataStore.seen_counts`.
    soonest_end_s: seconds until the next lease of another node ends, unless it is renewed; None without one.
    was_set_back:  whether PostgreSQL's clock certainly was: another node's lease ends later than any lease can.
    """

    lost: Sequence[NodeId]
    counts: Mapping[str, int]
    soonest_end_s: float | None
    was_set_back: bool = False


class PostgresLeaseStore(PostgresMetadataStore):
    """The metadata store of one node with its lease.

    lease_s: length of a lease after a renewal, by PostgreSQL's clock. rack: of the node; others show it to clients.
    """

    def __init__(self, address: PostgresAddress, *, lease_s: float, rack: str | None = None) -> None:
        super().__init__(address)
        self.lease_s = lease_s
        self._rack = rack
        # Apart from the metadata, so that no renewal waits behind a slow query.
        self._renewals = Session(address, lambda: self.session_name("lease"), statement_timeout_s=lease_s)

    async def close(self) -> None:
        await self._renewals.close()
        await super().close()

    async def connect(self) -> None:
        """Connect, for the metadata and for renewals. Raises StorageError."""
        await self.session.open()
        await self._renewals.open()

    async def begin_incarnation(self, incarnation: UUID) -> None:
        """From now on, this node is another incarnation, whose sessions a take-over from the last one leaves alone."""
        self.incarnation = incarnation
        await self._renewals.close()
        await self.session.close()

    async def load_leases(self) -> StoredLeases:
        """Raises StorageError."""

        async def read(connection: Connection) -> StoredLeases:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                return await read_leases(connection)

        return await self.session.run(read)

    # This node

    async def reserve_node_id(self, endpoints: Endpoints) -> NodeId:
        """Choose a node id for a process that has none: the one that it had before, else the lowest that is free.

        It is kept for RESERVED_FOR_S. Raises StorageError.
        """

        async def reserve(connection: Connection) -> NodeId:
            await lock(connection, PLACING)
            rows = await connection.fetch(
                "SELECT node_id, state, listeners, lease_until > clock_timestamp() AS is_kept, incarnation FROM nodes"
            )
            free = [row for row in rows if row["incarnation"] == self.incarnation]
            free = free or [row for row in rows if decode_endpoints(row["listeners"]) == endpoints]
            free = free or [row for row in rows if row["state"] == NodeState.GONE and not row["is_kept"]]
            taken = {row["node_id"] for row in rows}
            node_id = (
                min(int(row["node_id"]) for row in free)
                if free
                else next(number for number in range(1, len(taken) + 2) if number not in taken)
            )
            await connection.execute(
                "INSERT INTO nodes (node_id, incarnation, state, listeners, lease_until, since) "
                "VALUES ($1, $2, 'gone', $3, clock_timestamp() + $4 * interval '1 s', clock_timestamp()) "
                "ON CONFLICT (node_id) DO UPDATE SET lease_until = excluded.lease_until "
                "WHERE nodes.state = 'gone'",
                node_id,
                self.incarnation,
                encode_endpoints(endpoints),
                RESERVED_FOR_S,
            )
            return node_id

        return await self.session.transaction(reserve)

    async def start(self, node_id: NodeId, endpoints: Endpoints, *, own_lease_after_s: float | None) -> int:
        """Take the lease of a node id, fence the flushes of an earlier process, and lead on in higher epochs.

        own_lease_after_s: seconds without renewal after which the lease of a process with the same endpoints is taken:
                           that was this node before it was killed. None: it is not taken before its end.
        Returns the fence under which this incarnation flushes. Raises NodeIdInUseError if the node id or an address
        is another process's; IncompatibleVersionError, StorageError.
        """
        versions: dict[NodeId, str] = {}

        async def start(connection: Connection) -> int:
            await lock(connection, PLACING)
            row = await connection.fetchrow(
                "SELECT incarnation, listeners, state <> 'gone' AND lease_until > clock_timestamp() AS is_held, "
                f"{_SILENT_S} AS silent_s FROM nodes WHERE node_id = $1 FOR UPDATE",
                node_id,
                self.lease_s,
            )
            if row is not None and row["is_held"] and row["incarnation"] != self.incarnation:
                other = decode_endpoints(row["listeners"])
                if other != endpoints:
                    raise NodeIdInUseError(
                        f"node.id {node_id} is in use by the broker at {_shown(other.values())}; give each broker a "
                        "node.id of its own, or none: then the cluster gives it one"
                    )
                if own_lease_after_s is None or row["silent_s"] < own_lease_after_s:
                    raise _address_in_use(node_id, other.values())
            versions.clear()
            versions.update(await self._require_peers(connection, node_id, endpoints, own_lease_after_s))
            fence = await _raise_fence(connection, node_id, None if row is None else row["incarnation"])
            # From now on, the names of this node's objects tell their uploader.
            await connection.execute("UPDATE fences SET named_from = fence WHERE node_id = $1", node_id)
            table = (await read_leases(connection)).table
            change = decide_event(table, node_id, NodeEvent.STARTED)
            assert change is not None, "a node may always start"
            await connection.execute(
                "INSERT INTO nodes "
                "(node_id, incarnation, state, listeners, lease_until, since, version, compatibility, rack) "
                "VALUES ($1, $2, $3, $4, clock_timestamp() + $5 * interval '1 s', clock_timestamp(), $6, $7, $8) "
                "ON CONFLICT (node_id) DO UPDATE SET incarnation = excluded.incarnation, state = excluded.state, "
                "listeners = excluded.listeners, lease_until = excluded.lease_until, since = excluded.since, "
                "version = excluded.version, compatibility = excluded.compatibility, rack = excluded.rack",
                node_id,
                self.incarnation,
                change.state.value,
                encode_endpoints(endpoints),
                self.lease_s,
                build_version(),
                COMPATIBILITY,
                self._rack,
            )
            await write_placed(connection, table, change.placed)
            return fence

        fence = await self.session.transaction(start)
        _warn_of_other_versions(node_id, versions)
        return fence

    async def _require_peers(
        self, connection: Connection, node_id: NodeId, endpoints: Endpoints, own_lease_after_s: float | None
    ) -> dict[NodeId, str]:
        """Require that this node may work beside those that are alive; returns their versions.

        Raises NodeIdInUseError, IncompatibleVersionError.
        """
        rows = await connection.fetch(
            "SELECT node_id, listeners, version, compatibility FROM nodes WHERE node_id <> $1 AND state <> 'gone' "
            f"AND lease_until > clock_timestamp() AND {_SILENT_S} < $3 ORDER BY node_id",
            node_id,
            self.lease_s,
            self.lease_s if own_lease_after_s is None else own_lease_after_s,
        )
        versions: dict[NodeId, str] = {}
        for row in rows:
            other = decode_endpoints(row["listeners"])
            shared = [one for one in other.values() if _compared(one) in map(_compared, endpoints.values())]
            if shared:
                raise _address_in_use(row["node_id"], shared)
            version = versions[row["node_id"]] = row["version"] or "unknown"
            if abs((row["compatibility"] or FIRST_COMPATIBILITY) - COMPATIBILITY) > 1:
                raise IncompatibleVersionError(
                    f"this broker has version {build_version()}, and node {row['node_id']} at "
                    f"{_shown(other.values())} has version {version}, beside which it cannot work: update to a "
                    "version in between first, or stop all brokers, then start all with one version"
                )
        return versions

    async def renew(self, node_id: NodeId) -> Renewal:
        """Renew the lease of this incarnation, in one round trip. Raises LeaseLostError; StorageError.

        A lease that is over is renewed, too, if no other node has taken over.
        """

        async def renew(connection: Connection) -> Renewal:
            row = await connection.fetchrow(_RENEWAL, node_id, self.incarnation, self.lease_s, LONGEST_LEASE_MS / 1000)
            if not row["is_renewed"]:
                raise LeaseLostError(f"the lease of node {node_id} was lost: another node has taken over from it")
            return Renewal(row["lost"] or (), json.loads(row["counts"]), row["soonest_end_s"], row["was_set_back"])

        try:
            async with asyncio.timeout(self.lease_s / 2):
                return await self._renewals.run(renew, repeat_for_s=0)
        except TimeoutError as error:
            raise UnavailableError(f"PostgreSQL at {self.address.shown} has not answered in time") from error

    async def shorten_leases(self) -> Sequence[NodeId]:
        """Let leases that end later than any lease can end after one lease; returns whose they are.

        They were renewed before PostgreSQL's clock was set back. A node that lives renews its own long before that end,
        and no node relies on its lease for longer, by its own clock. Raises StorageError.
        """

        async def shorten(connection: Connection) -> Sequence[NodeId]:
            rows = await connection.fetch(_SHORTENING, self.lease_s, LONGEST_LEASE_MS / 1000)
            return sorted(row["node_id"] for row in rows)

        return await self._renewals.run(shorten, repeat_for_s=0)

    async def leave(self, node_id: NodeId) -> None:
        """Give the lease back, after all is flushed; other nodes lead the partitions of this one at once.

        Raises StorageError.
        """
        await self._end(node_id, of_this_incarnation=True)

    # Other nodes

    async def take_over(self, node_id: NodeId) -> bool:
        """Give a node's partitions to others, if its lease is over and another one's is not. Returns whether this call
        did. Raises StorageError."""
        return await self._end(node_id, of_this_incarnation=False)

    async def _end(self, node_id: NodeId, *, of_this_incarnation: bool) -> bool:
        condition = (
            "incarnation = $2 AND state <> 'gone'"
            if of_this_incarnation
            else "incarnation <> $2 AND (state = 'gone' OR lease_until < clock_timestamp())"
        )

        async def end(connection: Connection) -> bool:
            await lock(connection, PLACING)
            # A renewal under way has the row: then the node is alive.
            skipping = "" if of_this_incarnation else " SKIP LOCKED"
            incarnation = await connection.fetchval(
                f"SELECT incarnation FROM nodes WHERE node_id = $1 AND {condition} FOR UPDATE{skipping}",
                node_id,
                self.incarnation,
            )
            if incarnation is None:
                return False
            table = (await read_leases(connection)).table
            if table.state(node_id) is NodeState.GONE and not table.led_by(node_id):
                return False
            # Nodes whose leases are over, too, are not given anything: they are taken over from next.
            lapsed = await connection.fetch(
                "SELECT node_id FROM nodes WHERE lease_until < clock_timestamp() AND state <> 'gone' AND node_id <> $1",
                node_id,
            )
            for row in lapsed:
                table.nodes[row["node_id"]] = NodeState.GONE
            # Without a leader, partitions would wait for a start: the lapsed take over once they have renewed.
            waits = bool(lapsed) and not heirs(table, node_id)
            if waits and not of_this_incarnation:
                return False
            await _raise_fence(connection, node_id, incarnation)
            change = await asyncio.to_thread(decide_event, table, node_id, NodeEvent.LOST)
            assert change is not None, "a node that is there can be lost"
            await write_node(connection, change)
            await write_placed(connection, table, () if waits else change.placed)
            return True

        return await self.session.transaction(end)

    async def node_event(self, node_id: NodeId, event: NodeEvent) -> bool:
        """Store an administrator's request to a node: DRAINED or RESUMED. Returns False if the node is gone.

        Raises StorageError.
        """

        async def store(connection: Connection) -> bool:
            await lock(connection, PLACING)
            table = (await read_leases(connection)).table
            change = decide_event(table, node_id, event)
            if change is None:
                return False
            await write_node(connection, change)
            return True

        return await self.session.transaction(store)

    async def move(self, moves: Mapping[Move, LastLeaderState], *, fence: int) -> list[Placed]:
        """Store planned moves of partitions whose logs this node has flushed and closed, under its fence.

        Returns those that were carried out; a log that was not flushed whole does not move, as a flush of it may be on
        its way. Raises LeaseLostError, StorageError.
        """
        done: list[Placed] = []
        closed = [move for move, last_state in moves.items() if last_state.was_closed]

        async def store(connection: Connection) -> list[Placed]:
            await lock(connection, PLACING)
            source = closed[0].source
            is_fence = await connection.fetchval(
                "SELECT true FROM fences WHERE node_id = $1 AND fence = $2 FOR SHARE", source, fence
            )
            if not is_fence:
                raise LeaseLostError(f"node {source} was taken over from; what it led is led elsewhere")
            table = (await read_leases(connection)).table
            # An earlier attempt, whose answer was lost, may have stored some.
            stored = [one for one in done if _is_placed(table.partitions.get(one.topic_partition), one)]
            decided = [placed for move in closed if (placed := decide_move(table, move)) is not None]
            await write_placed(connection, table, decided)
            done[:] = stored + decided
            return done

        return await self.session.transaction(store) if closed else []

    async def release(self, node_id: NodeId, topic_ids: Collection[bytes]) -> None:
        """Do nothing: a flush leaves out the partitions of deleted topics, even of open logs."""

    async def choose(self, choices: Mapping[TopicPartition, NodeId | None]) -> None:
        """Record the nodes that should lead partitions; their leaders move them. None: the one by its share.

        Partitions that do not exist are left out. Raises StorageError.
        """

        async def store(connection: Connection) -> None:
            await lock(connection, PLACING)
            await connection.executemany(
                "UPDATE partitions SET wanted = $3 FROM topics "
                "WHERE topics.topic_id = partitions.topic_id AND name = $1 AND partition = $2",
                [(*name, node_id) for name, node_id in choices.items()],
            )

        await self.session.transaction(store)
        await self._placement_changed()


def _is_placed(lease: PartitionLease | None, placed: Placed) -> bool:
    return lease is not None and (lease.leader, lease.epoch) == (placed.leader, placed.epoch)


def _shown(addresses: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{host}:{port}" for host, port in addresses)


def _compared(address: tuple[str, int]) -> tuple[str, int]:
    """The form of an address that is compared."""
    host, port = address
    return canonical_host(host.lower()), port


def _warn_of_other_versions(node_id: NodeId, versions: Mapping[NodeId, str]) -> None:
    """versions: the versions of the other nodes."""
    if any(version != build_version() for version in versions.values()):
        log.warning(
            "versions_differ",
            node=node_id,
            version=build_version(),
            others={str(other): version for other, version in sorted(versions.items())},
            reason="brokers of several versions work on the cluster, as in an update",
            remedy="update all brokers, one after another",
        )


def _address_in_use(node_id: NodeId, addresses: Iterable[tuple[str, int]]) -> NodeIdInUseError:
    return NodeIdInUseError(
        f"another broker runs with the address {_shown(addresses)} (node.id {node_id}): give each broker an address of "
        "its own, at which clients and the other brokers reach it, in advertised.listeners "
        "(FENCEPOST_ADVERTISED_LISTENERS)"
    )


_SILENT_S: Final = "$2::float8 - extract(epoch FROM lease_until - clock_timestamp())"
"""How long ago a node has renewed its lease, which is as long as that of this node."""
_RENEWAL: Final = """
WITH renewed AS (
    UPDATE nodes SET lease_until = clock_timestamp() + $3 * interval '1 s'
    WHERE node_id = $1 AND incarnation = $2 AND state <> 'gone' RETURNING true
)
SELECT
    EXISTS (SELECT FROM renewed) AS is_renewed,
    (SELECT array_agg(node_id) FROM nodes WHERE node_id <> $1 AND CASE state
        WHEN 'gone' THEN EXISTS (SELECT FROM partitions WHERE leader = node_id)
        ELSE lease_until < clock_timestamp() END) AS lost,
    (SELECT extract(epoch FROM min(lease_until) - clock_timestamp())::float8 FROM nodes
        WHERE node_id <> $1 AND state <> 'gone' AND lease_until >= clock_timestamp()) AS soonest_end_s,
    EXISTS (SELECT FROM nodes WHERE node_id <> $1 AND state <> 'gone'
        AND lease_until > clock_timestamp() + $4 * interval '1 s') AS was_set_back,
    (SELECT jsonb_object_agg(kind, count) FROM changes) AS counts
"""


# Of a row that is locked, the lease is being renewed. Waiting for it could make two nodes wait for each other.
_SHORTENING: Final = """
UPDATE nodes SET lease_until = clock_timestamp() + $1 * interval '1 s'
WHERE node_id IN (
    SELECT node_id FROM nodes WHERE state <> 'gone' AND lease_until > clock_timestamp() + $2 * interval '1 s'
    FOR UPDATE SKIP LOCKED
) RETURNING node_id
"""


async def _raise_fence(connection: Connection, node_id: NodeId, incarnation: UUID | None) -> int:
    """Raise the fence of a node, and return it. Waits for a flush under way, and ends the sessions of an incarnation
    that holds the lock for longer."""
    for attempt in range(1, FENCE_ATTEMPTS + 1):
        try:
            async with connection.transaction():
                await connection.execute(f"SET LOCAL lock_timeout = '{FENCE_LOCK_TIMEOUT}'")
                fence: int = await connection.fetchval(
                    "INSERT INTO fences AS of_node VALUES ($1, 1) "
                    "ON CONFLICT (node_id) DO UPDATE SET fence = of_node.fence + 1 RETURNING fence",
                    node_id,
                )
                await connection.execute("SET LOCAL lock_timeout = 0")
                return fence
        except asyncpg.LockNotAvailableError:
            if incarnation is None or attempt == FENCE_ATTEMPTS:
                raise
            ended = await connection.fetchval(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE starts_with(application_name, $1) AND pid <> pg_backend_pid()",
                session_prefix(incarnation),
            )
            log.warning("sessions_ended", node=node_id, sessions=ended, reason="they kept the fence of their node")
    raise AssertionError("unreachable")
