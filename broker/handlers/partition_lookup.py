"""From what a request names to the log that is hosted here, or the error code to answer with."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.handlers.api import Services
from broker.log.partition_log import PartitionLog
from broker.topic_partition import TopicPartition
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.topics import Topics

NO_LEADER = -1
NO_LEADER_EPOCH = -1


def find_log(
    topics: Topics, topic: str, partition: int, *, current_leader_epoch: int = NO_LEADER_EPOCH
) -> PartitionLog | ErrorCode:
    """The log of a partition that is to be read.

    current_leader_epoch: the leader epoch the client knows; -1 skips the check.
    Refuses, as a value: UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH (the client is behind),
    UNKNOWN_LEADER_EPOCH (the client is ahead). Source: KIP-320; Kafka's Partition.checkCurrentLeaderEpoch.
    """
    log = topics.log(TopicPartition(topic, partition))
    if log is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if log.is_offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if current_leader_epoch != NO_LEADER_EPOCH and current_leader_epoch != log.leader_epoch:
        if current_leader_epoch < log.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return log


class Leadership(NamedTuple):
    """Who leads a partition, as Metadata shows it. leader_id, leader_epoch: -1 with LEADER_NOT_AVAILABLE."""

    error: ErrorCode
    leader_id: int
    leader_epoch: int
    offline_replicas: list[int]


def leadership(services: Services, topic: str, partition: int) -> Leadership:
    """This node leads every partition whose log it can use. Source: Kafka's KRaftMetadataCache.getPartitionMetadata."""
    log = services.topics.log(TopicPartition(topic, partition))
    if log is None or log.is_offline:
        return Leadership(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, NO_LEADER_EPOCH, [services.node_id])
    return Leadership(ErrorCode.NONE, services.node_id, log.leader_epoch, [])
