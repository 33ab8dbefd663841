"""The decision topics of Spark's sinks in any Kafka: which batches are decided, and have no mark that they are done."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from fencepost.check_back.decided import (
    JOBS_TOPIC,
    TOPIC_PREFIX,
    DecidedBatch,
    DecisionTopics,
    batch_of,
    done_id,
    partial_value,
)
from fencepost.client.cluster import Cluster
from fencepost.client.consuming import COMMITTED, EARLIEST, LATEST, list_offsets, read_between
from fencepost.client.errors import ClusterError, check
from fencepost.client.producing import produce_all
from fencepost.client.view import Partition, Topic
from fencepost.protocol.errors import ErrorCode

TIMEOUT_S: Final = 30.0
"""Of each read."""
TAIL: Final = 64
LONGER: Final = 16
"""A sink's own topic is read from as near to its end as the decision is found: a batch takes four offsets."""
SHARED_TAIL: Final = 20_000
"""How many offsets are searched in a topic of many sinks: decisions before that are older than any transaction."""
DONE: Final = "/done"


@dataclass
class Ledger:
    """The part of a decision topic that was read. batches: by sink, the latest decisions that have no done mark.

    decided_ms: times of their records, by sink. unreadable: reasons why a record is no decision, by key.
    """

    topic: str
    next_offset: int | None = None
    batches: dict[str, DecidedBatch] = field(default_factory=dict)
    decided_ms: dict[str, int] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    unreadable: dict[str, str] = field(default_factory=dict)

    def take(self, key: str, value: bytes | None, timestamp_ms: int, topics: DecisionTopics) -> None:
        """Take the latest record of a key."""
        sink = key.removesuffix(DONE)
        if not topics.may_decide(self.topic, sink):
            return
        if key.endswith(DONE):
            if value is not None and sink in self.batches and done_id(value) == self.batches[sink].id is not None:
                del self.batches[sink]
                self.done.add(sink)
            return
        self.batches.pop(sink, None)
        self.unreadable.pop(sink, None)
        self.done.discard(sink)
        if value is None:
            return
        try:
            self.batches[sink] = batch_of(sink, value)
        except ValueError as error:
            self.unreadable[sink] = str(error)
        else:
            self.decided_ms[sink] = timestamp_ms


class Ledgers:
    """The decision topics of a cluster, read up to their last stable offsets: hidden decisions are found later.

    topics: the rule which topics count. problems: reasons why one was not read, by topic.
    """

    def __init__(self, cluster: Cluster, topics: DecisionTopics) -> None:
        self._cluster = cluster
        self._topics = topics
        self.found: dict[str, Ledger] = {}
        self.leaders: dict[str, int] = {}
        self.problems: dict[str, str] = {}

    async def read(self, only: Collection[str] | None = None) -> None:
        """Read the new records. only: the topics that are read; None for all. Raises ClusterError, OSError if no broker
        answers.
        """
        are_named = not (self._topics.has_patterns or self._topics.has_default)
        view = await self._cluster.view(only if only is not None else self._topics.names if are_named else None)
        wanted = {
            name: topic
            for name, topic in view.topics.items()
            if self._topics.is_one(name) and topic.error != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
        self.problems = {name: "there is no such topic" for name in self._topics.names if name not in wanted}
        for name in self.found.keys() - wanted.keys():
            del self.found[name]
        for name, topic in wanted.items():
            try:
                await self._read(topic)
            except (ClusterError, TimeoutError, OSError) as error:
                self.problems[name] = str(error) or type(error).__name__

    async def _read(self, topic: Topic) -> None:
        check(topic.error)
        if len(topic.partitions) != 1:
            self.problems[topic.name] = f"it has {len(topic.partitions)} partitions; a decision topic has 1"
            return
        (partition,) = topic.partitions
        self.leaders[topic.name] = partition.leader
        low, stable = [await self._offset(topic.name, partition, mark) for mark in (EARLIEST, LATEST)]
        ledger = self.found.get(topic.name)
        if ledger is not None and ledger.next_offset is not None and low <= ledger.next_offset <= stable:
            await self._read_from(ledger, partition, ledger.next_offset, stable)
            return
        sink = topic.name.removeprefix(TOPIC_PREFIX)
        is_shared = topic.name == JOBS_TOPIC or self._topics.is_trusted(topic.name)
        length = SHARED_TAIL if is_shared else TAIL
        while True:
            ledger = self.found[topic.name] = Ledger(topic.name)
            start = max(low, stable - length)
            await self._read_from(ledger, partition, start, stable)
            is_found = sink in ledger.batches or sink in ledger.done or sink in ledger.unreadable
            if is_shared or is_found or start == low:
                return
            length *= LONGER

    async def _read_from(self, ledger: Ledger, partition: Partition, start: int, end: int) -> None:
        records, ledger.next_offset = await read_between(
            self._cluster, ledger.topic, partition, start, end, COMMITTED, TIMEOUT_S
        )
        latest: dict[str, tuple[bytes | None, int]] = {}
        for record, _ in records:
            if record.key is not None:
                key = record.key.decode("utf-8", "replace")
                latest.pop(key, None)  # so that the keys are in the order of their last records
                latest[key] = record.value, record.timestamp_ms
        for key, (value, timestamp_ms) in latest.items():
            ledger.take(key, value, timestamp_ms, self._topics)

    async def _offset(self, topic: str, partition: Partition, mark: int) -> int:
        place = topic, partition.index
        found = (await list_offsets(self._cluster, partition.leader, [place], mark, COMMITTED)).get(place)
        if found is None:
            raise ClusterError(f"the broker's answer does not have {topic}-{partition.index}")
        check(found[0])
        return found[2]

    async def mark_job_done(self, topic: str, batch: DecidedBatch, lost: Sequence[str]) -> None:
        """Remove the decision of a batch job, as its driver does. lost: tokens that were aborted in spite of it; a mark
        keeps them. Raises ClusterError, OSError.
        """
        records: list[tuple[bytes, bytes | None]] = []
        if lost:
            records.append(((batch.sink + DONE).encode(), partial_value(batch, lost)))
        records.append((batch.sink.encode(), None))
        await produce_all(self._cluster, topic, 0, self.leaders[topic], records)
        self.found[topic].batches.pop(batch.sink, None)
