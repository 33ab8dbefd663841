"""The shared log of a cluster's node: its flushes, one after another, as rows of the tails.

Each flush goes on until its outcome is known: committed, or refused by the fence. The store may be away for a while, as
in a fail-over; no log goes offline for that. Only a flush that is refused ends what this node leads.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from fencepost.broker.cluster.large_flushes import FlushPart, divide, row_of
from fencepost.broker.cluster.tail_store import (
    NO_OBJECTS,
    ConflictError,
    FlushId,
    FlushObjects,
    StoreUnavailableError,
    TailRow,
    TailStore,
    Tenure,
)
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.log.shared_log import AppendedBytes, LedElsewhereError
from fencepost.broker.log.sliced_work import SLICE_S, run_in_slices
from fencepost.broker.storage.disk import StorageError

log = get_logger(__name__)

LOGS_PER_FLUSH: Final = 1_000
"""A flush is one statement, whose cost is little per log; a thousand rows take some 20 ms."""
INLINE_MAX_BYTES: Final = 256 * 1024
"""Larger flushes go as objects, of which the rows name parts: above it, rows take longer than an object and rows."""
MOST_UNFLUSHED_BYTES: Final = 64 * 1024 * 1024
"""What clients may have sent that is not committed yet; a connection that sends more waits until there is room."""
READ_PER_STEP_BYTES: Final = 1024 * 1024
FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 1.0
REPORT_INTERVAL_S: Final = 5.0
STATEMENT_BYTES: Final = 1024 * 1024
"""Of the rows of one statement, where no objects are used for more: PostgreSQL gives up on longer ones in time for a
take-over."""
UPLOADS_SIDE_BY_SIDE: Final = 4
FIRST_PUT_TIMEOUT_S: Final = 10.0
OBJECT_KEPT_S: Final = 25 * 60.0
"""An object without rows is removed as an orphan, but not sooner; a flush that waits longer stores its bytes again."""


class ResignedError(LedElsewhereError):
    """This node does not lead any more what was to be flushed."""


class TailLog:
    """Commits the flushes of one node, for `SharedLog`.

    objects:          for flushes larger than `inline_max_bytes`; None: all bytes go into the rows.
    flushes_count:    flushes that were committed. flushed_bytes: in all of them.
    is_waiting:       whether a flush is being tried again, as the store does not answer.
    """

    logs_per_flush = LOGS_PER_FLUSH

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
        self.is_waiting = False
        self._unflushed_bytes = 0  # sent by clients since the flush before
        self._flushing_bytes = 0  # sent by clients, and in the flush that runs
        self._room: asyncio.Future[None] | None = None

    def room_after(self, produced_bytes: int) -> asyncio.Future[None] | None:
        self._unflushed_bytes += produced_bytes
        if self._unflushed_bytes + self._flushing_bytes <= MOST_UNFLUSHED_BYTES:
            return None
        if self._room is None:
            self._room = asyncio.get_running_loop().create_future()
        return self._room

    async def commit(self, appended: Sequence[AppendedBytes]) -> None:
        # What clients have sent by now has been appended, or refused.
        self._flushing_bytes, self._unflushed_bytes = self._unflushed_bytes, 0
        try:
            await self._commit_all(appended)
        finally:
            self._flushing_bytes = 0
            room, self._room = self._room, None
            if room is not None:
                room.set_result(None)

    async def _commit_all(self, appended: Sequence[AppendedBytes]) -> None:
        if not appended:
            return
        fence = self._tenure.fence
        readable, contents, failures = await self._contents(appended)
        if readable:
            total_bytes = sum(one.length_bytes for one in readable)
            if self._objects is None or total_bytes <= self._inline_max_bytes:
                for rows in await _statements(readable, contents, total_bytes):
                    await self._commit(self._next_flush(fence), rows)
            else:
                await self._commit_large(self._next_flush(fence), self._objects, readable, contents)
            self.flushes_count += 1
            self.flushed_bytes += total_bytes
        if failures:
            paths = [path for failure in failures for path in failure.paths]
            raise StorageError(failures[0].errno, str(failures[0]), paths=paths)

    def _next_flush(self, fence: int) -> FlushId:
        self._sequence += 1
        return FlushId(self._tenure.node_id, fence, self._sequence)

    async def _contents(
        self, appended: Sequence[AppendedBytes]
    ) -> tuple[list[AppendedBytes], list[memoryview], list[StorageError]]:
        """Read what was appended, a megabyte per step of the event loop. A log whose file cannot be read is left out
        from there on, or it would get a hole."""
        readable: list[AppendedBytes] = []
        contents: list[memoryview] = []
        failures: list[StorageError] = []
        failed = set()
        read_bytes = 0
        for one in appended:
            if read_bytes >= READ_PER_STEP_BYTES:
                read_bytes = 0
                await asyncio.sleep(0)
            if one.topic_partition in failed:
                continue
            try:
                content = one.content()
                if len(content) < one.length_bytes:
                    raise StorageError(f"{one.file.path} is shorter than what was appended", paths=[one.file.path])
            except StorageError as error:
                failed.add(one.topic_partition)
                failures.append(error)
                continue
            read_bytes += one.length_bytes
            readable.append(one)
            contents.append(content)
        return readable, contents, failures

    async def _commit(
        self,
        flush: FlushId,
        rows: Sequence[TailRow],
        object_sizes: Mapping[UUID, int] = NO_OBJECTS,
        until_s: float = math.inf,
    ) -> bool:
        """Commit the rows of a flush. Raises ResignedError, after resigning.

        Returns False where the outcome was that nothing is committed, and it is later than `until_s`.
        """
        loop = asyncio.get_running_loop()
        report_at_s = began_s = loop.time()
        pause_s = FIRST_PAUSE_S
        try:
            while self._tenure.fence == flush.fence:
                try:
                    if self.is_waiting and await self._store.is_committed(flush, rows):
                        break
                    if loop.time() > until_s:
                        return False
                    if await self._store.commit(flush, rows, object_sizes=object_sizes):
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
                    # The fence should have made this impossible: what is stored counts, and it is another node's.
                    log.error("flush_conflicts", reason=str(error))  # noqa: TRY400  # the reason says it all
                    self._tenure.resign("another flush holds the offsets of this node's")
                    raise ResignedError(str(error)) from None
                else:
                    # It may have begun anew meanwhile, under another fence, which nobody has refused.
                    if self._tenure.fence == flush.fence:
                        self._tenure.resign("another node has taken over")
                    raise ResignedError("another node leads the partition now")
            else:
                raise ResignedError("this node has resigned from the partition")
            if self.is_waiting:
                log.info("flush_committed_late", logs=len(rows), waited_s=round(loop.time() - began_s, 1))
            return True
        finally:
            self.is_waiting = False

    async def _commit_large(
        self,
        flush: FlushId,
        objects: FlushObjects,
        appended: Sequence[AppendedBytes],
        contents: Sequence[memoryview],
    ) -> None:
        """Store the bytes of a flush as objects, and commit rows that point into them. Raises ResignedError."""
        parts = await run_in_slices(divide(appended, contents), SLICE_S)
        is_committed = False
        while not is_committed:
            kept_until_s = asyncio.get_running_loop().time() + OBJECT_KEPT_S
            turns = asyncio.Semaphore(UPLOADS_SIDE_BY_SIDE)
            uploads = (self._upload(flush, part, objects, turns) for part in parts)
            results = await asyncio.gather(*uploads, return_exceptions=True)
            rows: list[TailRow] = []
            sizes: dict[UUID, int] = {}
            for part, result in zip(parts, results, strict=True):
                if isinstance(result, BaseException):
                    raise result
                sizes[result] = part.size_bytes
                rows += [row._replace(object_id=result) for row in part.rows]
            is_committed = await self._commit(flush, rows, sizes, kept_until_s)

    async def _upload(self, flush: FlushId, part: FlushPart, objects: FlushObjects, turns: asyncio.Semaphore) -> UUID:
        """Store a part of a flush; goes on trying. Raises ResignedError."""
        timeout_s = FIRST_PUT_TIMEOUT_S
        async with turns:
            while self._tenure.fence == flush.fence:
                try:
                    async with asyncio.timeout(timeout_s):
                        return await objects.put(part.contents)
                except TimeoutError:
                    timeout_s *= 2  # it may only be slow; meanwhile the node may have resigned
        raise ResignedError("this node has resigned from the partition")


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
