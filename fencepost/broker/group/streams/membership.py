"""Membership of streams groups: joining, staying, leaving, and the deadlines of members. Pure.

Heartbeats are enough: the first member's heartbeat carries the topology; the coordinator checks its topics; the group
may begin an epoch and make a new target; the member moves towards that; the reply holds its current tasks.
Source: KIP-1071; Kafka's GroupMetadataManager (streamsGroupHeartbeat, streamsGroupLeave, streamsGroupFenceMember,
maybeUpdateStreamsTargetAssignment, computeDelayedTargetAssignment).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import NamedTuple

from fencepost.broker.group.consumer.subscriptions import TopicCatalogue
from fencepost.broker.group.decision_builder import (
    DeadlineKey,
    DeadlineKind,
    DecisionBuilder,
    GroupConfig,
    GroupDeadlines,
)
from fencepost.broker.group.modern import (
    JOIN_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    HeartbeatContext,
    MemberState,
)
from fencepost.broker.group.refusals import HeartbeatRefusal
from fencepost.broker.group.streams.assignor import STICKY_ASSIGNOR, Assignee, SubtopologySize, assign
from fencepost.broker.group.streams.description import partitions_by_endpoint
from fencepost.broker.group.streams.group import StreamsGroup, StreamsMember, absent, replaced
from fencepost.broker.group.streams.reconciliation import reconcile
from fencepost.broker.group.streams.records import (
    STORED_STREAMS_GROUPS,
    StreamsDraft,
    current_value,
    key_values,
    member_value,
    target_value,
    topology_value,
)
from fencepost.broker.group.streams.requests import (
    check_tasks,
    differs,
    find_leaving,
    find_member,
    needs_assignment,
    reported_tasks,
    topology_of_request,
    updated_member,
)
from fencepost.broker.group.streams.tasks import NO_TASKS, OwnedTasks, TaskAssignment, task_ids
from fencepost.broker.group.streams.topology import (
    ConfiguredTopology,
    InvalidTopology,
    StreamsInternalTopic,
    Topology,
    TopologyProblem,
    TopologyStatus,
    configure,
)
from fencepost.broker.kernel.events import get_logger
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupHeartbeatStatus,
)
from fencepost.protocol.stored.streams_groups import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTopologyKey,
)

log = get_logger(__name__)

NUM_STANDBY_REPLICAS = "num.standby.replicas"
RACK_AWARE_ASSIGNMENT_TAGS = "rack.aware.assignment.tags"


class StreamsHeartbeat(NamedTuple):
    """Reply to a heartbeat, and the topics to create once it is durable."""

    response: StreamsGroupHeartbeatResponse
    to_create: Mapping[str, StreamsInternalTopic] = {}


class StreamsMembership:
    """Decisions about members of streams groups. The shard owns the groups."""

    def __init__(self, config: GroupConfig, deadlines: GroupDeadlines, topics: TopicCatalogue) -> None:
        self._config = config
        self._deadlines = deadlines
        self._topics = topics

    # Heartbeats

    def heartbeat(
        self,
        group: StreamsGroup,
        request: StreamsGroupHeartbeatRequest,
        sender: HeartbeatContext,
        effects: DecisionBuilder,
    ) -> StreamsHeartbeat:
        """Let a member join or stay.

        Refuses: STREAMS_INVALID_TOPOLOGY, the errors of `find_member`, INVALID_REQUEST (for another topology, and for
        tasks that the topology does not have).
        """
        member_id = request.member_id
        reported = reported_tasks(request)
        known = find_member(group, request, reported, self._config.streams_max_size)
        if isinstance(known, HeartbeatRefusal):
            return refuse(*known)
        draft = STORED_STREAMS_GROUPS.draft(group, effects)
        member = _continued(draft, known, member_id)
        updated = updated_member(member, request, sender)
        has_changed = known is None or updated != member
        if has_changed:
            draft.write(StreamsGroupMemberMetadataKey(group.group_id, member_id), member_value(updated))
        refusal = self._take_topology(draft, topology_of_request(request))
        if refusal is not None:
            return refuse(*refusal)
        configured = self._configured_for(draft.group, reported)
        if isinstance(configured, HeartbeatRefusal):
            return refuse(*configured)
        self._update_epoch(draft, configured, has_changed=needs_assignment(member, updated))
        if known is None:
            effects.note(log.info, "group_member_joined", group_id=group.group_id, member_id=member_id)
        if not group.members:
            self._delay_first_assignment(group, effects)
        delay = self._update_target(draft, configured)
        is_first_delayed = self._is_first_assignment_delayed(group, effects)
        settled = self._reconcile(draft, member_id, reported, is_first_delayed=is_first_delayed)
        times = self._config.streams_times(group.group_id)
        effects.set_deadline(
            DeadlineKey(DeadlineKind.SESSION, group.group_id, member_id), effects.now_ms + times.session_timeout_ms
        )
        shutdown_member_id = _shut_down(draft, member_id) if request.shutdown_application else group.shutdown_member_id
        problems = _problems(draft.group, settled, configured, delay, shutdown_member_id)
        is_waiting = delay is not None or configured.to_create or not settled.is_reconciled_to(draft.group.group_epoch)
        response = StreamsGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=settled.member_epoch,
            heartbeat_interval_ms=draft.group.next_heartbeat_ms(
                times.heartbeat_interval_ms, effects.now_ms, is_settled=not is_waiting
            ),
            status=[StreamsGroupHeartbeatStatus(status, detail) for status, detail in problems],
        )
        has_new_tasks = settled.assigned != member.assigned
        if request.member_epoch == JOIN_EPOCH or has_new_tasks or differs(settled, reported):
            _add_tasks(response, settled.assigned)
        has_new_endpoint = settled.user_endpoint != member.user_endpoint
        is_news = has_new_endpoint or (has_new_tasks and settled.user_endpoint is not None)
        self._add_endpoints(draft, request, response, configured, is_news=is_news)
        return StreamsHeartbeat(response, configured.to_create)

    def _add_endpoints(
        self,
        draft: StreamsDraft,
        request: StreamsGroupHeartbeatRequest,
        response: StreamsGroupHeartbeatResponse,
        configured: ConfiguredTopology,
        *,
        is_news: bool,
    ) -> None:
        """Add the endpoints for interactive queries to the reply, if the member does not have the current ones.

        is_news: whether this heartbeat changes the member's endpoint, or the tasks there.
        """
        memory = draft.original.memory
        epoch = memory.endpoint_epoch
        if is_news:
            epoch += 1
            draft.effects.changes.append(partial(setattr, memory, "endpoint_epoch", epoch))
        if epoch != request.endpoint_information_epoch:
            response.partitions_by_user_endpoint = partitions_by_endpoint(draft.group, configured, self._topics)
        # A new group begins to count once its records are written.
        response.endpoint_information_epoch = 0 if draft.original.topology is None else epoch

    def leave(
        self, group: StreamsGroup, request: StreamsGroupHeartbeatRequest, effects: DecisionBuilder
    ) -> StreamsHeartbeat:
        """Remove a member that leaves, or mark a static one as absent. Refuses: see `find_leaving`."""
        member = find_leaving(group, request)
        if isinstance(member, HeartbeatRefusal):
            return refuse(*member)
        draft = STORED_STREAMS_GROUPS.draft(group, effects)
        if request.shutdown_application:
            _shut_down(draft, request.member_id)
        is_back_soon = request.member_epoch == LEAVE_FOR_A_WHILE_EPOCH
        ids = {"group_id": group.group_id, "member_id": member.member_id}
        effects.note(log.info, "group_member_left", **ids, is_back_soon=is_back_soon)
        if is_back_soon:
            draft.write(StreamsGroupCurrentMemberAssignmentKey(**ids), current_value(absent(member)))
        else:
            self._fence(draft, [member])
        return StreamsHeartbeat(
            StreamsGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        )

    # Steps

    def _take_topology(self, draft: StreamsDraft, sent: Topology | None) -> HeartbeatRefusal | None:
        """Write the group's first topology. Refuses another one, except an older one, which `_problems` reports."""
        topology = draft.group.topology
        if topology is None:
            if sent is None:
                reason = "The topology of the group is not known. The member must abandon all its tasks and rejoin."
                return HeartbeatRefusal(ErrorCode.FENCED_MEMBER_EPOCH, reason)
            draft.write(StreamsGroupTopologyKey(draft.group.group_id), topology_value(sent))
        elif sent is not None and sent.epoch >= topology.epoch and sent != topology:
            return HeartbeatRefusal(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        return None

    def _configured_for(
        self, group: StreamsGroup, reported: TaskAssignment | None
    ) -> ConfiguredTopology | HeartbeatRefusal:
        """The group's topology, if it is valid and has the tasks that a member reports."""
        configured = self.configured(group)
        if isinstance(configured, InvalidTopology):
            return HeartbeatRefusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, configured.reason)
        refusal = check_tasks(reported, configured) if configured.is_ready else None
        return refusal or configured

    def configured(self, group: StreamsGroup) -> ConfiguredTopology | InvalidTopology:
        """Resolve the group's topology with the current topics, once for each version of the metadata."""
        assert group.topology is not None
        version, known = self._topics.version, group.memory.configured
        if known is not None and known[0] is group.topology and known[1] == version:
            return known[2]
        configured = configure(group.topology, self._topics)
        if isinstance(configured, ConfiguredTopology):
            group.memory.configured = group.topology, version, configured
        return configured

    def _update_epoch(self, draft: StreamsDraft, configured: ConfiguredTopology, *, has_changed: bool) -> None:
        """Begin a new epoch when members, topics or settings of the group have changed since the last one."""
        group = draft.group
        assert group.topology is not None
        hashed = configured.metadata_hash
        validated_epoch = group.topology.epoch if configured.is_ready else -1
        configs = self._assignment_configs(group.group_id)
        if (
            has_changed
            or hashed != group.metadata_hash
            or validated_epoch != group.validated_topology_epoch
            or configs != group.assignment_configs
        ):
            self._bump_epoch(draft, hashed, validated_epoch, configs)

    def _assignment_configs(self, group_id: str) -> dict[str, str]:
        settings = self._config.streams_times(group_id)
        configs = {NUM_STANDBY_REPLICAS: str(settings.num_standby_replicas)}
        if settings.rack_aware_assignment_tags:
            configs[RACK_AWARE_ASSIGNMENT_TAGS] = ",".join(settings.rack_aware_assignment_tags)
        return configs

    def _bump_epoch(self, draft: StreamsDraft, hashed: int, validated_epoch: int, configs: Mapping[str, str]) -> None:
        epoch = draft.group.group_epoch + 1
        value = StreamsGroupMetadataValue(epoch, hashed, validated_epoch, key_values(configs))
        draft.write(StreamsGroupMetadataKey(draft.group.group_id), value)
        draft.effects.note(log.debug, "group_epoch_bumped", group_id=draft.group.group_id, group_epoch=epoch)

    def _delay_first_assignment(self, group: StreamsGroup, effects: DecisionBuilder) -> None:
        """Delay the first assignment of a group that was empty, so that it includes members that join soon."""
        key = _first_assignment(group)
        delay_ms = self._config.streams_times(group.group_id).initial_rebalance_delay_ms
        if delay_ms > 0 and effects.deadline_ms(key) is None:
            effects.set_deadline(key, effects.now_ms + delay_ms)

    def _is_first_assignment_delayed(self, group: StreamsGroup, effects: DecisionBuilder) -> bool:
        return effects.deadline_ms(_first_assignment(group)) is not None

    def _update_target(self, draft: StreamsDraft, configured: ConfiguredTopology) -> TopologyProblem | None:
        """Make a target for the group's epoch, unless there is one. Returns why that has to wait, or None."""
        group, now_ms = draft.group, draft.effects.now_ms
        if self._is_first_assignment_delayed(group, draft.effects):
            return TopologyProblem(
                TopologyStatus.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured initial rebalance delay."
            )
        if group.assignment_epoch >= group.group_epoch:
            return None
        interval_ms = self._config.streams_times(group.group_id).assignment_interval_ms
        if group.is_target_too_recent(interval_ms, now_ms):
            return TopologyProblem(
                TopologyStatus.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured assignment interval."
            )
        draft.write_target(self._assign(group, configured))
        draft.effects.note(
            log.info,
            "group_target_assigned",
            group_id=group.group_id,
            assignment_epoch=group.group_epoch,
            assignor=STICKY_ASSIGNOR,
        )
        return None

    def _assign(self, group: StreamsGroup, configured: ConfiguredTopology) -> dict[str, TaskAssignment]:
        """Return the target of every member; no tasks while topics are missing or have wrong partition counts."""
        if not configured.is_ready:
            return dict.fromkeys(group.members, NO_TASKS)
        assignees = {
            member_id: Assignee(member.process_id, member.assigned) for member_id, member in group.members.items()
        }
        sizes = {
            subtopology_id: SubtopologySize(subtopology.task_count, subtopology.is_stateful)
            for subtopology_id, subtopology in configured.subtopologies.items()
        }
        standby_count = int(group.assignment_configs.get(NUM_STANDBY_REPLICAS, 0))
        return assign(assignees, sizes, standby_count=standby_count)

    def _reconcile(
        self, draft: StreamsDraft, member_id: str, reported: TaskAssignment | None, *, is_first_delayed: bool
    ) -> StreamsMember:
        """Move one member towards the target and return it."""
        group = draft.group
        member = group.members[member_id]
        if member.is_reconciled_to(group.assignment_epoch):
            return member
        reconciled = reconcile(
            member,
            target_epoch=group.assignment_epoch,
            target=NO_TASKS if is_first_delayed else group.target.get(member_id, NO_TASKS),
            processes=group.processes,
            reported=reported,
        )
        if reconciled is member:
            return member
        draft.write(StreamsGroupCurrentMemberAssignmentKey(group.group_id, member_id), current_value(reconciled))
        key = DeadlineKey(DeadlineKind.REVOCATION, group.group_id, member_id)
        if reconciled.state is MemberState.UNREVOKED_PARTITIONS:
            draft.effects.set_deadline(key, draft.effects.now_ms + reconciled.rebalance_timeout_ms)
        else:
            draft.effects.clear_deadline(key)
        return draft.group.members[member_id]

    def _fence(self, draft: StreamsDraft, members: Collection[StreamsMember]) -> None:
        """Remove members, free their tasks immediately, and begin a new epoch."""
        if not members:
            return
        group_id = draft.group.group_id
        for member in members:
            name = member.member_id
            draft.remove_member(name)
            for kind in (DeadlineKind.SESSION, DeadlineKind.REVOCATION):
                draft.effects.clear_deadline(DeadlineKey(kind, group_id, name))
        group = draft.group
        self._bump_epoch(draft, group.metadata_hash, group.validated_topology_epoch, group.assignment_configs)
        draft.empty_target()

    # Time

    def start_sessions(self, group: StreamsGroup, now_ms: int) -> None:
        """Give every member of a group just loaded a whole session, and its whole time to revoke tasks."""
        session_timeout_ms = self._config.streams_times(group.group_id).session_timeout_ms
        for member_id, member in group.members.items():
            self._deadlines.set(
                DeadlineKey(DeadlineKind.SESSION, group.group_id, member_id), now_ms + session_timeout_ms
            )
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                key = DeadlineKey(DeadlineKind.REVOCATION, group.group_id, member_id)
                self._deadlines.set(key, now_ms + member.rebalance_timeout_ms)

    def forget(self, group: StreamsGroup, effects: DecisionBuilder) -> None:
        """Clear the deadline of the first assignment of a group that is deleted or converted to another kind."""
        effects.clear_deadline(_first_assignment(group))

    def deadlines_passed(self, group: StreamsGroup, due: Collection[DeadlineKey], effects: DecisionBuilder) -> None:
        """Remove members whose deadlines have passed, all in one step, and make the first assignment of a group."""
        draft = STORED_STREAMS_GROUPS.draft(group, effects)
        fenced = {}
        for key in due:
            member = group.members.get(key.member_id)
            if member is None:
                continue
            if key.kind is DeadlineKind.SESSION:
                reason = "session timed out"
            elif key.kind is DeadlineKind.REVOCATION:
                reason = "tasks were not given up in time"
            else:
                continue
            fenced[member.member_id] = member
            effects.note(
                log.info, "group_member_removed", group_id=group.group_id, member_id=member.member_id, reason=reason
            )
        self._fence(draft, fenced.values())
        if _first_assignment(group) in due and draft.group.members and draft.group.topology is not None:
            configured = self.configured(draft.group)
            if isinstance(configured, ConfiguredTopology):
                self._update_epoch(draft, configured, has_changed=False)
                self._update_target(draft, configured)


