"""Members of the classic protocol in a group of the consumer protocol: the broker assigns to them, too. Pure.

JoinGroup carries a member's subscription and owned partitions, SyncGroup returns its assignment, and the reply to
Heartbeat makes it join again. No member waits for another.
Source: KIP-848, section on migration; Kafka's GroupMetadataManager (classicGroupJoinToConsumerGroup,
classicGroupSyncToConsumerGroup, classicGroupHeartbeatToConsumerGroup, classicGroupLeaveToConsumerGroup).
"""

from __future__ import annotations

from dataclasses import replace

from fencepost.broker.group.classic.group import CONSUMER_PROTOCOL_TYPE, Protocols
from fencepost.broker.group.classic.membership import JoinContext, protocols_of, rebalance_timeout_ms_of
from fencepost.broker.group.classic.rebalance import refuse_join, refuse_sync
from fencepost.broker.group.consumer.group import ClassicSpeaker, ConsumerGroup, ConsumerMember
from fencepost.broker.group.consumer.migration import classic_assignment, partitions_by_id
from fencepost.broker.group.consumer.rebalance import ConsumerRebalance
from fencepost.broker.group.consumer.records import STORED_CONSUMER_GROUPS
from fencepost.broker.group.consumer.subscriptions import TopicCatalogue
from fencepost.broker.group.decision_builder import DeadlineKey, DeadlineKind, DecisionBuilder, GroupConfig
from fencepost.broker.group.modern import MemberState
from fencepost.broker.group.refusals import check_static
from fencepost.broker.kernel.events import get_logger
from fencepost.protocol.consumer_protocol import ConsumerProtocolSubscription, decode_subscription
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
from fencepost.protocol.primitives import DecodeError

log = get_logger(__name__)


