"""Groups: all of them with their lag three ways, one of them, and changes of its offsets."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from fencepost.client.consuming import UNCOMMITTED, Place, list_offsets
from fencepost.client.errors import ClusterError, RefusedError, check
from fencepost.console import words
from fencepost.console.reading.dead_letters import read_dead_letters
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
    read_partition,
    read_topics,
)
from fencepost.console.web.changes import Change, Form, change
from fencepost.console.web.listing import Listing
from fencepost.console.web.pages.overview import by_place, group_rows
from fencepost.console.web.visit import BadFormError, Page, Visit, whole_number, with_query
from fencepost.diagnosis.words import counted
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_admin import DeleteGroupsRequest
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

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


async def _find(visit: Visit, group_id: str) -> ListedGroup:
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
        state.dead_letters = await read_dead_letters(visit.cluster, group.group_id, partitions)
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
    listed = await _find(visit, visit.parameter("id"))
    state = await _read(visit, listed)
    data = {
        "state": state,
        "targets": TARGETS,
        "has_members": bool(state.members) or listed.state not in NO_MEMBERS,
        "topics": sorted({one.topic for one in state.offsets}),
    }
    return Page("group.html", "Group", data, menu="groups", refreshes=True)


@change("reset-offsets")
async def reset_offsets(visit: Visit, form: Form) -> Change:
    """Offsets are moved from outside of the group: the broker refuses that while it has members."""
    group_id = form.get("id", "")
    listed = await _find(visit, group_id)
    if listed.kind not in ("classic", "consumer"):
        raise BadFormError(f"offsets of a {listed.kind} group are not reset here")
    committed = (await read_committed(visit.cluster, [listed])).get(group_id, {})
    wanted_topic = form.get("topic", "")
    places = [place for place in committed if wanted_topic in ("", place[0])]
    if not places:
        raise BadFormError("the group has no committed offsets of that topic")
    targets: dict[Place, int] = {}
    rows = []
    for place in sorted(places):
        partition = await read_partition(visit.cluster, *place)
        if partition.error is not None:
            raise BadFormError(f"{partition.name} does not answer: {partition.error}")
        present = committed[place][0]
        targets[place] = await _target(visit, form, partition, present)
        rows.append((partition.name, present, targets[place], targets[place] - present))

    async def perform() -> str:
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
        for (topic, index), offset in targets.items():
            by_topic[topic].append(OffsetCommitRequestPartition(partition_index=index, committed_offset=offset))
        request = OffsetCommitRequest(
            group_id=group_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=moved) for name, moved in by_topic.items()],
        )
        reply = await visit.cluster.send(request, listed.coordinator)
        for topic in reply.topics:
            for one in topic.partitions:
                check(one.error_code, f"{topic.name}-{one.partition_index}")
        return f"{counted(len(targets), 'offset')} of {group_id} moved."

    effects = [f"{counted(len(targets), 'committed offset')} of {group_id} are moved, as below."]
    if listed.state not in NO_MEMBERS:
        effects.append("The group has members: the broker will refuse until they have left.")
    back = with_query("/group", id=group_id)
    target = form.get("target", "")
    details = f"{wanted_topic or 'all topics'} to {target} {form.get('value', '')}".strip()
    head = ("Partition", "Now", "Then", "Moved by")
    return Change("Reset offsets", group_id, effects, perform, back, back, details=details, table_head=head, table=rows)


async def _target(visit: Visit, form: Form, partition: PartitionState, present: int) -> int:
    target, value = form.get("target", ""), form.get("value", "").strip()
    start, end = partition.start or 0, partition.high_watermark or 0
    match target:
        case "earliest":
            return start
        case "latest":
            return end
        case "offset":
            return min(end, max(start, whole_number(value, "the offset", 0)))
        case "shift":
            return min(end, max(start, present + whole_number(value, "the distance")))
        case "time":
            try:
                time_ms = words.parse_clock(value)
            except ValueError as error:
                raise BadFormError(str(error)) from None
            place = partition.topic, partition.index
            found = await list_offsets(visit.cluster, partition.leader, [place], time_ms, UNCOMMITTED)
            check(found[place][0])
            return found[place][2] if found[place][2] >= 0 else end
    raise BadFormError(f"there is no way to move offsets to {target!r}")


@change("delete-group")
async def delete_group(visit: Visit, form: Form) -> Change:
    group_id = form.get("id", "")
    listed = await _find(visit, group_id)

    async def perform() -> str:
        reply = await visit.cluster.send(DeleteGroupsRequest(groups_names=[group_id]), listed.coordinator)
        check(reply.results[0].error_code)
        return f"Group {group_id} was deleted."

    effects = [f"The group {group_id} and all offsets that it has committed are deleted."]
    if listed.state not in NO_MEMBERS:
        effects.append("It has members: the broker will refuse until they have left.")
    return Change("Delete group", group_id, effects, perform, with_query("/group", id=group_id), "/groups")
