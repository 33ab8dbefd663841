"""Copies the undeliverable records of the share partitions here into the dead-letter topics of their groups.

Each copy has three steps, each durable before the next: the decision, in the share state; the batch, in the dead-letter
topic; and the completion, in the share state, which archives the records. After a crash the decision is found, and the
same batch is appended again: the log drops it if it is there. While a copy fails its records wait, and are tried again.
Source: KIP-1191; Kafka's DefaultShareGroupDLQManager and ShareGroupDLQStateManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from fencepost.broker.hosting.group_configs import GroupConfigs
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.share.acquired_records import RecordSpan, RecordState
from fencepost.broker.share.dead_letter_logs import DeadLetterLogs, NoDeadLetterTopic
from fencepost.broker.share.dead_letter_sources import SourceUnreadable, source_records
from fencepost.broker.share.dead_letters import (
    COPY_BYTES,
    MOST_RECORDS,
    DeadLetterTarget,
    Origin,
    batch_of,
    can_follow,
    completed,
    dead_letters,
    fitting,
    given_up,
    is_under_way,
    next_copy,
    reason_of,
    without_original,
)
from fencepost.broker.share.shard import SharePartitionKey
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.record import Record
from fencepost.protocol.stored.share_group_state import DeadLetterCopy

log = get_logger(__name__)

COPYING = Place("copying of dead letters", Policy.RETRY)

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 30.0

TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
LOST_ITS_PAST: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
"""The log has fewer batches of the producer id than were acknowledged, so it does not have the one in question."""


class CopyFailed(Exception):  # noqa: N818  # an expected outcome
    """A copy was not made or not completed; the message says why, for operators."""


@dataclass(slots=True)
class DeadLetterCounts:
    """Of one group, since the start: records copied, attempts that failed."""

    copied: int = 0
    failed: int = 0


class WaitingSharePartition(Protocol):
    """A share partition that is served here.

    dead_letters: the last copy, complete or under way.
    """

    key: SharePartitionKey
    log: PartitionLog
    is_dropped: bool
    dead_letters: DeadLetterCopy | None

    def first_undeliverable(self, first_offset: int = 0) -> RecordSpan | None: ...

    def store_copy(self, copy: DeadLetterCopy, first_offset: int, last_offset: int, state: RecordState) -> ErrorCode:
        """Store a copy and the state of its records, and apply both, in this step. Refuses as the persister does."""
        ...

    async def copy_durable(self) -> ErrorCode:
        """Wait until all that was stored is durable; drop the share partition if it cannot be."""
        ...


class DeadLetterCopies:
    """counts: dead letters and failed copies, by group.

    take_producer_id: returns a new producer id, or None if none is reserved yet.
    """

    def __init__(
        self,
        logs: DeadLetterLogs,
        group_configs: GroupConfigs,
        clock: Clock,
        take_producer_id: Callable[[], int | None],
    ) -> None:
        self.counts: dict[str, DeadLetterCounts] = {}
        self._logs = logs
        self._group_configs = group_configs
        self._clock = clock
        self._take_producer_id = take_producer_id
        self._tasks: dict[WaitingSharePartition, asyncio.Task[None]] = {}

    def begin(self, served: WaitingSharePartition) -> None:
        """Copy all undeliverable records of a share partition in the background, one copy after the other."""
        task = self._tasks.get(served)
        if task is None or task.done():
            task = COPYING.start_retrying(partial(self._copy_all, served), concerns=served.key)
            self._tasks[served] = task
            task.add_done_callback(COPYING.callback(partial(self._ended, served), concerns=served.key))

    def _ended(self, served: WaitingSharePartition, task: asyncio.Task[None]) -> None:
        if self._tasks.get(served) is task:
            del self._tasks[served]

    def end(self, served: WaitingSharePartition) -> None:
        """Stop copying at whichever step: the node that serves the share partition next continues."""
        task = self._tasks.pop(served, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        await end_tasks(*self._tasks.values())

    async def _copy_all(self, served: WaitingSharePartition) -> None:
        pause_s, last_reason = FIRST_PAUSE_S, ""
        while not served.is_dropped and (is_under_way(served.dead_letters) or served.first_undeliverable()):
            try:
                await self._copy_once(served)
                pause_s = FIRST_PAUSE_S
            except (CopyFailed, NoDeadLetterTopic, SourceUnreadable, StorageError) as failure:
                self._of(served).failed += 1
                if str(failure) != last_reason:
                    last_reason = str(failure)
                    self._warn(served, last_reason)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        if not served.is_dropped:
            # If the last completion is lost, memory is ahead of the stored state: drop it, so that it is loaded again.
            await served.copy_durable()

    def _warn(self, served: WaitingSharePartition, reason: str) -> None:
        log.warning(
            "dead_letters_not_copied",
            group_id=served.key.group_id,
            topic=served.log.topic_partition.topic,
            partition=served.key.partition,
            reason=reason,
            remedy="it is tried again; without errors.deadletterqueue.topic.name the records are archived uncopied",
        )

    def _of(self, served: WaitingSharePartition) -> DeadLetterCounts:
        return self.counts.setdefault(served.key.group_id, DeadLetterCounts())

    # One copy

    async def _copy_once(self, served: WaitingSharePartition) -> None:
        copy = served.dead_letters
        target = None
        if copy is not None and is_under_way(copy):
            target = await self._logs.of_copy(copy.topic_id, copy.partition)
        if copy is None or target is None:
            decided = await self._decide(served)
            if decided is None:
                return
            copy, target, records = decided
        else:
            found = await self._records(served, copy.first_offset, copy.last_offset, target.maximum_bytes)
            records = fitting(found, target.maximum_bytes)
            if records[-1].offset < copy.last_offset:
                # They were decided on without their originals, or for a topic with a higher bound.
                records = await self._records(served, copy.first_offset, copy.last_offset, None)
        # The decision is durable before the batch exists: otherwise another one could follow a crash.
        error = await served.copy_durable()
        if error is not NO_ERROR:
            raise CopyFailed(f"the share state is not stored: {error.name}")
        if not served.is_dropped:
            await self._append_and_complete(served, copy, target, records)

    async def _decide(
        self, served: WaitingSharePartition
    ) -> tuple[DeadLetterCopy, DeadLetterTarget, list[Record]] | None:
        """Decide on the next copy, and store that; None if there is nothing to copy. Also if the dead-letter topic of
        a copy under way was deleted: its records go into the present one."""
        last = served.dead_letters
        name = self._group_configs.value(served.key.group_id, "errors.deadletterqueue.topic.name")
        if not name:
            self._archive(served)
            return None
        target = await self._logs.target(name, served.key.partition)
        offsets = self._next_offsets(served)
        if offsets is None:
            return None
        enough_bytes = min(target.maximum_bytes, COPY_BYTES)
        records = fitting(await self._records(served, *offsets, enough_bytes), target.maximum_bytes)
        if served.is_dropped:
            return None
        producer_id = None if can_follow(last, target) else self._new_producer_id()
        first_offset, last_offset = records[0].offset, records[-1].offset
        copy = next_copy(last, target, producer_id, first_offset, last_offset)
        self._store(served, copy, RecordState.ARCHIVING, copy)
        return copy, target, records

    def _next_offsets(self, served: WaitingSharePartition) -> tuple[int, int] | None:
        copy = served.dead_letters
        if copy is not None and is_under_way(copy):
            return copy.first_offset, copy.last_offset
        span = served.first_undeliverable()
        if served.is_dropped or span is None:
            return None
        return span.first_offset, min(span.last_offset, span.first_offset + MOST_RECORDS - 1)

    def _archive(self, served: WaitingSharePartition) -> None:
        """Archive records uncopied: the group has no dead-letter topic any more."""
        offsets = self._next_offsets(served)
        if offsets is not None:
            error = served.store_copy(given_up(served.dead_letters), *offsets, RecordState.ARCHIVED)
            if error is not NO_ERROR:
                raise CopyFailed(f"the share state refuses the end of the records: {error.name}")

    def _new_producer_id(self) -> int:
        producer_id = self._take_producer_id()
        if producer_id is None:
            raise CopyFailed("no producer id is reserved yet")
        return producer_id

    def _store(
        self, served: WaitingSharePartition, copy: DeadLetterCopy, state: RecordState, offsets: DeadLetterCopy
    ) -> None:
        error = served.store_copy(copy, offsets.first_offset, offsets.last_offset, state)
        if error is not NO_ERROR:
            raise CopyFailed(f"the share state refuses the copy: {error.name}")

    async def _records(
        self, served: WaitingSharePartition, first_offset: int, last_offset: int, enough_bytes: int | None
    ) -> list[Record]:
        """The dead letters of some records, with the originals if the group wants them and they still exist: all of
        them, or the first ones if their originals have more than `enough_bytes`; None: without the originals."""
        group_id = served.key.group_id
        value = partial(self._group_configs.value, group_id)
        sources: dict[int, Record] = {}
        if enough_bytes is not None and value("errors.deadletterqueue.copy.record.enable"):
            sources, last_offset = await source_records(served.log, first_offset, last_offset, enough_bytes)
        span = served.first_undeliverable(first_offset)
        delivery_count = 0 if span is None else span.delivery_count
        reason = reason_of(
            is_rejected=span is not None and span.is_rejected,
            delivery_count=delivery_count,
            delivery_count_limit=value("share.delivery.count.limit"),
        )
        origin = Origin(served.log.topic_partition.topic, served.key.partition, group_id, delivery_count, reason)
        return dead_letters(origin, first_offset, last_offset, sources, self._clock.now_ms())

    async def _append_and_complete(
        self, served: WaitingSharePartition, copy: DeadLetterCopy, target: DeadLetterTarget, records: list[Record]
    ) -> None:
        error = await self._logs.append(target, batch_of(copy, records))
        if error in TOO_LARGE:
            records = [without_original(record) for record in records]
            error = await self._logs.append(target, batch_of(copy, records))
        if served.is_dropped:
            return
        if error in LOST_ITS_PAST:
            again = next_copy(copy, target, self._new_producer_id(), copy.first_offset, copy.last_offset)
            self._store(served, again, RecordState.ARCHIVING, copy)
        if error is not NO_ERROR:
            raise CopyFailed(f"the topic {target.topic} refuses them: {error.name}")
        self._store(served, completed(copy), RecordState.ARCHIVED, copy)
        self._of(served).copied += len(records)