class ClassicMembersOfConsumerGroups:
    """Decisions about these members. The shard owns the groups."""

    def __init__(self, config: GroupConfig, rebalance: ConsumerRebalance, topics: TopicCatalogue) -> None:
        self._config = config
        self._rebalance = rebalance
        self._topics = topics

    # Joining

    def join(
        self, group: ConsumerGroup, request: JoinGroupRequest, joiner: JoinContext, effects: DecisionBuilder
    ) -> JoinGroupResponse:
        """Reply immediately, with the member's epoch as the generation.

        Refuses: GROUP_MAX_SIZE_REACHED, INCONSISTENT_GROUP_PROTOCOL, MEMBER_ID_REQUIRED, UNKNOWN_MEMBER_ID,
        FENCED_INSTANCE_ID.
        """
        is_new = not request.member_id
        instance_id = request.group_instance_id
        prefix = joiner.client_id if instance_id is None else instance_id
        member_id = f"{prefix}-{joiner.member_id_suffix}" if is_new else request.member_id
        protocols = protocols_of(request)
        if len(group.members) >= self._config.consumer_max_size and member_id not in group.members:
            return refuse_join(ErrorCode.GROUP_MAX_SIZE_REACHED, request.member_id)
        subscription = _subscription(group, request.protocol_type, protocols)
        if subscription is None:
            return refuse_join(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        if is_new and instance_id is None and joiner.requires_known_member_id:
            return refuse_join(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        found = group.members.get(member_id) if instance_id is None else group.static_member(instance_id)
        if instance_id is not None and not is_new:
            refusal = check_static(found, member_id, instance_id)
            if refusal is not None:
                return refuse_join(refusal.error, member_id)
        draft = STORED_CONSUMER_GROUPS.draft(group, effects)
        is_replacing = found is not None and found.member_id != member_id
        if found is not None and is_replacing:
            self._rebalance.replace_member(draft, found, member_id)
            found = draft.group.members[member_id]
        member = found or ConsumerMember(member_id)
        rebalance_timeout_ms = rebalance_timeout_ms_of(request)
        described = replace(
            member,
            instance_id=member.instance_id if instance_id is None else instance_id,
            rack_id=member.rack_id if subscription.rack_id is None else subscription.rack_id,
            rebalance_timeout_ms=rebalance_timeout_ms,
            client_id=joiner.client_id,
            client_host=joiner.client_host,
            subscribed_topic_names=frozenset(subscription.topics),
            subscribed_topic_regex="",
            classic=ClassicSpeaker(request.session_timeout_ms, protocols),
        )
        owned = partitions_by_id(subscription.owned_partitions, self._topics)
        updated = self._rebalance.settle(draft, member, described, owned)
        if is_replacing:
            self._rebalance.become_classic_if_possible(draft)
        effects.clear_deadline(DeadlineKey(DeadlineKind.CLASSIC_JOIN, group.group_id, member_id))
        effects.set_deadline(
            DeadlineKey(DeadlineKind.CLASSIC_SYNC, group.group_id, member_id), effects.now_ms + rebalance_timeout_ms
        )
        self._restart_session(group, member_id, request.session_timeout_ms, effects)
        return JoinGroupResponse(
            generation_id=updated.member_epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=protocols[0][0],
            member_id=member_id,
        )

    # Syncing

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest, effects: DecisionBuilder) -> SyncGroupResponse:
        """Reply with the member's current assignment.

        Refuses: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL,
        REBALANCE_IN_PROGRESS.
        """
        found = _find(group, request.member_id, request.group_instance_id, request.generation_id)
        if isinstance(found, ErrorCode):
            return refuse_sync(found)
        member, classic = found
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (
            None,
            classic.protocols[0][0],
        ):
            return refuse_sync(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        # A member that has to revoke partitions has joined already; it joins again after the revocation.
        if group.assignment_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_join(group, member, effects)
            return refuse_sync(ErrorCode.REBALANCE_IN_PROGRESS)
        effects.clear_deadline(DeadlineKey(DeadlineKind.CLASSIC_SYNC, group.group_id, member.member_id))
        self._restart_session(group, member.member_id, classic.session_timeout_ms, effects)
        return SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=classic_assignment(member.assigned, classic, self._topics),
        )

    # Staying and leaving

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, effects: DecisionBuilder) -> ErrorCode:
        """Return REBALANCE_IN_PROGRESS when the member has to join again to get or to revoke partitions."""
        found = _find(group, request.member_id, request.group_instance_id, request.generation_id)
        if isinstance(found, ErrorCode):
            return found
        member, classic = found
        self._restart_session(group, member.member_id, classic.session_timeout_ms, effects)
        has_to_join = (
            member.member_epoch < group.assignment_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.is_waiting_for_others(member))
        )
        if not has_to_join:
            return ErrorCode.NONE
        self._expect_join(group, member, effects)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def leave(
        self, group: ConsumerGroup, leaving: list[MemberIdentity], effects: DecisionBuilder
    ) -> LeaveGroupResponse:
        """Remove members of either protocol, named by member id, or, by administrators, by instance id alone."""
        responses = []
        left: dict[str, ConsumerMember] = {}
        for identity in leaving:
            error = ErrorCode.NONE
            instance_id = identity.group_instance_id
            member = group.members.get(identity.member_id) if instance_id is None else group.static_member(instance_id)
            if member is None:
                error = ErrorCode.UNKNOWN_MEMBER_ID
            elif identity.member_id and member.member_id != identity.member_id:
                error = ErrorCode.FENCED_INSTANCE_ID
            else:
                left[member.member_id] = member
                effects.note(
                    log.info,
                    "group_member_left",
                    group_id=group.group_id,
                    member_id=member.member_id,
                    reason=identity.reason,
                )
            responses.append(
                MemberResponse(member_id=identity.member_id, group_instance_id=instance_id, error_code=error)
            )
        self._rebalance.fence(STORED_CONSUMER_GROUPS.draft(group, effects), list(left.values()))
        return LeaveGroupResponse(members=responses)

    def _expect_join(self, group: ConsumerGroup, member: ConsumerMember, effects: DecisionBuilder) -> None:
        key = DeadlineKey(DeadlineKind.CLASSIC_JOIN, group.group_id, member.member_id)
        if effects.deadline_ms(key) is None:
            effects.set_deadline(key, effects.now_ms + member.rebalance_timeout_ms)

    def _restart_session(
        self, group: ConsumerGroup, member_id: str, session_timeout_ms: int, effects: DecisionBuilder
    ) -> None:
        key = DeadlineKey(DeadlineKind.SESSION, group.group_id, member_id)
        effects.set_deadline(key, effects.now_ms + session_timeout_ms)


def _find(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
) -> tuple[ConsumerMember, ClassicSpeaker] | ErrorCode:
    """Find a classic member. Refuses: UNKNOWN_MEMBER_ID (also for a member of the consumer protocol),
    FENCED_INSTANCE_ID, ILLEGAL_GENERATION."""
    member = group.members.get(member_id)
    if instance_id is not None:
        member = group.static_member(instance_id)
        refusal = check_static(member, member_id, instance_id)
        if refusal is not None:
            return refusal.error
    if member is None or member.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return (member, member.classic) if generation_id == member.member_epoch else ErrorCode.ILLEGAL_GENERATION


def _subscription(
    group: ConsumerGroup, protocol_type: str, protocols: Protocols
) -> ConsumerProtocolSubscription | None:
    """Return the joining member's subscription; None when the group's classic members share no protocol with it, its
    protocol type is not that of consumers, or the subscription is malformed.
    """
    if protocol_type != CONSUMER_PROTOCOL_TYPE or not protocols:
        return None
    others = [member.classic for member in group.members.values() if member.classic is not None]
    spoken = [{name for name, _ in other.protocols} for other in others]
    if not any(all(name in names for names in spoken) for name, _ in protocols):
        return None
    try:
        return decode_subscription(protocols[0][1])
    except DecodeError:
        return None
