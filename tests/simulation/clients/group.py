"""Members of consumer groups of the classic protocol: they join, learn what is theirs, stay by heartbeats, and leave.

Source: Kafka's AbstractCoordinator and ConsumerCoordinator, RangeAssignor; KIP-394, KIP-447.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Any, Final

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.history.writer import ClientHistory, OffsetsCall
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from tests.simulation.client import Disconnected
from tests.simulation.clients.cluster import EARLIEST, GROUP, Cluster
from tests.simulation.clients.producer import GroupMembership
from tests.simulation.clients.sending import raise_its_failure

SESSION_TIMEOUT_MS: Final = 6_000
REBALANCE_TIMEOUT_MS: Final = 8_000
HEARTBEAT_INTERVAL_S: Final = 1.0
JOIN_VERSION: Final = 7
SYNC_VERSION: Final = 5
HEARTBEAT_VERSION: Final = 4
LEAVE_VERSION: Final = 4
OFFSET_COMMIT_VERSION: Final = 8
OFFSET_FETCH_VERSION: Final = 7

_LOST_COORDINATOR: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_HEAD = struct.Struct(">hi")


class NotMember(Exception):  # noqa: N818  # what applications meet and deal with
    """The group has moved on without this member, or has to: it must join again."""


def encode_subscription(topics: Sequence[str]) -> bytes:
    """A ConsumerProtocolSubscription of version 0."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return _HEAD.pack(0, len(topics)) + names + struct.pack(">i", -1)


def encode_assignment(partitions: Sequence[TopicPartition]) -> bytes:
    """What this model's leader tells a member: topics and partitions, as text; nobody else reads it."""
    return "\n".join(f"{topic} {partition}" for topic, partition in partitions).encode()


def decode_assignment(content: bytes) -> list[TopicPartition]:
    lines = (line.split(" ") for line in content.decode().splitlines())
    return [TopicPartition(topic, int(partition)) for topic, partition in lines]


