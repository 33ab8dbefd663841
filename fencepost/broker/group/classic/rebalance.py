"""Rebalances of classic groups: the way from one generation to the next, and the deadlines of members. Pure.

During a rebalance the membership is in memory only. It changes here, in a copy that replaces the group once the
decision's records are in the log. A generation ends in a record; applying it (`records.py`) makes the group stable or
empty. If the record cannot be written, the group and all deadlines stay as they were, and the members repeat their
requests. Source: Kafka's GroupMetadataManager (prepareRebalance, completeClassicGroupJoin,
expireClassicGroupMemberHeartbeat, expirePendingSync); KIP-62, KIP-134.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fencepost.broker.group.classic.group import ClassicEvent, ClassicGroup, ClassicMember, ClassicState
from fencepost.broker.group.classic.records import group_record
from fencepost.broker.group.decision_builder import (
    DeadlineKey,
    DeadlineKind,
    DecisionBuilder,
    GroupConfig,
    GroupDeadlines,
)
from fencepost.broker.kernel.events import get_logger
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_membership import JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse

log = get_logger(__name__)

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000  # a new member cannot send heartbeats while its first JoinGroup waits


class ClassicRebalance:
    """Moves groups between states. `ClassicMembership` handles the requests that lead to that."""

    def __init__(self, config: GroupConfig, deadlines: GroupDeadlines) -> None:
        self._config = config
        self._deadlines = deadlines

    def handle_event(self, group: ClassicGroup, event: ClassicEvent, effects: DecisionBuilder) -> None:
        """Handle an event about the members: begin a rebalance, or complete a prepared one if all have joined."""
        before = group.state
        group.move(event)
        if group.state is not ClassicState.PREPARING_REBALANCE:
            return
        if before is not ClassicState.PREPARING_REBALANCE:
            self._prepare(group, before, effects)
        elif not group.is_initial_join:
            self._complete_if_all_joined(group, effects)

    def _prepare(self, group: ClassicGroup, before: ClassicState, effects: DecisionBuilder) -> None:
        for member in group.awaiting_sync():
            effects.answers.append((member.sync_token, refuse_sync(ErrorCode.REBALANCE_IN_PROGRESS)))
            self.restart_session(group, group.change(member, sync_token=None), effects)
        if before is ClassicState.COMPLETING_REBALANCE:
            # The generation that ends has no assignment, and the one before it is no longer valid.
            for member in list(group.members.values()):
                group.change(member, assignment=b"")
        effects.clear_deadline(_sync(group))
        effects.note(
            log.info,
            "group_rebalance_started",
            group_id=group.group_id,
            generation_id=group.generation_id,
            members=len(group.members),
        )
        delay_ms = self._config.initial_rebalance_delay_ms
        if before is ClassicState.EMPTY:
            if not delay_ms:
                self.complete_join(group, effects)
                return
            group.is_initial_join, group.is_member_added = True, False
            group.initial_join_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            effects.set_deadline(_join(group), effects.now_ms + delay_ms)
            return
        group.is_initial_join = False
        if not group.members:  # members with a reserved id have no others to wait for
            self.complete_join(group, effects)
            return
        effects.set_deadline(_join(group), effects.now_ms + group.rebalance_timeout_ms)
        self._complete_if_all_joined(group, effects)

    def _complete_if_all_joined(self, group: ClassicGroup, effects: DecisionBuilder) -> None:
        if group.have_all_joined and group.group_id not in effects.emptied_group_ids:
            self.complete_join(group, effects)

    def complete_join(self, group: ClassicGroup, effects: DecisionBuilder) -> None:
        """End the preparation of a rebalance: remove members that did not join, begin a generation with the others."""
        effects.clear_deadline(_join(group))
        group.is_initial_join = False
        for member in [m for m in group.members.values() if m.join_token is None and m.group_instance_id is None]:
            effects.note(
                log.info,
                "group_member_removed",
                group_id=group.group_id,
                member_id=member.member_id,
                reason="did not join in time",
            )
            self.drop(group, member, ErrorCode.UNKNOWN_MEMBER_ID, effects)
        if not group.members:
            effects.emptied_group_ids.add(group.group_id)
            effects.records.append(
                group_record(
                    group, (), generation_id=group.generation_id + 1, leader_id=None, timestamp_ms=effects.now_ms
                )
            )
            return
        if not group.elect_joined_leader():
            # Only static members are left and none rejoined: their sessions decide.
            effects.set_deadline(_join(group), effects.now_ms + group.rebalance_timeout_ms)
            return
        group.begin_generation()
        for member in list(group.members.values()):
            if member.join_token is not None:
                effects.answers.append((member.join_token, join_response(group, member)))
            member = group.change(member, join_token=None, is_new=False, is_id_known=True)
            self.restart_session(group, member, effects)
        effects.set_deadline(_sync(group), effects.now_ms + group.rebalance_timeout_ms)

    def upgrade_to_consumer_group(self, group: ClassicGroup, effects: DecisionBuilder) -> None:
        """Convert the group to the consumer protocol: parked members have to join again, and only sessions continue."""
        for member in group.members.values():
            self.answer_parked(member, ErrorCode.REBALANCE_IN_PROGRESS, effects)
            self.restart_session(group, member, effects)
        for member_id in group.pending_member_ids:
            effects.clear_deadline(_pending(group, member_id))
        effects.clear_deadline(_join(group))
        effects.clear_deadline(_sync(group))

    # Time

    def deadline(self, group: ClassicGroup, key: DeadlineKey, effects: DecisionBuilder) -> None:
        match key.kind:
            case DeadlineKind.SESSION:
                self._session_ended(group, key.member_id, effects)
            case DeadlineKind.PENDING_MEMBER:
                group.pending_member_ids.discard(key.member_id)
                if group.state is ClassicState.PREPARING_REBALANCE and not group.is_initial_join:
                    self._complete_if_all_joined(group, effects)
            case DeadlineKind.JOIN:
                self._join_timed_out(group, effects)
            case DeadlineKind.SYNC:
                self._sync_timed_out(group, effects)
            case DeadlineKind.CLASSIC_REBALANCE:
                self.handle_event(group, ClassicEvent.MEMBER_REMOVED, effects)

    def _session_ended(self, group: ClassicGroup, member_id: str, effects: DecisionBuilder) -> None:
        member = group.members.get(member_id)
        if member is None:
            return
        if not member.is_new and (member.join_token is not None or member.sync_token is not None):
            return  # its request is parked; the reply restarts its session
        effects.note(
            log.info, "group_member_removed", group_id=group.group_id, member_id=member_id, reason="session timed out"
        )
        self.remove(group, member, effects)

    def _join_timed_out(self, group: ClassicGroup, effects: DecisionBuilder) -> None:
        if group.state is not ClassicState.PREPARING_REBALANCE or group.group_id in effects.emptied_group_ids:
            return
        if group.is_initial_join and group.is_member_added and group.initial_join_remaining_ms:
            group.is_member_added = False
            delay_ms = min(self._config.initial_rebalance_delay_ms, group.initial_join_remaining_ms)
            group.initial_join_remaining_ms -= delay_ms
            effects.set_deadline(_join(group), effects.now_ms + delay_ms)
            return
        self.complete_join(group, effects)

    def _sync_timed_out(self, group: ClassicGroup, effects: DecisionBuilder) -> None:
        late = [group.members[member_id] for member_id in group.pending_sync_ids if member_id in group.members]
        if not late or not isinstance(group.cell(ClassicEvent.SYNC_EXPIRED), ClassicState):
            return
        for member in late:
            effects.note(
                log.info,
                "group_member_removed",
                group_id=group.group_id,
                member_id=member.member_id,
                reason="did not sync in time",
            )
            self.drop(group, member, ErrorCode.UNKNOWN_MEMBER_ID, effects)
        self.handle_event(group, ClassicEvent.SYNC_EXPIRED, effects)

    def start_sessions(self, group: ClassicGroup, now_ms: int) -> None:
        """Give every member of a group just loaded a whole session for its next request."""
        for member in group.members.values():
            self._deadlines.set(_session(group, member), now_ms + member.session_timeout_ms)

    def record_applied(self, group: ClassicGroup, left: list[ClassicMember], now_ms: int) -> None:
        """Handle a record that was applied to a live group: end the sessions of members that left, and restart those of
        members whose SyncGroup was answered.
        """
        for member in left:
            self._deadlines.clear(_session(group, member))
        for member in list(group.members.values()):
            key = _session(group, member)
            if member.sync_token is not None or self._deadlines.get(key) is None:
                group.change(member, sync_token=None)
                self._deadlines.set(key, now_ms + member.session_timeout_ms)

    # Members

    def reserve_member_id(
        self, group: ClassicGroup, member_id: str, session_timeout_ms: int, effects: DecisionBuilder
    ) -> None:
        """Reserve a new member id; its member has one session time-out to join with it."""
        group.pending_member_ids.add(member_id)
        effects.set_deadline(_pending(group, member_id), effects.now_ms + session_timeout_ms)

    def start_first_session(self, group: ClassicGroup, member: ClassicMember, effects: DecisionBuilder) -> None:
        effects.set_deadline(_session(group, member), effects.now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)

    def restart_session(self, group: ClassicGroup, member: ClassicMember, effects: DecisionBuilder) -> None:
        effects.set_deadline(_session(group, member), effects.now_ms + member.session_timeout_ms)

    def restarting_session(self, group: ClassicGroup, member: ClassicMember, now_ms: int) -> Callable[[], None]:
        """Return a function for `restart_session`, for a decision without other effects in memory."""
        return partial(self._deadlines.set, _session(group, member), now_ms + member.session_timeout_ms)

    def remove(self, group: ClassicGroup, member: ClassicMember, effects: DecisionBuilder) -> None:
        """Remove a member and begin a rebalance of the others."""
        self.drop(group, member, ErrorCode.UNKNOWN_MEMBER_ID, effects)
        self.handle_event(group, ClassicEvent.MEMBER_REMOVED, effects)

    def drop(self, group: ClassicGroup, member: ClassicMember, error: ErrorCode, effects: DecisionBuilder) -> None:
        """Remove a member without an event for the group. Its parked requests get the error."""
        self.answer_parked(member, error, effects)
        effects.clear_deadline(_session(group, member))
        group.remove(member.member_id)

    def answer_parked(self, member: ClassicMember, error: ErrorCode, effects: DecisionBuilder) -> None:
        """Answer the parked requests of a member that leaves the group."""
        if member.join_token is not None:
            # A removed member must not return under its id.
            member_id = "" if error is ErrorCode.UNKNOWN_MEMBER_ID else member.member_id
            effects.answers.append((member.join_token, refuse_join(error, member_id)))
        if member.sync_token is not None:
            effects.answers.append((member.sync_token, refuse_sync(error)))

    def forget_pending(self, group: ClassicGroup, member_id: str, effects: DecisionBuilder) -> None:
        group.pending_member_ids.discard(member_id)
        effects.clear_deadline(_pending(group, member_id))

    def forget_all_pending(self, group: ClassicGroup, effects: DecisionBuilder) -> None:
        for member_id in list(group.pending_member_ids):
            self.forget_pending(group, member_id, effects)


def refuse_join(error: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_type=None, protocol_name=None)


def refuse_sync(error: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error)


def join_response(group: ClassicGroup, member: ClassicMember) -> JoinGroupResponse:
    is_leader = group.leader_id == member.member_id
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=join_response_members(list(group.members.values()), group.protocol_name) if is_leader else [],
    )


def join_response_members(members: list[ClassicMember], protocol_name: str | None) -> list[JoinGroupResponseMember]:
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            metadata=member.metadata(protocol_name),
        )
        for member in members
    ]


def _session(group: ClassicGroup, member: ClassicMember) -> DeadlineKey:
    return DeadlineKey(DeadlineKind.SESSION, group.group_id, member.member_id)


def _join(group: ClassicGroup) -> DeadlineKey:
    return DeadlineKey(DeadlineKind.JOIN, group.group_id)


def _sync(group: ClassicGroup) -> DeadlineKey:
    return DeadlineKey(DeadlineKind.SYNC, group.group_id)


def _pending(group: ClassicGroup, member_id: str) -> DeadlineKey:
    return DeadlineKey(DeadlineKind.PENDING_MEMBER, group.group_id, member_id)
