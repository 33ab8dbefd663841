"""Membership of share groups: joining, staying, leaving, and the deadlines of members. Pure.

A heartbeat carries a member's changes; the group may begin a new epoch and make a new target, and the member gets its
assignment immediately. Topics that are new to the group are assigned only once their share partitions have state.
Source: KIP-932; Kafka's GroupCoordinatorService (throwIfShareGroupHeartbeatRequestIsInvalid) and GroupMetadataManager
(shareGroupHeartbeat, shareGroupLeave, shareGroupFenceMember).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from fencepost.broker.group.consumer.subscriptions import TopicCatalogue, metadata_hash, topic_ids
from fencepost.broker.group.decision_builder import (
    DeadlineKey,
    DeadlineKind,
    DecisionBuilder,
    GroupConfig,
    GroupDeadlines,
)
from fencepost.broker.group.modern import JOIN_EPOCH, LEAVE_EPOCH, NO_PARTITIONS, Assignment, HeartbeatContext
from fencepost.broker.group.refusals import HeartbeatRefusal, fenced_member, full_group, unknown_member
from fencepost.broker.group.share_groups.assignor import SIMPLE_ASSIGNOR, assign
from fencepost.broker.group.share_groups.group import ShareGroup, ShareMember
from fencepost.broker.group.share_groups.records import (
    STORED_SHARE_GROUPS,
    ShareDraft,
    current_value,
    member_value,
)
from fencepost.broker.group.share_groups.share_state_initialization import (
    added_partitions,
    begin_initializing,
    uninitialized,
)
from fencepost.broker.kernel.events import get_logger
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.share_groups import (
    ShareGroupDescribeAssignment,
    ShareGroupDescribedGroup,
    ShareGroupDescribeMember,
    ShareGroupDescribeTopicPartitions,
    ShareGroupHeartbeatAssignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    ShareGroupHeartbeatTopicPartitions,
)
from fencepost.protocol.stored.share_groups import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)

log = get_logger(__name__)


class StateToInitialize(NamedTuple):
    """Share partitions whose state has to be initialized, by topic id, and the epoch for that.

    added: those that a topic has got since the group subscribed to it; the group reads them from offset 0.
    """

    partitions: Mapping[bytes, Collection[int]]
    state_epoch: int
    added: Mapping[bytes, Collection[int]] = {}


class ShareHeartbeat(NamedTuple):
    """Reply to a heartbeat, and the state to initialize once the reply is durable."""

    response: ShareGroupHeartbeatResponse
    to_initialize: StateToInitialize | None = None


def check_request(request: ShareGroupHeartbeatRequest) -> HeartbeatRefusal | None:
    """Check a request by itself, without its group. Refuses: INVALID_REQUEST."""
    reason = None
    if not request.member_id.strip():
        reason = "MemberId can't be empty."
    elif not request.group_id.strip():
        reason = "GroupId can't be empty."
    elif request.rack_id is not None and not request.rack_id.strip():
        reason = "RackId can't be empty."
    elif request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        reason = "SubscribedTopicNames must be set in first request."
    elif request.member_epoch < LEAVE_EPOCH:
        reason = "MemberEpoch is invalid."
    return None if reason is None else HeartbeatRefusal(ErrorCode.INVALID_REQUEST, reason)


class ShareMembership:
    """Decisions about members of share groups. The shard owns the groups."""

    def __init__(self, config: GroupConfig, deadlines: GroupDeadlines, topics: TopicCatalogue) -> None:
        self._config = config
        self._deadlines = deadlines
        self._topics = topics

    # Heartbeats

    def heartbeat(
        self, group: ShareGroup, request: ShareGroupHeartbeatRequest, sender: HeartbeatContext, effects: DecisionBuilder
    ) -> ShareHeartbeat:
        """Let a member join or stay. Refuses: GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH."""
        member_id = request.member_id
        known = group.members.get(member_id)
        if known is None and len(group.members) >= self._config.share_max_size:
            return refuse(*full_group(self._config.share_max_size, "share"))
        if known is None:
            if request.member_epoch != JOIN_EPOCH:
                return refuse(*unknown_member(member_id, group.group_id))
            effects.note(log.info, "group_member_joined", group_id=group.group_id, member_id=member_id)
        else:
            refusal = _check_epoch(known, request.member_epoch)
            if refusal is not None:
                return refuse(*refusal)
        draft = STORED_SHARE_GROUPS.draft(group, effects)
        member = known or ShareMember(member_id)
        has_changed = self._update_member(draft, _updated(member, request, sender))
        if draft.group.assignment_epoch >= draft.group.group_epoch:
            has_changed = has_changed or group.has_unassigned_state()
        has_changed = self._have_topics_changed(draft) or has_changed
        if has_changed:
            self._bump_epoch(draft)
        self._update_target(draft)
        updated = self._apply_target(draft, member_id, has_changed=has_changed)
        times = self._config.share_times(group.group_id)
        effects.set_deadline(
            DeadlineKey(DeadlineKind.SESSION, group.group_id, member_id),
            effects.now_ms + times.session_timeout_ms,
        )
        missing = uninitialized(
            draft.group, self._topics, effects.now_ms - self._config.share_initialize_retry_interval_ms
        )
        if missing:
            begin_initializing(draft, missing)
        response = ShareGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=updated.member_epoch,
            heartbeat_interval_ms=times.heartbeat_interval_ms,
        )
        if (
            request.member_epoch == JOIN_EPOCH
            or request.subscribed_topic_names is not None
            or updated.assigned != member.assigned
        ):
            response.assignment = _assignment(updated.assigned)
        if not missing:
            return ShareHeartbeat(response)
        partitions = {topic_id: topic.partitions for topic_id, topic in missing.items()}
        added = added_partitions(group, partitions)
        return ShareHeartbeat(response, StateToInitialize(partitions, draft.group.group_epoch, added))

    def leave(self, group: ShareGroup, request: ShareGroupHeartbeatRequest, effects: DecisionBuilder) -> ShareHeartbeat:
        """Remove a member that leaves. Refuses: UNKNOWN_MEMBER_ID."""
        member = group.members.get(request.member_id)
        if member is None:
            return refuse(*unknown_member(request.member_id, group.group_id))
        effects.note(log.info, "group_member_left", group_id=group.group_id, member_id=member.member_id)
        self._fence(STORED_SHARE_GROUPS.draft(group, effects), [member])
        return ShareHeartbeat(
            ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        )

    # Steps

    def _update_member(self, draft: ShareDraft, member: ShareMember) -> bool:
        """Write a member's description if it has changed. Returns whether its topics have changed."""
        previous = draft.group.members.get(member.member_id)
        if previous == member:
            return False
        draft.write(ShareGroupMemberMetadataKey(draft.group.group_id, member.member_id), member_value(member))
        return previous is None or previous.subscribed_topic_names != member.subscribed_topic_names

    def _have_topics_changed(self, draft: ShareDraft) -> bool:
        group = draft.group
        version = self._topics.version
        if group.checked_topics_version == version and group.members.keys() == draft.original.members.keys():
            return False
        if metadata_hash(group.subscribed_topics(), self._topics) != group.metadata_hash:
            return True
        draft.effects.changes.append(partial(setattr, draft.original, "checked_topics_version", version))
        return False

    def _bump_epoch(self, draft: ShareDraft) -> None:
        group = draft.group
        value = ShareGroupMetadataValue(
            epoch=group.group_epoch + 1, metadata_hash=metadata_hash(group.subscribed_topics(), self._topics)
        )
        draft.write(ShareGroupMetadataKey(group.group_id), value)
        draft.effects.note(log.debug, "group_epoch_bumped", group_id=group.group_id, group_epoch=value.epoch)

    def _update_target(self, draft: ShareDraft) -> None:
        """Make the target for the group's epoch, unless there is one or the last one is too recent."""
        group, now_ms = draft.group, draft.effects.now_ms
        interval_ms = self._config.share_times(group.group_id).assignment_interval_ms
        if group.assignment_epoch >= group.group_epoch or group.is_target_too_recent(interval_ms, now_ms):
            return
        subscriptions = {
            member_id: topic_ids(member.subscribed_topic_names, self._topics)
            for member_id, member in group.members.items()
        }
        draft.write_target(assign(subscriptions, group.assignable, group.target))
        draft.effects.note(
            log.info,
            "group_target_assigned",
            group_id=group.group_id,
            assignment_epoch=group.group_epoch,
            assignor=SIMPLE_ASSIGNOR,
        )

    def _apply_target(self, draft: ShareDraft, member_id: str, *, has_changed: bool) -> ShareMember:
        """Give a member its assignment in the target and return the member."""
        group = draft.group
        member = group.members[member_id]
        if member.member_epoch == group.assignment_epoch and not has_changed:
            return member
        subscribed = topic_ids(member.subscribed_topic_names, self._topics)
        target = group.target.get(member_id, NO_PARTITIONS)
        updated = replace(
            member, assigned={topic_id: numbers for topic_id, numbers in target.items() if topic_id in subscribed}
        )
        if member.member_epoch != group.assignment_epoch:
            updated = replace(updated, member_epoch=group.assignment_epoch, previous_member_epoch=member.member_epoch)
        if updated != member:
            draft.write(ShareGroupCurrentMemberAssignmentKey(group.group_id, member_id), current_value(updated))
        return updated

    def _fence(self, draft: ShareDraft, members: Collection[ShareMember]) -> None:
        """Remove members and begin a new epoch."""
        if not members:
            return
        for member in members:
            name = member.member_id
            group_id = draft.group.group_id
            draft.remove_member(name)
            draft.effects.clear_deadline(DeadlineKey(DeadlineKind.SESSION, group_id, name))
        self._bump_epoch(draft)
        draft.empty_target()

    # Time

    def start_sessions(self, group: ShareGroup, now_ms: int) -> None:
        """Give every member of a group just loaded a whole session for its next heartbeat."""
        session_timeout_ms = self._config.share_times(group.group_id).session_timeout_ms
        for member_id in group.members:
            key = DeadlineKey(DeadlineKind.SESSION, group.group_id, member_id)
            self._deadlines.set(key, now_ms + session_timeout_ms)

    def deadlines_passed(self, group: ShareGroup, due: Collection[DeadlineKey], effects: DecisionBuilder) -> None:
        """Remove the members whose sessions have ended, all in one step."""
        fenced = [group.members[key.member_id] for key in due if key.member_id in group.members]
        for member in fenced:
            effects.note(
                log.info,
                "group_member_removed",
                group_id=group.group_id,
                member_id=member.member_id,
                reason="session timed out",
            )
        self._fence(STORED_SHARE_GROUPS.draft(group, effects), fenced)


