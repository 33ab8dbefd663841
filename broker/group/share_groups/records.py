"""Records of a share group: encoding, checks, and their effects on the group. Pure.

Source: Kafka's GroupCoordinatorRecordHelpers, and GroupMetadataManager.replay for the ShareGroup records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from fencepost.broker.coordination.shard import CoordinatorRecord
from fencepost.broker.group.consumer.group import LEAVE_EPOCH, TARGET_DELETED_EPOCH, Assignment
from fencepost.broker.group.consumer.records import check_epoch, check_partitions
from fencepost.broker.group.draft import GroupDraft
from fencepost.broker.group.share_groups.group import (
    ShareGroup,
    ShareMember,
    ShareStatePartitions,
    StatePartitions,
    StateTopics,
)
from fencepost.protocol.stored.share_groups import (
    SHARE_GROUP_RECORDS,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareTopicInfo,
    ShareTopicPartitions,
    ShareTopicPartitionsInfo,
)


class ShareDraft(GroupDraft[ShareGroup, ShareGroupKey]):
    """Draft of a share group."""

    __slots__ = ()

    def _apply_record(self, key: ShareGroupKey, value: Any | None) -> CoordinatorRecord:
        apply(self.group, key, value, self.effects.now_ms)
        return CoordinatorRecord(*SHARE_GROUP_RECORDS.encode(key, value))


# Values


def member_value(member: ShareMember) -> ShareGroupMemberMetadataValue:
    return ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
    )


def current_value(member: ShareMember) -> ShareGroupCurrentMemberAssignmentValue:
    return ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=0,
        assigned_partitions=_topic_partitions(member.assigned),
    )


def target_value(assignment: Assignment) -> ShareGroupTargetAssignmentMemberValue:
    return ShareGroupTargetAssignmentMemberValue(topic_partitions=_topic_partitions(assignment))


def state_partitions_value(state: ShareStatePartitions) -> ShareGroupStatePartitionMetadataValue:
    return ShareGroupStatePartitionMetadataValue(
        initializing_topics=_infos(state.initializing),
        initialized_topics=_infos(state.initialized),
        deleting_topics=[ShareTopicInfo(topic_id, name) for topic_id, name in state.deleting.items()],
    )


def _topic_partitions(assignment: Assignment) -> list[ShareTopicPartitions]:
    return [ShareTopicPartitions(topic_id, sorted(partitions)) for topic_id, partitions in assignment.items()]


def _infos(topics: StateTopics) -> list[ShareTopicPartitionsInfo]:
    return [
        ShareTopicPartitionsInfo(topic_id, topic.name, sorted(topic.partitions)) for topic_id, topic in topics.items()
    ]


def group_tombstones(group: ShareGroup) -> list[CoordinatorRecord]:
    """Return the records that remove a group and all its state. Kafka's order: members before their group."""
    group_id = group.group_id
    keys: list[ShareGroupKey] = [
        *(ShareGroupCurrentMemberAssignmentKey(group_id, name) for name in group.members),
        *(ShareGroupTargetAssignmentMemberKey(group_id, name) for name in group.target),
        ShareGroupTargetAssignmentMetadataKey(group_id),
        *(ShareGroupMemberMetadataKey(group_id, name) for name in group.members),
        ShareGroupStatePartitionMetadataKey(group_id),
        ShareGroupMetadataKey(group_id),
    ]
    return [CoordinatorRecord(*SHARE_GROUP_RECORDS.encode(key, None)) for key in keys]


# Reading


def check_value(key: ShareGroupKey, value: Any) -> None:
    """Raise DecodeError for a value that no group can have written."""
    check_epoch(value)
    if isinstance(key, ShareGroupTargetAssignmentMemberKey):
        check_partitions(value.topic_partitions)
    elif isinstance(key, ShareGroupCurrentMemberAssignmentKey):
        check_partitions(value.assigned_partitions)
    elif isinstance(key, ShareGroupStatePartitionMetadataKey):
        check_partitions([*value.initializing_topics, *value.initialized_topics])


def apply(group: ShareGroup, key: ShareGroupKey, value: Any | None, now_ms: int) -> None:
    """Apply a record to the group. value: decoded, of the key's kind; None for a tombstone.

    now_ms: when the record was written. The shard handles the tombstone of the group itself.
    """
    match key:
        case ShareGroupMetadataKey():
            if value is not None:
                group.group_epoch, group.metadata_hash = value.epoch, value.metadata_hash
        case ShareGroupMemberMetadataKey():
            if value is None:
                group.members.pop(key.member_id, None)
            else:
                group.members[key.member_id] = _described(group.members.get(key.member_id), key.member_id, value)
        case ShareGroupTargetAssignmentMetadataKey():
            group.assignment_epoch = TARGET_DELETED_EPOCH if value is None else value.assignment_epoch
            group.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp
        case ShareGroupTargetAssignmentMemberKey():
            if value is None:
                group.target.pop(key.member_id, None)
            else:
                group.target[key.member_id] = _assignment(value.topic_partitions)
        case ShareGroupCurrentMemberAssignmentKey():
            _apply_current(group, key.member_id, value)
        case ShareGroupStatePartitionMetadataKey():
            group.state_partitions = None if value is None else _state_partitions(value, now_ms)


def _described(member: ShareMember | None, member_id: str, value: ShareGroupMemberMetadataValue) -> ShareMember:
    return replace(
        member or ShareMember(member_id),
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=frozenset(value.subscribed_topic_names),
    )


def _apply_current(group: ShareGroup, member_id: str, value: ShareGroupCurrentMemberAssignmentValue | None) -> None:
    member = group.members.get(member_id)
    if value is not None:
        group.members[member_id] = replace(
            member or ShareMember(member_id),
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            assigned=_assignment(value.assigned_partitions),
        )
    elif member is not None:
        group.members[member_id] = replace(
            member, member_epoch=LEAVE_EPOCH, previous_member_epoch=LEAVE_EPOCH, assigned={}
        )


def _assignment(topics: Iterable[ShareTopicPartitions]) -> Assignment:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics}


def _state_partitions(value: ShareGroupStatePartitionMetadataValue, now_ms: int) -> ShareStatePartitions:
    return ShareStatePartitions(
        initializing=_topics(value.initializing_topics),
        initialized=_topics(value.initialized_topics),
        deleting={topic.topic_id: topic.topic_name for topic in value.deleting_topics},
        initializing_since_ms=now_ms,
    )


def _topics(topics: Iterable[ShareTopicPartitionsInfo]) -> StateTopics:
    return {topic.topic_id: StatePartitions(topic.topic_name, frozenset(topic.partitions)) for topic in topics}
