"""Shard of the share coordinator: the share partitions whose state is in one partition of `__share_group_state`. Pure.

After up to `updates_per_snapshot` updates of a share partition a snapshot holds its whole state; records before the
oldest snapshot in use are superseded and can be deleted.
Source: KIP-932; Kafka's ShareStateShard, ShareGroupOffset and PersisterStateBatchCombiner.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from fencepost.broker.coordination.shard import CoordinatorRecord, Decision, RecordOrigin
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.share.acquired_records import RecordState
from fencepost.broker.share.dead_letters import is_under_way
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.record_batch import NO_LEADER_EPOCH
from fencepost.protocol.stored.share_group_state import (
    SHARE_STATE_RECORDS,
    DeadLetterCopy,
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareStateKey,
    ShareStateValue,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatch,
)

log = get_logger(__name__)

UNKNOWN_OFFSET = -1
UNKNOWN_COUNT = -1
FIRST_LEADER_EPOCH = 0
MAX_STATES_LOOKED_AT = 5_000
DECISION_RECORDS_BYTES = 16_384
"""Bound of one decision; the last record may exceed it. Far below any usual `max.message.bytes`."""
MAX_RECORDS_AFTER_SNAPSHOT = 10_000
STORED_DELIVERY_STATES = frozenset({0, 2, 3, 4})
"""Available, acknowledged, archiving and archived: acquisitions are not stored, and end with a restart."""


class SharePartitionKey(NamedTuple):
    """A partition as one share group reads it."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key that is hashed to a partition of `__share_group_state`. The id as Java's Uuid prints it."""
        topic_id = base64.urlsafe_b64encode(self.topic_id).rstrip(b"=").decode("ascii")
        return f"{self.group_id}:{topic_id}:{self.partition}"


@dataclass(frozen=True, slots=True)
class ShareState:
    """Stored state of one share partition.

    start_offset:     UNKNOWN_OFFSET until the group has acknowledged a record in it.
    state_epoch:      epoch of the last initialization or change of offsets; older ones are fenced.
    dead_letters:     the last copy into a dead-letter topic; None before the first.
    update_count:     updates since the last snapshot, which is at `snapshot_log_offset` in the log of the coordinator.
    """

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    state_batches: tuple[StateBatch, ...]
    create_timestamp_ms: int
    write_timestamp_ms: int
    update_count: int = 0
    snapshot_log_offset: int = 0
    dead_letters: DeadLetterCopy | None = None


