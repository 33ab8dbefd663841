"""Share partitions that members read from this broker: loads them on demand, writes their transitions before they are
applied, and runs the timers of their locks.

Source: KIP-932; Kafka's SharePartitionManager, SharePartition (the part that is not pure) and DelayedShareFetch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from fencepost.broker.config.group_settings import EARLIEST, duration_ms
from fencepost.broker.hosting.group_configs import GroupConfigs
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.clock import Clock, steady
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.partition_log import Isolation, PartitionLog
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.share.acknowledgements import Acknowledgement
from fencepost.broker.share.acquire_request import AcquireMode, ShareLimits
from fencepost.broker.share.acquired_records import RecordSpan, RecordState
from fencepost.broker.share.dead_letter_copies import DeadLetterCopies
from fencepost.broker.share.dead_letters import is_under_way
from fencepost.broker.share.partition import (
    AcknowledgementRefusal,
    Acquired,
    SharePartition,
    ShareTransition,
)
from fencepost.broker.share.persister import SharePersister
from fencepost.broker.share.reading import read_batches, records_of
from fencepost.broker.share.shard import UNKNOWN_OFFSET, SharePartitionKey, ShareState
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.stored.share_group_state import DeadLetterCopy

log = get_logger(__name__)

LOCK_TIMER = Place("timer of the locks of a share partition", Policy.FAIL_PARTITION)
SHARE_PARTITION_CHANGE = Place("change of a share partition", Policy.FAIL_PARTITION)
SHARE_LOAD = Place("loading of a share partition", Policy.REPORT)

NOTHING = memoryview(b"")
ACCEPTED = AcknowledgementRefusal(ErrorCode.NONE, "")


class AcquireResult(NamedTuple):
    """Records acquired by a member, with the bytes of their batches; or the error.

    ends_wait:    whether to answer the member now, even without records.
    is_exhausted: whether all record locks are in use: a response without records omits the partition.
    """

    records: memoryview = NOTHING
    acquired: Sequence[Acquired] = ()
    error: ErrorCode = ErrorCode.NONE
    ends_wait: bool = False
    is_exhausted: bool = False


@dataclass(frozen=True, slots=True)
class AcquireTerms:
    """Parameters of a member's fetch."""

    member_id: str
    mode: AcquireMode
    batch_size: int
    isolation: Isolation


def error_of_acknowledgement(error: ErrorCode) -> ErrorCode:
    """The error that a member gets, of that with which the persister refuses to store its acknowledgements."""
    if error in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE):
        return error
    if error is ErrorCode.INVALID_REQUEST:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NOT_LEADER_OR_FOLLOWER


