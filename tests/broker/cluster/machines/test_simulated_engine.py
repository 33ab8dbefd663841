"""The engine of the simulation does what PostgreSQL does: the same calls, made by chance, have the same outcome in
both, and leave the same rows.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import pytest

from fencepost.broker.cluster.leases.lease_table import Move, NodeEvent, NodeId
from fencepost.broker.cluster.objects.names import flush_name
from fencepost.broker.cluster.postgres import tail
from fencepost.broker.cluster.postgres.connections import Connection, connect, parse_address
from fencepost.broker.cluster.postgres.lease_store import PostgresLeaseStore, Renewal
from fencepost.broker.cluster.postgres.segment_rows import PostgresGarbage, PostgresRemoteLogMetadata
from fencepost.broker.cluster.postgres.tail import PostgresTail
from fencepost.broker.cluster.remote.segment_objects import SegmentObjects
from fencepost.broker.cluster.remote.segment_rows import GarbageTable, Leadership, LogStart, RemoteLogMetadata
from fencepost.broker.cluster.tail.scratch import ScratchDisk
from fencepost.broker.cluster.tail.tail_store import FlushId, NotLedError, PartitionKey, TailRow, TailStore
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.last_leader_state import LastLeaderState
from fencepost.broker.log.segment.remote_segment import RemoteSegmentMetadata
from fencepost.broker.metadata.image import TopicMetadata
from tests.simulation.disk import SimulatedDisk
from tests.simulation.engine import (
    CLUSTER_ID,
    EngineGarbage,
    EngineLeaseStore,
    EngineRemoteLogMetadata,
    EngineTail,
    SimulatedEngine,
)
from tests.support.modelled_objects import ModelledObjects

STEPS: Final = 60
COMPARED_EVERY: Final = 5
NODE_IDS: Final = (1, 2, 3)
TOPICS: Final = ("orders", "payments")
LEASE_S: Final = 1_000.0
CLOSED: Final = LastLeaderState(was_closed=True)


class Side(ABC):
    """One of the two engines as three nodes reach it."""

    stores: Mapping[NodeId, PostgresLeaseStore]
    tail: TailStore
    sealed: RemoteLogMetadata
    garbage: GarbageTable

    @abstractmethod
    async def expire(self, node_id: NodeId) -> None:
        """End the lease of a node."""

    @abstractmethod
    async def set_back(self, node_id: NodeId) -> None:
        """As if the clock had been set back by hours since the node renewed its lease."""

    @abstractmethod
    async def garbage_names(self) -> set[str]: ...

    async def rows(self) -> Any:
        """All that there is."""
        leases = await self.stores[1].load_leases()
        topics = await self.stores[1].load_topics()
        keys = [PartitionKey(topic.topic_id, number) for topic in topics for number in range(topic.partition_count)]
        return (
            leases.table,
            leases.last_state,
            {topic.name: (topic.topic_id, topic.partition_count, dict(topic.configs)) for topic in topics},
            {topic.topic_id for topic in await self.stores[1].load_deletions()},
            sorted([row async for row in self.tail.read(keys)]),
            await self.sealed.read(keys),
            await self.garbage_names(),
        )


class Real(Side):
    def __init__(self, database: Connection, stores: Mapping[NodeId, PostgresLeaseStore]) -> None:
        self._database = database
        self.stores = stores
        address = stores[1].address
        self.tail = PostgresTail(address, lambda: "test tail")
        self.sealed = PostgresRemoteLogMetadata(address, CLUSTER_ID, lambda: "test sealed")
        self.garbage = PostgresGarbage(address, CLUSTER_ID, lambda: "test garbage")

    async def expire(self, node_id: NodeId) -> None:
        await self._database.execute(
            "UPDATE nodes SET lease_until = clock_timestamp() - interval '1 s' WHERE node_id = $1", node_id
        )

    async def set_back(self, node_id: NodeId) -> None:
        await self._database.execute(
            "UPDATE nodes SET lease_until = clock_timestamp() + interval '2 hours' WHERE node_id = $1", node_id
        )

    async def garbage_names(self) -> set[str]:
        return {row["name"] for row in await self._database.fetch("SELECT name FROM garbage")}

    async def close(self) -> None:
        for store in self.stores.values():
            await store.close()
        await self.tail.close()  # type: ignore[attr-defined]
        await self.sealed.close()  # type: ignore[attr-defined]
        await self.garbage.close()  # type: ignore[attr-defined]
        await self._database.close()


class Simulated(Side):
    def __init__(self) -> None:
        self._engine = SimulatedEngine(random.Random(1), random.Random(2))
        disk = SimulatedDisk(random.Random(3))
        self.stores = {
            node_id: EngineLeaseStore(self._engine, f"node-{node_id}", disk, lease_s=LEASE_S) for node_id in NODE_IDS
        }
        self.tail = EngineTail(self._engine, "node-1", disk)
        self.sealed = EngineRemoteLogMetadata(self._engine, "node-1", disk)
        self.garbage = EngineGarbage(self._engine, "node-1", disk)

    async def expire(self, node_id: NodeId) -> None:
        nodes = self._engine.rows.nodes
        if node_id in nodes:
            nodes[node_id] = replace(nodes[node_id], lease_until_s=self._engine.now_s() - 1)

    async def set_back(self, node_id: NodeId) -> None:
        nodes = self._engine.rows.nodes
        if node_id in nodes:
            nodes[node_id] = replace(nodes[node_id], lease_until_s=self._engine.now_s() + 7_200)

    async def garbage_names(self) -> set[str]:
        return set(self._engine.rows.garbage)


@pytest.fixture
async def real(cluster_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Real]:
    # The simulation joins no rows that follow each other: groups of a byte have one each.
    one_by_one = tail._READ.replace(f"position / {tail.JOINED_BYTES}", "position / 1")
    assert one_by_one != tail._READ
    monkeypatch.setattr(tail, "_READ", one_by_one)
    address = parse_address(cluster_url)
    stores = {node_id: PostgresLeaseStore(address, lease_s=LEASE_S) for node_id in NODE_IDS}
    for store in stores.values():
        await store.open()
    side = Real(await connect(address, application_name="test"), stores)
    await side._database.execute("UPDATE cluster SET cluster_id = $1", CLUSTER_ID)
    yield side
    await side.close()


class Calls:
    """Calls that chance chooses, made to both sides; what the nodes know is taken from the real one."""

    def __init__(self, chance: random.Random, real: Real, simulated: Simulated) -> None:
        self.chance = chance
        self.sides = real, simulated
        self.real = real
        self.fences: dict[NodeId, int] = {}
        self.sequence = 0
        self.flushes: list[tuple[FlushId, list[TailRow], dict[UUID, int]]] = []
        self.objects: list[str] = []
        self.outcomes: set[tuple[str, str]] = set()
        for node_id in NODE_IDS:
            self.become_another(node_id)

    def become_another(self, node_id: NodeId) -> None:
        incarnation = self.new_id()
        for side in self.sides:
            side.stores[node_id].incarnation = incarnation

    def new_id(self) -> UUID:
        return UUID(int=self.chance.getrandbits(128), version=4)

    async def on_both(self, name: str, call: Callable[[Side], Awaitable[Any]]) -> Any:
        """Make a call to both; what it comes to must be the same, also if that is an error."""
        outcomes = []
        for side in self.sides:
            try:
                outcomes.append(_plain(await call(side)))
            except NotLedError as error:
                outcomes.append(("left out", sorted(error.keys)))
            except Exception as error:  # noqa: BLE001  # compared below
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1], f"{name}: PostgreSQL {outcomes[0]}, simulated {outcomes[1]}"
        found = outcomes[0]
        self.outcomes.add((name, found.__name__ if isinstance(found, type) else str(bool(found))))
        return found

    # Calls

    async def start(self) -> None:
        node_id = self.chance.choice(NODE_IDS)
        if self.chance.random() < 0.6:
            self.become_another(node_id)
        own_lease_after_s = self.chance.choice((0.0, LEASE_S / 2, None))
        host = "shared" if self.chance.random() < 0.2 else f"host-{node_id}"
        endpoints = {"PLAINTEXT": (host, self.chance.choice((9092, 9092, 9093)))}
        fence = await self.on_both(
            "start", lambda side: side.stores[node_id].start(node_id, endpoints, own_lease_after_s=own_lease_after_s)
        )
        if isinstance(fence, int):
            self.fences[node_id] = fence

    async def renew(self) -> None:
        node_id = self.chance.choice(NODE_IDS)
        await self.on_both("renew", lambda side: side.stores[node_id].renew(node_id))

    async def expire(self) -> None:
        node_id = self.chance.choice(NODE_IDS)
        for side in self.sides:
            await side.expire(node_id)

    async def set_back(self) -> None:
        node_id, other = self.chance.sample(NODE_IDS, 2)
        for side in self.sides:
            await side.set_back(node_id)
        await self.on_both("renew", lambda side: side.stores[other].renew(other))
        await self.on_both("shorten_leases", lambda side: side.stores[other].shorten_leases())

    async def take_over(self) -> None:
        node_id, other = self.chance.sample(NODE_IDS, 2)
        await self.on_both("take_over", lambda side: side.stores[node_id].take_over(other))

    async def leave(self) -> None:
        node_id = self.chance.choice(NODE_IDS)
        await self.on_both("leave", lambda side: side.stores[node_id].leave(node_id))

    async def node_event(self) -> None:
        node_id, event = self.chance.choice(NODE_IDS), self.chance.choice((NodeEvent.DRAINED, NodeEvent.RESUMED))
        await self.on_both("node_event", lambda side: side.stores[1].node_event(node_id, event))

    async def move(self) -> None:
        table = (await self.real.stores[1].load_leases()).table
        source = self.chance.choice(NODE_IDS)
        moves = {
            Move(
                name,
                source,
                lease.epoch + self.chance.choice((0, 0, 0, 1)),
                self.chance.choice(NODE_IDS),
                self.chance.choice((*[lease.topic_id] * 9, b"earlier" * 2 + b"!!")),
            ): CLOSED
            for name, lease in table.partitions.items()
            if lease.leader == source or self.chance.random() < 0.1
        }
        fence = self.fences.get(source, 0) - (self.chance.random() < 0.1)
        await self.on_both("move", lambda side: side.stores[source].move(moves, fence=fence))

    async def choose(self) -> None:
        name = TopicPartition(self.chance.choice(TOPICS), self.chance.randrange(3))
        node_id = self.chance.choice((None, *NODE_IDS))
        await self.on_both("choose", lambda side: side.stores[1].choose({name: node_id}))

    async def create_topic(self) -> None:
        topic = TopicMetadata(self.chance.choice(TOPICS), self.new_id().bytes, self.chance.randint(1, 3))
        await self.on_both("create_topic", lambda side: side.stores[1].create_topic(topic))

    async def grow(self) -> None:
        name, count, before = self.chance.choice(TOPICS), self.chance.randint(3, 4), self.chance.randint(2, 3)
        topic_id = await self._topic_id(name)
        await self.on_both(
            "set_partition_count",
            lambda side: side.stores[1].set_partition_count(name, count, topic_id=topic_id, before=before),
        )

    async def configure(self) -> None:
        name, configs = self.chance.choice(TOPICS), {"retention.ms": str(self.chance.randint(1, 3))}
        before = self.chance.choice(({}, {"retention.ms": str(self.chance.randint(1, 3))}))
        topic_id = await self._topic_id(name)
        await self.on_both(
            "set_topic_configs",
            lambda side: side.stores[1].set_topic_configs(name, configs, topic_id=topic_id, before=before),
        )

    async def delete_topic(self) -> None:
        if self.chance.random() < 0.3:
            name = self.chance.choice(TOPICS)
            topic_id = await self._topic_id(name)
            await self.on_both("delete_topic", lambda side: side.stores[1].delete_topic(name, topic_id))

    async def _topic_id(self, name: str) -> bytes:
        """That of the topic with this name; at times of another one."""
        ids = {topic.name: topic.topic_id for topic in await self.real.stores[1].load_topics()}
        return self.new_id().bytes if self.chance.random() < 0.1 else ids.get(name, b"\0" * 16)

    async def document(self) -> None:
        key, version = self.chance.choice("ab"), self.chance.randrange(3)
        value = self.chance.randbytes(3)
        await self.on_both("compare_and_set", lambda side: side.stores[1].compare_and_set(key, value, version))
        await self.on_both("read_versioned", lambda side: side.stores[1].read_versioned(key))

    async def flush(self) -> None:
        """Flush to the ends of some partitions, at times where rows are already, or under an old fence."""
        keys = await self._some_keys()
        if self.chance.random() < 0.2:
            keys += [PartitionKey(self.new_id().bytes, 0)]  # of a topic that is deleted
        leaders = await self._leaders()
        node_id = self.chance.choice([leader for key in keys if (leader := leaders.get(key))] or NODE_IDS)
        self.sequence += 1
        flush = FlushId(node_id, self.fences.get(node_id, 1) - (self.chance.random() < 0.1), self.sequence)
        object_id = self.new_id() if self.chance.random() < 0.3 else None
        rows = []
        for key in keys:
            base = max(0, await self._end(key) - (self.chance.random() < 0.1))
            content = None if object_id else b"%03d" % base
            end = base + self.chance.randint(1, 2)
            checksum = self.chance.randbytes(32) if object_id and self.chance.random() < 0.8 else None
            rows.append(TailRow(key, 0, base * 3, 3, base, end, 1, content, object_id, 0, checksum))
        if rows:
            sizes = {object_id: 3 * len(rows)} if object_id else {}
            self.flushes.append((flush, rows, sizes))
            await self._commit(flush, rows, sizes)

    async def flush_again(self) -> None:
        """A flush whose answer was lost is looked for, and repeated."""
        if self.flushes:
            flush, rows, sizes = self.chance.choice(self.flushes[-3:])
            await self.on_both("is_committed", lambda side: side.tail.is_committed(flush, rows))
            if await self.on_both("is_committed", lambda side: side.tail.is_committed(flush, rows)) is False:
                return
            await self._commit(flush, rows, sizes)

    async def _commit(self, flush: FlushId, rows: list[TailRow], sizes: dict[UUID, int]) -> None:
        self.objects += [flush_name(CLUSTER_ID, object_id) for object_id in sizes]
        await self.on_both("commit", lambda side: side.tail.commit(flush, rows, object_sizes=sizes))

    async def seal(self) -> None:
        """Seal a span of a partition's rows, which at times has a hole, or reaches beyond its end."""
        for key in await self._some_keys():
            ends = [0, *sorted({row.end_offset async for row in self.real.tail.read([key])})]
            sealed_rows = (await self.real.sealed.read([key])).get(key)
            if sealed_rows is not None:
                ends = sorted({*ends, *(one.end_offset for one in sealed_rows.segments)})
            base, end = sorted(self.chance.sample([*ends, ends[-1] + 1], 2))
            sealed = RemoteSegmentMetadata(base, end, 100, 5, self.chance.random() < 0.5, 0, self.new_id())
            sealed = sealed._replace(checksums=self.chance.choice((None, self.chance.randbytes(128))))
            names = SegmentObjects(ModelledObjects(), CLUSTER_ID, ScratchDisk()).names(key, sealed)
            self.objects += names
            for _ in range(self.chance.choice((1, 1, 2))):
                await self._replace(key, sealed, names)

    async def _replace(self, key: PartitionKey, sealed: RemoteSegmentMetadata, names: Sequence[str]) -> None:
        leadership = await self._leadership(key)
        await self.on_both(
            "replace",
            lambda side: side.sealed.replace(key, leadership, sealed, names=names, epochs=b"0\n0\n"),
        )

    async def raise_log_starts(self) -> None:
        starts = {}
        for key in await self._some_keys():
            first_base, log_start = self.chance.randrange(20), self.chance.randrange(20)
            starts[key] = LogStart(await self._leadership(key), log_start, first_base, self.chance.randrange(5))
        if starts:
            node_id = next(iter(starts.values())).leadership.node_id
            starts = {key: one for key, one in starts.items() if one.leadership.node_id == node_id}
            await self.on_both("raise_log_starts", lambda side: side.sealed.raise_log_starts(starts))

    async def sweep(self) -> None:
        await self.on_both("find", lambda side: side.garbage.find())
        due = await self.on_both("due", lambda side: _sorted(side.garbage.due(-1, 1_000)))
        if due and self.chance.random() < 0.5:
            await self.on_both("removed", lambda side: side.garbage.removed(due))
        if self.objects:
            names = self.chance.sample(self.objects, min(3, len(self.objects)))
            await self.on_both("add_orphans", lambda side: side.garbage.add_orphans(names))

    # What chance chooses from

    async def _some_keys(self) -> list[PartitionKey]:
        table = (await self.real.stores[1].load_leases()).table
        keys = [PartitionKey(lease.topic_id, name.partition) for name, lease in table.partitions.items()]
        return self.chance.sample(sorted(keys), min(2, len(keys)))

    async def _leaders(self) -> dict[PartitionKey, NodeId | None]:
        table = (await self.real.stores[1].load_leases()).table
        return {PartitionKey(lease.topic_id, name.partition): lease.leader for name, lease in table.partitions.items()}

    async def _end(self, key: PartitionKey) -> int:
        found = (await self.real.sealed.read([key])).get(key)
        return max(
            [0 if found is None else found.sealed_end, *[row.end_offset async for row in self.real.tail.read([key])]]
        )

    async def _leadership(self, key: PartitionKey) -> Leadership:
        """That which counts; at times of another fence, epoch or node."""
        table = (await self.real.stores[1].load_leases()).table
        lease = next(
            lease for name, lease in table.partitions.items() if PartitionKey(lease.topic_id, name.partition) == key
        )
        node_id = lease.leader or 1
        wrong = self.chance.choice((0, 0, 0, 0, 0, 1, 2))
        return Leadership(node_id, self.fences.get(node_id, 1) + (wrong == 1), lease.epoch + (wrong == 2))


