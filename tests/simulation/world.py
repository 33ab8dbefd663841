"""One simulated world: time, chance, a network, brokers and clients. Everything in it follows from its seed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fencepost.broker.cluster.leases.lease_store import StoredLeases
from fencepost.broker.cluster.tail.tail_store import PartitionKey
from fencepost.broker.kernel.topic_partition import TopicPartition
from tests.simulation.broker import SimulatedBroker
from tests.simulation.client import SimulatedClient
from tests.simulation.clients.ledger import Ledger
from tests.simulation.clients.recreator import Recreations
from tests.simulation.disk import Operation
from tests.simulation.loop import SimulatedClock, VirtualTimeLoop
from tests.simulation.network import SimulatedNetwork
from tests.simulation.trace import Trace

if TYPE_CHECKING:
    from tests.simulation.engine_cluster import EngineCluster
    from tests.simulation.process_cluster import ProcessCluster


class World:
    """Made inside `tests.simulation.loop.run`, which gives it a loop with virtual time.

    seed:  the same seed leads to the same world, callback by callback.
    trace: what passed between clients and brokers, and what happened to them.
    aged: the epochs of transactional ids that are older than the world.
    reached: the situations that came up, and how often, see `tests.simulation.situations`.
    secured: the clients whose rights change.
    processes: the machine that all brokers share as processes; None where each has its own.
    engine:   what brokers on several machines share; None where they share none.
    recreations: what was sent to a topic that is deleted and created again.
    ledgers: the databases of applications that commit in two phases, by name.
    placement_observers: called with a partition and the nodes that it went from and to, once its files are there.
    leader_observers: called with a partition that gets a leader or a leader epoch in an engine, with that leader, and
                      with where the log ends that it finds.
    partition_deletion_observers: called with a partition of an engine whose topic is deleted.
    lease_observers: called with the rows of nodes and partitions before and after a transaction that has changed them.
    disk_observers: called with the broker after each operation on its disk, in the order in which they took effect.
    """

    def __init__(self, seed: int = 0) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop), "a world lives in virtual time: use tests.simulation.loop.run"
        self.loop = loop
        self.seed = seed
        self.clock = SimulatedClock(loop)
        self.network = SimulatedNetwork(self.chance_of("network"))
        self.trace = Trace(loop.time)
        self.brokers: dict[int, SimulatedBroker] = {}
        self.reached: Counter[str] = Counter()
        self.aged: dict[str, int] = {}
        self.secured: set[str] = set()
        self.ledgers: dict[str, Ledger] = {}
        self.recreations = Recreations()
        self.processes: ProcessCluster | None = None
        self.engine: EngineCluster | None = None
        self.placement_observers: list[Callable[[TopicPartition, int, int], None]] = []
        self.leader_observers: list[Callable[[TopicPartition, int | None, int], None]] = []
        self.partition_deletion_observers: list[Callable[[PartitionKey], None]] = []
        self.lease_observers: list[Callable[[StoredLeases, StoredLeases], None]] = []
        self.disk_observers: list[Callable[[SimulatedBroker, Operation], None]] = []

    def chance_of(self, name: str) -> random.Random:
        """Chance for one part of the world, which what other parts draw does not change."""
        return random.Random(f"{self.seed} {name}")

    def add_broker(
        self, node_id: int = 1, settings: Mapping[str, str] | None = None, **options: Any
    ) -> SimulatedBroker:
        """A broker that is not started yet; options as of `SimulatedBroker`."""
        broker = self.brokers[node_id] = SimulatedBroker(self, node_id, settings, **options)
        return broker

    def client(self, name: str) -> SimulatedClient:
        return SimulatedClient(self, name)

    async def wait(self, duration_s: float) -> None:
        """Let time pass."""
        await asyncio.sleep(duration_s)