def refuse(error: ErrorCode, message: str | None = None) -> StreamsHeartbeat:
    return StreamsHeartbeat(StreamsGroupHeartbeatResponse(error_code=error, error_message=message))


def _add_tasks(response: StreamsGroupHeartbeatResponse, assigned: OwnedTasks) -> None:
    response.active_tasks = task_ids(assigned.active)
    response.standby_tasks = task_ids(assigned.standby)
    response.warmup_tasks = task_ids(assigned.warmup)


def _first_assignment(group: StreamsGroup) -> DeadlineKey:
    return DeadlineKey(DeadlineKind.FIRST_ASSIGNMENT, group.group_id)


def _continued(draft: StreamsDraft, previous: StreamsMember | None, member_id: str) -> StreamsMember:
    """Return a member that is known under this id, or a new one. A static member under the id of an earlier process
    moves to this id with its current and target assignment.
    """
    if previous is None or previous.member_id == member_id:
        return previous or StreamsMember(member_id)
    group_id = draft.group.group_id
    target = draft.group.target.get(previous.member_id, NO_TASKS)
    member = replaced(previous, member_id)
    draft.remove_member(previous.member_id)
    draft.write(StreamsGroupMemberMetadataKey(group_id, member_id), member_value(member))
    draft.write(StreamsGroupTargetAssignmentMemberKey(group_id, member_id), target_value(target))
    draft.write(StreamsGroupCurrentMemberAssignmentKey(group_id, member_id), current_value(member))
    for kind in (DeadlineKind.SESSION, DeadlineKind.REVOCATION):
        draft.effects.clear_deadline(DeadlineKey(kind, group_id, previous.member_id))
    ids = {"member_id": member_id, "previous": previous.member_id}
    draft.effects.note(log.info, "group_member_replaced", group_id=group_id, **ids)
    return draft.group.members[member_id]


