"""Records of many partitions as one sequence, merged by time, forwards or backwards, from exact positions on.

Each partition has a cursor. The next record is that of the cursor whose head is the newest, or the oldest; within a
partition records stay in the order of their offsets. So a sequence that ended can be continued from the positions of
its cursors: no record comes twice, none is left out, also where times go to and fro. A partition is read only once its
turn may come: `list_offsets` tells when its newest record was written, or its first one.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from fencepost.client.cluster import Cluster
from fencepost.client.consuming import COMMITTED, UNCOMMITTED, list_offsets
from fencepost.client.errors import ClusterError, RefusedError, UnreachableError
from fencepost.console.reading.records import Range, fetch, read_outcomes
from fencepost.console.reading.topics import PARTITIONS_PER_REQUEST, PartitionState, fill_offsets
from fencepost.console.record_marks import UNREADABLE, Batch, Outcomes, ShownRecord, shown_records
from fencepost.protocol.errors import ErrorCode

NEWEST: Final = -3
"""As a timestamp of ListOffsets: that of the newest record (KIP-734, Kafka 3.0)."""
BLOCK_BYTES: Final = 1 << 20
MOST_HELD_BYTES: Final = 32 << 20
"""Of records that were read and whose turn has not come."""
LONGEST_STEP: Final = 1 << 24
RECORDS_PER_STEP: Final = 500
PAUSE_S: Final = 0.2
WAITS_MS: Final = (0, 300)
MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Codes of a broker that does not lead the partition just now."""


@dataclass
class Budget:
    """Bounds of one reading, and its cost so far. is_gone: returns true if nobody waits for it any more."""

    most_records: int
    most_bytes: int
    most_s: float
    is_gone: Callable[[], bool] = lambda: False
    records: int = 0
    read_bytes: int = 0
    begun_s: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begun_s

    def spent(self) -> str | None:
        """The bound that was reached, in words; None if there is more to spend."""
        if self.is_gone():
            return "nobody waits for it any more"
        if self.records >= self.most_records:
            return f"{self.most_records:,} records were looked at"
        if self.read_bytes >= self.most_bytes:
            return f"{self.most_bytes >> 20:,} MiB were read"
        if self.seconds >= self.most_s:
            return f"it took {self.most_s:g} s"
        return None


class Found(NamedTuple):
    """A record, or a marker, and its partition."""

    partition: PartitionState
    row: ShownRecord


class Cursor:
    """A place in a partition. position: the offset of the next record, or backwards, the offset behind it.

    limit: its end, in the same sense. bound: estimated time of the next record, in ms. rows: records to give next.
    waiting: batches behind them, each with the range of its offsets that counts. reach: the offset up to which both are
    complete.
    """

    def __init__(self, partition: PartitionState, position: int, limit: int, step: int) -> None:
        self.partition = partition
        self.position = self.reach = position
        self.limit = limit
        self.step = step
        self.bound = math.nan
        self.rows: deque[ShownRecord] = deque()
        self.waiting: deque[Waiting] = deque()
        self.held_bytes = 0

    def set_bound(self) -> None:
        """Take the time of the first row. That of a marker does not count: a record of old times that was written in a
        transaction now has a marker of now.
        """
        if self.rows and (self.rows[0].record is not None or math.isnan(self.bound)):
            self.bound = self.rows[0].timestamp_ms
        elif not self.rows and self.waiting and not self.waiting[0].batch.header.is_control:
            self.bound = self.waiting[0].batch.header.max_timestamp_ms

    def forget(self) -> None:
        """Drop the rows: they are read again when their turn comes."""
        self.rows.clear()
        self.waiting.clear()
        self.held_bytes = 0
        self.reach = self.position


