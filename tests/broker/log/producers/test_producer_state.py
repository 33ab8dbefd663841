"""What a producer may append: the tables of checks for data and markers row by row, stability, expiry and views."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from fencepost.broker.log.files.producer_snapshot import CorruptSnapshot, decode_snapshot, encode_snapshot
from fencepost.broker.log.log_types import ActiveProducer, AppendOrigin
from fencepost.broker.log.producers.producer_state import NO_OFFSET, Duplicate, ProducerState
from fencepost.broker.log.producers.verification import ANSWERED_AT_ONCE, VerificationGuard
from fencepost.broker.log.segment.transaction_index import TransactionIndexEntry
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import TRANSACTIONAL_BIT, BatchHeader

PRODUCER_ID = 7
NOW_MS = 1_000_000
DAY_MS = 86_400_000
LAST_SEQUENCE = 2**31 - 1


def batch(
    *,
    epoch: int = 3,
    sequence: int = 0,
    count: int = 1,
    transactional: bool = False,
    producer_id: int = PRODUCER_ID,
    timestamp_ms: int = NOW_MS,
) -> BatchHeader:
    return BatchHeader(
        base_offset=0,
        batch_length=100,
        partition_leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=TRANSACTIONAL_BIT if transactional else 0,
        last_offset_delta=count - 1,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        records_count=count,
    )


@dataclass
class Partition:
    """A producer state with a log end, so that appends get offsets."""

    state: ProducerState
    log_end_offset: int = 0

    def check(
        self,
        header: BatchHeader,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard | None = None,
        verification_is_enabled: bool = True,
    ) -> Duplicate | ErrorCode:
        return self.state.check_data_batch(
            header, origin=origin, guard=guard, verification_is_enabled=verification_is_enabled
        )

    def write(self, header: BatchHeader, *, now_ms: int = NOW_MS) -> int:
        base_offset = self.log_end_offset
        self.state.apply_data_batch(
            header, base_offset=base_offset, max_timestamp_ms=header.max_timestamp_ms, now_ms=now_ms
        )
        self.log_end_offset += header.last_offset_delta + 1
        return base_offset

    def check_marker(self, *, epoch: int, version: int, coordinator_epoch: int = 0) -> ErrorCode:
        return self.state.check_marker(
            producer_id=PRODUCER_ID,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            transaction_version=version,
        )

    def mark(
        self,
        *,
        epoch: int = 3,
        producer_id: int = PRODUCER_ID,
        committed: bool = True,
        coordinator_epoch: int = 0,
        timestamp_ms: int = NOW_MS,
        is_replicated: bool = False,
    ) -> TransactionIndexEntry | None:
        aborted = self.state.apply_marker(
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=committed,
            coordinator_epoch=coordinator_epoch,
            offset=self.log_end_offset,
            timestamp_ms=timestamp_ms,
            now_ms=NOW_MS,
            is_replicated=is_replicated,
        )
        self.log_end_offset += 1
        return aborted

    def guard(self, *, epoch: int = 3, sequence: int = 0, version_2: bool = False) -> VerificationGuard:
        guard = self.state.begin_verification(PRODUCER_ID, epoch, sequence, transaction_version_2=version_2)
        assert isinstance(guard, VerificationGuard)
        return guard


@pytest.fixture
def partition() -> Partition:
    return Partition(ProducerState())


@pytest.fixture
def written(partition: Partition) -> Partition:
    """Epoch 3 has written the sequences 0 to 69 in seven batches of ten, at the offsets 0 to 69."""
    for number in range(7):
        partition.write(batch(sequence=number * 10, count=10, timestamp_ms=NOW_MS + number))
    return partition


# Duplicates


@pytest.mark.parametrize("number", [2, 3, 4, 5, 6])
def test_a_retry_of_any_of_the_last_five_batches_is_answered_with_its_offsets(written: Partition, number: int) -> None:
    retry = batch(sequence=number * 10, count=10)
    assert written.check(retry) == Duplicate(number * 10, number * 10 + 9, NOW_MS + number)


@pytest.mark.parametrize("number", [0, 1])
def test_a_retry_of_an_older_batch_is_out_of_order(written: Partition, number: int) -> None:
    assert written.check(batch(sequence=number * 10, count=10)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize(("sequence", "count"), [(60, 9), (60, 11), (61, 9), (59, 11), (55, 10), (65, 10)])
def test_a_batch_that_overlaps_an_earlier_one_is_out_of_order(written: Partition, sequence: int, count: int) -> None:
    assert written.check(batch(sequence=sequence, count=count)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_sequences_of_another_epoch_are_no_duplicate(written: Partition) -> None:
    assert written.check(batch(epoch=4, sequence=60, count=10)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert written.check(batch(epoch=2, sequence=60, count=10)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_duplicate_is_recognised_before_the_open_transaction_is_looked_at(partition: Partition) -> None:
    partition.write(batch(sequence=0, count=2, transactional=True))
    assert partition.check(batch(sequence=0, count=2)) == Duplicate(0, 1, NOW_MS)


# Sequences of transactions that have ended


def ways_to_use_again(partition: Partition, header: BatchHeader) -> set[Duplicate | ErrorCode]:
    """What becomes of a batch that was verified, in one step or before, or need not be."""
    guard = partition.guard(sequence=header.base_sequence) if not partition.state.first_open_offset else None
    found = {partition.check(header, guard=guard), partition.check(header, verification_is_enabled=False)}
    partition.state.verifications.clear()
    return found | {partition.check(header, guard=ANSWERED_AT_ONCE)}


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_sequence_of_an_ended_transaction_is_no_repeat_in_the_next(
    partition: Partition, committed: bool, count: int
) -> None:
    """A client that never learnt that its batch was appended numbers another record as it had numbered that."""
    partition.write(batch(sequence=0, transactional=True))
    lost = batch(sequence=1, count=2, transactional=True)
    partition.write(lost)
    assert partition.check(lost) == Duplicate(1, 2, NOW_MS)
    partition.mark(committed=committed)
    again = batch(sequence=1, count=count, transactional=True)
    assert ways_to_use_again(partition, again) == {ErrorCode.UNKNOWN_PRODUCER_ID}
    partition.write(batch(sequence=3, transactional=True))
    assert ways_to_use_again(partition, again) == {ErrorCode.UNKNOWN_PRODUCER_ID}
    assert partition.check(batch(sequence=3, transactional=True)) == Duplicate(4, 4, NOW_MS)


def test_a_snapshot_records_the_transaction_of_a_batch(partition: Partition) -> None:
    partition.write(batch(sequence=0, transactional=True))
    partition.mark()
    partition.write(batch(sequence=1, transactional=True))
    content = encode_snapshot(partition.state.snapshot())
    producers = decode_snapshot(content)
    assert not isinstance(producers, CorruptSnapshot)
    restored = Partition(ProducerState(), partition.log_end_offset)
    restored.state.restore(producers, now_ms=NOW_MS, expiration_ms=DAY_MS)
    assert restored.check(batch(sequence=0, transactional=True)) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert restored.check(batch(sequence=1, transactional=True)) == Duplicate(2, 2, NOW_MS)


def test_in_version_2_the_epoch_distinguishes_a_late_batch_from_the_next_transaction(partition: Partition) -> None:
    partition.write(batch(sequence=0, transactional=True))
    partition.mark(epoch=4)
    guard = partition.guard(epoch=4, version_2=True)
    assert partition.check(batch(sequence=0, transactional=True)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.check(batch(epoch=4, sequence=0, transactional=True), guard=guard) is ErrorCode.NONE


def test_the_sequence_that_follows_is_taken_though_the_one_before_was_refused(partition: Partition) -> None:
    partition.write(batch(sequence=0, transactional=True))
    partition.mark()
    assert (
        partition.check(batch(sequence=0, transactional=True), guard=ANSWERED_AT_ONCE) is ErrorCode.UNKNOWN_PRODUCER_ID
    )
    assert partition.check(batch(sequence=1, transactional=True), guard=ANSWERED_AT_ONCE) is ErrorCode.NONE


# The guard


@pytest.mark.parametrize("origin", list(AppendOrigin))
def test_a_transactional_batch_without_its_guard_is_an_invalid_transaction_state(
    partition: Partition, origin: AppendOrigin
) -> None:
    header = batch(transactional=True)
    assert partition.check(header, origin=origin) is ErrorCode.INVALID_TXN_STATE
    assert partition.check(header, origin=origin, guard=VerificationGuard(0, 0, False)) is ErrorCode.INVALID_TXN_STATE
    assert partition.check(header, origin=origin, guard=partition.guard()) is ErrorCode.NONE
    assert partition.check(header, origin=origin, verification_is_enabled=False) is ErrorCode.NONE


def test_a_fenced_producer_is_refused_as_fenced_rather_than_for_a_missing_guard(written: Partition) -> None:
    header = batch(epoch=2, transactional=True)
    assert written.check(header) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert written.check(header, origin=AppendOrigin.COORDINATOR) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_open_transaction_of_the_same_epoch_needs_no_guard(partition: Partition) -> None:
    partition.write(batch(transactional=True))
    partition.state.confirm_owner(PRODUCER_ID, "mine")
    assert partition.check(batch(sequence=1, transactional=True)) is ErrorCode.NONE
    guard = partition.state.begin_verification(PRODUCER_ID, 3, 1, transaction_version_2=False, transactional_id="mine")
    assert guard is None


def test_the_open_transaction_of_another_epoch_is_not_this_one(partition: Partition) -> None:
    partition.write(batch(transactional=True))
    assert partition.check(batch(epoch=4, transactional=True)) is ErrorCode.INVALID_TXN_STATE
    assert partition.check(batch(epoch=4, transactional=True), guard=partition.guard(epoch=4)) is ErrorCode.NONE


def test_a_fenced_producer_gets_no_guard(written: Partition) -> None:
    refusal = written.state.begin_verification(PRODUCER_ID, 2, 0, transaction_version_2=True)
    assert refusal is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_marker_between_verification_and_append_withdraws_the_guard(partition: Partition) -> None:
    guard = partition.guard()
    assert partition.mark(committed=False) is None
    assert partition.check(batch(transactional=True), guard=guard) is ErrorCode.INVALID_TXN_STATE
    assert not partition.state.get(PRODUCER_ID).has_open_transaction  # type: ignore[union-attr]


def test_in_version_2_the_marker_between_verification_and_append_fences_the_epoch(partition: Partition) -> None:
    guard = partition.guard(version_2=True)
    partition.mark(epoch=4, committed=False)
    assert partition.check(batch(transactional=True), guard=guard) is ErrorCode.INVALID_PRODUCER_EPOCH


# Epochs and sequences


@pytest.mark.parametrize("origin", list(AppendOrigin))
def test_an_older_epoch_is_fenced(written: Partition, origin: AppendOrigin) -> None:
    assert written.check(batch(epoch=2, sequence=0), origin=origin) is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("sequence", [1, 70, LAST_SEQUENCE])
def test_an_unknown_producer_of_version_2_starts_with_sequence_0(partition: Partition, sequence: int) -> None:
    guard = partition.guard(sequence=sequence, version_2=True)
    refused = partition.check(batch(sequence=sequence, transactional=True), guard=guard)
    assert refused is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    guard = partition.guard(version_2=True)
    assert partition.check(batch(transactional=True), guard=guard) is ErrorCode.NONE


def test_after_a_version_2_marker_the_next_transaction_starts_with_sequence_0(partition: Partition) -> None:
    partition.write(batch(count=5, transactional=True))
    partition.mark(epoch=4)
    guard = partition.guard(epoch=4, version_2=True)
    header = batch(epoch=4, sequence=5, transactional=True)
    assert partition.check(header, guard=guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.check(batch(epoch=4, transactional=True), guard=guard) is ErrorCode.NONE


def test_after_a_version_1_marker_the_sequence_goes_on(partition: Partition) -> None:
    partition.write(batch(count=5, transactional=True))
    partition.mark(epoch=3)
    guard = partition.guard(sequence=5)
    assert partition.check(batch(sequence=5, transactional=True), guard=guard) is ErrorCode.NONE
    assert partition.check(batch(sequence=4, transactional=True), guard=guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_no_batch_overtakes_an_earlier_one_whose_verification_failed(partition: Partition) -> None:
    guard = partition.guard(sequence=10)
    assert partition.guard(sequence=20) is guard
    later = batch(sequence=20, count=10, transactional=True)
    assert partition.check(later, guard=guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.check(batch(sequence=10, count=10, transactional=True), guard=guard) is ErrorCode.NONE


@pytest.mark.parametrize("sequence", [1, 69, 70, 71])
def test_a_new_epoch_starts_with_sequence_0(written: Partition, sequence: int) -> None:
    assert written.check(batch(epoch=4, sequence=sequence)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert written.check(batch(epoch=4, sequence=0)) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("sequence", "outcome"),
    [
        (70, ErrorCode.NONE),
        (71, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (69, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (LAST_SEQUENCE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
)
def test_within_an_epoch_the_next_sequence_follows_the_last(
    written: Partition, sequence: int, outcome: ErrorCode
) -> None:
    assert written.check(batch(sequence=sequence)) is outcome


@pytest.mark.parametrize(("sequence", "outcome"), [(0, ErrorCode.NONE), (1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)])
def test_an_epoch_known_from_a_marker_only_starts_with_sequence_0(
    partition: Partition, sequence: int, outcome: ErrorCode
) -> None:
    partition.mark(epoch=3)
    guard = partition.guard(sequence=sequence)
    assert partition.check(batch(sequence=sequence, transactional=True), guard=guard) is outcome


@pytest.mark.parametrize("sequence", [0, 1, 4_711, LAST_SEQUENCE])
def test_an_unknown_producer_may_start_with_any_sequence(partition: Partition, sequence: int) -> None:
    assert partition.check(batch(sequence=sequence)) is ErrorCode.NONE
    guard = partition.guard(sequence=sequence)
    assert partition.check(batch(sequence=sequence, transactional=True), guard=guard) is ErrorCode.NONE


def test_sequences_wrap_from_the_last_to_0(partition: Partition) -> None:
    partition.write(batch(sequence=LAST_SEQUENCE))
    assert partition.check(batch(sequence=0)) is ErrorCode.NONE
    assert partition.check(batch(sequence=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_may_lie_across_the_wrap(partition: Partition) -> None:
    partition.write(batch(sequence=LAST_SEQUENCE - 5, count=5))
    across = batch(sequence=LAST_SEQUENCE, count=3)
    assert partition.check(across) is ErrorCode.NONE
    partition.write(across)
    assert partition.check(across) == Duplicate(5, 7, NOW_MS)
    assert partition.state.get(PRODUCER_ID).last_sequence == 1  # type: ignore[union-attr]
    assert partition.check(batch(sequence=2)) is ErrorCode.NONE


def test_a_coordinators_batches_carry_no_sequence_and_need_none(partition: Partition) -> None:
    for _ in range(3):
        header = batch(sequence=-1, transactional=True)
        guard = partition.state.begin_verification(PRODUCER_ID, 3, -1, transaction_version_2=True)
        assert not isinstance(guard, ErrorCode)
        assert partition.check(header, origin=AppendOrigin.COORDINATOR, guard=guard) is ErrorCode.NONE
        partition.write(header)
    assert partition.mark(epoch=4, committed=False) == TransactionIndexEntry(PRODUCER_ID, 0, 3, 4)


# Mixing


@pytest.mark.parametrize("origin", list(AppendOrigin))
def test_a_batch_outside_the_open_transaction_of_its_producer_is_refused(
    partition: Partition, origin: AppendOrigin
) -> None:
    partition.write(batch(transactional=True))
    assert partition.check(batch(sequence=1), origin=origin) is ErrorCode.INVALID_TXN_STATE
    assert partition.check(batch(epoch=4, sequence=0), origin=origin) is ErrorCode.INVALID_TXN_STATE


def test_other_producers_are_not_concerned(partition: Partition) -> None:
    partition.write(batch(transactional=True))
    assert partition.check(batch(producer_id=8)) is ErrorCode.NONE


# Checks change nothing


def test_a_refused_producer_leaves_nothing_behind(partition: Partition) -> None:
    partition.check(batch(transactional=True))
    partition.check(batch(sequence=5))
    partition.check_marker(epoch=0, version=2)
    assert len(partition.state) == 0
    assert partition.state.snapshot() == []


# Markers


@pytest.mark.parametrize(
    ("version", "epoch", "is_open", "outcome"),
    [
        (0, 2, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (0, 2, False, ErrorCode.INVALID_PRODUCER_EPOCH),
        (0, 3, True, ErrorCode.NONE),
        (0, 3, False, ErrorCode.NONE),
        (0, 4, True, ErrorCode.NONE),
        (0, 4, False, ErrorCode.NONE),
        (1, 2, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, 3, True, ErrorCode.NONE),
        (1, 4, True, ErrorCode.NONE),
        (2, 2, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 2, False, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 3, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 3, False, ErrorCode.NONE),
        (2, 4, True, ErrorCode.NONE),
        (2, 4, False, ErrorCode.NONE),
        (3, 3, True, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_the_epoch_of_a_marker(
    partition: Partition, version: int, epoch: int, is_open: bool, outcome: ErrorCode
) -> None:
    partition.write(batch(transactional=True))
    if not is_open:
        partition.mark(epoch=3)
    assert partition.check_marker(epoch=epoch, version=version) is outcome


def test_the_greatest_epoch_ends_its_open_transaction_in_version_2_too(partition: Partition) -> None:
    partition.write(batch(epoch=32767, transactional=True))
    assert partition.check_marker(epoch=32767, version=2) is ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 2])
def test_a_marker_for_an_unknown_producer_is_taken(partition: Partition, version: int) -> None:
    assert partition.check_marker(epoch=0, version=version) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("coordinator_epoch", "outcome"),
    [(4, ErrorCode.TRANSACTION_COORDINATOR_FENCED), (5, ErrorCode.NONE), (6, ErrorCode.NONE)],
)
def test_a_deposed_coordinator_is_fenced(partition: Partition, coordinator_epoch: int, outcome: ErrorCode) -> None:
    partition.write(batch(transactional=True))
    partition.mark(coordinator_epoch=5)
    assert partition.check_marker(epoch=3, version=0, coordinator_epoch=coordinator_epoch) is outcome


def test_the_producers_epoch_is_looked_at_before_the_coordinators(partition: Partition) -> None:
    partition.mark(coordinator_epoch=5)
    assert partition.check_marker(epoch=2, version=0, coordinator_epoch=4) is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_ends_the_transaction_of_its_producer(partition: Partition, committed: bool) -> None:
    partition.log_end_offset = 15
    partition.write(batch(count=5, transactional=True))
    aborted = TransactionIndexEntry(PRODUCER_ID, first_offset=15, last_offset=20, last_stable_offset=21)
    assert partition.mark(committed=committed) == (None if committed else aborted)
    assert partition.state.first_open_offset is None
    assert partition.mark(committed=committed) is None, "a repeated marker ends nothing"


def test_an_aborted_transaction_records_the_start_of_the_earliest_open_one(partition: Partition) -> None:
    partition.write(batch(producer_id=1, transactional=True))
    partition.write(batch(producer_id=2, transactional=True))
    partition.write(batch(producer_id=3, transactional=True))
    last_stable_offsets = []
    for producer_id in (2, 1, 3):
        aborted = partition.mark(producer_id=producer_id, committed=False)
        assert aborted is not None
        last_stable_offsets.append(aborted.last_stable_offset)
    assert last_stable_offsets == [0, 2, 6]


# Stability


def test_without_transactions_all_below_the_high_watermark_is_stable(written: Partition) -> None:
    assert written.state.last_stable_offset(0, 0) == 0
    assert written.state.last_stable_offset(70, 0) == 70


def test_an_open_transaction_holds_the_last_stable_offset(partition: Partition) -> None:
    partition.log_end_offset = 10
    partition.write(batch(transactional=True))
    partition.write(batch(producer_id=8, count=10))
    assert partition.state.last_stable_offset(21, 0) == 10
    assert partition.state.last_stable_offset(10, 0) == 10
    assert partition.state.last_stable_offset(7, 0) == 7, "never above the high watermark"
    assert partition.state.last_stable_offset(21, 15) == 15, "never below the log's start"


def test_a_marker_frees_its_transaction_when_it_is_below_the_high_watermark(partition: Partition) -> None:
    partition.write(batch(count=3, transactional=True))
    partition.mark()
    for high_watermark, last_stable_offset in ((0, 0), (2, 0), (3, 0), (4, 4)):
        assert partition.state.last_stable_offset(high_watermark, 0) == last_stable_offset


def test_a_marker_that_is_replicated_at_once_frees_its_transaction_and_those_that_waited(partition: Partition) -> None:
    partition.write(batch(producer_id=1, transactional=True))  # 0
    partition.write(batch(producer_id=2, transactional=True))  # 1
    partition.write(batch(producer_id=3, transactional=True))  # 2
    partition.mark(producer_id=2)  # 3
    assert partition.state.last_stable_offset(3, 0) == 0
    partition.mark(producer_id=1, is_replicated=True)  # 4
    assert partition.state.last_stable_offset(5, 0) == 2
    partition.mark(producer_id=3, is_replicated=True)  # 5
    assert partition.state.last_stable_offset(6, 0) == 6


def test_a_long_transaction_that_ends_late_holds_what_ended_before_it(partition: Partition) -> None:
    partition.write(batch(producer_id=1, transactional=True))  # 0
    partition.write(batch(producer_id=2, transactional=True))  # 1
    partition.mark(producer_id=2)  # 2
    partition.mark(producer_id=1)  # 3
    partition.write(batch(producer_id=3, transactional=True))  # 4
    for high_watermark, last_stable_offset in ((1, 0), (3, 0), (4, 4), (5, 4)):
        assert partition.state.last_stable_offset(high_watermark, 0) == last_stable_offset


# Expiry, snapshots, views


def test_a_silent_producer_is_forgotten_unless_its_transaction_is_open(partition: Partition) -> None:
    partition.write(batch(producer_id=1))
    partition.write(batch(producer_id=2, transactional=True))
    assert partition.state.expire(NOW_MS + DAY_MS - 1, DAY_MS) == 0
    assert partition.state.expire(NOW_MS + DAY_MS, DAY_MS) == 1
    assert partition.state.get(1) is None
    assert partition.state.get(2) is not None


def test_backdated_records_keep_their_producer_as_long_as_others(partition: Partition) -> None:
    partition.write(batch(timestamp_ms=0), now_ms=NOW_MS)
    assert partition.state.expire(NOW_MS + DAY_MS - 1, DAY_MS) == 0
    assert partition.state.expire(NOW_MS + DAY_MS, DAY_MS) == 1


def test_a_guard_expires_too(partition: Partition) -> None:
    guard = partition.guard()
    partition.state.expire(NOW_MS, DAY_MS)
    assert partition.state.verifications == {PRODUCER_ID: guard}
    partition.state.expire(NOW_MS + DAY_MS, DAY_MS)
    assert not partition.state.verifications


def test_a_snapshot_restores_everything_but_guards(written: Partition) -> None:
    written.write(batch(producer_id=9, transactional=True))
    written.write(batch(producer_id=8, transactional=True))
    written.mark(producer_id=8, coordinator_epoch=5)
    restored = Partition(ProducerState(), written.log_end_offset)
    restored.state.restore(written.state.snapshot(), now_ms=NOW_MS, expiration_ms=DAY_MS)
    assert restored.state.snapshot() == written.state.snapshot()
    assert restored.state.first_open_offset == 70
    assert restored.check(batch(sequence=20, count=10)) == Duplicate(20, 29, NOW_MS + 2)
    assert restored.check(batch(sequence=70)) is ErrorCode.NONE
    assert restored.check(batch(producer_id=9, sequence=1, transactional=True)) is ErrorCode.NONE
    aborted = restored.mark(producer_id=9, committed=False)
    assert aborted is not None
    assert aborted.first_offset == 70


def test_open_transactions_are_restored_in_the_order_of_their_offsets(partition: Partition) -> None:
    for producer_id in (5, 4, 6):
        partition.write(batch(producer_id=producer_id))
    for producer_id in (6, 5, 4):
        partition.write(batch(producer_id=producer_id, sequence=1, transactional=True))
    restored = Partition(ProducerState(), partition.log_end_offset)
    restored.state.restore(partition.state.snapshot(), now_ms=NOW_MS, expiration_ms=DAY_MS)
    for producer_id, first_open_offset in ((6, 4), (5, 5), (4, None)):
        restored.mark(producer_id=producer_id)
        assert restored.state.first_open_offset == first_open_offset


def test_expired_producers_are_not_restored(written: Partition) -> None:
    restored = ProducerState()
    restored.restore(written.state.snapshot(), now_ms=NOW_MS + 6 + DAY_MS, expiration_ms=DAY_MS)
    assert len(restored) == 0


def test_producers_are_described_with_minus_one_for_missing_values(partition: Partition) -> None:
    partition.write(batch(sequence=4, count=3, transactional=True, timestamp_ms=500))
    partition.mark(producer_id=8, epoch=1, coordinator_epoch=2, timestamp_ms=600)
    assert list(partition.state.active_producers()) == [
        ActiveProducer(PRODUCER_ID, 3, 6, 500, -1, 0),
        ActiveProducer(8, 1, -1, 600, 2, NO_OFFSET),
    ]


def test_recovery_applies_batches_of_the_log_without_checks(partition: Partition) -> None:
    partition.write(batch(epoch=3, sequence=10, transactional=True))
    partition.write(batch(epoch=2, sequence=50))
    partition.write(batch(epoch=5, sequence=7, transactional=True))
    assert partition.mark(epoch=1, committed=False) == TransactionIndexEntry(PRODUCER_ID, 0, 3, 4)
    assert partition.state.get(PRODUCER_ID).producer_epoch == 1  # type: ignore[union-attr]