def merged_batches(
    known: Sequence[StateBatch], more: Sequence[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """Merge state batches in order, without overlaps: later ones win, and none lies below the start offset."""
    result: list[StateBatch] = [batch for batch in known if batch.last_offset >= start_offset]
    for batch in more:
        if batch.last_offset < start_offset:
            continue
        kept: list[StateBatch] = []
        for other in result:
            if other.last_offset < batch.first_offset or other.first_offset > batch.last_offset:
                kept.append(other)
                continue
            if other.first_offset < batch.first_offset:
                kept.append(replace_range(other, other.first_offset, batch.first_offset - 1))
            if other.last_offset > batch.last_offset:
                kept.append(replace_range(other, batch.last_offset + 1, other.last_offset))
        kept.append(batch)
        result = kept
    result.sort(key=lambda batch: batch.first_offset)
    merged: list[StateBatch] = []
    for batch in result:
        if batch.first_offset < start_offset:
            batch = replace_range(batch, start_offset, batch.last_offset)
        last = merged[-1] if merged else None
        if (
            last is not None
            and last.last_offset + 1 == batch.first_offset
            and (last.delivery_state, last.delivery_count) == (batch.delivery_state, batch.delivery_count)
        ):
            merged[-1] = replace_range(last, last.first_offset, batch.last_offset)
        else:
            merged.append(batch)
    return tuple(merged)


def replace_range(batch: StateBatch, first_offset: int, last_offset: int) -> StateBatch:
    return StateBatch(first_offset, last_offset, batch.delivery_state, batch.delivery_count)


class ShareStateShard:
    """One shard. Implements `broker.coordination.runtime.Shard`.

    updates_per_snapshot: bound of the updates of a share partition between two snapshots.
    waiting: share partitions with records that wait for a dead-letter topic. on_waiting: called if there is one more.
    """

    def __init__(self, updates_per_snapshot: int, on_waiting: Callable[[], None] = lambda: None) -> None:
        self.waiting: set[SharePartitionKey] = set()
        self._updates_per_snapshot = updates_per_snapshot
        self._on_waiting = on_waiting
        self._states: dict[SharePartitionKey, ShareState] = {}

    # Questions

    def state(self, key: SharePartitionKey) -> ShareState | None:
        return self._states.get(key)

    def first_needed_offset(self, end_offset: int) -> int:
        """Return the offset where this shard's log may begin: that of the oldest snapshot in use, else its end."""
        return min((state.snapshot_log_offset for state in self._states.values()), default=end_offset)

    # Decisions

    def initialize(
        self, key: SharePartitionKey, *, state_epoch: int, start_offset: int, now_ms: int
    ) -> Decision[ErrorCode]:
        """Create the state of a share partition, or reset it to another offset. Refuses: FENCED_STATE_EPOCH."""
        known = self._states.get(key)
        if known is not None and known.state_epoch > state_epoch:
            return Decision(ErrorCode.FENCED_STATE_EPOCH)
        if known is not None and known.state_epoch == state_epoch and start_offset == UNKNOWN_OFFSET:
            # Repeated, or late: the state may be in use by now. Kafka resets it, and delivers all records again.
            return Decision(ErrorCode.NONE)
        state = ShareState(
            snapshot_epoch=0 if known is None else known.snapshot_epoch + 1,
            state_epoch=state_epoch,
            leader_epoch=FIRST_LEADER_EPOCH,
            start_offset=start_offset,
            delivery_complete_count=UNKNOWN_COUNT if start_offset == UNKNOWN_OFFSET else 0,
            state_batches=(),
            create_timestamp_ms=now_ms,
            write_timestamp_ms=now_ms,
        )
        return Decision(ErrorCode.NONE, records=[_snapshot(key, state)])

    def read(self, key: SharePartitionKey, *, leader_epoch: int, now_ms: int) -> Decision[ShareState | ErrorCode]:
        """Return the state for the partition's leader; older leaders are fenced from then on.

        Refuses: INVALID_REQUEST (no state, a negative epoch), FENCED_LEADER_EPOCH.
        """
        known = self._states.get(key)
        if known is None or leader_epoch < 0:
            return Decision(ErrorCode.INVALID_REQUEST)
        if known.leader_epoch > leader_epoch:
            return Decision(ErrorCode.FENCED_LEADER_EPOCH)
        if known.leader_epoch == leader_epoch:
            return Decision(known)
        updated = replace(known, leader_epoch=leader_epoch)
        return Decision(updated, records=[self._change(key, known, updated, (), now_ms)])

    def write(
        self,
        key: SharePartitionKey,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        state_batches: Sequence[StateBatch],
        dead_letters: Sequence[DeadLetterCopy] = (),
        now_ms: int,
    ) -> Decision[ErrorCode]:
        """Store the states of records. A late write neither moves the start offset back nor lowers the count at it.

        dead_letters: the copy into a dead-letter topic from now on, if it has changed.

        Refuses: INVALID_REQUEST (no state, a negative epoch), FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH.
        """
        known = self._states.get(key)
        if known is None or leader_epoch < 0 or state_epoch < 0:
            return Decision(ErrorCode.INVALID_REQUEST)
        if known.leader_epoch > leader_epoch:
            return Decision(ErrorCode.FENCED_LEADER_EPOCH)
        if known.state_epoch > state_epoch:
            return Decision(ErrorCode.FENCED_STATE_EPOCH)
        start, count = max((known.start_offset, known.delivery_complete_count), (start_offset, delivery_complete_count))
        changed = replace(
            known,
            start_offset=start,
            delivery_complete_count=count,
            dead_letters=dead_letters[-1] if dead_letters else known.dead_letters,
        )
        return Decision(ErrorCode.NONE, records=[self._change(key, known, changed, state_batches, now_ms)])

    def delete(self, key: SharePartitionKey) -> Decision[ErrorCode]:
        """Delete the state of a share partition, if there is any."""
        records = [_tombstone(key)] if key in self._states else []
        return Decision(ErrorCode.NONE, records=records)

    def delete_topic(self, topic_id: bytes, keys: list[SharePartitionKey] | None) -> Decision[list[SharePartitionKey]]:
        """Delete the states of a topic, a bounded number at a time; reply with the remaining keys.

        keys: the result of the last call; None for the first.
        """
        if keys is None:
            keys = [key for key in self._states if key.topic_id == topic_id]
        records: list[CoordinatorRecord] = []
        size_bytes = looked_at_count = 0
        for key in keys:
            if size_bytes >= DECISION_RECORDS_BYTES:
                break
            looked_at_count += 1
            if key in self._states:
                record = _tombstone(key)
                records.append(record)
                size_bytes += len(record.key)
        return Decision(keys[looked_at_count:], records)

    def snapshot_cold(
        self, written_before_ms: int, end_offset: int, now_ms: int, keys: list[SharePartitionKey] | None
    ) -> Decision[list[SharePartitionKey]]:
        """Write snapshots of share partitions that keep the log from being pruned, a bounded number at a time; reply
        with the remaining keys.

        end_offset: log end offset; a snapshot too far behind it is written again even without updates.
        keys:       the result of the last call; None for the first.
        """
        if keys is None:
            keys = list(self._states)
        records: list[CoordinatorRecord] = []
        size_bytes = looked_at_count = 0
        for key in keys:
            if size_bytes >= DECISION_RECORDS_BYTES or looked_at_count >= MAX_STATES_LOOKED_AT:
                break
            looked_at_count += 1
            state = self._states.get(key)
            if state is not None and (
                state.write_timestamp_ms < written_before_ms
                and (state.update_count or end_offset - state.snapshot_log_offset > MAX_RECORDS_AFTER_SNAPSHOT)
            ):
                changed = replace(state, snapshot_epoch=state.snapshot_epoch + 1, write_timestamp_ms=now_ms)
                record = _snapshot(key, changed)
                records.append(record)
                size_bytes += len(record.key) + len(record.value or b"")
        return Decision(keys[looked_at_count:], records)

    def _change(
        self,
        key: SharePartitionKey,
        known: ShareState,
        changed: ShareState,
        state_batches: Sequence[StateBatch],
        now_ms: int,
    ) -> CoordinatorRecord:
        if known.update_count < self._updates_per_snapshot:
            value = ShareUpdateValue(
                snapshot_epoch=known.snapshot_epoch,
                leader_epoch=changed.leader_epoch,
                start_offset=changed.start_offset,
                delivery_complete_count=changed.delivery_complete_count,
                state_batches=list(merged_batches((), state_batches, changed.start_offset)),
                dead_letters=[] if changed.dead_letters is known.dead_letters else _listed(changed.dead_letters),
            )
            return CoordinatorRecord(*SHARE_STATE_RECORDS.encode(ShareUpdateKey(*key), value))
        whole = replace(
            changed,
            snapshot_epoch=known.snapshot_epoch + 1,
            state_batches=merged_batches(known.state_batches, state_batches, changed.start_offset),
            create_timestamp_ms=now_ms,
            write_timestamp_ms=now_ms,
        )
        return _snapshot(key, whole)

    # The log

    def apply(self, key: bytes, value: bytes | None, origin: RecordOrigin) -> None:
        state_key = SHARE_STATE_RECORDS.decode_key(key)
        if state_key is None:
            log.warning("share_record_skipped", offset=origin.offset, reason="a key of an unknown version")
            return
        partition = SharePartitionKey(state_key.group_id, state_key.topic_id, state_key.partition)
        if value is None:
            if isinstance(state_key, ShareSnapshotKey):
                self._states.pop(partition, None)
                self.waiting.discard(partition)
            return
        decoded = SHARE_STATE_RECORDS.decode_value(state_key, value)
        _check(state_key, decoded)
        if isinstance(decoded, ShareSnapshotValue):
            self._states[partition] = _from_snapshot(decoded, origin.offset)
        else:
            self._states[partition] = _updated(self._states.get(partition), decoded, origin)
        if not _has_undeliverable(self._states[partition]):
            self.waiting.discard(partition)
        elif partition not in self.waiting:
            self.waiting.add(partition)
            self._on_waiting()

    def apply_decided(self, decoded: Any, offset: int, producer_id: int) -> None:
        """Never called: no record is decided with its decoded form."""

    def apply_marker(self, producer_id: int, producer_epoch: int, *, committed: bool, offset: int) -> None:
        """Do nothing: no transaction writes here."""

    def loaded(self, now_ms: int) -> None:
        """Do nothing: all state is in the log."""

    def clock_moved(self, moved_ms: int, now_ms: int) -> None:
        """Do nothing: there are no deadlines."""

    def next_deadline_ms(self) -> int | None:
        return None

    def decide_deadline(self, now_ms: int) -> Decision[None]:
        return Decision(None)


def _has_undeliverable(state: ShareState) -> bool:
    return is_under_way(state.dead_letters) or any(
        batch.delivery_state == RecordState.ARCHIVING for batch in state.state_batches
    )


def _check(key: ShareStateKey, value: ShareStateValue) -> None:
    """Raises DecodeError for impossible states.

    Any number may be a start offset: AlterShareGroupOffsets takes each that a client sends.
    """
    if key.partition < 0:
        raise DecodeError(f"it is about the partition {key.partition}")
    if value.snapshot_epoch < 0:
        raise DecodeError(f"the snapshot epoch {value.snapshot_epoch} is negative")
    for batch in value.state_batches:
        if batch.last_offset < batch.first_offset:
            raise DecodeError(f"the offsets {batch.first_offset} to {batch.last_offset} go backwards")
        if batch.delivery_state not in STORED_DELIVERY_STATES or batch.delivery_count < 0:
            state = f"state {batch.delivery_state} after {batch.delivery_count} deliveries"
            raise DecodeError(f"records from offset {batch.first_offset} on are in {state}")
    for copy in value.dead_letters:
        if not is_possible(copy):
            raise DecodeError(f"the copy of dead letters is impossible: {copy}")


def is_possible(copy: DeadLetterCopy) -> bool:
    """Whether the numbers of a copy, as another node or a log has them, can be those of one."""
    return min(copy.partition, copy.producer_id, copy.base_sequence) >= 0 and copy.first_offset <= copy.last_offset


def _listed(copy: DeadLetterCopy | None) -> list[DeadLetterCopy]:
    return [] if copy is None else [copy]


def _snapshot(key: SharePartitionKey, state: ShareState) -> CoordinatorRecord:
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.create_timestamp_ms,
        write_timestamp=state.write_timestamp_ms,
        state_batches=list(state.state_batches),
        dead_letters=_listed(state.dead_letters),
    )
    return CoordinatorRecord(*SHARE_STATE_RECORDS.encode(ShareSnapshotKey(*key), value))


def _tombstone(key: SharePartitionKey) -> CoordinatorRecord:
    return CoordinatorRecord(*SHARE_STATE_RECORDS.encode(ShareSnapshotKey(*key), None))


def _from_snapshot(value: ShareSnapshotValue, log_offset: int) -> ShareState:
    return ShareState(
        value.snapshot_epoch,
        value.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        tuple(value.state_batches),
        value.create_timestamp,
        value.write_timestamp,
        snapshot_log_offset=log_offset,
        dead_letters=value.dead_letters[-1] if value.dead_letters else None,
    )


def _updated(known: ShareState | None, value: ShareUpdateValue, origin: RecordOrigin) -> ShareState:
    if known is None:
        # A log does not begin so; but the update counts.
        known = ShareState(
            value.snapshot_epoch, 0, value.leader_epoch, UNKNOWN_OFFSET, UNKNOWN_COUNT, (), 0, 0, 0, origin.offset
        )
    start_offset = known.start_offset if value.start_offset == UNKNOWN_OFFSET else value.start_offset
    return replace(
        known,
        leader_epoch=known.leader_epoch if value.leader_epoch == NO_LEADER_EPOCH else value.leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=value.delivery_complete_count,
        state_batches=merged_batches(known.state_batches, value.state_batches, start_offset),
        update_count=known.update_count + 1,
        dead_letters=value.dead_letters[-1] if value.dead_letters else known.dead_letters,
    )
