"""Leases in the metadata store that processes share: rows of nodes and partitions, changed as `leases` decides.

Each change is one transaction that reads the rows, decides and writes, so that no two processes decide from the same
state.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from fencepost.broker.cluster.leases.lease_table import (
    LeaseTable,
    Move,
    NodeEvent,
    NodeId,
    NodeState,
    PartitionLease,
    Placed,
    decide_creation,
    decide_event,
    decide_move,
)
from fencepost.broker.hosting.placement import NO_PORT
from fencepost.broker.kernel.clock import Clock, SystemClock
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.last_leader_state import LastLeaderState
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.metadata.shared_sqlite import NO_VERSION, SharedSqliteMetadataStore
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.checked_json import JsonError, parse_object, shown, text_of, whole_of

LONGEST_HOLD_S: Final = 15.0
"""How long the creation of a topic waits until all processes have released a deleted one with its name: longer than a
hung process is left alive."""
HOLD_PAUSE_S: Final = 0.02

Endpoints = Mapping[str, tuple[str, int]]
"""Host and port that a node advertises, by the name of the listener."""


@dataclass(frozen=True)
class StoredLeases:
    """The rows, read at one moment, read_ms. endpoints: addresses of each node; since_ms: start of the state of each
    node, by the same clock as read_ms; last_state: state of each partition, by its last leader; held: the ids of
    deleted topics whose deletion a node may not have read yet; racks: of the nodes that have one."""

    table: LeaseTable = field(default_factory=LeaseTable)
    endpoints: Mapping[NodeId, Endpoints] = field(default_factory=dict)
    since_ms: Mapping[NodeId, int] = field(default_factory=dict)
    last_state: Mapping[TopicPartition, LastLeaderState] = field(default_factory=dict)
    read_ms: int = 0
    held: Mapping[NodeId, Collection[bytes]] = field(default_factory=dict)
    racks: Mapping[NodeId, str] = field(default_factory=dict)

    def gone_for_s(self, node_id: NodeId) -> float | None:
        """The seconds since a node has gone; None of one that is there. 0 if the clock was set back meanwhile."""
        if self.table.state(node_id) is not NodeState.GONE:
            return None
        return max(0, self.read_ms - self.since_ms[node_id]) / 1000


class _HeldError(Exception):
    """A process may still have logs open of a deleted topic with the name."""


class LeaseStore(SharedSqliteMetadataStore):
    """A shared metadata store that places partitions: new ones with their topic, others as nodes come and go.

    A deleted topic has a row for each node until that has closed its logs. Till then no topic gets its name: a process
    that has not read the deletion would accept records for the new topic, or commit offsets of it.
    """

    def __init__(self, path: str, clock: Clock | None = None) -> None:
        super().__init__(path)
        self._clock = clock or SystemClock()
        self.in_creation += [_require_released, _place_missing]
        self.in_growth.append(_place_missing)
        self.in_deletion.append(_remove)

    async def create_topic(self, topic: TopicMetadata) -> bool:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + LONGEST_HOLD_S
        while True:
            try:
                return await super().create_topic(topic)
            except _HeldError:
                if loop.time() > deadline_s:
                    raise StorageError(
                        f"a process has not released the deleted topic {topic.name!r} within {LONGEST_HOLD_S:.0f} s"
                    ) from None
                await asyncio.sleep(HOLD_PAUSE_S)

    async def delete_topic(self, name: str, topic_id: bytes) -> bool:
        try:
            is_deleted = await super().delete_topic(name, topic_id)
        except StorageError:
            self._known_version = NO_VERSION  # it may be deleted nevertheless: the next poll checks
            raise
        if is_deleted:
            await self._placement_changed()
        return is_deleted

    async def release(self, node_id: NodeId, topic_ids: Collection[bytes]) -> None:
        """Record that a node has no logs open of topics that are deleted. Raises StorageError."""
        await self.transaction(
            lambda database: database.executemany(
                "DELETE FROM partitions WHERE topic_id = ? AND leader = ?",
                [(topic_id, node_id) for topic_id in topic_ids],
            )
        )

    async def load_leases(self) -> StoredLeases:
        """Raises StorageError."""
        return await self.read(lambda database: read_leases(database, self._clock.now_ms()))

    async def node_event(
        self,
        node_id: NodeId,
        event: NodeEvent,
        *,
        endpoints: Endpoints | None = None,
        last_state: Mapping[TopicPartition, LastLeaderState] | None = None,
    ) -> bool:
        """Store the changes that an event of a node causes; return False if it is refused. Raises StorageError.

        endpoints: addresses of a node that starts. last_state: state of a lost node's partitions, from its checkpoints.
        """
        now_ms = self._clock.now_ms()
        return await self.transaction(
            lambda database: store_event(
                database, node_id, event, now_ms=now_ms, endpoints=endpoints, last_state=last_state or {}
            )
        )

    async def move(self, moves: Mapping[Move, LastLeaderState]) -> list[Placed]:
        """Store planned moves of partitions whose logs this node has closed; return those that were not out of date.

        Raises StorageError.
        """

        def store(database: sqlite3.Connection) -> list[Placed]:
            table = read_leases(database).table
            carried_out = []
            for move, last_state in moves.items():
                placed = decide_move(table, move)
                if placed is not None:
                    _write_last_states(database, table, {move.topic_partition: last_state})
                    _write_placed(database, table, [placed])
                    carried_out.append(placed)
            return carried_out

        return await self.transaction(store)

    async def mark_created(self, topic_ids: Mapping[TopicPartition, bytes]) -> None:
        """Record that the directories of partitions exist, durably; of topics that are there. Raises StorageError."""
        await self.transaction(
            lambda database: database.executemany(
                "UPDATE partitions SET is_created = 1 WHERE topic_id = ? AND partition = ?",
                [(topic_id, name.partition) for name, topic_id in topic_ids.items()],
            )
        )

    async def choose(self, choices: Mapping[TopicPartition, NodeId | None]) -> None:
        """Record the nodes that should lead partitions; their leaders move them. None: the one by its share.

        Partitions that do not exist are left out. Raises StorageError.
        """
        await self.transaction(
            lambda database: database.executemany(
                "UPDATE partitions SET wanted = ? "
                "WHERE topic_id = (SELECT topic_id FROM topics WHERE name = ?) AND partition = ?",
                [(node_id, name.topic, name.partition) for name, node_id in choices.items()],
            )
        )
        await self._placement_changed()


def read_endpoints(text: str) -> Endpoints:
    """Where the listeners of a node are, of a row of it. Raises JsonError."""
    listeners = parse_object(text)
    found = {}
    for name in listeners:
        pair = listeners.array(name)
        if len(pair) != 2:
            raise JsonError(f"the listener {shown(name)} is no pair of host and port")
        found[name] = text_of(pair[0], "a host"), whole_of(pair[1], "a port", NO_PORT, 65_535)
    return found


# In a transaction


def read_leases(database: sqlite3.Connection, read_ms: int = 0) -> StoredLeases:
    """Read all rows of nodes and partitions. read_ms: wall time, if it is asked how long nodes are gone."""
    table = LeaseTable()
    endpoints: dict[NodeId, Endpoints] = {}
    since_ms = {}
    for node_id, state, since, listeners in database.execute("SELECT node_id, state, since_ms, listeners FROM nodes"):
        try:
            table.nodes[node_id] = NodeState(state)
            endpoints[node_id] = read_endpoints(listeners)
        except (ValueError, TypeError) as error:
            raise sqlite3.DatabaseError(f"the row of the node {shown(node_id)} cannot be read: {error}") from None
        since_ms[node_id] = since
    last_state = {}
    for (
        name,
        topic_id,
        partition,
        leader,
        epoch,
        is_created,
        wanted,
        recovery_point,
        log_start,
        was_closed,
    ) in database.execute(
        "SELECT name, topic_id, partition, leader, leader_epoch, is_created, wanted, recovery_point, "
        "log_start_offset, was_closed FROM partitions JOIN topics USING (topic_id)"
    ):
        topic_partition = TopicPartition(name, partition)
        table.partitions[topic_partition] = PartitionLease(bytes(topic_id), leader, epoch, bool(is_created), wanted)
        last_state[topic_partition] = LastLeaderState(recovery_point, log_start, bool(was_closed))
    held: dict[NodeId, set[bytes]] = {}
    for node_id, topic_id in database.execute(
        "SELECT DISTINCT leader, topic_id FROM partitions WHERE topic_id NOT IN (SELECT topic_id FROM topics)"
    ):
        held.setdefault(node_id, set()).add(bytes(topic_id))
    return StoredLeases(table, endpoints, since_ms, last_state, read_ms, held)


def store_event(
    database: sqlite3.Connection,
    node_id: NodeId,
    event: NodeEvent,
    *,
    now_ms: int,
    endpoints: Endpoints | None = None,
    last_state: Mapping[TopicPartition, LastLeaderState],
) -> bool:
    """See `LeaseStore.node_event`. now_ms: wall time, from which the state of a node that starts is counted."""
    table = read_leases(database).table
    change = decide_event(table, node_id, event)
    if change is None:
        return False
    led = set(table.led_by(node_id))
    database.execute(
        "INSERT INTO nodes (node_id, state, since_ms, listeners) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (node_id) DO UPDATE SET since_ms = iif(? OR state != excluded.state, excluded.since_ms, since_ms),"
        " state = excluded.state, listeners = coalesce(?, listeners)",
        (
            node_id,
            change.state.value,
            now_ms,
            json.dumps(dict(endpoints or {})),
            event is NodeEvent.STARTED,
            None if endpoints is None else json.dumps(dict(endpoints)),
        ),
    )
    if event is NodeEvent.LOST:
        # The lost node may have opened logs that the rows call closed.
        _write_last_states(
            database,
            table,
            {name: last_state.get(name, LastLeaderState())._replace(was_closed=False) for name in led},
        )
    _write_placed(database, table, change.placed)
    if event in (NodeEvent.STARTED, NodeEvent.STOPPED, NodeEvent.LOST):
        _forget_held(database, node_id)
    return True


def _forget_held(database: sqlite3.Connection, node_id: NodeId) -> None:
    """A process has ended: it has no logs open."""
    database.execute(
        "DELETE FROM partitions WHERE leader = ? AND topic_id NOT IN (SELECT topic_id FROM topics)", (node_id,)
    )


def _write_placed(database: sqlite3.Connection, table: LeaseTable, placed: Iterable[Placed]) -> None:
    database.executemany(
        "UPDATE partitions SET leader = ?, leader_epoch = ? WHERE topic_id = ? AND partition = ?",
        [
            (one.leader, one.epoch, table.partitions[one.topic_partition].topic_id, one.topic_partition.partition)
            for one in placed
        ],
    )


def _write_last_states(
    database: sqlite3.Connection, table: LeaseTable, last_state: Mapping[TopicPartition, LastLeaderState]
) -> None:
    """Offsets only rise: records that were durable or deleted under an earlier leader still are."""
    database.executemany(
        "UPDATE partitions SET recovery_point = max(recovery_point, ?), log_start_offset = max(log_start_offset, ?), "
        "was_closed = ? WHERE topic_id = ? AND partition = ?",
        [(*offsets, table.partitions[name].topic_id, name.partition) for name, offsets in last_state.items()],
    )


def _place_missing(database: sqlite3.Connection, name: str) -> None:
    """Give each partition of a topic a row, and none a row that the topic has not."""
    topic_id, count = database.execute(
        "SELECT topic_id, partition_count FROM topics WHERE name = ?", (name,)
    ).fetchone()
    database.execute("DELETE FROM partitions WHERE topic_id = ? AND partition >= ?", (topic_id, count))
    rows = database.execute("SELECT partition FROM partitions WHERE topic_id = ?", (topic_id,))
    placed_before = {partition for (partition,) in rows}
    nodes = database.execute("SELECT node_id, state FROM nodes")
    table = LeaseTable({node_id: NodeState(state) for node_id, state in nodes})
    names = [TopicPartition(name, partition) for partition in range(count) if partition not in placed_before]
    database.executemany(
        "INSERT INTO partitions (topic_id, partition, leader, leader_epoch) VALUES (?, ?, ?, ?)",
        [
            (topic_id, one.topic_partition.partition, one.leader, one.epoch)
            for one in decide_creation(table, bytes(topic_id), names)
        ],
    )


def _remove(database: sqlite3.Connection, name: str) -> None:
    """Replace the rows of a topic that is deleted by one for each node: it may have logs of the topic open, or accept
    offsets for it."""
    (topic_id,) = database.execute("SELECT topic_id FROM topics WHERE name = ?", (name,)).fetchone()
    database.execute("DELETE FROM partitions WHERE topic_id = ?", (topic_id,))
    database.execute(
        "INSERT INTO partitions (topic_id, partition, leader, leader_epoch) "
        "SELECT ?, node_id, node_id, 0 FROM nodes WHERE state != 'gone'",
        (topic_id,),
    )


def _require_released(database: sqlite3.Connection, name: str) -> None:
    """Raises _HeldError, which undoes the creation."""
    if database.execute(
        "SELECT 1 FROM partitions JOIN deletions USING (topic_id) WHERE deletions.name = ? LIMIT 1", (name,)
    ).fetchone():
        raise _HeldError


def place_all(database: sqlite3.Connection) -> None:
    """Give every partition of every topic a row, and no other one: while no process runs."""
    database.execute("DELETE FROM partitions WHERE topic_id NOT IN (SELECT topic_id FROM topics)")
    for (name,) in database.execute("SELECT name FROM topics").fetchall():
        _place_missing(database, name)
