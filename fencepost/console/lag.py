"""Lag of a group in a partition, three ways. Pure.

Tools usually show `log end - committed`, which stays above 0 for ever behind markers and open transactions. What a
read_committed consumer can still get ends at the last stable offset; what is beyond it is not late but blocked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fencepost.console.record_marks import Batch, Mark, Outcomes


class Lag(NamedTuple):
    """In offsets. None where the group has not committed, or an offset is not known.

    end:         up to the high watermark, as all tools show it.
    deliverable: up to the last stable offset: what a read_committed consumer would get now.
    blocked:     behind the last stable offset: waits for a transaction to end.
    """

    end: int | None
    deliverable: int | None
    blocked: int | None


NOTHING_KNOWN = Lag(None, None, None)


def lag_of(committed: int | None, high_watermark: int | None, last_stable_offset: int | None) -> Lag:
    """The lag of one partition; `end` is always the sum of the other two."""
    if committed is None or committed < 0 or high_watermark is None or last_stable_offset is None:
        return NOTHING_KNOWN
    end = max(0, high_watermark - committed)
    deliverable = min(end, max(0, last_stable_offset - committed))
    return Lag(end, deliverable, end - deliverable)


def total(lags: Iterable[Lag]) -> Lag:
    """The sum over partitions; unknown ones count for nothing, and all unknown is unknown."""
    known = [(lag.end, lag.deliverable, lag.blocked) for lag in lags if lag.end is not None]
    if not known:
        return NOTHING_KNOWN
    return Lag(
        sum(end for end, _, _ in known),
        sum(deliverable or 0 for _, deliverable, _ in known),
        sum(blocked or 0 for _, _, blocked in known),
    )


def readable_records(batches: Iterable[Batch], outcomes: Outcomes, committed: int, last_stable_offset: int) -> int:
    """Records that a read_committed consumer still gets: those of batches from `committed` up to the last stable offset
    that are not aborted. 0 where only markers are left. Counted from headers; nothing is decompressed.
    """
    count = 0
    for batch in batches:
        header = batch.header
        if header.is_control or header.last_offset < committed or header.base_offset >= last_stable_offset:
            continue
        if outcomes.of(header, header.base_offset) is not Mark.ABORTED:
            before = max(0, committed - header.base_offset)
            count += max(0, header.records_count - before)
    return count
