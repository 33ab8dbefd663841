"""Worlds of a share group with a dead-letter topic: members accept, release, reject and forget records, processes are
killed before and after any change of a disk, and machines lose their power. At the end each record is in one place.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from enum import Enum
from typing import Final

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from fencepost.protocol.record import Record
from fencepost.protocol.record_batch import build_batch, iterate_batches, read_records
from tests.simulation.broker import SimulatedBroker
from tests.simulation.client import Disconnected
from tests.simulation.clients.cluster import LATEST, Cluster
from tests.simulation.clients.share_member import ACCEPT, FORGET, REJECT, RELEASE, Fates, ShareMember
from tests.simulation.disk import Operation, die
from tests.simulation.engine_cluster import EngineCluster, EngineSettings, small_engines
from tests.simulation.loop import run
from tests.simulation.process_cluster import ProcessCluster
from tests.simulation.world import World

GROUP_ID, MEMBER_ID, SOURCE, DEAD = "workers", "AAAAAAAAAAAAAAAAAAAAAA", "orders", "dlq.orders"
PARTITIONS: Final = 2
BATCHES, BATCH_RECORDS = 6, 4
RAGE_S: Final = 40.0
LONGEST_REST_S: Final = 240.0
GROUP_RESOURCE: Final = 32
SETTINGS: Final = {
    "share.coordinator.state.topic.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "1",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "1000",
}
CONFIGS: Final = {
    "share.auto.offset.reset": "earliest",
    "share.record.lock.duration.ms": "1000",
    "share.delivery.count.limit": "2",
    "errors.deadletterqueue.topic.name": DEAD,
    "errors.deadletterqueue.copy.record.enable": "true",
}


class Kind(Enum):
    """How the broker of a world runs."""

    ONE = "one process"
    PROCESSES = "three processes of a machine"
    MACHINES = "three machines over an engine"


class Ends:
    """Where the records of a world are at its end. deliverable: those that a last member got; dead: how often each
    record is in the dead-letter topic. crash_count: of processes."""

    def __init__(self) -> None:
        self.fates: defaultdict[int, Fates] = defaultdict(Fates)
        self.deliverable: set[tuple[int, int]] = set()
        self.dead: Counter[tuple[int, int]] = Counter()
        self.crash_count = 0

    def violations(self) -> list[str]:
        """What is not as it was promised: each record is acknowledged, dead or deliverable, and only one of the
        three."""
        found = []
        for partition in range(PARTITIONS):
            fates = self.fates[partition]
            if fates.after_their_end:
                found.append(f"{partition}: {fates.after_their_end} were delivered after their end")
            for offset in range((BATCHES + 1) * BATCH_RECORDS):
                place = (partition, offset)
                is_deliverable, dead_count = place in self.deliverable, self.dead[place]
                name = f"record {offset} of {partition}"
                if dead_count > 1:
                    found.append(f"{name} is in the dead-letter topic {dead_count} times")
                if dead_count and is_deliverable:
                    found.append(f"{name} is in the dead-letter topic, and deliverable")
                if offset in fates.confirmed[ACCEPT] and (dead_count or is_deliverable):
                    found.append(f"{name} was accepted, and is in another place too")
                if offset in fates.confirmed[REJECT] and not dead_count:
                    found.append(f"{name} was rejected, and is not in the dead-letter topic")
                if not dead_count and not is_deliverable and offset not in fates.attempted[ACCEPT]:
                    found.append(f"{name} is nowhere")
        return found


def run_world(seed: int, kind: Kind) -> Ends:
    """Live through one world."""

    async def live() -> Ends:
        return await _World(seed, kind).live()

    with small_engines(random.Random(f"{seed} engine ids")):
        return run(live())


class _World:
    def __init__(self, seed: int, kind: Kind) -> None:
        self._world = World(seed)
        self._kind = kind
        self._chance = self._world.chance_of("dead letters")
        self._cluster: ProcessCluster | EngineCluster | None = None
        self._brokers: list[SimulatedBroker] = []
        self._is_raging = True
        self._ends = Ends()

    async def live(self) -> Ends:
        await self._start()
        client = Cluster(self._world, "member", [broker.address for broker in self._brokers])
        await self._prepare(client)
        producing = self._world.loop.create_task(self._produce())
        raging = self._world.loop.create_task(self._rage())
        member = self._member(client, self._by_chance)
        while self._is_raging and not raging.done():
            await self._work(member)
            await self._world.wait(self._chance.uniform(0.0, 0.3))
        await raging
        await producing
        await self._rest()
        for partition in range(PARTITIONS):
            await self._produced(client, TopicPartition(SOURCE, partition), BATCHES)
        await self._look(client)
        self._ends.crash_count = sum(broker.crash_count for broker in self._brokers)
        for broker in self._brokers:
            await broker.stop()
        return self._ends

    # The brokers

    async def _start(self) -> None:
        if self._kind is Kind.ONE:
            self._brokers.append(self._world.add_broker(1, SETTINGS))
        else:
            self._cluster = (
                ProcessCluster(self._world)
                if self._kind is Kind.PROCESSES
                else EngineCluster(self._world, EngineSettings())
            )
            self._brokers += [self._cluster.add_broker(node_id, SETTINGS) for node_id in (1, 2, 3)]
        for broker in self._brokers:
            broker.sync_latency_s = (0.0, 0.1)
        await self._start_all(power_loss=False)

    async def _start_all(self, *, power_loss: bool) -> None:
        if isinstance(self._cluster, ProcessCluster):
            await self._cluster.prepared()
            power_loss = False  # the machine has lost it for all of them
        for broker in self._brokers:
            while not broker.is_running:
                await broker.start(power_loss=power_loss)

    async def _rage(self) -> None:
        """Kill processes, mostly at a change of their disk."""
        ends_s = self._world.loop.time() + RAGE_S
        while self._world.loop.time() < ends_s:
            await self._world.wait(self._chance.uniform(0.2, 4.0))
            if isinstance(self._cluster, ProcessCluster) and self._chance.random() < 0.4:
                await self._move(self._cluster)
            elif isinstance(self._cluster, ProcessCluster) and self._chance.random() < 0.2:
                self._cluster.end_all(power_loss=self._chance.random() < 0.7)
            else:
                broker = self._chance.choice(self._brokers)
                if broker.is_running:
                    await self._kill_at_a_change(broker)
            await self._world.wait(self._chance.uniform(0.0, 3.0))
            await self._start_all(power_loss=self._chance.random() < 0.5)
        for broker in self._brokers:
            broker.before = broker.after = None
        self._is_raging = False

    async def _move(self, cluster: ProcessCluster) -> None:
        """Let another node lead a partition: of the source, of the dead-letter topic, or of the share state."""
        topic = self._chance.choice((SOURCE, DEAD, "__share_group_state"))
        place = TopicPartition(topic, self._chance.randrange(PARTITIONS))
        await cluster.choose(place, self._chance.choice((1, 2, 3)))

    async def _kill_at_a_change(self, broker: SimulatedBroker) -> None:
        concerned = self._chance.choice(("", DEAD, "__share_group_state"))
        remaining = self._chance.randint(1, 4 if concerned else 12)

        def strike(operation: Operation) -> None:
            nonlocal remaining
            remaining -= concerned in operation.path
            if not remaining:
                die()

        name = self._chance.choice(("before", "after"))
        setattr(broker, name, strike)
        for _ in range(30):
            await self._world.wait(0.1)
            if not broker.is_running:
                break
        broker.before = broker.after = None
        broker.crash()

    # The applications

    async def _prepare(self, client: Cluster) -> None:
        enabled = [CreatableTopicConfig("errors.deadletterqueue.group.enable", "true")]
        topics = [
            CreatableTopic(name=SOURCE, num_partitions=PARTITIONS, replication_factor=1),
            CreatableTopic(name=DEAD, num_partitions=PARTITIONS, replication_factor=1, configs=enabled),
        ]
        created = await client.send(client.any_node(), CreateTopicsRequest(topics=topics, timeout_ms=5_000), 7)
        assert not any(topic.error_code for topic in created.topics), created
        altered = [IncrementalAlterableConfig(name, 0, value) for name, value in CONFIGS.items()]
        request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(GROUP_RESOURCE, GROUP_ID, altered)])
        configured = await client.send(client.any_node(), request, 1)
        assert not any(one.error_code for one in configured.responses), configured

    async def _produce(self) -> None:
        """Each batch once, as an idempotent producer would."""
        client = Cluster(self._world, "producer", [broker.address for broker in self._brokers])
        for number in range(BATCHES):
            for partition in range(PARTITIONS):
                await self._produced(client, TopicPartition(SOURCE, partition), number)
            await self._world.wait(self._chance.uniform(0.0, 2 * RAGE_S / BATCHES / 3))

    async def _produced(self, client: Cluster, place: TopicPartition, number: int) -> None:
        records = [Record(index, 0, None, b"%d" % index, ()) for index in range(BATCH_RECORDS)]
        batch = build_batch(
            records,
            producer_id=10**6 + place.partition,
            producer_epoch=0,
            base_sequence=number * BATCH_RECORDS,
        )
        data = TopicProduceData(
            name=SOURCE, partition_data=[PartitionProduceData(place.partition, memoryview(bytes(batch)))]
        )
        while True:
            try:
                request = ProduceRequest(acks=-1, timeout_ms=3_000, topic_data=[data])
                answer = await client.send(await client.leader(place), request, 9)
                error = answer.responses[0].partition_responses[0].error_code
                if not error:
                    return
                raise Disconnected(ErrorCode(error).name)
            except Disconnected:
                client.forget_leader(place)
                await client.back_off()

    def _member(self, client: Cluster, decide: Callable[[], int]) -> ShareMember:
        return ShareMember(client, GROUP_ID, MEMBER_ID, SOURCE, lambda number: self._ends.fates[number], decide)

    def _by_chance(self) -> int:
        return self._chance.choice((ACCEPT, RELEASE, REJECT, FORGET))

    async def _work(self, member: ShareMember) -> int:
        count = 0
        for partition in range(PARTITIONS):
            try:
                await member.heartbeat()
                count += await member.work(partition)
            except Disconnected:
                await self._world.wait(0.05)
        return count

    # The end

    async def _rest(self) -> None:
        """Heal all; wait until the copies are made, though no member reads."""
        await self._start_all(power_loss=False)
        ends_s = self._world.loop.time() + LONGEST_REST_S
        quiet_count = 0
        while quiet_count < 5:
            assert self._world.loop.time() < ends_s, "copies are not made"
            await self._world.wait(1.5)  # locks run out, and there are copies to make
            quiet_count = 0 if self._has_undeliverable() else quiet_count + 1

    def _has_undeliverable(self) -> bool:
        services = [broker.node.services.shares for broker in self._brokers]
        return any(shares.coordinator.waiting() or shares.coordinator.is_loading for shares in services) or any(
            share_partition.has_undeliverable
            for shares in services
            for share_partition in shares.share_partitions._partitions.values()
        )

    async def _look(self, client: Cluster) -> None:
        for partition in range(PARTITIONS):
            while True:
                try:
                    await self._read(client, TopicPartition(DEAD, partition))
                    break
                except Disconnected:
                    await client.back_off()
        last = defaultdict[int, Fates](Fates)
        member = ShareMember(client, GROUP_ID, MEMBER_ID, SOURCE, lambda number: last[number], lambda: ACCEPT)
        while await self._work(member):
            pass
        self._ends.deliverable = {(number, offset) for number, fates in last.items() for offset in fates.delivered}

    async def _read(self, client: Cluster, place: TopicPartition) -> None:
        offset, end = 0, await client.offset(place, LATEST)
        found: Counter[tuple[int, int]] = Counter()
        while offset < end:
            topic_id = client.topic_ids[place.topic]
            request = FetchRequest(
                max_wait_ms=100,
                min_bytes=1,
                max_bytes=1 << 20,
                topics=[
                    FetchTopic(
                        topic_id=topic_id,
                        partitions=[
                            FetchPartition(partition=place.partition, fetch_offset=offset, partition_max_bytes=1 << 20)
                        ],
                    )
                ],
            )
            answer = await client.send(await client.leader(place), request, 13)
            (topic,) = answer.responses
            (partition,) = topic.partitions
            if partition.error_code:
                client.forget_leader(place)
                raise Disconnected(ErrorCode(partition.error_code).name)
            for batch in iterate_batches(memoryview(bytes(partition.records))):
                for record in read_records(batch):
                    headers = dict(record.headers)
                    found[
                        int(headers["__dlq.errors.partition"] or b""), int(headers["__dlq.errors.offset"] or b"")
                    ] += 1
                    offset = record.offset + 1
        self._ends.dead += found