class Scan:
    """One reading of some partitions of a topic.

    positions and limits: those of the cursors, by partition. patience_s: the time for which a leader may be away.
    ended: reason for the end: "" before it, "complete", or the bound of the budget.
    failed: errors of partitions that could not be read on, by their numbers. deleted: the number of
    offsets that retention took while it went on.
    """

    def __init__(
        self,
        cluster: Cluster,
        partitions: Sequence[PartitionState],
        positions: Mapping[int, int],
        limits: Mapping[int, int],
        budget: Budget,
        *,
        is_backwards: bool,
        patience_s: float = 1.0,
    ) -> None:
        self._cluster = cluster
        self._patience_s = patience_s
        self._failing_since_s: float | None = None
        self._is_backwards = is_backwards
        self._budget = budget
        step = max(8, 128 // max(1, len(partitions)))
        self._cursors = {
            one.index: Cursor(one, positions[one.index], limits[one.index], step)
            for one in partitions
            if one.index in positions
        }
        self._turns: list[tuple[float, int]] | None = None
        self._held_bytes = 0
        self.ended = ""
        self.failed: dict[int, str] = {}
        self.deleted = 0
        self._has_moved = False

    @property
    def positions(self) -> dict[int, int]:
        return {index: cursor.position for index, cursor in self._cursors.items()}

    @property
    def has_more(self) -> bool:
        """Whether the positions are in front of records that it has not given, also of partitions that failed."""
        return any(one.position != one.limit for one in self._cursors.values())

    async def next(self) -> Found | None:
        """The next record or marker; None at the end, which `ended` explains."""
        if self._turns is None:
            await self._begin()
        assert self._turns is not None
        while self._turns:
            _, index = self._turns[0]
            cursor = self._cursors[index]
            if not cursor.rows and not cursor.waiting and self._is_done(cursor):
                heapq.heappop(self._turns)
                continue
            spent = self._budget.spent()
            # However small the budget, each reading gets on: else "go on" would lead to the same place for ever.
            if spent is not None and (self._has_moved or self._budget.is_gone()):
                self.ended = spent
                return None
            if cursor.rows:
                return self._take(cursor)
            if cursor.waiting:
                await self._decode(cursor)
            else:
                await self._read(cursor)
        self.ended = "complete"
        return None

    async def batches(self, size: int) -> AsyncIterator[list[Found]]:
        """The records in lists of at most `size`, and of about a MiB, up to the end."""
        found: list[Found] = []
        size_bytes = 0
        while (one := await self.next()) is not None:
            found.append(one)
            record = one.row.record
            size_bytes += 0 if record is None else len(record.value or b"") + len(record.key or b"")
            if len(found) >= size or size_bytes >= BLOCK_BYTES:
                yield found
                found, size_bytes = [], 0
        if found:
            yield found

    def put_back(self, found: Sequence[Found]) -> None:
        """Take records back that nobody has seen: the last ones, in their order. The reading ends with it."""
        for one in found:
            cursor = self._cursors[one.partition.index]
            behind = one.row.offset + 1 if self._is_backwards else one.row.offset
            cursor.position = max(cursor.position, behind) if self._is_backwards else min(cursor.position, behind)
            cursor.forget()
        self._budget.records -= len(found)
        self._turns = []
        self.ended = "" if found else self.ended

    def _take(self, cursor: Cursor) -> Found:
        assert self._turns is not None
        row = cursor.rows.popleft()
        cursor.position = row.offset if self._is_backwards else row.offset + 1
        if not cursor.rows and not cursor.waiting:
            self._finish(cursor)
        cursor.set_bound()
        self._budget.records += 1
        self._has_moved = True
        self._take_turn(cursor)
        return Found(cursor.partition, row)

    def _finish(self, cursor: Cursor) -> None:
        """All that was read of a partition has been given."""
        self._has_moved |= cursor.position != cursor.reach
        cursor.position = cursor.reach
        self._held_bytes -= cursor.held_bytes
        cursor.held_bytes = 0

    async def _decode(self, cursor: Cursor) -> None:
        """Read the records of the next batch that waits: those of others may never be wanted."""
        one = cursor.waiting.popleft()
        try:
            rows = [
                row for row in shown_records([one.batch], one.outcomes, one.first) if one.first <= row.offset < one.end
            ]
        except UNREADABLE as error:
            self._held_bytes -= cursor.held_bytes
            cursor.forget()
            self.failed[cursor.partition.index] = f"it has a batch that cannot be read: {error}"
            return
        cursor.rows.extend(reversed(rows) if self._is_backwards else rows)
        if not rows and not cursor.waiting:
            self._finish(cursor)
        cursor.set_bound()
        self._take_turn(cursor)
        if len(rows) >= RECORDS_PER_STEP:
            await asyncio.sleep(0)

    def _take_turn(self, cursor: Cursor) -> None:
        assert self._turns is not None
        heapq.heapreplace(self._turns, (self._turn_of(cursor), cursor.partition.index))

    def _turn_of(self, cursor: Cursor) -> float:
        if math.isnan(cursor.bound):
            return -math.inf
        return -cursor.bound if self._is_backwards else cursor.bound

    def _is_done(self, cursor: Cursor) -> bool:
        if cursor.partition.index in self.failed:
            return True
        return cursor.position <= cursor.limit if self._is_backwards else cursor.position >= cursor.limit

    async def _begin(self) -> None:
        """Ask when each partition's first record in this direction was written. Answers make the order good, no more:
        without one, a partition is read at once.
        """
        waiting = [cursor for cursor in self._cursors.values() if not self._is_done(cursor)]
        by_leader: dict[int, list[Cursor]] = defaultdict(list)
        if len(waiting) > 1:
            for cursor in waiting:
                by_leader[cursor.partition.leader].append(cursor)
        for leader, led in by_leader.items():
            for first in range(0, len(led), PARTITIONS_PER_REQUEST):
                await self._ask_times(leader, led[first : first + PARTITIONS_PER_REQUEST])
        self._turns = [(self._turn_of(cursor), cursor.partition.index) for cursor in waiting]
        heapq.heapify(self._turns)

    async def _ask_times(self, leader: int, cursors: Sequence[Cursor]) -> None:
        places = {(one.partition.topic, one.partition.index): one for one in cursors}
        try:
            asked = NEWEST if self._is_backwards else 0
            found = await list_offsets(self._cluster, leader, list(places), asked, UNCOMMITTED)
        except ClusterError:
            return
        for place, cursor in places.items():
            code, timestamp_ms, _ = found.get(place, (1, -1, -1))
            if not code and timestamp_ms >= 0:
                cursor.bound = timestamp_ms

    async def _read(self, cursor: Cursor) -> None:
        assert self._turns is not None
        try:
            waiting, reach, size_bytes = await (self._before(cursor) if self._is_backwards else self._from(cursor))
        except ClusterError as error:
            try:
                is_mended = await self._mend(cursor, error)
            except ClusterError as failure:
                error, is_mended = failure, False
            if not is_mended:
                self.failed[cursor.partition.index] = str(error)
            return
        self._failing_since_s = None
        cursor.reach = reach
        if not waiting:
            self._has_moved |= cursor.position != reach
            cursor.position = reach
            cursor.step = min(cursor.step * 4, LONGEST_STEP)
            return
        cursor.waiting.extend(reversed(waiting) if self._is_backwards else waiting)
        cursor.held_bytes = size_bytes
        self._held_bytes += size_bytes
        cursor.set_bound()
        self._take_turn(cursor)
        if self._held_bytes > MOST_HELD_BYTES:
            self._make_room(cursor)

    async def _mend(self, cursor: Cursor, error: ClusterError) -> bool:
        """Find the leader again, or the first offset that retention has left. Raises ClusterError."""
        partition = cursor.partition
        code = error.code if isinstance(error, RefusedError) else None
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await fill_offsets(self._cluster, [partition])
            start, end = partition.start or 0, partition.high_watermark or 0
            if partition.error is not None or cursor.position > end:
                return False
            place = cursor.limit if self._is_backwards else cursor.position
            if start <= place:
                return False
            self.deleted += start - place
            if self._is_backwards:
                cursor.limit = start
                cursor.position = max(cursor.position, start)
            else:
                cursor.position = min(start, cursor.limit)
            return True
        if code not in MOVED and not isinstance(error, UnreachableError):
            return False
        now_s = time.monotonic()
        self._failing_since_s = now_s if self._failing_since_s is None else self._failing_since_s
        if now_s - self._failing_since_s >= self._patience_s or self._budget.is_gone():
            return False
        await asyncio.sleep(PAUSE_S)
        with suppress(UnreachableError):
            view = await self._cluster.view([partition.topic])
            found = view.topics.get(partition.topic)
            leaders = {one.index: one.leader for one in found.partitions} if found else {}
            partition.leader = leaders.get(partition.index, -1)
        return True

    def _make_room(self, kept: Cursor) -> None:
        """Forget the rows of the partitions whose turn comes last."""
        holding = [one for one in self._cursors.values() if one is not kept and one.held_bytes]
        for cursor in sorted(holding, key=self._turn_of, reverse=True):
            if self._held_bytes <= MOST_HELD_BYTES // 2:
                return
            self._held_bytes -= cursor.held_bytes
            cursor.forget()

    async def _from(self, cursor: Cursor) -> tuple[list[Waiting], int, int]:
        """The batches from the cursor's position on: of one Fetch."""
        piece = await self._piece(cursor, cursor.position)
        waiting = _waiting_of(piece, cursor.position, cursor.limit)
        return waiting, min(cursor.limit, piece.next_offset), piece.size_bytes

    async def _before(self, cursor: Cursor) -> tuple[list[Waiting], int, int]:
        """The batches before the cursor's position: from so far back that one or two Fetches reach it."""
        end = cursor.position
        first = at = max(cursor.limit, end - cursor.step)
        pieces: list[Piece] = []
        while at < end:
            piece = await self._piece(cursor, at)
            pieces.append(piece)
            if piece.batches and len(pieces) == 1:
                # A Fetch gives whole batches: the records in front of the offset need not be read again.
                first = max(cursor.limit, min(first, piece.batches[0].header.base_offset))
            at = piece.next_offset
            nearer = at + (end - at) * 3 // 4
            if at < nearer and len(pieces) > 1 and sum(one.size_bytes for one in pieces) > BLOCK_BYTES:
                first = at = nearer
                pieces = []
        if sum(one.size_bytes for one in pieces) > BLOCK_BYTES:
            cursor.step = max(1, (end - first) // 4)
        waiting = [one for piece in pieces for one in _waiting_of(piece, first, end)]
        return waiting, first, sum(one.size_bytes for one in pieces)

    async def _piece(self, cursor: Cursor, at: int) -> Piece:
        """The batches of one Fetch from an offset on, and how their transactions stand."""
        partition = cursor.partition
        stable, end = partition.last_stable_offset or 0, partition.high_watermark or 0
        # An empty answer may also mean that the broker has to bring the records from elsewhere first.
        for wait_ms in WAITS_MS:
            if at < stable:
                fetched = await fetch(self._cluster, partition, at, COMMITTED, BLOCK_BYTES, wait_ms=wait_ms)
                if fetched.batches:
                    outcomes = Outcomes(fetched.batches, fetched.aborted, {}, fetched.last_stable_offset)
                    return self._counted(fetched.batches, outcomes, at)
            fetched = await fetch(self._cluster, partition, at, UNCOMMITTED, BLOCK_BYTES, wait_ms=wait_ms)
            if not fetched.batches:
                continue
            if at >= stable:
                return self._counted(fetched.batches, await self._outcomes(partition, fetched.batches, at), at)
            if fetched.batches[0].header.base_offset >= stable:
                return Piece([], None, stable, 0)
        return Piece([], None, max(end, at + 1), 0)

    async def _outcomes(self, partition: PartitionState, batches: list[Batch], at: int) -> Outcomes:
        """How records behind the last stable offset stand."""
        if not any(one.header.is_transactional for one in batches):
            return Outcomes((), (), {}, partition.high_watermark or 0)
        shown = Range(batches, batches[-1].header.last_offset + 1)
        return await read_outcomes(self._cluster, partition, shown, at)

    def _counted(self, batches: list[Batch], outcomes: Outcomes, at: int) -> Piece:
        size_bytes = sum(one.header.size_bytes for one in batches)
        self._budget.read_bytes += size_bytes
        return Piece(batches, outcomes, max(at + 1, batches[-1].header.last_offset + 1), size_bytes)


class Piece(NamedTuple):
    """Batches of one Fetch. next_offset: the first offset behind them."""

    batches: list[Batch]
    outcomes: Outcomes | None
    next_offset: int
    size_bytes: int


class Waiting(NamedTuple):
    """A batch that was not decoded yet, of which the offsets from `first` up to `end`, exclusive, count."""

    batch: Batch
    outcomes: Outcomes
    first: int
    end: int


def _waiting_of(piece: Piece, first: int, end: int) -> list[Waiting]:
    outcomes = piece.outcomes
    if outcomes is None:
        return []
    return [
        Waiting(one, outcomes, first, end)
        for one in piece.batches
        if one.header.base_offset < end and one.header.last_offset >= first
    ]
