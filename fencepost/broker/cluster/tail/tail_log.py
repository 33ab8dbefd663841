"""The shared log of a cluster's node: its flushes, committed one after another, as rows of the tails.

Each flush continues until its outcome is known: committed, or refused by the fence. The store may be unavailable for a
while, as in a fail-over; no log goes offline for that. Only a refused flush ends this node's leadership.

A large flush is stored as objects first, and the next one may be stored beside it. It is committed when all flushes
before it have ended, and leaves out the logs that they could not commit: a log must not get a hole.
"""

from __future__ import annotations

import asyncio
import mmap
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from fencepost.broker.cluster.objects.checksums import checksum_in_steps
from fencepost.broker.cluster.objects.object_ids import Uploader
from fencepost.broker.cluster.tail.large_flushes import FlushPart, divide, row_of
from fencepost.broker.cluster.tail.tail_store import (
    NO_OBJECTS,
    ConflictError,
    FlushId,
    FlushObjects,
    NotLedError,
    PartitionKey,
    StoreUnavailableError,
    TailRow,
    TailStore,
    Tenure,
)
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.sliced_work import SLICE_S, SlicedWork, run_in_slices
from fencepost.broker.log.durability.shared_log import AppendedBytes, LedElsewhereError
from fencepost.broker.storage.disk import StorageError

log = get_logger(__name__)

