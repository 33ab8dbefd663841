"""A client's view of the cluster: the leaders and coordinators that it has learned, and its requests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from fencepost.broker.hosting.placement import NodeAddress
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.coordinators import FindCoordinatorRequest
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.simulation.client import Disconnected, SimulatedClient

if TYPE_CHECKING:
    from tests.simulation.world import World

GROUP: Final = 0
TRANSACTION: Final = 1

EARLIEST: Final = -2
LATEST: Final = -1

METADATA_VERSION: Final = 12
FIND_COORDINATOR_VERSION: Final = 4
LIST_OFFSETS_VERSION: Final = 7


class Unavailable(Exception):  # noqa: N818  # what clients meet and live with
    """The cluster has not done for a long time what it is asked again and again."""


class Cluster:
    """What one client knows of the cluster; every method tries once, unless it says otherwise.

    bootstrap: the nodes that it has heard of first.
    """

    def __init__(
        self, world: World, name: str, bootstrap: Sequence[NodeAddress], *, request_timeout_s: float = 4.0
    ) -> None:
        self.chance: random.Random = world.chance_of(name)
        self.topic_ids: dict[str, bytes] = {}
        self.topic_names: dict[bytes, str] = {}
        self.partition_counts: dict[str, int] = {}
        self._bootstrap = bootstrap
        self._client = SimulatedClient(world, name)
        self._request_timeout_s = request_timeout_s
        self._leaders: dict[TopicPartition, NodeAddress] = {}
        self._coordinators: dict[tuple[int, str], NodeAddress] = {}

    def close(self) -> None:
        """Break all connections."""
        self._client.close()

    async def back_off(self) -> None:
        """Wait as clients do before they try again."""
        await asyncio.sleep(self.chance.uniform(0.02, 0.2))

    async def send(
        self, address: NodeAddress, message: Any, version: int, *, channel: str = "", timeout_s: float | None = None
    ) -> Any:
        """Send a request to a node and return its response. Raises Disconnected."""
        timeout_s = timeout_s or self._request_timeout_s
        return await self._client.send(address, message, version, channel=channel, timeout_s=timeout_s)

    # Leaders

    async def leader(self, topic_partition: TopicPartition) -> NodeAddress:
        """The leader of a partition. Raises Disconnected, also when there is none."""
        if topic_partition not in self._leaders:
            await self.learn(topic_partition.topic)
        address = self._leaders.get(topic_partition)
        if address is None:
            raise Disconnected(f"{topic_partition} has no leader")
        return address

    async def learn(self, topic: str) -> None:
        """Request a topic's partitions and their leaders. Raises Disconnected."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        response = await self._ask_any_broker(request, METADATA_VERSION)
        nodes = {node.node_id: NodeAddress(node.node_id, node.host, node.port) for node in response.brokers}
        for described in response.topics:
            if described.error_code:
                continue
            self.topic_ids[topic] = described.topic_id
            self.topic_names[described.topic_id] = topic
            self.partition_counts[topic] = len(described.partitions)
            for partition in described.partitions:
                leader = nodes.get(partition.leader_id)
                if leader is not None:
                    self._leaders[TopicPartition(topic, partition.partition_index)] = leader

    def forget_leader(self, topic_partition: TopicPartition) -> None:
        """The coordinator does not answer, or answers that it is another node."""
        self._leaders.pop(topic_partition, None)

    async def offset(self, topic_partition: TopicPartition, mark: int, *, isolation_level: int = 0) -> int:
        """The first offset of a partition, or the one after its last. Raises Disconnected, also for every error."""
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[
                ListOffsetsTopic(
                    name=topic_partition.topic,
                    partitions=[ListOffsetsPartition(partition_index=topic_partition.partition, timestamp=mark)],
                )
            ],
        )
        address = await self.leader(topic_partition)
        response = await self.send(address, request, LIST_OFFSETS_VERSION)
        (answer,) = response.topics[0].partitions
        if answer.error_code:
            self.forget_leader(topic_partition)
            raise Disconnected(f"{topic_partition}: {ErrorCode(answer.error_code).name}")
        offset: int = answer.offset
        return offset

    # Coordinators

    async def ask_coordinator(
        self, kind: int, key: str, message: Any, version: int, *, channel: str = "", timeout_s: float | None = None
    ) -> Any:
        """Send a request to the coordinator of a group or a transactional id. Raises Disconnected; that coordinator is
        looked for again then.
        """
        try:
            address = await self._coordinator(kind, key)
            return await self.send(address, message, version, channel=channel, timeout_s=timeout_s)
        except Disconnected:
            self.forget_coordinator(kind, key)
            raise

    def forget_coordinator(self, kind: int, key: str) -> None:
        self._coordinators.pop((kind, key), None)

    async def _coordinator(self, kind: int, key: str) -> NodeAddress:
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        response = await self._ask_any_broker(
            FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), FIND_COORDINATOR_VERSION
        )
        (found,) = response.coordinators
        if found.error_code:
            raise Disconnected(ErrorCode(found.error_code).name)
        address = self._coordinators[kind, key] = NodeAddress(found.node_id, found.host, found.port)
        return address

    def any_node(self) -> NodeAddress:
        """One of the nodes that it has heard of first."""
        return self.chance.choice(self._bootstrap)

    async def _ask_any_broker(self, message: Any, version: int) -> Any:
        return await self.send(self.any_node(), message, version, channel="bootstrap")
