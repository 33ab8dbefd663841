"""Finishes the decided batches of Spark's sinks: commits the listed transactions, whether or not a driver is alive.

A decision counts from its commit on, and nothing takes it back: the driver's options `sink.reset` and `sink.accept`
put it aside for later batches only, and commit its transactions before. So no commit comes too soon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from fencepost.broker.check_back_host.log_lookup import Logs
from fencepost.broker.check_back_host.own_topics import OwnRecords
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.transaction.metadata import TransactionMetadata
from fencepost.broker.transaction.service import TransactionService
from fencepost.broker.transaction.sink_tasks import WATCH, SinkTasks, UnfinishedBatch
from fencepost.check_back.decided import DecidedBatch, DecisionTopics, batch_of
from fencepost.check_back.question import LatestRecord, ResolverUnreachable
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.two_phase.tokens import Token

log = get_logger(__name__)

FIRST_MS: Final = 10_000
"""Age of a sink's oldest open transaction when its decision is read at first: a driver has mostly finished by then."""
PAUSE_S: Final = 5.0
READ_S: Final = 5.0
"""Longest wait for a decision topic; it is read again after the pause."""
SINKS_AT_ONCE: Final = 16
ENDS_AT_ONCE: Final = 32
WARNING_PAUSE_S: Final = 60.0
"""Between two warnings about a sink whose decision cannot be read."""
LARGE_BYTES: Final = 200_000
"""Decisions beyond it, of some thousand tasks, are read by a thread."""
STEP: Final = 1_000
"""Transactional ids that one step of the event loop examines."""
PASSING: Final = frozenset((ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE))


