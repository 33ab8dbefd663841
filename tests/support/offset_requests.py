"""OffsetCommit and OffsetFetch of group g, as each version has them, and what a fetch has found."""

from __future__ import annotations

from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.support.group_broker import GroupBroker

UNKNOWN_ID = b"no topic has it."
NO_OFFSET = (-1, -1, "")


def commit_request(
    broker: GroupBroker, version: int, *partitions: tuple[str, int], **fields: object
) -> OffsetCommitRequest:
    """Offset 5 for each; by id from version 10 on. A topic that does not exist has an id that no topic has."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for name, partition in partitions or (("orders", 0),):
        metadata = broker.topics.metadata.get(name)
        topic = topics.setdefault(
            name,
            OffsetCommitRequestTopic(
                name=name if version < 10 else "",
                topic_id=bytes(16) if version < 10 else UNKNOWN_ID if metadata is None else metadata.topic_id,
                partitions=[],
            ),
        )
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=5,
                committed_leader_epoch=3 if version >= 6 else -1,
                committed_metadata="note",
            )
        )
    return OffsetCommitRequest(group_id="g", topics=list(topics.values()), **fields)  # type: ignore[arg-type]


def fetch_request(
    broker: GroupBroker, version: int, *, all_topics: bool = False, stable: bool = False
) -> OffsetFetchRequest:
    """Partitions 0 and 1 of orders, or all topics (from version 2 on)."""
    require_stable = stable if version >= 7 else False
    if version < 8:
        topics = None if all_topics else [OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 1])]
        return OffsetFetchRequest(group_id="g", topics=topics, require_stable=require_stable)
    by_id = version >= 10
    wanted = OffsetFetchRequestTopics(
        name="" if by_id else "orders",
        topic_id=broker.topic_id("orders") if by_id else bytes(16),
        partition_indexes=[0, 1],
    )
    group = OffsetFetchRequestGroup(group_id="g", topics=None if all_topics else [wanted])
    return OffsetFetchRequest(groups=[group], require_stable=require_stable)


def fetched(response: object, version: int) -> dict[tuple[object, int], tuple[int, int, str | None, int]]:
    """(topic name or id, partition) to (offset, leader epoch, metadata, error)."""
    topics = response.topics if version < 8 else response.groups[0].topics  # type: ignore[attr-defined]
    return {
        (topic.topic_id if version >= 10 else topic.name, partition.partition_index): (
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.metadata,
            partition.error_code,
        )
        for topic in topics
        for partition in topic.partitions
    }