LOGS_PER_FLUSH: Final = 1_000
"""A flush is one statement, whose cost is little per log; a thousand rows take some 20 ms."""
INLINE_MAX_BYTES: Final = 256 * 1024
"""Larger flushes go as objects, of which the rows name parts: above it, rows take longer than an object and rows."""
MOST_UNFLUSHED_BYTES: Final = 64 * 1024 * 1024
"""Bound of bytes from clients that are not committed yet; a connection that sends more waits until there is room."""
READ_PER_STEP_BYTES: Final = 1024 * 1024
READ_AT_ONCE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of one log that one step reads, in some 2 ms; longer contents are copied together from several steps."""
FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 1.0
REPORT_INTERVAL_S: Final = 5.0
STATEMENT_BYTES: Final = 1024 * 1024
"""Bytes of the rows of one statement, if no objects are used for more: PostgreSQL cancels longer ones in time for a
take-over."""
UPLOADS_SIDE_BY_SIDE: Final = 4
"""Of all flushes that are under way, in their order."""
FLUSHES_UNDER_WAY: Final = 4
ANOTHER_FROM_BYTES: Final = 1024 * 1024
"""Bytes from clients with which another flush begins while flushes are under way. Fewer would make more objects for the
same bytes, and rows would only wait for their turn; with more, a client that has 5 MB in flight waits."""
FIRST_PUT_TIMEOUT_S: Final = 10.0


RESIGNED: Final = "this node has resigned from the partition"


class ResignedError(LedElsewhereError):
    """This node does not lead the partitions of the flush any more."""


class StoredParts(NamedTuple):
    """A flush whose bytes are in objects. rows: point into them."""

    rows: Sequence[TailRow]
    object_sizes: Mapping[UUID, int]


NOTHING_STORED: Final = StoredParts((), NO_OBJECTS)


class TailLog:
    """Commits the flushes of one node, for `SharedLog`.

    objects:          store of flushes larger than `inline_max_bytes`; None: all bytes go into the rows.
    flushes_count:    flushes that were committed. flushed_bytes, rows_count: their bytes and rows.
    large_count, large_bytes: flushes whose bytes are in objects, and those bytes.
    is_waiting:       whether a flush is being tried again, as the store does not answer.
    """

    logs_per_flush = LOGS_PER_FLUSH
    begin_another: Callable[[], None] | None = None

    def __init__(
        self,
        store: TailStore,
        tenure: Tenure,
        *,
        objects: FlushObjects | None = None,
        inline_max_bytes: int = INLINE_MAX_BYTES,
    ) -> None:
        self._store = store
        self._tenure = tenure
        self._objects = objects
        self._inline_max_bytes = inline_max_bytes
        self._sequence = 0
        self.flushes_count = 0
        self.flushed_bytes = 0
        self.rows_count = 0
        self.large_count = 0
        self.large_bytes = 0
        self.is_waiting = False
        self._unflushed_bytes = 0  # sent by clients since the last flush began
        self._flushing_bytes = 0  # sent by clients, and in flushes that are under way
        self._room: asyncio.Future[None] | None = None
        self._under_way_count = 0
        self._last_ends: asyncio.Future[None] | None = None
        self._lost_fence = -1  # the last under which a flush was refused
        self._left_out: set[tuple[PartitionKey, int]] = set()  # led in which epoch: later flushes leave them out, too
        self._uploads = asyncio.Semaphore(UPLOADS_SIDE_BY_SIDE)

    @property
    def unflushed_bytes(self) -> int:
        """Bytes from clients that are not committed yet."""
        return self._unflushed_bytes + self._flushing_bytes

    def room_after(self, produced_bytes: int) -> asyncio.Future[None] | None:
        self._unflushed_bytes += produced_bytes
        self._begin_another_if_due()
        if self.unflushed_bytes <= MOST_UNFLUSHED_BYTES:
            return None
        if self._room is None:
            self._room = asyncio.get_running_loop().create_future()
        return self._room

    def _begin_another_if_due(self) -> None:
        if (
            self._unflushed_bytes >= ANOTHER_FROM_BYTES
            and 0 < self._under_way_count < FLUSHES_UNDER_WAY
            and self._objects is not None
            and self.begin_another is not None
        ):
            self.begin_another()

    def commit(self, appended: Sequence[AppendedBytes]) -> Awaitable[None]:
        # The bytes that clients have sent by now have been appended, or refused.
        produced_bytes, self._unflushed_bytes = self._unflushed_bytes, 0
        self._flushing_bytes += produced_bytes
        self._under_way_count += 1
        before, self._last_ends = self._last_ends, asyncio.get_running_loop().create_future()
        return self._flush(appended, self._tenure.fence, produced_bytes, before, self._last_ends)

    async def _flush(
        self,
        appended: Sequence[AppendedBytes],
        fence: int,
        produced_bytes: int,
        before: asyncio.Future[None] | None,
        ends: asyncio.Future[None],
    ) -> None:
        """One flush. before: ends when the one before it does. ends: when this one does."""
        try:
            await self._commit_all(appended, fence, before)
        except StorageError:
            raise
        except BaseException:
            self._left_out.update(_log_of(one) for one in appended)
            raise
        finally:
            ends.set_result(None)
            self._under_way_count -= 1
            if not self._under_way_count:
                self._last_ends = None
                self._left_out.clear()
            self._flushing_bytes -= produced_bytes
            room, self._room = self._room, None
            if room is not None:
                room.set_result(None)
            self._begin_another_if_due()

    async def _commit_all(
        self, appended: Sequence[AppendedBytes], fence: int, before: asyncio.Future[None] | None
    ) -> None:
        """Raises StorageError, as `commit` does."""
        parts: Sequence[FlushPart] = ()
        stored = NOTHING_STORED
        try:
            readable, contents, failures = await self._contents(appended)
            total_bytes = sum(one.length_bytes for one in readable)
            if self._objects is not None and total_bytes > self._inline_max_bytes:
                parts = await run_in_slices(divide(readable, contents), SLICE_S)
                stored = await self._store_parts(parts, self._objects, fence)
        finally:
            if before is not None:
                await before
        failed = {_log_of(one) for one in appended if one.file.path in failures} | self._left_out
        if self._objects is not None and parts:
            await self._commit_stored(fence, stored, self._objects)
        elif readable:
            for rows in await _statements(readable, contents, total_bytes):
                await self._commit(fence, self._without_left_out(rows))
        if readable:
            self.flushes_count += 1
            self.flushed_bytes += total_bytes
            if parts:
                self.large_count += 1
                self.large_bytes += total_bytes
        failed |= self._left_out
        left_out = [one for one in appended if _log_of(one) in failed]
        if left_out:
            self._left_out |= failed
            error = next(iter(failures.values()), None) or StorageError("the flush before could not be committed")
            raise StorageError(error.errno, str(error), paths=[one.file.path for one in left_out])

    def _without_left_out(self, rows: Sequence[TailRow]) -> Sequence[TailRow]:
        if not self._left_out:
            return rows
        return [row for row in rows if (row.key, row.leader_epoch) not in self._left_out]

    async def _commit_stored(self, fence: int, stored: StoredParts, objects: FlushObjects) -> None:
        """As `_commit`, of a flush whose bytes are in objects."""
        rows, sizes = self._without_left_out(stored.rows), stored.object_sizes
        if len(rows) < len(stored.rows):
            used = {row.object_id for row in rows}
            objects.abandon(sizes.keys() - used)
            sizes = {object_id: size_bytes for object_id, size_bytes in sizes.items() if object_id in used}
        await self._commit(fence, rows, sizes)

    async def _contents(
        self, appended: Sequence[AppendedBytes]
    ) -> tuple[list[AppendedBytes], list[memoryview], dict[str, StorageError]]:
        """Read the appended bytes, a megabyte per step of the event loop. A log whose file cannot be read is left out
        from there on, or it would get a hole. Returns also the errors, by path."""
        readable: list[AppendedBytes] = []
        contents: list[memoryview] = []
        failures: dict[str, StorageError] = {}
        failed = set()
        read_bytes = 0
        for one in appended:
            if read_bytes >= READ_PER_STEP_BYTES:
                read_bytes = 0
                await asyncio.sleep(0)
            if one.topic_partition in failed:
                continue
            try:
                content = await _content(one)
            except StorageError as error:
                failed.add(one.topic_partition)
                failures[one.file.path] = error
                continue
            read_bytes += one.length_bytes
            readable.append(one)
            contents.append(content)
        return readable, contents, failures

    async def _commit(
        self,
        fence: int,
        rows: Sequence[TailRow],
        object_sizes: Mapping[UUID, int] = NO_OBJECTS,
    ) -> None:
        """Commit the rows of a flush, if there are any. Raises ResignedError, after resigning."""
        if not rows:
            return
        self._sequence += 1
        flush = FlushId(self._tenure.node_id, fence, self._sequence)
        loop = asyncio.get_running_loop()
        report_at_s = began_s = loop.time()
        pause_s = FIRST_PAUSE_S
        try:
            while self._may_flush(fence):
                try:
                    if self.is_waiting and await self._store.is_committed(flush, rows):
                        break
                    if await self._store.commit(flush, rows, object_sizes=object_sizes):
                        break
                except NotLedError as error:
                    # The topic is deleted, and perhaps created again under its name: the log here is of the old topic.
                    self._left_out.update((row.key, row.leader_epoch) for row in rows if row.key in error.keys)
                    self._tenure.resign_from(error.keys)
                    break
                except StoreUnavailableError as error:
                    self.is_waiting = True
                    if loop.time() >= report_at_s:
                        report_at_s = loop.time() + REPORT_INTERVAL_S
                        log.warning(
                            "flush_waits",
                            logs=len(rows),
                            waiting_s=round(loop.time() - began_s, 1),
                            reason=str(error),
                        )
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                except ConflictError as error:
                    # The fence should have made this impossible: the stored rows count, and they are another node's.
                    log.error("flush_conflicts", reason=str(error))  # noqa: TRY400  # the reason says it all
                    self._resign(fence, "another flush holds the offsets of this node's")
                    raise ResignedError(str(error)) from None
                else:
                    self._resign(fence, "another node has taken over")
                    raise ResignedError("another node leads the partition now")
            else:
                raise ResignedError(RESIGNED)
            self.rows_count += len(rows)
            if self.is_waiting:
                log.info("flush_committed_late", logs=len(rows), waited_s=round(loop.time() - began_s, 1))
        finally:
            self.is_waiting = False

    def _may_flush(self, fence: int) -> bool:
        """Whether flushes under a fence may continue: the node has no newer fence, and none of them was refused."""
        return self._tenure.fence == fence > self._lost_fence

    def _resign(self, fence: int, reason: str) -> None:
        self._lost_fence = max(self._lost_fence, fence)
        # It may have begun anew meanwhile, under another fence, which nobody has refused.
        if self._tenure.fence == fence:
            self._tenure.resign(reason)

    async def _store_parts(self, parts: Sequence[FlushPart], objects: FlushObjects, fence: int) -> StoredParts:
        """Store the bytes of a flush as objects, side by side. Raises ResignedError."""
        uploads = (self._upload(fence, part, objects) for part in parts)
        checksums, results = await asyncio.gather(
            run_in_slices(_checksums(parts), SLICE_S), asyncio.gather(*uploads, return_exceptions=True)
        )
        rows: list[TailRow] = []
        sizes: dict[UUID, int] = {}
        for part, of_part, result in zip(parts, checksums, results, strict=True):
            if isinstance(result, BaseException):
                try:
                    raise result
                finally:
                    del result, results  # the error refers to this frame: a cycle would keep the bytes of the flush
            sizes[result] = part.size_bytes
            rows += [row._replace(object_id=result, checksum=one) for row, one in zip(part.rows, of_part, strict=True)]
        return StoredParts(rows, sizes)

    async def _upload(self, fence: int, part: FlushPart, objects: FlushObjects) -> UUID:
        """Store a part of a flush; retries until it succeeds. Raises ResignedError."""
        timeout_s = FIRST_PUT_TIMEOUT_S
        uploader = Uploader(self._tenure.node_id, fence)
        async with self._uploads:
            while self._may_flush(fence):
                try:
                    async with asyncio.timeout(timeout_s):
                        return await objects.put(uploader, part.contents)
                except TimeoutError:
                    timeout_s *= 2  # it may only be slow; meanwhile the node may have resigned
        raise ResignedError(RESIGNED)


async def _content(appended: AppendedBytes) -> memoryview:
    """Read the bytes appended to one log; long contents in parts, one per step of the loop. Raises StorageError."""
    if appended.length_bytes <= READ_AT_ONCE_BYTES:
        content = appended.content()
        read_bytes = len(content)
    else:
        # The system gives this memory page by page, as it is written.
        content = memoryview(mmap.mmap(-1, appended.length_bytes))
        read_bytes = 0
        while part := appended.content(read_bytes, READ_PER_STEP_BYTES):
            content[read_bytes : read_bytes + len(part)] = part
            read_bytes += len(part)
            await asyncio.sleep(0)
    if read_bytes < appended.length_bytes:
        raise StorageError(f"{appended.file.path} is shorter than what was appended", paths=[appended.file.path])
    return content


def _checksums(parts: Sequence[FlushPart]) -> SlicedWork[list[list[bytes]]]:
    """Compute the checksums of all rows, by their parts."""
    found: list[list[bytes]] = []
    for part in parts:
        of_part: list[bytes] = []
        for content in part.contents:
            one = yield from checksum_in_steps([content])
            of_part.append(one)
        found.append(of_part)
    return found


def _log_of(appended: AppendedBytes) -> tuple[PartitionKey, int]:
    """The log that bytes belong to, as the set of those that are left out names it."""
    return PartitionKey(appended.topic_id, appended.topic_partition.partition), appended.leader_epoch


async def _statements(
    appended: Sequence[AppendedBytes], contents: Sequence[memoryview], total_bytes: int
) -> list[list[TailRow]]:
    """The rows of a flush with the bytes in them, for statements that end in time, one after the other."""
    if total_bytes <= STATEMENT_BYTES:
        return [[row_of(one, content) for one, content in zip(appended, contents, strict=True)]]
    parts = await run_in_slices(divide(appended, contents, STATEMENT_BYTES), SLICE_S)
    return [
        [
            row._replace(content=content, object_position=0)
            for row, content in zip(part.rows, part.contents, strict=True)
        ]
        for part in parts
    ]