class DecidedBatches:
    """The watch over one node's `SinkTasks`.

    globs: names of the topics in which sinks decide.
    """

    def __init__(
        self, globs: Sequence[str], tasks: SinkTasks, logs: Logs, transactions: TransactionService, clock: Clock
    ) -> None:
        self._decision_topics = DecisionTopics(globs)
        self._tasks = tasks
        self._topics = logs.topics
        self._transactions = transactions
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._records = OwnRecords(logs)
        self._read: dict[tuple[str, str], tuple[LatestRecord, DecidedBatch | None]] = {}  # by topic and sink
        self._warned_s: dict[str, float] = {}
        self._turns = asyncio.Semaphore(SINKS_AT_ONCE)

    async def run(self) -> None:
        """Watch until no transaction of a task is open."""
        await self._topics.ensure_opened()
        while self._tasks.open:
            await self._look_at_all()
            if self._tasks.open:
                with suppress(TimeoutError):
                    async with asyncio.timeout(PAUSE_S):
                        await self._tasks.asked.wait()

    async def _look_at_all(self) -> None:
        tasks = self._tasks
        tasks.asked.clear()
        due, tasks.due = tasks.due, {}
        trusted = self._trusted()
        looks = []
        for sink, ids in list(tasks.open.items()):
            found = await self._still_open(sink, list(ids))
            oldest_ms = min((one.start_ms for one in found), default=None)
            if oldest_ms is not None and (sink in due or oldest_ms <= self._clock.now_ms() - FIRST_MS):
                looks.append(self._look_in_turn(sink, found, due.get(sink, set()), trusted))
            else:
                tasks.unfinished.pop(sink, None)
            await asyncio.sleep(0)
        await asyncio.gather(*looks)
        for sink in self._warned_s.keys() - tasks.open.keys():
            del self._warned_s[sink]
        for place in [place for place in self._read if place[1] not in tasks.open]:
            del self._read[place]

    def _trusted(self) -> tuple[str, ...]:
        """The topics that may decide about all sinks."""
        topics, metadata = self._decision_topics, self._topics.metadata
        if topics.has_patterns:
            return tuple(sorted(topic.name for topic in metadata.all() if topics.is_trusted(topic.name)))
        return tuple(name for name in topics.names if metadata.get(name) is not None)

    async def _still_open(self, sink: str, ids: list[str]) -> list[TransactionMetadata]:
        """The open transactions among ids of a sink; forgets the others."""
        found, ended = [], []
        for number, transactional_id in enumerate(ids, 1):
            if number % STEP == 0:
                await asyncio.sleep(0)
            one = self._transactions.find(transactional_id)
            if not isinstance(one, ErrorCode):
                if one.state.is_open:
                    found.append(one)
                else:
                    ended.append(transactional_id)
            elif one not in PASSING:  # another node's, which has it in its own watch
                ended.append(transactional_id)
        if ended:
            self._tasks.ended(sink, ended)
        return found

    async def _look_in_turn(
        self, sink: str, found: list[TransactionMetadata], due: set[tuple[str, int]], trusted: tuple[str, ...]
    ) -> None:
        try:
            async with self._turns:
                await self._look(sink, found, due, trusted)
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            WATCH.failed(error, concerns=sink)  # the other sinks are looked at

    async def _look(
        self, sink: str, found: list[TransactionMetadata], due: set[tuple[str, int]], trusted: tuple[str, ...]
    ) -> None:
        """Commit the decided transactions of a sink; mark the others whose time-out is due."""
        own = (name for name in self._decision_topics.own(sink) if self._topics.metadata.get(name) is not None)
        places = dict.fromkeys((*own, *trusted))
        batches: list[DecidedBatch] = []
        unread = ""
        decided_ms = self._clock.now_ms()
        for topic in places:
            try:
                async with asyncio.timeout(READ_S):
                    record = await self._records.latest(topic, sink.encode())
            except ResolverUnreachable as missing:
                unread = f"{topic} cannot be read: {missing.reason}"
                continue
            except TimeoutError:
                unread = f"{topic} was not read to its end within {READ_S:g} s: an open transaction may hide it"
                continue
            batch = None if record is None else await self._batch(topic, sink, record)
            if batch is not None and record is not None:
                batches.append(batch)
                decided_ms = min(decided_ms, record.timestamp_ms)
        tokens = {token for batch in batches for token in batch.tokens}
        decided: list[TransactionMetadata] = []
        undecided: list[TransactionMetadata] = []
        for number, one in enumerate(found, 1):
            (decided if _token(one) in tokens else undecided).append(one)
            if number % STEP == 0:
                await asyncio.sleep(0)
        if decided:
            await self._finish(sink, decided, batches, decided_ms)
        else:
            self._tasks.unfinished.pop(sink, None)
        if not unread:
            self._warned_s.pop(sink, None)
            self._tasks.held.pop(sink, None)
            for one in undecided:
                if (one.transactional_id, one.start_ms) in due:
                    self._tasks.mark(one.transactional_id, one.start_ms)
        elif due:
            self._tasks.held[sink] = len(due)
            self._warn(sink, unread, len(due))

    async def _batch(self, topic: str, sink: str, record: LatestRecord) -> DecidedBatch | None:
        """The batch that a record decides; None if it is no decision."""
        read = self._read.get((topic, sink))
        if read is not None and read[0] is record:
            return read[1]
        batch = None
        if record.value is not None:
            try:
                is_large = len(record.value) > LARGE_BYTES
                batch = (
                    await asyncio.to_thread(batch_of, sink, record.value) if is_large else batch_of(sink, record.value)
                )
            except ValueError as error:
                log.warning("decision_unreadable", topic=topic, sink=sink, reason=str(error))
            else:
                if batch.strange:
                    log.warning("decision_lists_others", topic=topic, sink=sink, transactions=batch.strange)
        self._read[topic, sink] = record, batch
        return batch

    async def _finish(
        self, sink: str, decided: list[TransactionMetadata], batches: Sequence[DecidedBatch], decided_ms: int
    ) -> None:
        self._tasks.unfinished[sink] = UnfinishedBatch(len(decided), decided_ms)
        finished = 0
        for first in range(0, len(decided), ENDS_AT_ONCE):
            errors = await asyncio.gather(
                *(
                    self._transactions.end_by_check_back(
                        one.transactional_id, one.producer, one.start_ms, committed=True
                    )
                    for one in decided[first : first + ENDS_AT_ONCE]
                )
            )
            finished += errors.count(NO_ERROR)
        self._tasks.finished += finished
        if finished == len(decided):
            self._tasks.unfinished.pop(sink, None)
        else:
            self._tasks.unfinished[sink] = UnfinishedBatch(len(decided) - finished, decided_ms)
        if finished:
            log.info(
                "decided_batch_finished",
                sink=sink,
                batch=", ".join(str(batch.batch) for batch in batches),
                transactions=finished,
            )

    def _warn(self, sink: str, reason: str, held: int) -> None:
        now_s = self._loop.time()
        if now_s - self._warned_s.get(sink, -WARNING_PAUSE_S) >= WARNING_PAUSE_S:
            self._warned_s[sink] = now_s
            log.warning(
                "time_outs_wait",
                sink=sink,
                transactions=held,
                reason=reason,
                remedy="nothing, if its leader comes back; else look who has a transaction open there: `fencepost "
                "transactions list`",
            )


def _token(one: TransactionMetadata) -> str:
    return str(Token(one.producer_id, one.producer_epoch, one.transactional_id))
