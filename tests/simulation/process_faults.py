"""What goes wrong with the processes of one broker: they die, hang, leave, come back, and lose their metadata."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from fencepost.broker.kernel.topic_partition import TopicPartition
from tests.simulation.broker import SimulatedBroker
from tests.simulation.leased_faults import LeasedFaults
from tests.simulation.process_cluster import LONGEST_SILENCE_S, ProcessCluster

if TYPE_CHECKING:
    from tests.simulation.world import World

AWAY_S: Final = (0.0, 0.0, 0.5, 3.0)
"""How long the parent takes to start a process again: often at once, and sometimes long enough to be missed."""
UNSURE_SHARE: Final = 0.3
"""Of the moves that an operator asks for."""
POWER_LOSS_SHARE: Final = 0.3
"""Of the deaths that would be a power loss of a machine of its own: here one ends all processes."""


class ProcessFaults(LeasedFaults):
    """Faults of a broker of several processes. No network is between them that could lose what they send."""

    cluster: ProcessCluster

    def __init__(self, world: World, cluster: ProcessCluster, *about: Any, **options: Any) -> None:
        super().__init__(world, cluster, *about, **options)
        self.cluster = cluster

    async def _choose(self, name: TopicPartition, node_id: int | None) -> None:
        await self.cluster.choose(name, node_id)

    async def _drain(self, node_id: int, *, is_drained: bool) -> None:
        await self.cluster.drain(node_id, is_drained=is_drained)

    def _moved(self, name: TopicPartition) -> None:
        """Sometimes the leader's next change of the metadata has an unknown outcome."""
        leader_id = self.cluster.leader_id(name)
        if leader_id is not None and self._chance.random() < UNSURE_SHARE:
            self._happened(f"broker-{leader_id}: the next change of the metadata fails, stored or not")
            unsure = self.cluster.database.unsure
            unsure[self.cluster.brokers[leader_id].host] = self._chance.random() < 0.5

    async def hang(self) -> None:
        """A process hangs with all that it holds, until the parent kills it."""
        broker = self._chance.choice(list(self.cluster.brokers.values()))
        process = broker.process
        if process.is_dead or process.is_paused:
            return
        self._happened(f"{broker.host} hangs")
        process.pause()
        await asyncio.sleep(LONGEST_SILENCE_S)
        self._happened(f"{broker.host} is killed, as it hangs")
        process.kill()

    async def refuse_metadata(self) -> None:
        """A process cannot read or change the metadata for a while."""
        broker = self._chance.choice(list(self.cluster.brokers.values()))
        self._happened(f"{broker.host}: metadata are refused")
        self.cluster.database.refused.add(broker.host)
        await asyncio.sleep(self._chance.uniform(0.05, 3.0))
        self.cluster.database.refused.discard(broker.host)
        self._happened(f"{broker.host}: metadata are not refused any more")

    async def change_document(self) -> None:
        """A process changes a document of the metadata."""
        self._happened("a document changes")
        await self.cluster.change_document()

    async def end_parent(self) -> None:
        """The parent is killed, and all its processes with it."""
        self._happened("the parent is killed")
        self.cluster.end_all(power_loss=False)

    async def before_start(self, broker: SimulatedBroker, *, loses_power: bool) -> bool:
        """What happens between the end of a process and the start of the next; returns whether it is to be started."""
        process = broker.process
        if loses_power and self._chance.random() < POWER_LOSS_SHARE:
            self._happened("the machine loses its power")
            self.cluster.end_all(power_loss=True)
        else:
            await asyncio.sleep(self._chance.choice(AWAY_S))
        await self.cluster.prepared()
        return broker.process is process
