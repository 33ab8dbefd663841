"""What is kept of share partitions: made, changed, taken up by leaders, and the same after a replay."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.broker.coordination.shard import Decision, RecordOrigin
from fencepost.broker.share.shard import (
    DECISION_RECORDS_BYTES,
    MAX_RECORDS_AFTER_SNAPSHOT,
    SharePartitionKey,
    ShareState,
    ShareStateShard,
    is_possible,
    merged_batches,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.stored.share_group_state import (
    SHARE_STATE_RECORDS,
    DeadLetterCopy,
    ShareSnapshotKey,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatch,
)

KEY = SharePartitionKey("g", b"t" * 16, 0)
OTHER = SharePartitionKey("g", b"u" * 16, 1)


class Kept:
    """A shard with a log in memory."""

    def __init__(self, updates_per_snapshot: int = 500) -> None:
        self.updates_per_snapshot = updates_per_snapshot
        self.shard = ShareStateShard(updates_per_snapshot)
        self.log: list[tuple[bytes, bytes | None]] = []

    def run(self, decision: Decision[Any]) -> Any:
        for record in decision.records:
            self.log.append((record.key, record.value))
            self.shard.apply(record.key, record.value, RecordOrigin(len(self.log) - 1, 0))
        return decision.reply

    def initialize(self, key: SharePartitionKey = KEY, *, state_epoch: int = 1, start_offset: int = -1) -> ErrorCode:
        decision = self.shard.initialize(key, state_epoch=state_epoch, start_offset=start_offset, now_ms=5)
        error: ErrorCode = self.run(decision)
        return error

    def write(
        self,
        *batches: StateBatch,
        start_offset: int = 0,
        state_epoch: int = 1,
        leader_epoch: int = 0,
        key: SharePartitionKey = KEY,
    ) -> ErrorCode:
        error: ErrorCode = self.run(
            self.shard.write(
                key,
                state_epoch=state_epoch,
                leader_epoch=leader_epoch,
                start_offset=start_offset,
                delivery_complete_count=1,
                state_batches=batches,
                now_ms=6,
            )
        )
        return error

    def state(self, key: SharePartitionKey = KEY) -> ShareState:
        state = self.shard.state(key)
        assert state is not None
        return state

    def replayed(self) -> ShareStateShard:
        shard = ShareStateShard(self.updates_per_snapshot)
        for offset, (key, value) in enumerate(self.log):
            shard.apply(key, value, RecordOrigin(offset, 0))
        return shard

    def kinds(self) -> list[type]:
        return [type(SHARE_STATE_RECORDS.decode_key(key)) for key, _ in self.log]


def test_nothing_is_kept_before_state_is_made() -> None:
    kept = Kept()
    assert kept.write(StateBatch(0, 1, 2, 1)) is ErrorCode.INVALID_REQUEST
    assert kept.run(kept.shard.read(KEY, leader_epoch=0, now_ms=1)) is ErrorCode.INVALID_REQUEST
    assert kept.log == []


def test_updates_add_up_and_equal_their_replay() -> None:
    kept = Kept()
    kept.initialize()
    assert kept.state().delivery_complete_count == -1
    assert kept.write(StateBatch(0, 4, 2, 1)) is ErrorCode.NONE
    assert kept.write(StateBatch(5, 9, 0, 1)) is ErrorCode.NONE
    assert kept.write(StateBatch(5, 9, 2, 2), start_offset=5) is ErrorCode.NONE
    assert kept.state().start_offset == 5
    assert kept.state().state_batches == (StateBatch(5, 9, 2, 2),)
    assert kept.replayed().state(KEY) == kept.state()


def test_every_so_often_everything_is_said_again() -> None:
    kept = Kept(updates_per_snapshot=2)
    kept.initialize()
    for offset in range(4):
        kept.write(StateBatch(offset, offset, 2, 1))
    assert kept.kinds() == [ShareSnapshotKey, ShareUpdateKey, ShareUpdateKey, ShareSnapshotKey, ShareUpdateKey]
    assert kept.state().state_batches == (StateBatch(0, 3, 2, 1),)
    assert kept.state().snapshot_epoch == 1
    assert kept.shard.first_needed_offset(100) == 3
    assert kept.replayed().state(KEY) == kept.state()


def test_a_new_leader_fences_the_one_before() -> None:
    kept = Kept()
    kept.initialize()
    state = kept.run(kept.shard.read(KEY, leader_epoch=3, now_ms=1))
    assert state.leader_epoch == 3
    assert kept.write(StateBatch(0, 0, 2, 1), leader_epoch=2) is ErrorCode.FENCED_LEADER_EPOCH
    assert kept.run(kept.shard.read(KEY, leader_epoch=2, now_ms=1)) is ErrorCode.FENCED_LEADER_EPOCH
    assert kept.write(StateBatch(0, 0, 2, 1), leader_epoch=3) is ErrorCode.NONE


def test_an_initialization_fences_writes_of_the_previous_state_epoch() -> None:
    kept = Kept()
    kept.initialize()
    kept.write(StateBatch(0, 4, 2, 1))
    assert kept.initialize(state_epoch=4, start_offset=50) is ErrorCode.NONE
    assert (kept.state().start_offset, kept.state().state_batches, kept.state().delivery_complete_count) == (50, (), 0)
    assert kept.write(StateBatch(50, 50, 2, 1), start_offset=50) is ErrorCode.FENCED_STATE_EPOCH
    assert kept.initialize(state_epoch=3) is ErrorCode.FENCED_STATE_EPOCH


def test_a_repeated_initialization_leaves_the_state_as_it_is_by_now() -> None:
    kept = Kept()
    kept.initialize(state_epoch=2)
    kept.write(StateBatch(0, 4, 2, 1), start_offset=0, state_epoch=2)
    before = kept.state()
    assert kept.initialize(state_epoch=2) is ErrorCode.NONE
    assert kept.state() is before
    assert kept.initialize(state_epoch=3) is ErrorCode.NONE
    assert kept.state().state_batches == ()


def test_deleted_state_is_gone() -> None:
    kept = Kept()
    kept.initialize()
    kept.initialize(OTHER)
    assert kept.run(kept.shard.delete(KEY)) is ErrorCode.NONE
    assert kept.run(kept.shard.delete(KEY)) is ErrorCode.NONE
    assert kept.shard.state(KEY) is None
    assert kept.run(kept.shard.delete_topic(OTHER.topic_id, None)) == []
    assert kept.shard.state(OTHER) is None
    assert kept.replayed().first_needed_offset(100) == 100


def test_a_topic_is_forgotten_a_bounded_number_of_bytes_at_a_time_from_where_it_stopped() -> None:
    kept = Kept()
    keys = [SharePartitionKey(KEY.group_id, OTHER.topic_id, partition) for partition in range(1_000)]
    for key in keys:
        kept.initialize(key)
    kept.initialize()
    remaining = None
    count = 0
    while remaining is None or remaining:
        decision = kept.shard.delete_topic(OTHER.topic_id, remaining)
        assert sum(len(record.key) for record in decision.records) < DECISION_RECORDS_BYTES + 200
        assert kept.shard.delete_topic(OTHER.topic_id, remaining) == decision, "one that is refused is made again"
        remaining = kept.run(decision)
        count += 1
    assert count > 1
    assert [key for key in keys if kept.shard.state(key) is not None] == []
    assert kept.shard.state(KEY) is not None


def test_an_idle_share_partition_does_not_hold_up_the_log() -> None:
    kept = Kept()
    kept.initialize()
    kept.initialize(OTHER)
    kept.write(StateBatch(0, 0, 2, 1), key=OTHER)
    end_offset = len(kept.log)
    kept.run(kept.shard.snapshot_cold(100, end_offset, 200, None))
    assert kept.shard.first_needed_offset(100) == 0
    assert kept.state(OTHER).snapshot_log_offset == end_offset
    kept.run(kept.shard.snapshot_cold(300, end_offset + MAX_RECORDS_AFTER_SNAPSHOT, 400, None))
    assert kept.shard.first_needed_offset(100) == end_offset
    assert kept.replayed().state(OTHER) == kept.state(OTHER)


def test_snapshots_are_written_a_bounded_number_of_bytes_at_a_time_from_where_it_stopped() -> None:
    kept = Kept()
    keys = [SharePartitionKey("g", b"t" * 16, partition) for partition in range(600)]
    for key in keys:
        kept.initialize(key)
        kept.write(StateBatch(0, 0, 2, 1), key=key)
    remaining = None
    count = 0
    while remaining is None or remaining:
        decision = kept.shard.snapshot_cold(100, len(kept.log), 200, remaining)
        size_bytes = sum(len(record.key) + len(record.value or b"") for record in decision.records)
        assert size_bytes < DECISION_RECORDS_BYTES + 300
        remaining = kept.run(decision)
        count += 1
    assert count > 1
    assert all(kept.state(key).update_count == 0 for key in keys)


def test_kinds_of_records_of_the_future_are_left_out() -> None:
    kept = Kept()
    kept.shard.apply(b"\x00\x63", b"\x00\x00", RecordOrigin(0, 0))
    kept.initialize()
    assert kept.state().state_epoch == 1


def test_later_state_batches_count() -> None:
    known = [StateBatch(0, 9, 0, 1), StateBatch(10, 19, 2, 1)]
    assert merged_batches(known, [StateBatch(5, 12, 4, 2)], 2) == (
        StateBatch(2, 4, 0, 1),
        StateBatch(5, 12, 4, 2),
        StateBatch(13, 19, 2, 1),
    )


def test_the_coordinator_is_found_by_the_name_that_kafka_gives_a_share_partition() -> None:
    assert SharePartitionKey("g", bytes(16), 3).coordinator_key == "g:AAAAAAAAAAAAAAAAAAAAAA:3"


def test_the_copy_of_dead_letters_is_kept_until_it_changes_over_updates_snapshots_and_replays() -> None:
    kept = Kept(updates_per_snapshot=2)
    kept.initialize()
    copy = DeadLetterCopy(b"d" * 16, 1, 7, 0, 0, 4)
    decision = kept.shard.write(
        KEY,
        state_epoch=1,
        leader_epoch=0,
        start_offset=0,
        delivery_complete_count=0,
        state_batches=[StateBatch(0, 4, 3, 1)],
        dead_letters=[copy],
        now_ms=6,
    )
    assert kept.run(decision) is ErrorCode.NONE
    for offset in range(5, 9):
        kept.write(StateBatch(offset, offset, 2, 1))
        assert kept.state().dead_letters == copy
        assert kept.replayed().state(KEY) == kept.state()
    assert kept.state().state_batches[0] == StateBatch(0, 4, 3, 1)
    assert ShareSnapshotKey in kept.kinds()[1:]


def test_a_group_whose_offsets_are_reset_forgets_the_copy() -> None:
    kept = Kept()
    kept.initialize()
    kept.run(
        kept.shard.write(
            KEY,
            state_epoch=1,
            leader_epoch=0,
            start_offset=0,
            delivery_complete_count=0,
            state_batches=(),
            dead_letters=[DeadLetterCopy(b"d" * 16, 1, 7, 0, 0, 4)],
            now_ms=6,
        )
    )
    kept.initialize(state_epoch=2, start_offset=0)
    assert kept.state().dead_letters is None


@pytest.mark.parametrize(
    "copy", [DeadLetterCopy(partition=-1), DeadLetterCopy(base_sequence=-1), DeadLetterCopy(first_offset=5)]
)
def test_an_impossible_copy_is_refused(copy: DeadLetterCopy) -> None:
    assert not is_possible(copy)
    key, value = SHARE_STATE_RECORDS.encode(ShareUpdateKey(*KEY), ShareUpdateValue(dead_letters=[copy]))
    with pytest.raises(DecodeError, match="copy of dead letters"):
        ShareStateShard(500).apply(key, value, RecordOrigin(0, 0))
