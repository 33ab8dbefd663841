"""The engine that the brokers of several machines share: a database and an object store, with what goes wrong in them.

The fault model of the database:
- Its rows and transactions are those of `engine_rows`. A transaction takes effect in one instant, after a random time
  on its way, and its answer takes a random time back. Effects of different sessions come in any order; those of one
  connection in the order in which they were asked for.
- A guard that locks looks at the fence in the instant of the effect (`Guard.LOCK`). `Guard.PLAIN_READ` is wrong, to
  test the tests: it looks when the statement arrives.
- An answer may be lost (`lost_answers`): the caller sees a broken connection, after the effect. What a process had sent
  takes effect also when the process is killed or stopped meanwhile, and after its caller has given up.
- A host may be cut off, a fail-over may break all connections and refuse for a while, the database may be silent for a
  while: what is on its way then waits, and callers give up by their own time-outs. What is committed stays.
- News of a change (NOTIFY) may be lost with the connection, or by itself (`lost_news`).
- Its clock is the world's; those of brokers may run slower or faster, and their wall clocks jump.
The fault model of the object store is that of `tests.support.modelled_objects`. A host may be cut off from it, too.
Not modelled: a database that loses what it has committed, and locks within a transaction; real PostgreSQL has those in
`tests/broker/cluster`.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID, uuid4

from fencepost.broker.cluster.leases.lease_store import Endpoints, StoredLeases
from fencepost.broker.cluster.leases.lease_table import Move, NodeEvent, NodeId, Placed
from fencepost.broker.cluster.objects.store import ObjectStoreTroubleError, StoredObject
from fencepost.broker.cluster.postgres.connections import PostgresAddress, UnavailableError
from fencepost.broker.cluster.postgres.lease_store import PostgresLeaseStore, Renewal
from fencepost.broker.cluster.postgres.metadata_store import FOLLOWING
from fencepost.broker.cluster.postgres.segment_rows import REPEAT_FOR_S as SEALED_REPEAT_FOR_S
from fencepost.broker.cluster.postgres.segment_rows import answering
from fencepost.broker.cluster.postgres.session import REPEAT_FOR_S, Session
from fencepost.broker.cluster.postgres.tail import FLUSH_TIMEOUT_S
from fencepost.broker.cluster.remote.segment_rows import Leadership, LogStart, RemoteLogRows
from fencepost.broker.cluster.tail.tail_store import (
    NO_OBJECTS,
    FlushId,
    NotLedError,
    PartitionKey,
    TailRow,
)
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.last_leader_state import LastLeaderState
from fencepost.broker.log.segment.remote_segment import RemoteSegmentMetadata
from fencepost.broker.metadata.image import TopicMetadata
from tests.simulation.disk import SimulatedDisk
from tests.simulation.engine_requests import EngineRequests, Trouble, kind_of
from tests.simulation.engine_rows import EngineRows
from tests.simulation.loop import START_MS, current_process
from tests.support.modelled_objects import ModelledObjects

T = TypeVar("T")

CLUSTER_ID: Final = "simulated-cluster"
ADDRESS: Final = PostgresAddress("postgresql://engine/simulated", "engine/simulated")
WAY_S: Final = (0.0001, 0.002)
REFUSED_AFTER_S: Final = 0.001
BETWEEN_S: Final = (0.0, 0.5)
"""From the arrival of a statement that looks at its fence then until its effect: it may wait for a disk."""
CONNECT_TIMEOUT_S: Final = 5.0
STATEMENT_TIMEOUT_S: Final = 10.0
UNHEARD: Final = "the connection is lost"


class Guard(Enum):
    """When a flush looks at the fence of its node."""

    LOCK = auto()
    PLAIN_READ = auto()


USUAL_GUARD = Guard.LOCK


@dataclass
class EngineTroubles:
    """What goes wrong now. cut_off: hosts that do not reach the database. way_s: from the shortest to the longest.

    is_away: refuses all. is_silent: answers nobody, and goes on later. lost_answers, lost_news: from 0 to 1.
    """

    cut_off: set[str]
    way_s: tuple[float, float] = WAY_S
    is_away: bool = False
    is_silent: bool = False
    lost_answers: float = 0.0
    lost_news: float = 0.0

    def all(self) -> frozenset[str]:
        """What goes wrong now, in words; empty when nothing does."""
        present = {
            "away": self.is_away,
            "silent": self.is_silent,
            "slow": self.way_s != WAY_S,
            "answers are lost": self.lost_answers,
            "news is lost": self.lost_news,
        }
        return frozenset(self.cut_off | {what for what, is_so in present.items() if is_so})


class SimulatedEngine:
    """What all nodes share. rows: what is committed. objects: what is stored. requests: all that nodes ask for.

    on_committed: called after each transaction that has changed rows of partitions or something that nodes follow, in
                  the same step. on_flushed: with each flush that has an effect, after
                  its rows are inserted. on_refused: when a flush is refused by its fence.
    """

    def __init__(self, chance: random.Random, chance_of_objects: random.Random) -> None:
        self.rows = EngineRows(CLUSTER_ID)
        self.objects = ModelledObjects(chance_of_objects)
        self.guard = USUAL_GUARD
        self.on_refused: list[Callable[[], None]] = []
        self.troubles = EngineTroubles(set())
        self.on_committed: list[Callable[[], None]] = []
        self.on_flushed: list[Callable[[FlushId, Sequence[TailRow]], None]] = []
        self.requests = EngineRequests()
        self.chance = chance
        self.generation = 0  # of connections: a fail-over breaks all
        self._waiting: list[Callable[[], None]] = []
        self._listeners: list[EngineLeaseStore] = []
        self._sweeper: EngineSession | None = None
        self._count = 0

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    # Faults

    def begin_fail_over(self) -> None:
        self.troubles.is_away = True
        self.generation += 1

    def end_fail_over(self) -> None:
        self.troubles.is_away = False

    def fall_silent(self) -> None:
        self.troubles.is_silent = True

    def speak(self) -> None:
        """Take effects that have waited; their callers may have given up."""
        self.troubles.is_silent = False
        waiting, self._waiting = self._waiting, []
        for arrive in waiting:
            arrive()

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        self.end_fail_over()
        self.speak()
        self.troubles = EngineTroubles(set())
        self.objects.trouble = self.objects.slowest_s = 0.0
        self.objects.is_refusing = self.objects.is_away = False

    # For sessions

    def arrive(self, effect: Callable[[], None]) -> None:
        """Something that was asked for reaches the database."""
        if self.troubles.is_silent:
            self._waiting.append(effect)
        else:
            effect()

    def committed(self) -> None:
        """A transaction has taken effect: all hear of it that listen, if it has changed what they follow."""
        count = self.rows.counts.total()
        if count != self._count:
            self._count = count
            for store in self._listeners:
                store.news()
        elif not self.rows.touched:
            return
        for observe in self.on_committed:
            observe()
        self.rows.touched.clear()

    def listen(self, store: EngineLeaseStore) -> None:
        self._listeners.append(store)

    def stop_listening(self, store: EngineLeaseStore) -> None:
        if store in self._listeners:
            self._listeners.remove(store)

    def takes_sweep(self, sweeper: EngineSession) -> bool:
        """Whether a session has the lock of the sweep, or gets it: it loses it with its connection."""
        holder = self._sweeper
        if holder is None or not holder.is_open:
            self._sweeper = sweeper
        return self._sweeper is sweeper


class _Answer(NamedTuple):
    """What a transaction has raised or returned."""

    error: Exception | None
    result: Any = None


class EngineSession(Session):
    """One node's connection, for one purpose: the work of a `Session` is a transaction on the rows, in one instant.

    host, disk: of the node; what it asks for counts among the operations of its disk, and may kill it as they do.
    """

    def __init__(
        self, engine: SimulatedEngine, host: str, disk: SimulatedDisk, *, timeout_s: float = STATEMENT_TIMEOUT_S
    ) -> None:
        super().__init__(ADDRESS, lambda: host)
        self.engine = engine
        self.is_connected = False
        self.on_reconnected: Callable[[], None] | None = None
        self._host = host
        self._disk = disk
        self._timeout_s = timeout_s
        self._generation = -1
        self._last_arrival_s = 0.0
        self._process = current_process()

    @property
    def is_open(self) -> bool:
        """Whether the database still has the session."""
        is_alive = self._process is None or not self._process.is_dead
        return self.is_connected and is_alive and self._generation == self.engine.generation

    async def open(self) -> None:
        await self.run(_nothing, repeat_for_s=0)

    async def close(self) -> None:
        self.is_connected = False

    async def run(  # type: ignore[override]
        self, work: Callable[[EngineRows], T], *, repeat_for_s: float = REPEAT_FOR_S
    ) -> T:
        return await super().run(work, repeat_for_s=repeat_for_s)  # type: ignore[arg-type]

    async def transaction(  # type: ignore[override]
        self, work: Callable[[EngineRows], T], *, repeat_for_s: float = REPEAT_FOR_S
    ) -> T:
        return await self.run(work, repeat_for_s=repeat_for_s)

    async def _run_once(self, work: Any) -> Any:
        async with self._turn:
            return await self.ask(work)

    async def ask(self, effect: Callable[[EngineRows], T], *, arrive: Callable[[EngineRows], None] | None = None) -> T:
        """Have a transaction take effect, and return what it returns. Raises UnavailableError, and what it raises.

        arrive: called when it reaches the database, before its effect.
        """
        engine, loop = self.engine, asyncio.get_running_loop()
        requests = engine.requests
        if asyncio.current_task() is None:
            await asyncio.sleep(0)  # as `connect` does: time-outs need a task
        trouble = requests.begin(self._host, kind_of(effect))
        await requests.before(trouble)
        await self._connect()
        if trouble is Trouble.NOT_DONE:
            self.is_connected = False
            raise UnavailableError(UNHEARD)
        generation = self._generation
        operation = self._disk.begin("metadata", "a transaction", 0)
        answer: asyncio.Future[_Answer] = loop.create_future()

        def fail() -> None:
            if not answer.done():
                answer.set_result(_Answer(UnavailableError(UNHEARD)))

        def take_effect() -> None:
            if engine.generation != generation:
                later(REFUSED_AFTER_S, fail)  # the fail-over has rolled it back
                return
            engine.rows.touched.clear()
            try:
                what = _Answer(None, effect(engine.rows))
            except Exception as error:  # noqa: BLE001  # the caller's
                what = _Answer(error)
            else:
                engine.committed()
            if trouble is Trouble.ANSWER_LOST:
                what = _Answer(UnavailableError(UNHEARD))
            later(self._way_s(), lambda: self._answer(answer, generation, what))

        def reach() -> None:
            if arrive is not None:
                arrive(engine.rows)
                later(engine.chance.uniform(*BETWEEN_S), take_effect)
            else:
                take_effect()

        def later(delay_s: float, work: Callable[[], None]) -> None:
            Context().run(loop.call_later, delay_s, work)

        self._last_arrival_s = max(self._last_arrival_s, loop.time() + self._way_s())
        Context().run(loop.call_at, self._last_arrival_s, lambda: engine.arrive(reach))
        requests.meanwhile(trouble)
        try:
            async with asyncio.timeout(self._timeout_s):
                error, result = await answer
        except TimeoutError:
            error, result = UnavailableError("no answer in time"), None
        if isinstance(error, UnavailableError):
            self.is_connected = False
        else:
            self._disk.end(operation)
        await requests.after(trouble)
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    async def _connect(self) -> None:
        """Raises UnavailableError."""
        engine = self.engine
        troubles = engine.troubles
        if self._host in troubles.cut_off or troubles.is_away:
            self.is_connected = False
            await asyncio.sleep(REFUSED_AFTER_S)
            raise UnavailableError("the connection is refused")
        if self.is_connected and self._generation == engine.generation:
            return
        if troubles.is_silent:
            await asyncio.sleep(CONNECT_TIMEOUT_S)
            raise UnavailableError("no connection in time")
        await asyncio.sleep(self._way_s())
        self.is_connected = True
        self._generation = engine.generation
        self._last_arrival_s = 0.0
        if self.on_reconnected is not None:
            self.on_reconnected()

    def _answer(self, answer: asyncio.Future[_Answer], generation: int, what: _Answer) -> None:
        engine, troubles = self.engine, self.engine.troubles
        is_lost = (
            engine.generation != generation
            or self._host in troubles.cut_off
            or engine.chance.random() < troubles.lost_answers
        )
        if answer.done():
            return  # its caller has given up
        answer.set_result(_Answer(UnavailableError(UNHEARD)) if is_lost else what)

    def _way_s(self) -> float:
        return self.engine.chance.uniform(*self.engine.troubles.way_s)


def _nothing(_: EngineRows) -> None:
    """A transaction without an effect."""


class EngineLeaseStore(PostgresLeaseStore):
    """The metadata store of one node with its lease. disk: see `EngineSession`.

    read_versions: of documents, as this node has last read or written them.
    """

    def __init__(self, engine: SimulatedEngine, host: str, disk: SimulatedDisk, *, lease_s: float) -> None:
        super().__init__(ADDRESS, lease_s=lease_s)
        self.engine = engine
        self.disk = disk
        self.read_versions: dict[str, int] = {}
        self.session: EngineSession = EngineSession(engine, host, disk)
        self.session.on_reconnected = self._may_have_changed.set
        self._renewals: EngineSession = EngineSession(engine, host, disk, timeout_s=lease_s)

    async def open(self) -> None:
        await self.session.open()
        self._counts = await self._read_counts()
        self._following = FOLLOWING.start_retrying(self._follow)
        self.engine.listen(self)

    async def close(self) -> None:
        self.engine.stop_listening(self)
        await super().close()

    def news(self) -> None:
        """Something has changed; this node hears of it a little later, unless the news is lost."""
        engine = self.engine
        if self.session.is_connected and engine.chance.random() >= engine.troubles.lost_news:
            loop = asyncio.get_running_loop()
            Context().run(loop.call_later, engine.chance.uniform(*WAY_S), self._may_have_changed.set)

    async def cluster_id(self) -> str:
        return CLUSTER_ID

    async def _read_counts(self) -> dict[str, int]:
        return await self.session.run(lambda rows: dict(rows.counts))

    # Leases

    async def load_leases(self) -> StoredLeases:
        return await self.session.run(lambda rows: rows.leases(self.engine.now_s(), START_MS))

    async def start(self, node_id: NodeId, endpoints: Endpoints, *, own_lease_after_s: float | None) -> int:
        return await self.session.transaction(
            lambda rows: rows.start(
                node_id,
                self.incarnation,
                dict(endpoints),
                own_lease_after_s=own_lease_after_s,
                lease_s=self.lease_s,
                now_s=self.engine.now_s(),
            )
        )

    async def renew(self, node_id: NodeId) -> Renewal:
        incarnation = self.incarnation
        try:
            async with asyncio.timeout(self.lease_s / 2):
                return await self._renewals.run(
                    lambda rows: rows.renew(node_id, incarnation, lease_s=self.lease_s, now_s=self.engine.now_s()),
                    repeat_for_s=0,
                )
        except TimeoutError as error:
            raise UnavailableError("the engine has not answered in time") from error

    async def shorten_leases(self) -> Sequence[NodeId]:
        return await self._renewals.run(
            lambda rows: rows.shorten_leases(lease_s=self.lease_s, now_s=self.engine.now_s()), repeat_for_s=0
        )

    async def leave(self, node_id: NodeId) -> None:
        incarnation = self.incarnation
        await self.session.transaction(lambda rows: rows.leave(node_id, incarnation, now_s=self.engine.now_s()))

    async def take_over(self, node_id: NodeId) -> bool:
        incarnation = self.incarnation
        return await self.session.transaction(
            lambda rows: rows.take_over(node_id, incarnation, now_s=self.engine.now_s())
        )

    async def node_event(self, node_id: NodeId, event: NodeEvent) -> bool:
        return await self.session.transaction(lambda rows: rows.node_event(node_id, event, now_s=self.engine.now_s()))

    async def move(self, moves: Mapping[Move, LastLeaderState], *, fence: int) -> list[Placed]:
        done: list[Placed] = []
        closed = [move for move, last_state in moves.items() if last_state.was_closed]
        if not closed:
            return []
        return await self.session.transaction(lambda rows: rows.move(closed, done, fence=fence))

    async def choose(self, choices: Mapping[TopicPartition, NodeId | None]) -> None:
        await self.session.transaction(lambda rows: rows.choose(choices))
        await self._placement_changed()

    # Topics

    async def load_topics(self) -> list[TopicMetadata]:
        return await self.session.run(lambda rows: list(rows.topics.values()))

    async def load_deletions(self) -> list[TopicMetadata]:
        return await self.session.run(lambda rows: list(rows.deletions.values()))

    async def create_topic(self, topic: TopicMetadata) -> bool:
        return await self._placing(lambda rows: rows.create_topic(topic))

    async def set_partition_count(self, name: str, partition_count: int, *, topic_id: bytes, before: int) -> bool:
        return await self._placing(
            lambda rows: rows.set_partition_count(name, partition_count, topic_id=topic_id, before=before)
        )

    async def delete_topic(self, name: str, topic_id: bytes) -> bool:
        deleted: list[bytes] = []
        return await self.session.transaction(lambda rows: rows.delete_topic(name, topic_id, deleted))

    async def finish_deletion(self, topic_id: bytes) -> None:
        await self.session.run(lambda rows: rows.deletions.pop(topic_id, None))

    async def set_topic_configs(
        self, name: str, configs: Mapping[str, str], *, topic_id: bytes, before: Mapping[str, str]
    ) -> bool:
        return await self.session.run(
            lambda rows: rows.set_topic_configs(name, configs, topic_id=topic_id, before=before)
        )

    # Documents

    async def read_versioned(self, key: str) -> tuple[bytes | None, int]:
        value, version = await self.session.run(lambda rows: rows.read_versioned(key))
        self.read_versions[key] = version
        return value, version

    async def compare_and_set(
        self, key: str, value: bytes, expected_version: int, *, may_use_reserve: bool = False
    ) -> bool:
        written_by = uuid4()
        is_set = await self.session.run(lambda rows: rows.compare_and_set(key, value, expected_version, written_by))
        if is_set:
            self.read_versions[key] = expected_version + 1
        return is_set

    # For those who look at a broker's store

    def topic(self, name: str) -> TopicMetadata | None:
        return self.engine.rows.topics.get(name)


class EngineTail:
    """The tails as one node reaches them, for `TailStore`."""

    def __init__(self, engine: SimulatedEngine, host: str, disk: SimulatedDisk) -> None:
        self._engine = engine
        self._committing = EngineSession(engine, host, disk, timeout_s=FLUSH_TIMEOUT_S + 1)
        self._reading = EngineSession(engine, host, disk)

    async def close(self) -> None:
        await self._committing.close()

    async def commit(
        self, flush: FlushId, rows: Sequence[TailRow], *, object_sizes: Mapping[UUID, int] = NO_OBJECTS
    ) -> bool:
        engine = self._engine
        seen: list[bool] = []
        # The bytes as they are sent: the file may go on.
        sent = [row if row.content is None else row._replace(content=bytes(row.content)) for row in rows]

        def effect(tables: EngineRows) -> bool:
            is_held = seen[0] if seen else tables.holds_fence(flush.node_id, flush.fence)
            if not is_held:
                for observe_refusal in engine.on_refused:
                    observe_refusal()
                return False
            led = tables.led_rows(flush, sent)
            was_committed = bool(led) and tables.is_committed(flush, led)
            tables.insert(flush, led, object_sizes)
            if led and not was_committed:
                for observe in engine.on_flushed:
                    observe(flush, led)
            if len(led) < len(sent):
                raise NotLedError({row.key for row in sent} - {row.key for row in led})
            return True

        def arrive(tables: EngineRows) -> None:
            seen.append(tables.holds_fence(flush.node_id, flush.fence))

        with answering():
            return await self._committing.ask(effect, arrive=arrive if engine.guard is Guard.PLAIN_READ else None)

    async def is_committed(self, flush: FlushId, rows: Sequence[TailRow]) -> bool:
        with answering():
            return await self._committing.ask(lambda tables: tables.is_committed(flush, rows))

    async def read(self, keys: Sequence[PartitionKey]) -> AsyncIterator[TailRow]:
        with answering():
            rows = await self._reading.ask(lambda tables: [row for key in keys for row in tables.tail(key)])
        for row in rows:
            yield row


class EngineRemoteLogMetadata:
    """The rows of sealed segments as one node reaches them, for `RemoteLogMetadata`."""

    def __init__(self, engine: SimulatedEngine, host: str, disk: SimulatedDisk) -> None:
        self._engine = engine
        self._session = EngineSession(engine, host, disk)

    async def close(self) -> None:
        await self._session.close()

    async def read(self, keys: Sequence[PartitionKey]) -> Mapping[PartitionKey, RemoteLogRows]:
        with answering():
            return await self._session.run(lambda rows: rows.sealed(keys), repeat_for_s=SEALED_REPEAT_FOR_S)

    async def replace(
        self,
        key: PartitionKey,
        leadership: Leadership,
        sealed: RemoteSegmentMetadata,
        *,
        names: Sequence[str],
        epochs: bytes,
    ) -> RemoteSegmentMetadata | None:
        with answering():
            return await self._session.transaction(
                lambda rows: rows.replace(
                    key, leadership, sealed, names=names, epochs=epochs, now_s=self._engine.now_s()
                ),
                repeat_for_s=SEALED_REPEAT_FOR_S,
            )

    async def raise_log_starts(self, starts: Mapping[PartitionKey, LogStart]) -> set[PartitionKey]:
        with answering():
            return await self._session.transaction(
                lambda rows: rows.raise_log_starts(starts, now_s=self._engine.now_s()), repeat_for_s=SEALED_REPEAT_FOR_S
            )


class EngineGarbage:
    """The rows of garbage as one node reaches them, for `GarbageTable`."""

    def __init__(self, engine: SimulatedEngine, host: str, disk: SimulatedDisk) -> None:
        self._engine = engine
        self._session = EngineSession(engine, host, disk)
        self._emptied: set[bytes] = set()

    async def close(self) -> None:
        await self._session.close()

    async def _ask(self, work: Callable[[EngineRows], T]) -> T:
        with answering():
            return await self._session.run(work, repeat_for_s=SEALED_REPEAT_FOR_S)

    async def holds_sweep(self) -> bool:
        return await self._ask(lambda _: self._engine.takes_sweep(self._session))

    async def find(self) -> int:
        return await self._ask(lambda rows: rows.find_garbage(self._emptied, now_s=self._engine.now_s()))

    async def due(self, grace_s: float, limit: int) -> Sequence[str]:
        return await self._ask(lambda rows: rows.due(grace_s, limit, now_s=self._engine.now_s()))

    async def removed(self, names: Sequence[str]) -> None:
        await self._ask(lambda rows: rows.removed(names))

    async def add_orphans(self, names: Sequence[str]) -> int:
        return await self._ask(lambda rows: rows.add_orphans(names, now_s=self._engine.now_s()))

    async def discard(self, names: Sequence[str]) -> int:
        return await self._ask(lambda rows: rows.discard(names, now_s=self._engine.now_s()))


class EngineObjects:
    """The object store as one node reaches it, for `ObjectStore`: files are those of its own disk."""

    def __init__(self, engine: SimulatedEngine, host: str, disk: SimulatedDisk) -> None:
        self._engine = engine
        self.requests: Counter[tuple[str, str]] = Counter()
        self._host = host
        self._disk = disk

    async def put(self, name: str, content: bytes | bytearray | memoryview) -> None:
        content = bytes(content)
        await self._ask("put", name, lambda: self._engine.objects.put(name, content))

    async def put_file(self, name: str, path: str) -> None:
        content = self._disk.read_file(path)
        if content is None:
            raise FileNotFoundError(path)
        await self.put(name, content)

    async def get(self, name: str) -> bytes:
        return await self._ask("get", name, lambda: self._engine.objects.get(name))

    async def get_range(self, name: str, position: int, length_bytes: int) -> bytes:
        return await self._ask("get_range", name, lambda: self._engine.objects.get_range(name, position, length_bytes))

    async def get_file(self, name: str, path: str) -> int:
        content = await self.get(name)
        file = self._disk.open(path)
        file.append(content)
        file.close()
        return len(content)

    async def list(self, prefix: str) -> AsyncIterator[Sequence[StoredObject]]:
        await self._ask("list", prefix, _nowhere)
        async for page in self._engine.objects.list(prefix):
            yield page

    async def delete(self, names: Sequence[str]) -> None:
        await self._ask("delete", names[0] if names else "", lambda: self._engine.objects.delete(names))

    async def _ask(self, kind: str, name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Raises ObjectStoreTroubleError, and what the work raises."""
        requests = self._engine.requests
        trouble = requests.begin(self._host, kind, name)
        await requests.before(trouble)
        await self._reach(name)
        if trouble is Trouble.NOT_DONE:
            raise ObjectStoreTroubleError(f"{name}: the connection is lost")
        if trouble in (Trouble.DIES_MEANWHILE, Trouble.FREEZES_MEANWHILE):
            loop = asyncio.get_running_loop()
            under_way = Context().run(loop.create_task, work())
            requests.meanwhile(trouble)
            result = await under_way
        else:
            result = await work()
        await requests.after(trouble)
        if trouble is Trouble.ANSWER_LOST:
            raise ObjectStoreTroubleError(f"{name}: the connection is lost")
        return result

    async def _reach(self, name: str) -> None:
        """Raises ObjectStoreTroubleError."""
        await asyncio.sleep(self._engine.chance.uniform(*WAY_S))
        if self._host in self._engine.troubles.cut_off:
            raise ObjectStoreTroubleError(f"{name}: no answer")


async def _nowhere() -> None:
    """Ask for nothing yet."""
