"""Persister of a node that is one of several: the share coordinator here keeps states of records, or that of the node
that leads their partition of `__share_group_state`.

Source: KIP-932; Kafka's DefaultStatePersister and PersisterStateManager.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from fencepost.broker.hosting.peers import Peers, PeerUnreachable, received_error
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.share.coordinator import ShareCoordinator
from fencepost.broker.share.persister import SharePersister
from fencepost.broker.share.shard import SharePartitionKey, ShareState, merged_batches
from fencepost.broker.share.state_requests import DELETE, INITIALIZE, READ, SUMMARY, WRITE, StateApi, StateRequests
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.share_state import (
    DeleteShareStatePartition,
    InitializeShareStatePartition,
    ReadShareStatePartition,
    WriteShareStatePartition,
)
from fencepost.protocol.stored.share_group_state import DeadLetterCopy, StateBatch

log = get_logger(__name__)

WRITING = Place("storing of share state elsewhere", Policy.FAIL_PARTITION)

LONGEST_WAIT_S: Final = 20.0
"""How long a write is tried. Shorter than clients wait, longer than it takes until a process that hangs is replaced."""
LONGEST_READ_S: Final = 2.0
"""A fetch waits for it, also on behalf of other partitions. Clients fetch again."""
FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 1.0

TEMPORARY: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
FINAL: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
    }
)

Answer = TypeVar("Answer")


class _Write:
    """States of records that are to be stored. `stored` gets the error, or NONE.

    is_on_its_way: it may have been stored already; nothing is added to it any more.
    """

    __slots__ = (
        "batches",
        "dead_letters",
        "delivery_complete_count",
        "epochs",
        "is_on_its_way",
        "start_offset",
        "stored",
    )

    def __init__(
        self,
        epochs: tuple[int, int],
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
        dead_letters: Sequence[DeadLetterCopy],
        stored: asyncio.Future[ErrorCode],
    ) -> None:
        self.epochs = epochs  # of the state and of the leader
        self.start_offset = start_offset
        self.delivery_complete_count = delivery_complete_count
        self.batches = batches
        self.dead_letters = dead_letters
        self.stored = stored
        self.is_on_its_way = False


class RemoteSharePersister(SharePersister):
    """Asks the coordinator of each share partition; without one, retries for LONGEST_WAIT_S at most.

    Writes to a share partition are stored in their order, one after the other. `write` accepts those that have to wait,
    and `durable` returns their outcome. If one cannot be stored, those behind it are not either, and `on_lost` is
    called: the state in memory is ahead of the stored state.
    """

    def __init__(self, coordinator: ShareCoordinator, topics: Topics, peers: Peers, clock: Clock) -> None:
        super().__init__(coordinator, clock)
        self._topics = topics
        self._placement = topics.placement
        self._requests = StateRequests(peers)
        self._writes: dict[SharePartitionKey, deque[_Write]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        await end_tasks(*self._tasks)
        for key in list(self._writes):
            self._lose(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        await self._requests.close()

    # Where

    def _coordinator_of(self, key: SharePartitionKey) -> int | None:
        """The node that keeps the state of a share partition: HERE, or its id; None while there is none."""
        partition = self._coordinator.partition_of(key)
        if partition is None:
            return None
        if self._placement.is_local(partition):
            return HERE
        leader = self._placement.leader(partition)
        return None if leader is None else leader.node_id

    async def _ask(
        self,
        key: SharePartitionKey,
        here: Callable[[], Awaitable[Answer | ErrorCode]],
        elsewhere: tuple[StateApi, Any],
        answer_of: Callable[[Any], Answer | ErrorCode],
        *,
        longest_s: float | None = None,
    ) -> Answer | ErrorCode:
        """Ask the present coordinator of a share partition, and retry until it answers.

        here, elsewhere: the call, or the request. answer_of: makes the answer of a result without an error.
        longest_s: LONGEST_WAIT_S, unless given.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + (LONGEST_WAIT_S if longest_s is None else longest_s)
        pause_s, reason = FIRST_PAUSE_S, ""
        while True:
            node_id = self._coordinator_of(key)
            answer: Answer | ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE
            if node_id == HERE:
                answer = await here()
            elif node_id is not None:
                try:
                    async with asyncio.timeout_at(deadline_s):
                        result = await self._requests.ask(elsewhere[0], node_id, key, elsewhere[1])
                    error = received_error(result.error_code)
                    answer = answer_of(result) if error is ErrorCode.NONE else error
                except PeerUnreachable as unreachable:
                    reason = str(unreachable)
                except TimeoutError:
                    reason = f"node {node_id} did not answer"
                if answer is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self._topics.metadata.get_by_id(key.topic_id):
                    reason, answer = f"node {node_id} does not know the topic yet", ErrorCode.COORDINATOR_NOT_AVAILABLE
                if isinstance(answer, ErrorCode) and answer not in FINAL and answer not in TEMPORARY:
                    reason, answer = f"node {node_id} refused it: {answer.name}", ErrorCode.COORDINATOR_NOT_AVAILABLE
            if not isinstance(answer, ErrorCode) or answer not in TEMPORARY:
                return answer
            if loop.time() + pause_s >= deadline_s:
                log.warning(
                    "share_coordinator_not_reached",
                    group_id=key.group_id,
                    partition=key.partition,
                    reason=reason or "its partition has no leader that serves it",
                )
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    # Whole states

    async def _initialize(self, key: SharePartitionKey, start_offset: int, state_epoch: int) -> ErrorCode:
        here = super()._initialize
        return await self._ask(
            key,
            lambda: here(key, start_offset, state_epoch),
            (INITIALIZE, InitializeShareStatePartition(key.partition, state_epoch, start_offset)),
            lambda _: ErrorCode.NONE,
        )

    async def read(self, key: SharePartitionKey, *, leader_epoch: int) -> ShareState | ErrorCode:
        """As `SharePersister.read`, after all earlier writes of this node. Refuses NOT_LEADER_OR_FOLLOWER in place of
        COORDINATOR_NOT_AVAILABLE: Kafka's clients do not expect that of a fetch, but retry after this one."""
        deadline_s = asyncio.get_running_loop().time() + LONGEST_READ_S
        while key in self._writes:
            remaining_s = deadline_s - asyncio.get_running_loop().time()
            done, _ = await asyncio.wait((self._writes[key][-1].stored,), timeout=max(0.0, remaining_s))
            if not done:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
        here = super().read
        state: ShareState | ErrorCode = await self._ask(
            key,
            lambda: here(key, leader_epoch=leader_epoch),
            (READ, ReadShareStatePartition(key.partition, leader_epoch)),
            lambda result: _state(
                result,
                leader_epoch=leader_epoch,
                state_batches=result.state_batches,
                dead_letters=result.dead_letters,
            ),
            longest_s=LONGEST_READ_S,
        )
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if state is ErrorCode.COORDINATOR_NOT_AVAILABLE else state

    async def summary(self, key: SharePartitionKey) -> ShareState | ErrorCode | None:
        """As `SharePersister.summary`. Of a share partition without state, another node answers with the offset -1."""
        if self._coordinator.partition_of(key) is None:
            return None
        here = super().summary

        return await self._ask(
            key,
            lambda: here(key),
            (SUMMARY, ReadShareStatePartition(key.partition, NO_LEADER_EPOCH)),
            lambda result: _state(
                result,
                leader_epoch=result.leader_epoch,
                state_batches=(),
                delivery_complete_count=result.delivery_complete_count,
            ),
        )

    async def _delete(self, key: SharePartitionKey) -> ErrorCode:
        here = super()._delete
        return await self._ask(
            key, lambda: here(key), (DELETE, DeleteShareStatePartition(key.partition)), lambda _: ErrorCode.NONE
        )

    # States of records

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
        writes = self._writes.get(key)
        if writes is None:
            if self._coordinator_of(key) == HERE:
                error = super().write(
                    key,
                    state_epoch=state_epoch,
                    leader_epoch=leader_epoch,
                    start_offset=start_offset,
                    delivery_complete_count=delivery_complete_count,
                    state_batches=state_batches,
                    dead_letters=dead_letters,
                )
                if error is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
                    return error
            writes = self._writes[key] = deque()
            self._write_later(key)
        epochs = state_epoch, leader_epoch
        last = writes[-1] if writes else None
        if last is not None and last.epochs == epochs and not last.is_on_its_way:
            last.start_offset, last.delivery_complete_count = start_offset, delivery_complete_count
            last.batches = merged_batches(last.batches, state_batches, start_offset)
            last.dead_letters = dead_letters or last.dead_letters
        else:
            stored = asyncio.get_running_loop().create_future()
            writes.append(_Write(epochs, start_offset, delivery_complete_count, state_batches, dead_letters, stored))
        return ErrorCode.NONE

    def durable(self, key: SharePartitionKey) -> Awaitable[ErrorCode]:
        writes = self._writes.get(key)
        if writes is not None:
            return _outcome(writes[-1].stored)
        return super().durable(key) if self._coordinator_of(key) == HERE else _nothing_to_wait_for()

    def _write_later(self, key: SharePartitionKey) -> None:
        task = WRITING.start(
            self._write_all(key),
            concerns=key,
            on_failure=lambda _: self._lose(key, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write_all(self, key: SharePartitionKey) -> None:
        writes = self._writes[key]
        while writes:
            write = writes[0]
            write.is_on_its_way = True
            error = await self._store(key, write)
            if error is not ErrorCode.NONE:
                self._lose(key, error)
                return
            writes.popleft()
            write.stored.set_result(ErrorCode.NONE)
        del self._writes[key]

    async def _store(self, key: SharePartitionKey, write: _Write) -> ErrorCode:
        state_epoch, leader_epoch = write.epochs
        write_here, durable_here = super().write, super().durable

        async def here() -> ErrorCode:
            error = write_here(
                key,
                state_epoch=state_epoch,
                leader_epoch=leader_epoch,
                start_offset=write.start_offset,
                delivery_complete_count=write.delivery_complete_count,
                state_batches=write.batches,
                dead_letters=write.dead_letters,
            )
            return await durable_here(key) if error is ErrorCode.NONE else error

        partition = WriteShareStatePartition(
            key.partition,
            state_epoch,
            leader_epoch,
            write.start_offset,
            write.delivery_complete_count,
            list(write.batches),
            list(write.dead_letters),
        )
        return await self._ask(key, here, (WRITE, partition), lambda _: ErrorCode.NONE)

    def _lose(self, key: SharePartitionKey, error: ErrorCode) -> None:
        """Refuse all writes that wait: each was decided on the state that the one before it would have made."""
        for write in self._writes.pop(key, ()):
            if not write.stored.done():
                write.stored.set_result(error)
        for callback in self.on_lost:
            callback(key)


HERE: Final = -1
"""Placeholder for this node's own id."""
NO_LEADER_EPOCH: Final = -1


def _state(
    result: Any,
    *,
    leader_epoch: int,
    state_batches: Sequence[StateBatch],
    delivery_complete_count: int = -1,
    dead_letters: Sequence[DeadLetterCopy] = (),
) -> ShareState:
    """A state as another node has sent it: without the fields that only its coordinator uses."""
    return ShareState(
        snapshot_epoch=0,
        state_epoch=result.state_epoch,
        leader_epoch=leader_epoch,
        start_offset=result.start_offset,
        delivery_complete_count=delivery_complete_count,
        state_batches=tuple(state_batches),
        create_timestamp_ms=0,
        write_timestamp_ms=0,
        dead_letters=dead_letters[-1] if dead_letters else None,
    )


async def _outcome(stored: asyncio.Future[ErrorCode]) -> ErrorCode:
    return await asyncio.shield(stored)


async def _nothing_to_wait_for() -> ErrorCode:
    return ErrorCode.NONE
