"""Share partition: which records of a partition are acquired by which member of one share group. Pure.

The share-partition start offset is the first record that is neither acknowledged nor archived; the records from there
up to the end offset are in flight. A decision that must be stored is a `ShareTransition`: it is written first, then
applied. The start offset moves only then, too: skipped records, and records that the log has lost, stay in flight until
a member acknowledges something. If the group has a dead-letter topic, records that nobody gets any more are ARCHIVING
until they are copied into it.
Source: KIP-932, KIP-1206 (acquire modes), KIP-1222 (renewal), KIP-1191 (dead letters); Kafka's SharePartition.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from fencepost.broker.share.acknowledgements import Acknowledgement, AcknowledgeType, runs_of
from fencepost.broker.share.acquire_request import (
    AcquireMode,
    AcquireRequest,
    OffsetRange,
    ShareLimits,
    divided,
    end_of_batch,
    is_isolated,
    throttle_threshold,
    throttled_count,
)
from fencepost.broker.share.acquired_records import AcquirableSpans, RecordSpan, RecordState
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.stored.share_group_state import StateBatch

LONGEST_LIMIT_WITHOUT_ISOLATION = 2
_UNLIMITED = sys.maxsize


class Acquired(NamedTuple):
    """Records acquired with one response; both offsets inclusive."""

    first_offset: int
    last_offset: int
    delivery_count: int


class AcknowledgementRefusal(NamedTuple):
    """Error that refuses all acknowledgements; the message is for people."""

    error: ErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class ShareTransition:
    """New states of records, to be written and then applied.

    state_batches: the states to store; empty if only locks were renewed.
    delivery_complete_count: number of records in flight that are in a terminal state then.
    """

    in_flight: AcquirableSpans
    state_batches: list[StateBatch]
    delivery_complete_count: int


class SharePartition:
    """One share partition. start_offset: of the first record that is neither acknowledged nor archived."""

    def __init__(self, start_offset: int, state_batches: Iterable[StateBatch] = ()) -> None:
        """Restore stored state: records in between without stored state were in flight when it was lost."""
        self.start_offset = start_offset
        self._in_flight = AcquirableSpans()
        next_offset = start_offset
        for batch in sorted(state_batches, key=lambda batch: batch.first_offset):
            first_offset = max(batch.first_offset, next_offset)
            if batch.last_offset < first_offset:
                continue
            if first_offset > next_offset:
                self._append(next_offset, first_offset - 1, RecordState.AVAILABLE, is_unknown=True)
            self._append(first_offset, batch.last_offset, RecordState(batch.delivery_state), batch.delivery_count)
            next_offset = batch.last_offset + 1
        self.advance()

    # Questions

    @property
    def end_offset(self) -> int:
        """The offset after the last record in flight."""
        end_offset = self._in_flight.end_offset
        return self.start_offset if end_offset is None else max(self.start_offset, end_offset)

    @property
    def in_flight_count(self) -> int:
        return self.end_offset - self.start_offset

    def spans(self) -> list[RecordSpan]:
        return list(self._in_flight)

    def next_fetch_offset(self, limits: ShareLimits) -> int | None:
        """Return the next offset to read: the first available record, else the end; None if all locks are in use."""
        for span in self._in_flight:
            if span.state is RecordState.AVAILABLE:
                return span.first_offset
        return self.end_offset if self.in_flight_count < limits.partition_max_record_locks else None

    def first_undeliverable(self, first_offset: int = 0) -> RecordSpan | None:
        """Return the first records, from an offset on, that wait to be copied into the dead-letter topic; None if there
        are none. They are neighbours with one delivery count and reason.
        """
        found: RecordSpan | None = None
        for span in self._in_flight:
            if found is None:
                if span.state is RecordState.ARCHIVING and span.last_offset >= first_offset:
                    found = span.within(first_offset, span.last_offset)
            elif _fate(span) == _fate(found):
                found = found._replace(last_offset=span.last_offset)
            else:
                break
        return found

    def next_deadline_ms(self) -> int | None:
        """Return the time at which the first lock runs out."""
        deadlines = [span.lock_deadline_ms for span in self._in_flight if span.state is RecordState.ACQUIRED]
        return min(deadlines, default=None)

    # Acquiring

    def acquire(
        self,
        member_id: str,
        *,
        fetch_offset: int,
        batches: Sequence[OffsetRange],
        aborted: Sequence[OffsetRange] = (),
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
        maximum_count: int,
        batch_size: int,
        limits: ShareLimits,
        now_ms: int,
    ) -> list[Acquired]:
        """Acquire for a member the available records of the batches that were read.

        fetch_offset:  the offset of the read; offsets missing between it and the last batch are not in the log.
        aborted:       batches of aborted transactions, or without records, in order; they are archived.
        maximum_count: bound of the number of records; in BATCH_OPTIMIZED the last batch comes whole.
        batch_size:    newly acquired records are divided, at batch boundaries, into ranges of this size.
        """
        if not batches or maximum_count <= 0 or batches[-1].last_offset < self.start_offset:
            return []
        last_offset = batches[-1].last_offset
        room_count = limits.partition_max_record_locks - self.in_flight_count
        if room_count <= 0:
            # No new records can be acquired, but released ones can.
            room_count = self.end_offset - fetch_offset
            last_offset = min(last_offset, self.end_offset - 1)
        request = AcquireRequest(
            member_id,
            OffsetRange(max(batches[0].first_offset, self.start_offset), last_offset),
            mode,
            min(maximum_count, room_count),
            limits,
            now_ms + limits.record_lock_duration_ms,
        )
        self._archive_absent(fetch_offset, batches)
        acquired, goes_on = self._acquire_again(request, batches, batch_size)
        remaining_count = request.maximum_count - sum(map(_acquired_count, acquired))
        if goes_on and remaining_count > 0 and last_offset >= self.end_offset:
            acquired += self._acquire_new(request, batches, remaining_count, batch_size)
        acquired = self._without_aborted(acquired, aborted)
        if self.in_flight_count >= limits.partition_max_record_locks and self._is_all_done():
            # There is no room for more, and no member holds records whose acknowledgement would make some.
            self.advance()
        return acquired

    def _acquire_again(
        self, request: AcquireRequest, batches: Sequence[OffsetRange], batch_size: int
    ) -> tuple[list[Acquired], bool]:
        """Acquire available records in flight, by their first batches; also return whether more may follow."""
        acquired: list[Acquired] = []
        acquired_count = 0
        for spans in self._in_flight.batches_in(*request.offsets):
            remaining_count = request.maximum_count - acquired_count
            if remaining_count <= 0:
                break
            if spans[0].is_unknown:
                found = self._acquire_unknown(request, spans[0], batches, remaining_count, batch_size)
            else:
                is_alone = is_isolated(spans, request)
                if is_alone and acquired_count:
                    return acquired, False  # records that have failed before are acquired alone
                found = self._acquire_batch(request, spans, remaining_count)
                if is_alone and found:
                    return found, False
            acquired += found
            acquired_count += sum(map(_acquired_count, found))
        return acquired, True

    def _acquire_batch(
        self, request: AcquireRequest, spans: Sequence[RecordSpan], maximum_count: int
    ) -> list[Acquired]:
        """Acquire the available records of one batch: all of them, except in RECORD_LIMIT, and fewer of records that
        were released often."""
        limit = request.limits.delivery_count_limit
        count_left = maximum_count if request.mode is AcquireMode.RECORD_LIMIT else _UNLIMITED
        is_throttled = False
        acquired: list[Acquired] = []
        for whole in spans:
            if whole.state is not RecordState.AVAILABLE:
                continue
            span = whole.within(*request.offsets)
            is_last_time = limit > LONGEST_LIMIT_WITHOUT_ISOLATION and span.delivery_count == limit - 1
            if is_last_time and acquired:
                break
            if not is_throttled and span.delivery_count >= throttle_threshold(limit):
                is_throttled = True
                fewer_count = throttled_count(span, limit) - sum(map(_acquired_count, acquired))
                if fewer_count > 0:
                    count_left = min(count_left, fewer_count)
            count = min(span.record_count, 1 if is_last_time else count_left)
            (taken,) = self._in_flight.change(span.first_offset, span.first_offset + count - 1, request.acquired)
            if acquired and (acquired[-1].last_offset, acquired[-1].delivery_count) == (
                taken.first_offset - 1,
                taken.delivery_count,
            ):
                acquired[-1] = acquired[-1]._replace(last_offset=taken.last_offset)
            else:
                acquired.append(Acquired(taken.first_offset, taken.last_offset, taken.delivery_count))
            count_left -= count
            if is_last_time or count_left <= 0:
                break
        return acquired

    def _acquire_unknown(
        self,
        request: AcquireRequest,
        span: RecordSpan,
        batches: Sequence[OffsetRange],
        maximum_count: int,
        batch_size: int,
    ) -> list[Acquired]:
        """Acquire records without stored state, between records with one, as if they were new."""
        span = span.within(*request.offsets)
        last_offset = min(end_of_batch(span.first_offset + maximum_count - 1, batches), span.last_offset)
        if request.mode is AcquireMode.RECORD_LIMIT:
            ranges = [OffsetRange(span.first_offset, min(last_offset, span.first_offset + maximum_count - 1))]
        else:
            ranges = divided(span.first_offset, last_offset, batch_size, batches)
        for offsets in ranges:
            self._in_flight.change(*offsets, partial(request.acquired_first, offsets))
        return [Acquired(offsets.first_offset, offsets.last_offset, 1) for offsets in ranges]

    def _acquire_new(
        self, request: AcquireRequest, batches: Sequence[OffsetRange], maximum_count: int, batch_size: int
    ) -> list[Acquired]:
        """Acquire records beyond the end."""
        new = [batch for batch in batches if batch.last_offset >= self.end_offset]
        first_offset = max(new[0].first_offset, self.end_offset)
        known_end_offset = self._in_flight.end_offset
        if known_end_offset is None:
            self.start_offset = first_offset
        elif known_end_offset < first_offset:
            self._append(known_end_offset, first_offset - 1, RecordState.ARCHIVED)
        wanted_last_offset = min(first_offset + maximum_count - 1, new[-1].last_offset)
        last_offset = end_of_batch(wanted_last_offset, new)
        if request.mode is AcquireMode.RECORD_LIMIT:
            # The rest of a cut batch is available: batches stay whole in memory, as on disk.
            self._append(first_offset, last_offset, RecordState.AVAILABLE)
            ranges = [OffsetRange(first_offset, wanted_last_offset)]
        else:
            ranges = divided(first_offset, last_offset, batch_size, new)
            for offsets in ranges:
                self._append(*offsets, RecordState.AVAILABLE)
        for offsets in ranges:
            self._in_flight.change(*offsets, request.acquired)
        return [Acquired(offsets.first_offset, offsets.last_offset, 1) for offsets in ranges]

    def _append(
        self,
        first_offset: int,
        last_offset: int,
        state: RecordState,
        delivery_count: int = 0,
        *,
        is_unknown: bool = False,
    ) -> None:
        span = RecordSpan(
            first_offset, last_offset, state, delivery_count, first_offset, last_offset, is_unknown=is_unknown
        )
        self._in_flight.append(span)

    def _archive_absent(self, fetch_offset: int, batches: Sequence[OffsetRange]) -> None:
        """Archive offsets in flight that the log does not have: compaction removes whole batches."""
        next_offset = fetch_offset
        for batch in batches:
            if next_offset < batch.first_offset:
                self._archive_available(next_offset, batch.first_offset - 1)
            next_offset = batch.last_offset + 1

    def _archive_available(self, first_offset: int, last_offset: int) -> None:
        def archive(span: RecordSpan) -> RecordSpan:
            return span.released(RecordState.ARCHIVED) if span.state is RecordState.AVAILABLE else span

        self._in_flight.change(first_offset, last_offset, archive)

    def _without_aborted(self, acquired: list[Acquired], aborted: Sequence[OffsetRange]) -> list[Acquired]:
        for batch in aborted:
            kept: list[Acquired] = []
            for held in acquired:
                first_offset = max(held.first_offset, batch.first_offset)
                last_offset = min(held.last_offset, batch.last_offset)
                if first_offset > last_offset:
                    kept.append(held)
                    continue
                self._in_flight.change(first_offset, last_offset, lambda span: span.released(RecordState.ARCHIVED))
                if held.first_offset < first_offset:
                    kept.append(held._replace(last_offset=first_offset - 1))
                if held.last_offset > last_offset:
                    kept.append(held._replace(first_offset=last_offset + 1))
            acquired = kept
            self._archive_available(*batch)  # in RECORD_LIMIT, as it may be longer than any number of fetches
        return acquired

    # Acknowledging

    def acknowledge(
        self, member_id: str, acknowledgements: Iterable[Acknowledgement], *, limits: ShareLimits, now_ms: int
    ) -> ShareTransition | AcknowledgementRefusal:
        """Decide on a member's acknowledgements: all of them, or none.

        Offsets below the start are skipped.
        Refuses: INVALID_RECORD_STATE (not acquired by the member, or no longer), INVALID_REQUEST (never acquired,
        unknown type).
        """
        draft = self._in_flight.copy()
        end_offset = self.end_offset
        state_batches: list[StateBatch] = []
        lock_deadline_ms = now_ms + limits.record_lock_duration_ms
        for acknowledgement in acknowledgements:
            if acknowledgement.last_offset < self.start_offset:
                continue
            if not len(draft):
                return AcknowledgementRefusal(ErrorCode.INVALID_RECORD_STATE, "The records are not in flight.")
            if acknowledgement.last_offset >= end_offset:
                return AcknowledgementRefusal(
                    ErrorCode.INVALID_REQUEST, "The last offset is past the acquired records."
                )
            for first_offset, last_offset, acknowledge_type in runs_of(acknowledgement, self.start_offset):
                if acknowledge_type is AcknowledgeType.RENEW and not limits.renew_acknowledge_enable:
                    return AcknowledgementRefusal(
                        ErrorCode.INVALID_RECORD_STATE, "Renewing acquisition locks is not enabled for the group."
                    )
                refusal = _check_acquired(draft, member_id, first_offset, last_offset)
                if refusal is not None:
                    return refusal

                def become(span: RecordSpan, acknowledge_type: AcknowledgeType = acknowledge_type) -> RecordSpan:
                    if span.is_absent:
                        return span
                    if acknowledge_type is AcknowledgeType.RENEW:
                        return span._replace(lock_deadline_ms=lock_deadline_ms)
                    is_rejected = acknowledge_type is AcknowledgeType.REJECT
                    return span.released(_becomes(acknowledge_type, span, limits))._replace(is_rejected=is_rejected)

                changed = draft.change(first_offset, last_offset, become)
                state_batches += [_state_batch(span) for span in changed if span.state is not RecordState.ACQUIRED]
        return self._transition(draft, state_batches)

    def release(self, member_id: str, limits: ShareLimits) -> ShareTransition | None:
        """Release the records that a member still holds at the end of its session; None if it holds none."""
        return self._released(lambda span: span.member_id == member_id, limits)

    def expire_locks(self, limits: ShareLimits, now_ms: int) -> ShareTransition | None:
        """Release the records whose lock has run out; None if there are none."""
        return self._released(lambda span: span.lock_deadline_ms <= now_ms, limits)

    def _released(self, is_over: Callable[[RecordSpan], bool], limits: ShareLimits) -> ShareTransition | None:
        draft = self._in_flight.copy()
        state_batches = []
        for span in self._in_flight:
            if span.state is RecordState.ACQUIRED and is_over(span):
                is_deleted = span.last_offset < self.start_offset
                released = span.released(
                    RecordState.ARCHIVED if is_deleted else _becomes(AcknowledgeType.RELEASE, span, limits)
                )
                draft.put(released)
                state_batches.append(_state_batch(released))
        return self._transition(draft, state_batches) if state_batches else None

    def settle(self, first_offset: int, last_offset: int, state: RecordState) -> ShareTransition:
        """Give the records of a range that wait for the dead-letter topic a state: ARCHIVED, or as before.

        A copy of records below the start has no effect on the others.
        """
        draft = self._in_flight.copy()

        def become(span: RecordSpan) -> RecordSpan:
            return span.released(state) if span.state is RecordState.ARCHIVING else span

        changed = draft.change(first_offset, last_offset, become)
        return self._transition(draft, [_state_batch(span) for span in changed if span.state is state])

    def _transition(self, draft: AcquirableSpans, state_batches: list[StateBatch]) -> ShareTransition:
        done_counts = (
            span.record_count for span in draft if span.state.is_terminal and span.first_offset >= self.start_offset
        )
        return ShareTransition(draft, state_batches, sum(done_counts))

    def apply(self, transition: ShareTransition) -> None:
        """Apply a transition, in the step that decided it. The start moves if something was written."""
        self._in_flight = transition.in_flight
        if transition.state_batches:
            self.advance()

    def log_start_moved(self, log_start_offset: int) -> bool:
        """Move the start to the log's start; return whether it moved. Acquired records below it, and all records behind
        them, stay in flight until their members acknowledge them."""
        if log_start_offset <= self.start_offset:
            return False
        first_offset = self._in_flight.first_offset
        if first_offset is not None:
            self._archive_available(first_offset, log_start_offset - 1)
        waiting = self.first_undeliverable()
        if waiting is None or waiting.first_offset >= log_start_offset:
            self.start_offset = log_start_offset
            return True
        # Stored states below the start are dropped: they must not be before the copies are made.
        self.start_offset = max(self.start_offset, waiting.first_offset)
        if self.end_offset < log_start_offset:
            self._append(self.end_offset, log_start_offset - 1, RecordState.ARCHIVED)
            return True
        return False

    def _is_all_done(self) -> bool:
        return all(span.state.is_terminal for span in self._in_flight)

    def advance(self) -> bool:
        """Move the start over records in a terminal state; return whether there were any."""
        after = self._in_flight.drop_done()
        if after is None:
            return False
        self.start_offset = max(self.start_offset, after)
        return True


def _check_acquired(
    draft: AcquirableSpans, member_id: str, first_offset: int, last_offset: int
) -> AcknowledgementRefusal | None:
    for span in draft.overlapping(first_offset, last_offset):
        if span.is_absent:
            continue
        if span.state is not RecordState.ACQUIRED:
            return AcknowledgementRefusal(
                ErrorCode.INVALID_RECORD_STATE, f"Offset {span.first_offset} is not acquired."
            )
        if span.member_id != member_id:
            return AcknowledgementRefusal(
                ErrorCode.INVALID_RECORD_STATE, f"The member is not the owner of offset {span.first_offset}."
            )
    return None


def _becomes(acknowledge_type: AcknowledgeType, span: RecordSpan, limits: ShareLimits) -> RecordState:
    if acknowledge_type is AcknowledgeType.ACCEPT:
        return RecordState.ACKNOWLEDGED
    if acknowledge_type is AcknowledgeType.RELEASE and span.delivery_count < limits.delivery_count_limit:
        return RecordState.AVAILABLE
    if acknowledge_type is AcknowledgeType.GAP or not limits.has_dead_letter_topic:
        return RecordState.ARCHIVED
    return RecordState.ARCHIVING


def _fate(span: RecordSpan) -> tuple[RecordState, int, bool]:
    return span.state, span.delivery_count, span.is_rejected


def _state_batch(span: RecordSpan) -> StateBatch:
    return StateBatch(
        first_offset=span.first_offset,
        last_offset=span.last_offset,
        delivery_state=span.state,
        delivery_count=span.delivery_count,
    )


def _acquired_count(acquired: Acquired) -> int:
    return acquired.last_offset - acquired.first_offset + 1
