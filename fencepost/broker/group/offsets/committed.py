"""Store of the committed and pending offsets of one shard's groups. Pure.

A transactional commit is pending, by producer id, until the log holds the marker of its transaction. COMMIT replaces
the committed offset unless that is later in the log; ABORT drops the pending one. A replay of the log gives the same
state.
Source: Kafka's OffsetMetadataManager; KIP-98, KIP-447.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from fencepost.broker.group.offsets.records import OffsetAndMetadata
from fencepost.broker.kernel.topic_partition import TopicPartition

_NONE: Mapping[TopicPartition, OffsetAndMetadata] = MappingProxyType({})


class OffsetStore:
    """Offsets of one shard. Only records and markers of the shard's log change them."""

    __slots__ = ("_committed", "_open_producers", "_pending")

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        self._pending: dict[int, dict[tuple[str, TopicPartition], OffsetAndMetadata]] = {}
        self._open_producers: dict[str, dict[TopicPartition, set[int]]] = {}

    # Questions

    def committed(self, group_id: str) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return self._committed.get(group_id, _NONE)

    def is_pending(self, group_id: str, topic_partition: TopicPartition) -> bool:
        """Return whether an open transaction has a commit for this partition, which thus has no stable offset."""
        partitions = self._open_producers.get(group_id)
        return partitions is not None and topic_partition in partitions

    def has_pending(self, group_id: str) -> bool:
        return group_id in self._open_producers

    def contains_group(self, group_id: str) -> bool:
        return group_id in self._committed or group_id in self._open_producers

    def group_ids(self) -> set[str]:
        return self._committed.keys() | self._open_producers.keys()

    def partitions(self, group_id: str) -> Iterator[TopicPartition]:
        """Iterate once over all partitions with a committed or pending offset."""
        committed = self._committed.get(group_id, _NONE)
        yield from committed
        for topic_partition in self._open_producers.get(group_id, {}):
            if topic_partition not in committed:
                yield topic_partition

    def topic_ids(self, group_id: str, topic_partition: TopicPartition) -> set[bytes]:
        """Return the topic ids of the committed offset and of all that are pending."""
        value = self._committed.get(group_id, _NONE).get(topic_partition)
        found = set() if value is None else {value.topic_id}
        for producer_id in self._open_producers.get(group_id, {}).get(topic_partition, ()):
            found.add(self._pending[producer_id][group_id, topic_partition].topic_id)
        return found

    # Changes

    def commit(
        self, group_id: str, topic_partition: TopicPartition, value: OffsetAndMetadata, producer_id: int = -1
    ) -> None:
        """Apply a commit; a transactional one is pending until its transaction ends."""
        if producer_id < 0:
            self._committed.setdefault(group_id, {})[topic_partition] = value
        else:
            self._pending.setdefault(producer_id, {})[group_id, topic_partition] = value
            self._open_producers.setdefault(group_id, {}).setdefault(topic_partition, set()).add(producer_id)

    def remove(self, group_id: str, topic_partition: TopicPartition) -> None:
        """Apply a tombstone, which removes pending offsets of the partition, too."""
        committed = self._committed.get(group_id)
        if committed is not None and committed.pop(topic_partition, None) is not None and not committed:
            del self._committed[group_id]
        open_partitions = self._open_producers.get(group_id)
        if open_partitions is None:
            return
        for producer_id in open_partitions.pop(topic_partition, ()):
            pending = self._pending[producer_id]
            del pending[group_id, topic_partition]
            if not pending:
                del self._pending[producer_id]
        if not open_partitions:
            del self._open_producers[group_id]

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply a marker: commit or drop the pending offsets of the producer."""
        for (group_id, topic_partition), value in self._pending.pop(producer_id, {}).items():
            open_partitions = self._open_producers[group_id]
            producers = open_partitions[topic_partition]
            producers.discard(producer_id)
            if not producers:
                del open_partitions[topic_partition]
                if not open_partitions:
                    del self._open_producers[group_id]
            if committed:
                existing = self._committed.get(group_id, _NONE).get(topic_partition)
                if existing is None or value.record_offset > existing.record_offset:
                    self.commit(group_id, topic_partition, value)