async def _sorted(names: Awaitable[Sequence[str]]) -> list[str]:
    return sorted(await names)


def _plain(outcome: Any) -> Any:
    """Without what clocks decide."""
    if isinstance(outcome, Renewal):
        return sorted(outcome.lost), outcome.soonest_end_s is None, outcome.was_set_back
    return sorted(outcome) if isinstance(outcome, list | set) else outcome


CALLS: Final = (
    *(Calls.start, Calls.renew, Calls.expire, Calls.take_over, Calls.leave, Calls.node_event, Calls.move, Calls.choose),
    *(Calls.create_topic, Calls.grow, Calls.configure, Calls.delete_topic, Calls.document),
    *(Calls.flush, Calls.flush, Calls.flush, Calls.flush_again, Calls.seal, Calls.seal),
    *(Calls.raise_log_starts, Calls.sweep, Calls.set_back),
)


@pytest.mark.parametrize("seed", range(3))
async def test_the_same_calls_have_the_same_outcome_in_postgresql_and_in_the_simulation(real: Real, seed: int) -> None:
    chance = random.Random(seed)
    calls = Calls(chance, real, Simulated())
    await calls.start()
    await calls.create_topic()
    for step in range(1, STEPS + 1):
        call = chance.choice(CALLS)
        await call(calls)
        if step % COMPARED_EVERY == 0:
            rows, simulated = [await side.rows() for side in calls.sides]
            assert rows == simulated, f"after {call.__name__}"