def _shut_down(draft: StreamsDraft, member_id: str) -> str:
    """Record a request for shutdown and return the id of the first member that made one since the group was empty."""
    group, effects = draft.original, draft.effects
    if group.shutdown_member_id is not None:
        return group.shutdown_member_id
    effects.note(log.info, "streams_shutdown_requested", group_id=group.group_id, member_id=member_id)
    effects.changes.append(partial(setattr, group, "shutdown_member_id", member_id))
    return member_id


def _problems(
    group: StreamsGroup,
    member: StreamsMember,
    configured: ConfiguredTopology,
    delay: TopologyProblem | None,
    shutdown_member_id: str | None,
) -> list[TopologyProblem]:
    """Return the statuses in the reply to a member. asking: the member that requested the shutdown."""
    problems = []
    topology = group.topology
    if topology is not None and member.topology_epoch < topology.epoch:
        sent, current = member.topology_epoch, topology.epoch
        detail = f"The member's topology epoch {sent} is behind the group's topology epoch {current}."
        problems.append(TopologyProblem(TopologyStatus.STALE_TOPOLOGY, detail))
    problems += [problem for problem in (delay, configured.problem) if problem is not None]
    if shutdown_member_id is not None:
        detail = (
            f"Streams group member {shutdown_member_id} encountered a fatal error and requested a shutdown for the "
            "entire application."
        )
        problems.append(TopologyProblem(TopologyStatus.SHUTDOWN_APPLICATION, detail))
    tags = group.assignment_configs.get(RACK_AWARE_ASSIGNMENT_TAGS, "")
    missing = [tag for tag in tags.split(",") if tag and tag not in member.client_tags]
    if missing:
        detail = f"The group's rack-aware assignment needs client tags that the member lacks: {', '.join(missing)}."
        problems.append(TopologyProblem(TopologyStatus.MISSING_CLIENT_TAGS, detail))
    return problems
