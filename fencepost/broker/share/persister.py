"""Persister: through it leaders of partitions and group coordinators keep states of records with the share coordinator.

A write is one step, as an append to any log is; the caller waits for durability before it replies.
Source: KIP-932; Kafka's Persister.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from fencepost.broker.coordination.runtime import CoordinatorRefusal
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.share.coordinator import ShareCoordinator
from fencepost.broker.share.sessions import TopicIdPartition
from fencepost.broker.share.shard import SharePartitionKey, ShareState
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.stored.share_group_state import DeadLetterCopy, StateBatch

log = get_logger(__name__)


class SharePersister:
    """Calls the share coordinator of this broker. Errors are values, among them COORDINATOR_NOT_AVAILABLE if it cannot
    answer.

    on_lost: called with a share partition if something that `write` has accepted cannot be stored.
    """

    def __init__(self, coordinator: ShareCoordinator, clock: Clock) -> None:
        self.on_lost: list[Callable[[SharePartitionKey], None]] = []
        self._coordinator = coordinator
        self._clock = clock

    async def close(self) -> None:
        """Drop writes that are not stored yet."""

    async def initialize(
        self, group_id: str, start_offsets: Mapping[TopicIdPartition, int], *, state_epoch: int
    ) -> dict[TopicIdPartition, ErrorCode]:
        """Create the state of share partitions; an offset of -1 leaves their start open.

        Refuses: FENCED_STATE_EPOCH, COORDINATOR_NOT_AVAILABLE.
        """
        try:
            await self._coordinator.ensure_available()
        except StorageError as error:
            log.error("share_state_unavailable", reason=str(error))  # noqa: TRY400  # the reason says it all
            return dict.fromkeys(start_offsets, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        # Concurrently: records that are appended together share one flush.
        errors = await asyncio.gather(
            *(
                self._initialize(SharePartitionKey(group_id, *at), start_offset, state_epoch)
                for at, start_offset in start_offsets.items()
            )
        )
        return dict(zip(start_offsets, errors, strict=True))

    async def _initialize(self, key: SharePartitionKey, start_offset: int, state_epoch: int) -> ErrorCode:
        now_ms = self._clock.now_ms()
        try:
            return await self._coordinator.execute(
                key,
                lambda shard: shard.initialize(key, state_epoch=state_epoch, start_offset=start_offset, now_ms=now_ms),
            )
        except CoordinatorRefusal:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def read(self, key: SharePartitionKey, *, leader_epoch: int) -> ShareState | ErrorCode:
        """Return the state for the partition's leader. Refuses: INVALID_REQUEST (it has none),
        FENCED_LEADER_EPOCH, COORDINATOR_NOT_AVAILABLE."""
        now_ms = self._clock.now_ms()
        try:
            return await self._coordinator.execute(
                key, lambda shard: shard.read(key, leader_epoch=leader_epoch, now_ms=now_ms)
            )
        except CoordinatorRefusal:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE

    def write(
        self,
        key: SharePartitionKey,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        state_batches: Sequence[StateBatch],
        dead_letters: Sequence[DeadLetterCopy] = (),
    ) -> ErrorCode:
        """Append the states of records, in this step; `durable` waits for the disk.

        Refuses: INVALID_REQUEST (it has no state), FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH,
        COORDINATOR_NOT_AVAILABLE.
        """
        now_ms = self._clock.now_ms()
        try:
            return self._coordinator.execute_without_wait(
                key,
                lambda shard: shard.write(
                    key,
                    state_epoch=state_epoch,
                    leader_epoch=leader_epoch,
                    start_offset=start_offset,
                    delivery_complete_count=delivery_complete_count,
                    state_batches=state_batches,
                    dead_letters=dead_letters,
                    now_ms=now_ms,
                ),
            )
        except CoordinatorRefusal:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE

    def durable(self, key: SharePartitionKey) -> Awaitable[ErrorCode]:
        """Wait until everything that was written before this call is durable. Refuses: COORDINATOR_NOT_AVAILABLE."""
        return self._durable_here(key)

    async def _durable_here(self, key: SharePartitionKey) -> ErrorCode:
        try:
            await self._coordinator.durable(key)
        except CoordinatorRefusal:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    async def summary(self, key: SharePartitionKey) -> ShareState | ErrorCode | None:
        """Return the stored state; None if there is none. Refuses: COORDINATOR_NOT_AVAILABLE.

        Of a state that another node keeps, the states of its records are left out.
        """
        if self._coordinator.partition_of(key) is None:
            return None
        await self._coordinator.ensure_loaded()
        try:
            return await self._coordinator.state(key)
        except CoordinatorRefusal:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def delete(self, group_id: str, partitions: Mapping[bytes, Collection[int]]) -> dict[bytes, ErrorCode]:
        """Forget share partitions; one error for each topic. Refuses: COORDINATOR_NOT_AVAILABLE."""
        errors = {}
        for topic_id, numbers in partitions.items():
            deleted = await asyncio.gather(
                *(self._delete(SharePartitionKey(group_id, topic_id, number)) for number in numbers)
            )
            errors[topic_id] = next((error for error in deleted if error is not ErrorCode.NONE), ErrorCode.NONE)
        return errors

    async def _delete(self, key: SharePartitionKey) -> ErrorCode:
        try:
            return await self._coordinator.execute(key, lambda shard: shard.delete(key))
        except CoordinatorRefusal:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
