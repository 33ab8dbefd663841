"""What goes wrong with brokers on an engine: they do not reach it, it fails over, is silent, loses answers, and so does
the object store; operators move and drain meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from fencepost.broker.kernel.topic_partition import TopicPartition
from tests.simulation.broker import SimulatedBroker
from tests.simulation.disk import SimulatedDisk
from tests.simulation.engine import WAY_S
from tests.simulation.engine_cluster import EngineCluster
from tests.simulation.leased_faults import LeasedFaults

if TYPE_CHECKING:
    from tests.simulation.world import World

AWAY_S: Final = (0.0, 0.0, 0.5, 2.0, 6.0)
"""How long a broker that died is away: often it is back before its lease is over."""
LOST_MACHINE_SHARE: Final = 0.5
"""Of the deaths that are a power loss: the broker comes back with an empty disk."""


class EngineFaults(LeasedFaults):
    """Faults of brokers on an engine."""

    cluster: EngineCluster

    def __init__(self, world: World, cluster: EngineCluster, *about: Any, **options: Any) -> None:
        super().__init__(world, cluster, *about, **options)
        self.cluster = cluster
        self._troubled = cluster.engine

    async def _choose(self, name: TopicPartition, node_id: int | None) -> None:
        self.cluster.choose(name, node_id)

    async def _drain(self, node_id: int, *, is_drained: bool) -> None:
        self.cluster.drain(node_id, is_drained=is_drained)

    async def change_document(self) -> None:
        """A document of the metadata changes."""
        self._happened("a document changes")
        self.cluster.change_document()

    async def freeze(self) -> None:
        """A broker is stopped for longer than its lease, and goes on as if nothing had happened."""
        broker = self._chance.choice(list(self.cluster.brokers.values()))
        process = broker.process
        if process.is_dead or process.is_paused:
            return
        self._happened(f"{broker.host} freezes")
        process.pause()
        await asyncio.sleep(self.cluster.settings.lease_ms / 1000 + self._chance.uniform(0.0, 6.0))
        self._happened(f"{broker.host} wakes up")
        process.resume()

    async def cut_off(self) -> None:
        """A broker does not reach the engine, while clients and other brokers reach it."""
        broker = self._chance.choice(list(self.cluster.brokers.values()))
        troubles = self._troubled.troubles
        if broker.host in troubles.cut_off:
            return
        self._happened(f"{broker.host} does not reach the engine")
        troubles.cut_off.add(broker.host)
        await asyncio.sleep(self._chance.choice((0.2, 2.0, 6.0)))
        self._happened(f"{broker.host} reaches the engine again")
        troubles.cut_off.discard(broker.host)

    async def fail_over(self) -> None:
        """The database restarts, or another server takes its place: all connections break."""
        engine = self._troubled
        if engine.troubles.is_away:
            return
        self._happened("the database fails over")
        engine.begin_fail_over()
        await asyncio.sleep(self._chance.choice((0.01, 0.5, 5.0)))
        self._happened("the database is there again")
        engine.end_fail_over()

    async def fall_silent(self) -> None:
        """The database answers nobody for a while, and then does what has waited."""
        engine = self._troubled
        if engine.troubles.is_silent:
            return
        self._happened("the database answers nobody")
        engine.fall_silent()
        await asyncio.sleep(self._chance.choice((0.2, 1.5, 8.0)))
        self._happened("the database answers again")
        engine.speak()

    async def lose_answers(self) -> None:
        """Answers of the database get lost, and news of changes do."""
        troubles = self._troubled.troubles
        self._happened("answers of the database get lost")
        troubles.lost_answers, troubles.lost_news = self._chance.choice(((0.1, 0.5), (0.4, 0.0), (0.0, 1.0)))
        await asyncio.sleep(self._chance.uniform(0.5, 4.0))
        self._happened("answers of the database arrive again")
        troubles.lost_answers = troubles.lost_news = 0.0

    async def slow_down_engine(self) -> None:
        """The database takes its time."""
        troubles = self._troubled.troubles
        self._happened("the database is slow")
        troubles.way_s = (0.005, self._chance.choice((0.05, 0.3, 1.0)))
        await asyncio.sleep(self._chance.uniform(0.5, 4.0))
        self._happened("the database is no longer slow")
        troubles.way_s = WAY_S

    async def trouble_objects(self) -> None:
        """Requests to the object store are slow, fail, and may have been carried out all the same."""
        objects = self._troubled.objects
        self._happened("the object store is slow and fails")
        objects.trouble, objects.slowest_s = self._chance.choice((0.2, 0.7)), self._chance.choice((0.01, 0.5))
        await asyncio.sleep(self._chance.uniform(0.5, 5.0))
        self._happened("the object store works again")
        objects.trouble = objects.slowest_s = 0.0

    async def refuse_objects(self) -> None:
        """The object store refuses all requests."""
        objects = self._troubled.objects
        self._happened("the object store refuses everything")
        objects.is_refusing = True
        await asyncio.sleep(self._chance.uniform(0.5, 6.0))
        self._happened("the object store does not refuse any more")
        objects.is_refusing = False

    async def end_all(self) -> None:
        """All brokers die at once."""
        self._happened("all brokers are killed")
        for broker in self.cluster.brokers.values():
            broker.crash()

    async def before_start(self, broker: SimulatedBroker, *, loses_power: bool) -> bool:
        """What happens between the end of a broker and its next start; returns whether it is to be started."""
        process = broker.process
        await asyncio.sleep(self._chance.choice(AWAY_S))
        if broker.process is not process:
            return False
        if loses_power and self._chance.random() < LOST_MACHINE_SHARE:
            self._happened(f"{broker.host} is a new machine")
            broker.disk = SimulatedDisk(self._chance, process=process)
            broker.disk.make_directory(broker.data_directory)
        return True
