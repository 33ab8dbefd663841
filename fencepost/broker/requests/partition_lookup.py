"""Look-up of the partition that a request names: its log on this node, its leader, or the error code."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.requests.api import Services
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import NO_LEADER_EPOCH

if TYPE_CHECKING:
    from fencepost.broker.hosting.topics import Topics

NO_LEADER = -1


def find_log(
    topics: Topics, topic: str, partition: int, *, current_leader_epoch: int = NO_LEADER_EPOCH
) -> PartitionLog | ErrorCode:
    """Find the log of a partition for a read.

    current_leader_epoch: the leader epoch the client knows; -1 skips the check.
    Refuses, as a value: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER (another node leads it),
    KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH (the client is behind), UNKNOWN_LEADER_EPOCH (the client is ahead).
    Source: KIP-320; Kafka's Partition.checkCurrentLeaderEpoch.
    """
    topic_partition = TopicPartition(topic, partition)
    log = topics.log(topic_partition)
    if log is None:
        return topics.error_of_absent_log(topic_partition)
    if log.offline_reason is not None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if current_leader_epoch != NO_LEADER_EPOCH and current_leader_epoch != log.leader_epoch:
        if current_leader_epoch < log.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return log


class Leadership(NamedTuple):
    """The leader of a partition, as Metadata reports it. leader_id: -1 with LEADER_NOT_AVAILABLE. leader_epoch: -1
    then, and while it is unknown."""

    error: ErrorCode
    leader_id: int
    leader_epoch: int
    replicas: list[int]
    offline_replicas: list[int]


def leadership(services: Services, topic: str, partition: int) -> Leadership:
    """Find a partition's leader: this node if its log is usable here, else the one that the placement names.

    The leader is the only replica. Source: Kafka's KRaftMetadataCache.getPartitionMetadata.
    """
    topic_partition = TopicPartition(topic, partition)
    here = services.node_id
    if services.topics.is_unopened(topic_partition):  # Metadata for all topics must not open all logs
        return Leadership(ErrorCode.NONE, here, NO_LEADER_EPOCH, [here], [])
    log = services.topics.log(topic_partition)
    if log is not None and log.offline_reason is None:
        return Leadership(ErrorCode.NONE, here, log.leader_epoch, [here], [])
    placement = services.topics.placement
    if placement.is_local(topic_partition):
        return Leadership(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, NO_LEADER_EPOCH, [here], [here])
    leader = placement.leader(topic_partition)
    if leader is None:
        return Leadership(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, NO_LEADER_EPOCH, [], [])
    return Leadership(ErrorCode.NONE, leader.node_id, placement.leader_epoch(topic_partition), [leader.node_id], [])
