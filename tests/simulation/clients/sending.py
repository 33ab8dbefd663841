"""How a producer gets its batches to their partitions: in order, up to five requests under way, each batch as often as
it takes.

A batch keeps its sequence numbers over all attempts. After an error that may pass, nothing new is sent to the partition
until every request under way has been answered; then all that was not accepted is sent again, in order, as librdkafka
does it.
Source: Kafka's RecordAccumulator and Sender; librdkafka's rdkafka_request.c; KIP-98.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from fencepost.broker.hosting.placement import NodeAddress
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.history.writer import SendCall
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Record, build_batch
from fencepost.protocol.sequence import advance_sequence
from tests.simulation.client import Disconnected
from tests.simulation.clients.cluster import Cluster
from tests.simulation.clients.libraries import Library, Reaction

MAXIMUM_REQUESTS_IN_FLIGHT: Final = 5
DELIVERY_TIMEOUT_S: Final = 20.0
PRODUCE_TIMEOUT_MS: Final = 3000


class Batch:
    """Records on their way to one partition.

    calls:        of the history, one per record; empty where nobody records it.
    is_ambiguous: an attempt has not been answered, so that it may be in the log.
    """

    def __init__(
        self, topic_partition: TopicPartition, records: Sequence[Record], calls: Sequence[SendCall], now_s: float
    ) -> None:
        self.topic_partition = topic_partition
        self.records = records
        self.base_sequence = NO_SEQUENCE
        self.is_ambiguous = False
        self.attempt_count = 0
        self.queued_s = now_s
        self._calls = calls

    def accepted(self, base_offset: int) -> None:
        for index, call in enumerate(self._calls):
            call.ok(offset=base_offset + index if base_offset >= 0 else None)

    def given_up(self, error: str) -> None:
        for call in self._calls:
            if self.is_ambiguous:
                call.unknown(error)
            else:
                call.fail(error)


class _Lane:
    """The way to one partition."""

    def __init__(self) -> None:
        self.next_sequence = 0
        self.waiting: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.refused: list[Batch] = []
        self.rests_until_s = 0.0

    @property
    def is_empty(self) -> bool:
        return not (self.waiting or self.in_flight or self.refused)


class Identity:
    """The producer id and epoch that batches are written with; (-1, -1) for a producer that is not idempotent."""

    def __init__(self) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH


class BatchSender:
    """Sends what is queued, until `fail` is called.

    ready:  awaited before batches are sent to partitions for the first time; what adds them to a transaction.
    failed: called once when a batch is lost, with what the library makes of the error.
    has_gap: a batch was given up after it had got its sequence numbers: they cannot go on.
    """

    def __init__(
        self,
        cluster: Cluster,
        library: Library,
        identity: Identity,
        *,
        transactional_id: str | None,
        ready: Callable[[Sequence[TopicPartition]], Awaitable[bool]],
        failed: Callable[[Reaction, str], None],
        acks: int = -1,
    ) -> None:
        self._cluster = cluster
        self._library = library
        self._identity = identity
        self._transactional_id = transactional_id
        self._ready = ready
        self._failed = failed
        self._acks = acks
        self.has_gap = False
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._requests_in_flight = 0
        self._work = asyncio.Event()
        self._settled = asyncio.Event()
        self._is_failed = False
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._task = self._loop.create_task(self._send_for_ever())
        self._task.add_done_callback(raise_its_failure)

    def queue(self, batch: Batch) -> None:
        """Send it, as soon as may be."""
        lane = self._lanes.setdefault(batch.topic_partition, _Lane())
        lane.waiting.append(batch)
        self._work.set()

    async def drained(self) -> None:
        """Wait until nothing is queued or under way."""
        while not all(lane.is_empty for lane in self._lanes.values()):
            self._settled.clear()
            await self._settled.wait()

    def fail(self, error: str) -> None:
        """Send nothing more; requests under way are still answered."""
        self._is_failed = True
        for lane in self._lanes.values():
            for batch in (*lane.refused, *lane.waiting):
                self._give_up(batch, error)
            lane.refused, lane.waiting = [], deque()
        self._settled.set()

    def start_over(self, *, new_sequences: bool) -> None:
        """Send again, after `fail` or with another identity; nothing is under way."""
        self._is_failed = False
        if new_sequences:
            self._lanes.clear()
            self.has_gap = False

    def close(self) -> None:
        for task in (self._task, *self._tasks):
            task.cancel()

    # Sending

    async def _send_for_ever(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            while (sendable := self._sendable()) and self._requests_in_flight < MAXIMUM_REQUESTS_IN_FLIGHT:
                try:
                    await self._send_some(sendable)
                except Disconnected:
                    await self._cluster.back_off()
                    self._give_up_what_is_late()

    def _sendable(self) -> list[TopicPartition]:
        if self._is_failed:
            return []
        now_s = self._loop.time()
        return [
            topic_partition
            for topic_partition, lane in self._lanes.items()
            if lane.waiting and not lane.refused and lane.rests_until_s <= now_s
        ]

    async def _send_some(self, sendable: Sequence[TopicPartition]) -> None:
        """One request to the leader of the first partition, with a batch for each partition there. Raises
        Disconnected.
        """
        if not await self._ready(sendable) or self._is_failed:
            return
        address = await self._cluster.leader(sendable[0])
        led = [partition for partition in sendable if await self._cluster.leader(partition) == address]
        batches = []
        for topic_partition in led:
            lane = self._lanes.get(topic_partition)
            if lane is not None and lane.waiting and not lane.refused:
                batch = lane.waiting.popleft()
                if batch.attempt_count == 0 and self._identity.producer_id != NO_PRODUCER_ID:
                    batch.base_sequence = lane.next_sequence
                    lane.next_sequence = advance_sequence(lane.next_sequence, len(batch.records))
                batch.attempt_count += 1
                lane.in_flight.append(batch)
                batches.append(batch)
        if batches:
            self._requests_in_flight += 1
            task = self._loop.create_task(self._exchange(address, batches))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(raise_its_failure)

    async def _exchange(self, address: NodeAddress, batches: Sequence[Batch]) -> None:
        answers: dict[TopicPartition, tuple[ErrorCode, int]] = {}
        try:
            response = await self._cluster.send(address, self._request(batches), self._library.produce_version)
        except Disconnected:
            pass
        else:
            for topic in response.responses:
                name = topic.name or self._cluster.topic_names.get(topic.topic_id, "")
                for answer in topic.partition_responses:
                    error = ErrorCode(answer.error_code)
                    answers[TopicPartition(name, answer.index)] = error, answer.base_offset
        self._requests_in_flight -= 1
        for batch in batches:
            self._settle(batch, *answers.get(batch.topic_partition, (None, -1)))
        self._work.set()
        self._settled.set()

    def _request(self, batches: Sequence[Batch]) -> ProduceRequest:
        by_topic: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            content = build_batch(
                batch.records,
                producer_id=self._identity.producer_id,
                producer_epoch=self._identity.producer_epoch,
                base_sequence=batch.base_sequence,
                is_transactional=self._transactional_id is not None,
            )
            topic, partition = batch.topic_partition
            by_topic.setdefault(topic, []).append(PartitionProduceData(index=partition, records=content))
        return ProduceRequest(
            transactional_id=self._transactional_id,
            acks=self._acks,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[
                TopicProduceData(name=topic, topic_id=self._cluster.topic_ids[topic], partition_data=partitions)
                if self._library.produce_version >= 13
                else TopicProduceData(name=topic, partition_data=partitions)
                for topic, partitions in by_topic.items()
            ],
        )

    # What becomes of a batch

    def _settle(self, batch: Batch, error: ErrorCode | None, base_offset: int) -> None:
        """error: None where there was no answer."""
        lane = self._lanes[batch.topic_partition]
        is_first = batch.base_sequence == self._first_open_sequence(lane)
        lane.in_flight.remove(batch)
        if error is ErrorCode.NONE:
            batch.accepted(base_offset)
        else:
            self._refused(lane, batch, error, is_first=is_first)
        if lane.refused and not lane.in_flight:
            lane.refused.sort(key=lambda refused: refused.base_sequence)
            lane.waiting.extendleft(reversed(lane.refused))
            lane.refused = []

    def _first_open_sequence(self, lane: _Lane) -> int:
        return min(batch.base_sequence for batch in (*lane.in_flight, *lane.refused))

    def _refused(self, lane: _Lane, batch: Batch, error: ErrorCode | None, *, is_first: bool) -> None:
        if error is None:
            batch.is_ambiguous = True
            reaction, reason = Reaction.FIND, "no answer"
        else:
            reaction, reason = self._library.reaction(ApiKey.PRODUCE, error), error.name
            if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not is_first:
                reaction = Reaction.RETRY
            if error in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR):
                batch.is_ambiguous = True
        if reaction is Reaction.SUCCEED:
            batch.accepted(-1)
            return
        if reaction in (Reaction.RETRY, Reaction.FIND) and not self._is_failed:
            if self._loop.time() < batch.queued_s + DELIVERY_TIMEOUT_S:
                if reaction is Reaction.FIND:
                    self._cluster.forget_leader(batch.topic_partition)
                pause_s = self._cluster.chance.uniform(0.02, 0.2)
                lane.refused.append(batch)
                lane.rests_until_s = self._loop.time() + pause_s
                self._loop.call_later(pause_s, self._work.set)
                return
            reaction, reason = Reaction.BUMP, "DELIVERY_TIMED_OUT"
        self._give_up(batch, reason)
        if not self._is_failed:
            self._failed(reaction, reason)

    def _give_up(self, batch: Batch, reason: str) -> None:
        self.has_gap = self.has_gap or batch.attempt_count > 0
        batch.given_up(reason)

    def _give_up_what_is_late(self) -> None:
        latest_s = self._loop.time() - DELIVERY_TIMEOUT_S
        oldest_s = min((lane.waiting[0].queued_s for lane in self._lanes.values() if lane.waiting), default=latest_s)
        if not self._is_failed and oldest_s < latest_s:
            self._failed(Reaction.BUMP, "DELIVERY_TIMED_OUT")


def raise_its_failure(task: asyncio.Task[None]) -> None:
    """What a task of the model raises is a mistake in the model. Raises it, for the loop to note."""
    if not task.cancelled():
        task.result()
