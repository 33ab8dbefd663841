"""Changes of groups: offsets moved, or copied to a new group, and groups deleted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fencepost.client.consuming import UNCOMMITTED, Place, list_offsets
from fencepost.client.errors import check
from fencepost.client.view import CoordinatorKind
from fencepost.console import words
from fencepost.console.reading.group_offsets import CommittedOffset, commit_offsets, read_offsets
from fencepost.console.reading.groups import SHARE, ListedGroup, list_groups
from fencepost.console.reading.topics import PartitionState, fill_offsets, partition_states
from fencepost.console.web.changes import Change, Form, WorldChangedError, change, check_parts, field_of
from fencepost.console.web.pages.groups import NO_MEMBERS, TARGETS, find_group
from fencepost.console.web.visit import BadFormError, Visit, whole_number, with_query
from fencepost.diagnosis.words import counted
from fencepost.protocol.checked_json import JsonError, object_of, parse, whole_of
from fencepost.protocol.messages.group_admin import DeleteGroupsRequest

MOST_OFFSETS: Final = 10_000
MOST_ROWS: Final = 200
"""Of a dry run, as the page shows it."""
OFFSETS: Final = "offsets"
"""The field with the offsets that were shown: the end of a log, or the place of a time, moves on."""
IN_THE_LOG: Final = "in the log"


@dataclass(frozen=True)
class _Offsets:
    """Offsets of a group, and the partitions with their state and the ids of their topics."""

    committed: Mapping[Place, CommittedOffset]
    partitions: Mapping[Place, PartitionState]
    topic_ids: Mapping[str, str]


@change("reset-offsets")
async def reset_offsets(visit: Visit, form: Form) -> Change:
    """Offsets are moved from outside of the group: the broker refuses that while it has members."""
    group_id = form.get("id", "")
    listed = await _with_offsets(visit, group_id)
    found = await _chosen_offsets(visit, listed, form.get("topic", ""))
    targets = _given(form, found.committed)
    if targets is None:
        targets = await _targets(visit, form, found)

    async def perform() -> str:
        await _expect(visit, listed, found.committed)
        offsets = {place: CommittedOffset(target) for place, target in targets.items()}
        await _commit(visit, listed.coordinator, group_id, offsets)
        return f"{counted(len(targets), 'offset')} of {group_id} moved."

    effects = [f"{counted(len(targets), 'committed offset')} of {group_id} are moved, as below."]
    if listed.state not in NO_MEMBERS:
        effects.append("The group has members: the broker will refuse until they have left.")
    back = with_query("/group", id=group_id)
    before = {place: one.offset for place, one in found.committed.items()}
    return Change(
        "Reset offsets",
        group_id,
        [*effects, *_rest_of(targets)],
        perform,
        back,
        back,
        details=f"{form.get('topic') or 'all topics'} to {form.get('target', '')} {form.get('value', '')}".strip(),
        table_head=("Partition", "Now", "Then", "Moved by"),
        table=[
            (_name(place), before[place], target, target - before[place])
            for place, target in list(targets.items())[:MOST_ROWS]
        ],
        world={**_world_of(listed), **_world_of_offsets(found), **_world_of_targets(found, targets)},
        values=[(_name(place), str(before[place]), str(target)) for place, target in targets.items()],
        fixes={OFFSETS: _as_field(targets)},
    )


@change("copy-offsets")
async def copy_offsets(visit: Visit, form: Form) -> Change:
    """A group that is at work may be copied, too: its offsets as they were shown go to the new one."""
    group_id, new_id = form.get("id", ""), field_of(form, "to", "the name of the new group")
    listed = await _with_offsets(visit, group_id)
    if any(one.group_id == new_id for one in (await list_groups(visit.cluster)).listed):
        raise BadFormError(f"there is a group {new_id}: offsets are copied to a new one")
    coordinator = await visit.cluster.coordinator(CoordinatorKind.GROUP, new_id)
    if await read_offsets(visit.cluster, coordinator, new_id):
        raise BadFormError(f"{new_id} has offsets: they are copied to a new group")
    found = await _chosen_offsets(visit, listed, form.get("topic", ""))
    targets = _given(form, found.committed)
    if targets is None:
        targets = {place: one.offset for place, one in found.committed.items()}

    async def perform() -> str:
        if await read_offsets(visit.cluster, coordinator, new_id):
            raise WorldChangedError(f"The group {new_id}: not there when you looked, and with offsets now.")
        offsets = {}
        for place, target in targets.items():
            present = found.committed[place]
            # Of an offset that the group has left meanwhile, epoch and metadata are not known any more.
            offsets[place] = present if present.offset == target else CommittedOffset(target)
        await _commit(visit, coordinator, new_id, offsets)
        return f"{counted(len(targets), 'offset')} of {group_id} were copied to {new_id}."

    effects = [
        f"The new group {new_id} gets {counted(len(targets), 'committed offset')} of {group_id}, as below.",
        f"{group_id} stays as it is.",
    ]
    return Change(
        "Copy offsets",
        new_id,
        [*effects, *_rest_of(targets)],
        perform,
        with_query("/group", id=group_id),
        with_query("/group", id=new_id),
        is_dangerous=False,
        details=f"from {group_id}, {form.get('topic') or 'all topics'}",
        table_head=("Partition", "Offset"),
        table=[(_name(place), target) for place, target in list(targets.items())[:MOST_ROWS]],
        world={**_world_of_topics(found), **_world_of_targets(found, targets)},
        values=[(f"{new_id}: {_name(place)}", "none", str(target)) for place, target in targets.items()],
        fixes={OFFSETS: _as_field(targets)},
    )


@change("delete-group")
async def delete_group(visit: Visit, form: Form) -> Change:
    group_id = form.get("id", "")
    listed = await find_group(visit, group_id)
    committed = {} if listed.kind == SHARE else await read_offsets(visit.cluster, listed.coordinator, group_id)

    async def perform() -> str:
        reply = await visit.cluster.send(DeleteGroupsRequest(groups_names=[group_id]), listed.coordinator)
        check(reply.results[0].error_code)
        return f"Group {group_id} was deleted."

    effects = [f"The group {group_id} and all offsets that it has committed are deleted."]
    if listed.state not in NO_MEMBERS:
        effects.append("It has members: the broker will refuse until they have left.")
    return Change(
        "Delete group",
        group_id,
        effects,
        perform,
        with_query("/group", id=group_id),
        "/groups",
        world={
            **_world_of(listed),
            **{f"the committed offset of {_name(place)}": one.offset for place, one in committed.items()},
        },
        values=[(_name(place), str(one.offset), "deleted") for place, one in committed.items()],
    )


async def _with_offsets(visit: Visit, group_id: str) -> ListedGroup:
    """A group whose offsets its clients commit. Raises BadFormError."""
    listed = await find_group(visit, group_id)
    if listed.kind not in ("classic", "consumer"):
        raise BadFormError(f"offsets of a {listed.kind} group are not changed here")
    return listed


async def _chosen_offsets(visit: Visit, listed: ListedGroup, topic: str) -> _Offsets:
    """The committed offsets of a topic, of all for "". Raises BadFormError if one cannot be changed."""
    committed = await read_offsets(visit.cluster, listed.coordinator, listed.group_id)
    chosen = {place: one for place, one in committed.items() if topic in ("", place[0])}
    if not chosen:
        raise BadFormError("the group has no committed offsets of that topic")
    if len(chosen) > MOST_OFFSETS:
        raise BadFormError(f"these are {len(chosen):,} offsets; choose a topic: at most {MOST_OFFSETS:,} go at once")
    view = await visit.cluster.view({name for name, _ in chosen})
    states = partition_states(view, chosen)
    await fill_offsets(visit.cluster, states)
    partitions = {(one.topic, one.index): one for one in states}
    for place in chosen:
        state = partitions.get(place)
        if state is None or state.offsets is None:
            reason = "there is no such partition" if state is None else state.error or "no offsets"
            raise BadFormError(f"{_name(place)} does not answer: {reason}")
    return _Offsets(chosen, partitions, {name: topic.topic_id.hex() for name, topic in view.topics.items()})


async def _targets(visit: Visit, form: Form, found: _Offsets) -> dict[Place, int]:
    """The new offset of each partition, within its log."""
    target, value = form.get("target", ""), form.get("value", "").strip()
    if target not in TARGETS:
        raise BadFormError(f"there is no way to move offsets to {target!r}")
    at_time = await _offsets_at(visit, found, value) if target == "time" else {}
    number = whole_number(value, TARGETS[target], 0 if target == "offset" else -(2**63)) if target in _NUMBERS else 0
    targets = {}
    for place, committed in found.committed.items():
        state = found.partitions[place]
        start, end = state.start or 0, state.high_watermark or 0
        wanted = {
            "earliest": start,
            "latest": end,
            "offset": number,
            "shift": committed.offset + number,
            "time": at_time.get(place, end),
        }[target]
        targets[place] = min(end, max(start, wanted))
    return targets


_NUMBERS: Final = ("offset", "shift")


async def _offsets_at(visit: Visit, found: _Offsets, text: str) -> dict[Place, int]:
    """The first offsets from a time on; none of partitions that have no later record."""
    try:
        time_ms = words.parse_clock(text)
    except ValueError as error:
        raise BadFormError(str(error)) from None
    by_leader: dict[int, list[Place]] = {}
    for place in found.committed:
        by_leader.setdefault(found.partitions[place].leader, []).append(place)
    offsets = {}
    for leader, places in by_leader.items():
        answers = await list_offsets(visit.cluster, leader, places, time_ms, UNCOMMITTED)
        for place, (code, _, offset) in answers.items():
            check(code, _name(place))
            if offset >= 0:
                offsets[place] = offset
    return offsets


def _as_field(targets: Mapping[Place, int]) -> str:
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, index), offset in targets.items():
        by_topic.setdefault(topic, {})[str(index)] = offset
    return json.dumps(by_topic, separators=(",", ":"))


def _given(form: Form, committed: Mapping[Place, CommittedOffset]) -> dict[Place, int] | None:
    """The offsets as they were shown; None before. Raises BadFormError."""
    text = form.get(OFFSETS)
    if text is None:
        return None
    try:
        found = parse(text)
        given = {
            (topic, int(index)): whole_of(offset, "an offset")
            for topic, partitions in _items(found)
            for index, offset in _items(partitions)
        }
    except (JsonError, ValueError) as error:
        raise BadFormError(f"the offsets of the form cannot be read: {error}") from None
    # The others were not shown. Those that have gone since are a change of the world, which names them.
    return {place: given[place] for place in committed if place in given}


def _items(value: Any) -> Sequence[tuple[str, Any]]:
    fields = object_of(value)
    return [(name, fields.value(name)) for name in fields]


async def _expect(visit: Visit, listed: ListedGroup, expected: Mapping[Place, CommittedOffset]) -> None:
    """Raise WorldChangedError unless a group's offsets are still these. The protocol has no commit with a condition, so
    this is the last thing before it.
    """
    present = await read_offsets(visit.cluster, listed.coordinator, listed.group_id)
    for place, one in expected.items():
        now = present.get(place)
        if now is None or now.offset != one.offset:
            shown = "not there" if now is None else now.offset
            raise WorldChangedError(
                f"The committed offset of {_name(place)}: {one.offset} when you looked, {shown} now."
            )


async def _commit(visit: Visit, coordinator: int, group_id: str, offsets: Mapping[Place, CommittedOffset]) -> None:
    failed = await commit_offsets(visit.cluster, coordinator, group_id, offsets)
    check_parts([_name(place) for place in offsets], failed)


def _world_of(listed: ListedGroup) -> Mapping[str, object]:
    return {
        f"the kind of group {listed.group_id}": listed.kind,
        f"the state of group {listed.group_id}": listed.state,
    }


def _world_of_offsets(found: _Offsets) -> Mapping[str, object]:
    offsets = {f"the committed offset of {_name(place)}": one.offset for place, one in found.committed.items()}
    return {**_world_of_topics(found), **offsets}


def _world_of_topics(found: _Offsets) -> Mapping[str, object]:
    return {f"the id of topic {name}": topic_id for name, topic_id in found.topic_ids.items()}


def _world_of_targets(found: _Offsets, targets: Mapping[Place, int]) -> Mapping[str, object]:
    """Whether the log still has the new offsets."""
    world = {}
    for place, target in targets.items():
        state = found.partitions[place]
        start, end = state.start or 0, state.high_watermark or 0
        where = IN_THE_LOG
        if target < start:
            where = f"below the log's first offset, {start}"
        elif target > end:
            where = f"behind the log's end, {end}"
        world[f"the new offset of {_name(place)}, {target}"] = where
    return world


def _rest_of(targets: Mapping[Place, int]) -> list[str]:
    left_out = len(targets) - MOST_ROWS
    return [f"The table shows {MOST_ROWS:,} of them; {left_out:,} more are changed alike."] if left_out > 0 else []


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
