"""Requests of the classic group protocol: joining, syncing, heartbeats, leaving. Pure.

Source: Kafka's GroupMetadataManager, the methods whose names begin with classicGroup; KIP-62, KIP-345 (static members),
KIP-394 (member ids first), KIP-814 (a static leader need not assign again).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from fencepost.broker.coordination.shard import Parked
from fencepost.broker.group.classic.group import (
    ClassicEvent,
    ClassicGroup,
    ClassicMember,
    ClassicState,
    GroupTableAction,
    Protocols,
    sizes_of,
)
from fencepost.broker.group.classic.rebalance import (
    ClassicRebalance,
    join_response,
    join_response_members,
    refuse_join,
    refuse_sync,
)
from fencepost.broker.group.classic.records import group_record
from fencepost.broker.group.decision_builder import DecisionBuilder, GroupConfig
from fencepost.broker.kernel.events import get_logger
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

log = get_logger(__name__)

PROTOCOLS_PER_RECORD = 4
"""Bound on the memory of all protocols of a group's members, in sizes of the largest record: most members have two
protocols, and during a rebalance members that left are counted with those that joined."""


@dataclass(frozen=True, slots=True)
class JoinContext:
    """Context of a JoinGroup request beside its body.

    member_id_suffix:         a random UUID that makes a new member id unique.
    token:                    name of the parked request while it waits for the other members.
    requires_known_member_id: JoinGroup 4 and later: a new dynamic member first gets its id (KIP-394).
    can_skip_assignment:      JoinGroup 9 and later: a static leader that returns need not assign again (KIP-814).
    """

    client_id: str
    client_host: str
    member_id_suffix: str
    token: Hashable
    requires_known_member_id: bool
    can_skip_assignment: bool


class ClassicMembership:
    """Decisions about members of classic groups. The shard owns the groups."""

    def __init__(self, config: GroupConfig, rebalance: ClassicRebalance) -> None:
        self._config = config
        self._rebalance = rebalance

    # Joining

    def join(
        self, group: ClassicGroup, request: JoinGroupRequest, joiner: JoinContext, effects: DecisionBuilder
    ) -> JoinGroupResponse | Parked:
        """Handle a JoinGroup request of an existing or a new group. Like all methods with `effects`, it changes the
        group, which is a copy."""
        protocols = protocols_of(request)
        member_id = request.member_id
        if not self._has_room(group, member_id) or not self._has_memory(group, request, protocols):
            if member_id in group.members:
                self._rebalance.remove(group, group.members[member_id], effects)
            return refuse_join(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if group.state is ClassicState.DEAD:
            return refuse_join(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id)
        if not group.supports(request.protocol_type, protocols):
            return refuse_join(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        if not member_id:
            return self._join_new(group, request, protocols, joiner, effects)
        if member_id in group.pending_member_ids and request.group_instance_id is None:
            self._rebalance.forget_pending(group, member_id, effects)
            return self._add(group, request, protocols, joiner, effects, member_id, is_id_known=True)
        error = group.check_member(member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return refuse_join(error, member_id)
        return self._join_again(group, group.members[member_id], request, protocols, joiner, effects)

    def _join_new(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: Protocols,
        joiner: JoinContext,
        effects: DecisionBuilder,
    ) -> JoinGroupResponse | Parked:
        instance_id = request.group_instance_id
        member_id = f"{joiner.client_id if instance_id is None else instance_id}-{joiner.member_id_suffix}"
        if instance_id is None:
            if joiner.requires_known_member_id:
                self._rebalance.reserve_member_id(group, member_id, request.session_timeout_ms, effects)
                return refuse_join(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        elif instance_id in group.static_members:
            previous = group.members[group.static_members[instance_id]]
            return self._replace_static(group, previous, member_id, request, protocols, joiner, effects)
        return self._add(group, request, protocols, joiner, effects, member_id, is_id_known=False)

    def _join_again(
        self,
        group: ClassicGroup,
        member: ClassicMember,
        request: JoinGroupRequest,
        protocols: Protocols,
        joiner: JoinContext,
        effects: DecisionBuilder,
    ) -> JoinGroupResponse | Parked:
        # A leader that rejoins a stable group wants a new assignment: its topics may have changed.
        leads_stable = group.state is ClassicState.STABLE and group.leader_id == member.member_id
        event = (
            ClassicEvent.MEMBER_RETURNED
            if member.protocols == protocols and not leads_stable
            else ClassicEvent.MEMBER_CHANGED
        )
        cell = group.cell(event)
        if isinstance(cell, ErrorCode):
            return refuse_join(cell, member.member_id)
        if cell is GroupTableAction.ANSWER:
            self._rebalance.restart_session(group, member, effects)
            return join_response(group, member)
        member = group.set_protocols(member, protocols)
        member = group.change(
            member,
            client_id=joiner.client_id,
            client_host=joiner.client_host,
            rebalance_timeout_ms=rebalance_timeout_ms_of(request),
            session_timeout_ms=request.session_timeout_ms,
        )
        self._park_join(group, member, joiner.token, effects)
        self._rebalance.handle_event(group, event, effects)
        return Parked(joiner.token)

    def _add(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: Protocols,
        joiner: JoinContext,
        effects: DecisionBuilder,
        member_id: str,
        *,
        is_id_known: bool,
    ) -> Parked:
        member = ClassicMember(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=joiner.client_id,
            client_host=joiner.client_host,
            rebalance_timeout_ms=rebalance_timeout_ms_of(request),
            session_timeout_ms=request.session_timeout_ms,
            protocols=protocols,
            join_token=joiner.token,
            is_new=True,
            is_id_known=is_id_known,
        )
        if group.is_initial_join:
            group.is_member_added = True
        group.add(member, request.protocol_type)
        self._rebalance.start_first_session(group, member, effects)
        self._rebalance.handle_event(group, ClassicEvent.MEMBER_ADDED, effects)
        return Parked(joiner.token)

    def _replace_static(
        self,
        group: ClassicGroup,
        previous: ClassicMember,
        member_id: str,
        request: JoinGroupRequest,
        protocols: Protocols,
        joiner: JoinContext,
        effects: DecisionBuilder,
    ) -> JoinGroupResponse | Parked:
        """Replace a static member by a process that joins under its instance id and gets a new member id."""
        cell = group.cell(ClassicEvent.MEMBER_REPLACED)
        if isinstance(cell, ErrorCode):
            return refuse_join(cell, member_id)
        member = previous._replace(
            member_id=member_id,
            client_id=joiner.client_id,
            client_host=joiner.client_host,
            rebalance_timeout_ms=rebalance_timeout_ms_of(request),
            session_timeout_ms=request.session_timeout_ms,
            protocols=protocols,
            join_token=None,
            sync_token=None,
            is_new=False,
            is_id_known=False,
        )
        members = [member if other is previous else other for other in group.members.values()]
        was_leader = group.leader_id == previous.member_id
        if cell is GroupTableAction.ANSWER and group.choose_protocol(members) == group.protocol_name:
            group.replacement = member
            return self._keep_assignment(group, member, members, joiner, effects, was_leader=was_leader)
        self._rebalance.drop(group, previous, ErrorCode.FENCED_INSTANCE_ID, effects)
        group.add(member, request.protocol_type)
        if was_leader:
            group.leader_id = member_id
        member = self._park_join(group, member, joiner.token, effects)
        self._rebalance.restart_session(group, member, effects)
        if cell is GroupTableAction.ANSWER:
            self._rebalance.handle_event(group, ClassicEvent.MEMBER_CHANGED, effects)
        else:
            self._rebalance.handle_event(group, ClassicEvent.MEMBER_REPLACED, effects)
        return Parked(joiner.token)

    def _keep_assignment(
        self,
        group: ClassicGroup,
        member: ClassicMember,
        members: list[ClassicMember],
        joiner: JoinContext,
        effects: DecisionBuilder,
        *,
        was_leader: bool,
    ) -> JoinGroupResponse:
        """Store the new id of a replaced member, without a rebalance: the assignment stays valid."""
        leader_id = member.member_id if was_leader else group.leader_id
        effects.records.append(
            group_record(
                group,
                members,
                generation_id=group.generation_id,
                leader_id=leader_id,
                timestamp_ms=group.state_timestamp_ms,
            )
        )
        skips_assignment = joiner.can_skip_assignment and was_leader
        return JoinGroupResponse(
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            # Before KIP-814 the reply names the old leader to a leader that returns, so that it does not assign again.
            leader=(leader_id if joiner.can_skip_assignment else group.leader_id) or "",
            skip_assignment=skips_assignment,
            member_id=member.member_id,
            members=join_response_members(members, group.protocol_name) if skips_assignment else [],
        )

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        maximum = self._config.max_size
        if group.state in (ClassicState.EMPTY, ClassicState.DEAD):
            return True
        member = group.members.get(member_id)
        if group.state is ClassicState.PREPARING_REBALANCE:
            # Members that do not rejoin make room, so only those that have rejoined count.
            return (member is not None and member.join_token is not None) or group.awaiting_join_count < maximum
        return member is not None or len(group.members) < maximum

    def _has_memory(self, group: ClassicGroup, request: JoinGroupRequest, protocols: Protocols) -> bool:
        """Return whether the record of a generation with this member can fit into the log.

        Without this check no generation could become stable: Kafka accepts the member, and the group's rebalances fail
        from then on. While a rebalance is prepared, the count includes members that will not return.
        """
        instance_id = request.group_instance_id
        known_id = request.member_id if instance_id is None else group.static_members.get(instance_id, "")
        known = group.members.get(known_id)
        all_bytes, least_bytes = sizes_of(protocols)
        known_bytes, known_least_bytes = (0, 0) if known is None else sizes_of(known.protocols)
        maximum = self._config.max_record_bytes
        may_be_twice = 2 if group.state is ClassicState.PREPARING_REBALANCE else 1
        return (
            group.min_metadata_bytes + least_bytes - known_least_bytes <= may_be_twice * maximum
            and group.protocols_bytes + all_bytes - known_bytes <= PROTOCOLS_PER_RECORD * maximum
        )

    def _park_join(
        self, group: ClassicGroup, member: ClassicMember, token: Hashable, effects: DecisionBuilder
    ) -> ClassicMember:
        if member.join_token is not None:
            effects.answers.append((member.join_token, refuse_join(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)))
        return group.change(member, join_token=token)

    # Syncing

    def sync(
        self, group: ClassicGroup, request: SyncGroupRequest, token: Hashable, effects: DecisionBuilder
    ) -> SyncGroupResponse | Parked:
        error = self._check_generation(group, request)
        if error is ErrorCode.NONE and (
            (request.protocol_type is not None and request.protocol_type != group.protocol_type)
            or (request.protocol_name is not None and request.protocol_name != group.protocol_name)
        ):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if error is ErrorCode.NONE:
            error = group.refusal(ClassicEvent.SYNC)
        if error is not ErrorCode.NONE:
            return refuse_sync(error)
        member = group.members[request.member_id]
        group.pending_sync_ids.pop(member.member_id, None)
        self._rebalance.restart_session(group, member, effects)
        if group.cell(ClassicEvent.SYNC) is GroupTableAction.ANSWER:
            return _assignment_of(group, member.assignment)
        if member.sync_token is not None:
            effects.answers.append((member.sync_token, refuse_sync(ErrorCode.REBALANCE_IN_PROGRESS)))
            member = group.change(member, sync_token=None)
        if member.member_id != group.leader_id:
            group.change(member, sync_token=token)
            return Parked(token)
        assignments = {assignment.member_id: assignment.assignment for assignment in request.assignments}
        members = [other._replace(assignment=assignments.get(other.member_id, b"")) for other in group.members.values()]
        effects.records.append(
            group_record(
                group,
                members,
                generation_id=group.generation_id,
                leader_id=group.leader_id,
                timestamp_ms=effects.now_ms,
            )
        )
        for other in group.awaiting_sync():
            effects.answers.append((other.sync_token, _assignment_of(group, assignments.get(other.member_id, b""))))
        return _assignment_of(group, assignments.get(member.member_id, b""))

    def assignment_failed(
        self, group: ClassicGroup, generation_id: int, error: ErrorCode, effects: DecisionBuilder
    ) -> None:
        """Refuse the requests that wait for the leader's assignment, which could not be written, and rebalance."""
        if group.state is not ClassicState.COMPLETING_REBALANCE or group.generation_id != generation_id:
            return
        for member in group.awaiting_sync():
            effects.answers.append((member.sync_token, refuse_sync(error)))
            self._rebalance.restart_session(group, group.change(member, sync_token=None), effects)
        self._rebalance.handle_event(group, ClassicEvent.SYNC_EXPIRED, effects)

    # Staying and leaving

    def heartbeat(self, group: ClassicGroup, request: HeartbeatRequest, effects: DecisionBuilder) -> ErrorCode:
        error = self._check_generation(group, request)
        if error is not ErrorCode.NONE:
            return error
        self._rebalance.restart_session(group, group.members[request.member_id], effects)
        return group.refusal(ClassicEvent.HEARTBEAT)

    def leave(self, group: ClassicGroup, leaving: list[MemberIdentity], effects: DecisionBuilder) -> LeaveGroupResponse:
        """Remove members, named by member id, or, by administrators, by instance id alone. Each gets its own error."""
        responses = []
        is_changed = False
        for identity in leaving:
            error = self._leave_one(group, identity, effects)
            is_changed = is_changed or error is ErrorCode.NONE
            responses.append(
                MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error
                )
            )
        if is_changed:
            self._rebalance.handle_event(group, ClassicEvent.MEMBER_REMOVED, effects)
        return LeaveGroupResponse(members=responses)

    def _leave_one(self, group: ClassicGroup, identity: MemberIdentity, effects: DecisionBuilder) -> ErrorCode:
        member_id = identity.member_id
        if not member_id and identity.group_instance_id is not None:
            member_id = group.static_members.get(identity.group_instance_id, "")
        elif member_id in group.pending_member_ids:
            self._rebalance.forget_pending(group, member_id, effects)
            return ErrorCode.NONE
        error = group.check_member(member_id, identity.group_instance_id)
        if error is ErrorCode.NONE:
            effects.note(
                log.info, "group_member_left", group_id=group.group_id, member_id=member_id, reason=identity.reason
            )
            self._rebalance.drop(group, group.members[member_id], ErrorCode.UNKNOWN_MEMBER_ID, effects)
        return error

    def offsets_committed(self, group: ClassicGroup, member_id: str, now_ms: int) -> Callable[[], None] | None:
        """Return a function that restarts the session of a member that has committed; None for no member."""
        member = group.members.get(member_id)
        return None if member is None else self._rebalance.restarting_session(group, member, now_ms)

    def parked_request_cancelled(self, group: ClassicGroup, token: Hashable, effects: DecisionBuilder) -> None:
        """Drop a parked request whose connection was closed. A member that does not know its own id is
        removed: it cannot return.
        """
        member = next((m for m in group.members.values() if token in (m.join_token, m.sync_token)), None)
        if member is None:
            return
        if member.sync_token == token:
            member = group.change(member, sync_token=None)
            group.pending_sync_ids[member.member_id] = None
        else:
            member = group.change(member, join_token=None)
            if not member.is_id_known and member.group_instance_id is None:
                effects.note(
                    log.info,
                    "group_member_removed",
                    group_id=group.group_id,
                    member_id=member.member_id,
                    reason="connection closed",
                )
                self._rebalance.remove(group, member, effects)
                return
            member = group.change(member, is_new=False)
        self._rebalance.restart_session(group, member, effects)

    def _check_generation(self, group: ClassicGroup, request: SyncGroupRequest | HeartbeatRequest) -> ErrorCode:
        if group.state is ClassicState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = group.check_member(request.member_id, request.group_instance_id)
        if error is ErrorCode.NONE and request.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return error


def _assignment_of(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment
    )


def protocols_of(request: JoinGroupRequest) -> Protocols:
    return tuple({protocol.name: protocol.metadata for protocol in request.protocols}.items())


def rebalance_timeout_ms_of(request: JoinGroupRequest) -> int:
    """Return the rebalance time-out of a request; JoinGroup 0 has none and uses the session time-out."""
    return request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms
