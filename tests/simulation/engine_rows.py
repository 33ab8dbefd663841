"""The tables of the simulated engine, and what each transaction of the product does to them, in one instant.

It stands in for the SQL of `fencepost.broker.cluster.postgres`, and for nothing else: what a broker decides, it decides
in the code of the product. `tests/broker/cluster/machines/test_simulated_engine.py` makes the same calls here and in
PostgreSQL, and compares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from uuid import UUID

from fencepost.broker.cluster.leases.lease_store import Endpoints, StoredLeases
from fencepost.broker.cluster.leases.lease_table import (
    LeaseTable,
    Move,
    NodeEvent,
    NodeId,
    NodeState,
    PartitionLease,
    Placed,
    decide_creation,
    decide_event,
    decide_move,
    heirs,
)
from fencepost.broker.cluster.objects.names import SegmentName, flush_name, object_of
from fencepost.broker.cluster.postgres.connections import LeaseLostError
from fencepost.broker.cluster.postgres.lease_store import NodeIdInUseError, Renewal
from fencepost.broker.cluster.postgres.schema import DOCUMENTS, PLACEMENT, TOPICS
from fencepost.broker.cluster.remote.fenced_objects import Fence, is_given_up
from fencepost.broker.cluster.remote.segment_rows import Leadership, LogStart, RemoteLogRows
from fencepost.broker.cluster.tail.tail_store import ConflictError, FlushId, NotLedError, PartitionKey, TailRow
from fencepost.broker.config.cluster_settings import LONGEST_LEASE_MS
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.last_leader_state import LastLeaderState
from fencepost.broker.log.segment.remote_segment import RemoteSegmentMetadata
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.storage.disk import StorageError


@dataclass(frozen=True)
class NodeRow:
    """Times in seconds, by the clock of the engine."""

    incarnation: UUID
    state: NodeState
    endpoints: Endpoints
    lease_until_s: float
    since_s: float


@dataclass(frozen=True)
class PartitionRow:
    leader: NodeId | None
    leader_epoch: int
    wanted: NodeId | None = None
    log_start_offset: int = 0
    sealed_end: int = 0
    epochs: bytes = b""
    cleaned_to: int = 0


class FlushedRow(NamedTuple):
    """A row of a tail, and whose it is."""

    row: TailRow
    flush: FlushId


class DocumentRow(NamedTuple):
    value: bytes
    version: int
    written_by: UUID


@dataclass
class EngineRows:
    """tails, segments: by partition and base offset, in rising order. objects: of flushes, with their sizes.

    garbage: since when, in seconds. counts: of changes, by their kind.
    touched: partitions whose rows the present transaction has changed; the caller empties it.
    """

    cluster_id: str
    nodes: dict[NodeId, NodeRow] = field(default_factory=dict)
    fences: dict[NodeId, int] = field(default_factory=dict)
    named_from: dict[NodeId, int] = field(default_factory=dict)
    topics: dict[str, TopicMetadata] = field(default_factory=dict)
    deletions: dict[bytes, TopicMetadata] = field(default_factory=dict)
    partitions: dict[PartitionKey, PartitionRow] = field(default_factory=dict)
    tails: dict[PartitionKey, dict[int, FlushedRow]] = field(default_factory=dict)
    segments: dict[PartitionKey, dict[int, RemoteSegmentMetadata]] = field(default_factory=dict)
    objects: dict[UUID, int] = field(default_factory=dict)
    garbage: dict[str, float] = field(default_factory=dict)
    documents: dict[str, DocumentRow] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=lambda: Counter({TOPICS: 0, DOCUMENTS: 0, PLACEMENT: 0}))
    touched: set[PartitionKey] = field(default_factory=set)

    # Leases

    def leases(self, now_s: float, epoch_ms: int = 0) -> StoredLeases:
        """All rows of nodes and partitions. epoch_ms: the wall time at which seconds count from."""
        names = {topic.topic_id: topic.name for topic in self.topics.values()}
        table = LeaseTable({node_id: row.state for node_id, row in self.nodes.items()})
        last_state = {}
        for (topic_id, partition), row in self.partitions.items():
            name = TopicPartition(names[topic_id], partition)
            table.partitions[name] = PartitionLease(topic_id, row.leader, row.leader_epoch, True, row.wanted)
            last_state[name] = LastLeaderState(row.sealed_end, row.log_start_offset)
        return StoredLeases(
            table,
            {node_id: row.endpoints for node_id, row in self.nodes.items()},
            {node_id: epoch_ms + int(row.since_s * 1000) for node_id, row in self.nodes.items()},
            last_state,
            epoch_ms + int(now_s * 1000),
        )

    def start(
        self,
        node_id: NodeId,
        incarnation: UUID,
        endpoints: Endpoints,
        *,
        own_lease_after_s: float | None,
        lease_s: float,
        now_s: float,
    ) -> int:
        """Raises NodeIdInUseError."""
        row = self.nodes.get(node_id)
        if row is not None and row.incarnation != incarnation:
            is_held = row.state is not NodeState.GONE and row.lease_until_s > now_s
            silent_s = lease_s - (row.lease_until_s - now_s)
            is_own = row.endpoints == endpoints and own_lease_after_s is not None and silent_s >= own_lease_after_s
            if is_held and not is_own:
                raise NodeIdInUseError(f"node.id {node_id} is in use")
        for other, each in self.nodes.items():
            left_s = each.lease_until_s - now_s
            is_there = each.state is not NodeState.GONE and left_s > 0
            is_silent = lease_s - left_s >= (lease_s if own_lease_after_s is None else own_lease_after_s)
            if other != node_id and is_there and not is_silent and {*each.endpoints.values()} & {*endpoints.values()}:
                raise NodeIdInUseError(f"node {other} has the address of node {node_id}")
        fence = self.named_from[node_id] = self.raise_fence(node_id)
        table = self._table()
        change = decide_event(table, node_id, NodeEvent.STARTED)
        assert change is not None
        self.nodes[node_id] = NodeRow(incarnation, change.state, endpoints, now_s + lease_s, now_s)
        self.counts[PLACEMENT] += 1
        self._place(table, change.placed)
        return fence

    def renew(self, node_id: NodeId, incarnation: UUID, *, lease_s: float, now_s: float) -> Renewal:
        """Raises LeaseLostError."""
        row = self.nodes.get(node_id)
        if row is None or row.incarnation != incarnation or row.state is NodeState.GONE:
            raise LeaseLostError(f"the lease of node {node_id} was lost: another node has taken over from it")
        self.nodes[node_id] = replace(row, lease_until_s=now_s + lease_s)
        leaders = {each.leader for each in self.partitions.values()}
        others = {other: each for other, each in self.nodes.items() if other != node_id}
        lost = [
            other
            for other, each in others.items()
            if (other in leaders if each.state is NodeState.GONE else each.lease_until_s < now_s)
        ]
        ends_s = [
            each.lease_until_s - now_s
            for each in others.values()
            if each.state is not NodeState.GONE and each.lease_until_s >= now_s
        ]
        was_set_back = any(end_s > LONGEST_LEASE_MS / 1000 for end_s in ends_s)
        return Renewal(lost, dict(self.counts), min(ends_s, default=None), was_set_back)

    def shorten_leases(self, *, lease_s: float, now_s: float) -> Sequence[NodeId]:
        shortened = [
            node_id
            for node_id, row in self.nodes.items()
            if row.state is not NodeState.GONE and row.lease_until_s > now_s + LONGEST_LEASE_MS / 1000
        ]
        for node_id in shortened:
            self.nodes[node_id] = replace(self.nodes[node_id], lease_until_s=now_s + lease_s)
        return sorted(shortened)

    def leave(self, node_id: NodeId, incarnation: UUID, *, now_s: float) -> bool:
        row = self.nodes.get(node_id)
        if row is None or row.incarnation != incarnation or row.state is NodeState.GONE:
            return False
        return self._end(node_id, now_s, takes_over=False)

    def take_over(self, node_id: NodeId, incarnation: UUID, *, now_s: float) -> bool:
        """incarnation: of the node that takes over."""
        row = self.nodes.get(node_id)
        if row is None or row.incarnation == incarnation:
            return False
        if row.state is not NodeState.GONE and row.lease_until_s >= now_s:
            return False
        return self._end(node_id, now_s, takes_over=True)

    def _end(self, node_id: NodeId, now_s: float, *, takes_over: bool) -> bool:
        table = self._table()
        if table.state(node_id) is NodeState.GONE and not table.led_by(node_id):
            return False
        lapsed = [
            other
            for other, row in self.nodes.items()
            if row.lease_until_s < now_s and row.state is not NodeState.GONE and other != node_id
        ]
        table.nodes.update(dict.fromkeys(lapsed, NodeState.GONE))
        waits = bool(lapsed) and not heirs(table, node_id)
        if waits and takes_over:
            return False
        self.raise_fence(node_id)
        change = decide_event(table, node_id, NodeEvent.LOST)
        assert change is not None
        self._set_state(node_id, change.state, now_s)
        self._place(table, () if waits else change.placed)
        return True

    def node_event(self, node_id: NodeId, event: NodeEvent, *, now_s: float) -> bool:
        change = decide_event(self._table(), node_id, event)
        if change is None:
            return False
        self._set_state(node_id, change.state, now_s)
        return True

    def move(self, moves: Sequence[Move], done: list[Placed], *, fence: int) -> list[Placed]:
        """done: by an earlier attempt, whose answer was lost; changed here. Raises LeaseLostError."""
        source = moves[0].source
        if self.fences.get(source) != fence:
            raise LeaseLostError(f"node {source} was taken over from")
        table = self._table()
        stored = []
        for one in done:
            lease = table.partitions.get(one.topic_partition)
            if lease is not None and (lease.leader, lease.epoch) == (one.leader, one.epoch):
                stored.append(one)
        decided = [placed for move in moves if (placed := decide_move(table, move)) is not None]
        self._place(table, decided)
        done[:] = stored + decided
        return done

    def choose(self, choices: Mapping[TopicPartition, NodeId | None]) -> None:
        for name, node_id in choices.items():
            key = self._key(name)
            if key in self.partitions:
                self.partitions[key] = replace(self.partitions[key], wanted=node_id)
        self.counts[PLACEMENT] += 1

    def raise_fence(self, node_id: NodeId) -> int:
        """Refuse all flushes of a node under earlier fences; returns the one that counts from now on."""
        fence = self.fences[node_id] = self.fences.get(node_id, 0) + 1
        return fence

    def _table(self) -> LeaseTable:
        return self.leases(0.0).table

    def _set_state(self, node_id: NodeId, state: NodeState, now_s: float) -> None:
        row = self.nodes[node_id]
        since_s = row.since_s if row.state is state else now_s
        self.nodes[node_id] = replace(row, state=state, since_s=since_s)
        self.counts[PLACEMENT] += 1

    def _place(self, table: LeaseTable, placed: Iterable[Placed]) -> None:
        for one in placed:
            key = PartitionKey(table.partitions[one.topic_partition].topic_id, one.topic_partition.partition)
            self.partitions[key] = replace(self.partitions[key], leader=one.leader, leader_epoch=one.epoch)
            self.touched.add(key)
            self.counts[PLACEMENT] += 1

    def _key(self, name: TopicPartition) -> PartitionKey:
        topic = self.topics.get(name.topic)
        return PartitionKey(b"" if topic is None else topic.topic_id, name.partition)

    # Topics

    def create_topic(self, topic: TopicMetadata) -> bool:
        dotless = topic.name.replace(".", "_")
        found = self.topics.get(topic.name)
        if found is None and any(name.replace(".", "_") == dotless for name in self.topics):
            return False
        found = self.topics.setdefault(topic.name, topic)
        if found.topic_id != topic.topic_id:
            return False
        self.counts[TOPICS] += 1
        self._place_missing(topic.name)
        return True

    def set_partition_count(self, name: str, partition_count: int, *, topic_id: bytes, before: int) -> bool:
        topic = self.topics.get(name)
        if topic is None or topic.topic_id != topic_id or topic.partition_count not in (partition_count, before):
            return False
        self.topics[name] = TopicMetadata(name, topic.topic_id, partition_count, topic.configs)
        self.counts[TOPICS] += 1
        self._place_missing(name)
        return True

    def _place_missing(self, name: str) -> None:
        topic = self.topics[name]
        for key in [key for key in self.partitions if key.topic_id == topic.topic_id]:
            if key.partition >= topic.partition_count:
                del self.partitions[key]
        missing = [
            TopicPartition(name, partition)
            for partition in range(topic.partition_count)
            if PartitionKey(topic.topic_id, partition) not in self.partitions
        ]
        nodes = LeaseTable({node_id: row.state for node_id, row in self.nodes.items()})
        for one in decide_creation(nodes, topic.topic_id, missing):
            key = PartitionKey(topic.topic_id, one.topic_partition.partition)
            self.partitions[key] = PartitionRow(one.leader, one.epoch)
            self.touched.add(key)
        self.counts[PLACEMENT] += 1

    def delete_topic(self, name: str, topic_id: bytes, deleted: list[bytes]) -> bool:
        """deleted: by an earlier attempt, whose answer was lost; changed here."""
        topic = self.topics.get(name)
        if topic is None or topic.topic_id != topic_id:
            return bool(deleted)
        deleted.append(topic_id)
        self.deletions[topic.topic_id] = topic
        for key in [key for key in self.partitions if key.topic_id == topic.topic_id]:
            del self.partitions[key]
            self.touched.add(key)
        del self.topics[name]
        self.counts[TOPICS] += 1
        self.counts[PLACEMENT] += 1
        return True

    def set_topic_configs(
        self, name: str, configs: Mapping[str, str], *, topic_id: bytes, before: Mapping[str, str]
    ) -> bool:
        topic = self.topics.get(name)
        if topic is None or topic.topic_id != topic_id or dict(topic.configs) not in (dict(configs), dict(before)):
            return False
        self.topics[name] = TopicMetadata(name, topic.topic_id, topic.partition_count, dict(configs))
        self.counts[TOPICS] += 1
        return True

    # Documents

    def read_versioned(self, key: str) -> tuple[bytes | None, int]:
        row = self.documents.get(key)
        return (None, 0) if row is None else (row.value, row.version)

    def compare_and_set(self, key: str, value: bytes, expected_version: int, written_by: UUID) -> bool:
        row = self.documents.get(key)
        self.counts[DOCUMENTS] += 1
        if (0 if row is None else row.version) == expected_version:
            self.documents[key] = DocumentRow(value, expected_version + 1, written_by)
            return True
        return row is not None and row.written_by == written_by

    # Tails

    def holds_fence(self, node_id: NodeId, fence: int) -> bool:
        return self.fences.get(node_id) == fence

    def led_rows(self, flush: FlushId, rows: Sequence[TailRow]) -> list[TailRow]:
        """Those rows of a flush whose partitions its node leads."""
        return [row for row in rows if (led := self.partitions.get(row.key)) and led.leader == flush.node_id]

    def insert(self, flush: FlushId, rows: Sequence[TailRow], object_sizes: Mapping[UUID, int]) -> bool:
        """Insert the rows of a flush, whatever the fence is. Raises ConflictError."""
        for row in rows:
            stored = self.tails.get(row.key, {}).get(row.base_offset)
            if stored is not None:
                if self.is_committed(flush, rows):
                    return True
                raise ConflictError(f"offset {row.base_offset} of {row.key} is held by {stored.flush}")
        self.objects.update(object_sizes)
        for row in rows:
            content = None if row.content is None else bytes(row.content)
            tail = self.tails.setdefault(row.key, {})
            tail[row.base_offset] = FlushedRow(row._replace(content=content), flush)
            self.touched.add(row.key)
        return True

    def is_committed(self, flush: FlushId, rows: Sequence[TailRow]) -> bool:
        """Raises NotLedError, of those that are not there."""
        found: set[PartitionKey] = set()
        missing: set[PartitionKey] = set()
        for row in rows:
            stored = self.tails.get(row.key, {}).get(row.base_offset)
            (found if stored is not None and stored.flush == flush else missing).add(row.key)
        if found and missing - found:
            raise NotLedError(missing - found)
        return bool(found)

    def tail(self, key: PartitionKey) -> list[TailRow]:
        """The rows of one partition, in order."""
        return [stored.row for _, stored in sorted(self.tails.get(key, {}).items())]

    # Sealed segments

    def sealed(self, keys: Sequence[PartitionKey]) -> dict[PartitionKey, RemoteLogRows]:
        found = {}
        for key in keys:
            row = self.partitions.get(key)
            if row is not None:
                segments = tuple(one for _, one in sorted(self.segments.get(key, {}).items()))
                found[key] = RemoteLogRows(row.sealed_end, row.log_start_offset, row.epochs, segments, row.cleaned_to)
        return found

    def replace(
        self,
        key: PartitionKey,
        leadership: Leadership,
        sealed: RemoteSegmentMetadata,
        *,
        names: Sequence[str],
        epochs: bytes,
        now_s: float,
    ) -> RemoteSegmentMetadata | None:
        """Raises StorageError."""
        row = self._led(key, leadership)
        if row is None:
            return None
        segments, tail = self.segments.setdefault(key, {}), self.tails.setdefault(key, {})
        for one in segments.values():
            if one.object_id == sealed.object_id:
                return one
        if any(name in self.garbage for name in names):
            raise StorageError("its objects were taken for garbage")
        span = range(sealed.base_offset, sealed.end_offset)
        compacted = [one for base, one in segments.items() if base in span]
        flushed = [one.row for base, one in tail.items() if base in span]
        offset = sealed.base_offset
        of_segments = [(one.base_offset, one.end_offset, one.leader_epoch) for one in compacted]
        removed = of_segments + [(one.base_offset, one.end_offset, one.leader_epoch) for one in flushed]
        for base, end, _ in sorted(removed):
            if base != offset:
                break
            offset = end
        if offset != sealed.end_offset:
            raise StorageError(f"the rows of {sealed.base_offset} to {sealed.end_offset} end or break at {offset}")
        stored = sealed._replace(leader_epoch=max(leader_epoch for _, _, leader_epoch in removed))
        for compacted_one in compacted:
            del segments[compacted_one.base_offset]
        for flushed_one in flushed:
            del tail[flushed_one.base_offset]
        segments[sealed.base_offset] = stored
        self.partitions[key] = replace(row, sealed_end=max(row.sealed_end, sealed.end_offset), epochs=epochs)
        self._discard(self._names(key, compacted), now_s)
        self.touched.add(key)
        return stored

    def raise_log_starts(self, starts: Mapping[PartitionKey, LogStart], *, now_s: float) -> set[PartitionKey]:
        done: set[PartitionKey] = set()
        if not starts or not self.holds_fence(*next(iter(starts.values())).leadership[:2]):
            return done
        for key, start in starts.items():
            row = self.partitions.get(key)
            leader = start.leadership.node_id, start.leadership.leader_epoch
            if row is None or (row.leader, row.leader_epoch) != leader:
                continue
            self.partitions[key] = replace(
                row,
                log_start_offset=max(row.log_start_offset, start.log_start_offset),
                cleaned_to=max(row.cleaned_to, start.cleaned_to),
            )
            segments = self.segments.setdefault(key, {})
            bound = min(start.first_base, start.log_start_offset)
            gone = [one for one in segments.values() if one.end_offset <= bound and one.end_offset < row.sealed_end]
            for one in gone:
                del segments[one.base_offset]
            self._discard(self._names(key, gone), now_s)
            self.touched.add(key)
            done.add(key)
        return done

    def _led(self, key: PartitionKey, leadership: Leadership) -> PartitionRow | None:
        """The row of a partition that is led so; None of another."""
        row = self.partitions.get(key)
        if not self.holds_fence(leadership.node_id, leadership.fence) or row is None:
            return None
        return row if (row.leader, row.leader_epoch) == (leadership.node_id, leadership.leader_epoch) else None

    def _names(self, key: PartitionKey, segments: Iterable[RemoteSegmentMetadata]) -> list[str]:
        return [
            name
            for one in segments
            for name in SegmentName(self.cluster_id, key.topic_id, key.partition, one.base_offset, one.object_id).files(
                one.end_offset, has_aborted=one.has_aborted
            )
        ]

    # Garbage

    def named_objects(self) -> dict[str, PartitionKey | None]:
        """The names of all objects that rows refer to, with the partition where it is one's alone."""
        names: dict[str, PartitionKey | None] = {flush_name(self.cluster_id, one): None for one in self.objects}
        for key, segments in self.segments.items():
            names.update(dict.fromkeys(self._names(key, segments.values()), key))
        return names

    def find_garbage(self, emptied: set[bytes], *, now_s: float) -> int:
        """emptied: deleted topics of which the last pass found no rows; changed here."""
        named = {stored.row.object_id for tail in self.tails.values() for stored in tail.values()}
        unnamed = [object_id for object_id in self.objects if object_id not in named]
        for object_id in unnamed:
            del self.objects[object_id]
        names = [flush_name(self.cluster_id, object_id) for object_id in unnamed]
        empty = set()
        for topic_id in self.deletions:
            keys = [key for key in {*self.tails, *self.segments} if key.topic_id == topic_id]
            flushed = [self.tails.pop(key, {}) for key in keys]
            segments = {key: self.segments.pop(key, {}) for key in keys}
            names += [name for key, of_key in segments.items() for name in self._names(key, of_key.values())]
            if not any(flushed) and not any(segments.values()):
                empty.add(topic_id)
        for topic_id in empty & emptied:
            self.deletions.pop(topic_id, None)
        emptied.clear()
        emptied |= empty
        self._discard(names, now_s)
        return len(names)

    def due(self, grace_s: float, limit: int, *, now_s: float) -> list[str]:
        due = [(since_s, name) for name, since_s in self.garbage.items() if since_s < now_s - grace_s]
        names = [name for _, name in sorted(due)[:limit]]
        unnamed = self._without_rows(names)
        self.removed([name for name in names if name not in unnamed])
        return unnamed

    def removed(self, names: Sequence[str]) -> None:
        for name in names:
            self.garbage.pop(name, None)

    def add_orphans(self, names: Sequence[str], *, now_s: float) -> int:
        fences = [
            Fence(
                node_id,
                fence,
                self.named_from.get(node_id),
                node_id not in self.nodes or self.nodes[node_id].state is not NodeState.GONE,
            )
            for node_id, fence in self.fences.items()
        ]
        return self.discard([name for name in names if is_given_up(name, fences)], now_s=now_s)

    def discard(self, names: Sequence[str], *, now_s: float) -> int:
        added = [name for name in self._without_rows(names) if name not in self.garbage]
        self._discard(added, now_s)
        return len(added)

    def _without_rows(self, names: Sequence[str]) -> list[str]:
        has_row = {one.object_id for segments in self.segments.values() for one in segments.values()} | {*self.objects}
        return [name for name in names if (found := object_of(name)) is not None and found not in has_row]

    def _discard(self, names: Iterable[str], now_s: float) -> None:
        for name in names:
            self.garbage.setdefault(name, now_s)
