"""Uploads: rolled segments of the logs that a node leads go into the object store, in place of rows of the tail.

Compacted segments follow the same way, in place of the segments that they were made from. The next pass retries
failures; the rows, which are swapped in one transaction, always cover the log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from fencepost.broker.cluster.objects.names import SNAPSHOT_SUFFIX
from fencepost.broker.cluster.objects.store import ObjectStoreError
from fencepost.broker.cluster.remote.remote_log_state import RemoteLogState, RemoteLogStates
from fencepost.broker.cluster.remote.segment_objects import SegmentObjects
from fencepost.broker.cluster.remote.segment_rows import RemoteLogMetadata
from fencepost.broker.cluster.remote.upload_plan import (
    RowsCount,
    TailOfLog,
    UploadLimits,
    no_rows_count,
    plan_uploads,
)
from fencepost.broker.cluster.tail.tail_store import StoreUnavailableError
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.segment.remote_segment import RemoteSegmentMetadata
from fencepost.broker.log.segment.segment import Segment
from fencepost.broker.storage.disk import StorageError

log = get_logger(__name__)

UPLOADING = Place("sealing of segments", Policy.RETRY)

INTERVAL_S: Final = 1.0
SEALS_AT_ONCE: Final = 2
FIRST_REST_S: Final = 2.0
LONGEST_REST_S: Final = 120.0
"""How long a log rests after its segment could not be sealed; from one failure to the next, twice as long."""


class SegmentUpload:
    """Seals the segments of one node's logs.

    limits:          may be replaced at any time.
    sealed_count:    segments that were sealed since the start. sealed_bytes: of their log files.
    tail_bytes:      size of all tails together, as of the last pass.
    after_each_pass: further work on the logs, such as making room.
    """

    def __init__(
        self,
        kept: RemoteLogStates,
        objects: SegmentObjects,
        table: RemoteLogMetadata,
        clock: Clock,
        *,
        limits: UploadLimits = UploadLimits(),  # noqa: B008  # it is immutable
        monotonic_s: Callable[[], float] = time.monotonic,
        rows_count: RowsCount = no_rows_count,
        after_each_pass: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.limits = limits
        self.sealed_count = 0
        self.sealed_bytes = 0
        self.tail_bytes = 0
        self._kept = kept
        self._objects = objects
        self._table = table
        self._clock = clock
        self._monotonic_s = monotonic_s
        self._rows_count = rows_count
        self._after_each_pass = after_each_pass
        self._rests: dict[TopicPartition, tuple[float, float]] = {}  # until when, and how long
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to seal, in the background."""
        self._task = UPLOADING.start_retrying(self._run)

    async def close(self) -> None:
        """Stop. An upload that is under way is cancelled."""
        await end_tasks(self._task)
        self._task = None

    async def _run(self) -> None:
        while True:
            try:
                await self.upload_once()
            except StoreUnavailableError as error:
                log.warning("sealing_waits", reason=str(error))
            await asyncio.sleep(INTERVAL_S)

    async def upload_once(self) -> int:
        """Make one pass: roll due segments, seal the most urgent ones, store the starts of logs. Returns the number of
        sealed segments. Raises StoreUnavailableError."""
        await self._kept.refresh()
        now_ms = self._clock.now_ms()
        plan = plan_uploads([self._tail(one, now_ms) async for one in self._kept.each()], self.limits)
        self.tail_bytes = plan.tail_bytes
        for name in plan.rolls:
            self._roll(name, now_ms)
        due = [(name, base) for name, base in plan.seals if not self._is_resting(name)][:SEALS_AT_ONCE]
        sealed = await asyncio.gather(*(self._seal(name, base) for name, base in due))
        await self.store_log_starts()
        if self._after_each_pass is not None:
            await self._after_each_pass()
        return sum(sealed)

    def _tail(self, kept: RemoteLogState, now_ms: int) -> TailOfLog:
        active_base = kept.log.segments.active.base_offset
        return kept.tail(now_ms)._replace(active_rows=self._rows_count(kept.key, active_base))

    # Log starts

    async def store_log_starts(self) -> None:
        """Store the starts of logs that have moved. Raises StoreUnavailableError."""
        starts = {
            one.key: (one, start) async for one in self._kept.each() if (start := self._kept.log_start(one)) is not None
        }
        if not starts:
            return
        done = await self._table.raise_log_starts({key: start for key, (_, start) in starts.items()})
        for key, (kept, start) in starts.items():
            if key in done:
                kept.started(start)
            else:
                self._kept.forget(kept.log.topic_partition)

    # One segment

    def _roll(self, name: TopicPartition, now_ms: int) -> None:
        kept = self._kept.get(name)
        if kept is None:
            return
        try:
            kept.log.roll(now_ms)
        except StorageError as error:
            log.warning("segment_not_rolled", topic=name.topic, partition=name.partition, reason=str(error))

    async def _seal(self, name: TopicPartition, base_offset: int) -> bool:
        """Seal a segment, and let its log rest if that fails. Returns whether it is sealed."""
        kept = self._kept.get(name)
        if kept is None:
            return False
        segment = next((one for one in kept.log.segments.sealed if one.base_offset == base_offset), None)
        if segment is None:
            return False
        try:
            is_sealed = await self._upload(kept, segment)
        except (ObjectStoreError, StorageError, StoreUnavailableError) as error:
            if kept.is_led:
                self._rest(name, error)
            return False
        self._rests.pop(name, None)
        return is_sealed

    async def _upload(self, kept: RemoteLogState, segment: Segment) -> bool:
        """Upload a segment and swap its rows. Raises ObjectStoreError, StorageError, StoreUnavailableError."""
        partition_log = kept.log
        began_s = self._monotonic_s()
        end_offset = kept.end_of(segment)
        sealed = RemoteSegmentMetadata(
            segment.base_offset,
            end_offset,
            segment.size_bytes,
            segment.newest_record_ms,
            segment.transactions.exists,
            kept.leadership.leader_epoch,
            self._objects.new_id(kept.leadership),
        )
        await self._fetch_snapshot(kept, end_offset)
        sealed = await self._objects.upload(kept.key, sealed, partition_log.files.directory)
        # The cleaner renames files while others are read by their names: the sent files may be of two segments.
        if segment not in set(partition_log.segments) or not kept.is_led:
            self._objects.abandon(kept.key, sealed)
            return False
        try:
            stored = await self._table.replace(
                kept.key,
                kept.leadership,
                sealed,
                names=self._objects.names(kept.key, sealed),
                epochs=kept.epochs(end_offset),
            )
        except StorageError:
            self._objects.abandon(kept.key, sealed)
            raise
        name = partition_log.topic_partition
        if stored is None:
            self._objects.abandon(kept.key, sealed)
            self._kept.forget(name)
            return False
        kept.replaced(segment, stored)
        self.sealed_count += 1
        self.sealed_bytes += sealed.size_bytes
        log.info(
            "segment_sealed",
            topic=name.topic,
            partition=name.partition,
            base_offset=sealed.base_offset,
            end_offset=sealed.end_offset,
            size_bytes=sealed.size_bytes,
            took_s=round(self._monotonic_s() - began_s, 3),
        )
        return True

    async def _fetch_snapshot(self, kept: RemoteLogState, end_offset: int) -> None:
        """Fetch the producers' state at the end of a rewritten segment, if only the store has it: fetched segments come
        without. Raises StorageError, StoreUnavailableError."""
        files = kept.log.files
        row = kept.row_up_to(end_offset)
        if end_offset not in files.snapshot_offsets and row is not None:
            fetched = await self._objects.download(kept.key, row, files.directory, (SNAPSHOT_SUFFIX,))
            if kept.log.is_deleted:
                fetched.discard()
                raise StorageError(f"{kept.log.topic_partition} is not led here any more")
            fetched.put_in_place()
            files.note_snapshot(end_offset)

    def _is_resting(self, name: TopicPartition) -> bool:
        until_s, _ = self._rests.get(name, (0.0, 0.0))
        return self._monotonic_s() < until_s

    def _rest(self, name: TopicPartition, error: Exception) -> None:
        _, before_s = self._rests.get(name, (0.0, FIRST_REST_S / 2))
        rest_s = min(2 * before_s, LONGEST_REST_S)
        self._rests[name] = self._monotonic_s() + rest_s, rest_s
        log.warning(
            "segment_not_sealed",
            topic=name.topic,
            partition=name.partition,
            again_after_s=rest_s,
            reason=str(error),
        )
