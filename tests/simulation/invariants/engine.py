"""Invariants 39 to 49: what holds between brokers on an engine, beside what holds between all brokers.

They read the rows after each transaction, the objects that are stored, and the bytes that leave a broker. They know
nothing of what a broker believes of its lease or of its logs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from fencepost.broker.cluster.leases.lease_table import NodeState
from fencepost.broker.cluster.objects.names import SegmentName, flush_name
from fencepost.broker.cluster.tail.tail_store import FlushId, PartitionKey, TailRow
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.produce import ProduceRequest
from tests.simulation.engine import CLUSTER_ID
from tests.simulation.engine_cluster import EngineCluster
from tests.simulation.engine_rows import EngineRows
from tests.simulation.invariants.engine_evidence import EngineEvidence
from tests.simulation.invariants.invariant import Invariant, Violation
from tests.simulation.invariants.recovery import ReplayedProducers, decode_snapshot, replayed
from tests.simulation.trace import Exchange

FROM_MEMORY: Final = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_FETCH,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.HEARTBEAT,
    }
)
"""What a leader or a coordinator may answer without a write that its fence guards."""


class OnEngines(Invariant):
    """The cluster, where an engine keeps the logs of brokers; otherwise there is nothing to hold."""

    @property
    def cluster(self) -> EngineCluster | None:
        return self.evidence.world.engine

    @property
    def rows(self) -> EngineRows:
        assert self.cluster is not None
        return self.cluster.engine.rows


class FencedFlushes(OnEngines):
    """39. No row of a flush is inserted once the fence of its node is above that of the flush."""

    number = 39

    def flushed(self, flush: FlushId, rows: Sequence[TailRow]) -> Iterable[Violation]:
        fence = self.rows.fences.get(flush.node_id)
        if fence != flush.fence:
            yield self.violation(f"{flush} is committed, and the fence of its node is {fence}", *rows[:3])


class CoveredLogs(OnEngines):
    """40. Segments and tail of a log follow each other from its start to its end, without hole or overlap."""

    number = 40

    def committed(self, touched: Collection[PartitionKey]) -> Iterable[Violation]:
        for key in touched:
            row = self.rows.partitions.get(key)
            if row is None:
                continue
            parts = [(one.base_offset, one.end_offset) for one in self.rows.segments.get(key, {}).values()]
            if max((end for _, end in parts), default=0) != row.sealed_end:
                yield self.violation(f"{key} is sealed up to {row.sealed_end}, and its segments are {sorted(parts)}")
            parts += [(one.base_offset, one.end_offset) for one in self.rows.tail(key)]
            parts.sort()
            if parts and parts[0][0] > row.log_start_offset:
                yield self.violation(f"{key} begins at {row.log_start_offset}, and its rows at {parts[0][0]}")
            for (_, end), (base, _) in pairwise(parts):
                if base < end or (base > end and base > row.log_start_offset):
                    yield self.violation(f"the rows of {key} end at {end} and go on at {base}", *parts)


class AcknowledgedIsCommitted(OnEngines):
    """41. What a Produce acknowledges is committed in the engine before."""

    number = 41

    def answered(self, exchange: Exchange) -> Iterable[Violation]:
        request = exchange.request
        cluster = self.cluster
        if cluster is None or not isinstance(request, ProduceRequest) or request.acks == 0:
            return
        for topic in exchange.response.responses:
            name = self.evidence.topic_name(topic.name, topic.topic_id)
            for partition in topic.partition_responses:
                key = None if name is None else cluster.key(TopicPartition(name, partition.index))
                if partition.error_code != ErrorCode.NONE or key is None:
                    continue
                end_offset = cluster.end_offset(key)
                if partition.base_offset >= end_offset and self._is_of(name, topic.topic_id, partition.index):
                    yield self.violation(
                        f"{name}-{partition.index} is committed up to {end_offset}, and {exchange.client} has the "
                        f"acknowledgement of offset {partition.base_offset}",
                        exchange,
                    )

    def _is_of(self, name: str | None, topic_id: bytes, partition: int) -> bool:
        """Whether the topic is the one that was written to: it was not deleted and created anew."""
        return name is not None and not self.evidence.is_deleted(TopicPartition(name, partition))


class VisibleIsCommitted(OnEngines):
    """42. The high watermark of no broker is above what the engine has of the log."""

    number = 42

    def observe(self) -> Iterable[Violation]:
        cluster = self.cluster
        if cluster is None:
            return
        for broker in cluster.brokers.values():
            if not broker.is_running:
                continue
            for log in list(broker.node.services.topics.directory.logs()):
                key = PartitionKey(log.topic_id, log.topic_partition.partition)
                if key in self.rows.partitions and log.high_watermark > cluster.end_offset(key):
                    yield self.violation(
                        f"{broker.host} shows {log.topic_partition} up to {log.high_watermark}, and it is committed up "
                        f"to {cluster.end_offset(key)}"
                    )


class RisingRowEpochs(OnEngines):
    """43. Leader epochs of rows never fall with the offset, and none is above that of the partition."""

    number = 43

    def committed(self, touched: Collection[PartitionKey]) -> Iterable[Violation]:
        for key in touched:
            row = self.rows.partitions.get(key)
            if row is None:
                continue
            segments = self.rows.segments.get(key, {})
            epochs = [(one.base_offset, one.leader_epoch) for one in segments.values()]
            epochs += [(one.base_offset, one.leader_epoch) for one in self.rows.tail(key)]
            epochs = [*sorted(epochs), (2**63, row.leader_epoch)]
            for (_, before), (base, after) in pairwise(epochs):
                if after < before:
                    yield self.violation(f"{key} has leader epoch {before} before offset {base}, and {after} there")


class NamedObjectsExist(OnEngines):
    """44. Every object that a row names exists, with the length that the row says."""

    number = 44

    def committed(self, touched: Collection[PartitionKey]) -> Iterable[Violation]:
        return self._check(touched)

    def settled(self) -> Iterable[Violation]:
        return () if self.cluster is None else self._check({*self.rows.segments, *self.rows.tails})

    def _check(self, keys: Collection[PartitionKey]) -> Iterator[Violation]:
        assert self.cluster is not None
        stored = self.cluster.engine.objects.objects
        for key in keys:
            for one in self.rows.segments.get(key, {}).values():
                segment = SegmentName(CLUSTER_ID, key.topic_id, key.partition, one.base_offset, one.object_id)
                missing = [
                    name for name in segment.files(one.end_offset, has_aborted=one.has_aborted) if name not in stored
                ]
                if missing:
                    yield self.violation(f"a segment of {key} has lost {missing}", one)
                elif len(stored[segment.file(".log")]) != one.size_bytes:
                    yield self.violation(f"a segment of {key} has another length than its row says", one)
            for row in self.rows.tail(key):
                if row.object_id is not None:
                    content = stored.get(flush_name(CLUSTER_ID, row.object_id), b"")
                    if len(content) < row.object_position + row.length_bytes:
                        yield self.violation(f"a flush of {key} has lost its object, or a part of it", row)


class GarbageIsUnnamed(OnEngines):
    """45. No row names an object that is garbage."""

    number = 45

    def observe(self) -> Iterable[Violation]:
        if self.cluster is not None and self.rows.garbage:
            for name in sorted(self.rows.named_objects().keys() & self.rows.garbage.keys()):
                yield self.violation(f"{name} is named by a row, and is to be removed")


class RestoredAsItWas(ReplayedProducers):
    """46. What a new leader restores is what was flushed, and the state of producers that is sealed with a segment is
    what a replay of the log up to its end comes to.
    """

    number = 46

    def restarted(self, broker: object) -> Iterable[Violation]:
        return ()

    def settled(self) -> Iterable[Violation]:
        return ()

    def observe(self) -> Iterable[Violation]:
        if isinstance(self.evidence, EngineEvidence):
            differences, self.evidence.differences = self.evidence.differences, []
            for difference in differences:
                yield self.violation(difference)

    def committed(self, touched: Collection[PartitionKey]) -> Iterable[Violation]:
        assert isinstance(self.evidence, EngineEvidence)
        cluster = self.evidence.cluster
        for key in touched:
            history = self.evidence.history_of(key)
            if history is None or not history.is_whole:
                continue
            for one in list(cluster.engine.rows.segments.get(key, {}).values())[-1:]:
                segment = SegmentName(CLUSTER_ID, key.topic_id, key.partition, one.base_offset, one.object_id)
                content = cluster.engine.objects.objects.get(segment.file(".snapshot", one.end_offset))
                found = None if content is None else decode_snapshot(content)
                if found is None:
                    yield self.violation(f"a segment of {key} has no state of its producers", one)
                else:
                    what = f"what is sealed with offset {one.end_offset}"
                    yield from self.compare(history, what, found, replayed(history.batches, one.end_offset))


class AnswersNeedTheLease(OnEngines):
    """47. No broker answers from its memory once another one has taken over from it."""

    number = 47

    def replied(self, node_id: int, api_key: int) -> Iterable[Violation]:
        if self.cluster is None or api_key not in FROM_MEMORY:
            return
        row = self.rows.nodes.get(node_id)
        incarnation = self.evidence.world.brokers[node_id].store.incarnation
        if row is None or row.incarnation != incarnation or row.state is NodeState.GONE:
            yield self.violation(f"broker-{node_id} answers {ApiKey(api_key).name}, and its lease is taken", row)


class OneRowPerPartition(OnEngines):
    """48. Each partition of each topic has exactly one row, and no other partition has one."""

    number = 48

    def committed(self, touched: Collection[PartitionKey]) -> Iterable[Violation]:
        expected = {
            PartitionKey(topic.topic_id, partition)
            for topic in self.rows.topics.values()
            for partition in range(topic.partition_count)
        }
        different = expected ^ self.rows.partitions.keys()
        if different:
            yield self.violation(f"partitions without a row, or rows without a partition: {sorted(different)}")


class BoundedTails(OnEngines):
    """49. In the end, the logs of a node have no more in the database alone than what its limit allows."""

    number = 49

    def settled(self) -> Iterable[Violation]:
        if self.cluster is None:
            return
        for node_id, tail_bytes in self.cluster.tail_bytes().items():
            if tail_bytes > self.cluster.settings.tail_max_bytes:
                yield self.violation(
                    f"{tail_bytes} bytes of broker-{node_id} are in tails, and {self.cluster.settings.tail_max_bytes} "
                    "are allowed"
                )
