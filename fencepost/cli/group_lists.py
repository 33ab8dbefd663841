"""The list of groups, with members and lag: many groups in each request, and a sentence for all that is missing."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fencepost.client.cluster import Cluster
from fencepost.client.consuming import Place
from fencepost.client.errors import DENIED, ClusterError, error_name
from fencepost.console.reading.groups import (
    Committed,
    GroupLag,
    ListedGroup,
    lags_of,
    list_groups,
    read_committed,
    read_share_offsets,
)
from fencepost.console.reading.lags import ReadableCounts
from fencepost.console.reading.topics import PartitionState, fill_offsets, partition_states
from fencepost.diagnosis.lag import total
from fencepost.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest
from fencepost.protocol.messages.group_admin import DescribeGroupsRequest
from fencepost.protocol.messages.share_groups import ShareGroupDescribeRequest
from fencepost.protocol.messages.streams_groups import StreamsGroupDescribeRequest

GROUPS_PER_REQUEST: Final = 200
SHARE: Final = "share"
SHARES_AT_ONCE: Final = 8
MOST_COUNTED: Final = 2_000
MOST_OFFSETS_COUNTED: Final = 20_000
"""Read in all, the shortest lags first: among them a few markers matter most. For longer ones, offsets stand for
records."""
MOST_NAMED: Final = 3
NOT_THERE: Final = 3


@dataclass(frozen=True)
class Wanted:
    """The groups to list. states, kinds: names in lower case, empty for all. matches: None for any group id."""

    states: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    matches: Callable[[str], bool] | None = None

    def has(self, group: ListedGroup) -> bool:
        return (
            (not self.states or group.state.lower() in self.states)
            and (not self.kinds or group.kind in self.kinds)
            and (self.matches is None or self.matches(group.group_id))
        )


@dataclass
class Listing:
    """Rows, and reasons why they are not all or not complete, as sentences. notes: sentences about no fault."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


async def read_groups(cluster: Cluster, wanted: Wanted) -> Listing:
    """Read groups with their members and lag. Raises ClusterError."""
    found = await list_groups(cluster)
    listing = Listing(missing=list(found.missing))
    groups = [group for group in found.listed if wanted.has(group)]
    committed, members = await asyncio.gather(read_committed(cluster, groups), _count_members(cluster, groups))
    shares = [group for group in groups if group.kind == SHARE]
    states, reasons = await _partitions(cluster, committed.values(), has_shares=bool(shares))
    lags: dict[str, list[GroupLag] | None] = {
        group_id: lags_of(offsets, states) for group_id, offsets in committed.items()
    }
    lags |= await _share_lags(cluster, shares, states)
    await _count_records(cluster, [one for found in lags.values() for one in found or ()], states)
    listing.rows = [_row(group, lags.get(group.group_id), members.get(group.group_id), reasons) for group in groups]
    _explain(listing, lags, reasons, groups)
    return listing


async def _count_members(cluster: Cluster, groups: Iterable[ListedGroup]) -> dict[str, int]:
    """By group id; groups that could not be described are left out."""
    by_api: dict[tuple[int, str], list[str]] = defaultdict(list)
    for group in groups:
        by_api[group.coordinator, group.kind].append(group.group_id)
    found: dict[str, int] = {}

    async def ask(node_id: int, kind: str, ids: Sequence[str]) -> None:
        try:
            reply = await cluster.send(_describing(kind, ids), node_id)
        except ClusterError:
            return
        found.update({one.group_id: len(one.members) for one in reply.groups if not one.error_code})

    await asyncio.gather(
        *(
            ask(node_id, kind, ids[first : first + GROUPS_PER_REQUEST])
            for (node_id, kind), ids in by_api.items()
            for first in range(0, len(ids), GROUPS_PER_REQUEST)
        )
    )
    return found


def _describing(kind: str, ids: Sequence[str]) -> Any:
    match kind:
        case "consumer":
            return ConsumerGroupDescribeRequest(group_ids=list(ids))
        case "share":
            return ShareGroupDescribeRequest(group_ids=list(ids))
        case "streams":
            return StreamsGroupDescribeRequest(group_ids=list(ids))
    return DescribeGroupsRequest(groups=list(ids))


