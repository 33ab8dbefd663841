"""Copying records of a topic into another one, in transactions: its plan, its progress, and the work itself.

The range is fixed before it begins, so that a copy into its own source ends, too. It reads one partition after the
other and writes chunks; each chunk is one transaction. The ids of both topics are checked before a chunk is written and
before it is committed: a topic that was deleted and made again ends the copy.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClusterError
from fencepost.client.partitioner import partition_of_key
from fencepost.client.transactional import TransactionalProducer, UnknownOutcomeError
from fencepost.console.reading.scan import Budget, Found, Scan
from fencepost.console.reading.topics import fill_offsets, partition_states
from fencepost.protocol.compression import Codec
from fencepost.protocol.record_batch import Record

RECORDS_AT_ONCE: Final = 500
CHUNK_RECORDS: Final = 5_000
CHUNK_BYTES: Final = 4 << 20
BATCH_BYTES: Final = 512 << 10
PATIENCE_S: Final = 30.0
LONGEST_S: Final = 24 * 3600.0

Choose = Callable[[Sequence[Found]], Awaitable[Sequence[Found]]]
"""Returns those of the records that are copied."""


@dataclass(frozen=True)
class Plan:
    """A copy. begins, ends: offsets by partition of the source. transactional_id: None writes outside of transactions.

    by_key: the partition follows from the key, else it is that of the source. keeps_time: else records get the time of
    the copy.
    """

    source: str
    source_id: bytes
    target: str
    target_id: bytes
    target_partitions: int
    begins: Mapping[int, int]
    ends: Mapping[int, int]
    by_key: bool
    keeps_time: bool
    transactional_id: str | None

    @property
    def offsets(self) -> int:
        return sum(max(0, end - self.begins[index]) for index, end in self.ends.items())


@dataclass
class Progress:
    """The figures of a copy so far. next_offsets: the first offset to go on from, by partition of the source.

    in_doubt: number of records whose transaction may have been committed, or not.
    """

    read_records: int = 0
    read_bytes: int = 0
    written_records: int = 0
    written_bytes: int = 0
    chunks: int = 0
    in_doubt: int = 0
    deleted: int = 0
    done_offsets: int = 0
    next_offsets: dict[int, int] = field(default_factory=dict)


class StoppedError(Exception):
    """The copy was stopped; the message is the reason."""


class Copying:
    """The work of one copy. should_stop: returns the reason to stop, or None."""

    def __init__(self, cluster: Cluster, plan: Plan, choose: Choose, should_stop: Callable[[], str | None]) -> None:
        self._cluster = cluster
        self._plan = plan
        self._choose = choose
        self._should_stop = should_stop
        self._producer = TransactionalProducer(cluster, plan.target, plan.transactional_id)
        self._chunk: list[Found] = []
        self._chunk_bytes = 0
        self._without_key = 0
        self.progress = Progress(next_offsets=dict(plan.begins))

    async def run(self) -> None:
        """Copy all. Raises StoppedError and ClusterError; `progress` says how far it came."""
        await self._check_topics()
        await self._producer.start()
        try:
            for index in sorted(self._plan.ends):
                await self._copy_partition(index)
        except BaseException as error:
            if self._producer.is_open and not isinstance(error, UnknownOutcomeError):
                await self._abort()
            raise

    async def _abort(self) -> None:
        try:
            await self._producer.abort()
        except ClusterError:
            return  # the broker aborts it when its time is over

    async def _copy_partition(self, index: int) -> None:
        plan = self._plan
        begin, end = plan.begins[index], plan.ends[index]
        if begin >= end:
            return
        view = await self._cluster.view([plan.source])
        [state] = partition_states(view, [(plan.source, index)])
        await fill_offsets(self._cluster, [state])
        if state.error is not None:
            raise ClusterError(f"{state.name} does not answer: {state.error}")
        budget = Budget(1 << 62, 1 << 62, LONGEST_S, lambda: self._should_stop() is not None)
        begins, ends = {index: begin}, {index: end}
        scan = Scan(self._cluster, [state], begins, ends, budget, is_backwards=False, patience_s=PATIENCE_S)
        progress = self.progress
        before = progress.read_records, progress.read_bytes
        async for found in scan.batches(RECORDS_AT_ONCE):
            progress.read_records = before[0] + budget.records
            progress.read_bytes = before[1] + budget.read_bytes
            chosen = [one for one in await self._choose(found) if one.row.record is not None]
            self._chunk += chosen
            self._chunk_bytes += sum(size_of(one.row.record) for one in chosen if one.row.record is not None)
            self._stop_if_asked()
            if len(self._chunk) >= CHUNK_RECORDS or self._chunk_bytes >= CHUNK_BYTES:
                await self._write()
            if not self._chunk:
                self._reached(index, found[-1].row.offset + 1)
        self._stop_if_asked()
        self.progress.deleted += scan.deleted
        if scan.failed:
            raise ClusterError(f"{plan.source}-{index} cannot be read on: {scan.failed[index]}")
        if scan.ended != "complete":
            raise StoppedError(scan.ended)
        await self._write()
        self._reached(index, end)

    def _reached(self, index: int, offset: int) -> None:
        self.progress.done_offsets += max(0, offset - self.progress.next_offsets[index])
        self.progress.next_offsets[index] = offset

    def _stop_if_asked(self) -> None:
        reason = self._should_stop()
        if reason is not None:
            raise StoppedError(reason)

    async def _write(self) -> None:
        """Write the chunk in one transaction."""
        if not self._chunk:
            return
        count, size_bytes = len(self._chunk), self._chunk_bytes
        await self._check_topics()
        for batch, codec in self._batches():
            await self._producer.write(batch, codec)
            if self._plan.transactional_id is None:
                self.progress.written_records += sum(map(len, batch.values()))
            self._stop_if_asked()
        await self._check_topics()
        try:
            await self._producer.commit()
        except UnknownOutcomeError:
            self.progress.in_doubt = count
            raise
        if self._plan.transactional_id is not None:
            self.progress.written_records += count
        self.progress.written_bytes += size_bytes
        self.progress.chunks += 1
        last = self._chunk[-1]
        self._chunk, self._chunk_bytes = [], 0
        self._reached(last.partition.index, last.row.offset + 1)

    def _batches(self) -> list[tuple[dict[int, list[Record]], Codec]]:
        """The records of the chunk in order, each batch for one partition, of BATCH_BYTES or one record at most."""
        now_ms = int(time.time() * 1000)
        found: list[tuple[dict[int, list[Record]], Codec]] = []
        sizes: dict[int, int] = {}
        latest: dict[int, list[Record]] = {}
        for one in self._chunk:
            record = one.row.record
            assert record is not None
            index = self._partition_for(one)
            size_bytes = size_of(record)
            if index not in latest or sizes[index] + size_bytes > BATCH_BYTES or len(latest[index]) >= RECORDS_AT_ONCE:
                latest[index], sizes[index] = [], 0
                found.append(({index: latest[index]}, one.row.codec))
            latest[index].append(record if self._plan.keeps_time else record._replace(timestamp_ms=now_ms))
            sizes[index] += size_bytes
        return found

    def _partition_for(self, found: Found) -> int:
        if not self._plan.by_key:
            return found.partition.index
        key = found.row.record.key if found.row.record is not None else None
        if key is None:
            self._without_key += 1
            return self._without_key % self._plan.target_partitions
        return partition_of_key(bytes(key), self._plan.target_partitions)

    async def _check_topics(self) -> None:
        plan = self._plan
        view = await self._cluster.view([plan.source, plan.target])
        for name, topic_id in ((plan.source, plan.source_id), (plan.target, plan.target_id)):
            found = view.topics.get(name)
            if found is None or found.error:
                raise StoppedError(f"the topic {name} is not there any more")
            if found.topic_id != topic_id:
                raise StoppedError(f"the topic {name} was deleted and made again")


def size_of(record: Record) -> int:
    """About the bytes of a record in a batch without compression."""
    headers = sum(len(name) + len(value or b"") + 4 for name, value in record.headers)
    return 20 + len(record.key or b"") + len(record.value or b"") + headers
