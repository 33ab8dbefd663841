"""Records of a streams group: encoding, checks, and their effects on the group. Pure.

Source: Kafka's StreamsCoordinatorRecordHelpers, and GroupMetadataManager.replay for the StreamsGroup records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from fencepost.broker.coordination.shard import CoordinatorRecord
from fencepost.broker.group.consumer.records import check_epoch, check_partitions
from fencepost.broker.group.modern import LEAVE_EPOCH, MemberState
from fencepost.broker.group.stored_groups import GroupDraft, StoredGroups
from fencepost.broker.group.streams.group import MemberEndpoint, StreamsGroup, StreamsMember
from fencepost.broker.group.streams.tasks import (
    NO_OWNED_TASKS,
    OwnedTasks,
    TaskAssignment,
    TasksSince,
    task_ids,
    tasks_from,
)
from fencepost.broker.group.streams.topology import Topology
from fencepost.protocol.stored.streams_groups import (
    STREAMS_GROUP_RECORDS,
    StreamsCurrentTaskIds,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from fencepost.protocol.streams_topology import StreamsEndpoint, StreamsKeyValue

# Values


def member_value(member: StreamsMember) -> StreamsGroupMemberMetadataValue:
    endpoint = member.user_endpoint
    return StreamsGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else StreamsEndpoint(endpoint.host, endpoint.port),
        client_tags=key_values(member.client_tags),
    )


def current_value(member: StreamsMember) -> StreamsGroupCurrentMemberAssignmentValue:
    assigned, pending = member.assigned, member.pending_revocation
    return StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        active_tasks=_since(assigned.active),
        standby_tasks=_current(assigned.standby),
        warmup_tasks=_current(assigned.warmup),
        active_tasks_pending_revocation=_since(pending.active),
        standby_tasks_pending_revocation=_current(pending.standby),
        warmup_tasks_pending_revocation=_current(pending.warmup),
    )


def target_value(target: TaskAssignment) -> StreamsGroupTargetAssignmentMemberValue:
    return StreamsGroupTargetAssignmentMemberValue(
        task_ids(target.active), task_ids(target.standby), task_ids(target.warmup)
    )


def topology_value(topology: Topology) -> StreamsGroupTopologyValue:
    return StreamsGroupTopologyValue(topology.epoch, list(topology.subtopologies.values()))


def key_values(pairs: Mapping[str, str]) -> list[StreamsKeyValue]:
    return [StreamsKeyValue(key, value) for key, value in sorted(pairs.items())]


def _since(tasks: TasksSince) -> list[StreamsCurrentTaskIds]:
    return [
        StreamsCurrentTaskIds(subtopology_id, sorted(epochs), [epochs[number] for number in sorted(epochs)])
        for subtopology_id, epochs in sorted(tasks.items())
    ]


def _current(tasks: Mapping[str, frozenset[int]]) -> list[StreamsCurrentTaskIds]:
    return [StreamsCurrentTaskIds(subtopology_id, sorted(numbers)) for subtopology_id, numbers in sorted(tasks.items())]


def group_tombstones(group: StreamsGroup) -> list[CoordinatorRecord]:
    """Return the records that remove a group and all its state."""
    group_id = group.group_id
    return STORED_STREAMS_GROUPS.tombstones(
        group, (StreamsGroupMetadataKey(group_id), StreamsGroupTopologyKey(group_id))
    )


# Reading


def _check(key: StreamsGroupKey, value: Any) -> None:
    """Raise DecodeError for a value that no group can have written. Topologies are not checked: clients send them."""
    if not isinstance(key, StreamsGroupTopologyKey):
        check_epoch(value)
    if isinstance(key, StreamsGroupTargetAssignmentMemberKey):
        check_partitions([*value.active_tasks, *value.standby_tasks, *value.warmup_tasks])
    elif isinstance(key, StreamsGroupCurrentMemberAssignmentKey):
        pending = [*value.active_tasks_pending_revocation, *value.standby_tasks_pending_revocation]
        tasks = [*value.active_tasks, *value.standby_tasks, *value.warmup_tasks]
        check_partitions([*tasks, *pending, *value.warmup_tasks_pending_revocation])


def _apply(group: StreamsGroup, key: StreamsGroupKey, value: Any | None, now_ms: int) -> None:
    """Apply a record that only streams groups have, see `StoredGroups`."""
    match key:
        case StreamsGroupMetadataKey():
            if value is not None:
                group.group_epoch, group.metadata_hash = value.epoch, value.metadata_hash
                group.validated_topology_epoch = value.validated_topology_epoch
                group.assignment_configs = _pairs(value.last_assignment_configs or ())
        case StreamsGroupMemberMetadataKey():
            if value is None:
                group.remove_member(key.member_id)
            else:
                group.put_member(_described(group.members.get(key.member_id) or StreamsMember(key.member_id), value))
        case StreamsGroupCurrentMemberAssignmentKey():
            _apply_current(group, key.member_id, value)
        case StreamsGroupTopologyKey():
            group.topology = None if value is None else Topology.of(value.epoch, value.subtopologies)


def _read_target(value: StreamsGroupTargetAssignmentMemberValue) -> TaskAssignment:
    return TaskAssignment(
        tasks_from(value.active_tasks), tasks_from(value.standby_tasks), tasks_from(value.warmup_tasks)
    )


def _described(member: StreamsMember, value: StreamsGroupMemberMetadataValue) -> StreamsMember:
    endpoint = value.user_endpoint
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        user_endpoint=None if endpoint is None else MemberEndpoint(endpoint.host, endpoint.port),
        client_tags=_pairs(value.client_tags),
    )


def _apply_current(group: StreamsGroup, member_id: str, value: StreamsGroupCurrentMemberAssignmentValue | None) -> None:
    member = group.members.get(member_id)
    if value is not None:
        epoch = value.member_epoch
        group.put_member(
            replace(
                member or StreamsMember(member_id),
                member_epoch=epoch,
                previous_member_epoch=value.previous_member_epoch,
                state=_state(value.state),
                assigned=_owned(value.active_tasks, value.standby_tasks, value.warmup_tasks, epoch),
                pending_revocation=_owned(
                    value.active_tasks_pending_revocation,
                    value.standby_tasks_pending_revocation,
                    value.warmup_tasks_pending_revocation,
                    epoch,
                ),
            )
        )
    elif member is not None:
        group.put_member(
            replace(
                member,
                member_epoch=LEAVE_EPOCH,
                previous_member_epoch=LEAVE_EPOCH,
                state=MemberState.STABLE,
                assigned=NO_OWNED_TASKS,
                pending_revocation=NO_OWNED_TASKS,
            )
        )


def _state(number: int) -> MemberState:
    """Return the state with a number. An unknown one becomes a state that the member leaves at its next heartbeat."""
    return MemberState(number) if number in MemberState.__members__.values() else MemberState.UNRELEASED_PARTITIONS


def _owned(
    active: Iterable[StreamsCurrentTaskIds],
    standby: Iterable[StreamsCurrentTaskIds],
    warmup: Iterable[StreamsCurrentTaskIds],
    member_epoch: int,
) -> OwnedTasks:
    """Decode owned tasks. member_epoch: for tasks whose record has no epoch, as those of Kafka 4.1."""
    since = {}
    for entry in active:
        epochs = entry.assignment_epochs
        if epochs is None or len(epochs) != len(entry.partitions):
            epochs = [member_epoch] * len(entry.partitions)
        since[entry.subtopology_id] = dict(zip(entry.partitions, epochs, strict=True))
    return OwnedTasks(
        since,
        {entry.subtopology_id: frozenset(entry.partitions) for entry in standby},
        {entry.subtopology_id: frozenset(entry.partitions) for entry in warmup},
    )


def _pairs(entries: Iterable[StreamsKeyValue]) -> dict[str, str]:
    return {entry.key: entry.value for entry in entries}


STORED_STREAMS_GROUPS: StoredGroups[StreamsGroup, StreamsGroupKey] = StoredGroups(
    StreamsGroup,
    STREAMS_GROUP_RECORDS,
    group_key=StreamsGroupMetadataKey,
    member_key=StreamsGroupMemberMetadataKey,
    target_key=StreamsGroupTargetAssignmentMetadataKey,
    target_member_key=StreamsGroupTargetAssignmentMemberKey,
    current_key=StreamsGroupCurrentMemberAssignmentKey,
    target_epoch=StreamsGroupTargetAssignmentMetadataValue,
    target_value=target_value,
    read_target=_read_target,
    check=_check,
    apply_other=_apply,
)
StreamsDraft: TypeAlias = GroupDraft[StreamsGroup, StreamsGroupKey]
