"""Brokers on several machines over one engine: `PostgresMember`, `MachineLogs` and all that keeps logs as they are.

Each broker has a scratch of its own, which a start empties, and a monotonic clock that may be slow or fast. What a
broker leads follows from the rows of the engine alone, and so does what its next leader finds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import random
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final
from unittest import mock

from fencepost.broker.cluster.machines import machine
from fencepost.broker.cluster.machines.machine import ClusterObjects, LogRows, MachineLogs
from fencepost.broker.cluster.objects import flush_objects
from fencepost.broker.cluster.objects.names import SegmentName
from fencepost.broker.cluster.postgres.member import PostgresMember
from fencepost.broker.cluster.remote import object_sweep as sweep
from fencepost.broker.cluster.tail import tail_log
from fencepost.broker.cluster.tail.tail_store import PartitionKey
from fencepost.broker.config import Settings
from fencepost.broker.hosting.broker_configs import BROKER_CONFIGS_KEY
from fencepost.broker.hosting.features import FEATURES_KEY
from fencepost.broker.hosting.membership import Cluster
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.segment import batch_scan, header_check
from tests.simulation.broker import SimulatedBroker, broker_settings
from tests.simulation.disk import SimulatedDisk
from tests.simulation.engine import (
    CLUSTER_ID,
    EngineGarbage,
    EngineLeaseStore,
    EngineObjects,
    EngineRemoteLogMetadata,
    EngineTail,
    SimulatedEngine,
)
from tests.simulation.engine_rows import PartitionRow
from tests.simulation.situations import A_FLUSH_IS_REFUSED

if TYPE_CHECKING:
    from tests.simulation.world import World

OPERATOR: Final = uuid.UUID(int=1)
BLOCK_BYTES: Final = 200
"""Of sealed segments, which are small, too."""


@dataclass(frozen=True)
class EngineSettings:
    """Those of all nodes; the smallest are below what an operator may set, as worlds are small."""

    lease_ms: int = 3_000
    lease_renewal_ms: int = 1_000
    inline_max_bytes: int = 256 * 1024
    tail_max_bytes: int = 128 * 1024 * 1024
    scratch_max_bytes: int = 10 * 1024**3
    garbage_ms: int = 20_000


@contextlib.contextmanager
def small_engines(chance: random.Random) -> Iterator[None]:
    """While it is entered, objects and incarnations have ids that a seed decides, and the sweep comes every second:
    worlds are short."""
    with contextlib.ExitStack() as patches:
        for target, name, value in (
            (uuid, "os", SimpleNamespace(urandom=chance.randbytes)),
            (flush_objects, "random", chance),
            (sweep, "INTERVAL_S", 1.0),
            (sweep, "LISTING_INTERVAL_S", 3.0),
            (tail_log, "ANOTHER_FROM_BYTES", 300),
            (machine, "BLOCK_BYTES", BLOCK_BYTES),
            (header_check, "SCAN_CHUNK_BYTES", BLOCK_BYTES // 2),
            (batch_scan, "SCAN_CHUNK_BYTES", BLOCK_BYTES // 2),
        ):
            patches.enter_context(mock.patch.object(target, name, value))
        yield


class EngineCluster:
    """settings: of all nodes. speeds: of the nodes' monotonic clocks; 1.0 unless given."""

    def __init__(self, world: World, settings: EngineSettings, speeds: Mapping[int, float] | None = None) -> None:
        self.brokers: dict[int, SimulatedBroker] = {}
        self.members: dict[int, PostgresMember] = {}
        self.engine = SimulatedEngine(world.chance_of("engine"), world.chance_of("objects"))
        self.settings = settings
        self._speeds = speeds or {}
        self._world = world
        self._changes = itertools.count(1)
        self._configs: dict[str, dict[str, str]] = {}
        self._led: dict[PartitionKey, tuple[int | None, int]] = {}
        self._leases = self.engine.rows.leases(0.0)
        self._count = 0
        self.engine.on_committed.append(self._committed)
        self.engine.on_refused.append(self._refused)
        world.engine = self

    def add_broker(self, node_id: int, settings: Mapping[str, str]) -> SimulatedBroker:
        """A broker of the cluster, not started yet."""
        broker = self.brokers[node_id] = self._world.add_broker(
            node_id, settings, shares=lambda disk: self._shares(node_id, disk)
        )
        return broker

    def _shares(self, node_id: int, disk: SimulatedDisk) -> tuple[EngineLeaseStore, Cluster]:
        broker = self.brokers[node_id]
        engine, host = self.engine, broker.host
        settings = self._settings_of(broker)
        speed = self._speeds.get(node_id, 1.0)

        def monotonic_s() -> float:
            return self._world.loop.time() * speed

        tail = EngineTail(engine, host, disk)
        sealed = EngineRemoteLogMetadata(engine, host, disk)
        garbage = EngineGarbage(engine, host, disk)

        async def connect() -> None:
            """Sessions connect when they are used."""

        async def close() -> None:
            for rows in (tail, sealed, garbage):
                await rows.close()

        rows = LogRows(tail, sealed, garbage, connect, close)
        objects = EngineObjects(engine, host, disk)
        store = EngineLeaseStore(engine, host, disk, lease_s=settings.fencepost_cluster_lease_ms / 1000)
        member = self.members[node_id] = PostgresMember(
            store,
            node_id,
            renew_interval_s=settings.fencepost_cluster_lease_renewal_ms / 1000,
            connections=rows,
            monotonic_s=monotonic_s,
        )
        logs = MachineLogs(
            settings,
            member,
            rows,
            ClusterObjects(CLUSTER_ID, of_flushes=objects, in_background=objects),
            open_scratch=lambda: contextlib.nullcontext(disk),
            monotonic_s=monotonic_s,
        )
        return store, Cluster(member, logs.make)

    def _settings_of(self, broker: SimulatedBroker) -> Settings:
        return dataclasses.replace(
            broker_settings(broker),
            **{
                f"fencepost_cluster_{field.name}": getattr(self.settings, field.name)
                for field in dataclasses.fields(self.settings)
            },
        )

    # Questions

    def partitions(self) -> list[TopicPartition]:
        """Those of all topics that there are."""
        return [name for topic in self.engine.rows.topics.values() for name in topic.partitions()]

    def key(self, name: TopicPartition) -> PartitionKey | None:
        topic = self.engine.rows.topics.get(name.topic)
        return None if topic is None else PartitionKey(topic.topic_id, name.partition)

    def row(self, name: TopicPartition) -> PartitionRow | None:
        key = self.key(name)
        return None if key is None else self.engine.rows.partitions.get(key)

    def leader_id(self, topic_partition: TopicPartition) -> int | None:
        """Who leads a partition, by its row."""
        row = self.row(topic_partition)
        return None if row is None else row.leader

    def holder_id(self, topic_partition: TopicPartition) -> int:
        return self.leader_id(topic_partition) or 1

    def end_offset(self, key: PartitionKey) -> int:
        """Up to where a log is committed."""
        rows = self.engine.rows
        tail = rows.tails.get(key)
        row = rows.partitions.get(key)
        end = 0 if row is None else row.sealed_end
        return max(end, max((one.row.end_offset for one in tail.values()), default=0)) if tail else end

    def tail_bytes(self) -> dict[int, int]:
        """How much of the logs of each leader is in the database alone."""
        rows = self.engine.rows
        found = dict.fromkeys(self.brokers, 0)
        for key, row in rows.partitions.items():
            if row.leader is not None:
                found[row.leader] += sum(one.length_bytes for one in rows.tail(key))
        return found

    def sealed_files(self, name: TopicPartition) -> dict[str, bytes]:
        """The files of all sealed segments of a partition, by their names, as the object store has them."""
        key = self.key(name)
        if key is None:
            return {}
        files = {}
        for one in self.engine.rows.segments.get(key, {}).values():
            segment = SegmentName(CLUSTER_ID, key.topic_id, key.partition, one.base_offset, one.object_id)
            for path in segment.files(one.end_offset, has_aborted=one.has_aborted):
                content = self.engine.objects.objects.get(path)
                if content is not None:
                    files[path.rpartition("/")[2]] = content
        return files

    def unserved(self) -> list[TopicPartition]:
        """Partitions without a running broker that has their log."""
        running = [broker for broker in self.brokers.values() if broker.is_running]
        return [
            name
            for name in self.partitions()
            if all(broker.node.services.topics.log(name) is None for broker in running)
        ]

    def documents(self) -> Mapping[str, int]:
        """The versions of all documents."""
        return {key: row.version for key, row in self.engine.rows.documents.items()}

    def documents_read_by(self, node_id: int) -> Mapping[str, int]:
        """The versions of documents that a broker has read or written last."""
        store = self.brokers[node_id].store
        return store.read_versions if isinstance(store, EngineLeaseStore) else {}

    # What an operator asks for

    def choose(self, topic_partition: TopicPartition, node_id: int | None) -> None:
        """Name the node that should lead a partition; None: the one by its hash."""
        self.engine.rows.choose({topic_partition: node_id})
        self.engine.committed()

    def drain(self, node_id: int, *, is_drained: bool) -> None:
        """Have a node hand over what it leads, or come back."""
        self._configs[str(node_id)] = {"fencepost.drain": str(is_drained).lower()}
        self._write_document(BROKER_CONFIGS_KEY, self._configs)

    def change_document(self) -> None:
        """A document changes, as another broker would change it."""
        self._write_document(FEATURES_KEY, {"epoch": next(self._changes), "levels": {}})

    def _write_document(self, key: str, content: object) -> None:
        rows = self.engine.rows
        _, version = rows.read_versioned(key)
        rows.compare_and_set(key, json.dumps(content).encode(), version, OPERATOR)
        self.engine.committed()

    # What happens

    def _committed(self) -> None:
        """Who leads what may have changed: the next leader finds what is committed, and nothing else."""
        rows = self.engine.rows
        for key in sorted(rows.touched):
            row = rows.partitions.get(key)
            before = self._led.get(key)
            if row is None:
                self._led.pop(key, None)
                if before is not None:
                    for observe_deletion in self._world.partition_deletion_observers:
                        observe_deletion(key)
                continue
            if before == (row.leader, row.leader_epoch):
                continue
            self._led[key] = row.leader, row.leader_epoch
            name = self.name(key)
            for observe in self._world.leader_observers:
                observe(name, row.leader, self.end_offset(key))
            if before is not None and None not in (before[0], row.leader) and before[0] != row.leader:
                for observe_move in self._world.placement_observers:
                    observe_move(name, before[0], row.leader)  # type: ignore[arg-type]  # neither is None
        placed = sum(rows.counts.values())
        if placed != self._count:
            self._count = placed
            before_leases, self._leases = self._leases, rows.leases(self.engine.now_s())
            for observe_leases in self._world.lease_observers:
                observe_leases(before_leases, self._leases)

    def _refused(self) -> None:
        self._world.reached[A_FLUSH_IS_REFUSED] += 1

    def name(self, key: PartitionKey) -> TopicPartition:
        names = {topic.topic_id: topic.name for topic in self.engine.rows.topics.values()}
        return TopicPartition(names[key.topic_id], key.partition)
