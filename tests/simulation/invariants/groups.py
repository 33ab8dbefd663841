"""Invariant 18: which offset of a group counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fencepost.broker.coordination.runtime import PartitionState
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from tests.simulation.broker import SimulatedBroker
from tests.simulation.invariants.invariant import Invariant, Violation
from tests.simulation.invariants.offsets_log import OffsetKey
from tests.simulation.trace import Exchange

FIRST_VERSION_WITH_GROUPS = 8
NO_OFFSET = -1


class CommittedOffsets(Invariant):
    """18. A committed offset is that of the greatest record offset among plain commits and those of committed
    transactions; what is pending is never returned where stable offsets are required.
    """

    number = 18

    def answered(self, exchange: Exchange) -> Iterable[Violation]:
        request = exchange.request
        if isinstance(request, OffsetFetchRequest):
            for group_id, topics, error in _groups(exchange):
                if error == ErrorCode.NONE:
                    yield from self._check_fetch(exchange, request, group_id, topics)
        elif isinstance(request, OffsetCommitRequest):
            yield from self._check_commit(exchange, request)

    def _check_fetch(
        self, exchange: Exchange, request: OffsetFetchRequest, group_id: str, topics: Iterable[Any]
    ) -> Iterator[Violation]:
        for key, partition in self._partitions(group_id, topics):
            changes = self.evidence.offsets.between(key, self.evidence.sent_order[exchange.number], self.evidence.order)
            if partition.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                if not any(change.open for change in changes):
                    yield self.violation(f"no transaction holds an offset of {key}, but one is said to", exchange)
                continue
            if partition.error_code != ErrorCode.NONE:
                continue
            if request.require_stable and all(change.open for change in changes):
                yield self.violation(f"{key} has a pending offset; a stable one was asked for and given", exchange)
            counted = {NO_OFFSET if change.commit is None else change.commit.offset for change in changes}
            if partition.committed_offset not in counted:
                yield self.violation(
                    f"{key}: {partition.committed_offset} was fetched, not {sorted(counted)}", exchange, *changes[-3:]
                )

    def _check_commit(self, exchange: Exchange, request: OffsetCommitRequest) -> Iterator[Violation]:
        sent_order = self.evidence.sent_order[exchange.number]
        accepted = {
            (self.evidence.topic_name(topic.name, topic.topic_id), partition.partition_index)
            for topic in exchange.response.topics
            for partition in topic.partitions
            if partition.error_code == ErrorCode.NONE
        }
        for topic in request.topics:
            name = self.evidence.topic_name(topic.name, topic.topic_id)
            for partition in topic.partitions:
                if name is None or (name, partition.partition_index) not in accepted:
                    continue
                key = OffsetKey(request.group_id, TopicPartition(name, partition.partition_index))
                changes = self.evidence.offsets.between(key, sent_order, self.evidence.order)
                if not any(
                    change.commit is not None and change.commit.offset == partition.committed_offset
                    for change in changes
                ):
                    yield self.violation(f"{key}: an acknowledged commit does not count", exchange, *changes[-3:])

    def _partitions(self, group_id: str, topics: Iterable[Any]) -> Iterator[tuple[OffsetKey, Any]]:
        for topic in topics:
            name = self.evidence.topic_name(topic.name, getattr(topic, "topic_id", b""))
            if name is not None:
                for partition in topic.partitions:
                    yield OffsetKey(group_id, TopicPartition(name, partition.partition_index)), partition

    def restarted(self, broker: SimulatedBroker) -> Iterable[Violation]:
        return self._check_live(broker)

    def settled(self) -> Iterable[Violation]:
        for broker in self.evidence.world.brokers.values():
            if broker.is_running:
                yield from self._check_live(broker)

    def _check_live(self, broker: SimulatedBroker) -> Iterator[Violation]:
        homes = {
            partition.index: partition.shard
            for partition in broker.node.services.groups._runtime.partitions()
            if partition.state is PartitionState.ACTIVE
        }
        for key in self.evidence.offsets.changes:
            shard = homes.get(self.evidence.offsets.home(key))
            if shard is None:
                continue
            for require_stable in (False, True):
                (fetched,) = shard.offsets.fetch(key.group_id, [key.topic_partition], require_stable=require_stable)
                commit = self.evidence.offsets.current(key)
                is_pending = require_stable and self.evidence.offsets.is_pending(key)
                expected = NO_OFFSET if commit is None or is_pending else commit.offset
                if fetched.offset != expected or (fetched.error is ErrorCode.UNSTABLE_OFFSET_COMMIT) != is_pending:
                    yield self.violation(
                        f"{key}: the coordinator has {fetched}, the log {commit}{', pending' if is_pending else ''}",
                        *self.evidence.offsets.changes[key][-5:],
                    )


def _groups(exchange: Exchange) -> Iterator[tuple[str, Iterable[Any], int]]:
    if exchange.version >= FIRST_VERSION_WITH_GROUPS:
        for group in exchange.response.groups:
            yield group.group_id, group.topics, group.error_code
    else:
        yield exchange.request.group_id, exchange.response.topics, exchange.response.error_code