class GroupMember:
    """One member. After `join`, `partitions` are its own until `must_rejoin`.

    channel: requests to the coordinator have a connection of their own: a join waits for other members.
    """

    def __init__(self, cluster: Cluster, history: ClientHistory, group_id: str, topics: Sequence[str]) -> None:
        self.group_id = group_id
        self.partitions: list[TopicPartition] = []
        self.must_rejoin = True
        self._cluster = cluster
        self._history = history
        self._topics = topics
        self._generation_id = -1
        self._member_id = ""
        self._heartbeats: asyncio.Task[None] | None = None

    @property
    def membership(self) -> GroupMembership:
        return GroupMembership(self.group_id, self._generation_id, self._member_id)

    async def join(self) -> None:
        """Become a member of the next generation; tries until that works."""
        self.must_rejoin = True
        while self.must_rejoin:
            try:
                await self._try_to_join()
            except Disconnected:
                await self._cluster.back_off()
        if self._heartbeats is None:
            self._heartbeats = asyncio.get_running_loop().create_task(self._beat())
            self._heartbeats.add_done_callback(raise_its_failure)

    async def leave(self) -> None:
        """Leave, so that others need not wait until the session has timed out; tries once."""
        self.close()
        if self._member_id:
            request = LeaveGroupRequest(group_id=self.group_id, members=[MemberIdentity(member_id=self._member_id)])
            try:
                await self._ask(request, LEAVE_VERSION)
            except Disconnected:
                pass

    def close(self) -> None:
        """Say nothing more; the group finds out by itself."""
        if self._heartbeats is not None:
            self._heartbeats.cancel()

    # Offsets

    async def committed_positions(self) -> dict[TopicPartition, int]:
        """Where to go on in its partitions, once no transaction holds offsets of them. Raises Disconnected."""
        positions = {}
        while True:
            committed = await self._fetch_offsets(self.partitions, self._history.fetch_offsets(self.group_id))
            if committed is not None:
                break
            await self._cluster.back_off()
        for topic_partition, offset in committed.items():
            if offset < 0:
                offset = await self._cluster.offset(topic_partition, EARLIEST)
            positions[topic_partition] = offset
        return positions

    async def look_at_offsets(self) -> None:
        """Ask for the committed offsets of its partitions, in one attempt. Raises Disconnected."""
        await self._fetch_offsets(self.partitions, self._history.fetch_offsets(self.group_id))

    async def commit(self, offsets: dict[TopicPartition, int]) -> None:
        """Commit offsets outside transactions, in one attempt. Raises NotMember and Disconnected."""
        flat = [(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for topic, partition, offset in flat:
            by_topic.setdefault(topic, []).append(
                OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
            )
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self._generation_id,
            member_id=self._member_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in by_topic.items()],
        )
        call = self._history.commit_offsets(self.group_id, flat)
        try:
            response = await self._ask(request, OFFSET_COMMIT_VERSION)
        except Disconnected as lost:
            call.unknown(str(lost))
            raise
        codes = {partition.error_code for topic in response.topics for partition in topic.partitions}
        if codes == {0}:
            call.ok()
            return
        error = ErrorCode(max(codes))
        if error in _LOST_COORDINATOR:
            call.unknown(error.name)
        else:
            call.fail(error.name)
        self._note(error)
        if self.must_rejoin:
            raise NotMember(error.name)
        raise Disconnected(error.name)

    async def final_offsets(self) -> None:
        """For the history: what the group has committed, once all is quiet. Raises Disconnected."""
        await self._fetch_offsets(self.partitions, self._history.final_offsets(self.group_id))

    async def _fetch_offsets(
        self, partitions: Sequence[TopicPartition], call: OffsetsCall
    ) -> dict[TopicPartition, int] | None:
        """-1 where nothing is committed; None while transactions are open. Raises Disconnected."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in partitions:
            by_topic.setdefault(topic, []).append(partition)
        request = OffsetFetchRequest(
            group_id=self.group_id,
            topics=[OffsetFetchRequestTopic(name=name, partition_indexes=parts) for name, parts in by_topic.items()],
            require_stable=True,
        )
        response = await self._ask(request, OFFSET_FETCH_VERSION)
        answers = {
            TopicPartition(topic.name, answer.partition_index): answer
            for topic in response.topics
            for answer in topic.partitions
        }
        errors = {response.error_code, *(answer.error_code for answer in answers.values())} - {0}
        if errors:
            error = ErrorCode(max(errors))
            call.fail(error.name)
            if error is ErrorCode.UNSTABLE_OFFSET_COMMIT:
                return None
            self._note(error)
            raise Disconnected(error.name)
        offsets = {topic_partition: int(answer.committed_offset) for topic_partition, answer in answers.items()}
        call.ok((topic, partition, None if offset < 0 else offset) for (topic, partition), offset in offsets.items())
        return offsets

    # Membership

    async def _try_to_join(self) -> None:
        """Raises Disconnected."""
        response = await self._ask(
            JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=SESSION_TIMEOUT_MS,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                member_id=self._member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=encode_subscription(self._topics))],
            ),
            JOIN_VERSION,
            timeout_s=REBALANCE_TIMEOUT_MS / 1000 + 2,
        )
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = response.member_id
            return
        if response.error_code:
            self._note(ErrorCode(response.error_code))
            await self._cluster.back_off()
            return
        self._member_id, self._generation_id = response.member_id, response.generation_id
        assignments = []
        if response.leader == self._member_id:
            assignments = await self._assign(sorted(member.member_id for member in response.members))
        synced = await self._ask(
            SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self._generation_id,
                member_id=self._member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=assignments,
            ),
            SYNC_VERSION,
            timeout_s=REBALANCE_TIMEOUT_MS / 1000 + 2,
        )
        if synced.error_code:
            self._note(ErrorCode(synced.error_code))
            await self._cluster.back_off()
            return
        self.partitions = decode_assignment(synced.assignment)
        self.must_rejoin = False

    async def _assign(self, member_ids: Sequence[str]) -> list[SyncGroupRequestAssignment]:
        """Partitions in turn. Raises Disconnected."""
        for topic in self._topics:
            await self._cluster.learn(topic)
        partitions = [
            TopicPartition(topic, partition)
            for topic in self._topics
            for partition in range(self._cluster.partition_counts.get(topic, 0))
        ]
        return [
            SyncGroupRequestAssignment(
                member_id=member_id, assignment=encode_assignment(partitions[index :: len(member_ids)])
            )
            for index, member_id in enumerate(member_ids)
        ]

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_INTERVAL_S)
            if self.must_rejoin:
                continue
            generation_id = self._generation_id
            request = HeartbeatRequest(group_id=self.group_id, generation_id=generation_id, member_id=self._member_id)
            try:
                response = await self._ask(request, HEARTBEAT_VERSION)
            except Disconnected:
                continue
            if generation_id == self._generation_id:
                self._note(ErrorCode(response.error_code))

    def _note(self, error: ErrorCode) -> None:
        """What an error says about the membership."""
        if error in _LOST_COORDINATOR:
            self._cluster.forget_coordinator(GROUP, self.group_id)
        elif error is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
            self.must_rejoin = True
        elif error in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
            self.must_rejoin = True

    async def _ask(self, message: Any, version: int, *, timeout_s: float | None = None) -> Any:
        """Raises Disconnected."""
        return await self._cluster.ask_coordinator(
            GROUP, self.group_id, message, version, channel="group", timeout_s=timeout_s
        )
