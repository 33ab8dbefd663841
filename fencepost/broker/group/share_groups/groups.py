"""Decisions about share groups in one shard of the group coordinator, and the effects of their records. Pure.

Source: KIP-932; the share groups of Kafka's GroupCoordinatorShard and GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, MutableMapping
from typing import NamedTuple

from fencepost.broker.coordination.shard import CoordinatorRecord, Decision, RecordOrigin
from fencepost.broker.group.consumer.subscriptions import TopicCatalogue
from fencepost.broker.group.decision_builder import DeadlineKey, DecisionBuilder, GroupConfig, GroupDeadlines
from fencepost.broker.group.kinds import Group
from fencepost.broker.group.modern import JOIN_EPOCH, Assignment, HeartbeatContext
from fencepost.broker.group.offsets.decisions import DECISION_RECORDS_BYTES
from fencepost.broker.group.refusals import HeartbeatRefusal, no_such_group
from fencepost.broker.group.share_groups.group import ShareGroup, StatePartitions
from fencepost.broker.group.share_groups.membership import (
    ShareHeartbeat,
    ShareMembership,
    StateToInitialize,
    begin_empty,
    check_request,
    described_share_group,
    refuse,
)
from fencepost.broker.group.share_groups.records import STORED_SHARE_GROUPS, ShareDraft, group_tombstones
from fencepost.broker.group.share_groups.share_state_initialization import (
    Partitions,
    begin_deleting,
    begin_initializing,
    drop_topics,
    finish_deleting,
    finish_initializing,
    give_up_initializing,
)
from fencepost.broker.kernel.events import get_logger
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.share_groups import ShareGroupDescribedGroup, ShareGroupHeartbeatRequest

log = get_logger(__name__)

MAX_GROUPS_PER_DECISION = 1_000


class OffsetDeletion(NamedTuple):
    """Share partitions whose state has to be deleted, and the requested topics that have none."""

    partitions: Mapping[bytes, Collection[int]]
    without_state: Collection[str]


class ShareGroups:
    """Decisions about the share groups of a shard.

    groups: all groups of the shard. find: returns a group as it is, also one that only has offsets.
    """

    def __init__(
        self,
        config: GroupConfig,
        deadlines: GroupDeadlines,
        topics: TopicCatalogue,
        groups: MutableMapping[str, Group],
        find: Callable[[str], Group | None],
    ) -> None:
        self._deadlines = deadlines
        self._topics = topics
        self._groups = groups
        self._find = find
        self._membership = ShareMembership(config, deadlines, topics)

    def _share_group(self, group_id: str) -> ShareGroup | HeartbeatRefusal:
        """Find a share group. Refuses: GROUP_ID_NOT_FOUND, also for a group of another kind."""
        group = self._find(group_id)
        if isinstance(group, ShareGroup):
            return group
        return no_such_group(group_id, group, "share")

    def _empty_group(self, group_id: str) -> ShareGroup | HeartbeatRefusal:
        """Find a share group without members. Refuses: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        group = self._share_group(group_id)
        if isinstance(group, ShareGroup) and group.members:
            return HeartbeatRefusal(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
        return group

    # Members

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, sender: HeartbeatContext, now_ms: int
    ) -> Decision[ShareHeartbeat]:
        """Handle the heartbeat with which a member joins, stays or leaves.

        Refuses: INVALID_REQUEST, GROUP_ID_NOT_FOUND, and the errors of `ShareMembership`.
        """
        refusal = check_request(request)
        if refusal is not None:
            return Decision(refuse(*refusal))
        found = self._share_group(request.group_id)
        effects = DecisionBuilder(now_ms, self._deadlines)
        if request.member_epoch < JOIN_EPOCH:
            if isinstance(found, HeartbeatRefusal):
                return Decision(refuse(*found))
            return effects.decision(self._membership.leave(found, request, effects))
        if isinstance(found, HeartbeatRefusal):
            if self._find(request.group_id) is not None:
                return Decision(refuse(*found))
            if request.member_epoch != JOIN_EPOCH:
                return Decision(refuse(found.error, f"Share group {request.group_id} not found."))
            found = ShareGroup(request.group_id)
        heartbeat = self._membership.heartbeat(found, request, sender, effects)
        return Decision(heartbeat) if heartbeat.response.error_code else effects.decision(heartbeat)

    def describe(self, group_id: str) -> ShareGroupDescribedGroup:
        """Describe a share group. Refuses: GROUP_ID_NOT_FOUND, also for a group of another kind."""
        group = self._share_group(group_id)
        if isinstance(group, HeartbeatRefusal):
            return ShareGroupDescribedGroup(group_id=group_id, error_code=group.error, error_message=group.message)
        return described_share_group(group, self._topics)

    def decide_describe(self, group_id: str) -> Decision[ShareGroupDescribedGroup]:
        return Decision(self.describe(group_id))

    def deadlines_passed(self, group: ShareGroup, due: Collection[DeadlineKey], effects: DecisionBuilder) -> None:
        self._membership.deadlines_passed(group, due, effects)

    # Share partitions

    def initialized(self, group_id: str, partitions: Partitions, now_ms: int) -> Decision[None]:
        """Write down that share partitions have state."""
        return self._change(group_id, lambda draft: finish_initializing(draft, partitions, self._topics), now_ms)

    def not_initialized(self, group_id: str, partitions: Partitions, now_ms: int) -> Decision[None]:
        """Write down that the initialization of share partitions failed."""
        return self._change(group_id, lambda draft: give_up_initializing(draft, partitions), now_ms)

    def begin_altering(
        self, group_id: str, partitions: Partitions, now_ms: int
    ) -> Decision[StateToInitialize | HeartbeatRefusal]:
        """Begin to alter the start offsets of share partitions; this creates a group that does not exist.

        Refuses: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND (of another kind).
        """
        found = self._empty_group(group_id)
        if isinstance(found, HeartbeatRefusal):
            if found.error is ErrorCode.NON_EMPTY_GROUP or self._find(group_id) is not None:
                return Decision(found)
            found, is_new = ShareGroup(group_id), True
        else:
            is_new = False
        effects = DecisionBuilder(now_ms, self._deadlines)
        topics = {}
        for topic_id, numbers in partitions.items():
            topic = self._topics.get_by_id(topic_id)
            if topic is not None:
                topics[topic_id] = StatePartitions(topic.name, frozenset(numbers))
        if topics:
            draft = STORED_SHARE_GROUPS.draft(found, effects)
            if is_new:
                begin_empty(draft)
            begin_initializing(draft, topics)
        return effects.decision(StateToInitialize(partitions, found.group_epoch))

    def begin_deleting(
        self, group_id: str, names: Collection[str] | None, now_ms: int
    ) -> Decision[OffsetDeletion | HeartbeatRefusal]:
        """Begin to delete the state of topics; None for all. Refuses: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
        found = self._empty_group(group_id)
        if isinstance(found, HeartbeatRefusal):
            return Decision(found)
        if found.state_partitions is None:
            return Decision(OffsetDeletion({}, () if names is None else names))
        effects = DecisionBuilder(now_ms, self._deadlines)
        to_delete, without_state = begin_deleting(STORED_SHARE_GROUPS.draft(found, effects), names, self._topics)
        return effects.decision(OffsetDeletion(to_delete, without_state))

    def deleted(self, group_id: str, topic_ids: Collection[bytes], now_ms: int) -> Decision[None]:
        """Write down that the state of topics is deleted."""
        return self._change(group_id, lambda draft: finish_deleting(draft, topic_ids), now_ms)

    def state_partitions(self, group_id: str) -> dict[bytes, frozenset[int]]:
        """Return the share partitions of a group that have state; none for an unknown group."""
        group = self._share_group(group_id)
        return dict(group.assignable) if isinstance(group, ShareGroup) else {}

    def decide_state_partitions(self, group_id: str) -> Decision[Assignment]:
        return Decision(self.state_partitions(group_id))

    def drop_topics(
        self, is_deleted: Callable[[bytes], bool], group_ids: list[str], now_ms: int
    ) -> Decision[list[str]]:
        """Remove deleted topics from these groups, a bounded number of groups at a time. Returns the groups that
        remain."""
        effects = DecisionBuilder(now_ms, self._deadlines)
        size_bytes = examined_count = 0
        for group_id in group_ids:
            if size_bytes >= DECISION_RECORDS_BYTES or examined_count >= MAX_GROUPS_PER_DECISION:
                break
            examined_count += 1
            group = self._groups.get(group_id)
            if isinstance(group, ShareGroup):
                step = DecisionBuilder(now_ms, self._deadlines)
                drop_topics(STORED_SHARE_GROUPS.draft(group, step), is_deleted)
                size_bytes += step.size_bytes
                effects.add(step)
        return effects.decision(group_ids[examined_count:])

    def _change(self, group_id: str, change: Callable[[ShareDraft], None], now_ms: int) -> Decision[None]:
        group = self._share_group(group_id)
        effects = DecisionBuilder(now_ms, self._deadlines)
        if isinstance(group, ShareGroup):
            change(STORED_SHARE_GROUPS.draft(group, effects))
        return effects.decision(None)

    # The log

    def apply(self, key_bytes: bytes, value: bytes | None, origin: RecordOrigin) -> bool:
        """Apply a record of a share group; return False for any other record. Raises DecodeError."""
        return STORED_SHARE_GROUPS.apply(self._groups, key_bytes, value, origin)

    def start_sessions(self, group: ShareGroup, now_ms: int) -> None:
        self._membership.start_sessions(group, now_ms)

    def tombstones(self, group: ShareGroup) -> list[CoordinatorRecord]:
        """Return the records that remove a group."""
        return group_tombstones(group)
