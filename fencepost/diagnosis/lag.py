"""Lag of a group in a partition: records that a read_committed consumer can get now, and those that are blocked.

Tools usually show `log end - committed`, which never falls to 0 behind markers and open transactions. Records that a
read_committed consumer can get end at the last stable offset; those beyond it are not late but blocked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from fencepost.protocol.record_batch import BatchHeader

NO_TIME_MS: Final = -1


class Offsets(NamedTuple):
    """The offsets of a partition at one moment."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int

    def position(self, committed: int) -> int:
        """Return the offset at which a consumer continues: records below the log start are deleted."""
        return max(committed, self.log_start_offset)


class ReadableRecords(NamedTuple):
    """The count of readable records from an offset up to `next_offset`, exclusive.

    first_ms: the greatest timestamp of the batch with the first of the records; -1 if there is none, or without a time.
    """

    records_count: int
    next_offset: int
    first_ms: int

    def followed_by(self, more: ReadableRecords) -> ReadableRecords:
        first_ms = self.first_ms if self.records_count else more.first_ms
        return ReadableRecords(self.records_count + more.records_count, more.next_offset, first_ms)


class Lag(NamedTuple):
    """How far a group is behind. None if it is unknown; `unknown` has the reason.

    end:         offsets from the committed one to the high watermark, as all tools show it.
    deliverable: records that a read_committed consumer gets now; offsets, for the part that is not counted.
    blocked:     offsets that it cannot get before open transactions end.
    """

    end: int | None
    deliverable: int | None
    blocked: int | None
    unknown: str | None = None

    @classmethod
    def of_nothing(cls, why: str) -> Lag:
        """Return an unknown lag."""
        return cls(None, None, None, why)


def lag_of(committed: int, offsets: Offsets, counted: ReadableRecords | None = None, *, skipped_count: int = 0) -> Lag:
    """Return the lag of one partition.

    counted:       the readable records from `offsets.position(committed)` on, as far as they were counted.
    skipped_count: offsets behind the counted ones that a restored log has left out.
    """
    position, stable = offsets.position(committed), offsets.last_stable_offset
    deliverable = max(0, stable - position)
    if counted is not None:
        deliverable = min(counted.records_count + max(0, stable - counted.next_offset - skipped_count), deliverable)
    end = max(0, offsets.high_watermark - committed)
    return Lag(end, deliverable, max(0, offsets.high_watermark - max(position, stable)))


def total(lags: Iterable[Lag]) -> Lag:
    """Return the sum over partitions; unknown ones count for nothing, and all unknown is unknown."""
    end, deliverable, blocked, why = 0, 0, 0, "nothing is committed"
    is_known = False
    for one in lags:
        if one.end is None or one.deliverable is None or one.blocked is None:
            why = one.unknown or why
            continue
        is_known = True
        end, deliverable, blocked = end + one.end, deliverable + one.deliverable, blocked + one.blocked
    return Lag(end, deliverable, blocked) if is_known else Lag.of_nothing(why)


class AbortedTransaction(Protocol):
    """An aborted transaction of a Fetch, or of a segment's index."""

    @property
    def producer_id(self) -> int: ...

    @property
    def first_offset(self) -> int:
        """The first offset that it wrote in the partition."""
        ...


def count_readable(
    headers: Iterable[BatchHeader], offset: int, next_offset: int, aborted: Iterable[AbortedTransaction]
) -> ReadableRecords:
    """Count the records from `offset` on that a read_committed consumer gets: no markers, nothing aborted.

    headers: headers of all batches between the offsets, in order.
    aborted: transactions that end at `offset` or behind it, in any order and any number of times. An aborted
    transaction lasts from its first offset to its producer's next marker.
    Source: Kafka's CompletedFetch.
    """
    to_begin = sorted(((one.first_offset, one.producer_id) for one in aborted), reverse=True)
    open_aborted: set[int] = set()
    count, first_ms = 0, NO_TIME_MS
    for header in headers:
        while to_begin and to_begin[-1][0] <= header.last_offset:
            open_aborted.add(to_begin.pop()[1])
        if header.is_control:
            open_aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_aborted):
            # At most the offsets from `offset` on; compaction may have left fewer records than the batch has offsets.
            readable = min(header.records_count, header.last_offset + 1 - max(offset, header.base_offset))
            if readable > 0:
                first_ms = first_ms if count else header.max_timestamp_ms
                count += readable
    return ReadableRecords(count, next_offset, first_ms)
