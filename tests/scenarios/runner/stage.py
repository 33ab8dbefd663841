"""The world of one scenario: its brokers, which die and come back, their clients, and the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fencepost.broker.hosting.placement import PlacementView
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.network.server import StartError
from fencepost.broker.storage.disk import StorageError
from tests.scenarios.runner.engine_point import WatchedRequests
from tests.scenarios.runner.faults import Fate, Faults, Survival
from tests.scenarios.runner.sweep_point import Plant
from tests.simulation.broker import SimulatedBroker
from tests.simulation.broker_cluster import BrokerCluster
from tests.simulation.disk import Operation
from tests.simulation.engine_cluster import EngineCluster, EngineSettings
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.scenarios.runner.party import Party

HOP_S = 0.0001
SYNC_S = 0.001
UNDER_WAY_S = 3 * HOP_S
"""Long enough for a request to reach the broker and be decided on, too short for any answer that needs a sync."""

STARTS = 10
START_PAUSE_S = 0.5
"""Between two attempts to start a broker that needs an engine."""
FROZEN_BEYOND_LEASE_S = 2.0
"""How long a broker stands still after the end of its lease: others have taken over when it goes on."""

TRANSITIONS = 11
"""The invariant that states follow one another as the table says."""

SETTINGS = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}


class Machine:
    """A broker of the scenario, and what is to go wrong with it.

    has_lost_power: since it ran last.
    starting:       held by the task that starts it: two processes must not share one disk.
    """

    def __init__(self, stage: Stage, broker: SimulatedBroker) -> None:
        self.broker = broker
        self.faults = Faults(self._lose_power, self._watch)
        self._stage = stage
        self.fate = Fate(0)
        self.has_lost_power = False
        self.starting = asyncio.Lock()
        self._is_kept_up = False
        broker.before, broker.after = self.faults.before, self.faults.after
        broker.disk._chance = self.fate
        broker.sync_latency_s = stage.usual_sync_latency_s
        self._idle_operation_count = broker.disk.operation_count

    def _lose_power(self) -> None:
        self.has_lost_power = True

    @property
    def operation_count(self) -> int:
        """How much was done to its disk since the scenario began."""
        return self.broker.disk.operation_count - self._idle_operation_count

    def _watch(self, operation: Operation, is_before: bool) -> None:
        if self._stage.plant is not None:
            self._stage.plant.watch(self, operation, is_before=is_before)

    def kill(self, *, power_loss: bool = False, survival: Survival = Survival.NOTHING) -> None:
        """End the process; power_loss: and with it what the disk had not synced."""
        if power_loss:
            self.fate.survival = survival
            self.has_lost_power = True
        self.broker.crash()

    async def start(self) -> bool:
        """False when it died on the way. Raises what Node.start raises."""
        self.faults.has_struck = False
        self._stage.forget_the_dead()
        has_lost_power, self.has_lost_power = self.has_lost_power, False
        is_up = await self.broker.start(power_loss=has_lost_power)
        if self._stage.away_s is not None and not self._is_kept_up:
            self._is_kept_up = True
            self._stage.world.loop.create_task(self._keep_up(self._stage.away_s))
        return is_up

    async def _keep_up(self, away_s: float) -> None:
        """Start the broker again, for ever, so long after it has died."""
        while True:
            await self.broker.died.wait()
            await self._stage.wait(away_s)
            if not self.broker.is_running:
                await self._stage.bring_up(self)


class Stage:
    """What the steps of a scenario work on.

    is_forgiving: faults that the scenario does not know of are planted, so a client without a reply brings the broker
                  back and asks again, and steps that no longer make sense are left out.
    plant:        such a fault.
    unanswered:   requests that have no answer, however often they were repeated, each in a sentence.
    away_s:       after which a broker on an engine that has died starts again by itself; None: it does not.
    engine_requests: what brokers ask the engine, and what is to go wrong with it.
    engine:       what several brokers share that are on machines of their own; None where they are not.
    broken_by_hand: invariants that do not hold because a step put something into the files that no broker would.
    """

    def __init__(self) -> None:
        self.world = World(0)
        self.world.network.latency_s = (HOP_S, HOP_S)
        self.machines: dict[int, Machine] = {}
        self.parties: dict[str, Party] = {}
        self.topics: dict[str, int] = {}
        self.settings: dict[str, str] = dict(SETTINGS)
        self.cluster: BrokerCluster | None = None
        self.engine: EngineCluster | None = None
        self.longest_timeout_ms = 0
        self.broken_by_hand: set[int] = set()
        self.is_forgiving = False
        self.unanswered: list[str] = []
        self.engine_requests = WatchedRequests()
        self.away_s: float | None = None
        self.plant: Plant | None = None
        self.usual_sync_latency_s = (SYNC_S, SYNC_S)

    def machine(self, node_id: int = 1) -> Machine:
        """The broker of that number, made when it is first spoken of."""
        machine = self.machines.get(node_id)
        if machine is None:
            cluster = self.cluster or self.engine
            if cluster is None:
                broker = self.world.add_broker(node_id, self.settings)
            else:
                broker = cluster.add_broker(node_id, self.settings)
            machine = self.machines[node_id] = Machine(self, broker)
        return machine

    def configure(self, settings: Mapping[str, str]) -> None:
        """From their next start on, all brokers have these settings too."""
        self.settings.update(settings)
        for machine in self.machines.values():
            machine.broker.settings.update(settings)

    # Several brokers

    def make_cluster(self) -> None:
        """Several brokers share metadata and placement; broker 1 leads what nobody else was given."""
        self.cluster = BrokerCluster(self.world, lambda _: 1)

    def share_engine(self, settings: EngineSettings) -> None:
        """Several brokers on machines of their own share an engine, on whose ways nothing is left to chance."""
        self.engine = EngineCluster(self.world, settings)
        engine = self.engine.engine
        engine.chance = engine.objects._chance = Fate(0)
        engine.requests.meet = self.engine_requests.meet
        engine.requests.freeze_s = settings.lease_ms / 1000 + FROZEN_BEYOND_LEASE_S

    def forget_the_dead(self) -> None:
        """The placement tells a process that is not running nothing any more."""
        if self.cluster is not None:
            self.cluster.forget_the_dead()

    def move(self, topic_partition: TopicPartition, node_id: int | None) -> None:
        """Have another broker lead a partition, with what the one before has on its disk; None: nobody leads it."""
        assert self.cluster is not None
        self.cluster.move(topic_partition, node_id)

    def heal_cluster(self) -> None:
        """Everybody reaches everybody, hears of everything, and every partition has a leader."""
        if self.cluster is None:
            return
        for machine in self.machines.values():
            for other in self.machines.values():
                self.world.network.join(machine.broker.host, other.broker.host)
        self.world.network.latency_between_s.clear()
        self.cluster.heal()

    def view(self, node_id: int) -> PlacementView | None:
        """The leaders that a broker knows; None while it is down."""
        return None if self.cluster is None else self.cluster.view(node_id)

    def leader_id(self, topic_partition: TopicPartition) -> int:
        """The broker that leads a partition; 1 when there is only one broker, or no leader."""
        cluster = self.cluster or self.engine
        return 1 if cluster is None else cluster.leader_id(topic_partition) or 1

    def unsettled(self) -> list[str]:
        """What brokers on an engine have not come to rest with, each in a sentence."""
        if self.engine is None:
            return []
        unserved = self.engine.unserved()
        found = [*self.unanswered, *(f"no broker serves {name}" for name in unserved)]
        for machine in self.machines.values():
            for log in machine.broker.node.services.topics.directory.logs():
                name = log.topic_partition
                is_led = self.engine.leader_id(name) == machine.broker.node_id
                if is_led and log.last_stable_offset != log.log_end_offset:
                    found.append(f"{name} is stable up to {log.last_stable_offset}, and ends at {log.log_end_offset}")
        return found

    async def bring_up(self, machine: Machine) -> None:
        """Start a broker that is down, as often as it takes; where the disk is full, room is made first."""
        async with machine.starting:
            for _ in range(STARTS):
                try:
                    if machine.broker.is_running or await machine.start():
                        return
                except (StorageError, StartError):
                    machine.kill()
                    machine.faults.is_disk_full = False  # its operator makes room
                await self.wait(START_PAUSE_S if self.engine is not None else 0.0)
        raise AssertionError(f"broker {machine.broker.node_id} cannot be started")

    async def wait(self, duration_s: float) -> None:
        await self.world.wait(duration_s)
