"""Rebalances of groups of the consumer protocol: new epochs, target assignments, and members' moves to them. Pure.

A member's request triggers the steps; each works on the draft that the steps before have changed.
Source: KIP-848; Kafka's GroupMetadataManager (maybeUpdateRegularExpressions, updateSubscriptionMetadata,
maybeUpdateTargetAssignment, maybeReconcile, consumerGroupFenceMembers, replaceMember) and TargetAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

from fencepost.broker.group.consumer.assignors import ASSIGNORS, AssignorMember
from fencepost.broker.group.consumer.group import ConsumerMember, ResolvedRegex
from fencepost.broker.group.consumer.migration import can_become_classic
from fencepost.broker.group.consumer.reconciliation import ReportedPartitions, reconcile
from fencepost.broker.group.consumer.records import (
    ConsumerGroupDraft,
    current_value,
    member_value,
    regex_value,
    target_value,
)
from fencepost.broker.group.consumer.subscriptions import TopicCatalogue, matching_topics, metadata_hash, topic_ids
from fencepost.broker.group.decision_builder import DeadlineKey, DeadlineKind, GroupConfig
from fencepost.broker.group.modern import JOIN_EPOCH, NO_PARTITIONS, Assignment, MemberState, every_name
from fencepost.broker.kernel.events import get_logger
from fencepost.protocol.stored.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
)

log = get_logger(__name__)

REGEX_REFRESH_MIN_INTERVAL_MS = 10_000  # topics may come by the hundred; Kafka's REGEX_BATCH_REFRESH_MIN_INTERVAL_MS


class ConsumerRebalance:
    """Steps of a rebalance. The membership classes choose the steps for each request."""

    def __init__(self, config: GroupConfig, topics: TopicCatalogue) -> None:
        self._config = config
        self._topics = topics

    # Members

    def settle(
        self,
        draft: ConsumerGroupDraft,
        member: ConsumerMember,
        described: ConsumerMember,
        reported: ReportedPartitions | None,
        *,
        may_describe: Callable[[str], bool] = every_name,
    ) -> ConsumerMember:
        """Write the member's description, update the group's epoch and target, and reconcile the member.

        member:    present state; a new member has only its id. described: the member's own description in this request.
        may_describe: whether the member's client may see a topic; for the matches of regular expressions.
        """
        has_subscription_changed = (
            self._update_member(draft, described) or member.subscribed_topic_regex != described.subscribed_topic_regex
        )
        have_matches_changed = self._resolve_regexes(draft, may_describe)
        if has_subscription_changed or have_matches_changed or self._have_topics_changed(draft):
            self.begin_epoch(draft)
        self._update_target(draft)
        return self._reconcile(
            draft, described.member_id, has_subscription_changed=has_subscription_changed, reported=reported
        )

    def _update_member(self, draft: ConsumerGroupDraft, member: ConsumerMember) -> bool:
        """Write a member's description if it has changed. Returns whether the names of its topics have changed."""
        previous = draft.group.members.get(member.member_id)
        if previous == member:
            return False
        draft.write(ConsumerGroupMemberMetadataKey(draft.group.group_id, member.member_id), member_value(member))
        # A member that joins without topics changes no other member's assignment.
        known_names = frozenset() if previous is None else previous.subscribed_topic_names
        return known_names != member.subscribed_topic_names

    def replace_member(self, draft: ConsumerGroupDraft, previous: ConsumerMember, member_id: str) -> None:
        """Move a static member's current and target assignment to the new member id of another process."""
        target = draft.group.target.get(previous.member_id, NO_PARTITIONS)
        member = replace(previous, member_id=member_id, member_epoch=JOIN_EPOCH, previous_member_epoch=JOIN_EPOCH)
        draft.remove_member(previous.member_id)
        draft.write(ConsumerGroupMemberMetadataKey(draft.group.group_id, member_id), member_value(member))
        draft.write(ConsumerGroupTargetAssignmentMemberKey(draft.group.group_id, member_id), target_value(target))
        draft.write(ConsumerGroupCurrentMemberAssignmentKey(draft.group.group_id, member_id), current_value(member))
        self.clear_deadlines(draft, previous.member_id)

    def fence(self, draft: ConsumerGroupDraft, members: Collection[ConsumerMember]) -> None:
        """Remove members, free their partitions immediately, and begin a new epoch. If only classic members are left,
        the group becomes classic in its current epoch instead.
        """
        if not members:
            return
        for member in members:
            draft.remove_member(member.member_id)
            self.clear_deadlines(draft, member.member_id)
        self._drop_unused_regexes(draft)
        if not self.become_classic_if_possible(draft):
            self.begin_epoch(draft)
            draft.empty_target()

    def become_classic_if_possible(self, draft: ConsumerGroupDraft) -> bool:
        """Schedule the conversion to a classic group, as a separate decision, if only classic members are left."""
        is_possible = can_become_classic(draft.group, self._config)
        if is_possible:
            draft.effects.set_deadline(DeadlineKey(DeadlineKind.DOWNGRADE, draft.group.group_id), draft.effects.now_ms)
        return is_possible

    def clear_deadlines(self, draft: ConsumerGroupDraft, member_id: str) -> None:
        for kind in (
            DeadlineKind.SESSION,
            DeadlineKind.REVOCATION,
            DeadlineKind.CLASSIC_JOIN,
            DeadlineKind.CLASSIC_SYNC,
        ):
            draft.effects.clear_deadline(DeadlineKey(kind, draft.group.group_id, member_id))

    # Subscriptions of the group

    def _resolve_regexes(self, draft: ConsumerGroupDraft, may_describe: Callable[[str], bool]) -> bool:
        """Match the topics against the members' regular expressions that are new or older than the topics. Returns
        whether any match has changed.
        """
        self._drop_unused_regexes(draft)
        group, original, now_ms = draft.group, draft.original, draft.effects.now_ms
        regexes = group.subscribed_regexes()
        wanted = regexes - group.regexes.keys()
        is_refresh = regexes and self._is_refresh_due(draft)
        if is_refresh:
            wanted = regexes
        has_changed = False
        for regex in sorted(wanted):
            found = matching_topics(regex, self._topics, may_describe)
            known = group.regexes.get(regex)
            if known is None or known.topics != found:
                has_changed = True
                key = ConsumerGroupRegularExpressionKey(group_id=group.group_id, regular_expression=regex)
                draft.write(key, regex_value(ResolvedRegex(found, self._topics.version, now_ms)))
        if is_refresh:
            changes = draft.effects.changes
            changes.append(partial(setattr, original, "checked_regexes_ms", now_ms))
            if not has_changed:
                changes.append(partial(setattr, original, "checked_regexes_version", self._topics.version))
        return has_changed

    def _is_refresh_due(self, draft: ConsumerGroupDraft) -> bool:
        original = draft.original
        if original.checked_regexes_version == self._topics.version:
            return False
        resolved_ms = max((resolved.timestamp_ms for resolved in draft.group.regexes.values()), default=0)
        return draft.effects.now_ms >= max(resolved_ms, original.checked_regexes_ms) + REGEX_REFRESH_MIN_INTERVAL_MS

    def _drop_unused_regexes(self, draft: ConsumerGroupDraft) -> None:
        group = draft.group
        if not group.regexes:
            return
        for regex in sorted(group.regexes.keys() - group.subscribed_regexes()):
            draft.write(ConsumerGroupRegularExpressionKey(group_id=group.group_id, regular_expression=regex), None)

    def _have_topics_changed(self, draft: ConsumerGroupDraft) -> bool:
        """Return whether a subscribed topic was created, deleted or given partitions since the epoch began."""
        group, original, version = draft.group, draft.original, self._topics.version
        if group is original and original.checked_topics_version == version:
            return False
        has_changed = metadata_hash(group.subscribed_topics(), self._topics) != group.metadata_hash
        if not has_changed and group is original:
            draft.effects.changes.append(partial(setattr, original, "checked_topics_version", version))
        return has_changed

    def begin_epoch(self, draft: ConsumerGroupDraft) -> None:
        """Begin a new epoch, which needs a new target assignment."""
        group = draft.group
        group_epoch = group.group_epoch + 1
        draft.write(
            ConsumerGroupMetadataKey(group_id=group.group_id),
            ConsumerGroupMetadataValue(
                epoch=group_epoch, metadata_hash=metadata_hash(group.subscribed_topics(), self._topics)
            ),
        )
        if group.has_partition_metadata:
            draft.write(ConsumerGroupPartitionMetadataKey(group_id=group.group_id), None)
        draft.effects.note(
            log.info,
            "group_epoch_bumped",
            group_id=group.group_id,
            group_epoch=group_epoch,
            members=len(draft.group.members),
        )

    # The target

    def _update_target(self, draft: ConsumerGroupDraft) -> None:
        """Make the target assignment for the group's epoch, unless the last one is too recent."""
        group, now_ms = draft.group, draft.effects.now_ms
        if group.assignment_epoch >= group.group_epoch:
            return
        interval_ms = self._config.consumer_times(group.group_id).assignment_interval_ms
        if group.is_target_too_recent(interval_ms, now_ms):
            return
        assignor = group.preferred_assignor(self._config.consumer_assignors[0])
        draft.write_target(self._assign(draft, assignor))
        draft.effects.note(
            log.info,
            "group_target_assigned",
            group_id=group.group_id,
            assignment_epoch=group.group_epoch,
            assignor=assignor,
        )

    def _assign(self, draft: ConsumerGroupDraft, assignor: str) -> dict[str, Assignment]:
        group = draft.group
        ids_of: dict[frozenset[str], frozenset[bytes]] = {}
        partition_counts: dict[bytes, int] = {}
        subscribers = {}
        for member_id, member in group.members.items():
            names = group.subscription_of(member)
            ids = ids_of.get(names)
            if ids is None:
                found = [topic for topic in map(self._topics.get, names) if topic is not None]
                partition_counts.update((topic.topic_id, topic.partition_count) for topic in found)
                ids = ids_of[names] = frozenset(topic.topic_id for topic in found)
            subscribers[member_id] = AssignorMember(ids, group.target.get(member_id, NO_PARTITIONS), member.instance_id)
        return ASSIGNORS[assignor](subscribers, partition_counts)

    def _reconcile(
        self,
        draft: ConsumerGroupDraft,
        member_id: str,
        *,
        has_subscription_changed: bool,
        reported: ReportedPartitions | None,
    ) -> ConsumerMember:
        """Move one member towards the target and return it."""
        group = draft.group
        member = group.members[member_id]
        if not has_subscription_changed and member.is_reconciled_to(group.assignment_epoch):
            return member
        reconciled = reconcile(
            member,
            target_epoch=group.assignment_epoch,
            target=group.target.get(member_id, NO_PARTITIONS),
            subscribed_topic_ids=topic_ids(group.subscription_of(member), self._topics),
            has_subscription_changed=has_subscription_changed,
            owner=group.owner,
            reported=reported,
        )
        if reconciled is member:
            return member
        draft.write(ConsumerGroupCurrentMemberAssignmentKey(draft.group.group_id, member_id), current_value(reconciled))
        if reconciled.classic is None:
            key = DeadlineKey(DeadlineKind.REVOCATION, group.group_id, member_id)
            if reconciled.state is MemberState.UNREVOKED_PARTITIONS:
                draft.effects.set_deadline(key, draft.effects.now_ms + reconciled.rebalance_timeout_ms)
            else:
                draft.effects.clear_deadline(key)
        return reconciled
