"""Throughput of a cluster by its number of brokers, in virtual time: placement and flushes are the product's own.

    .venv/bin/python -m scripts.cluster_throughput

What one machine cannot measure, as its brokers would share its processors. Each broker has a processor that works on
one thing at a time, a `Flusher` and a `TailLog`; partitions are placed by `decide_creation`. One PostgreSQL commits one
statement at a time for all of them, and each put takes its time. The times are those of `MEASURED` in
scripts/cluster_model.py. Producers write evenly to all partitions and run only some rounds ahead of the slowest, so the
broker with the most partitions bounds them all.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple, cast
from uuid import UUID

from fencepost.broker.cluster.leases.lease_table import LeaseTable, NodeState, decide_creation
from fencepost.broker.cluster.objects.object_ids import Uploader
from fencepost.broker.cluster.tail.tail_log import TailLog
from fencepost.broker.cluster.tail.tail_store import NO_OBJECTS, FlushId, PartitionKey, TailRow
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.durability.flusher import FilesToSync, Flusher
from fencepost.broker.log.durability.shared_log import AppendedBytes
from fencepost.broker.storage.disk import Disk, LogFile, StorageError
from fencepost.protocol.record_batch import LENGTH_OVERHEAD_BYTES
from scripts.cluster_model import MB, MEASURED
from tests.simulation.loop import VirtualTimeLoop

TOPIC_ID = bytes(range(16))
_START = Struct(">qi")
"""Of a batch: its base offset, and its length behind this."""
BROKERS = (1, 2, 4, 8, 16)
LARGE_CPU_S_PER_GB = 2.05
"""Of a broker that stores large batches as objects, by `scripts.cluster_costs large`."""


class Load(NamedTuple):
    """batch_bytes: of one request, to one partition. partitions: for each broker. rounds: of a batch to each partition.

    rounds_ahead: how many may wait for their acknowledgement. request_s: of a processor, beside the bytes.
    """

    name: str
    batch_bytes: int
    partitions: int
    rounds: int
    rounds_ahead: int
    request_s: float = MEASURED.request_cpu_s


LOADS = (
    Load("large batches", 128 * 1024, 100, 12, 6),
    Load("small batches", 1_000, 100, 40, 4),
)


class Processor:
    """Works on one thing at a time."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self.busy_s = 0.0

    async def work(self, duration_s: float) -> None:
        async with self._turn:
            self.busy_s += duration_s
            await asyncio.sleep(duration_s)


class Store:
    """The PostgreSQL of all brokers, as the `TailStore` of one: statements wait for each other, then for the way."""

    def __init__(self, processor: Processor, statements: Processor) -> None:
        self._processor = processor
        self._statements = statements

    async def commit(
        self, flush: FlushId, rows: Sequence[TailRow], *, object_sizes: Mapping[UUID, int] = NO_OBJECTS
    ) -> bool:
        await self._processor.work(MEASURED.flush_cpu_s)
        inline_bytes = 0 if object_sizes else sum(row.length_bytes for row in rows)
        alone_s = 1 / MEASURED.commits_per_s
        await self._statements.work(alone_s + inline_bytes / MEASURED.inline_bytes_per_s)
        await asyncio.sleep(MEASURED.commit_s - alone_s)
        return True

    async def is_committed(self, flush: FlushId, rows: Sequence[TailRow]) -> bool:
        raise AssertionError("this store always answers")

    def read(self, keys: Sequence[PartitionKey]) -> AsyncIterator[TailRow]:
        raise AssertionError("no broker is lost")


class Objects:
    """Puts side by side, each on a connection of its own."""

    def __init__(self) -> None:
        self._count = 0

    async def put(self, uploader: Uploader, contents: Sequence[bytes | memoryview]) -> UUID:
        self._count += 1
        size_bytes = sum(map(len, contents))
        await asyncio.sleep(MEASURED.object_put_s + size_bytes / MEASURED.object_bytes_per_s)
        return UUID(int=self._count)

    def abandon(self, object_ids: Iterable[UUID]) -> None:
        assert not list(object_ids), "no flush fails"

    async def get(self, object_id: UUID, position: int, length_bytes: int, checksum: bytes | None) -> bytes:
        raise AssertionError("no broker is lost")


class File:
    """Batches of one size, of which a flush looks at the offsets and lengths. All logs have the same."""

    path = "file"

    def __init__(self, load: Load) -> None:
        content = bytearray(load.rounds * load.batch_bytes)
        for number in range(load.rounds):
            _START.pack_into(content, number * load.batch_bytes, number, load.batch_bytes - LENGTH_OVERHEAD_BYTES)
        self._content = memoryview(content)

    def read(self, position: int, length_bytes: int) -> memoryview:
        return self._content[position : position + length_bytes]


