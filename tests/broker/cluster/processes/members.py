"""Nodes that share a data directory, in one process, for tests: which of them serves what."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fencepost.broker.cluster.leases.lease_store import LeaseStore
from fencepost.broker.cluster.processes.node_directories import node_directory
from fencepost.broker.cluster.processes.process_member import ProcessMember
from fencepost.broker.config import Settings
from fencepost.broker.hosting.membership import Cluster
from fencepost.broker.hosting.peers import TcpPeers
from fencepost.broker.hosting.placement import NodeAddress
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.metadata.sqlite import FILE_NAME
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from tests.broker.supervision.planting import until
from tests.support.handler_context import NOW_MS, batch

NAMES = [TopicPartition("orders", partition) for partition in range(8)]


class Members:
    """Nodes below one data directory, in one process. any_factor: see `fencepost.replication.factor.any`."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)
        self.nodes: dict[int, Node] = {}
        self.members: dict[int, ProcessMember] = {}
        self.any_factor = False

    async def start(self, node_id: int) -> Node:
        store = LeaseStore(f"{self.directory}/{FILE_NAME}")
        member = ProcessMember(self.directory, node_id, store)
        settings = Settings(
            node_id=node_id,
            log_dirs=node_directory(self.directory, node_id),
            listeners=("PLAINTEXT://127.0.0.1:0", "OTHER://127.0.0.1:0"),
            listener_security_protocol_map=("OTHER:PLAINTEXT",),
            offsets_topic_num_partitions=2,
            transaction_state_log_num_partitions=2,
            fencepost_shutdown_drain_ms=100,
            fencepost_replication_factor_any=self.any_factor,
        )
        node = Node(settings, store=store, cluster=Cluster(member, member.make_logs))
        await node.start()
        self.nodes[node_id], self.members[node_id] = node, member
        return node

    async def ask(self, node_id: int, request: Any, version: int) -> Any:
        """Send a request to a node and return its reply."""
        address = self.nodes[node_id].address
        return await ask(address.host, address.port, request, version)

    async def stop(self, node_id: int) -> None:
        await self.nodes.pop(node_id).stop()
        del self.members[node_id]

    def has_directory(self, node_id: int, name: TopicPartition) -> bool:
        return os.path.exists(f"{node_directory(self.directory, node_id)}/{name}")

    def log(self, name: TopicPartition) -> PartitionLog | None:
        """The log of a partition, where it is served."""
        found = [log for node in self.nodes.values() if (log := node.services.topics.log(name)) is not None]
        assert len(found) <= 1, "served twice"
        return found[0] if found else None

    def leader_id(self, name: TopicPartition) -> int | None:
        return next((each for each, node in self.nodes.items() if node.services.topics.log(name) is not None), None)

    async def all_served(self) -> None:
        await until(lambda: all(self.log(name) is not None for name in NAMES))

    async def write(self, value: bytes) -> None:
        """Append a record to each partition, durably."""
        for name in NAMES:
            log = self.log(name)
            assert log is not None
            written = log.append(memoryview(batch(value)), now_ms=NOW_MS)
            assert written.error is ErrorCode.NONE, written
            await log.flushed()

    def ends(self) -> list[int]:
        return [log.high_watermark if (log := self.log(name)) is not None else -1 for name in NAMES]


async def orders_on_two(members: Members) -> None:
    """A topic of which each of two nodes leads half, with a record in each partition."""
    one = await members.start(1)
    await members.start(2)
    await one.services.topics.create("orders", len(NAMES), {})
    await until(lambda: all(node.services.topics.metadata.get("orders") for node in members.nodes.values()))
    await members.all_served()
    await members.write(b"a")


async def ask(host: str, port: int, request: Any, version: int) -> Any:
    """Send a request to a node over TCP and return its reply."""
    client = TcpPeers(9, lambda node_id: NodeAddress(node_id, host, port))
    try:
        return await client.request(1, request, version, 60.0)
    finally:
        await client.close()
