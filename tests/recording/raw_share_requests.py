"""The APIs of share groups, sent raw: what is asked in good order, and what is not."""

from __future__ import annotations

import itertools
import time
import uuid
from typing import Any

from kafka.protocol import admin, producer

from fencepost.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    ShareAcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeTopic,
    ShareFetchForgottenTopic,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
)
from fencepost.protocol.messages.share_groups import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from fencepost.protocol.messages.share_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from fencepost.protocol.messages.share_state import (
    DeleteShareGroupStateRequest,
    DeleteShareStatePartition,
    DeleteShareStateTopic,
    InitializeShareGroupStateRequest,
    InitializeShareStatePartition,
    InitializeShareStateTopic,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    ReadShareStatePartition,
    ReadShareStateTopic,
    WriteShareGroupStateRequest,
    WriteShareStatePartition,
    WriteShareStateTopic,
)
from fencepost.protocol.stored.share_group_state import StateBatch
from tests.recording.raw_session import ATTEMPTS, Session, record_batch

GROUP_RESOURCE = 32
SET = 0
JOIN, LEAVE = 0, -1
OPEN_SESSION, CLOSE_SESSION = 0, -1
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
HEARTBEAT_VERSION = 1
RENEWAL_VERSION = 2

_group_numbers = itertools.count()


