"""Members of a share group that accept, release, reject and forget records by chance, and remember what they were told.

Each look at a partition is a share session of its own.
Source: KIP-932; Kafka's ShareConsumeRequestManager.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    ShareAcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeTopic,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
)
from fencepost.protocol.messages.share_groups import ShareGroupHeartbeatRequest
from tests.simulation.client import Disconnected
from tests.simulation.clients.cluster import GROUP, Cluster

ACCEPT, RELEASE, REJECT, FORGET = 1, 2, 3, -1
SHARE_VERSION: Final = 1
FIRST_EPOCH, LAST_EPOCH = 0, -1


class Fates:
    """The fates of the records of one partition, as its members know them.

    delivered: all that were handed out. attempted, confirmed: by kind of acknowledgement.
    after_their_end: records that were handed out after their acceptance or rejection was confirmed.
    """

    def __init__(self) -> None:
        self.delivered: set[int] = set()
        self.attempted: defaultdict[int, set[int]] = defaultdict(set)
        self.confirmed: defaultdict[int, set[int]] = defaultdict(set)
        self.after_their_end: list[int] = []

    def has_delivered(self, offset: int) -> None:
        self.delivered.add(offset)
        if offset in self.confirmed[ACCEPT] or offset in self.confirmed[REJECT]:
            self.after_their_end.append(offset)


class ShareMember:
    """decide: chooses what becomes of a record that was handed out."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        member_id: str,
        topic: str,
        fates: Callable[[int], Fates],
        decide: Callable[[], int],
    ) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._member_id = member_id
        self._topic = topic
        self._fates = fates
        self._decide = decide
        self._epoch = 0

    async def heartbeat(self) -> None:
        """Join or stay. Raises Disconnected."""
        request = ShareGroupHeartbeatRequest(
            self._group_id, self._member_id, self._epoch, None, [self._topic] if self._epoch == 0 else None
        )
        response = await self._cluster.ask_coordinator(GROUP, self._group_id, request, 1)
        if response.error_code:
            self._epoch = 0
            self._cluster.forget_coordinator(GROUP, self._group_id)
            raise Disconnected(ErrorCode(response.error_code).name)
        self._epoch = response.member_epoch

    async def work(self, partition: int) -> int:
        """Acquire records of a partition, and acknowledge them; return how many there were. Raises Disconnected."""
        place = TopicPartition(self._topic, partition)
        try:
            address = await self._cluster.leader(place)
            topic_id = self._cluster.topic_ids[self._topic]
            fetched = await self._cluster.send(
                address, self._fetch(topic_id, partition), SHARE_VERSION, channel="share"
            )
            offsets = self._delivered(fetched, partition)
            chosen = {offset: self._decide() for offset in offsets}
            said = {offset: kind for offset, kind in chosen.items() if kind != FORGET}
            for offset, kind in said.items():
                self._fates(partition).attempted[kind].add(offset)
            answer = await self._cluster.send(
                address, self._acknowledge(topic_id, partition, said), SHARE_VERSION, channel="share"
            )
        except Disconnected:
            self._cluster.forget_leader(place)
            raise
        if answer.error_code:
            raise Disconnected(ErrorCode(answer.error_code).name)
        errors = [one.error_code for topic in answer.responses for one in topic.partitions]
        if any(errors):
            self._cluster.forget_leader(place)
            raise Disconnected(ErrorCode(errors[0]).name)
        for offset, kind in said.items():
            self._fates(partition).confirmed[kind].add(offset)
        return len(offsets)

    def _fetch(self, topic_id: bytes, partition: int) -> ShareFetchRequest:
        topics = [ShareFetchTopic(topic_id, [ShareFetchPartition(partition)])]
        return ShareFetchRequest(
            self._group_id, self._member_id, FIRST_EPOCH, 100, 1, max_records=20, batch_size=20, topics=topics
        )

    def _acknowledge(self, topic_id: bytes, partition: int, said: dict[int, int]) -> ShareAcknowledgeRequest:
        batches = [AcknowledgementBatch(offset, offset, [kind]) for offset, kind in sorted(said.items())]
        topics = [ShareAcknowledgeTopic(topic_id, [ShareAcknowledgePartition(partition, batches)])] if batches else []
        return ShareAcknowledgeRequest(self._group_id, self._member_id, LAST_EPOCH, topics=topics)

    def _delivered(self, fetched: Any, partition: int) -> Sequence[int]:
        if fetched.error_code:
            raise Disconnected(ErrorCode(fetched.error_code).name)
        offsets: list[int] = []
        for topic in fetched.responses:
            for one in topic.partitions:
                if one.error_code:
                    raise Disconnected(ErrorCode(one.error_code).name)
                for acquired in one.acquired_records:
                    offsets += range(acquired.first_offset, acquired.last_offset + 1)
        for offset in offsets:
            self._fates(partition).has_delivered(offset)
        return offsets
