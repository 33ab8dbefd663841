"""Records of a share group: encoding, checks, and their effects on the group. Pure.

Source: Kafka's GroupCoordinatorRecordHelpers, and GroupMetadataManager.replay for the ShareGroup records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeAlias

from fencepost.broker.coordination.shard import CoordinatorRecord
from fencepost.broker.group.consumer.records import check_epoch, check_partitions
from fencepost.broker.group.modern import LEAVE_EPOCH, Assignment
from fencepost.broker.group.share_groups.group import (
    ShareGroup,
    ShareMember,
    ShareStatePartitions,
    StatePartitions,
    StateTopics,
)
from fencepost.broker.group.stored_groups import GroupDraft, StoredGroups
from fencepost.protocol.stored.consumer_groups import AssignedTopicPartitions
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
    ShareGroupTargetAssignmentMetadataValue,
    ShareTopicInfo,
    ShareTopicPartitionsInfo,
)

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


def _topic_partitions(assignment: Assignment) -> list[AssignedTopicPartitions]:
    return [AssignedTopicPartitions(topic_id, sorted(partitions)) for topic_id, partitions in assignment.items()]


def _infos(topics: StateTopics) -> list[ShareTopicPartitionsInfo]:
    return [
        ShareTopicPartitionsInfo(topic_id, topic.name, sorted(topic.partitions)) for topic_id, topic in topics.items()
    ]


def group_tombstones(group: ShareGroup) -> list[CoordinatorRecord]:
    """Return the records that remove a group and all its state."""
    group_id = group.group_id
    last = (ShareGroupStatePartitionMetadataKey(group_id), ShareGroupMetadataKey(group_id))
    return STORED_SHARE_GROUPS.tombstones(group, last)


# Reading


def _check(key: ShareGroupKey, value: Any) -> None:
    """Raise DecodeError for a value that no group can have written."""
    check_epoch(value)
    if isinstance(key, ShareGroupTargetAssignmentMemberKey):
        check_partitions(value.topic_partitions)
    elif isinstance(key, ShareGroupCurrentMemberAssignmentKey):
        check_partitions(value.assigned_partitions)
    elif isinstance(key, ShareGroupStatePartitionMetadataKey):
        check_partitions([*value.initializing_topics, *value.initialized_topics])


def _apply(group: ShareGroup, key: ShareGroupKey, value: Any | None, now_ms: int) -> None:
    """Apply a record that only share groups have, see `StoredGroups`."""
    match key:
        case ShareGroupMetadataKey():
            if value is not None:
                group.group_epoch, group.metadata_hash = value.epoch, value.metadata_hash
        case ShareGroupMemberMetadataKey():
            if value is None:
                group.members.pop(key.member_id, None)
            else:
                group.members[key.member_id] = _described(group.members.get(key.member_id), key.member_id, value)
        case ShareGroupCurrentMemberAssignmentKey():
            _apply_current(group, key.member_id, value)
        case ShareGroupStatePartitionMetadataKey():
            group.state_partitions = None if value is None else _state_partitions(value, now_ms)


def _read_target(value: ShareGroupTargetAssignmentMemberValue) -> Assignment:
    return _assignment(value.topic_partitions)


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


def _assignment(topics: Iterable[AssignedTopicPartitions]) -> Assignment:
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


STORED_SHARE_GROUPS: StoredGroups[ShareGroup, ShareGroupKey] = StoredGroups(
    ShareGroup,
    SHARE_GROUP_RECORDS,
    group_key=ShareGroupMetadataKey,
    member_key=ShareGroupMemberMetadataKey,
    target_key=ShareGroupTargetAssignmentMetadataKey,
    target_member_key=ShareGroupTargetAssignmentMemberKey,
    current_key=ShareGroupCurrentMemberAssignmentKey,
    target_epoch=ShareGroupTargetAssignmentMetadataValue,
    target_value=target_value,
    read_target=_read_target,
    check=_check,
    apply_other=_apply,
)
ShareDraft: TypeAlias = GroupDraft[ShareGroup, ShareGroupKey]
