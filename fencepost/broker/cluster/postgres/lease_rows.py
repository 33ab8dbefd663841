"""Rows of nodes and partitions, read and written in a transaction of the caller.

`leases` decides; a caller that decides and writes holds the lock PLACING from before it reads.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from fencepost.broker.cluster.leases.lease_store import Endpoints, StoredLeases, read_endpoints
from fencepost.broker.cluster.leases.lease_table import (
    LeaseTable,
    NodeChange,
    NodeId,
    NodeState,
    PartitionLease,
    Placed,
    decide_creation,
)
from fencepost.broker.cluster.postgres.connections import Connection
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.last_leader_state import LastLeaderState

READ_TOGETHER: Final = 2_000
"""Rows that are read in one step of the event loop: about 5 ms."""


async def read_nodes(connection: Connection) -> LeaseTable:
    """Read the nodes alone: all that placing new partitions needs."""
    rows = await connection.fetch("SELECT node_id, state FROM nodes")
    return LeaseTable({row["node_id"]: NodeState(row["state"]) for row in rows})


async def read_leases(connection: Connection) -> StoredLeases:
    """Read all rows, as of one moment if the transaction is REPEATABLE READ."""
    table = LeaseTable()
    endpoints: dict[NodeId, Endpoints] = {}
    racks: dict[NodeId, str] = {}
    last_state = {}
    since_ms = {}
    read_ms = 0
    for row in await connection.fetch(
        "SELECT node_id, state, since, listeners, rack, clock_timestamp() AS read FROM nodes"
    ):
        read_ms = int(row["read"].timestamp() * 1000)
        table.nodes[row["node_id"]] = NodeState(row["state"])
        since_ms[row["node_id"]] = int(row["since"].timestamp() * 1000)
        endpoints[row["node_id"]] = decode_endpoints(row["listeners"])
        if row["rack"] is not None:
            racks[row["node_id"]] = row["rack"]
    cursor = await connection.cursor(
        "SELECT name, topic_id, partition, leader, leader_epoch, wanted, log_start_offset, sealed_end "
        "FROM partitions JOIN topics USING (topic_id)"
    )
    while rows := await cursor.fetch(READ_TOGETHER):
        for name, topic_id, partition, leader, epoch, wanted, log_start, sealed_end in rows:
            topic_partition = TopicPartition(name, partition)
            # Where the rows of a partition say that it is empty, it is: nothing can be missing.
            table.partitions[topic_partition] = PartitionLease(topic_id.bytes, leader, epoch, True, wanted)
            last_state[topic_partition] = LastLeaderState(sealed_end, log_start)
        await asyncio.sleep(0)
    return StoredLeases(table, endpoints, since_ms, last_state, read_ms, racks=racks)


async def write_node(connection: Connection, change: NodeChange) -> None:
    """Write a node's state and the partitions that change with it. Locks the partitions."""
    await connection.execute(
        "UPDATE nodes SET state = $2, since = CASE WHEN state = $2 THEN since ELSE clock_timestamp() END "
        "WHERE node_id = $1",
        change.node_id,
        change.state.value,
    )


async def write_placed(connection: Connection, table: LeaseTable, placed: Iterable[Placed]) -> None:
    """Write new leaders with their epochs, all in one statement."""
    placed = list(placed)
    if not placed:
        return
    await connection.execute(
        "UPDATE partitions SET leader = placed.leader, leader_epoch = placed.epoch "
        "FROM unnest($1::uuid[], $2::int[], $3::int[], $4::int[]) AS placed (topic_id, partition, leader, epoch) "
        "WHERE partitions.topic_id = placed.topic_id AND partitions.partition = placed.partition",
        [UUID(bytes=table.partitions[one.topic_partition].topic_id) for one in placed],
        [one.topic_partition.partition for one in placed],
        [one.leader for one in placed],
        [one.epoch for one in placed],
    )


async def place_missing(connection: Connection, name: str) -> None:
    """Give each partition of a topic a row, and none a row that the topic has not."""
    row = await connection.fetchrow("SELECT topic_id, partition_count FROM topics WHERE name = $1", name)
    topic_id, count = row
    await connection.execute("DELETE FROM partitions WHERE topic_id = $1 AND partition >= $2", topic_id, count)
    rows = await connection.fetch("SELECT partition FROM partitions WHERE topic_id = $1", topic_id)
    placed_before = {partition for (partition,) in rows}
    names = [TopicPartition(name, partition) for partition in range(count) if partition not in placed_before]
    table = await read_nodes(connection)
    await connection.executemany(
        "INSERT INTO partitions (topic_id, partition, leader, leader_epoch) VALUES ($1, $2, $3, $4)",
        [
            (topic_id, one.topic_partition.partition, one.leader, one.epoch)
            for one in decide_creation(table, topic_id.bytes, names)
        ],
    )


async def remove_rows(connection: Connection, topic_id: bytes) -> None:
    """Remove the rows of a topic that is deleted."""
    await connection.execute("DELETE FROM partitions WHERE topic_id = $1", UUID(bytes=topic_id))


def encode_endpoints(endpoints: Endpoints) -> str:
    return json.dumps(dict(endpoints))


def decode_endpoints(text: str) -> Endpoints:
    """Raises JsonError."""
    return read_endpoints(text)
