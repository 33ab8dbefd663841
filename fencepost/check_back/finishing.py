"""Finds the decided batches of Spark's sinks in any Kafka, and commits their open transactions.

It only sends EndTxn with a commit for listed tokens: it aborts nothing, and begins no session that would fence a
driver. So it may run beside living drivers, and more than once at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, NamedTuple

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
from fencepost.two_phase import Coordinator, HeuristicOutcome, Outcome, Superseded, Token, TwoPhaseError

TIMEOUT_S: Final = 30.0
"""Of each read, and of the end of each transaction."""
TAIL: Final = 64
LONGER: Final = 16
"""A sink's own topic is read from as near to its end as the decision is found: a batch takes four offsets."""
SHARED_TAIL: Final = 100_000
"""How many offsets are searched in a topic of many sinks: decisions before that are older than any transaction."""
AT_ONCE: Final = 8
DONE: Final = "/done"


@dataclass
class Ledger:
    """A decision topic, as far as it was read. batches: by sink, the latest decisions that have no done mark.

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

    async def read(self) -> None:
        """Read the new records. Raises ClusterError, OSError if no broker answers."""
        names = None if self._topics.has_patterns or self._topics.has_default else self._topics.names
        view = await self._cluster.view(names)
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


class Finished(NamedTuple):
    """Result of the work on one decided batch.

    committed: transactions that were open. already: others that were committed before. lost: tokens that were aborted
    in spite of the decision. unknown: tokens that the coordinators have forgotten, or that are of another cluster.
    error: reason why the rest is still open; None if nothing is. is_marked: whether the decision of a job was removed.
    """

    topic: str
    batch: DecidedBatch
    committed: int
    already: int
    lost: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    error: str | None = None
    is_marked: bool = False


async def finish(ledgers: Ledgers, topic: str, batch: DecidedBatch, coordinator: Coordinator) -> Finished:
    """Commit the open transactions of a decided batch, and mark a batch job as done if nothing of it is open."""
    done = await asyncio.to_thread(end_all, topic, batch, coordinator)
    if not batch.is_job or done.error is not None or done.unknown:
        return done
    try:
        await ledgers.mark_job_done(topic, batch, done.lost)
    except (ClusterError, TimeoutError, OSError) as error:
        return done._replace(error=f"not marked as done: {error}")
    return done._replace(is_marked=True)


def end_all(topic: str, batch: DecidedBatch, coordinator: Coordinator) -> Finished:
    """Commit the open transactions of a decided batch, AT_ONCE at a time."""
    tokens = [Token.parse(text) for text in batch.tokens]
    try:
        outcomes = coordinator.outcomes(tokens, timeout_s=TIMEOUT_S)
    except (TwoPhaseError, TimeoutError, OSError) as error:
        return Finished(topic, batch, 0, 0, error=str(error) or type(error).__name__)
    already = sum(outcome is Outcome.COMMITTED for outcome in outcomes.values())
    lost = [token for token in tokens if outcomes[token] is Outcome.ABORTED]
    unknown = [token for token in tokens if outcomes[token] is Outcome.UNKNOWN]
    left = [token for token in tokens if outcomes[token] is Outcome.PREPARED]
    errors: list[str] = []

    def commit(token: Token) -> bool:
        try:
            coordinator.complete(token, commit=True, timeout_s=TIMEOUT_S, reason="it is decided")
        except HeuristicOutcome:
            lost.append(token)
        except Superseded:
            unknown.append(token)
        except (TwoPhaseError, TimeoutError, OSError) as error:
            errors.append(str(error) or type(error).__name__)
        else:
            return True
        return False

    with ThreadPoolExecutor(AT_ONCE) as threads:
        committed = sum(threads.map(commit, left))
    left_open = f"{len(errors)} of its transactions are still open: {errors[0]}" if errors else None
    return Finished(topic, batch, committed, already, _texts(lost), _texts(unknown), left_open)


def _texts(tokens: Iterable[Token]) -> tuple[str, ...]:
    return tuple(map(str, tokens))
