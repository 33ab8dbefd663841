"""Checks and decoding of StreamsGroupHeartbeat requests: by themselves, and against their group. Pure.

Source: KIP-1071; Kafka's GroupCoordinatorService (throwIfStreamsGroupHeartbeatRequestIsInvalid and its like) and
GroupMetadataManager (throwIfStreamsGroupMemberEpochIsInvalid, throwIfRequestContainsInvalidTasks).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter

from fencepost.broker.group.modern import JOIN_EPOCH, LEAVE_FOR_A_WHILE_EPOCH, HeartbeatContext
from fencepost.broker.group.refusals import (
    HeartbeatRefusal,
    check_static,
    fenced_member,
    full_group,
    unknown_member,
    unreleased_instance,
)
from fencepost.broker.group.streams.group import MemberEndpoint, StreamsGroup, StreamsMember
from fencepost.broker.group.streams.tasks import NO_TASKS, TaskAssignment, TaskRole, tasks_from
from fencepost.broker.group.streams.topology import ConfiguredTopology, Topology, source_names
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.streams_groups import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatTopology

# Checks of the request by itself


def check_request(request: StreamsGroupHeartbeatRequest) -> HeartbeatRefusal | None:
    """Check a request. Refuses: INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY, STREAMS_INVALID_TOPOLOGY_EPOCH."""
    reason = _unsupported(request) or _malformed(request)
    if reason is not None:
        return HeartbeatRefusal(ErrorCode.INVALID_REQUEST, reason)
    return None if request.topology is None else _check_topology(request.topology)


def _unsupported(request: StreamsGroupHeartbeatRequest) -> str | None:
    """Return the reason against features of the protocol that this broker does not support, or None."""
    if request.topology is not None and any(each.source_topic_regex for each in request.topology.subtopologies):
        return "Regular expressions for source topics are not supported yet."
    return None


def _malformed(request: StreamsGroupHeartbeatRequest) -> str | None:
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if not request.member_id.strip():
        return "MemberId can't be empty."
    if not request.group_id.strip():
        return "GroupId can't be empty."
    if request.instance_id is not None and not request.instance_id.strip():
        return "InstanceId can't be empty."
    if request.rack_id is not None and not request.rack_id.strip():
        return "RackId can't be empty."
    if request.member_epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            return "RebalanceTimeoutMs must be provided in first request."
        for name, given in zip(("ActiveTasks", "StandbyTasks", "WarmupTasks"), tasks, strict=True):
            if given:
                return f"{name} must be empty when (re-)joining."
        if request.topology is None:
            return "Topology must be non-null when (re-)joining."
    elif request.member_epoch == LEAVE_FOR_A_WHILE_EPOCH and request.instance_id is None:
        return "InstanceId can't be null."
    elif request.member_epoch < LEAVE_FOR_A_WHILE_EPOCH:
        return f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2."
    if any(given is None for given in tasks) and any(given is not None for given in tasks):
        return "If one task-type is non-null, all must be non-null."
    if request.member_epoch != JOIN_EPOCH and request.topology is not None:
        return "Topology can only be provided when (re-)joining."
    return None


def _check_topology(topology: StreamsGroupHeartbeatTopology) -> HeartbeatRefusal | None:
    if topology.epoch < 0:
        return HeartbeatRefusal(ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH, "Topology epoch must be non-negative.")
    reason = None
    subtopologies = topology.subtopologies
    if len({subtopology.subtopology_id for subtopology in subtopologies}) < len(subtopologies):
        reason = "A subtopology is named more than once."
    for subtopology in subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions:
                reason = (
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}."
                )
    return None if reason is None else HeartbeatRefusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, reason)


def check_topic_names(
    topology: StreamsGroupHeartbeatTopology, is_internal: Callable[[str], bool], is_valid: Callable[[str], bool]
) -> HeartbeatRefusal | None:
    """Refuse internal topics of the broker and invalid topic names with STREAMS_INVALID_TOPOLOGY."""
    names = dict.fromkeys(
        name
        for subtopology in topology.subtopologies
        for name in (
            *source_names(subtopology),
            *subtopology.repartition_sink_topics,
            *(topic.name for topic in subtopology.state_changelog_topics),
        )
    )
    reason = None
    prohibited = [name for name in names if is_internal(name)]
    invalid = [name for name in names if not is_valid(name)]
    if prohibited:
        reason = f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is prohibited."
    elif invalid:
        reason = f"Topic names {','.join(invalid)} are not valid topic names."
    return None if reason is None else HeartbeatRefusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, reason)


# Decoding


def reported_tasks(request: StreamsGroupHeartbeatRequest) -> TaskAssignment | None:
    """Return the tasks that the member reports; None for no report."""
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return TaskAssignment(
        tasks_from(request.active_tasks), tasks_from(request.standby_tasks), tasks_from(request.warmup_tasks)
    )


def topology_of_request(request: StreamsGroupHeartbeatRequest) -> Topology | None:
    topology = request.topology
    return None if topology is None else Topology.of(topology.epoch, topology.subtopologies)


def updated_member(
    member: StreamsMember, request: StreamsGroupHeartbeatRequest, sender: HeartbeatContext
) -> StreamsMember:
    """Return the member with the description in the request."""
    endpoint, tags = request.user_endpoint, request.client_tags
    kept_endpoint = None if request.member_epoch == JOIN_EPOCH else member.user_endpoint
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        client_id=sender.client_id,
        client_host=sender.client_host,
        topology_epoch=member.topology_epoch if request.topology is None else request.topology.epoch,
        process_id=member.process_id if request.process_id is None else request.process_id,
        user_endpoint=kept_endpoint if endpoint is None else MemberEndpoint(endpoint.host, endpoint.port),
        client_tags=member.client_tags if tags is None else {tag.key: tag.value for tag in tags},
    )


def needs_assignment(member: StreamsMember, updated: StreamsMember) -> bool:
    """Whether a member's new description begins an epoch; a static one may come back at another address."""
    if updated.instance_id is None:
        return updated != member
    described = attrgetter("topology_epoch", "rack_id", "client_tags", "process_id")
    return bool(described(member) != described(updated))


