"""Groups: all of them with their lag three ways, and one of them. `group_changes` changes them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from fencepost.client.cluster import Cluster
from fencepost.client.consuming import Place
from fencepost.client.errors import ClusterError, RefusedError
from fencepost.console.reading.dead_letters import PREFIX, DeadLetters, read_dead_letters
from fencepost.console.reading.groups import (
    SHARE,
    GroupList,
    GroupState,
    ListedGroup,
    describe_group,
    groups_of,
    lags_of,
    list_groups,
    read_committed,
    read_share_offsets,
)
from fencepost.console.reading.lag_table import LONGEST_WAIT_S, GroupRow, LagReader, LagTable, lag_table_of
from fencepost.console.reading.records import time_at
from fencepost.console.reading.sampling import history_of
from fencepost.console.reading.sharing import Reads
from fencepost.console.reading.snapshot import snapshot_of
from fencepost.console.reading.topics import PartitionState, by_place, read_topics
from fencepost.console.web.listing import Listing
from fencepost.console.web.plots import plot
from fencepost.console.web.visit import Page, Visit
from fencepost.diagnosis.lag import total
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
MOST_MEMBERS: Final = 50
NO_MEMBERS: Final = frozenset({"Empty", "Dead"})


async def groups(visit: Visit) -> Page:
    reads = visit.reads
    history = history_of(reads)
    table = await lag_table_of(reads)
    listing = await reads.made(
        ("groups", tuple(sorted(visit.parameters.items()))), table, lambda: _listing(table.value, visit.parameters)
    )
    data = {
        "listing": listing,
        "missing": table.value.missing,
        "untimed": table.value.untimed,
        "topic": visit.parameter("topic").strip(),
        "state": visit.parameter("state"),
        "states": sorted({row.state for row in table.value.rows}),
        "lags": plot(history.lags()),
        "now_ms": int(time.time() * 1000),
    }
    return Page("groups.html", "Groups", data, menu="groups", refreshes=True, age_s=table.age_s)


def _listing(table: LagTable, parameters: Mapping[str, str]) -> Listing[GroupRow]:
    rows: Iterable[GroupRow] = table.rows
    topic, state = parameters.get("topic", "").strip().lower(), parameters.get("state", "")
    if topic:
        rows = [row.within(topic) for row in rows if row.has(topic)]
    if state:
        rows = [row for row in rows if row.state == state]
    return Listing(
        rows,
        parameters,
        text_of=lambda row: row.group_id,
        orders={
            "id": lambda row: row.group_id,
            "kind": lambda row: row.kind,
            "state": lambda row: row.state,
            "end": lambda row: row.lag.end,
            "deliverable": lambda row: row.lag.deliverable,
            "blocked": lambda row: row.lag.blocked,
            "waits": lambda row: None if row.since_ms is None else -row.since_ms,
        },
        first_order="id",
    )


async def find_group(visit: Visit, group_id: str) -> ListedGroup:
    """A group as it is now, for a change of it. Raises RefusedError."""
    return _found(await list_groups(visit.cluster), group_id)


def _found(groups: GroupList, group_id: str) -> ListedGroup:
    for group in groups.listed:
        if group.group_id == group_id:
            return group
    raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, "there is no such group that you may see")


async def _read(reads: Reads, cluster: Cluster, group_id: str) -> GroupState:
    group = _found((await groups_of(reads, LONGEST_WAIT_S)).value, group_id)
    state = GroupState(group)
    try:
        state = await describe_group(cluster, group)
    except ClusterError as error:
        state.error = str(error)
    committed = (await read_committed(cluster, [group])).get(group.group_id, {})
    if group.kind == SHARE:
        await _read_share_group(reads, cluster, state)
    else:
        view = await cluster.view(sorted({place[0] for place in committed}))
        partitions = by_place(await read_topics(cluster, view, with_sizes=False))
        state.offsets = await asyncio.to_thread(lags_of, committed, partitions)
        known = [(one, partitions[one.topic, one.partition]) for one in state.offsets if one.lag.end]
        await reads.keep(LagReader).counts.fill(cluster, known)
        await _fill_ages(cluster, state, partitions)
    state.lag = total(one.lag for one in state.offsets)
    owners = {place: member.client_id for member in state.members for place in member.assigned}
    for one in state.offsets:
        one.who = owners.get(f"{one.topic}-{one.partition}", "")
    return state


async def _read_share_group(reads: Reads, cluster: Cluster, state: GroupState) -> None:
    partitions = (await snapshot_of(reads, LONGEST_WAIT_S)).value.partitions
    state.offsets = await read_share_offsets(cluster, state.group, partitions)
    state.dead_letters = await read_dead_letters(cluster, state.group.group_id, partitions)
    await _fill_ages(cluster, state, partitions)


def _masked(visit: Visit, letters: DeadLetters | None) -> DeadLetters | None:
    """The dead letters with the reason of the newest as this console shows it."""
    if letters is None or letters.newest is None:
        return letters
    message = visit.values.header(letters.topic, f"{PREFIX}message", letters.newest.message)
    return replace(letters, newest=replace(letters.newest, message=message))


async def _fill_ages(cluster: Cluster, state: GroupState, partitions: Mapping[Place, PartitionState]) -> None:
    """Read the age of the oldest waiting record, for the partitions with the most of them."""
    waiting = sorted(
        (
            one
            for one in state.offsets
            if (one.lag.deliverable or one.lag.blocked) and (one.topic, one.partition) in partitions
        ),
        key=lambda one: -(one.lag.end or 0),
    )
    now_ms = int(time.time() * 1000)
    for one in waiting[:MOST_AGED]:
        partition, first_ms = partitions[one.topic, one.partition], one.first_ms
        if first_ms is None:
            first = (partition.start if one.lag.deliverable else partition.last_stable_offset) or 0
            try:
                first_ms = await time_at(cluster, partition, max(one.committed, first))
            except ClusterError:
                continue  # a topic that may be described but not read
        if first_ms is not None and first_ms >= 0:
            one.age_ms = max(0, now_ms - first_ms)


async def group(visit: Visit) -> Page:
    reads, group_id = visit.reads, visit.parameter("id")
    history = history_of(reads)
    answer = await reads.ask(("group", group_id), lambda cluster: _read(reads, cluster, group_id))
    state = answer.value
    listing = await reads.made(
        ("group", tuple(sorted(visit.parameters.items()))),
        answer,
        lambda: Listing(
            state.offsets,
            visit.parameters,
            text_of=lambda one: f"{one.topic}-{one.partition:>9} {one.topic}-{one.partition} {one.who}",
            orders={
                "partition": lambda one: (one.topic, one.partition),
                "end": lambda one: one.lag.end,
                "deliverable": lambda one: one.lag.deliverable,
                "blocked": lambda one: one.lag.blocked,
                "waits": lambda one: one.age_ms,
            },
            first_order="partition",
        ),
    )
    data = {
        "state": replace(
            state,
            offsets=listing.rows,
            members=state.members[:MOST_MEMBERS],
            dead_letters=_masked(visit, state.dead_letters),
        ),
        "listing": listing,
        "members_count": len(state.members),
        "untimed": sum(one.age_ms is None and bool(one.lag.deliverable or one.lag.blocked) for one in state.offsets),
        "targets": TARGETS,
        "has_members": bool(state.members) or state.group.state not in NO_MEMBERS,
        "topics_count": len({one.topic for one in state.offsets}),
        "lags": plot(history.lags(group_id)),
    }
    return Page("group.html", "Group", data, menu="groups", refreshes=True, age_s=answer.age_s)
