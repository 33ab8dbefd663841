"""Service of share groups for the handlers: combines the group coordinator, the share coordinator, and the share
partitions that are led here.

Source: KIP-932; the share groups of Kafka's GroupCoordinatorService; Kafka's SharePartitionManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from fencepost.broker.config import Settings
from fencepost.broker.coordination.runtime import CoordinatorRefusal
from fencepost.broker.group.modern import HeartbeatContext
from fencepost.broker.group.refusals import HeartbeatRefusal
from fencepost.broker.group.service import GroupService
from fencepost.broker.group.share_groups.groups import OffsetDeletion
from fencepost.broker.group.share_groups.membership import StateToInitialize
from fencepost.broker.hosting.group_configs import GroupConfigs
from fencepost.broker.hosting.peers import Peers
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.share.acknowledgements import Acknowledgement
from fencepost.broker.share.coordinator import ShareCoordinator
from fencepost.broker.share.dead_letter_copies import DeadLetterCopies
from fencepost.broker.share.dead_letter_logs import DeadLetterLogs
from fencepost.broker.share.end_offsets import end_offsets
from fencepost.broker.share.partition import AcknowledgementRefusal
from fencepost.broker.share.persister import SharePersister
from fencepost.broker.share.sessions import ShareSession, ShareSessions, TopicIdPartition
from fencepost.broker.share.shard import UNKNOWN_COUNT, UNKNOWN_OFFSET, SharePartitionKey, ShareState
from fencepost.broker.share.share_partitions import ServedSharePartitions, error_of_acknowledgement
from fencepost.broker.share.waiting_copies import WaitingCopies
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.share_groups import (
    ShareGroupDescribedGroup,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

log = get_logger(__name__)

INITIALIZATION = Place("initialization of share partitions", Policy.RETRY)

UNKNOWN_LAG = -1


def _as_int64(number: int) -> int:
    """Wrap a number as Java's long does: AlterShareGroupOffsets accepts any offset."""
    return (number + 2**63) % 2**64 - 2**63


async def _shown(storing: Awaitable[ErrorCode]) -> ErrorCode:
    return error_of_acknowledgement(await storing)


class ShareConnection(Protocol):
    """Connection of a session, which ends with it."""

    def add_close_callback(self, callback: Callable[[], None]) -> None: ...
    def __hash__(self) -> int: ...


class ShareOffset(NamedTuple):
    """Offset and lag of a group in a partition; -1 if unknown."""

    start_offset: int = UNKNOWN_OFFSET
    leader_epoch: int = 0
    lag: int = UNKNOWN_LAG
    error: ErrorCode = ErrorCode.NONE


def _share_offset(state: ShareState | ErrorCode | None, end: int | ErrorCode | None) -> ShareOffset:
    """end: the partition's high watermark; None if no lag is known."""
    if state is None:
        return ShareOffset()
    if isinstance(state, ErrorCode):
        return ShareOffset(error=state)
    if isinstance(end, ErrorCode):
        return ShareOffset(error=end)
    lag = UNKNOWN_LAG if end is None else _as_int64(end - state.start_offset - state.delivery_complete_count)
    return ShareOffset(state.start_offset, state.leader_epoch, lag)