async def _partitions(
    cluster: Cluster, committed: Iterable[Committed], *, has_shares: bool
) -> tuple[dict[Place, PartitionState], dict[str, str]]:
    """The partitions with their offsets; and by topic, or by partition as `orders-0`, the reason why it has none.

    has_shares: whether share groups are among them, whose topics are not known before their offsets are read.
    """
    places = {place for offsets in committed for place in offsets}
    if not places and not has_shares:
        return {}, {}
    view = await cluster.view(None if has_shares else sorted({topic for topic, _ in places}))
    if has_shares:
        places |= {(topic.name, one.index) for topic in view.topics.values() for one in topic.partitions}
    states = partition_states(view, places)
    await fill_offsets(cluster, states)
    reasons = {
        topic.name: error_name(topic.error) for topic in view.topics.values() if topic.error not in (0, NOT_THERE)
    }
    reasons |= {one.name: one.error or "it does not answer" for one in states if one.offsets is None}
    return {(one.topic, one.index): one for one in states}, reasons


async def _share_lags(
    cluster: Cluster, groups: Sequence[ListedGroup], states: Mapping[Place, PartitionState]
) -> dict[str, list[GroupLag] | None]:
    """By group id; None for a group that could not be read."""
    at_once = asyncio.Semaphore(SHARES_AT_ONCE)

    async def read(group: ListedGroup) -> list[GroupLag] | None:
        async with at_once:
            try:
                return await read_share_offsets(cluster, group, states)
            except ClusterError:
                return None

    answers = await asyncio.gather(*(read(group) for group in groups))
    return dict(zip([group.group_id for group in groups], answers, strict=True))


async def _count_records(cluster: Cluster, lags: Iterable[GroupLag], states: Mapping[Place, PartitionState]) -> None:
    """Count short lags in records, of one position once."""
    waiting = sorted((one for one in lags if one.lag.deliverable), key=lambda one: one.lag.deliverable or 0)
    chosen: dict[tuple[str, int, int], list[GroupLag]] = defaultdict(list)
    left = MOST_OFFSETS_COUNTED
    for one in waiting:
        position = one.topic, one.partition, one.committed
        if position not in chosen:
            left -= one.lag.deliverable or 0
            if left < 0 or len(chosen) >= MOST_COUNTED:
                break
        chosen[position].append(one)
    counts = ReadableCounts()
    first_of_each = [(alike[0], states[alike[0].topic, alike[0].partition]) for alike in chosen.values()]
    await counts.fill(cluster, first_of_each, most_counted=MOST_COUNTED)
    for alike in chosen.values():
        for one in alike[1:]:
            one.lag = alike[0].lag


def _row(
    group: ListedGroup, lags: Sequence[GroupLag] | None, members_count: int | None, reasons: Mapping[str, str]
) -> dict[str, Any]:
    lag = total(one.lag for one in lags or ())
    nothing = 0 if lags == [] else None
    return {
        "group": group.group_id,
        "state": group.state,
        "type": group.kind,
        "protocol_type": group.protocol_type or None,
        "members": members_count,
        "partitions": None if lags is None else len(lags),
        "lag": nothing if lag.end is None else lag.end,
        "read_committed_lag": None if group.kind == SHARE else nothing if lag.deliverable is None else lag.deliverable,
        "unread_partitions": None if lags is None else sum(_reason(one, reasons) is not None for one in lags),
    }


def _reason(one: GroupLag, reasons: Mapping[str, str]) -> str | None:
    """The reason why a lag is not known, if its topic is there."""
    if one.lag.end is not None:
        return None
    return reasons.get(f"{one.topic}-{one.partition}", reasons.get(one.topic))


def _explain(
    listing: Listing,
    lags: Mapping[str, Sequence[GroupLag] | None],
    reasons: Mapping[str, str],
    groups: Sequence[ListedGroup],
) -> None:
    unread = [group.group_id for group in groups if lags.get(group.group_id) is None]
    if unread:
        named = ", ".join(map(repr, unread[:MOST_NAMED])) + ("" if len(unread) <= MOST_NAMED else " and others")
        listing.missing.append(f"The offsets of {len(unread)} of {len(groups)} groups could not be read: {named}.")
    every = [one for found in lags.values() for one in found or ()]
    unknown = {f"{one.topic}-{one.partition}": _reason(one, reasons) for one in every if one.lag.end is None}
    silent = {name: why for name, why in sorted(unknown.items()) if why is not None}
    denied = {error_name(code) for code in DENIED}
    faults = {name: why for name, why in silent.items() if why not in denied}
    if faults:
        some = ", ".join(f"{name} ({why})" for name, why in list(faults.items())[:MOST_NAMED])
        more = f" and {len(faults) - MOST_NAMED} more" if len(faults) > MOST_NAMED else ""
        listing.missing.append(f"Lags are without {len(faults)} partitions that do not answer: {some}{more}.")
    if len(silent) > len(faults):
        listing.notes.append(
            f"Lags are without {len(silent) - len(faults)} partitions that this user may not describe."
        )
    if len(unknown) > len(silent):
        listing.notes.append(f"Lags are without offsets of {len(unknown) - len(silent)} partitions that are gone.")
