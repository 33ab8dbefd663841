"""Records of a share partition in flight, as spans of neighbours in one state. Pure.

Spans lie in order, without overlaps and without holes. Most records are acquired and acknowledged in batches, so there
are few spans; at worst each record is its own.
Source: KIP-932; Kafka's InFlightBatch, InFlightState and RecordState.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from enum import IntEnum
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

NOBODY = ""


class RecordState(IntEnum):
    """State of a record; the numbers are those of the records of `__share_group_state`.

    ARCHIVING: nobody gets it any more, and it is being copied into the group's dead-letter topic (KIP-1191).
    """

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4

    @property
    def is_terminal(self) -> bool:
        return self in _TERMINAL


_TERMINAL = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})


class RecordSpan(NamedTuple):
    """Neighbouring records in one state; both offsets inclusive.

    delivery_count:  number of acquisitions; 0 also for offsets without a record.
    batch_first_offset, batch_last_offset: range of the records that were first acquired together with these.
    member_id, lock_deadline_ms: the member that has acquired them, and the end of its acquisition lock.
    is_unknown:      whether their state was lost: they may have been acquired before.
    is_rejected:     whether a member rejected them, rather than that they were delivered too often; not stored.
    """

    first_offset: int
    last_offset: int
    state: RecordState
    delivery_count: int
    batch_first_offset: int
    batch_last_offset: int
    member_id: str = NOBODY
    lock_deadline_ms: int = 0
    is_unknown: bool = False
    is_rejected: bool = False

    @property
    def record_count(self) -> int:
        return self.last_offset - self.first_offset + 1

    @property
    def is_absent(self) -> bool:
        """Whether the log has no such records: they were archived without being acquired."""
        return self.state is RecordState.ARCHIVED and self.delivery_count == 0

    def within(self, first_offset: int, last_offset: int) -> RecordSpan:
        """The part of the span in a range that it overlaps."""
        return self._replace(
            first_offset=max(self.first_offset, first_offset), last_offset=min(self.last_offset, last_offset)
        )

    def acquired_by(self, member_id: str, lock_deadline_ms: int) -> RecordSpan:
        return self._replace(
            state=RecordState.ACQUIRED,
            delivery_count=self.delivery_count + 1,
            member_id=member_id,
            lock_deadline_ms=lock_deadline_ms,
        )

    def acquired_within(self, first_offset: int, last_offset: int) -> RecordSpan:
        """Return the span as part of a newly acquired batch, both offsets inclusive."""
        return self._replace(batch_first_offset=first_offset, batch_last_offset=last_offset, is_unknown=False)

    def released(self, state: RecordState) -> RecordSpan:
        return self._replace(state=state, member_id=NOBODY, lock_deadline_ms=0)


_first_offset = attrgetter("first_offset")


class AcquirableSpans:
    """The spans of one share partition. Spans are immutable, so a copy changes independently."""

    __slots__ = ("_spans",)

    def __init__(self, spans: list[RecordSpan] | None = None) -> None:
        self._spans: list[RecordSpan] = spans or []

    def __iter__(self) -> Iterator[RecordSpan]:
        return iter(self._spans)

    def __len__(self) -> int:
        return len(self._spans)

    @property
    def first_offset(self) -> int | None:
        """The first offset; None if nothing is in flight."""
        return self._spans[0].first_offset if self._spans else None

    @property
    def end_offset(self) -> int | None:
        """The offset after the last record; None if nothing is in flight."""
        return self._spans[-1].last_offset + 1 if self._spans else None

    def copy(self) -> AcquirableSpans:
        return AcquirableSpans(list(self._spans))

    def overlapping(self, first_offset: int, last_offset: int) -> list[RecordSpan]:
        """Return the whole spans that overlap a range."""
        first, end = self._indexes(first_offset, last_offset)
        return self._spans[first:end]

    def batches_in(self, first_offset: int, last_offset: int) -> list[list[RecordSpan]]:
        """Return the overlapping spans, grouped by the batch in which they were acquired."""
        spans = self.overlapping(first_offset, last_offset)
        return [list(batch) for _, batch in groupby(spans, attrgetter("batch_first_offset", "is_unknown"))]

    def append(self, span: RecordSpan) -> None:
        self._spans.append(span)

    def change(
        self, first_offset: int, last_offset: int, changed: Callable[[RecordSpan], RecordSpan]
    ) -> list[RecordSpan]:
        """Replace the parts of spans in a range, and return the new parts."""
        first, end = self._indexes(first_offset, last_offset)
        inside: list[RecordSpan] = []
        replacement: list[RecordSpan] = []
        for span in self._spans[first:end]:
            if span.first_offset < first_offset:
                replacement.append(span._replace(last_offset=first_offset - 1))
            part = changed(span.within(first_offset, last_offset))
            inside.append(part)
            replacement.append(part)
            if span.last_offset > last_offset:
                replacement.append(span._replace(first_offset=last_offset + 1))
        self._spans[first:end] = replacement
        return inside

    def put(self, span: RecordSpan) -> None:
        """Replace the span that begins and ends where this one does."""
        self._spans[bisect_right(self._spans, span.first_offset, key=_first_offset) - 1] = span

    def drop_done(self) -> int | None:
        """Drop the leading records in a terminal state; return the offset after the last of them, None if there was
        none."""
        spans = self._spans
        dropped_count = 0
        while dropped_count < len(spans) and spans[dropped_count].state.is_terminal:
            dropped_count += 1
        if not dropped_count:
            return None
        after = spans[dropped_count - 1].last_offset + 1
        del spans[:dropped_count]
        return after

    def _indexes(self, first_offset: int, last_offset: int) -> tuple[int, int]:
        spans = self._spans
        first = bisect_right(spans, first_offset, key=_first_offset) - 1
        if first < 0 or spans[first].last_offset < first_offset:
            first += 1
        return first, max(first, bisect_right(spans, last_offset, key=_first_offset))