class Member:
    """The member of its own share group that reads from the beginning of the session's topic."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.group_id = f"frames-share-{next(_group_numbers)}"
        self.member_id = str(uuid.uuid4())
        self.epoch = JOIN
        configs = [{"name": "share.auto.offset.reset", "config_operation": SET, "value": "earliest"}]
        resources = [{"resource_type": GROUP_RESOURCE, "resource_name": self.group_id, "configs": configs}]
        session.send(admin.IncrementalAlterConfigsRequest, 1, resources=resources, validate_only=False)

    def heartbeat(self, epoch: int, topics: list[str] | None = None) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=epoch, subscribed_topic_names=topics
        )
        response = self.session.send_own(request, HEARTBEAT_VERSION)
        if response.error_code == 0:
            self.epoch = response.member_epoch
        return response

    def join(self) -> None:
        """Returns once the member has been given partitions."""
        self.heartbeat(JOIN, [self.session.topic])
        for _ in range(ATTEMPTS):
            response = self.heartbeat(self.epoch)
            if response.assignment is not None and response.assignment.topic_partitions:
                return
            time.sleep(0.1)
        raise RuntimeError("a share group's member was given no partitions")

    def leave(self) -> None:
        self.heartbeat(LEAVE)

    def fetch(self, epoch: int, version: int, batches: list[AcknowledgementBatch], **fields: Any) -> Any:
        partition = ShareFetchPartition(partition_index=0, acknowledgement_batches=batches)
        fields = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 3, "batch_size": 3, **fields}
        return self.session.send_own(
            ShareFetchRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                share_session_epoch=epoch,
                topics=[ShareFetchTopic(topic_id=self.session.topic_id.bytes, partitions=[partition])],
                **fields,
            ),
            version,
        )

    def lent(self, version: int) -> tuple[int, int]:
        """Opens a session and returns the first range of records that is lent."""
        self.fetch(OPEN_SESSION, version, [])
        for epoch in range(1, ATTEMPTS):
            for topic in self.fetch(epoch, version, []).responses:
                for partition in topic.partitions:
                    if partition.acquired_records:
                        first = partition.acquired_records[0]
                        self.session_epoch = epoch + 1
                        return first.first_offset, first.last_offset
            # The group's configs may have come too late for it to read what was there before.
            _produce(self.session)
        raise RuntimeError("a share group's member was lent no records")

    def acknowledge(self, version: int, *batches: AcknowledgementBatch, epoch: int | None = None) -> None:
        partition = ShareAcknowledgePartition(partition_index=0, acknowledgement_batches=list(batches))
        renews = any(RENEW in batch.acknowledge_types for batch in batches)
        request = ShareAcknowledgeRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=self.session_epoch if epoch is None else epoch,
            topics=[ShareAcknowledgeTopic(topic_id=self.session.topic_id.bytes, partitions=[partition])],
            is_renew_ack=renews,
        )
        if self.session.send_own(request, version).error_code == 0:
            self.session_epoch += 1


def _produce(session: Session) -> None:
    partition = {"index": 0, "records": record_batch(count=6)}
    topics = [{"name": session.topic, "partition_data": [partition]}]
    session.send(producer.ProduceRequest, 9, transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=topics)


def share_group_heartbeat(session: Session, version: int) -> None:
    member = Member(session)
    member.join()
    member.heartbeat(member.epoch + 7)
    member.heartbeat(member.epoch, [session.topic, "missing"])
    member.leave()
    member.heartbeat(1)
    member.heartbeat(JOIN, [])


def share_group_describe(session: Session, version: int) -> None:
    member = Member(session)
    member.join()
    request = ShareGroupDescribeRequest(group_ids=[member.group_id, "missing"], include_authorized_operations=True)
    session.send_own(request, version)
    member.leave()
    session.send_own(ShareGroupDescribeRequest(group_ids=[member.group_id]), version)


def share_fetch(session: Session, version: int) -> None:
    member = Member(session)
    member.join()
    first, last = member.lent(version)
    epoch = member.session_epoch
    member.fetch(epoch, version, [AcknowledgementBatch(first, first, [RELEASE])], share_acquire_mode=1)
    member.fetch(epoch + 1, version, [AcknowledgementBatch(first + 1, last, [ACCEPT])])
    member.fetch(epoch + 2, version, [AcknowledgementBatch(last + 1_000, last + 1_000, [ACCEPT])])
    forgotten = [ShareFetchForgottenTopic(session.topic_id.bytes, [0])]
    member.fetch(epoch + 3, version, [], forgotten_topics_data=forgotten, max_wait_ms=0)
    member.fetch(epoch + 9, version, [])
    member.fetch(CLOSE_SESSION, version, [], max_wait_ms=0)
    member.fetch(epoch + 4, version, [])
    member.leave()


def share_acknowledge(session: Session, version: int) -> None:
    member = Member(session)
    member.join()
    first, last = member.lent(version)
    member.acknowledge(version, AcknowledgementBatch(first, last, [ACCEPT] * (last - first) + [RELEASE]))
    member.acknowledge(version, AcknowledgementBatch(last, last, [REJECT]))
    member.acknowledge(version, AcknowledgementBatch(last, first, [REJECT]))
    if version >= RENEWAL_VERSION:
        member.acknowledge(version, AcknowledgementBatch(last, last, [RENEW]))
    member.acknowledge(version, epoch=OPEN_SESSION)
    member.acknowledge(version, epoch=CLOSE_SESSION)
    member.acknowledge(version, epoch=member.session_epoch)
    member.leave()


def describe_share_group_offsets(session: Session, version: int) -> None:
    member = Member(session)
    member.join()
    first, last = member.lent(HEARTBEAT_VERSION)
    member.acknowledge(HEARTBEAT_VERSION, AcknowledgementBatch(first, last, [ACCEPT]))
    topics = [
        DescribeShareGroupOffsetsRequestTopic(session.topic, [0, 1]),
        DescribeShareGroupOffsetsRequestTopic("missing", [0]),
    ]
    session.send_own(
        DescribeShareGroupOffsetsRequest(
            groups=[
                DescribeShareGroupOffsetsRequestGroup(member.group_id, topics),
                DescribeShareGroupOffsetsRequestGroup(member.group_id, None),
                DescribeShareGroupOffsetsRequestGroup("missing", None),
            ]
        ),
        version,
    )
    member.leave()


def alter_share_group_offsets(session: Session, version: int) -> None:
    member = Member(session)
    member.join()
    topics = [
        AlterShareGroupOffsetsRequestTopic(
            session.topic,
            [AlterShareGroupOffsetsRequestPartition(0, 1), AlterShareGroupOffsetsRequestPartition(1_000, 1)],
        ),
        AlterShareGroupOffsetsRequestTopic("missing", [AlterShareGroupOffsetsRequestPartition(0, 1)]),
    ]
    request = AlterShareGroupOffsetsRequest(group_id=member.group_id, topics=topics)
    session.send_own(request, version)
    member.leave()
    session.send_own(request, version)


def delete_share_group_offsets(session: Session, version: int) -> None:
    member = Member(session)
    member.join()
    topics = [DeleteShareGroupOffsetsRequestTopic(session.topic), DeleteShareGroupOffsetsRequestTopic("missing")]
    session.send_own(DeleteShareGroupOffsetsRequest(group_id=member.group_id, topics=topics), version)
    member.leave()
    session.send_own(DeleteShareGroupOffsetsRequest(group_id=member.group_id, topics=topics), version)
    session.send_own(DeleteShareGroupOffsetsRequest(group_id="missing", topics=topics), version)


def _initialize_state(session: Session, *state_epochs: int) -> str:
    """Initializes the state of a group that no member is in, and of a partition that does not exist."""
    group_id = f"frames-share-{next(_group_numbers)}"
    for state_epoch in state_epochs:
        partitions = [InitializeShareStatePartition(number, state_epoch, 3) for number in (0, 1_000)]
        topic = InitializeShareStateTopic(session.topic_id.bytes, partitions)
        session.send_own(InitializeShareGroupStateRequest(group_id, [topic]), 0)
    return group_id


def _write_state(session: Session, group_id: str, version: int, state_epoch: int = 2) -> None:
    batches = [StateBatch(3, 5, 2, 1), StateBatch(6, 6, 0, 2)]
    partitions = [WriteShareStatePartition(number, state_epoch, 0, 3, 3, batches) for number in (0, 1_000)]
    topic = WriteShareStateTopic(session.topic_id.bytes, partitions)
    session.send_own(WriteShareGroupStateRequest(group_id, [topic]), version)


def initialize_share_group_state(session: Session, version: int) -> None:
    _initialize_state(session, 2, 1)


def read_share_group_state(session: Session, version: int) -> None:
    group_id = _initialize_state(session, 2)
    _write_state(session, group_id, 1)
    for leader_epoch in (4, 3):
        partitions = [ReadShareStatePartition(number, leader_epoch) for number in (0, 1_000)]
        topic = ReadShareStateTopic(session.topic_id.bytes, partitions)
        session.send_own(ReadShareGroupStateRequest(group_id, [topic]), version)


def write_share_group_state(session: Session, version: int) -> None:
    group_id = _initialize_state(session, 2)
    for state_epoch in (2, 1):
        _write_state(session, group_id, version, state_epoch)


def delete_share_group_state(session: Session, version: int) -> None:
    group_id = _initialize_state(session, 2)
    partitions = [DeleteShareStatePartition(number) for number in (0, 1_000)]
    topic = DeleteShareStateTopic(session.topic_id.bytes, partitions)
    session.send_own(DeleteShareGroupStateRequest(group_id, [topic]), version)


def read_share_group_state_summary(session: Session, version: int) -> None:
    group_id = _initialize_state(session, 2)
    _write_state(session, group_id, 1)
    partitions = [ReadShareStatePartition(number, 0) for number in (0, 1_000)]
    topic = ReadShareStateTopic(session.topic_id.bytes, partitions)
    session.send_own(ReadShareGroupStateSummaryRequest(group_id, [topic]), version)
