"""Records and batches of a partition, by Fetch, within bounds."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from fencepost.client import consuming
from fencepost.client.cluster import Cluster
from fencepost.client.consuming import COMMITTED, FETCH_BYTES, UNCOMMITTED, list_offsets
from fencepost.client.errors import ClusterError, check
from fencepost.console.reading.topics import PartitionState
from fencepost.console.reading.transactions import open_transactions, read_producers
from fencepost.console.record_marks import (
    UNREADABLE,
    Aborted,
    Batch,
    Gap,
    Outcomes,
    ShownRecord,
    read_batches,
    shown_records,
    with_gaps,
)

MOST_BATCHES: Final = 50_000
"""Of one view; a page says where it stopped."""
MOST_BYTES: Final = 64 << 20
LONGEST_READ_S: Final = 5.0


@dataclass(frozen=True)
class Fetched:
    """One answer to a Fetch. aborted: only of a read_committed one."""

    batches: list[Batch]
    aborted: list[Aborted]
    high_watermark: int
    last_stable_offset: int


async def fetch(
    cluster: Cluster,
    partition: PartitionState,
    offset: int,
    isolation: int,
    most_bytes: int = FETCH_BYTES,
    *,
    wait_ms: int = 0,
) -> Fetched:
    """Read batches from `offset` on; the broker waits for some. Raises ClusterError."""
    place = partition.topic, partition.index
    data = await consuming.fetch(cluster, place, partition.leader, offset, isolation, most_bytes, wait_ms=wait_ms)
    try:
        batches = read_batches(data.records or b"")
    except UNREADABLE as error:
        raise ClusterError(f"{partition.name} cannot be read at offset {offset}: {error}") from None
    aborted = [Aborted(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()]
    return Fetched(batches, aborted, data.high_watermark, data.last_stable_offset)


@dataclass
class Range:
    """Batches of a partition from one offset on. is_whole: whether they reach the end of the requested range."""

    batches: list[Batch] = field(default_factory=list)
    next_offset: int = 0
    is_whole: bool = False


async def read_range(
    cluster: Cluster,
    partition: PartitionState,
    from_offset: int,
    to_offset: int,
    *,
    most_batches: int = MOST_BATCHES,
    most_bytes: int = MOST_BYTES,
) -> Range:
    """Read the batches from `from_offset` up to `to_offset`, exclusive, within bounds. Raises ClusterError."""
    found = Range(next_offset=from_offset)
    deadline_s = time.monotonic() + LONGEST_READ_S
    read_bytes = 0
    while found.next_offset < to_offset:
        fetched = await fetch(cluster, partition, found.next_offset, UNCOMMITTED)
        if not fetched.batches:
            found.is_whole = found.next_offset >= fetched.high_watermark
            return found
        for batch in fetched.batches:
            if batch.header.base_offset >= to_offset:
                found.next_offset = to_offset
                break
            found.batches.append(batch)
            read_bytes += batch.header.size_bytes
            found.next_offset = batch.header.last_offset + 1
        if len(found.batches) >= most_batches or read_bytes >= most_bytes or time.monotonic() > deadline_s:
            return found
    found.is_whole = True
    return found


async def open_since(cluster: Cluster, partition: PartitionState) -> dict[int, int]:
    """By producer id, the first offset of its open transaction; empty if this user may not ask."""
    producers = await read_producers(cluster, [(partition.leader, [(partition.topic, partition.index)])])
    return {one.producer_id: one.first_offset for one in open_transactions(producers.producers)}


async def read_outcomes(cluster: Cluster, partition: PartitionState, shown: Range, from_offset: int) -> Outcomes:
    """Read the data that decide the outcome of each record of a range. Raises ClusterError."""
    stable = partition.last_stable_offset or 0
    aborted: list[Aborted] = []
    position, last_shown = from_offset, shown.next_offset
    while position < min(stable, last_shown):
        # As a consumer's fetch: the list belongs to the batches of the same answer.
        fetched = await fetch(cluster, partition, position, COMMITTED)
        aborted.extend(fetched.aborted)
        if not fetched.batches:
            break
        position = fetched.batches[-1].header.last_offset + 1
    opened = await open_since(cluster, partition)
    batches = list(shown.batches)
    if any(_needs_marker(batch, stable, opened) for batch in shown.batches):
        behind = await read_range(
            cluster, partition, last_shown, partition.high_watermark or last_shown, most_bytes=4 * FETCH_BYTES
        )
        batches.extend(behind.batches)
    return Outcomes(batches, aborted, opened, stable)


def _needs_marker(batch: Batch, stable: int, opened: dict[int, int]) -> bool:
    """Whether only a marker further on can say how this batch stands."""
    header = batch.header
    if header.is_control or not header.is_transactional or header.last_offset < stable:
        return False
    since = opened.get(header.producer_id)
    return since is None or since > header.base_offset


@dataclass
class RecordPage:
    """Records to show. next_offset: start of the following page; None at the end."""

    rows: list[ShownRecord | Gap] = field(default_factory=list)
    next_offset: int | None = None
    looked_at: int = 0


async def read_page(
    cluster: Cluster,
    partition: PartitionState,
    from_offset: int,
    *,
    rows: int,
    only_committed: bool,
    contains: str = "",
    most_looked_at: int = 10_000,
) -> RecordPage:
    """Read up to `rows` records from an offset on, with their marks. Raises ClusterError.

    contains: text that key, value or a header must have; at most `most_looked_at` records are looked at.
    """
    page = RecordPage()
    stable, end = partition.last_stable_offset or 0, partition.high_watermark or 0
    limit = stable if only_committed else end
    wanted = contains.encode()
    deadline_s = time.monotonic() + LONGEST_READ_S
    position = max(from_offset, partition.start or 0)
    while position < limit:
        fetched = await fetch(cluster, partition, position, UNCOMMITTED)
        batches = [batch for batch in fetched.batches if batch.header.base_offset < limit]
        if not batches:
            break
        chunk = Range(batches, batches[-1].header.last_offset + 1)
        outcomes = await read_outcomes(cluster, partition, chunk, position)
        try:
            found = list(with_gaps(shown_records(batches, outcomes, position), position))
        except UNREADABLE as error:
            raise ClusterError(f"{partition.name} has a batch that cannot be read: {error}") from None
        for row in found:
            offset = row.first if isinstance(row, Gap) else row.offset
            if offset >= limit:
                break
            if len(page.rows) >= rows or page.looked_at >= most_looked_at:
                page.next_offset = offset
                return page
            page.looked_at += not isinstance(row, Gap)
            if _is_wanted(row, wanted, only_committed=only_committed):
                page.rows.append(row)
        position = chunk.next_offset
        if time.monotonic() > deadline_s:
            page.next_offset = position
            return page
    return page


def _is_wanted(row: ShownRecord | Gap, wanted: bytes, *, only_committed: bool) -> bool:
    if isinstance(row, Gap):
        return not wanted
    if only_committed and row.mark.value in ("aborted", "open", "decided later"):
        return False
    if not wanted:
        return True
    if row.record is None:
        return False
    return any(wanted in piece for piece in _pieces(row))


def _pieces(row: ShownRecord) -> Iterable[bytes]:
    assert row.record is not None
    yield row.record.key or b""
    yield row.record.value or b""
    for name, value in row.record.headers:
        yield name.encode()
        yield value or b""


async def time_at(cluster: Cluster, partition: PartitionState, offset: int) -> int | None:
    """The time of the batch with the first record from an offset on, in ms; None at the end. Raises ClusterError."""
    fetched = await fetch(cluster, partition, offset, UNCOMMITTED, most_bytes=1)
    return fetched.batches[0].header.base_timestamp_ms if fetched.batches else None


async def offset_at_time(cluster: Cluster, partition: PartitionState, time_ms: int) -> int:
    """The first offset at or after a time; the high watermark if there is none. Raises ClusterError."""
    place = partition.topic, partition.index
    found = await list_offsets(cluster, partition.leader, [place], time_ms, UNCOMMITTED)
    code, _, offset = found[place]
    check(code)
    return offset if offset >= 0 else partition.high_watermark or 0
