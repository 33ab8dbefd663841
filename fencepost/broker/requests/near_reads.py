"""Reads near the client: a consumer reads the sealed part of a log at a broker in its own rack.

The leader names such a broker in its answer to a consumer of another rack. That broker serves records from the store
that all brokers share, and sends the consumer back to the leader where the sealed part ends.
Source: KIP-392; Kafka's ReplicaManager.findPreferredReadReplica and RackAwareReplicaSelector.
"""

from __future__ import annotations

import time
import zlib
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from fencepost.broker.kernel.topic_partition import INTERNAL_TOPICS, TopicPartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.fetch import PartitionData
from fencepost.protocol.record_batch import NO_LEADER_EPOCH

if TYPE_CHECKING:
    from fencepost.broker.hosting.membership import ReadReplicas
    from fencepost.broker.hosting.placement import Placement
    from fencepost.broker.log.log_types import Isolation
    from fencepost.broker.log.reads.reading import FetchedLog
    from fencepost.broker.metadata.image import MetadataImage
    from fencepost.broker.requests.fetch_sessions import FetchedPartition

STAYS_S: Final = 70.0
"""A consumer that was sent away within this time and has come back reads at the leader. librdkafka changes the broker
of a partition once a minute at most, and fetches nothing meanwhile."""
OF_LIBRDKAFKA: Final = "rdkafka"
"""In the name or the version of the software of clients that use it."""
NO_NODE: Final = -1
MOST_REMEMBERED: Final = 50_000

Reader = tuple[int, TopicPartition]
"""Connection of a consumer, and a partition. Address and client id do not tell consumers of one service apart."""


class NearReads:
    """The choice of the broker that a consumer reads at. node_id, rack: of this broker. monotonic_s: a clock in s."""

    def __init__(
        self,
        node_id: int,
        rack: str,
        placement: Placement,
        replicas: ReadReplicas,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node_id = node_id
        self._rack = rack
        self._placement = placement
        self._replicas = replicas
        self._monotonic_s = monotonic_s
        self._sent_s: OrderedDict[Reader, float] = OrderedDict()

    def nodes_named(self, topic_partition: TopicPartition, topic_id: bytes, leader_id: int) -> list[int]:
        """The brokers, in order of their racks, that consumers of other racks than the leader's read at.

        Java's consumer reads only at a broker that Metadata names as a replica of the partition.
        """
        if topic_partition.topic in INTERNAL_TOPICS:
            return []
        in_racks = self._in_racks()
        chosen = {rack: _choose(nodes, topic_partition, topic_id) for rack, nodes in sorted(in_racks.items())}
        return [node_id for rack, node_id in chosen.items() if leader_id not in in_racks[rack]]

    def elsewhere(
        self, rack: str, connection_id: int, log: FetchedLog, wanted: FetchedPartition, isolation: Isolation
    ) -> PartitionData | None:
        """The answer to a consumer in a rack that reads a log, which this broker leads, if it shall read elsewhere."""
        name, offset = log.topic_partition, wanted.fetch_offset
        if rack == self._rack or not log.log_start_offset <= offset < self._replicas.sealed_bound(name, isolation):
            return None
        nodes = self._in_racks().get(rack)
        if not nodes or name.topic in INTERNAL_TOPICS:
            return None
        if not self._may_send((connection_id, name)):
            return None
        answer = _elsewhere(wanted, _choose(nodes, name, log.topic_id))
        answer.high_watermark, answer.last_stable_offset = log.high_watermark, log.last_stable_offset
        answer.log_start_offset = log.log_start_offset
        return answer

    def replica(
        self, rack: str, wanted: FetchedPartition, metadata: MetadataImage, isolation: Isolation
    ) -> FetchedLog | ErrorCode | None:
        """The replica of a partition that another broker leads, for a consumer in a rack; None if the consumer has to
        read at the leader: see `to_leader`.

        Refuses, as a value: UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
        NOT_LEADER_OR_FOLLOWER (of another rack).
        """
        topic = metadata.get(wanted.topic)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if rack != self._rack or wanted.topic in INTERNAL_TOPICS:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        name = TopicPartition(wanted.topic, wanted.partition)
        leader_epoch = self._placement.leader_epoch(name)
        if wanted.current_leader_epoch not in (NO_LEADER_EPOCH, leader_epoch):
            is_behind = wanted.current_leader_epoch < leader_epoch
            return ErrorCode.FENCED_LEADER_EPOCH if is_behind else ErrorCode.UNKNOWN_LEADER_EPOCH
        return self._replicas.find(name, topic.topic_id, wanted.fetch_offset, isolation)

    def to_leader(self, wanted: FetchedPartition, client_software: tuple[str, str]) -> PartitionData:
        """The answer that sends a consumer from a replica back to the leader.

        The clients differ. franz-go and KafkaJS stay for minutes after NOT_LEADER_OR_FOLLOWER, but follow the name of a
        broker; librdkafka follows the error at once, but a name only a minute after the last one. OFFSET_OUT_OF_RANGE,
        the answer of a follower of Kafka's, makes KafkaJS reset its offset, and Java's consumer if it comes late.
        """
        leader = self._placement.leader(TopicPartition(wanted.topic, wanted.partition))
        if leader is None or any(OF_LIBRDKAFKA in text for text in client_software):
            return _elsewhere(wanted, NO_NODE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return _elsewhere(wanted, leader.node_id)

    def _in_racks(self) -> dict[str, list[int]]:
        """All brokers that are alive and have a rack, by rack."""
        found: dict[str, list[int]] = {self._rack: [self._node_id]}
        for node in self._placement.other_nodes():
            if node.rack is not None:
                found.setdefault(node.rack, []).append(node.node_id)
        return found

    def _may_send(self, reader: Reader) -> bool:
        """Whether a consumer may be sent away; it counts as sent then."""
        now_s = self._monotonic_s()
        sent_s = self._sent_s.get(reader)
        if sent_s is not None and now_s - sent_s < STAYS_S:
            return False
        self._sent_s[reader] = now_s
        self._sent_s.move_to_end(reader)
        if len(self._sent_s) > MOST_REMEMBERED:
            self._sent_s.popitem(last=False)
        return True


def _elsewhere(wanted: FetchedPartition, node_id: int, error: ErrorCode = ErrorCode.NONE) -> PartitionData:
    return PartitionData(
        partition_index=wanted.partition,
        error_code=error,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        preferred_read_replica=node_id,
        records=b"",
    )


def _choose(nodes: list[int], topic_partition: TopicPartition, topic_id: bytes) -> int:
    """The same broker of a rack for all consumers of a partition: it downloads each segment once."""
    return sorted(nodes)[zlib.crc32(topic_id + topic_partition.partition.to_bytes(4, "big")) % len(nodes)]
