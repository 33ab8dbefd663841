"""Versions that kafka-python lacks, sent raw in messages of our own, see `newer_messages`."""

from __future__ import annotations

from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.group_admin import DeleteGroupsRequest
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fencepost.protocol.messages.metadata import MetadataRequest
from fencepost.protocol.messages.transactions import EndTxnRequest, InitProducerIdRequest
from tests.recording.raw_session import RETRYABLE, Session

UNKNOWN_ID = bytes(15) + b"\x01"


def api_versions(session: Session, version: int) -> None:
    metadata = session.send_own(MetadataRequest(topics=[]), 12)
    cluster_id, (broker, *_) = metadata.cluster_id, metadata.brokers
    meant = [
        (None, -1),
        (cluster_id, broker.node_id),
        (cluster_id, broker.node_id + 1),
        (cluster_id, -1),
        ("another", broker.node_id),
        (None, broker.node_id + 1),
    ]
    for cluster, node in meant:
        session.send_own(ApiVersionsRequest("frames", "1", cluster, node), version)
    session.send_own(ApiVersionsRequest("not a name", "1", "another", 5), version)


def delete_groups(session: Session, version: int) -> None:
    group_id = f"removed-own-{version}"
    topic = OffsetCommitRequestTopic(session.topic, partitions=[OffsetCommitRequestPartition(0, 1)])
    session.send_own(OffsetCommitRequest(group_id, topics=[topic]), 9)
    session.send_own(DeleteGroupsRequest([group_id, "missing", ""]), version)


def txn_offset_commit(session: Session, version: int) -> None:
    transactional_id, group_id = f"commits-own-{version}", f"frames-commits-own-{version}"
    initialized = InitProducerIdRequest(transactional_id, 60_000)
    for _ in range(100):
        producer = session.send_own(initialized, 4)
        if producer.error_code not in RETRYABLE:
            break
    partitions = [TxnOffsetCommitRequestPartition(0, 1, 0, "frames"), TxnOffsetCommitRequestPartition(9, 1)]
    topics = [
        TxnOffsetCommitRequestTopic(topic_id=topic_id, partitions=partitions)
        for topic_id in (session.topic_id.bytes, UNKNOWN_ID, bytes(16))
    ]
    for epoch, member_id in ((-1, ""), (-1, "not-a-member"), (3, "not-a-member")):
        request = TxnOffsetCommitRequest(
            transactional_id,
            group_id if epoch < 0 else f"{group_id}-missing",
            producer.producer_id,
            producer.producer_epoch,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            topics=topics,
        )
        session.send_own(request, version)
    session.send_own(EndTxnRequest(transactional_id, producer.producer_id, producer.producer_epoch, committed=True), 4)