class ShareService:
    """The share groups of this broker.

    coordinator: stores states of share partitions on this node. persister: stores states here and on other nodes.
    share_partitions: those that this node leads. sessions: sessions of members with this node.
    dead_letters: copies undeliverable records. waiting_copies: has them continued if no member reads.
    take_producer_id: returns a new one, or None if none is reserved yet.
    peers: the channel to the other nodes; None for a node that is alone.
    """

    def __init__(
        self,
        topics: Topics,
        groups: GroupService,
        group_configs: GroupConfigs,
        settings: Settings,
        clock: Clock,
        *,
        take_producer_id: Callable[[], int | None],
        peers: Peers | None = None,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self.coordinator = ShareCoordinator(topics, settings, clock)
        self._peers = peers
        if peers is None:
            self.persister: SharePersister = SharePersister(self.coordinator, clock)
        else:
            # Imported here: a node that is alone needs none of it.
            from fencepost.broker.share.remote_persister import RemoteSharePersister

            self.persister = RemoteSharePersister(self.coordinator, topics, peers, clock)
        dead_letter_logs = DeadLetterLogs(topics, settings, clock, peers)
        self.dead_letters = DeadLetterCopies(dead_letter_logs, group_configs, clock, take_producer_id)
        self.share_partitions = ServedSharePartitions(topics, self.persister, group_configs, clock, self.dead_letters)
        self.waiting_copies = WaitingCopies(topics, self.coordinator, self.share_partitions, peers)
        self.sessions = ShareSessions(settings.group_share_max_share_sessions)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._groups_of_connection: dict[ShareConnection, set[str]] = {}

    def start(self) -> None:
        self.coordinator.start()
        self.share_partitions.start()
        self.waiting_copies.start()

    async def settled(self) -> None:
        """Wait until the initializations that heartbeats have begun are done."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        await end_tasks(*self._tasks)
        await self.waiting_copies.close()
        await self.share_partitions.close()
        await self.persister.close()
        await self.coordinator.close()

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = INITIALIZATION.start(coroutine)  # members' heartbeats request missing state again
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Members

    async def heartbeat(
        self, request: ShareGroupHeartbeatRequest, *, client_id: str, client_host: str
    ) -> ShareGroupHeartbeatResponse:
        """Let a member join, stay or leave; initialize the state of its new partitions in the background."""
        sender = HeartbeatContext(client_id, client_host, "")
        try:
            heartbeat = await self._groups.decide_on_share_groups(
                request.group_id, lambda shares, now_ms: shares.heartbeat(request, sender, now_ms)
            )
        except CoordinatorRefusal as refusal:
            return ShareGroupHeartbeatResponse(error_code=refusal.error)
        if heartbeat.to_initialize is not None:
            self._spawn(self._initialize_for_members(request.group_id, heartbeat.to_initialize))
        return heartbeat.response

    async def _initialize_for_members(self, group_id: str, wanted: StateToInitialize) -> None:
        start_offsets = {
            TopicIdPartition(topic_id, number): 0 if number in wanted.added.get(topic_id, ()) else UNKNOWN_OFFSET
            for topic_id, numbers in wanted.partitions.items()
            for number in numbers
        }
        await self._initialize(group_id, start_offsets, wanted.state_epoch)

    async def _initialize(
        self, group_id: str, start_offsets: Mapping[TopicIdPartition, int], state_epoch: int
    ) -> dict[TopicIdPartition, ErrorCode]:
        """Create the state of share partitions, and record the result in the group."""
        errors = await self.persister.initialize(group_id, start_offsets, state_epoch=state_epoch)
        done: dict[bytes, set[int]] = {}
        failed: dict[bytes, set[int]] = {}
        for (topic_id, number), error in errors.items():
            self.share_partitions.drop(SharePartitionKey(group_id, topic_id, number))
            of_outcome = done if error is ErrorCode.NONE else failed
            of_outcome.setdefault(topic_id, set()).add(number)
        try:
            if done:
                await self._groups.decide_on_share_groups(
                    group_id, lambda shares, now_ms: shares.initialized(group_id, done, now_ms)
                )
            if failed:
                log.warning("share_state_not_initialized", group_id=group_id, topics=len(failed))
                await self._groups.decide_on_share_groups(
                    group_id, lambda shares, now_ms: shares.not_initialized(group_id, failed, now_ms)
                )
        except CoordinatorRefusal as refusal:
            log.warning("share_state_not_recorded", group_id=group_id, error=refusal.error.name)
            return dict.fromkeys(errors, refusal.error)
        return errors

    async def describe(self, group_id: str) -> ShareGroupDescribedGroup:
        """Refuses: GROUP_ID_NOT_FOUND, and the coordinator's errors."""
        try:
            return await self._groups.decide_on_share_groups(
                group_id, lambda shares, _: shares.decide_describe(group_id)
            )
        except CoordinatorRefusal as refusal:
            return ShareGroupDescribedGroup(group_id=group_id, error_code=refusal.error)

    # Acknowledging

    def acknowledge(
        self, group_id: str, member_id: str, partition: TopicIdPartition, acknowledgements: Sequence[Acknowledgement]
    ) -> AcknowledgementRefusal:
        """Apply a member's acknowledgements in this step; the response must wait for `durable`.

        Returns an error of NONE, or refuses: UNKNOWN_TOPIC_OR_PARTITION (nothing acquired), INVALID_RECORD_STATE,
        INVALID_REQUEST, NOT_LEADER_OR_FOLLOWER, COORDINATOR_NOT_AVAILABLE.
        """
        share_partition = self.share_partitions.loaded(SharePartitionKey(group_id, *partition))
        if share_partition is None:
            return AcknowledgementRefusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No record of this partition was acquired."
            )
        return share_partition.acknowledge(member_id, acknowledgements)

    def durable(self, group_id: str, partition: TopicIdPartition) -> Awaitable[ErrorCode]:
        """Wait until the acknowledgements of a partition are durable: those before this call, in the same step.

        Refuses: COORDINATOR_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER.
        """
        return _shown(self.persister.durable(SharePartitionKey(group_id, *partition)))

    # Sessions

    def open_session(
        self,
        group_id: str,
        member_id: str,
        partitions: Iterable[TopicIdPartition],
        *,
        connection: ShareConnection,
    ) -> ShareSession | ErrorCode:
        """Open a session that ends with its connection. Refuses: SHARE_SESSION_LIMIT_REACHED."""
        session = self.sessions.open(group_id, member_id, connection, partitions)
        if isinstance(session, ShareSession):
            if connection not in self._groups_of_connection:
                self._groups_of_connection[connection] = set()
                connection.add_close_callback(partial(self._connection_closed, connection))
            self._groups_of_connection[connection].add(group_id)
        return session

    def close_session(self, group_id: str, member_id: str) -> None:
        """Close a member's session and release the records that it holds."""
        session = self.sessions.close(group_id, member_id)
        if session is not None:
            self._release(session)

    def _connection_closed(self, connection: ShareConnection) -> None:
        for session in self.sessions.of_connection(connection):
            self.close_session(session.group_id, session.member_id)
        for group_id in self._groups_of_connection.pop(connection, ()):
            if not self.sessions.count_of_group(group_id):
                # No member of the group reads here: its state can be loaded again.
                self.share_partitions.drop_group(group_id)

    def _release(self, session: ShareSession) -> None:
        for partition in session.partitions:
            share_partition = self.share_partitions.loaded(SharePartitionKey(session.group_id, *partition))
            if share_partition is not None:
                share_partition.release(session.member_id)

    # Offsets

    async def offsets(
        self, group_id: str, wanted: Mapping[bytes, Collection[int]] | None
    ) -> dict[bytes, dict[int, ShareOffset]] | ErrorCode:
        """Return a group's offsets in these partitions, or (None) in all that it reads, by topic id and partition.

        Refuses: the coordinator's errors.
        """
        if wanted is None:
            try:
                wanted = await self._groups.decide_on_share_groups(
                    group_id, lambda shares, _: shares.decide_state_partitions(group_id)
                )
            except CoordinatorRefusal as refusal:
                return refusal.error
        keys = [
            SharePartitionKey(group_id, topic_id, number)
            for topic_id, numbers in wanted.items()
            for number in sorted(numbers)
        ]
        states = await asyncio.gather(*(self._stored(key) for key in keys))
        names = {
            key: TopicPartition(topic.name, key.partition)
            for key, state in zip(keys, states, strict=True)
            if isinstance(state, ShareState)
            and state.start_offset != UNKNOWN_OFFSET
            and state.delivery_complete_count != UNKNOWN_COUNT
            and (topic := self._topics.metadata.get_by_id(key.topic_id)) is not None
        }
        ends = await end_offsets(self._topics, self._peers, names.values())
        found: dict[bytes, dict[int, ShareOffset]] = {topic_id: {} for topic_id in wanted}
        for key, state in zip(keys, states, strict=True):
            end = ends[names[key]] if key in names else None
            found[key.topic_id][key.partition] = _share_offset(state, end)
        return found

    async def _stored(self, key: SharePartitionKey) -> ShareState | ErrorCode | None:
        topic = self._topics.metadata.get_by_id(key.topic_id)
        if topic is None or not 0 <= key.partition < topic.partition_count:
            return None
        return await self.persister.summary(key)

    async def alter_offsets(
        self, group_id: str, start_offsets: Mapping[TopicIdPartition, int]
    ) -> HeartbeatRefusal | dict[TopicIdPartition, ErrorCode]:
        """Set the start offsets of an empty group. Refuses: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND (of another kind), the
        coordinator's errors."""
        partitions: dict[bytes, list[int]] = {}
        for topic_id, number in start_offsets:
            partitions.setdefault(topic_id, []).append(number)
        try:
            wanted = await self._groups.decide_on_share_groups(
                group_id, lambda shares, now_ms: shares.begin_altering(group_id, partitions, now_ms)
            )
        except CoordinatorRefusal as refusal:
            return HeartbeatRefusal(refusal.error, refusal.error.name)
        if isinstance(wanted, HeartbeatRefusal):
            return wanted
        return await self._initialize(group_id, start_offsets, wanted.state_epoch)

    async def delete_offsets(
        self, group_id: str, names: Collection[str] | None
    ) -> HeartbeatRefusal | tuple[dict[bytes, ErrorCode], Collection[str]]:
        """Delete an empty group's state of topics, or (None) of all: return an error for each topic, and the names
        without state. Refuses: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, the coordinator's errors."""
        try:
            deletion = await self._groups.decide_on_share_groups(
                group_id, lambda shares, now_ms: shares.begin_deleting(group_id, names, now_ms)
            )
            if not isinstance(deletion, OffsetDeletion):
                return deletion
            for topic_id, numbers in deletion.partitions.items():
                for number in numbers:
                    self.share_partitions.drop(SharePartitionKey(group_id, topic_id, number))
            errors = await self.persister.delete(group_id, deletion.partitions)
            done = [topic_id for topic_id, error in errors.items() if error is ErrorCode.NONE]
            if done:
                await self._groups.decide_on_share_groups(
                    group_id, lambda shares, now_ms: shares.deleted(group_id, done, now_ms)
                )
        except CoordinatorRefusal as refusal:
            return HeartbeatRefusal(refusal.error, refusal.error.name)
        return errors, deletion.without_state

    async def prepare_to_delete_group(self, group_id: str) -> ErrorCode:
        """Delete the state of a group before its deletion; NONE also for groups of other kinds.

        Refuses: NON_EMPTY_GROUP, the coordinator's errors.
        """
        outcome = await self.delete_offsets(group_id, None)
        if isinstance(outcome, HeartbeatRefusal):
            return ErrorCode.NONE if outcome.error is ErrorCode.GROUP_ID_NOT_FOUND else outcome.error
        errors, _ = outcome
        return next((error for error in errors.values() if error is not ErrorCode.NONE), ErrorCode.NONE)
