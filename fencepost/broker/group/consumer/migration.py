"""Migration of a group with members from the classic to the consumer protocol and back. Pure.

The first member of the consumer protocol converts a classic group: the classic members stay, with their assignments, in
an epoch equal to their generation. When the last member of the consumer protocol has left, the group becomes classic.
Source: KIP-848, section on migration; Kafka's GroupMetadataManager (validateOnlineUpgrade, convertToConsumerGroup,
convertToClassicGroup), ConsumerGroup.fromClassicGroup, ClassicGroup.fromConsumerGroup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fencepost.broker.group.classic.group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, ClassicMember
from fencepost.broker.group.classic.records import group_record, group_tombstone
from fencepost.broker.group.consumer.group import ClassicSpeaker, ConsumerGroup, ConsumerMember
from fencepost.broker.group.consumer.records import (
    STORED_CONSUMER_GROUPS,
    current_value,
    group_tombstones,
    member_value,
    target_value,
)
from fencepost.broker.group.consumer.subscriptions import TopicCatalogue, metadata_hash
from fencepost.broker.group.decision_builder import DecisionBuilder, GroupConfig
from fencepost.broker.group.java_order import timeline_hash_map_order
from fencepost.broker.group.modern import NO_PARTITIONS
from fencepost.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolTopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    version_of,
)
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.stored.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

UPGRADE_POLICIES = ("upgrade", "bidirectional")
DOWNGRADE_POLICIES = ("downgrade", "bidirectional")


def upgraded(
    group: ClassicGroup, topics: TopicCatalogue, config: GroupConfig, effects: DecisionBuilder
) -> ConsumerGroup | str:
    """Convert a classic group with members to the consumer protocol and add the records to `effects`. Returns the new
    group, or a text with the reason why it cannot be converted.
    """
    refused = f"Cannot upgrade classic group {group.group_id} to consumer group because "
    if config.consumer_migration_policy not in UPGRADE_POLICIES:
        return refused + "online upgrade is disabled."
    if not group.is_consumer_group:
        return refused + "the group does not use the consumer embedded protocol."
    if len(group.members) > config.consumer_max_size:
        return refused + "the group size exceeds the consumer group maximum size."
    protocol_name = group.protocol_name or group.choose_protocol()
    try:
        members = [_consumer_member(group, member, protocol_name, topics) for member in group.members.values()]
    except DecodeError:
        return refused + "the embedded consumer protocol is malformed."
    except _CustomAssignorError:
        return refused + (
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade."
        )
    effects.records.append(group_tombstone(group.group_id))
    return _written(group, members, topics, effects)


class _CustomAssignorError(Exception):
    """An assignment contains user data of the leader's assignor, which the broker cannot preserve."""


def _written(
    classic: ClassicGroup, members: list[ConsumerMember], topics: TopicCatalogue, effects: DecisionBuilder
) -> ConsumerGroup:
    group_id, epoch = classic.group_id, classic.generation_id
    draft = STORED_CONSUMER_GROUPS.draft(ConsumerGroup(group_id), effects)
    for member in members:
        key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
        draft.write(key, member_value(member))
    hashed = metadata_hash(draft.group.subscribed_topics(), topics)
    draft.write(
        ConsumerGroupMetadataKey(group_id=group_id), ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=hashed)
    )
    for member in members:
        assignment = {topic_id: frozenset(owned) for topic_id, owned in member.assigned.items()}
        target_key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member.member_id)
        draft.write(target_key, target_value(assignment))
    draft.write(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch),
    )
    for member in members:
        current_key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
        draft.write(current_key, current_value(member))
    return draft.group


def _consumer_member(
    group: ClassicGroup, member: ClassicMember, protocol_name: str, topics: TopicCatalogue
) -> ConsumerMember:
    """Raises DecodeError, _CustomAssignorError."""
    owned: list[ConsumerProtocolTopicPartitions] = []
    if member.assignment:
        assignment = decode_assignment(member.assignment)
        if assignment.user_data:
            raise _CustomAssignorError
        owned = assignment.assigned_partitions
    subscription = decode_subscription(member.metadata(protocol_name))
    epoch = group.generation_id
    return ConsumerMember(
        member_id=member.member_id,
        member_epoch=epoch,
        previous_member_epoch=epoch,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=frozenset(subscription.topics),
        assigned={
            topic_id: dict.fromkeys(sorted(partitions), epoch)
            for topic_id, partitions in partitions_by_id(owned, topics).items()
        },
        classic=ClassicSpeaker(
            member.session_timeout_ms,
            # The protocol in use comes first: the reply to the member's next JoinGroup names it.
            tuple(sorted(member.protocols, key=lambda protocol: protocol[0] != protocol_name)),
        ),
    )


def can_become_classic(group: ConsumerGroup, config: GroupConfig) -> bool:
    """Return whether only classic members are left, and the migration policy and `max_size` allow a classic group."""
    return (
        config.consumer_migration_policy in DOWNGRADE_POLICIES
        and 0 < len(group.members) <= config.max_size
        and all(member.classic is not None for member in group.members.values())
    )


def downgrade(group: ConsumerGroup, topics: TopicCatalogue, effects: DecisionBuilder) -> None:
    """Convert a group with only classic members to a classic group, in a generation equal to its epoch, with its target
    assignment. Its members have to rebalance right after.
    """
    classic = ClassicGroup(group.group_id)
    # The first member leads. There was at least one more member before.
    for member_id in timeline_hash_map_order(group.members, len(group.members) + 1):
        member = group.members[member_id]
        if member.classic is not None:
            classic.add(_classic_member(group, member, member.classic, topics), CONSUMER_PROTOCOL_TYPE)
    classic.protocol_name = classic.choose_protocol()
    effects.records.extend(group_tombstones(group))
    effects.records.append(
        group_record(
            classic,
            list(classic.members.values()),
            generation_id=group.group_epoch,
            leader_id=classic.leader_id,
            timestamp_ms=effects.now_ms,
        )
    )


def _classic_member(
    group: ConsumerGroup, member: ConsumerMember, classic: ClassicSpeaker, topics: TopicCatalogue
) -> ClassicMember:
    return ClassicMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        protocols=classic.protocols,
        assignment=classic_assignment(group.target.get(member.member_id, NO_PARTITIONS), classic, topics),
    )


# Conversion between topic ids and the topic names of the classic protocol


def partitions_by_id(
    owned: Iterable[ConsumerProtocolTopicPartitions], topics: TopicCatalogue
) -> dict[bytes, list[int]]:
    """Return the partitions of existing topics by topic id. Negative ones are dropped: members write these bytes."""
    found = ((topics.get(entry.topic), entry.partitions) for entry in owned)
    return {
        topic.topic_id: [partition for partition in partitions if partition >= 0]
        for topic, partitions in found
        if topic is not None
    }


def classic_assignment(
    partitions: Mapping[bytes, Iterable[int]], classic: ClassicSpeaker, topics: TopicCatalogue
) -> bytes:
    """Encode an assignment for a classic member, in its version of the consumer protocol type."""
    found = ((topics.get_by_id(topic_id), assigned) for topic_id, assigned in partitions.items())
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolTopicPartitions(topic=topic.name, partitions=sorted(assigned))
            for topic, assigned in found
            if topic is not None
        ]
    )
    return encode_assignment(assignment, version_of(classic.protocols[0][1]))
