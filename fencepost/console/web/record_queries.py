"""Which records of a topic a page, a download, a tail or a copy is about: parameters of an address, and the reading.

partition: numbers and ranges, such as `0,4-7`; none for all. order: `newest` or `oldest` first. stands: one of STANDS.
from: an offset, of a single partition. time, until: from the first time on, before the second one. at: positions where
an earlier page has ended. The rest are filters, see `record_filters`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from fencepost.client.cluster import Cluster
from fencepost.client.consuming import UNCOMMITTED, list_offsets
from fencepost.client.errors import ClusterError, RefusedError
from fencepost.console import words
from fencepost.console.positions import MOST_PARTITIONS, Positions, PositionsError, positions_in
from fencepost.console.reading.records import fetch
from fencepost.console.reading.scan import Budget, Found, Scan
from fencepost.console.reading.topics import PartitionState, TopicState, read_topics
from fencepost.console.record_filters import Filter, FilterError, filter_of
from fencepost.console.record_marks import Mark
from fencepost.console.values import FORMATS, Shown, Values
from fencepost.console.web.visit import BadFormError, NotFoundError, whole_number
from fencepost.protocol.checked_json import LATEST_MS
from fencepost.protocol.errors import ErrorCode

STANDS: Final[Mapping[str, frozenset[Mark]]] = {
    "all": frozenset(Mark),
    "committed": frozenset({Mark.COMMITTED, Mark.PLAIN}),
    "aborted": frozenset({Mark.ABORTED}),
    "open": frozenset({Mark.OPEN, Mark.UNDECIDED}),
    "plain": frozenset({Mark.PLAIN}),
    "markers": frozenset({Mark.MARKER}),
}
RECORDS_AT_ONCE: Final = 200
LONGEST_LIST: Final = 2_000
MOST_ENDS: Final = 20
SLACK_MS: Final = 600_000
_RANGE: Final = re.compile("([0-9]{1,9})(?:-([0-9]{1,9}))?")


@dataclass(frozen=True)
class Query:
    """The parameters, read. Times in ms since 1970."""

    ranges: tuple[tuple[int, int], ...] = ()
    is_newest_first: bool = True
    stands: str = "all"
    shown_format: str = "text"
    filter: Filter = field(default_factory=Filter)
    from_offset: int | None = None
    from_ms: int | None = None
    until_ms: int | None = None
    at: Positions | None = None

    @property
    def is_filtered(self) -> bool:
        return not self.filter.is_empty or self.stands != "all" or self.from_ms is not None or self.until_ms is not None

    def has(self, index: int) -> bool:
        return not self.ranges or any(first <= index <= last for first, last in self.ranges)

    def takes(self, found: Found) -> bool:
        """Whether a record stands as asked, and is of the time; the filter needs to see more of it."""
        row = found.row
        return (
            row.mark in STANDS[self.stands]
            and (self.from_ms is None or row.timestamp_ms >= self.from_ms)
            and (self.until_ms is None or row.timestamp_ms < self.until_ms)
        )


def query_of(parameters: Mapping[str, str]) -> Query:
    """Read the parameters of an address or a form. Raises BadFormError."""
    try:
        wanted = filter_of(parameters)
        at = positions_in(parameters["at"]) if parameters.get("at") else None
        times = [parameters.get(name, "").strip() for name in ("time", "until")]
        from_ms, until_ms = (words.parse_clock(text) if text else None for text in times)
    except (FilterError, PositionsError, ValueError) as error:
        raise BadFormError(str(error)) from None
    if any(one is not None and not 0 <= one <= LATEST_MS for one in (from_ms, until_ms)):
        raise BadFormError("a time must be from 1970 up to the year 9999")
    stands, shown_format = parameters.get("stands", "all"), parameters.get("format", "text")
    from_text = parameters.get("from", "").strip().replace(",", "")
    ranges = _ranges_in(parameters.get("partition", ""))
    from_offset = whole_number(from_text, "from") if from_text else None
    if from_offset is not None and (len(ranges) != 1 or ranges[0][0] != ranges[0][1]):
        if ranges:
            raise BadFormError("an offset is of one partition: choose one, or begin at a time")
        ranges = ((0, 0),)
    order = parameters.get("order", "")
    newest = order == "newest" or (order != "oldest" and from_offset is None and from_ms is None)
    return Query(
        ranges,
        newest,
        stands if stands in STANDS else "all",
        shown_format if shown_format in FORMATS else "text",
        wanted,
        from_offset,
        from_ms,
        until_ms,
        at,
    )


def _ranges_in(text: str) -> tuple[tuple[int, int], ...]:
    if len(text) > LONGEST_LIST:
        raise BadFormError(f"partitions may take at most {LONGEST_LIST:,} characters")
    found = []
    for piece in filter(None, text.replace(" ", "").split(",")):
        matched = _RANGE.fullmatch(piece)
        if matched is None:
            raise BadFormError(f"{piece[:50]!r} is no partition: write numbers and ranges, such as 0,4-7")
        first = int(matched[1])
        found.append((first, int(matched[2]) if matched[2] else first))
    return tuple(found)


@dataclass
class Reading:
    """Records of a topic as a query wants them, about to be read.

    partitions: those that are read. offline: those that cannot be. left_out: how many are too many for one reading.
    begins, ends: the offsets of each partition between which it reads.
    """

    topic: TopicState
    partitions: Sequence[PartitionState]
    offline: Sequence[PartitionState]
    left_out: int
    begins: Mapping[int, int]
    ends: Mapping[int, int]
    query: Query
    budget: Budget

    def scan(self, cluster: Cluster, *, patience_s: float = 1.0) -> Scan:
        newest = self.query.is_newest_first
        positions, limits = (self.ends, self.begins) if newest else (self.begins, self.ends)
        return Scan(
            cluster,
            self.partitions,
            positions,
            limits,
            self.budget,
            is_backwards=newest,
            patience_s=patience_s,
        )

    @property
    def offsets(self) -> int:
        """Offsets in its range: there are at most that many records."""
        return sum(max(0, end - self.begins[index]) for index, end in self.ends.items())


async def begin(cluster: Cluster, name: str, query: Query, budget: Budget) -> Reading:
    """Read a topic's offsets, and find the range of a query. Raises ClusterError, NotFoundError, BadFormError."""
    view = await cluster.view([name])
    found = view.topics.get(name)
    if found is None or found.error:
        raise RefusedError(found.error if found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}")
    if query.at is not None and not query.at.belong_to(found.topic_id):
        raise BadFormError(f"{name} was deleted and made again since this page: begin anew")
    chosen = tuple(one for one in found.partitions if query.has(one.index))
    if not chosen:
        raise NotFoundError(f"{name} has no such partition; it has {len(found.partitions):,}")
    kept = chosen[:MOST_PARTITIONS]
    states = await read_topics(cluster, replace(view, topics={name: replace(found, partitions=kept)}), with_sizes=False)
    topic = states[0]
    readable = [one for one in topic.partitions if one.error is None]
    begins = {one.index: one.start or 0 for one in readable}
    committed = query.stands == "committed"
    ends = {one.index: (one.last_stable_offset if committed else one.high_watermark) or 0 for one in readable}
    if query.from_ms is not None:
        for index, offset in (await offsets_at(cluster, readable, query.from_ms)).items():
            begins[index] = max(begins[index], ends[index] if offset < 0 else offset)
    if query.until_ms is not None and len(readable) <= MOST_ENDS:
        for index, offset in (await _ends_at(cluster, readable, query.until_ms)).items():
            ends[index] = max(begins[index], min(ends[index], offset))
    if query.from_offset is not None and query.at is None:
        for index in begins:
            if query.is_newest_first:
                ends[index] = max(begins[index], min(ends[index], query.from_offset + 1))
            else:
                begins[index] = min(ends[index], max(begins[index], query.from_offset))
    for index, offset in (query.at.offsets if query.at else {}).items():
        if index in begins:
            if query.is_newest_first:
                ends[index] = min(ends[index], offset)
            else:
                begins[index] = max(begins[index], offset)
    offline = [one for one in topic.partitions if one.error is not None]
    left_out = len(chosen) - len(kept)
    return Reading(topic, readable, offline, left_out, begins, ends, query, budget)