class ServedSharePartition:
    """A share partition that this broker leads.

    is_dropped: this broker no longer serves it; users must release the object.
    dead_letters: the last copy of records into a dead-letter topic; None before the first.
    """

    def __init__(
        self,
        key: SharePartitionKey,
        partition_log: PartitionLog,
        state: ShareState,
        *,
        persister: SharePersister,
        limits: Callable[[str], ShareLimits],
        clock: Clock,
        drop: Callable[[SharePartitionKey], None],
        copies: DeadLetterCopies,
    ) -> None:
        self.key = key
        self.log = partition_log
        self.is_dropped = False
        self.dead_letters = state.dead_letters
        self._partition = SharePartition(state.start_offset, state.state_batches)
        self._state_epoch = state.state_epoch
        self._leader_epoch = partition_log.leader_epoch
        self._persister = persister
        self._limits = limits
        self._clock = steady(clock)
        self._drop = drop
        self._copies = copies
        self._watchers: dict[Callable[[], None], None] = {}
        self._timer: asyncio.TimerHandle | None = None

    # Watching

    def add_watcher(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever there may be more records to acquire."""
        self._watchers[callback] = None
        self.log.add_watcher(callback)

    def remove_watcher(self, callback: Callable[[], None]) -> None:
        self._watchers.pop(callback, None)
        self.log.remove_watcher(callback)

    def close(self) -> None:
        self.is_dropped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._copies.end(self)
        self._notify()

    def _notify(self) -> None:
        for callback in tuple(self._watchers):
            callback()

    # Acquiring

    def available_bytes(self, terms: AcquireTerms, maximum_bytes: int) -> int:
        """Return the number of bytes that can be read."""
        offset = self._next_fetch_offset()
        if offset is None:
            return 0
        return len(self.log.read(offset, maximum_bytes, isolation=terms.isolation).records)

    def acquire(
        self, terms: AcquireTerms, *, maximum_count: int, maximum_bytes: int, minimum_one_batch: bool
    ) -> AcquireResult:
        """Acquire available records for a member. Records that no member may have are skipped; if there are no others,
        the member must fetch again."""
        limits = self._limits(self.key.group_id)
        offset = self._next_fetch_offset()
        if offset is None:
            return AcquireResult(is_exhausted=True)
        if maximum_count <= 0:
            return AcquireResult()
        found = self.log.read(offset, maximum_bytes, isolation=terms.isolation, minimum_one_batch=minimum_one_batch)
        if found.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            # The log now begins later, or the group's offset was set beyond its end.
            return AcquireResult(ends_wait=self._partition.log_start_moved(self.log.log_start_offset))
        if found.error is not ErrorCode.NONE:
            return AcquireResult(error=found.error)
        if not found.records:
            return AcquireResult()
        try:
            last_offset = self._partition.end_offset + maximum_count - 1
            read = read_batches(found.records, found.aborted_transactions, last_offset)
        except DecodeError:
            return AcquireResult(error=ErrorCode.CORRUPT_MESSAGE)
        try:
            acquired = self._partition.acquire(
                terms.member_id,
                fetch_offset=offset,
                batches=read.batches,
                aborted=read.aborted,
                mode=terms.mode,
                maximum_count=maximum_count,
                batch_size=terms.batch_size,
                limits=limits,
                now_ms=self._clock.now_ms(),
            )
            if not acquired:
                return AcquireResult(ends_wait=self._next_fetch_offset() != offset)
            self._schedule()
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            return AcquireResult(error=self._failed(error))
        return AcquireResult(records_of(read, acquired), acquired)

    def _next_fetch_offset(self) -> int | None:
        return self._partition.next_fetch_offset(self._limits(self.key.group_id))

    # Acknowledging

    def acknowledge(self, member_id: str, acknowledgements: Sequence[Acknowledgement]) -> AcknowledgementRefusal:
        """Apply a member's acknowledgements, all of them or none; not durable yet. Return ACCEPTED or the refusal.

        Refuses: INVALID_RECORD_STATE, INVALID_REQUEST, and the refusals of `SharePersister.write`.
        """
        decided = self._partition.acknowledge(
            member_id, acknowledgements, limits=self._limits(self.key.group_id), now_ms=self._clock.now_ms()
        )
        if isinstance(decided, AcknowledgementRefusal):
            return decided
        error = self._write_and_apply(decided)
        return ACCEPTED if error is ErrorCode.NONE else AcknowledgementRefusal(error, "")

    def apply_fetch_acknowledgements(self) -> None:
        """Move the start after a fetch whose acknowledgements were applied has acquired records, as in Kafka, which
        still writes the state then: the start also moves over records skipped meanwhile."""
        if self._partition.advance():
            self._notify()  # there may be room for more

    def release(self, member_id: str) -> ErrorCode:
        """Release the records of a member whose session ended."""
        transition = self._partition.release(member_id, self._limits(self.key.group_id))
        return ErrorCode.NONE if transition is None else self._write_and_apply(transition)

    def _write_and_apply(self, transition: ShareTransition, copy: DeadLetterCopy | None = None) -> ErrorCode:
        """Write a transition, and a copy if it has changed, then apply them, in one step."""
        if transition.state_batches or copy is not None:
            error = self._persister.write(
                self.key,
                state_epoch=self._state_epoch,
                leader_epoch=self._leader_epoch,
                start_offset=self._partition.start_offset,
                delivery_complete_count=transition.delivery_complete_count,
                state_batches=transition.state_batches,
                dead_letters=() if copy is None else (copy,),
            )
            if error is not ErrorCode.NONE:
                return self._refused(error)
        try:
            self._partition.apply(transition)
            if copy is not None:
                self.dead_letters = copy
            self._schedule()
            self._copy_undeliverable(transition)
            self._notify()
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            return self._failed(error)
        return ErrorCode.NONE

    def _failed(self, error: BaseException) -> ErrorCode:
        """Drop a partition that may be half changed; the next request loads its stored state."""
        SHARE_PARTITION_CHANGE.failed(error, concerns=self.key, on_failure=lambda _: self._drop(self.key))
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _refused(self, error: ErrorCode) -> ErrorCode:
        log.warning(
            "share_state_not_written",
            group_id=self.key.group_id,
            topic=self.log.topic_partition.topic,
            partition=self.key.partition,
            error=error.name,
        )
        if error is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
            # It was reset, deleted, or has another leader: the state here is outdated.
            self._drop(self.key)
        return error_of_acknowledgement(error)

    # Dead letters

    @property
    def has_undeliverable(self) -> bool:
        """Whether records wait for the dead-letter topic."""
        return is_under_way(self.dead_letters) or self._partition.first_undeliverable() is not None

    def first_undeliverable(self, first_offset: int = 0) -> RecordSpan | None:
        return self._partition.first_undeliverable(first_offset)

    def continue_copies(self) -> None:
        """Continue the copies that were stored when the share partition was loaded."""
        if self.has_undeliverable:
            self._copies.begin(self)

    def _copy_undeliverable(self, transition: ShareTransition) -> None:
        if any(batch.delivery_state == RecordState.ARCHIVING for batch in transition.state_batches):
            self._copies.begin(self)

    def store_copy(self, copy: DeadLetterCopy, first_offset: int, last_offset: int, state: RecordState) -> ErrorCode:
        """See `WaitingSharePartition`."""
        return self._write_and_apply(self._partition.settle(first_offset, last_offset, state), copy)

    async def copy_durable(self) -> ErrorCode:
        """See `WaitingSharePartition`."""
        error = await self._persister.durable(self.key)
        if error is not ErrorCode.NONE and not self.is_dropped:
            self._drop(self.key)  # the state in memory is ahead of the stored one
        return error

    # Time

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self._partition.next_deadline_ms()
        if deadline_ms is not None and not self.is_dropped:
            delay_s = max(0, deadline_ms - self._clock.now_ms()) / 1000
            expire = LOCK_TIMER.callback(
                self._expire_locks, concerns=self.key, on_failure=lambda _: self._drop(self.key)
            )
            self._timer = asyncio.get_running_loop().call_later(delay_s, expire)

    def _expire_locks(self) -> None:
        self._timer = None
        transition = self._partition.expire_locks(self._limits(self.key.group_id), self._clock.now_ms())
        if transition is not None and self._write_and_apply(transition) is not ErrorCode.NONE and not self.is_dropped:
            # No client depends on this write: after a crash these deliveries are only not counted.
            self._partition.apply(transition)
            self._copy_undeliverable(transition)
            self._notify()
        self._schedule()


class ServedSharePartitions:
    """All share partitions that this broker serves."""

    def __init__(
        self,
        topics: Topics,
        persister: SharePersister,
        group_configs: GroupConfigs,
        clock: Clock,
        copies: DeadLetterCopies,
    ) -> None:
        self._topics = topics
        self._persister = persister
        self._group_configs = group_configs
        self._clock = clock
        self._copies = copies
        self._partitions: dict[SharePartitionKey, ServedSharePartition] = {}
        self._loading: dict[SharePartitionKey, asyncio.Task[ServedSharePartition | ErrorCode]] = {}

    # Life

    def start(self) -> None:
        self._topics.on_deleted.append(self._topic_deleted)
        self._topics.on_resigned.append(self._partition_resigned)
        self._persister.on_lost.append(self.drop)

    async def close(self) -> None:
        self._topics.on_deleted.remove(self._topic_deleted)
        self._topics.on_resigned.remove(self._partition_resigned)
        self._persister.on_lost.remove(self.drop)
        await end_tasks(*self._loading.values())
        await self._copies.close()
        for key in list(self._partitions):
            self.drop(key)

    def _topic_deleted(self, topic: TopicMetadata) -> None:
        for key in [key for key in self._partitions if key.topic_id == topic.topic_id]:
            self.drop(key)

    def _partition_resigned(self, topic_partition: TopicPartition) -> None:
        for key, share_partition in list(self._partitions.items()):
            if share_partition.log.topic_partition == topic_partition:
                self.drop(key)

    def drop(self, key: SharePartitionKey) -> None:
        """Drop a share partition; the next request loads it again."""
        share_partition = self._partitions.pop(key, None)
        if share_partition is not None:
            share_partition.close()

    def drop_group(self, group_id: str) -> None:
        """Drop the share partitions of a group that nobody reads here, but none whose dead letters are being copied."""
        for key, share_partition in list(self._partitions.items()):
            if key.group_id == group_id and not share_partition.has_undeliverable:
                self.drop(key)

    # Finding

    @property
    def loaded_count(self) -> int:
        return len(self._partitions)

    def loaded(self, key: SharePartitionKey) -> ServedSharePartition | None:
        return self._partitions.get(key)

    async def get(self, key: SharePartitionKey, partition_log: PartitionLog) -> ServedSharePartition | ErrorCode:
        """Return a share partition, loaded if need be. Refuses as `SharePersister.read`."""
        share_partition = self._partitions.get(key)
        if share_partition is not None:
            return share_partition
        task = self._loading.get(key)
        if task is None:
            task = SHARE_LOAD.start(self._load(key, partition_log), concerns=key)
            self._loading[key] = task
            task.add_done_callback(lambda _: self._loading.pop(key, None))
        return await asyncio.shield(task)

    async def _load(self, key: SharePartitionKey, partition_log: PartitionLog) -> ServedSharePartition | ErrorCode:
        leader_epoch = partition_log.leader_epoch
        state = await self._persister.read(key, leader_epoch=leader_epoch)
        first_offset = UNKNOWN_OFFSET
        if not isinstance(state, ErrorCode) and state.start_offset == UNKNOWN_OFFSET:
            try:
                first_offset = await self._first_offset(key.group_id, partition_log)
            except StorageError:
                return ErrorCode.KAFKA_STORAGE_ERROR
            # The search may have taken long: the state may have changed meanwhile.
            state = await self._persister.read(key, leader_epoch=leader_epoch)
        if isinstance(state, ErrorCode):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if state is ErrorCode.FENCED_LEADER_EPOCH else state
        if partition_log.is_offline or partition_log.is_deleted:
            return ErrorCode.KAFKA_STORAGE_ERROR
        is_led_here = self._topics.log(partition_log.topic_partition) is partition_log
        if not is_led_here or partition_log.leader_epoch != leader_epoch:
            # The partition moved during the wait. `_partition_resigned` found nothing to drop, so that this state would
            # be served, outdated, when the partition returns.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        start_offset = first_offset if state.start_offset == UNKNOWN_OFFSET else state.start_offset
        share_partition = ServedSharePartition(
            key,
            partition_log,
            replace(state, start_offset=start_offset),
            persister=self._persister,
            limits=self.limits,
            clock=self._clock,
            drop=self.drop,
            copies=self._copies,
        )
        self._partitions[key] = share_partition
        share_partition.continue_copies()
        log.info(
            "share_partition_loaded",
            group_id=key.group_id,
            topic=partition_log.topic_partition.topic,
            partition=key.partition,
            start_offset=start_offset,
        )
        return share_partition

    async def _first_offset(self, group_id: str, partition_log: PartitionLog) -> int:
        reset: str = self._group_configs.value(group_id, "share.auto.offset.reset")
        if reset == EARLIEST:
            return partition_log.log_start_offset
        back_ms = duration_ms(reset)
        if back_ms is not None:
            search = partition_log.offset_for_timestamp(
                self._clock.now_ms() - back_ms, isolation=Isolation.READ_UNCOMMITTED
            )
            found = await self._topics.searches.finish(search)
            if found is not None:
                return found.offset
        return partition_log.high_watermark

    def limits(self, group_id: str) -> ShareLimits:
        """Return the settings that are in force for a group."""
        value = self._group_configs.value
        return ShareLimits(
            record_lock_duration_ms=value(group_id, "share.record.lock.duration.ms"),
            delivery_count_limit=value(group_id, "share.delivery.count.limit"),
            partition_max_record_locks=value(group_id, "share.partition.max.record.locks"),
            renew_acknowledge_enable=value(group_id, "share.renew.acknowledge.enable"),
            has_dead_letter_topic=value(group_id, "errors.deadletterqueue.topic.name") != "",
        )

    def isolation(self, group_id: str) -> Isolation:
        """Return the isolation level of a group."""
        if self._group_configs.value(group_id, "share.isolation.level") == "read_committed":
            return Isolation.READ_COMMITTED
        return Isolation.READ_UNCOMMITTED
