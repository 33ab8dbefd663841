"""What operators and late markers do to nodes that lead by leases, whatever the leases are stored in."""

from __future__ import annotations

import asyncio
from abc import abstractmethod

from fencepost.broker.kernel.topic_partition import INTERNAL_TOPICS, TopicPartition
from tests.simulation.cluster_faults import BetweenBrokers, marked
from tests.simulation.engine_cluster import EngineCluster
from tests.simulation.process_cluster import ProcessCluster


class LeasedFaults(BetweenBrokers):
    """Faults of nodes that lead by leases."""

    cluster: ProcessCluster | EngineCluster

    @abstractmethod
    async def _choose(self, name: TopicPartition, node_id: int | None) -> None:
        """Have an operator name the node that should lead a partition; None: the one by its hash."""

    @abstractmethod
    async def _drain(self, node_id: int, *, is_drained: bool) -> None:
        """Have an operator ask a node to hand over what it leads, or to take it back."""

    async def move(self) -> None:
        """An operator names the node that should lead a partition, or leaves it to the hash again."""
        name = self._any_partition()
        if name is not None:
            node_id = self._chance.choice((None, *self.cluster.brokers))
            self._happened(f"{name} is to be led by {f'broker-{node_id}' if node_id else 'whom its hash prefers'}")
            await self._choose(name, node_id)
            self._moved(name)

    def _moved(self, name: TopicPartition) -> None:
        """What else happens after an operator has moved a partition."""

    async def drain(self) -> None:
        """A node hands over all that it leads, and takes it back."""
        node_id = self._chance.choice(list(self.cluster.brokers))
        self._happened(f"broker-{node_id} is to hand over what it leads")
        await self._drain(node_id, is_drained=True)
        await asyncio.sleep(self._chance.uniform(0.1, 4.0))
        self._happened(f"broker-{node_id} need not hand over what it leads any more")
        await self._drain(node_id, is_drained=False)

    async def overtake_markers(self) -> None:
        """While markers are on their way, and late, their partitions move, or their coordinator does."""
        hold_up_s = self._chance.uniform(0.1, 1.0)
        exchange = await self._next_markers(hold_up_s)
        if exchange is None:
            return
        hosts = frozenset((exchange.client, self.cluster.brokers[exchange.node_id].host))
        self._happened(f"markers from {exchange.client} to broker-{exchange.node_id} take {hold_up_s:.2f} s")
        names = marked(exchange.request)
        if self._chance.random() < 0.5:
            names = [name for name in self._movable() if name.topic in INTERNAL_TOPICS]
        for name in names:
            await self._choose(name, self._chance.choice(list(self.cluster.brokers)))
        await asyncio.sleep(2 * hold_up_s)
        self._world.network.latency_between_s.pop(hosts, None)
