"""Requests of the consumer group protocol: joining, staying, leaving; and the deadlines of members. Pure.

One kind of request is enough. A heartbeat carries the member's changes; the group may begin an epoch and make a new
target assignment; the member moves towards that; the reply holds its current assignment.
Source: KIP-848, KIP-1082 (member ids made by clients); Kafka's GroupCoordinatorService
(throwIfConsumerGroupHeartbeatRequestIsInvalid) and GroupMetadataManager (consumerGroupHeartbeat, consumerGroupLeave).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from fencepost.broker.group.consumer.group import ConsumerGroup, ConsumerMember, OwnedPartitions
from fencepost.broker.group.consumer.rebalance import ConsumerRebalance
from fencepost.broker.group.consumer.reconciliation import ReportedPartitions
from fencepost.broker.group.consumer.records import STORED_CONSUMER_GROUPS, current_value
from fencepost.broker.group.consumer.subscriptions import compile_regex
from fencepost.broker.group.decision_builder import (
    DeadlineKey,
    DeadlineKind,
    DecisionBuilder,
    GroupConfig,
    GroupDeadlines,
)
from fencepost.broker.group.modern import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    HeartbeatContext,
    MemberState,
)
from fencepost.broker.group.refusals import (
    HeartbeatRefusal,
    check_static,
    fenced_member,
    full_group,
    unknown_member,
    unreleased_instance,
)
from fencepost.broker.kernel.events import get_logger
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
    ConsumerGroupHeartbeatTopicPartitions,
)
from fencepost.protocol.stored.consumer_groups import ConsumerGroupCurrentMemberAssignmentKey

log = get_logger(__name__)

FIRST_VERSION_WITH_CLIENT_MEMBER_ID = 1  # KIP-1082


class ConsumerMembership:
    """Decisions about members of groups of the consumer protocol. The shard owns the groups."""

    def __init__(self, config: GroupConfig, deadlines: GroupDeadlines, rebalance: ConsumerRebalance) -> None:
        self._config = config
        self._deadlines = deadlines
        self._rebalance = rebalance

    # Heartbeats

    def check_request(self, request: ConsumerGroupHeartbeatRequest, version: int) -> HeartbeatRefusal | None:
        """Check a request by itself, without its group. Refuses: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR."""
        epoch = request.member_epoch
        needs_member_id = version >= FIRST_VERSION_WITH_CLIENT_MEMBER_ID or epoch > 0 or epoch == LEAVE_EPOCH
        reason = None
        if needs_member_id and not request.member_id.strip():
            reason = "MemberId can't be empty."
        elif not request.group_id.strip():
            reason = "GroupId can't be empty."
        elif request.instance_id is not None and not request.instance_id.strip():
            reason = "InstanceId can't be empty."
        elif request.rack_id is not None and not request.rack_id.strip():
            reason = "RackId can't be empty."
        elif epoch == JOIN_EPOCH:
            reason = _check_join(request)
        elif epoch == LEAVE_FOR_A_WHILE_EPOCH and request.instance_id is None:
            reason = "InstanceId can't be null."
        elif epoch < LEAVE_FOR_A_WHILE_EPOCH:
            reason = "MemberEpoch is invalid."
        if reason is not None:
            return HeartbeatRefusal(ErrorCode.INVALID_REQUEST, reason)
        assignors = self._config.consumer_assignors
        if request.server_assignor is not None and request.server_assignor not in assignors:
            return HeartbeatRefusal(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {request.server_assignor} is not supported. "
                f"Supported assignors: {', '.join(assignors)}.",
            )
        return None

    def heartbeat(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        sender: HeartbeatContext,
        effects: DecisionBuilder,
    ) -> ConsumerGroupHeartbeatResponse:
        """Handle the heartbeat with which a member joins or stays.

        Refuses: GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID,
        UNRELEASED_INSTANCE_ID, INVALID_REGULAR_EXPRESSION.
        """
        member_id = request.member_id or sender.new_member_id
        if len(group.members) >= self._config.consumer_max_size and member_id not in group.members:
            return refuse(*full_group(self._config.consumer_max_size, "consumer"))
        reported = _reported(request.topic_partitions)
        found = self._find(group, request, member_id, reported)
        if isinstance(found, HeartbeatRefusal):
            return refuse(*found)
        regex = request.subscribed_topic_regex
        if regex and (found is None or found.subscribed_topic_regex != regex) and compile_regex(regex) is None:
            return refuse(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex `{regex}` is not a valid regular expression.",
            )
        draft = STORED_CONSUMER_GROUPS.draft(group, effects)
        if found is None:
            member = ConsumerMember(member_id)
            effects.note(log.info, "group_member_joined", group_id=group.group_id, member_id=member_id)
        elif found.member_id != member_id:
            self._rebalance.replace_member(draft, found, member_id)
            member = draft.group.members[member_id]
            ids = {"member_id": member_id, "previous": found.member_id}
            effects.note(log.info, "group_member_replaced", group_id=group.group_id, **ids)
        else:
            member = found
        updated = self._rebalance.settle(
            draft, member, _updated(member, request, sender), reported, may_describe=sender.may_describe
        )
        effects.set_deadline(
            DeadlineKey(DeadlineKind.SESSION, group.group_id, member_id),
            effects.now_ms + self._config.consumer_times(group.group_id).session_timeout_ms,
        )
        is_full = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or regex is not None)
            and reported is not None
        )
        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=updated.member_epoch,
            heartbeat_interval_ms=draft.group.next_heartbeat_ms(
                self._config.consumer_times(group.group_id).heartbeat_interval_ms,
                effects.now_ms,
                is_settled=updated.is_reconciled_to(draft.group.group_epoch),
            ),
        )
        if request.member_epoch == JOIN_EPOCH or is_full or updated.assigned != member.assigned:
            response.assignment = _assignment(updated.assigned)
        return response

    def _find(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        member_id: str,
        reported: ReportedPartitions | None,
    ) -> ConsumerMember | HeartbeatRefusal | None:
        """Find the member of a request; for a static member that joins, the one it replaces. None for a new member."""
        is_joining = request.member_epoch == JOIN_EPOCH
        if request.instance_id is None:
            member = group.members.get(member_id)
            if member is None:
                return None if is_joining else unknown_member(member_id, group.group_id)
        else:
            member = group.static_member(request.instance_id)
            if is_joining:
                if member is None:
                    return group.members.get(member_id)
                if member.classic is None and member.member_epoch != LEAVE_FOR_A_WHILE_EPOCH:
                    return unreleased_instance(member_id, request.instance_id, member.member_id)
                return member
            refusal = check_static(member, member_id, request.instance_id)
            if refusal is not None:
                return refusal
            assert member is not None
        return _check_epoch(member, request.member_epoch, reported) or member

    # Leaving

    def leave(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, effects: DecisionBuilder
    ) -> ConsumerGroupHeartbeatResponse:
        """Remove a member, or mark a static one as absent. Refuses: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.instance_id is None:
            member = group.members.get(request.member_id)
            if member is None:
                return refuse(*unknown_member(request.member_id, group.group_id))
        else:
            member = group.static_member(request.instance_id)
            refusal = check_static(member, request.member_id, request.instance_id)
            if refusal is not None:
                return refuse(*refusal)
            assert member is not None
        draft = STORED_CONSUMER_GROUPS.draft(group, effects)
        effects.note(
            log.info,
            "group_member_left",
            group_id=group.group_id,
            member_id=member.member_id,
            is_back_soon=request.member_epoch == LEAVE_FOR_A_WHILE_EPOCH,
        )
        if request.member_epoch == LEAVE_FOR_A_WHILE_EPOCH:
            # It owns its partitions until its session ends. A member that returns under the instance id may commit in
            # any epoch.
            away = replace(
                member,
                member_epoch=LEAVE_FOR_A_WHILE_EPOCH,
                assigned={topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.assigned.items()},
                pending_revocation={},
            )
            key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group.group_id, member_id=member.member_id)
            draft.write(key, current_value(away))
        else:
            self._rebalance.fence(draft, [member])
        return response

    # Time

    def start_sessions(self, group: ConsumerGroup, now_ms: int) -> None:
        """Give every member of a group just loaded a whole session for its next heartbeat."""
        session_timeout_ms = self._config.consumer_times(group.group_id).session_timeout_ms
        for member in group.members.values():
            self._deadlines.set(
                DeadlineKey(DeadlineKind.SESSION, group.group_id, member.member_id), now_ms + session_timeout_ms
            )
            if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                self._deadlines.set(
                    DeadlineKey(DeadlineKind.REVOCATION, group.group_id, member.member_id),
                    now_ms + member.rebalance_timeout_ms,
                )

    def deadlines_passed(self, group: ConsumerGroup, due: Collection[DeadlineKey], effects: DecisionBuilder) -> None:
        """Remove the members whose deadlines have passed, all in one step."""
        fenced = {}
        for key in due:
            member = group.members.get(key.member_id)
            if member is None:
                continue
            if key.kind is DeadlineKind.REVOCATION and member.state is not MemberState.UNREVOKED_PARTITIONS:
                continue
            fenced[member.member_id] = member
            effects.note(
                log.info,
                "group_member_removed",
                group_id=group.group_id,
                member_id=member.member_id,
                reason=_REASONS[key.kind],
            )
        self._rebalance.fence(STORED_CONSUMER_GROUPS.draft(group, effects), list(fenced.values()))

    def stay(self, group: ConsumerGroup, effects: DecisionBuilder) -> None:
        """Keep the group in the consumer protocol, because a member joined before it could become classic. Begins the
        epoch that the departure of the last such member has made due.
        """
        self._rebalance.begin_epoch(STORED_CONSUMER_GROUPS.draft(group, effects))


