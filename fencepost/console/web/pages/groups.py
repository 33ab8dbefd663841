"""Groups: all of them with their lag three ways, and one of them. `group_changes` changes them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from fencepost.client.consuming import Place
from fencepost.client.errors import ClusterError, RefusedError
from fencepost.console.reading.dead_letters import PREFIX, read_dead_letters
from fencepost.console.reading.groups import (
    SHARE,
    GroupState,
    ListedGroup,
    describe_group,
    lags_of,
    list_groups,
    read_committed,
    read_share_offsets,
)
from fencepost.console.reading.records import time_at
from fencepost.console.reading.topics import (
    PartitionState,
    read_topics,
)
from fencepost.console.web.listing import Listing
from fencepost.console.web.pages.overview import by_place, group_rows
from fencepost.console.web.visit import Page, Visit
from fencepost.protocol.errors import ErrorCode

TARGETS: Final[Mapping[str, str]] = {
    "earliest": "the beginning",
    "latest": "the end",
    "time": "a time",
    "offset": "an offset",
    "shift": "a distance from where it is",
}
MOST_AGED: Final = 50
"""Maximum number of partitions of which one batch is read for the age of waiting records."""
NO_MEMBERS: Final = frozenset({"Empty", "Dead"})


async def groups(visit: Visit) -> Page:
    view, found = await asyncio.gather(visit.cluster.view(), list_groups(visit.cluster))
    topics = await read_topics(visit.cluster, view, with_sizes=False)
    rows = await group_rows(visit, found, by_place(topics))
    listing = Listing(
        rows,
        visit.parameters,
        text_of=lambda row: row.group_id,
        orders={
            "id": lambda row: row.group_id,
            "kind": lambda row: row.kind,
            "state": lambda row: row.state,
            "end": lambda row: row.lag.end,
            "deliverable": lambda row: row.lag.deliverable,
            "blocked": lambda row: row.lag.blocked,
        },
        first_order="id",
    )
    return Page("groups.html", "Groups", {"listing": listing, "missing": found.missing}, menu="groups", refreshes=True)


async def find_group(visit: Visit, group_id: str) -> ListedGroup:
    found = await list_groups(visit.cluster)
    for group in found.listed:
        if group.group_id == group_id:
            return group
    raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, "there is no such group that you may see")


async def _read(visit: Visit, group: ListedGroup) -> GroupState:
    state = GroupState(group)
    try:
        state = await describe_group(visit.cluster, group)
    except ClusterError as error:
        state.error = str(error)
    committed = (await read_committed(visit.cluster, [group])).get(group.group_id, {})
    view = await visit.cluster.view()
    named = {place[0] for place in committed}
    if group.kind != SHARE:
        view = replace(view, topics={name: topic for name, topic in view.topics.items() if name in named})
    partitions = by_place(await read_topics(visit.cluster, view, with_sizes=False))
    if group.kind == SHARE:
        state.offsets = await read_share_offsets(visit.cluster, group, partitions)
        state.dead_letters = letters = await read_dead_letters(visit.cluster, group.group_id, partitions)
        if letters.newest is not None:
            message = visit.values.header(letters.topic, f"{PREFIX}message", letters.newest.message)
            letters.newest = replace(letters.newest, message=message)
    else:
        state.offsets = lags_of(committed, partitions)
        known = [(one, partitions[one.topic, one.partition]) for one in state.offsets if one.lag.end]
        await visit.session.readable_counts.fill(visit.cluster, known)
    await _fill_ages(visit, state, partitions)
    owners = {place: member.client_id for member in state.members for place in member.assigned}
    for one in state.offsets:
        one.who = owners.get(f"{one.topic}-{one.partition}", "")
    return state


async def _fill_ages(visit: Visit, state: GroupState, partitions: Mapping[Place, PartitionState]) -> None:
    """Read the age of the oldest waiting record, for the partitions with the most of them."""
    waiting = sorted(
        (one for one in state.offsets if one.lag.deliverable or one.lag.blocked), key=lambda one: -(one.lag.end or 0)
    )
    now_ms = int(time.time() * 1000)
    for one in waiting[:MOST_AGED]:
        partition, first_ms = partitions[one.topic, one.partition], one.first_ms
        if first_ms is None:
            first = (partition.start if one.lag.deliverable else partition.last_stable_offset) or 0
            try:
                first_ms = await time_at(visit.cluster, partition, max(one.committed, first))
            except ClusterError:
                continue  # a topic that may be described but not read
        if first_ms is not None and first_ms >= 0:
            one.age_ms = max(0, now_ms - first_ms)


async def group(visit: Visit) -> Page:
    listed = await find_group(visit, visit.parameter("id"))
    state = await _read(visit, listed)
    data = {
        "state": state,
        "targets": TARGETS,
        "has_members": bool(state.members) or listed.state not in NO_MEMBERS,
        "topics": sorted({one.topic for one in state.offsets}),
    }
    return Page("group.html", "Group", data, menu="groups", refreshes=True)
