"""What goes wrong between brokers: partitions move, views lag, and the network does its worst.

A broker on a machine of its own that does not hear of its deposition can tell clients what was true once, and no broker
without a lease can help that. Where it matters it is out of the clients' reach meanwhile, but never out of the other
brokers'.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

from fencepost.broker.kernel.topic_partition import TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.protocol.messages.markers import WriteTxnMarkersRequest
from tests.simulation.broker import SimulatedBroker
from tests.simulation.broker_cluster import BrokerCluster
from tests.simulation.crossing import Crossings
from tests.simulation.trace import Exchange

if TYPE_CHECKING:
    from tests.simulation.engine_cluster import EngineCluster
    from tests.simulation.process_cluster import ProcessCluster
    from tests.simulation.world import World

LOSS_PROBABILITY: Final = 0.15
REPEAT_PROBABILITY: Final = 0.3
PATIENCE_S: Final = 3.0


class BetweenBrokers(ABC):
    """Faults of the network between brokers, and what all clusters have in common. Each method is one fault, from its
    beginning to its end.

    fixed_topics: whose partitions stay where they are, because they come and go themselves.
    busy:         the partitions whose moves are worth most now.
    happened:     tells the trace.
    """

    def __init__(
        self,
        world: World,
        cluster: BrokerCluster | ProcessCluster | EngineCluster,
        crossings: Crossings,
        chance: random.Random,
        *,
        fixed_topics: Collection[str],
        busy: Callable[[], Sequence[TopicPartition]],
        happened: Callable[[str], None],
    ) -> None:
        self._world = world
        self._brokers = cluster
        self._crossings = crossings
        self._chance = chance
        self._fixed_topics = fixed_topics
        self._busy = busy
        self._happened = happened

    @abstractmethod
    async def move(self) -> None:
        """A partition moves to another broker."""

    async def _next_markers(self, hold_up_s: float) -> Exchange | None:
        """The next WriteTxnMarkers from one broker to another, which takes so long; None when none comes for long."""
        sent: asyncio.Future[Exchange] = asyncio.get_running_loop().create_future()

        def hold_up(exchange: Exchange) -> None:
            if isinstance(exchange.request, WriteTxnMarkersRequest) and not sent.done():
                hosts = frozenset((exchange.client, self._brokers.brokers[exchange.node_id].host))
                self._world.network.latency_between_s[hosts] = hold_up_s
                sent.set_result(exchange)

        self._crossings.on_sent.append(hold_up)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await sent
        except TimeoutError:
            return None
        finally:
            self._crossings.on_sent.remove(hold_up)

    async def separate(self) -> None:
        with self._between_two("cannot reach each other", "reach each other again") as (host, other):
            self._world.network.separate(host, other)
            await asyncio.sleep(self._chance.uniform(0.1, 6.0))
            self._world.network.join(host, other)

    async def slow_down(self) -> None:
        latencies_s = self._world.network.latency_between_s
        with self._between_two("are far apart", "are close again") as (host, other):
            latencies_s[frozenset((host, other))] = self._chance.choice((0.02, 0.15, 0.6))
            for _ in range(self._chance.randint(1, 4)):
                await asyncio.sleep(self._chance.uniform(0.1, 1.0))
                await self.move()  # what is on its way goes to the broker that was the leader
            latencies_s.pop(frozenset((host, other)), None)

    async def lose(self) -> None:
        network = self._world.network
        with self._between_two("lose what they send each other", "lose nothing any more") as (host, other):
            network.loss_probability = LOSS_PROBABILITY
            network.losing.add(frozenset((host, other)))
            await asyncio.sleep(self._chance.uniform(0.5, 4.0))
            network.losing.discard(frozenset((host, other)))

    async def repeat(self) -> None:
        network = self._world.network
        with self._between_two("get late repeats", "get no repeats any more") as (host, other):
            network.repeat_probability = REPEAT_PROBABILITY
            network.repeating |= {(host, other), (other, host)}
            await asyncio.sleep(self._chance.uniform(1.5, 6.0))
            network.repeating -= {(host, other), (other, host)}

    @contextmanager
    def _between_two(self, begin: str, end: str) -> Iterator[tuple[str, str]]:
        hosts = [broker.host for broker in self._brokers.brokers.values()]
        host, other = self._chance.choice(list(combinations(hosts, 2)))
        self._happened(f"{host} and {other} {begin}")
        yield host, other
        self._happened(f"{host} and {other} {end}")

    def _movable(self) -> list[TopicPartition]:
        return [
            topic_partition
            for topic_partition in self._brokers.partitions()
            if topic_partition.topic not in self._fixed_topics
        ]

    def _any_partition(self) -> TopicPartition | None:
        """One that may move, perhaps a busy one; None when there is none."""
        movable = self._movable()
        busy = [name for name in self._busy() if name in movable]
        partitions = busy if busy and self._chance.random() < 0.5 else movable
        return self._chance.choice(partitions) if partitions else None


class ClusterFaults(BetweenBrokers):
    """Faults of brokers on machines of their own.

    isolates: whether clients must not be told what was true once: an EndTxn of version 1 would be answered with the
              state of the transaction before, a group with the offsets that it had then.
    """

    def __init__(self, world: World, cluster: BrokerCluster, *about: Any, isolates: bool, **options: Any) -> None:
        super().__init__(world, cluster, *about, **options)
        self._cluster = cluster
        self._isolates = isolates
        self._in_the_dark: set[int] = set()

    def fail_over(self, broker: SimulatedBroker) -> None:
        """The others take over what a dead broker has led."""
        self._cluster.table.unregister(broker.node_id)
        for topic_partition in self._movable():
            if self._cluster.leader_id(topic_partition) == broker.node_id:
                self._move(topic_partition)

    async def move(self) -> None:
        topic_partition = self._any_partition()
        if topic_partition is not None:
            self._move(topic_partition)

    async def depose(self) -> None:
        """Nobody leads a partition for a while."""
        topic_partition = self._any_partition()
        if topic_partition is None:
            return
        self._happened(f"nobody leads {topic_partition}")
        self._cluster.move(topic_partition, None)
        await asyncio.sleep(self._chance.uniform(0.1, 3.0))
        if self._cluster.leader_id(topic_partition) is None:
            self._move(topic_partition)

    async def keep_in_the_dark(self) -> None:
        """A broker does not get changes of placement."""
        brokers = [broker for broker in self._cluster.brokers.values() if broker.is_running]
        if self._in_the_dark or len(brokers) < 2:
            return
        with self._darkness(self._chance.choice(brokers)):
            for _ in range(self._chance.randint(1, 4)):
                await asyncio.sleep(self._chance.uniform(0.0, 0.5))
                self._move_from_the_dark()
            await asyncio.sleep(self._chance.uniform(0.0, 2.0))

    async def overtake_markers(self) -> None:
        """While markers are on their way, and late, their partitions move, or their coordinator does and does not hear
        of it.
        """
        hold_up_s = self._chance.uniform(0.1, 1.0)
        exchange = await self._next_markers(hold_up_s)
        if exchange is None:
            return
        hosts = frozenset((exchange.client, self._cluster.brokers[exchange.node_id].host))
        self._happened(f"markers from {exchange.client} to broker-{exchange.node_id} take {hold_up_s:.2f} s")
        sender = next(broker for broker in self._cluster.brokers.values() if broker.host == exchange.client)
        if self._chance.random() < 0.5:
            for topic_partition in marked(exchange.request):
                self._move(topic_partition)
            await asyncio.sleep(2 * hold_up_s)
        elif not self._in_the_dark and sender.is_running:
            with self._darkness(sender):
                for topic_partition in self._movable():
                    is_its = self._cluster.leader_id(topic_partition) == sender.node_id
                    if is_its and topic_partition.topic == TRANSACTION_STATE_TOPIC:
                        self._move(topic_partition)
                await asyncio.sleep(2 * hold_up_s)
        self._world.network.latency_between_s.pop(hosts, None)

    @contextmanager
    def _darkness(self, broker: SimulatedBroker) -> Iterator[None]:
        """A running broker does not get changes of placement."""
        view = self._cluster.view(broker.node_id)
        assert view is not None
        self._happened(f"{broker.host} gets no changes of placement")
        self._in_the_dark.add(broker.node_id)
        view.pause_updates()
        if self._isolates:
            self._world.network.isolate(broker.host, [other.host for other in self._cluster.brokers.values()])
        yield
        self._in_the_dark.discard(broker.node_id)
        view.catch_up()
        self._world.network.open_up(broker.host)
        self._happened(f"{broker.host} gets the changes of placement")

    def _move_from_the_dark(self) -> None:
        """A partition moves, rather from a broker that does not hear of it, and rather a coordinator's."""
        partitions = self._movable()
        unheard = [name for name in partitions if self._cluster.leader_id(name) in self._in_the_dark]
        coordinated = [name for name in unheard if name.topic == TRANSACTION_STATE_TOPIC]
        dice = self._chance.random()
        choice = (coordinated if dice < 0.4 else unheard if dice < 0.7 else partitions) or partitions
        if choice:
            self._move(self._chance.choice(choice))

    def _move(self, topic_partition: TopicPartition) -> None:
        """To a broker that runs and hears of it; nowhere, when there is none."""
        leader_id = self._cluster.leader_id(topic_partition)
        nodes = [
            node_id
            for node_id, broker in self._cluster.brokers.items()
            if broker.is_running and node_id != leader_id and node_id not in self._in_the_dark
        ]
        if nodes:
            node_id = self._chance.choice(nodes)
            self._happened(f"broker-{node_id} leads {topic_partition}")
            self._cluster.move(topic_partition, node_id)


def marked(request: WriteTxnMarkersRequest) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, partition)
        for marker in request.markers
        for topic in marker.topics
        for partition in topic.partition_indexes
    ]
