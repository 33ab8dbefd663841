"""Lag of a group in a partition, three ways. Pure.

Tools usually show `log end - committed`, which stays above 0 for ever behind markers and open transactions. What a
read_committed consumer can still get ends at the last stable offset; what is beyond it is not late but blocked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fencepost.console.record_marks import Batch, Mark, Outcomes


class Lag(NamedTuple):
    """None if the group has not committed, or an offset is not known.

    end:         offsets up to the high watermark, as all tools show it.
    deliverable: records that a read_committed consumer would get now; offsets, if they are too many to count.
    blocked:     offsets behind the last stable offset: they wait for a transaction to end.
    """

    end: int | None
    deliverable: int | None
    blocked: int | None


NOTHING_KNOWN = Lag(None, None, None)


def lag_of(
    committed: int | None, high_watermark: int | None, last_stable_offset: int | None, start: int | None = None
) -> Lag:
    """The lag of one partition, in offsets. start: of its log; what was below it is deleted, and only `end` has it."""
    if committed is None or committed < 0 or high_watermark is None or last_stable_offset is None:
        return NOTHING_KNOWN
    position = max(committed, start or 0)
    return Lag(
        max(0, high_watermark - committed),
        max(0, last_stable_offset - position),
        max(0, high_watermark - max(position, last_stable_offset)),
    )


def total(lags: Iterable[Lag]) -> Lag:
    """The sum over partitions; unknown ones count for nothing, and all unknown is unknown."""
    known = [lag for lag in lags if lag.end is not None]
    if not known:
        return NOTHING_KNOWN
    return Lag(
        sum(one.end or 0 for one in known),
        sum(one.deliverable or 0 for one in known),
        sum(one.blocked or 0 for one in known),
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