_REASONS = {
    DeadlineKind.SESSION: "session timed out",
    DeadlineKind.REVOCATION: "did not give its partitions up in time",
    DeadlineKind.CLASSIC_JOIN: "did not join in time",
    DeadlineKind.CLASSIC_SYNC: "did not sync in time",
}


def refuse(error: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error, error_message=message)


def _check_join(request: ConsumerGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None


def _check_epoch(member: ConsumerMember, epoch: int, reported: ReportedPartitions | None) -> HeartbeatRefusal | None:
    """Refuse with FENCED_MEMBER_EPOCH any epoch but the member's, or the one before when the last reply was lost."""
    if epoch in (JOIN_EPOCH, member.member_epoch):
        return None
    is_repeated = (
        epoch < member.member_epoch
        and epoch == member.previous_member_epoch
        and reported is not None
        and all(
            set(partitions) <= member.assigned.get(topic_id, {}).keys() for topic_id, partitions in reported.items()
        )
    )
    if is_repeated:
        return None
    return fenced_member(member.member_epoch, epoch, "consumer")


def _updated(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, sender: HeartbeatContext
) -> ConsumerMember:
    """Return the member with the changes of the request; None and -1 mean no change."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        client_id=sender.client_id,
        client_host=sender.client_host,
        subscribed_topic_names=member.subscribed_topic_names if names is None else frozenset(names),
        subscribed_topic_regex=member.subscribed_topic_regex if regex is None else regex,
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        classic=None,
    )


def _reported(topics: Iterable[ConsumerGroupHeartbeatTopicPartitions] | None) -> dict[bytes, set[int]] | None:
    return None if topics is None else {topic.topic_id: set(topic.partitions) for topic in topics}


def _assignment(assigned: OwnedPartitions) -> ConsumerGroupHeartbeatResponseAssignment:
    return ConsumerGroupHeartbeatResponseAssignment(
        topic_partitions=[
            ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in assigned.items()
        ]
    )