async def _ends_at(cluster: Cluster, partitions: Sequence[PartitionState], until_ms: int) -> dict[int, int]:
    """By partition an offset behind which nothing is older than a time, if there is such a place.

    Times of records go to and fro, by seconds among producers; and the marker of an old record has today's time. So the
    place is SLACK_MS behind, and the first record there must be of that time, too. All else is read and compared.
    """
    found = {}
    by_index = {one.index: one for one in partitions}
    for index, offset in (await offsets_at(cluster, partitions, min(LATEST_MS, until_ms + SLACK_MS))).items():
        if offset < 0:
            continue
        batches = (await fetch(cluster, by_index[index], offset, UNCOMMITTED, 1 << 16)).batches
        first = next((one.header for one in batches if not one.header.is_control), None)
        if first is not None and first.base_timestamp_ms >= until_ms:
            found[index] = offset
    return found


async def offsets_at(cluster: Cluster, partitions: Sequence[PartitionState], time_ms: int) -> dict[int, int]:
    """By partition the first offset at or after a time; -1 if there is none. Raises ClusterError."""
    by_leader: dict[int, list[PartitionState]] = defaultdict(list)
    for one in partitions:
        by_leader[one.leader].append(one)
    found = {}
    for leader, led in by_leader.items():
        places = [(one.topic, one.index) for one in led]
        for place, (code, _, offset) in (await list_offsets(cluster, leader, places, time_ms, UNCOMMITTED)).items():
            if code:
                raise ClusterError(f"{place[0]}-{place[1]} does not say what was written at that time")
            found[place[1]] = offset
    return found


@dataclass(frozen=True)
class Hit:
    """A record that a query takes, as it may be shown; shown is None for a marker."""

    found: Found
    shown: Shown | None


async def hits_in(values: Values, topic: str, query: Query, found: Sequence[Found]) -> list[Hit]:
    """The records among these that a query takes, in their order."""
    taken = [one for one in found if query.takes(one)]
    records = [one.row.record for one in taken if one.row.record is not None]
    shown = iter(await values.show(topic, records, query.shown_format))
    hits = [Hit(one, None if one.row.record is None else next(shown)) for one in taken]
    if query.filter.is_empty:
        return hits
    return [one for one in hits if one.shown is not None and query.filter.takes(one.shown)]


async def first_hits(values: Values, topic: str, query: Query, scan: Scan, most: int) -> list[Hit]:
    """The first records that a query takes. The scan is then exactly behind the last one of them, or at its end."""
    hits: list[Hit] = []
    size = RECORDS_AT_ONCE if query.is_filtered else most
    async for found in scan.batches(size):
        hits += await hits_in(values, topic, query, found)
        if len(hits) >= most:
            last = hits[most - 1].found
            scan.put_back(found[found.index(last) + 1 :])
            return hits[:most]
    return hits