# Checks against the group


def find_member(
    group: StreamsGroup, request: StreamsGroupHeartbeatRequest, reported: TaskAssignment | None, max_size: int
) -> StreamsMember | HeartbeatRefusal | None:
    """Find the member of a request; for a static member that joins, the one that it replaces. None for a new member.

    Refuses: GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID, FENCED_INSTANCE_ID.
    """
    is_joining, member_id = request.member_epoch == JOIN_EPOCH, request.member_id
    if request.instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            return _checked_size(group, max_size) if is_joining else unknown_member(member_id, group.group_id)
    elif is_joining:
        member = group.static_member(request.instance_id)
        if member is None:
            return group.members.get(member_id) or _checked_size(group, max_size)
        if member.member_epoch != LEAVE_FOR_A_WHILE_EPOCH:
            return unreleased_instance(member_id, request.instance_id, member.member_id)
        return member
    else:
        member = group.static_member(request.instance_id)
        refusal = check_static(member, member_id, request.instance_id)
        if refusal is not None:
            return refusal
        assert member is not None
    return check_epoch(member, request.member_epoch, reported) or member


def _checked_size(group: StreamsGroup, max_size: int) -> HeartbeatRefusal | None:
    return full_group(max_size, "streams") if len(group.members) >= max_size else None


def find_leaving(group: StreamsGroup, request: StreamsGroupHeartbeatRequest) -> StreamsMember | HeartbeatRefusal:
    """Find a member that leaves. Refuses: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if request.instance_id is None:
        return group.members.get(request.member_id) or unknown_member(request.member_id, group.group_id)
    member = group.static_member(request.instance_id)
    refusal = check_static(member, request.member_id, request.instance_id)
    if refusal is not None:
        return refusal
    assert member is not None
    return member


def check_epoch(member: StreamsMember, epoch: int, reported: TaskAssignment | None) -> HeartbeatRefusal | None:
    """Refuse with FENCED_MEMBER_EPOCH any epoch but the member's, or the one before when the last reply was lost."""
    if epoch in (JOIN_EPOCH, member.member_epoch):
        return None
    if epoch == member.previous_member_epoch and epoch < member.member_epoch and _has_only(member, reported):
        return None
    return fenced_member(member.member_epoch, epoch, "streams")


def _has_only(member: StreamsMember, reported: TaskAssignment | None) -> bool:
    """Return whether a member reports no tasks but those assigned to it."""
    return reported is not None and all(
        numbers.issubset(member.assigned.of(role).get(subtopology_id, ()))
        for role in TaskRole
        for subtopology_id, numbers in reported.of(role).items()
    )


def differs(member: StreamsMember, reported: TaskAssignment | None) -> bool:
    """Return whether the reported tasks differ from the assigned ones: the member lost the last reply, or has not acted
    on it yet. Kafka does not repeat the assignment.
    """
    return reported is not None and any(
        {name: frozenset(numbers) for name, numbers in member.assigned.of(role).items()} != reported.of(role)
        for role in TaskRole
    )


def check_tasks(reported: TaskAssignment | None, configured: ConfiguredTopology) -> HeartbeatRefusal | None:
    """Refuse tasks that the topology does not have with INVALID_REQUEST."""
    for role in TaskRole:
        for subtopology_id, numbers in (reported or NO_TASKS).of(role).items():
            subtopology = configured.subtopologies.get(subtopology_id)
            if subtopology is None:
                reason = f"Subtopology {subtopology_id} does not exist in the topology."
                return HeartbeatRefusal(ErrorCode.INVALID_REQUEST, reason)
            for number in sorted(numbers):
                if not 0 <= number < subtopology.task_count:
                    reason = (
                        f"Task {number} for subtopology {subtopology_id} is invalid. Number of tasks for this "
                        f"subtopology: {subtopology.task_count}"
                    )
                    return HeartbeatRefusal(ErrorCode.INVALID_REQUEST, reason)
    return None
