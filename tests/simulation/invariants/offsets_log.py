"""What groups have committed, reckoned from the logs of `__consumer_offsets` alone.

An offset committed in a transaction is pending until the marker, and then counts if it stands later in the log than the
one that counts already.
Source: KIP-98; Kafka's OffsetMetadataManager.
"""

from __future__ import annotations

from typing import NamedTuple

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.stored.consumer_offsets import (
    OffsetCommitValue,
    decode_offset_commit_key,
    decode_offset_commit_value,
)
from tests.simulation.invariants.history import PartitionHistory
from tests.simulation.invariants.stored_log import StoredBatch


class OffsetKey(NamedTuple):
    """Whose offset of which partition."""

    group_id: str
    topic_partition: TopicPartition

    def __str__(self) -> str:
        return f"group {self.group_id}, {self.topic_partition}"


class Commit(NamedTuple):
    """An offset as committed. record_offset: where the commit stands in the log."""

    record_offset: int
    offset: int


class Change(NamedTuple):
    """What counts from a moment on: commit None where nothing does; open: how many transactions have one pending."""

    order: int
    commit: Commit | None
    open: int


class OffsetsLog:
    """All partitions of `__consumer_offsets`. changes: for each key what counted, from which moment on."""

    def __init__(self) -> None:
        self.changes: dict[OffsetKey, list[Change]] = {}
        self._partitions: dict[OffsetKey, PartitionHistory] = {}
        self._pending: dict[tuple[PartitionHistory, int], dict[OffsetKey, Commit]] = {}

    def append(self, history: PartitionHistory, batch: StoredBatch) -> None:
        if batch.is_control:
            if batch.marker is not None:
                for key, commit in self._pending.pop((history, batch.producer_id), {}).items():
                    current = self.current(key)
                    if batch.marker.committed and (current is None or commit.record_offset > current.record_offset):
                        current = commit
                    self._change(history, key, batch.order, current)
            return
        for record in batch.records:
            stored_key = None if record.key is None else decode_offset_commit_key(record.key)
            if stored_key is None:
                continue
            key = OffsetKey(stored_key.group, TopicPartition(stored_key.topic, stored_key.partition))
            value = None if record.value is None else decode_offset_commit_value(record.value)
            self._append(history, batch, key, record.offset, value)

    def _append(
        self,
        history: PartitionHistory,
        batch: StoredBatch,
        key: OffsetKey,
        record_offset: int,
        value: OffsetCommitValue | None,
    ) -> None:
        if value is None:
            for pending in self._pending.values():
                pending.pop(key, None)
            self._change(history, key, batch.order, None)
        elif batch.is_transactional:
            self._pending.setdefault((history, batch.producer_id), {})[key] = Commit(record_offset, value.offset)
            self._change(history, key, batch.order, self.current(key))
        else:
            self._change(history, key, batch.order, Commit(record_offset, value.offset))

    def rebuild(self, history: PartitionHistory) -> None:
        """Become what a log holds after it has lost its end."""
        for key in [key for key, owner in self._partitions.items() if owner is history]:
            del self.changes[key]
            del self._partitions[key]
        for pending in [pending for pending in self._pending if pending[0] is history]:
            del self._pending[pending]
        for batch in history.batches:
            self.append(history, batch)

    def _change(self, history: PartitionHistory, key: OffsetKey, order: int, commit: Commit | None) -> None:
        open_count = sum(key in pending for pending in self._pending.values())
        self.changes.setdefault(key, []).append(Change(order, commit, open_count))
        self._partitions[key] = history

    # Questions

    def current(self, key: OffsetKey) -> Commit | None:
        changes = self.changes.get(key)
        return changes[-1].commit if changes else None

    def home(self, key: OffsetKey) -> int:
        """The partition of `__consumer_offsets` that holds a key."""
        return self._partitions[key].topic_partition.partition

    def is_pending(self, key: OffsetKey) -> bool:
        changes = self.changes.get(key)
        return changes is not None and changes[-1].open > 0

    def between(self, key: OffsetKey, after_order: int, until_order: int) -> list[Change]:
        """Everything that counted from one moment to another."""
        before = Change(0, None, 0)
        found = []
        for change in self.changes.get(key, ()):
            if change.order <= after_order:
                before = change
            elif change.order <= until_order:
                found.append(change)
        return [before, *found]
