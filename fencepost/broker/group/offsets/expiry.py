"""Expiry of committed offsets. Pure. Source: KIP-211; Kafka's ClassicGroup.offsetExpirationCondition."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.broker.group.classic.group import ClassicGroup, ClassicState
from fencepost.broker.group.consumer.group import ConsumerGroup
from fencepost.broker.group.offsets.committed import OffsetStore
from fencepost.broker.group.streams.group import StreamsGroup
from fencepost.broker.kernel.topic_partition import TopicPartition


def expired_offsets(
    group: ClassicGroup | ConsumerGroup | StreamsGroup, offsets: OffsetStore, *, retention_ms: int, now_ms: int
) -> Iterator[TopicPartition]:
    """Find the expired offsets of a group. The retention time counts from when the group became empty; without a group,
    or a subscription, from the commit.

    In a group of the consumer or streams protocol it counts from the commit, for topics that no member reads.
    Source: KIP-211; Kafka's ClassicGroup.offsetExpirationCondition, and those of ConsumerGroup and StreamsGroup.
    """
    subscribed: frozenset[str] = frozenset()
    empty_since_ms: int | None = None
    if not isinstance(group, ClassicGroup):
        subscribed = group.subscribed_topics()
    elif group.protocol_type is not None:
        if group.state is ClassicState.EMPTY:
            empty_since_ms = group.state_timestamp_ms
        else:
            topics = group.subscribed_topics()
            if group.state is not ClassicState.STABLE or topics is None:
                return
            subscribed = topics
    for topic_partition, value in offsets.committed(group.group_id).items():
        if topic_partition.topic in subscribed or offsets.is_pending(group.group_id, topic_partition):
            continue
        if value.expire_timestamp_ms != -1:
            is_expired = now_ms >= value.expire_timestamp_ms
        else:
            since_ms = value.commit_timestamp_ms if empty_since_ms is None else empty_since_ms
            is_expired = now_ms - since_ms >= retention_ms
        if is_expired:
            yield topic_partition
