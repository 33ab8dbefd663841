"""Members of groups as light as can be, one connection each: they join, take what they get, and stay alive.

They consume nothing. Like real clients they act on replies at once, and otherwise wait for the next
heartbeat: members of the consumer protocol as long as the broker says, those of the classic one as long as they like.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from fencepost.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartitions,
    decode_assignment,
    encode_assignment,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatTopicPartitions,
)
from fencepost.protocol.messages.group_membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from fencepost.protocol.schema import encode
from scripts.benchmarks.async_client import AsyncClient
from scripts.benchmarks.client import RefusedError

REBALANCE_TIMEOUT_MS = 60_000
SESSION_TIMEOUT_MS = 45_000


class GroupMember(ABC):
    """A member and what it has. `epoch` is 0 before it belongs to the group."""

    def __init__(self, client: AsyncClient, group_id: str, topic: str, partition_count: int) -> None:
        self.client = client
        self.group_id = group_id
        self.topic = topic
        self.partition_count = partition_count
        self.member_id = ""
        self.epoch = 0
        self.partitions: frozenset[int] = frozenset()

    @abstractmethod
    async def join(self) -> None:
        """Become a member."""

    @abstractmethod
    async def stay(self, has_changed: Callable[[], None]) -> None:
        """Belong to the group until cancelled; calls back whenever the member has another epoch or other partitions."""


class ConsumerGroupMember(GroupMember):
    """Of the consumer protocol (KIP-848)."""

    _topic_id = b""
    _interval_s = 0.0
    _has_news = False

    async def join(self) -> None:
        self.member_id = str(uuid4())
        await self._heartbeat(
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS, subscribed_topic_names=[self.topic], topic_partitions=[]
        )

    async def stay(self, has_changed: Callable[[], None]) -> None:
        has_changed()
        while True:
            before = (self.epoch, self.partitions)
            if self._has_news:
                # What it was given it has taken, and what it was to give up it has given up.
                self._has_news = False
                await self._heartbeat(topic_partitions=self._owned())
            else:
                await asyncio.sleep(self._interval_s)
                await self._heartbeat()
            if before != (self.epoch, self.partitions):
                has_changed()

    async def _heartbeat(self, **fields: Any) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch, **fields
        )
        response = await self.client.call(request)
        _finish_once_more(response.error_code)
        self.epoch = response.member_epoch
        self._interval_s = response.heartbeat_interval_ms / 1_000
        if response.assignment is not None:
            for topic in response.assignment.topic_partitions:
                self._topic_id = topic.topic_id
            self.partitions = frozenset(
                partition for topic in response.assignment.topic_partitions for partition in topic.partitions
            )
            self._has_news = True

    def _owned(self) -> list[ConsumerGroupHeartbeatTopicPartitions]:
        if not self.partitions:
            return []
        return [ConsumerGroupHeartbeatTopicPartitions(topic_id=self._topic_id, partitions=sorted(self.partitions))]


class ClassicGroupMember(GroupMember):
    """Of the classic protocol, with the assignor `range`."""

    heartbeat_interval_s = 1.0

    async def join(self) -> None:
        """Take the member id; the group itself is joined in `stay`, as that takes all members."""
        response = await self._ask_to_join()
        if response.error_code != ErrorCode.MEMBER_ID_REQUIRED:
            _finish_once_more(response.error_code)
        self.member_id = response.member_id

    async def stay(self, has_changed: Callable[[], None]) -> None:
        while True:
            response = await self._ask_to_join()
            _finish_once_more(response.error_code)
            if not await self._synchronize(response):
                continue
            has_changed()
            while True:
                await asyncio.sleep(self.heartbeat_interval_s)
                request = HeartbeatRequest(group_id=self.group_id, generation_id=self.epoch, member_id=self.member_id)
                error = (await self.client.call(request)).error_code
                if error == ErrorCode.REBALANCE_IN_PROGRESS:
                    break
                _finish_once_more(error)

    async def _ask_to_join(self) -> JoinGroupResponse:
        subscription = b"\x00\x00" + bytes(encode(ConsumerProtocolSubscription(topics=[self.topic]), 0))
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
        )
        response: JoinGroupResponse = await self.client.call(request)
        return response

    async def _synchronize(self, joined: JoinGroupResponse) -> bool:
        """Whether the generation lasted until the member knew its part."""
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=self._assignments([member.member_id for member in joined.members]),
        )
        response = await self.client.call(request)
        if response.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        _finish_once_more(response.error_code)
        assigned = decode_assignment(response.assignment).assigned_partitions
        self.epoch = joined.generation_id
        self.partitions = frozenset(partition for topic in assigned for partition in topic.partitions)
        return True

    def _assignments(self, member_ids: list[str]) -> list[SyncGroupRequestAssignment]:
        """Of a leader; other members know no members."""
        return [
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=encode_assignment(
                    ConsumerProtocolAssignment(
                        assigned_partitions=[
                            ConsumerProtocolTopicPartitions(
                                topic=self.topic,
                                partitions=list(range(index, self.partition_count, len(member_ids))),
                            )
                        ]
                    ),
                    0,
                ),
            )
            for index, member_id in enumerate(member_ids)
        ]


def _finish_once_more(error_code: int) -> None:
    if error_code:
        raise RefusedError(ErrorCode(error_code).name)