@dataclass(eq=False)
class Log:
    """One partition, for `Flusher`. acknowledged: batches."""

    topic_partition: TopicPartition
    file: File
    batch_bytes: int
    appended: int = 0
    taken: int = 0
    acknowledged: int = 0

    def begin_sync(self) -> FilesToSync:
        return FilesToSync((), (), self.appended)

    def take_appended(self) -> Sequence[AppendedBytes]:
        first, self.taken = self.taken, self.appended
        if first == self.taken:
            return ()
        size = self.batch_bytes
        file = cast("LogFile", self.file)
        position, length = first * size, (self.taken - first) * size
        return [
            AppendedBytes(self.topic_partition, TOPIC_ID, 0, 0, position, length, first, self.taken, file),
        ]

    def end_sync(self, work: FilesToSync, error: StorageError | None) -> None:
        assert error is None
        self.acknowledged = work.target

    def give_up(self, error: StorageError) -> None:
        raise AssertionError(error)


class Broker:
    """A node, also its `Tenure`."""

    fence = 1

    def __init__(self, node_id: int, statements: Processor, load: Load) -> None:
        self.node_id = node_id
        self.processor = Processor()
        self.tail_log = TailLog(Store(self.processor, statements), self, objects=Objects())
        self.flusher = Flusher(cast("Disk", None), self.tail_log)
        self.logs: list[Log] = []
        is_large = load.batch_bytes * load.partitions > 256 * 1024
        per_byte_s = (LARGE_CPU_S_PER_GB if is_large else MEASURED.produce_cpu_s_per_gb) / 1e9
        self._request_s = load.request_s + load.batch_bytes * per_byte_s

    def is_held(self) -> bool:
        return True

    def resign(self, reason: str) -> None:
        raise AssertionError(reason)

    def resign_from(self, keys: Collection[PartitionKey]) -> None:
        raise AssertionError("no topic is deleted")

    async def produce(self, load: Load, others: Sequence[Broker]) -> None:
        """Append the batches of all rounds, not further ahead than the slowest of all brokers allows."""
        for number in range(load.rounds):
            while number - min(one.acknowledged_rounds for one in others) >= load.rounds_ahead:  # noqa: ASYNC110
                await asyncio.sleep(0.001)  # of virtual time
            for log in self.logs:
                await self.processor.work(self._request_s)
                log.appended += 1
                self.flusher.request(log)
                room = self.tail_log.room_after(load.batch_bytes)
                if room is not None:
                    await room
        await self.flusher.drain()

    @property
    def acknowledged_rounds(self) -> int:
        return min((log.acknowledged for log in self.logs), default=1_000_000)


class Outcome(NamedTuple):
    """bytes_per_s: of all brokers. even: the mean of the brokers' partitions against the most that one has.

    busy: the part of the time in which PostgreSQL had a statement.
    """

    bytes_per_s: float
    even: float
    busy: float


def placed(brokers_count: int, partitions_count: int) -> dict[int, list[TopicPartition]]:
    """Partitions by the broker that leads them."""
    table = LeaseTable(nodes=dict.fromkeys(range(1, brokers_count + 1), NodeState.ALIVE))
    names = [TopicPartition("orders", number) for number in range(partitions_count)]
    found: dict[int, list[TopicPartition]] = {node_id: [] for node_id in table.nodes}
    for one in decide_creation(table, TOPIC_ID, names):
        assert one.leader is not None
        found[one.leader].append(one.topic_partition)
    return found


async def _run(brokers_count: int, load: Load) -> Outcome:
    statements = Processor()
    file = File(load)
    brokers = []
    by_leader = placed(brokers_count, brokers_count * load.partitions)
    for node_id, names in by_leader.items():
        broker = Broker(node_id, statements, load)
        broker.logs = [Log(name, file, load.batch_bytes) for name in names]
        brokers.append(broker)
    began_s = asyncio.get_running_loop().time()
    await asyncio.gather(*(broker.produce(load, brokers) for broker in brokers))
    taken_s = asyncio.get_running_loop().time() - began_s
    counts = [len(names) for names in by_leader.values()]
    assert all(log.acknowledged == load.rounds for broker in brokers for log in broker.logs)
    total_bytes = sum(counts) * load.rounds * load.batch_bytes
    return Outcome(total_bytes / taken_s, sum(counts) / len(counts) / max(counts), statements.busy_s / taken_s)


@contextlib.contextmanager
def virtual_time() -> Iterator[VirtualTimeLoop]:
    loop = VirtualTimeLoop()
    try:
        yield loop
        assert not loop.failures, loop.failures
    finally:
        loop.bury()
        loop.close()


def outcome(brokers_count: int, load: Load) -> Outcome:
    with virtual_time() as loop:
        return loop.run_until_complete(_run(brokers_count, load))


def main() -> None:
    for load in LOADS:
        print(f"\n{load.name} of {load.batch_bytes:,} bytes, {load.partitions} partitions for each broker\n")
        print("| brokers | MB/s | against one | partitions, mean against most | PostgreSQL is busy |")
        print("|---|---|---|---|---|")
        alone = outcome(1, load).bytes_per_s
        for count in BROKERS:
            found = outcome(count, load)
            print(
                f"| {count} | {found.bytes_per_s / MB:,.1f} | {found.bytes_per_s / alone:.1f} "
                f"| {found.even:.2f} | {found.busy:.0%} |"
            )


if __name__ == "__main__":
    main()
