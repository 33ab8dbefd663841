"""Records of a group of the consumer protocol: encoding, decoding, and their effects on the group. Pure.

Source: Kafka's GroupCoordinatorRecordHelpers, and GroupMetadataManager.replay for the ConsumerGroup records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeAlias

from fencepost.broker.coordination.shard import CoordinatorRecord
from fencepost.broker.group.consumer.group import (
    ClassicSpeaker,
    ConsumerGroup,
    ConsumerMember,
    OwnedPartitions,
    ResolvedRegex,
)
from fencepost.broker.group.modern import LEAVE_EPOCH, Assignment, MemberState
from fencepost.broker.group.stored_groups import GroupDraft, StoredGroups
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.stored.consumer_groups import (
    CONSUMER_GROUP_RECORDS,
    AssignedTopicPartitions,
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
)


class UnknownMemberStateError(Exception):
    """A record holds a member state of a later release. The member stays unchanged, and is fenced when it sends an
    unknown epoch. Source: Kafka's MemberState.UNKNOWN and CurrentAssignmentBuilder."""


# Values


def member_value(member: ConsumerMember) -> ConsumerGroupMemberMetadataValue:
    classic = member.classic
    return ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=None
        if classic is None
        else ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols],
        ),
    )


def current_value(member: ConsumerMember) -> ConsumerGroupCurrentMemberAssignmentValue:
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        assigned_partitions=_current_partitions(member.assigned),
        partitions_pending_revocation=_current_partitions(member.pending_revocation),
    )


def target_value(assignment: Assignment) -> ConsumerGroupTargetAssignmentMemberValue:
    return ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            AssignedTopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in assignment.items()
        ]
    )


def regex_value(resolved: ResolvedRegex) -> ConsumerGroupRegularExpressionValue:
    return ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )


def _current_partitions(owned: OwnedPartitions) -> list[CurrentTopicPartitions]:
    return [
        CurrentTopicPartitions(topic_id=topic_id, partitions=list(epochs), assignment_epochs=list(epochs.values()))
        for topic_id, epochs in owned.items()
    ]


def group_tombstones(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """Return the records that remove a group and all its state."""
    group_id = group.group_id
    last: list[ConsumerGroupKey] = [ConsumerGroupRegularExpressionKey(group_id, name) for name in group.regexes]
    if group.has_partition_metadata:
        last.append(ConsumerGroupPartitionMetadataKey(group_id))
    last.append(ConsumerGroupMetadataKey(group_id))
    return STORED_CONSUMER_GROUPS.tombstones(group, last)


# Reading


def _check(key: ConsumerGroupKey, value: Any) -> None:
    """Raises DecodeError."""
    if not key.group_id:
        raise DecodeError("it is about a group without an id")
    check_epoch(value)
    topics: Iterable[Any] = ()
    if isinstance(key, ConsumerGroupTargetAssignmentMemberKey):
        topics = value.topic_partitions
    elif isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
        topics = [*value.assigned_partitions, *value.partitions_pending_revocation]
    check_partitions(topics)


def check_epoch(value: Any) -> None:
    """Raise DecodeError for an invalid epoch of a group or its assignment. value: of any record of a newer protocol."""
    for name in ("epoch", "assignment_epoch"):
        epoch = getattr(value, name, 0)
        if epoch < 0:
            raise DecodeError(f"the {name.replace('_', ' ')} {epoch} is negative")


def check_partitions(topics: Iterable[Any]) -> None:
    """Raise DecodeError for partitions or tasks with negative numbers."""
    for topic in topics:
        if any(partition < 0 for partition in topic.partitions):
            raise DecodeError(f"it assigns the partition {min(topic.partitions)}")


def _apply(group: ConsumerGroup, key: ConsumerGroupKey, value: Any | None, now_ms: int) -> None:
    """Apply a record that only groups of the consumer protocol have, see `StoredGroups`.

    Raises UnknownMemberStateError and leaves the group unchanged.
    """
    match key:
        case ConsumerGroupMetadataKey():
            if value is not None:
                group.group_epoch, group.metadata_hash = value.epoch, value.metadata_hash
        case ConsumerGroupPartitionMetadataKey():
            group.has_partition_metadata = value is not None
        case ConsumerGroupMemberMetadataKey():
            if value is None:
                group.remove_member(key.member_id)
            else:
                group.put_member(_described(group.members.get(key.member_id), key.member_id, value))
        case ConsumerGroupCurrentMemberAssignmentKey():
            _apply_current(group, key.member_id, value)
        case ConsumerGroupRegularExpressionKey():
            group.put_regex(
                key.regular_expression,
                None if value is None else ResolvedRegex(frozenset(value.topics), value.version, value.timestamp),
            )


def _read_target(value: ConsumerGroupTargetAssignmentMemberValue) -> Assignment:
    return {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}


def _described(
    member: ConsumerMember | None, member_id: str, value: ConsumerGroupMemberMetadataValue
) -> ConsumerMember:
    classic = value.classic_member_metadata
    return replace(
        member or ConsumerMember(member_id),
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=frozenset(value.subscribed_topic_names),
        subscribed_topic_regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicSpeaker(
            classic.session_timeout_ms,
            tuple((protocol.name, bytes(protocol.metadata)) for protocol in classic.supported_protocols),
        ),
    )


def _apply_current(
    group: ConsumerGroup, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None
) -> None:
    member = group.members.get(member_id)
    if value is None:
        if member is not None:
            group.put_member(
                replace(
                    member,
                    member_epoch=LEAVE_EPOCH,
                    previous_member_epoch=LEAVE_EPOCH,
                    assigned={},
                    pending_revocation={},
                )
            )
        return
    try:
        state = MemberState(value.state)
    except ValueError:
        raise UnknownMemberStateError(f"member {member_id} is in the unknown state {value.state}") from None
    group.put_member(
        replace(
            member or ConsumerMember(member_id),
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=state,
            assigned=_owned_partitions(value.assigned_partitions, value.member_epoch),
            pending_revocation=_owned_partitions(value.partitions_pending_revocation, value.member_epoch),
        )
    )


def _owned_partitions(topics: Iterable[CurrentTopicPartitions], member_epoch: int) -> OwnedPartitions:
    owned = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [member_epoch] * len(topic.partitions)  # records from before partitions had epochs
        owned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return owned


STORED_CONSUMER_GROUPS: StoredGroups[ConsumerGroup, ConsumerGroupKey] = StoredGroups(
    ConsumerGroup,
    CONSUMER_GROUP_RECORDS,
    group_key=ConsumerGroupMetadataKey,
    member_key=ConsumerGroupMemberMetadataKey,
    target_key=ConsumerGroupTargetAssignmentMetadataKey,
    target_member_key=ConsumerGroupTargetAssignmentMemberKey,
    current_key=ConsumerGroupCurrentMemberAssignmentKey,
    target_epoch=ConsumerGroupTargetAssignmentMetadataValue,
    target_value=target_value,
    read_target=_read_target,
    check=_check,
    apply_other=_apply,
)
ConsumerGroupDraft: TypeAlias = GroupDraft[ConsumerGroup, ConsumerGroupKey]
