"""A share partition lends records, takes them back, and knows what is done with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.broker.share.acknowledgements import Acknowledgement, AcknowledgeType
from fencepost.broker.share.acquire_request import AcquireMode, OffsetRange, ShareLimits
from fencepost.broker.share.acquired_records import RecordState
from fencepost.broker.share.partition import (
    AcknowledgementRefusal,
    SharePartition,
    ShareTransition,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.stored.share_group_state import StateBatch

ACCEPT, RELEASE, REJECT, RENEW, GAP = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.RENEW,
    AcknowledgeType.GAP,
)


@dataclass
class Reader:
    """A share partition over a log of batches of ten records, and the time."""

    partition: SharePartition = field(default_factory=lambda: SharePartition(0))
    limits: ShareLimits = field(default_factory=ShareLimits)
    now_ms: int = 1_000
    log_end_offset: int = 100
    batch_records: int = 10

    def batches(self, fetch_offset: int) -> list[OffsetRange]:
        first = fetch_offset - fetch_offset % self.batch_records
        return [
            OffsetRange(at, min(at + self.batch_records, self.log_end_offset) - 1)
            for at in range(first, self.log_end_offset, self.batch_records)
        ]

    def fetch(
        self,
        member: str = "a",
        maximum_count: int = 500,
        *,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
        batch_size: int = 500,
        batches: list[OffsetRange] | None = None,
        aborted: tuple[OffsetRange, ...] = (),
    ) -> list[tuple[int, int, int]]:
        fetch_offset = self.partition.next_fetch_offset(self.limits)
        if fetch_offset is None:
            return []
        acquired = self.partition.acquire(
            member,
            fetch_offset=fetch_offset,
            batches=self.batches(fetch_offset) if batches is None else batches,
            aborted=aborted,
            mode=mode,
            maximum_count=maximum_count,
            batch_size=batch_size,
            limits=self.limits,
            now_ms=self.now_ms,
        )
        return [(span.first_offset, span.last_offset, span.delivery_count) for span in acquired]

    def acknowledge(self, *acknowledgements: tuple[int, int, list[AcknowledgeType]], member: str = "a") -> ErrorCode:
        said = [Acknowledgement(first, last, types) for first, last, types in acknowledgements]
        decided = self.partition.acknowledge(member, said, limits=self.limits, now_ms=self.now_ms)
        if isinstance(decided, AcknowledgementRefusal):
            return decided.error
        self.partition.apply(decided)
        return ErrorCode.NONE

    def pass_time(self, duration_ms: int) -> ShareTransition | None:
        self.now_ms += duration_ms
        transition = self.partition.expire_locks(self.limits, self.now_ms)
        if transition is not None:
            self.partition.apply(transition)
        return transition

    def states(self) -> list[tuple[int, int, RecordState, int]]:
        return [(span[0], span[1], span.state, span.delivery_count) for span in self.partition.spans()]


# Lending


def test_whole_batches_are_acquired_up_to_the_one_that_reaches_the_limit() -> None:
    reader = Reader()
    assert reader.fetch(maximum_count=15) == [(0, 19, 1)]
    assert reader.fetch("b", maximum_count=15) == [(20, 39, 1)]


def test_no_more_than_the_limit_is_acquired_in_record_limit_mode() -> None:
    reader = Reader()
    assert reader.fetch(maximum_count=3, mode=AcquireMode.RECORD_LIMIT) == [(0, 2, 1)]
    assert reader.fetch("b", maximum_count=3, mode=AcquireMode.RECORD_LIMIT) == [(3, 5, 1)]


def test_new_records_are_divided_at_batch_boundaries() -> None:
    assert Reader().fetch(maximum_count=40, batch_size=15) == [(0, 19, 1), (20, 39, 1)]


def test_reading_begins_in_the_middle_of_a_batch_where_the_group_does() -> None:
    assert Reader(SharePartition(5)).fetch(maximum_count=3) == [(5, 9, 1)]


def test_offsets_without_records_before_the_first_read_are_passed_over() -> None:
    reader = Reader()
    assert reader.fetch(batches=[OffsetRange(40, 49)]) == [(40, 49, 1)]
    assert reader.partition.start_offset == 40


def test_no_more_is_acquired_at_the_bound_of_records_in_flight() -> None:
    reader = Reader(limits=ShareLimits(partition_max_record_locks=20))
    assert reader.fetch(maximum_count=500) == [(0, 19, 1)]
    assert reader.partition.next_fetch_offset(reader.limits) is None
    reader.acknowledge((10, 19, [RELEASE]))
    assert reader.fetch("b") == [(10, 19, 2)]
    reader.acknowledge((0, 9, [ACCEPT]))
    assert reader.fetch("b") == [(20, 29, 1)]


def test_records_of_aborted_transactions_are_done_with_unseen() -> None:
    reader = Reader(log_end_offset=30)
    assert reader.fetch(aborted=(OffsetRange(0, 9), OffsetRange(20, 29))) == [(10, 19, 1)]
    assert reader.partition.start_offset == 0
    assert reader.acknowledge((10, 19, [ACCEPT])) is ErrorCode.NONE
    assert reader.partition.start_offset == reader.partition.end_offset == 30


def test_aborted_records_move_the_start_once_something_is_acknowledged() -> None:
    reader = Reader(log_end_offset=20)
    assert reader.fetch(aborted=(OffsetRange(0, 9),)) == [(10, 19, 1)]
    assert reader.acknowledge((5, 9, [ACCEPT])) is ErrorCode.INVALID_RECORD_STATE
    assert reader.acknowledge((10, 14, [ACCEPT])) is ErrorCode.NONE
    assert reader.partition.start_offset == 15


def test_locks_that_are_renewed_do_not_move_the_start_over_aborted_records() -> None:
    reader = Reader(log_end_offset=20)
    assert reader.fetch(aborted=(OffsetRange(0, 9),)) == [(10, 19, 1)]
    assert reader.acknowledge((10, 19, [RENEW])) is ErrorCode.NONE
    assert reader.partition.start_offset == 0


def test_the_start_moves_over_what_was_passed_over_while_an_acknowledgement_became_complete() -> None:
    reader = Reader(log_end_offset=20)
    reader.fetch(maximum_count=10)
    assert reader.acknowledge((0, 9, [ACCEPT])) is ErrorCode.NONE
    assert reader.fetch(aborted=(OffsetRange(10, 14),), batches=[OffsetRange(10, 14), OffsetRange(15, 19)]) == [
        (15, 19, 1)
    ]
    assert reader.partition.start_offset == 10
    reader.partition.advance()
    assert reader.partition.start_offset == 15


def test_aborted_records_alone_do_not_stop_a_group_that_may_have_no_more_in_flight() -> None:
    reader = Reader(limits=ShareLimits(partition_max_record_locks=10), log_end_offset=20)
    assert reader.fetch(maximum_count=10, aborted=(OffsetRange(0, 9),)) == []
    assert reader.fetch() == [(10, 19, 1)]


def test_a_batch_that_compaction_took_away_holds_nothing_up() -> None:
    reader = Reader()
    reader.fetch(maximum_count=30)
    assert reader.acknowledge((0, 9, [RELEASE]), (10, 29, [ACCEPT])) is ErrorCode.NONE
    assert reader.fetch(batches=[OffsetRange(30, 39)]) == [(30, 39, 1)]
    assert reader.acknowledge((30, 34, [ACCEPT])) is ErrorCode.NONE
    assert reader.partition.start_offset == 35


# Acknowledging


def test_accepted_records_move_the_start_once_those_before_are_done_with() -> None:
    reader = Reader()
    reader.fetch(maximum_count=20)
    assert reader.acknowledge((10, 19, [ACCEPT])) is ErrorCode.NONE
    assert reader.partition.start_offset == 0
    assert reader.acknowledge((0, 8, [ACCEPT]), (9, 9, [REJECT])) is ErrorCode.NONE
    assert reader.partition.start_offset == reader.partition.end_offset == 20


def test_each_record_of_a_range_can_have_a_fate_of_its_own() -> None:
    reader = Reader()
    reader.fetch(maximum_count=5)
    types = [ACCEPT, GAP, RELEASE, REJECT, ACCEPT, ACCEPT, ACCEPT, ACCEPT, ACCEPT, RELEASE]
    assert reader.acknowledge((0, 9, types)) is ErrorCode.NONE
    assert reader.partition.start_offset == 2
    assert [state[:2] for state in reader.states() if state[2] is RecordState.AVAILABLE] == [(2, 2), (9, 9)]
    assert reader.fetch("b", maximum_count=1, mode=AcquireMode.RECORD_LIMIT) == [(2, 2, 2)]


def test_changed_records_are_the_stored_ones() -> None:
    reader = Reader()
    reader.fetch(maximum_count=10)
    decided = reader.partition.acknowledge(
        "a", [Acknowledgement(0, 3, [ACCEPT]), Acknowledgement(4, 4, [RELEASE])], limits=reader.limits, now_ms=0
    )
    assert isinstance(decided, ShareTransition)
    assert decided.state_batches == [
        StateBatch(first_offset=0, last_offset=3, delivery_state=2, delivery_count=1),
        StateBatch(first_offset=4, last_offset=4, delivery_state=0, delivery_count=1),
    ]
    assert decided.delivery_complete_count == 4
    assert reader.states() == [(0, 9, RecordState.ACQUIRED, 1)]


@pytest.mark.parametrize(
    ("member", "first_offset", "last_offset", "error"),
    [
        ("b", 0, 9, ErrorCode.INVALID_RECORD_STATE),
        ("a", 0, 10, ErrorCode.INVALID_REQUEST),
        ("a", 10, 12, ErrorCode.INVALID_REQUEST),
    ],
)
def test_only_records_that_a_member_has_can_be_acknowledged(
    member: str, first_offset: int, last_offset: int, error: ErrorCode
) -> None:
    reader = Reader()
    reader.fetch(maximum_count=10)
    assert reader.acknowledge((first_offset, last_offset, [ACCEPT]), member=member) is error


def test_one_bad_acknowledgement_makes_all_of_the_request_count_for_nothing() -> None:
    reader = Reader()
    reader.fetch(maximum_count=10)
    before = reader.states()
    assert reader.acknowledge((0, 3, [ACCEPT]), (3, 4, [ACCEPT])) is ErrorCode.INVALID_RECORD_STATE
    assert reader.states() == before


def test_records_below_the_start_are_done_with_and_not_looked_at() -> None:
    reader = Reader()
    reader.fetch(maximum_count=10)
    reader.acknowledge((0, 4, [ACCEPT]))
    assert reader.acknowledge((0, 4, [ACCEPT])) is ErrorCode.NONE
    assert reader.acknowledge((3, 9, [ACCEPT])) is ErrorCode.NONE
    assert reader.acknowledge((0, 9, [ACCEPT])) is ErrorCode.NONE


def test_nothing_in_flight_cannot_be_acknowledged() -> None:
    assert Reader().acknowledge((0, 9, [ACCEPT])) is ErrorCode.INVALID_RECORD_STATE


# Coming back


def test_released_records_are_redelivered_first_and_counted() -> None:
    reader = Reader()
    reader.fetch(maximum_count=10)
    reader.acknowledge((0, 9, [RELEASE]))
    assert reader.fetch("b", maximum_count=20) == [(0, 9, 2), (10, 19, 1)]


def test_a_lock_that_runs_out_gives_records_back() -> None:
    reader = Reader()
    reader.fetch(maximum_count=10)
    assert reader.partition.next_deadline_ms() == 31_000
    assert reader.pass_time(29_999) is None
    transition = reader.pass_time(1)
    assert transition is not None
    assert transition.state_batches == [StateBatch(first_offset=0, last_offset=9, delivery_state=0, delivery_count=1)]
    assert reader.acknowledge((0, 9, [ACCEPT])) is ErrorCode.INVALID_RECORD_STATE
    assert reader.fetch("b", maximum_count=10) == [(0, 9, 2)]


def test_a_renewed_lock_runs_out_later_and_nothing_has_to_be_kept() -> None:
    reader = Reader()
    reader.fetch(maximum_count=10)
    reader.now_ms += 20_000
    said = [Acknowledgement(0, 4, [RENEW])]
    decided = reader.partition.acknowledge("a", said, limits=reader.limits, now_ms=reader.now_ms)
    assert isinstance(decided, ShareTransition)
    assert decided.state_batches == []
    reader.partition.apply(decided)
    reader.pass_time(10_000)
    assert reader.states() == [(0, 4, RecordState.ACQUIRED, 1), (5, 9, RecordState.AVAILABLE, 1)]


def test_locks_are_not_renewed_where_the_group_forbids_it() -> None:
    reader = Reader(limits=ShareLimits(renew_acknowledge_enable=False))
    reader.fetch(maximum_count=10)
    assert reader.acknowledge((0, 9, [RENEW])) is ErrorCode.INVALID_RECORD_STATE


def test_records_are_given_up_after_the_last_delivery() -> None:
    reader = Reader(limits=ShareLimits(delivery_count_limit=2), log_end_offset=10)
    for count in (1, 2):
        assert reader.fetch() == [(0, 9, count)]
        reader.acknowledge((0, 9, [RELEASE]))
    assert reader.partition.start_offset == 10
    assert reader.fetch(batches=[]) == []


def test_records_released_often_are_acquired_in_ever_smaller_parts_and_at_last_alone() -> None:
    reader = Reader(log_end_offset=10)
    counts = []
    for _ in range(5):
        acquired = reader.fetch(maximum_count=500)
        counts.append(acquired)
        for first, last, _count in acquired:
            reader.acknowledge((first, last, [RELEASE]))
    assert counts[:3] == [[(0, 9, 1)], [(0, 9, 2)], [(0, 9, 3)]]
    assert counts[3:] == [[(0, 4, 4)], [(0, 0, 5)]]
    assert reader.partition.start_offset == 1


def test_a_leaving_member_releases_only_its_own_records() -> None:
    reader = Reader()
    reader.fetch("a", maximum_count=10)
    reader.fetch("b", maximum_count=10)
    transition = reader.partition.release("a", reader.limits)
    assert transition is not None
    reader.partition.apply(transition)
    assert reader.states() == [(0, 9, RecordState.AVAILABLE, 1), (10, 19, RecordState.ACQUIRED, 1)]
    assert reader.partition.release("a", reader.limits) is None


# Where it begins


def test_stored_state_is_restored_and_records_without_state_are_acquired_again() -> None:
    kept = [
        StateBatch(first_offset=10, last_offset=19, delivery_state=2, delivery_count=1),
        StateBatch(first_offset=5, last_offset=7, delivery_state=0, delivery_count=2),
    ]
    reader = Reader(SharePartition(5, kept))
    assert reader.fetch("a", maximum_count=6) == [(5, 7, 3), (8, 9, 1), (20, 29, 1)]


def test_the_start_moves_over_what_was_kept_as_done_with() -> None:
    kept = [StateBatch(first_offset=0, last_offset=9, delivery_state=4, delivery_count=5)]
    assert SharePartition(0, kept).start_offset == 10


def test_records_that_the_log_no_longer_has_are_done_with() -> None:
    reader = Reader()
    reader.fetch(maximum_count=20)
    reader.partition.log_start_moved(15)
    assert (reader.partition.start_offset, reader.partition.end_offset) == (15, 20)
    assert reader.acknowledge((0, 19, [ACCEPT])) is ErrorCode.NONE
    reader.partition.log_start_moved(50)
    assert reader.fetch(maximum_count=10) == [(50, 59, 1)]


def test_records_held_below_the_log_start_hold_back_the_start_offset_until_released() -> None:
    reader = Reader()
    reader.fetch("a", maximum_count=10)
    reader.partition.log_start_moved(50)
    assert reader.acknowledge((100, 102, [ACCEPT])) is ErrorCode.INVALID_REQUEST
    assert reader.fetch("b", maximum_count=10) == [(50, 59, 1)]
    assert reader.acknowledge((50, 59, [ACCEPT]), member="b") is ErrorCode.NONE
    assert reader.partition.start_offset == 50
    assert reader.acknowledge((50, 59, [ACCEPT]), member="b") is ErrorCode.INVALID_RECORD_STATE
    transition = reader.partition.release("a", reader.limits)
    assert transition is not None
    assert [batch.delivery_state for batch in transition.state_batches] == [RecordState.ARCHIVED]
    assert transition.delivery_complete_count == 10
    reader.partition.apply(transition)
    assert reader.partition.start_offset == reader.partition.end_offset == 60


def test_records_on_their_third_delivery_do_not_keep_later_ones_from_being_acquired() -> None:
    reader = Reader(log_end_offset=30)
    assert reader.fetch("a", batch_size=10) == [(0, 9, 1), (10, 19, 1), (20, 29, 1)]
    reader.acknowledge((10, 19, [RELEASE]), member="a")
    assert reader.fetch("b") == [(10, 19, 2)]
    reader.acknowledge((10, 19, [RELEASE]), member="b")
    assert reader.fetch("b") == [(10, 19, 3)]
    reader.acknowledge((0, 9, [RELEASE]), (20, 29, [RELEASE]), member="a")
    assert reader.fetch("c") == [(0, 9, 2), (20, 29, 2)]


# All of it


@given(data=st.data())
@settings(max_examples=60, deadline=None, database=None)
def test_every_record_is_done_with_once_and_never_has_two_owners(data: st.DataObject) -> None:
    reader = Reader(limits=ShareLimits(delivery_count_limit=4, partition_max_record_locks=25))
    owners: dict[int, str] = {}
    accepted: set[int] = set()
    deliveries: dict[int, int] = {}
    for _ in range(data.draw(st.integers(1, 40))):
        member = data.draw(st.sampled_from(["a", "b"]))
        step = data.draw(st.sampled_from(["fetch", "fetch", "acknowledge", "acknowledge", "time", "leave", "reload"]))
        if step == "fetch":
            mode = data.draw(st.sampled_from(AcquireMode))
            maximum_count = data.draw(st.integers(1, 30))
            acquired_count = 0
            for first, last, count in reader.fetch(member, maximum_count, mode=mode, batch_size=10):
                for offset in range(first, last + 1):
                    assert offset not in owners
                    assert offset not in accepted
                    deliveries[offset] = deliveries.get(offset, 0) + 1
                    assert count == deliveries[offset]
                    owners[offset] = member
                    acquired_count += 1
            assert mode is AcquireMode.BATCH_OPTIMIZED or acquired_count <= maximum_count
        elif step == "acknowledge":
            mine = sorted(offset for offset, owner in owners.items() if owner == member)
            if mine:
                offset = data.draw(st.sampled_from(mine))
                kind = data.draw(st.sampled_from([ACCEPT, RELEASE, REJECT]))
                assert reader.acknowledge((offset, offset, [kind]), member=member) is ErrorCode.NONE
                del owners[offset]
                if kind is ACCEPT:
                    accepted.add(offset)
        elif step == "time":
            reader.pass_time(reader.limits.record_lock_duration_ms)
            owners.clear()
        elif step == "leave":
            transition = reader.partition.release(member, reader.limits)
            if transition is not None:
                reader.partition.apply(transition)
            owners = {offset: owner for offset, owner in owners.items() if owner != member}
        else:
            kept = [
                StateBatch(span.first_offset, span.last_offset, span.state, span.delivery_count)
                for span in reader.partition.spans()
                if span.state is not RecordState.ACQUIRED
            ]
            lost = set(owners)
            reader.partition = SharePartition(reader.partition.start_offset, kept)
            # What was lent at the time counts from the start: nothing had been kept of it.
            for offset in lost:
                deliveries[offset] = 0
            owners.clear()
        spans = reader.partition.spans()
        assert all(one.last_offset + 1 == other.first_offset for one, other in pairwise(spans))
        assert not spans or spans[0].first_offset == reader.partition.start_offset
        assert all(offset < reader.partition.start_offset or offset in _done(reader) for offset in accepted)


def _done(reader: Reader) -> set[int]:
    return {
        offset
        for span in reader.partition.spans()
        if span.state.is_terminal
        for offset in range(span.first_offset, span.last_offset + 1)
    }


def test_a_limit_that_is_lowered_counts_at_once() -> None:
    reader = Reader()
    reader.fetch(maximum_count=10)
    reader.limits = replace(reader.limits, delivery_count_limit=1)
    reader.acknowledge((0, 9, [RELEASE]))
    assert reader.partition.start_offset == 10


def test_released_records_of_a_batch_are_acquired_together_above_the_requested_count() -> None:
    reader = Reader()
    assert reader.fetch(maximum_count=10) == [(0, 9, 1)]
    types = [RELEASE, RELEASE, ACCEPT, RELEASE, ACCEPT, ACCEPT, ACCEPT, ACCEPT, ACCEPT, RELEASE]
    assert reader.acknowledge((0, 0, [RELEASE]), (1, 9, types[1:])) is ErrorCode.NONE
    assert reader.fetch("b", maximum_count=1) == [(0, 1, 2), (3, 3, 2), (9, 9, 2)]


def test_a_strict_member_acquires_no_more_released_records_than_requested() -> None:
    reader = Reader()
    reader.fetch(maximum_count=10)
    types = [RELEASE, RELEASE, ACCEPT, RELEASE, ACCEPT, ACCEPT, ACCEPT, ACCEPT, ACCEPT, RELEASE]
    assert reader.acknowledge((0, 9, types)) is ErrorCode.NONE
    assert reader.fetch("b", maximum_count=3, mode=AcquireMode.RECORD_LIMIT) == [(0, 1, 2), (3, 3, 2)]


def test_released_records_are_acquired_in_their_first_batches() -> None:
    reader = Reader()
    assert reader.fetch(maximum_count=20, batch_size=10) == [(0, 9, 1), (10, 19, 1)]
    assert reader.acknowledge((0, 19, [RELEASE])) is ErrorCode.NONE
    assert reader.fetch("b", maximum_count=1) == [(0, 9, 2)]


def test_a_log_that_begins_later_is_news_once() -> None:
    reader = Reader()
    reader.fetch(maximum_count=10)
    assert reader.partition.log_start_moved(20)
    assert not reader.partition.log_start_moved(20)
    assert reader.partition.start_offset == 20


# Dead letters

WITH_DEAD_LETTERS = ShareLimits(has_dead_letter_topic=True, delivery_count_limit=2)


def undeliverable(partition: SharePartition, first_offset: int = 0) -> tuple[int, int, int, bool] | None:
    span = partition.first_undeliverable(first_offset)
    return None if span is None else (span.first_offset, span.last_offset, span.delivery_count, span.is_rejected)


def test_rejected_records_wait_for_the_dead_letter_topic_and_hold_back_the_start() -> None:
    reader = Reader(limits=WITH_DEAD_LETTERS)
    reader.fetch("a", maximum_count=10)
    assert reader.acknowledge((0, 3, [REJECT]), (4, 9, [ACCEPT])) is ErrorCode.NONE
    assert undeliverable(reader.partition) == (0, 3, 1, True)
    assert reader.partition.start_offset == 0
    assert reader.fetch("b", maximum_count=10) == [(10, 19, 1)]
    reader.partition.apply(reader.partition.settle(0, 1, RecordState.ARCHIVED))
    assert undeliverable(reader.partition) == (2, 3, 1, True)
    assert undeliverable(reader.partition, 3) == (3, 3, 1, True)
    assert reader.partition.start_offset == 2
    reader.partition.apply(reader.partition.settle(2, 3, RecordState.ARCHIVED))
    assert reader.partition.start_offset == 10
    assert undeliverable(reader.partition) is None


def test_records_delivered_too_often_wait_apart_from_rejected_ones_and_gaps_do_not() -> None:
    reader = Reader(limits=WITH_DEAD_LETTERS)
    reader.fetch("a", maximum_count=10)
    assert reader.acknowledge((0, 9, [RELEASE])) is ErrorCode.NONE
    reader.fetch("a", maximum_count=10)
    assert reader.acknowledge((0, 1, [RELEASE]), (2, 2, [REJECT]), (3, 3, [GAP])) is ErrorCode.NONE
    assert undeliverable(reader.partition) == (0, 1, 2, False)
    assert undeliverable(reader.partition, 2) == (2, 2, 2, True)
    assert undeliverable(reader.partition, 3) is None


def test_stored_records_that_wait_are_restored_and_nobody_gets_them() -> None:
    kept = [StateBatch(first_offset=0, last_offset=4, delivery_state=3, delivery_count=2)]
    reader = Reader(SharePartition(0, kept), limits=WITH_DEAD_LETTERS)
    assert undeliverable(reader.partition) == (0, 4, 2, False)
    assert [first for first, _, _ in reader.fetch("a", maximum_count=5)] == [5]


def test_the_start_moves_over_no_record_that_waits_even_if_the_log_has_lost_it() -> None:
    reader = Reader(limits=WITH_DEAD_LETTERS)
    reader.fetch("a", maximum_count=10)
    assert reader.acknowledge((0, 9, [REJECT])) is ErrorCode.NONE
    assert reader.partition.log_start_moved(50)
    assert not reader.partition.log_start_moved(50)
    assert (reader.partition.start_offset, reader.partition.end_offset) == (0, 50)
    assert reader.fetch("a", maximum_count=10) == [(50, 59, 1)]
    reader.partition.apply(reader.partition.settle(0, 9, RecordState.ARCHIVED))
    assert reader.partition.start_offset == 50


@pytest.mark.parametrize("mode", list(AcquireMode))
def test_a_batch_without_records_is_passed_over_however_many_offsets_it_takes(mode: AcquireMode) -> None:
    reader = Reader(log_end_offset=10)
    assert reader.fetch(mode=mode) == [(0, 9, 1)]
    skipped, new = OffsetRange(10, 1_000_000_009), OffsetRange(1_000_000_010, 1_000_000_019)
    for _ in range(2):  # the first passes over them, and may have no more in flight
        assert reader.fetch(mode=mode, batches=[skipped, new], aborted=(skipped,)) == []
    assert reader.acknowledge((0, 9, [ACCEPT])) is ErrorCode.NONE
    assert reader.partition.start_offset == 1_000_000_010
    assert reader.fetch(mode=mode, batches=[new]) == [(1_000_000_010, 1_000_000_019, 1)]
