"""A model of the store of the tails, in memory, with the faults that a real one has.

The model:
- A statement takes effect at one instant, after a random time on its way. Effects of different sessions come in any
  order; those of one session in the order of its statements.
- A guard that locks (`Guard.LOCK`) looks at the fence in the instant of the effect. `Guard.PLAIN_READ` is wrong, to
  test the tests: it looks when the statement arrives.
- A reply may be lost: the caller gets StoreUnavailableError, before or after the effect. A statement whose caller has
  given up may still take effect later.
- A statement may be refused before it has an effect, and a session may be cut off: it can ask nothing any more, while
  what is on its way arrives.
- A fail-over loses the replies of all statements on their way, refuses for a while, and keeps what was committed.
- What was committed is never lost, and a read sees all effects before it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple
from uuid import UUID

from fencepost.broker.cluster.tail.tail_store import (
    NO_OBJECTS,
    ConflictError,
    FlushId,
    NotLedError,
    PartitionKey,
    PartitionToRestore,
    RestoredRemoteLog,
    StoreUnavailableError,
    TailRow,
)
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.storage.disk import StorageError


class Guard(Enum):
    """When a flush looks at the fence of its node."""

    LOCK = auto()
    PLAIN_READ = auto()


@dataclass
class EngineFaults:
    """How often what goes wrong, from 0 to 1, and the longest time on the way in seconds."""

    longest_way_s: float = 0.0
    lost_replies: float = 0.0
    refusals: float = 0.0


class StoredRow(NamedTuple):
    row: TailRow
    flush: FlushId


class SimulatedEngine:
    """The engine that all nodes share. rows: by partition and base offset. deleted: topics of which no row is taken."""

    def __init__(
        self, randomness: random.Random | None = None, faults: EngineFaults | None = None, guard: Guard = Guard.LOCK
    ) -> None:
        self.randomness = randomness or random.Random(1)
        self.faults = faults or EngineFaults()
        self.guard = guard
        self.fences: dict[int, int] = {}
        self.rows: dict[tuple[PartitionKey, int], StoredRow] = {}
        self.deleted: set[bytes] = set()  # ids of topics
        self.is_away = False
        self.fail_overs_count = 0

    def session(self) -> EngineSession:
        return EngineSession(self)

    def raise_fence(self, node_id: int) -> int:
        """Take over from a node, or start it: all flushes under earlier fences are refused from now on."""
        self.fences[node_id] = self.fences.get(node_id, 0) + 1
        return self.fences[node_id]

    def begin_fail_over(self) -> None:
        self.is_away = True
        self.fail_overs_count += 1

    def end_fail_over(self) -> None:
        self.is_away = False

    def tail(self, key: PartitionKey) -> list[TailRow]:
        """The rows of one partition, in order."""
        return [stored.row for (found, _), stored in sorted(self.rows.items()) if found == key]

    # Effects, each in one instant

    def look(self, flush: FlushId) -> bool:
        """Whether the fence is the flush's."""
        return self.fences.get(flush.node_id) == flush.fence

    def insert(self, flush: FlushId, rows: Sequence[TailRow]) -> bool:
        """Raises ConflictError; NotLedError, of rows of deleted topics."""
        left_out = {row.key for row in rows if row.key.topic_id in self.deleted}
        for row in rows:
            stored = self.rows.get((row.key, row.base_offset))
            if stored is not None:
                if stored.flush == flush:
                    return True
                raise ConflictError(f"offset {row.base_offset} of {row.key} is held by {stored.flush}")
        for row in rows:
            if row.key not in left_out:
                content = None if row.content is None else bytes(row.content)
                self.rows[(row.key, row.base_offset)] = StoredRow(row._replace(content=content), flush)
        if left_out:
            raise NotLedError(left_out)
        return True


class EngineSession:
    """The engine as one node reaches it, for `TailStore` and `RemoteLogSource`. is_cut_off: it cannot ask any more."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self._engine = engine
        self._last: asyncio.Task[None] | None = None
        self._ways: set[asyncio.Task[None]] = set()
        self.is_cut_off = False
        self.commits_count = 0

    async def commit(
        self, flush: FlushId, rows: Sequence[TailRow], *, object_sizes: Mapping[UUID, int] = NO_OBJECTS
    ) -> bool:
        self.commits_count += 1
        engine = self._engine
        seen: list[bool] = []

        def arrive() -> None:
            if engine.guard is Guard.PLAIN_READ:
                seen.append(engine.look(flush))

        def effect() -> bool:
            is_held = engine.look(flush) if engine.guard is Guard.LOCK else seen[0]
            return is_held and engine.insert(flush, rows)

        result = await self._ask(arrive, effect)
        assert isinstance(result, bool)
        return result

    async def is_committed(self, flush: FlushId, rows: Sequence[TailRow]) -> bool:
        first = rows[0]

        def effect() -> bool:
            stored = self._engine.rows.get((first.key, first.base_offset))
            return stored is not None and stored.flush == flush

        result = await self._ask(lambda: None, effect)
        assert isinstance(result, bool)
        return result

    async def read(self, keys: Sequence[PartitionKey]) -> AsyncIterator[TailRow]:
        result = await self._ask(lambda: None, lambda: [row for key in keys for row in self._engine.tail(key)])
        assert isinstance(result, list)
        for row in result:
            yield row

    async def restore(
        self, wanted: Mapping[TopicPartition, PartitionToRestore]
    ) -> Mapping[TopicPartition, RestoredRemoteLog | StorageError]:
        return {name: RestoredRemoteLog() for name in wanted}

    async def _ask(self, arrive: object, effect: object) -> object:
        assert callable(arrive)
        assert callable(effect)
        engine, faults, randomness = self._engine, self._engine.faults, self._engine.randomness
        if engine.is_away or self.is_cut_off or randomness.random() < faults.refusals:
            raise StoreUnavailableError("the connection is refused")
        outcome: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        before, fail_overs = self._last, engine.fail_overs_count

        async def run() -> None:
            if before is not None:
                await asyncio.wait([before])
            await asyncio.sleep(randomness.random() * faults.longest_way_s)
            arrive()
            await asyncio.sleep(randomness.random() * faults.longest_way_s)
            if engine.fail_overs_count != fail_overs and randomness.random() < 0.5:
                result: object = StoreUnavailableError("rolled back by the fail-over")
            else:
                try:
                    result = effect()
                except (ConflictError, NotLedError) as error:
                    result = error
            if not outcome.done():
                outcome.set_result(result)

        way = self._last = asyncio.ensure_future(run())
        self._ways.add(way)
        way.add_done_callback(self._ways.discard)
        if randomness.random() < faults.lost_replies:
            await asyncio.sleep(randomness.random() * 2 * faults.longest_way_s)
            raise StoreUnavailableError("the connection is lost")
        result = await outcome
        if engine.fail_overs_count != fail_overs:
            raise StoreUnavailableError("the connection is lost in the fail-over")
        if isinstance(result, Exception):
            raise result
        return result
