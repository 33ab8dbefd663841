"""A month of ordinary work of a cluster over an engine, in some minutes of the loop's time.

A day is made of bouts: applications work for some seconds, the brokers have some more to tidy up, and then the wall
clocks of all leap to the next bout. What goes by wall clocks (retention, compaction, the expiry of producers,
transactional ids and offsets) is as old then as it would be; what goes by monotonic clocks (leases, sweeps of objects,
sessions) has had its time in the bout. Timers that wait for longer than a bout have waited meanwhile. The load is the
same on each day, so that whatever there is more of at the end than after some days is kept for ever.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar
from unittest import mock

from fencepost.broker.cluster.leases import lease_placement
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.history.checker import check_history
from fencepost.history.writer import HistoryWriter
from fencepost.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from tests.simulation.census import Census, census_of_broker, census_of_engine, census_of_modules
from tests.simulation.client import Disconnected
from tests.simulation.clients.cluster import Cluster
from tests.simulation.clients.consumer import READ_COMMITTED, Consumer
from tests.simulation.clients.final_reading import read_all
from tests.simulation.clients.group import GroupMember, NotMember
from tests.simulation.clients.libraries import JAVA, LIBRDKAFKA
from tests.simulation.clients.producer import Abortable, Fatal, Producer, TransactionalProducer
from tests.simulation.disk import SimulatedDisk
from tests.simulation.engine_cluster import EngineCluster, EngineSettings, small_engines
from tests.simulation.loop import run
from tests.simulation.world import World

T = TypeVar("T")

NODE_IDS: Final = (1, 2, 3)
DAY_MS: Final = 86_400_000
KEPT_DAYS: Final = 3
"""For how long records, producers, transactional ids and offsets of groups are kept."""
SCRATCH_DAYS: Final = 2
KEYS: Final = 8
TIDY_S: Final = 12.0
"""Longer than a lease, and long enough for a seal, a sweep and a removal of garbage."""
ATTEMPTS: Final = 200

TIMED: Final = "timed"
SIZED: Final = "sized"
KEYED: Final = "keyed"
TOPICS: Final = {
    TIMED: {"retention.ms": str(KEPT_DAYS * DAY_MS), "internal.segment.bytes": "1500"},
    SIZED: {"retention.bytes": "4000", "retention.ms": "-1", "internal.segment.bytes": "1000"},
    KEYED: {
        "cleanup.policy": "compact",
        "internal.segment.bytes": "1000",
        "min.cleanable.dirty.ratio": "0.3",
        "delete.retention.ms": str(DAY_MS),
    },
}
PARTITIONS: Final = 2
SETTINGS: Final = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.segment.bytes": "3000",
    "offsets.topic.segment.bytes": "3000",
    "transactional.id.expiration.ms": str(KEPT_DAYS * DAY_MS),
    "transaction.remove.expired.transaction.cleanup.interval.ms": "2000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "producer.id.expiration.ms": str(KEPT_DAYS * DAY_MS),
    "offsets.retention.minutes": str(KEPT_DAYS * 24 * 60),
    "offsets.retention.check.interval.ms": "2000",
    "log.retention.check.interval.ms": "3000",
    "log.segment.delete.delay.ms": "1000",
    "log.cleaner.backoff.ms": "2000",
    "log.cleaner.delete.retention.ms": str(DAY_MS),
    "log.roll.ms": str(DAY_MS),
    "group.initial.rebalance.delay.ms": "0",
}
ENGINE: Final = EngineSettings(inline_max_bytes=400, tail_max_bytes=6_000, scratch_max_bytes=20_000, garbage_ms=3_000)


@dataclass(frozen=True)
class Calendar:
    """How long a month is, and how much of a day is lived through."""

    days: int = 32
    bouts: int = 1
    read_every_days: int = 6


class Month:
    """censuses: one for each day. counted: what has happened. findings: what is not as it must be."""

    def __init__(self, calendar: Calendar, seed: int) -> None:
        self.calendar = calendar
        self.censuses: list[Census] = []
        self.counted: Counter[str] = Counter()
        self.findings: list[str] = []
        self.world = World(seed)
        self.cluster = EngineCluster(self.world, ENGINE)
        self.brokers = [self.cluster.add_broker(node_id, SETTINGS) for node_id in NODE_IDS]
        self._lines: list[bytes] = []
        self._history = HistoryWriter(self._lines.append, self.world.clock.now_ms)
        self._chance = self.world.chance_of("month")
        self._witness = self._cluster("witness")
        self._day = 0
        self._value_count = 0

    async def live(self) -> None:
        """From the first day to the last."""
        for broker in self.brokers:
            await broker.start()
        await self._create(dict(TOPICS))
        for name in TOPICS:
            self._history.topic(name, compacted=name == KEYED)
        for day in range(1, self.calendar.days + 1):
            self._day = day
            for bout in range(self.calendar.bouts):
                await self._work(bout)
                await self.world.wait(TIDY_S)
                self._leap(DAY_MS // self.calendar.bouts)
            await self.world.wait(TIDY_S)
            self._look()
            if day % self.calendar.read_every_days == 0 or day == self.calendar.days:
                await self._read()
        for broker in self.brokers:
            await broker.stop()

    def _leap(self, by_ms: int) -> None:
        """All wall clocks go on, and long timers with them."""
        self.world.loop.leap(by_ms / 1000, longer_than_s=TIDY_S)
        for clock in (self.world.clock, *(broker.clock for broker in self.brokers)):
            clock.skew_ms += by_ms

    # What a day has

    async def _work(self, bout: int) -> None:
        await self._write()
        await self._write_transactions("resident")
        if bout == 0:
            await self._write_transactions(f"passing-{self._day}")
            await self._read_in_group(f"passing-{self._day}")
            await self._change_topics()
            await self._restart()
        await self._read_in_group("resident")

    async def _write(self) -> None:
        """A producer that comes and goes, with small flushes."""
        name = f"plain-{self._day}"
        history = self._history.client(name, idempotent=True)
        producer = Producer(self._cluster(name), LIBRDKAFKA, history, now_ms=self.world.clock.now_ms)
        await producer.start()
        for _ in range(6):
            for topic in TOPICS:
                self._send(producer, topic)
            await producer.flush()
        producer.close()

    async def _write_transactions(self, transactional_id: str) -> None:
        """Some are committed, one is aborted, and at times one is left open."""
        name = f"{transactional_id}-{self._day}-{self._value_count}"
        producer = TransactionalProducer(
            self._cluster(name),
            JAVA,
            self._history.client(name, transactional_id=transactional_id),
            transactional_id,
            transaction_timeout_ms=60_000,
            now_ms=self.world.clock.now_ms,
        )
        await producer.start()
        for end in (producer.commit, producer.abort, producer.commit):
            producer.begin()
            try:
                self._send(producer, TIMED)
                self._send(producer, KEYED)
                await end()
            except Abortable:
                await producer.abort()
            self.counted["transactions"] += 1
        if self._day % 4 == 0:
            producer.begin()
            self._send(producer, SIZED)
            with contextlib.suppress(Abortable, Fatal):
                await producer.flush()
            self.counted["transactions that are left open"] += 1
        producer.close()

    def _send(self, producer: Producer, topic: str) -> None:
        values = []
        for _ in range(2):
            self._value_count += 1
            values.append(f"{self._day}:{self._value_count}:{'x' * self._chance.choice((5, 20, 120))}")
        key = f"key-{self._chance.randrange(KEYS)}" if topic == KEYED else None
        producer.send(TopicPartition(topic, self._chance.randrange(PARTITIONS)), values, key=key)
        self.counted["batches"] += 1

    async def _read_in_group(self, group_id: str) -> None:
        """Join, read what there is, commit, and leave."""
        name = f"{group_id}-{self._day}-{self._value_count}"
        cluster = self._cluster(name)
        history = self._history.client(name, group_id=group_id, isolation_level="read_committed")
        consumer = Consumer(cluster, history, isolation_level=READ_COMMITTED)
        member = GroupMember(cluster, history, group_id, [TIMED, SIZED])

        async def attempt() -> None:
            if member.must_rejoin:
                await member.join()
                consumer.assign(await member.committed_positions())
            for _ in range(4):
                await consumer.poll()
            await member.commit(consumer.positions)

        await self._until_done(attempt)
        await member.leave()
        cluster.close()
        self.counted["commits of groups"] += 1

    async def _change_topics(self) -> None:
        """One comes, with records; the one of some days ago goes."""
        name = f"scratch-{self._day}"
        await self._create({name: {"internal.segment.bytes": "1000"}})
        cluster = self._cluster(f"scratch-writer-{self._day}")
        silent = HistoryWriter(lambda _: None, self.world.clock.now_ms).client("scratch")
        producer = Producer(cluster, LIBRDKAFKA, silent, now_ms=self.world.clock.now_ms)
        await producer.start()
        for _ in range(4):
            producer.send(TopicPartition(name, self._chance.randrange(PARTITIONS)), ["x" * 300], is_recorded=False)
            await producer.flush()
        producer.close()
        if self._day > SCRATCH_DAYS:
            request = DeleteTopicsRequest(topic_names=[f"scratch-{self._day - SCRATCH_DAYS}"], timeout_ms=5_000)

            async def delete() -> None:
                response = await self._witness.send(self._witness.any_node(), request, 3)
                if response.responses[0].error_code not in (0, 3):  # 3: an earlier attempt has worked
                    raise Disconnected("the topic is not deleted")

            await self._until_done(delete)
            self.counted["topics deleted"] += 1

    async def _restart(self) -> None:
        """Every other day one broker stops, dies for a while, or comes back as a new machine."""
        if self._day % 2:
            return
        number = self._day // 2
        broker = self.brokers[number % len(self.brokers)]
        how = number // len(self.brokers) % 3
        if how == 0:
            await broker.stop()
            await broker.start()
            self.counted["restarts"] += 1
            return
        broker.crash()
        await self.world.wait(2 * ENGINE.lease_ms / 1000)
        if how == 1:
            broker.disk = SimulatedDisk(self._chance, process=None)
            broker.disk.make_directory(broker.data_directory)
        await broker.start()
        self.counted["take-overs"] += 1

    # What must hold

    def _look(self) -> None:
        """Count, and compare the rows with the objects."""
        census = census_of_engine(self.cluster.engine) + census_of_modules()
        for broker in self.brokers:
            census.update({f"broker {broker.node_id}: {name}": n for name, n in census_of_broker(broker).items()})
        self.censuses.append(census)
        rows = self.cluster.engine.rows
        stored = set(self.cluster.engine.objects.objects)
        named = set(rows.named_objects())
        self._found(f"a row names {len(named - stored)} objects that are not there", named - stored)
        unnamed = {name for name in stored - named if name not in rows.garbage}
        self._found(f"{len(unnamed)} objects have no row, and are no garbage", unnamed)
        overdue_s = self.cluster.engine.now_s() - ENGINE.garbage_ms / 1000 - 3.0  # sweeps come every second
        overdue = {name for name, since_s in rows.garbage.items() if since_s < overdue_s}
        self._found(f"{len(overdue)} objects are still garbage", overdue)
        deleted = {key for key in {*rows.tails, *rows.segments} if key not in rows.partitions}
        gone = {str(key) for key in deleted if rows.tails.get(key) or rows.segments.get(key)}
        self._found(f"{len(gone)} partitions of deleted topics have rows", gone)

    def _found(self, finding: str, what: set[str]) -> None:
        if what:
            self.findings.append(f"day {self._day}: {finding}: {sorted(what)[:3]}")

    async def _read(self) -> None:
        """All that has not expired is there, as the histories of the clients have it."""
        lines = list(self._lines)
        history = HistoryWriter(lines.append, self.world.clock.now_ms).client(
            f"witness-{self._day}", isolation_level="read_committed"
        )
        for topic in TOPICS:
            for partition in range(PARTITIONS):
                name = TopicPartition(topic, partition)

                async def attempt(name: TopicPartition = name) -> None:
                    if not await read_all(self._witness, history, name):
                        raise Disconnected(f"{name} cannot be read to its end")

                await self._until_done(attempt)
        report = check_history(lines)
        self.counted["whole reads"] += 1
        self.counted["records read"] = sum(report.counts.values())
        if not report.is_valid:
            self.findings.append(f"day {self._day}: {report.findings[0].summary}")

    # Ways

    def _cluster(self, name: str) -> Cluster:
        return Cluster(self.world, name, [broker.address for broker in self.brokers])

    async def _create(self, topics: dict[str, dict[str, str]]) -> None:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=PARTITIONS,
                    replication_factor=1,
                    configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
                )
                for name, configs in topics.items()
            ],
            timeout_ms=5_000,
        )

        async def create() -> None:
            response = await self._witness.send(self._witness.any_node(), request, 5)
            if any(one.error_code not in (0, 36) for one in response.topics):  # 36: an earlier attempt has worked
                raise Disconnected("the topics are not there")

        await self._until_done(create)
        self.counted["topics created"] += len(topics)

    async def _until_done(self, attempt: Callable[[], Awaitable[T]]) -> T:
        for _ in range(ATTEMPTS):
            try:
                return await attempt()
            except (Disconnected, NotMember):
                await self._witness.back_off()
        raise AssertionError(f"day {self._day}: not done in {ATTEMPTS} attempts")


def live_through(calendar: Calendar, seed: int = 1) -> Month:
    """A month of the world with this seed."""

    async def main() -> Month:
        month = Month(calendar, seed)
        await month.live()
        return month

    with (
        small_engines(random.Random(f"{seed} engine ids")),
        mock.patch.object(lease_placement, "SETTLING_S", 0.5),
    ):
        return run(main())
