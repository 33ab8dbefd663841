"""Reply to ConsumerGroupDescribe. Pure. Source: Kafka's ConsumerGroup.asDescribedGroup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fencepost.broker.group.consumer.group import ConsumerGroup, ConsumerMember
from fencepost.broker.group.consumer.subscriptions import TopicCatalogue
from fencepost.broker.group.modern import NO_PARTITIONS
from fencepost.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribedGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeTopicPartitions,
)

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def described_consumer_group(
    group: ConsumerGroup, topics: TopicCatalogue, default_assignor: str
) -> ConsumerGroupDescribedGroup:
    """Describe a group: its members, their current and target assignments, without topics that were deleted."""
    return ConsumerGroupDescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(default_assignor),
        members=[_member(group, member, topics) for member in group.members.values()],
    )


def _member(group: ConsumerGroup, member: ConsumerMember, topics: TopicCatalogue) -> ConsumerGroupDescribeMember:
    # A member owns the partitions that it has to revoke until it has revoked them.
    owned = {
        topic_id: [*member.assigned.get(topic_id, ()), *member.pending_revocation.get(topic_id, ())]
        for topic_id in {**member.assigned, **member.pending_revocation}
    }
    return ConsumerGroupDescribeMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(owned, topics),
        target_assignment=_assignment(group.target.get(member.member_id, NO_PARTITIONS), topics),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(partitions: Mapping[bytes, Iterable[int]], topics: TopicCatalogue) -> ConsumerGroupDescribeAssignment:
    found = ((topics.get_by_id(topic_id), assigned) for topic_id, assigned in partitions.items())
    return ConsumerGroupDescribeAssignment(
        topic_partitions=[
            ConsumerGroupDescribeTopicPartitions(
                topic_id=topic.topic_id, topic_name=topic.name, partitions=sorted(assigned)
            )
            for topic, assigned in found
            if topic is not None
        ]
    )