def begin_empty(draft: ShareDraft) -> None:
    """Write the records of a new group without members."""
    group = draft.group
    draft.write(ShareGroupMetadataKey(group.group_id), ShareGroupMetadataValue(epoch=group.group_epoch))
    draft.write(
        ShareGroupTargetAssignmentMetadataKey(group.group_id),
        ShareGroupTargetAssignmentMetadataValue(assignment_epoch=group.group_epoch),
    )


def refuse(error: ErrorCode, message: str | None = None) -> ShareHeartbeat:
    return ShareHeartbeat(ShareGroupHeartbeatResponse(error_code=error, error_message=message))


def _check_epoch(member: ShareMember, epoch: int) -> HeartbeatRefusal | None:
    """Refuse with FENCED_MEMBER_EPOCH any epoch but the member's, or the one before when the last reply was lost."""
    if epoch in (JOIN_EPOCH, member.member_epoch) or (
        epoch < member.member_epoch and epoch == member.previous_member_epoch
    ):
        return None
    return fenced_member(member.member_epoch, epoch, "share")


def _updated(member: ShareMember, request: ShareGroupHeartbeatRequest, sender: HeartbeatContext) -> ShareMember:
    names = request.subscribed_topic_names
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=sender.client_id,
        client_host=sender.client_host,
        subscribed_topic_names=member.subscribed_topic_names if names is None else frozenset(names),
    )


def _assignment(assigned: Assignment) -> ShareGroupHeartbeatAssignment:
    return ShareGroupHeartbeatAssignment(
        topic_partitions=[
            ShareGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in assigned.items()
        ]
    )


def described_share_group(group: ShareGroup, topics: TopicCatalogue) -> ShareGroupDescribedGroup:
    """Describe a group for ShareGroupDescribe, without topics that were deleted."""
    return ShareGroupDescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=SIMPLE_ASSIGNOR,
        members=[
            ShareGroupDescribeMember(
                member_id=member.member_id,
                rack_id=member.rack_id,
                member_epoch=member.member_epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.subscribed_topic_names),
                assignment=ShareGroupDescribeAssignment(
                    topic_partitions=[
                        ShareGroupDescribeTopicPartitions(topic_id, topic.name, sorted(member.assigned[topic_id]))
                        for topic_id in member.assigned
                        if (topic := topics.get_by_id(topic_id)) is not None
                    ]
                ),
            )
            for member in group.members.values()
        ],
    )
