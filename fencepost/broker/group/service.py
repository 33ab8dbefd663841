"""Group coordinator of this broker: the service around the shards of `__consumer_offsets`.

It routes each request to the shard of its group, loads the shards, and removes the offsets of deleted topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import cached_property, partial
from heapq import merge
from itertools import count
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any, TypeVar

from fencepost.broker.config import Settings
from fencepost.broker.coordination.internal_topic import InternalTopicLoader
from fencepost.broker.coordination.runtime import (
    CoordinatorRefusal,
    CoordinatorRuntime,
    Decision,
    LoadTimes,
    PartitionState,
    partition_for_key,
)
from fencepost.broker.group.classic.membership import JoinContext
from fencepost.broker.group.classic.rebalance import refuse_join, refuse_sync
from fencepost.broker.group.decision_builder import GroupConfig, GroupTimes, ReplyT, StreamsTimes
from fencepost.broker.group.modern import HeartbeatContext, every_name
from fencepost.broker.group.offsets.commits import Committer, FetchedOffset, Fetcher, OffsetToCommit
from fencepost.broker.group.offsets.decisions import OffsetSearch
from fencepost.broker.group.refusals import HeartbeatRefusal
from fencepost.broker.group.shard import GroupShard, GroupSummary
from fencepost.broker.hosting.group_configs import GroupConfigs
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.sliced_work import SLICE_S, SlicedWork, run_in_slices
from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.kernel.topic_partition import CONSUMER_OFFSETS_TOPIC, TopicPartition
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.consumer_groups import (
    ConsumerGroupDescribedGroup,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from fencepost.protocol.messages.group_admin import DescribedGroup, ListedGroup
from fencepost.protocol.messages.group_membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupResponse,
)
from fencepost.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from fencepost.broker.group.share_groups.groups import ShareGroups
    from fencepost.broker.group.streams.groups import StreamsGroups
    from fencepost.broker.group.streams.service import StreamsGroupService

log = get_logger(__name__)

CLEANUP = Place("removal of the offsets of deleted topics", Policy.RETRY)
ABANDONED_REQUEST = Place("note of a group request that was given up", Policy.REPORT)

GROUPS_PER_STEP = 100

TIMES = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
"""The group configs of `GroupTimes`, in its order."""
STREAMS_TIMES = (*TIMES, "initial.rebalance.delay.ms", "num.standby.replicas", "rack.aware.assignment.tags")

NO_MEMBER = Fetcher()
TimesT = TypeVar("TimesT")
VerifyTransaction = Callable[[TopicPartition], Awaitable[ErrorCode]]


class GroupService:
    """Asynchronous shell around the group coordinator's shards.

    Every method returns errors as values. Among them are NOT_COORDINATOR, before `__consumer_offsets` exists and after
    a failed write to its log, and COORDINATOR_LOAD_IN_PROGRESS while a shard is loaded.
    """

    def __init__(
        self,
        topics: Topics,
        settings: Settings,
        clock: Clock,
        *,
        new_member_id_suffix: Callable[[], str],
        group_configs: GroupConfigs,
    ) -> None:
        self._topics = topics
        self._clock = clock
        self._new_member_id_suffix = new_member_id_suffix
        config = GroupConfig(
            initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
            min_session_timeout_ms=settings.group_min_session_timeout_ms,
            max_session_timeout_ms=settings.group_max_session_timeout_ms,
            max_size=settings.group_max_size,
            max_record_bytes=settings.message_max_bytes,
            offset_metadata_max_bytes=settings.offset_metadata_max_bytes,
            offsets_retention_ms=settings.offsets_retention_minutes * 60_000,
            offsets_retention_check_interval_ms=settings.offsets_retention_check_interval_ms,
            consumer_times=_times(group_configs, "consumer", GroupTimes, TIMES),
            consumer_max_size=settings.group_consumer_max_size,
            consumer_assignors=settings.group_consumer_assignors,
            consumer_migration_policy=settings.group_consumer_migration_policy,
            share_times=_times(group_configs, "share", GroupTimes, TIMES),
            share_max_size=settings.group_share_max_size,
            share_initialize_retry_interval_ms=settings.group_share_initialize_retry_interval_ms,
            streams_times=_times(group_configs, "streams", StreamsTimes, STREAMS_TIMES),
            streams_max_size=settings.group_streams_max_size,
        )
        self._runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            "group",
            make_shard=lambda _: GroupShard(config, topics.metadata),
            clock=clock,
        )
        # A crash between the deletion of a topic and that of its offsets leaves them behind.
        self._offsets_topic = InternalTopicLoader(
            CONSUMER_OFFSETS_TOPIC,
            topics,
            self._runtime,
            coordinator="group",
            loaded=self._drop_offsets_of_deleted_topics,
        )
        self._tasks: set[asyncio.Task[Any]] = set()
        self._tokens = count()
        self._streams_times = config.streams_times
        self._exit_stack = AsyncExitStack()

    @cached_property
    def streams(self) -> StreamsGroupService:
        """Service for streams groups, imported at their first request."""
        from fencepost.broker.group.streams.service import StreamsGroupService

        streams = StreamsGroupService(
            self._decide_on_streams_groups,
            self._topics,
            self._clock,
            lambda group_id: self._streams_times(group_id).heartbeat_interval_ms,
        )
        self._exit_stack.push_async_callback(streams.close)
        return streams

    # Life

    async def start(self) -> None:
        """Begin to load every partition of `__consumer_offsets`, or wait for the topic to be created."""
        self._topics.on_deleted.append(self._topic_deleted)
        self._offsets_topic.start()

    async def ensure_loaded(self) -> None:
        """Wait until every partition is loaded, or could not be loaded."""
        await self._offsets_topic.ensure_loaded()

    def refuse_parked(self) -> None:
        """Refuse all parked requests of members in a rebalance. The members find the group's next coordinator."""
        self._runtime.refuse_parked()

    async def close(self) -> None:
        """Refuse parked requests and stop. Acknowledged changes are durable already."""
        self._topics.on_deleted.remove(self._topic_deleted)
        for task in self._tasks:
            task.cancel()
        await self._exit_stack.aclose()
        await self._offsets_topic.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._runtime.close()

    def _topic_deleted(self, topic: TopicMetadata) -> None:
        for partition in self._runtime.partitions():
            drop = partial(self._drop_offsets_of_deleted_topics, partition.index)
            self._keep(CLEANUP.start_retrying(drop, concerns=partition.log.topic_partition))

    async def _drop_offsets_of_deleted_topics(self, index: int) -> None:
        """Remove offsets of deleted topics as the last part of loading.

        This does not wait for a log that refuses the records; a background task then repeats it.
        """
        try:
            await self._drop_deleted(index, is_patient=False)
        except CoordinatorRefusal:
            drop = partial(self._drop_deleted_when_accepted, index)
            self._keep(CLEANUP.start_retrying(drop, concerns=TopicPartition(CONSUMER_OFFSETS_TOPIC, index)))

    async def _drop_deleted_when_accepted(self, index: int) -> None:
        try:
            await self._drop_deleted(index, is_patient=True)
        except CoordinatorRefusal as refusal:
            # Offline: these offsets are served to no client. The next load of the partition searches again.
            log.debug("offsets_of_deleted_topics_kept", partition=index, error=refusal.error.name)

    async def _drop_deleted(self, index: int, *, is_patient: bool) -> None:
        now_ms = self._clock.now_ms()

        def drop_topics(shard: GroupShard, group_ids: list[str] | None) -> Decision[list[str]]:
            return shard.drop_topics_of_share_groups(self._is_deleted_id, group_ids, now_ms)

        def drop_offsets(shard: GroupShard, search: OffsetSearch | None) -> Decision[OffsetSearch | None]:
            return shard.offsets.drop(self._is_deleted, search)

        await self._runtime.execute_in_parts(index, drop_topics, is_patient=is_patient)
        await self._runtime.execute_in_parts(index, drop_offsets, is_patient=is_patient)

    def _is_deleted_id(self, topic_id: bytes) -> bool:
        return self._topics.metadata.get_by_id(topic_id) is None

    def _is_deleted(self, topic: str, topic_id: bytes) -> bool:
        metadata = self._topics.metadata.get(topic)
        return metadata is None or topic_id not in (ZERO_UUID, metadata.topic_id)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._keep(ABANDONED_REQUEST.start(coroutine))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Membership

    async def join_group(
        self,
        request: JoinGroupRequest,
        *,
        client_id: str,
        client_host: str,
        requires_known_member_id: bool,
        can_skip_assignment: bool,
    ) -> JoinGroupResponse:
        """Return the reply when the group's next generation begins. A closed connection cancels this call and the
        member's parked request.
        """
        joiner = JoinContext(
            client_id=client_id,
            client_host=client_host,
            member_id_suffix=self._new_member_id_suffix(),
            token=next(self._tokens),
            requires_known_member_id=requires_known_member_id,
            can_skip_assignment=can_skip_assignment,
        )
        now_ms = self._clock.now_ms()
        try:
            return await self._decide(request.group_id, lambda shard: shard.join_group(request, joiner, now_ms))
        except CoordinatorRefusal as refusal:
            return refuse_join(refusal.error, request.member_id)
        except asyncio.CancelledError:
            self._spawn(self._abandon(request.group_id, joiner.token))
            raise

    async def sync_group(self, request: SyncGroupRequest) -> SyncGroupResponse:
        """Return the reply when the leader's assignment is durable."""
        token = next(self._tokens)
        now_ms = self._clock.now_ms()
        try:
            return await self._decide(request.group_id, lambda shard: shard.sync_group(request, token, now_ms))
        except CoordinatorRefusal as refusal:
            self._spawn(self._assignment_failed(request, refusal.error))
            return refuse_sync(refusal.error)
        except asyncio.CancelledError:
            self._spawn(self._abandon(request.group_id, token))
            raise

    async def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        now_ms = self._clock.now_ms()
        try:
            return await self._decide(request.group_id, lambda shard: shard.heartbeat(request, now_ms))
        except CoordinatorRefusal as refusal:
            # An error would make old clients search for another coordinator while the group is only being loaded.
            if refusal.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return ErrorCode.NONE
            return refusal.error

    async def leave_group(self, group_id: str, members: list[MemberIdentity]) -> LeaveGroupResponse:
        now_ms = self._clock.now_ms()
        try:
            return await self._decide(group_id, lambda shard: shard.leave_group(group_id, members, now_ms))
        except CoordinatorRefusal as refusal:
            return LeaveGroupResponse(error_code=refusal.error)

    async def _abandon(self, group_id: str, token: Hashable) -> None:
        now_ms = self._clock.now_ms()
        try:
            await self._decide(group_id, lambda shard: shard.parked_request_cancelled(group_id, token, now_ms))
        except CoordinatorRefusal as refusal:
            log.debug("cancelled_request_not_recorded", group_id=group_id, error=refusal.error.name)

    async def _assignment_failed(self, request: SyncGroupRequest, error: ErrorCode) -> None:
        now_ms = self._clock.now_ms()
        try:
            await self._decide(
                request.group_id,
                lambda shard: shard.assignment_failed(request.group_id, request.generation_id, error, now_ms),
            )
        except CoordinatorRefusal as refusal:
            log.debug("failed_assignment_not_recorded", group_id=request.group_id, error=refusal.error.name)

    async def consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        version: int,
        *,
        client_id: str,
        client_host: str,
        may_describe: Callable[[str], bool] = every_name,
    ) -> ConsumerGroupHeartbeatResponse:
        """Handle the heartbeat with which a member of the consumer protocol joins, stays or leaves.

        may_describe: whether the client may see a topic of this name.
        """
        sender = HeartbeatContext(client_id, client_host, self._new_member_id_suffix(), may_describe)
        now_ms = self._clock.now_ms()
        try:
            return await self._decide(
                request.group_id, lambda shard: shard.consumer_heartbeat(request, version, sender, now_ms)
            )
        except CoordinatorRefusal as refusal:
            return ConsumerGroupHeartbeatResponse(error_code=refusal.error)

    # Share groups

    async def decide_on_share_groups(
        self, group_id: str, decide: Callable[[ShareGroups, int], Decision[ReplyT]]
    ) -> ReplyT:
        """Call `decide` with the share groups of the group's shard and the time. Raises CoordinatorRefusal."""
        now_ms = self._clock.now_ms()
        return await self._decide(group_id, lambda shard: decide(shard.shares, now_ms))

    # Streams groups

    async def _decide_on_streams_groups(
        self, group_id: str, decide: Callable[[StreamsGroups, int], Decision[ReplyT]]
    ) -> ReplyT:
        """Call `decide` with the streams groups of the group's shard and the time. Raises CoordinatorRefusal."""
        now_ms = self._clock.now_ms()
        return await self._decide(group_id, lambda shard: decide(shard.streams, now_ms))

    # Offsets

    async def commit_offsets(
        self,
        group_id: str,
        committer: Committer,
        offsets: Sequence[OffsetToCommit],
        *,
        retention_time_ms: int,
    ) -> ErrorCode | list[ErrorCode]:
        """Commit offsets in one batch. Returns one error for all offsets, or one for each."""
        now_ms = self._clock.now_ms()
        try:
            return await self._decide(
                group_id,
                lambda shard: shard.offsets.commit(
                    group_id,
                    committer,
                    offsets,
                    retention_time_ms=retention_time_ms,
                    now_ms=now_ms,
                ),
            )
        except CoordinatorRefusal as refusal:
            return refusal.error

    async def commit_offsets_in_transaction(
        self,
        group_id: str,
        committer: Committer,
        offsets: Sequence[OffsetToCommit],
        *,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        is_transaction_version_2: bool,
        verify: VerifyTransaction,
    ) -> ErrorCode | list[ErrorCode]:
        """Write offsets as a part of the producer's transaction; they are committed when it commits.

        verify: asks the transaction coordinator whether the given partition of `__consumer_offsets` belongs to the
                transaction.
        Also refuses INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE and the errors that `verify` returns.
        Source: KIP-890; Kafka's GroupCoordinatorService.commitTransactionalOffsets.
        """
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        try:
            index = self._partition_index(group_id)
            partition_log = self._runtime.partition(index).log
            guard = partition_log.begin_verification(
                producer_id,
                producer_epoch,
                -1,
                transaction_version_2=is_transaction_version_2,
                transactional_id=transactional_id,
            )
            if isinstance(guard, ErrorCode):
                return guard
            if guard is not None:
                error = await verify(TopicPartition(CONSUMER_OFFSETS_TOPIC, index))
                if error is not ErrorCode.NONE:
                    if error is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
                        partition_log.withdraw_verification(producer_id, guard)
                    return error
            now_ms = self._clock.now_ms()
            answer = await self._runtime.execute(
                index,
                lambda shard: shard.offsets.commit_in_transaction(
                    group_id, committer, (producer_id, producer_epoch), offsets, guard=guard, now_ms=now_ms
                ),
            )
        except CoordinatorRefusal as refusal:
            return refusal.error
        if guard is not None:
            partition_log.confirm_owner(producer_id, transactional_id)
        return answer

    async def fetch_offsets(
        self,
        group_id: str,
        topic_partitions: Iterable[TopicPartition] | None,
        *,
        fetcher: Fetcher = NO_MEMBER,
        require_stable: bool,
    ) -> ErrorCode | list[FetchedOffset]:
        """Return the committed offsets of these partitions, or (None) of all partitions that have one."""

        def decide(shard: GroupShard) -> Decision[ErrorCode | list[FetchedOffset]]:
            error = shard.offsets.check_fetch(group_id, fetcher)
            if error is not ErrorCode.NONE:
                return Decision(error)
            return Decision(shard.offsets.fetch(group_id, topic_partitions, require_stable=require_stable))

        try:
            return await self._decide(group_id, decide)
        except CoordinatorRefusal as refusal:
            return refusal.error

    async def delete_offsets(
        self, group_id: str, topic_partitions: Sequence[TopicPartition]
    ) -> ErrorCode | list[ErrorCode]:
        """Delete offsets in bounded batches. Returns one error for all partitions, or one for each: the error of a
        refused batch is that of all remaining partitions."""
        errors: list[ErrorCode] = []
        while True:
            remaining = topic_partitions[len(errors) :]
            try:
                reply = await self._decide(group_id, partial(_delete_offsets, group_id, remaining))
            except CoordinatorRefusal as refusal:
                reply = refusal.error
            if isinstance(reply, ErrorCode):
                if not errors:
                    return reply
                # A group that has lost its last offset may be removed by now, which leaves none to delete.
                error = ErrorCode.NONE if reply is ErrorCode.GROUP_ID_NOT_FOUND else reply
                return errors + [error] * len(remaining)
            errors += reply
            if len(errors) == len(topic_partitions):
                return errors

    # Administration

    async def list_groups(self) -> ErrorCode | list[ListedGroup]:
        """Return all groups in order of their ids; each is read at a different moment.

        Refuses: COORDINATOR_LOAD_IN_PROGRESS while any partition is loaded or has no leader, or when one was added or
        removed meanwhile, because an incomplete list would look complete.
        """
        return await run_in_slices(self._list_groups(), SLICE_S)

    def _list_groups(self) -> SlicedWork[ErrorCode | list[ListedGroup]]:
        if not self._topics.has_leaders(CONSUMER_OFFSETS_TOPIC):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        partitions = list(self._runtime.partitions())
        listed: list[list[ListedGroup]] = []
        for partition in partitions:
            if partition.state is PartitionState.LOADING:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            if partition.state is PartitionState.ACTIVE:
                of_partition: list[ListedGroup] = []
                for group in partition.shard.list_groups():
                    of_partition.append(group)
                    if not len(of_partition) % GROUPS_PER_STEP:
                        yield
                yield
                of_partition.sort(key=attrgetter("group_id"))
                listed.append(of_partition)
                yield
        groups: list[ListedGroup] = []
        for group in merge(*listed, key=attrgetter("group_id")):
            groups.append(group)
            if not len(groups) % GROUPS_PER_STEP:
                yield
        present = list(self._runtime.partitions())
        if len(present) != len(partitions) or not all(map(is_, present, partitions)):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return groups

    @property
    def is_available(self) -> bool:
        """Whether `__consumer_offsets` exists."""
        return self._offsets_topic.partition_count > 0

    @property
    def is_loading(self) -> bool:
        """Whether a partition of `__consumer_offsets` does not answer requests yet."""
        return any(partition.is_loading for partition in self._runtime.partitions())

    @property
    def offline_partitions(self) -> list[int]:
        """Partitions of `__consumer_offsets` that answer no request any more, after a failure."""
        return self._runtime.offline_partitions()

    @property
    def load_times(self) -> LoadTimes:
        return self._runtime.load_times

    def summaries(self) -> Iterator[GroupSummary]:
        """Summarize all groups of the partitions that answer requests; the caller may pause between any two."""
        for partition in list(self._runtime.partitions()):
            if partition.state is PartitionState.ACTIVE:
                yield from partition.shard.summaries()

    def summary(self, group_id: str) -> GroupSummary | None:
        """Summarize one group; None if it is unknown. Raises CoordinatorRefusal."""
        return self._runtime.partition(self._partition_index(group_id)).shard.summary(group_id)

    async def describe_group(self, group_id: str) -> DescribedGroup | HeartbeatRefusal:
        """Describe a classic group. Refuses: GROUP_ID_NOT_FOUND, and the coordinator's errors."""
        try:
            return await self._decide(group_id, lambda shard: Decision(shard.describe_group(group_id)))
        except CoordinatorRefusal as refusal:
            return HeartbeatRefusal(refusal.error, None)

    async def describe_consumer_group(self, group_id: str) -> ConsumerGroupDescribedGroup:
        try:
            return await self._decide(group_id, lambda shard: Decision(shard.describe_consumer_group(group_id)))
        except CoordinatorRefusal as refusal:
            return ConsumerGroupDescribedGroup(group_id=group_id, error_code=refusal.error)

    async def delete_group(self, group_id: str) -> ErrorCode:
        try:
            while True:
                error = await self._decide(group_id, lambda shard: shard.delete_group(group_id))
                if error is not None:
                    return error
        except CoordinatorRefusal as refusal:
            return refusal.error

    # Routing

    def _partition_index(self, group_id: str) -> int:
        partition_count = self._offsets_topic.partition_count
        if not partition_count:
            raise CoordinatorRefusal(ErrorCode.NOT_COORDINATOR)
        return partition_for_key(group_id, partition_count)

    def _decide(self, group_id: str, decide: Callable[[GroupShard], Decision[ReplyT]]) -> Coroutine[Any, Any, ReplyT]:
        """Decide on the group's shard. Raises CoordinatorRefusal, immediately or when awaited."""
        return self._runtime.execute(self._partition_index(group_id), decide)


def _delete_offsets(
    group_id: str, topic_partitions: Sequence[TopicPartition], shard: GroupShard
) -> Decision[ErrorCode | list[ErrorCode]]:
    return shard.offsets.delete(group_id, topic_partitions)


def _times(
    group_configs: GroupConfigs, kind: str, make: Callable[..., TimesT], names: Sequence[str]
) -> Callable[[str], TimesT]:
    """Return the function that looks up the times of a group of this kind, by its id."""
    configs = [f"{kind}.{name}" for name in names]
    return lambda group_id: make(*(group_configs.value(group_id, config) for config in configs))
