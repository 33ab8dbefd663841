"""Transactions end to end through the service, over logs in memory: commit, abort, fencing, time-outs, crashes in
between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import pytest

from fencepost.broker.config import Settings
from fencepost.broker.coordination.runtime import CoordinatorRecord, partition_for_key
from fencepost.broker.kernel.eager import Finished, MaybeAwaitable
from fencepost.broker.kernel.topic_partition import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.transaction import completion, coordinator_reload
from fencepost.broker.transaction.completion import MARKERS_PER_SLICE
from fencepost.broker.transaction.markers import LocalMarkerChannel, MarkerChannel, TransactionMarker
from fencepost.broker.transaction.metadata import Producer, TransactionMetadata
from fencepost.broker.transaction.producer_ids import ProducerIds
from fencepost.broker.transaction.service import COMPLETIONS_PER_TURN, TransactionService
from fencepost.broker.transaction.shard import ProducerReply
from fencepost.broker.transaction.state_machine import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    ONGOING,
    PREPARE_COMMIT,
    TransactionState,
    TransactionVersion,
)
from fencepost.broker.transaction.verification import TransactionVerifier
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import EndTransactionMarker
from fencepost.protocol.stored.transaction_state import (
    TransactionLogValue,
    encode_transaction_log_key,
    encode_transaction_log_value,
)
from tests.support.captured_events import capture_logs
from tests.support.memory_topics import INTERNAL_PARTITION_COUNT, MemoryLog, MemoryTopics, in_page_cache

V1, V2 = TransactionVersion.V1, TransactionVersion.V2
OK, CONCURRENT = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS
OUT_0, OUT_1, OUT_2 = (TopicPartition("out", partition) for partition in range(3))
ID = "tx-1"


@dataclass
class ManualClock:
    milliseconds: int = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.milliseconds


@dataclass
class HeldChannel:
    """Delivers markers when the test says so; `answers` come before the truth, one per call."""

    local: LocalMarkerChannel
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    sent: list[TransactionMarker] = field(default_factory=list)
    answers: list[dict[TopicPartition, ErrorCode]] = field(default_factory=list)

    def send(self, marker: TransactionMarker) -> MaybeAwaitable[dict[TopicPartition, ErrorCode]]:
        self.sent.append(marker)
        return self._answer(marker) if self.gate.is_set() else self._answer_when_open(marker)

    async def _answer_when_open(self, marker: TransactionMarker) -> dict[TopicPartition, ErrorCode]:
        await self.gate.wait()
        return await self._answer(marker)

    def _answer(self, marker: TransactionMarker) -> MaybeAwaitable[dict[TopicPartition, ErrorCode]]:
        return Finished(self.answers.pop(0)) if self.answers else self.local.send(marker)

    def group_by_destination(self, partitions: Collection[TopicPartition]) -> Sequence[Collection[TopicPartition]]:
        return self.local.group_by_destination(partitions)

    def is_deleted(self, topic_partition: TopicPartition) -> bool:
        return self.local.is_deleted(topic_partition)


class Broker:
    """Topics and metadata that outlive the service: `restart` is a crash with a page cache that survives."""

    def __init__(self, **settings: int) -> None:
        self.topics = MemoryTopics(out=2)
        self.store = InMemoryMetadataStore()
        self.clock = ManualClock()
        self.settings = Settings(**settings)  # type: ignore[arg-type]  # names of integer settings
        self.service = self._make_service()

    def _make_service(self, markers: MarkerChannel | None = None) -> TransactionService:
        self.topics.on_created.clear()
        self.topics.on_deleted.clear()
        return TransactionService(
            self.topics,  # type: ignore[arg-type]  # the part of Topics that is used
            ProducerIds(self.store),
            self.settings,
            self.clock,
            markers=markers,
        )

    def hold_markers(self) -> HeldChannel:
        channel = HeldChannel(LocalMarkerChannel(self.topics, self.clock))  # type: ignore[arg-type]
        self.service = self._make_service(channel)
        return channel

    async def restart(self) -> None:
        await self.service.close()
        self.service = self._make_service()
        await self.service.start()
        await self.service.ensure_loaded()

    async def begin(self, *partitions: TopicPartition, version: TransactionVersion = V2) -> Producer:
        producer = producer_of(await self.service.init_producer_id(ID, timeout_ms=60_000))
        assert await self.service.add_partitions(ID, producer, partitions or (OUT_0, OUT_1), version=version) is OK
        return producer

    async def end(
        self, producer: Producer, *, committed: bool = True, version: TransactionVersion = V2
    ) -> ProducerReply:
        return await self.service.end_transaction(ID, producer, committed=committed, version=version)

    @property
    def transaction(self) -> TransactionMetadata:
        found = self.service.find(ID)
        assert isinstance(found, TransactionMetadata)
        return found

    async def reaches(self, state: TransactionState) -> None:
        await eventually(lambda: self.transaction.state is state)

    def state_log(self) -> MemoryLog:
        index = partition_for_key(ID, INTERNAL_PARTITION_COUNT)
        return self.topics.logs[TopicPartition(TRANSACTION_STATE_TOPIC, index)]

    def markers(self, partition: TopicPartition) -> list[tuple[Producer, bool]]:
        return [
            (Producer(written.producer_id, written.producer_epoch), written.marker.committed)
            for written in self.topics.logs[partition].markers
        ]


def producer_of(reply: ProducerReply) -> Producer:
    assert reply.error is OK
    return Producer(reply.producer_id, reply.producer_epoch)


async def eventually(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something is so; bounded by turns and then by time, never by luck."""
    for turn in range(1000):
        if condition():
            return
        await asyncio.sleep(0 if turn < 100 else 0.005)
    raise AssertionError("it did not come about")


@pytest.fixture(params=["on the disk", "in the page cache"])
def durability(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where what was appended is safe: transactions end in several steps, or in one."""
    with in_page_cache() if request.param == "in the page cache" else nullcontext():
        yield


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    broker = Broker()
    await broker.service.start()
    await broker.service.ensure_loaded()
    yield broker
    await broker.service.close()


@pytest.mark.usefixtures("durability")
@pytest.mark.parametrize("version", TransactionVersion)
@pytest.mark.parametrize("committed", [True, False])
async def test_a_transaction_ends_in_all_its_partitions(
    broker: Broker, committed: bool, version: TransactionVersion
) -> None:
    producer = await broker.begin(version=version)
    ended = await broker.end(producer, committed=committed, version=version)
    marked = Producer(producer.producer_id, producer.producer_epoch + (1 if version is V2 else 0))
    assert ended == ProducerReply(OK, *marked)
    await broker.reaches(COMPLETE_COMMIT if committed else COMPLETE_ABORT)
    for partition in (OUT_0, OUT_1):
        assert broker.markers(partition) == [(marked, committed)]
        log = broker.topics.logs[partition]
        assert log.high_watermark == log.log_end_offset
    assert await broker.end(producer, committed=committed, version=version) == ended


@pytest.mark.usefixtures("durability")
async def test_the_next_transaction_may_follow_at_once_and_never_meets_concurrent_transactions() -> None:
    broker = Broker(add_partitions_to_txn_retry_backoff_max_ms=60_000)  # as long as a busy machine takes
    await broker.service.start()
    producer = await broker.begin()
    for _ in range(20):
        producer = producer_of(await broker.end(producer))
        assert await broker.service.add_partitions(ID, producer, (OUT_0,), version=V2) is OK
    await broker.end(producer)
    await broker.reaches(COMPLETE_COMMIT)
    assert len(broker.markers(OUT_0)) == 21
    await broker.service.close()


async def test_a_transaction_that_need_not_wait_for_the_disk_ends_without_a_task() -> None:
    with in_page_cache():
        broker = Broker()
        await broker.service.start()
        producer = await broker.begin()
        tasks = asyncio.all_tasks()
        ended = broker.service.end_transaction(ID, producer, committed=True, version=V2)
        assert isinstance(ended, Finished)
        assert ended.result.error is OK
        assert broker.transaction.state is PREPARE_COMMIT, "its reply leaves before its markers"
        waiting = broker.service.add_partitions(ID, producer_of(ended.result), (OUT_0,), version=V2)
        assert not isinstance(waiting, Finished)
        await asyncio.sleep(0)
        assert broker.transaction.state is COMPLETE_COMMIT
        assert asyncio.all_tasks() == tasks
        assert await waiting is OK
        await broker.service.close()


async def test_a_reply_waits_until_the_prepared_record_is_durable_and_so_do_the_markers(broker: Broker) -> None:
    producer = await broker.begin()
    broker.state_log().flush_gate.clear()
    ending = asyncio.create_task(broker.end(producer))
    await eventually(lambda: broker.transaction.state is PREPARE_COMMIT)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not ending.done()
    assert not broker.markers(OUT_0)
    broker.state_log().flush_gate.set()
    assert (await ending).error is OK
    await broker.reaches(COMPLETE_COMMIT)
    assert broker.markers(OUT_0)


async def test_a_new_session_aborts_the_open_transaction_within_its_first_request(broker: Broker) -> None:
    old = await broker.begin()
    new = producer_of(await broker.service.init_producer_id(ID, timeout_ms=60_000))
    assert new == Producer(old.producer_id, old.producer_epoch + 2)
    assert broker.markers(OUT_0) == [(Producer(old.producer_id, old.producer_epoch + 1), False)]
    assert (await broker.end(old)).error is ErrorCode.PRODUCER_FENCED
    assert await broker.service.add_partitions(ID, old, (OUT_0,), version=V2) is ErrorCode.PRODUCER_FENCED
    assert (await broker.end(new)).error is ErrorCode.INVALID_TXN_STATE


async def test_a_producer_that_recovers_from_its_own_open_transaction_keeps_its_id(broker: Broker) -> None:
    old = await broker.begin()
    reply = await broker.service.init_producer_id(
        ID, timeout_ms=60_000, producer_id=old.producer_id, producer_epoch=old.producer_epoch
    )
    assert reply == ProducerReply(OK, old.producer_id, old.producer_epoch + 1)


async def test_requests_wait_for_markers_but_not_for_ever() -> None:
    broker = Broker(add_partitions_to_txn_retry_backoff_max_ms=20)
    channel = broker.hold_markers()
    await broker.service.start()
    await broker.service.ensure_loaded()
    producer = await broker.begin()
    after = producer_of(await broker.end(producer))
    assert await broker.service.add_partitions(ID, after, (OUT_0,), version=V2) is CONCURRENT
    assert (await broker.service.init_producer_id(ID, timeout_ms=1)).error is CONCURRENT
    assert (await broker.end(producer)).error is CONCURRENT
    waiting = asyncio.ensure_future(broker.service.add_partitions(ID, after, (OUT_0,), version=V2))
    await asyncio.sleep(0)
    channel.gate.set()
    assert await waiting is OK
    assert broker.transaction.state is ONGOING
    await broker.service.close()


async def test_a_transaction_times_out_by_itself(broker: Broker) -> None:
    producer = producer_of(await broker.service.init_producer_id(ID, timeout_ms=20))
    assert await broker.service.add_partitions(ID, producer, (OUT_0,), version=V2) is OK
    broker.clock.milliseconds += 21
    await broker.reaches(COMPLETE_ABORT)
    fenced = Producer(producer.producer_id, producer.producer_epoch + 1)
    assert broker.markers(OUT_0) == [(fenced, False)]
    assert (await broker.end(producer, committed=True)).error is ErrorCode.INVALID_TXN_STATE
    assert await broker.end(producer, committed=False) == ProducerReply(OK, *fenced)


async def test_transactions_that_time_out_together_let_others_be_served_in_between(broker: Broker) -> None:
    ids = [f"together-{number}" for number in range(6 * COMPLETIONS_PER_TURN)]
    for transactional_id in ids:
        producer = producer_of(await broker.service.init_producer_id(transactional_id, timeout_ms=20))
        assert await broker.service.add_partitions(transactional_id, producer, (OUT_0,), version=V2) is OK
    broker.clock.milliseconds += 21
    most_in_a_turn = before = 0
    async with asyncio.timeout(10):
        while before < len(ids):
            await asyncio.sleep(0)
            now = len(broker.markers(OUT_0))
            most_in_a_turn = max(most_in_a_turn, now - before)
            before = now
    # Timers of several partitions may fire in turns after one another. What is seen from look to look is then the end
    # of one turn's share and the beginning of the next one's.
    assert 0 < most_in_a_turn <= 2 * COMPLETIONS_PER_TURN
    await eventually(lambda: {found.state for found in broker.service.transactions()} == {COMPLETE_ABORT})


async def test_an_open_transaction_survives_a_restart_and_can_be_committed(broker: Broker) -> None:
    producer = await broker.begin(version=V1)
    await broker.restart()
    assert (await broker.end(producer, version=V1)).error is OK
    await broker.reaches(COMPLETE_COMMIT)
    assert broker.markers(OUT_0) == [(producer, True)]
    await broker.restart()
    assert (await broker.end(producer, version=V1)).error is OK


@pytest.mark.parametrize("written_before_crash", [0, 1])
async def test_a_prepared_transaction_is_finished_after_a_crash(written_before_crash: int) -> None:
    broker = Broker()
    channel = broker.hold_markers()
    await broker.service.start()
    await broker.service.ensure_loaded()
    producer = await broker.begin()
    after = producer_of(await broker.end(producer))
    await eventually(lambda: bool(channel.sent))
    for partition in (OUT_0, OUT_1)[:written_before_crash]:
        broker.topics.logs[partition].append_marker(
            producer_id=after.producer_id,
            producer_epoch=after.producer_epoch,
            committed=True,
            coordinator_epoch=0,
            transaction_version=2,
            now_ms=0,
        )
    await broker.restart()
    await broker.reaches(COMPLETE_COMMIT)
    assert set(broker.markers(OUT_0)) == set(broker.markers(OUT_1)) == {(after, True)}
    assert await broker.end(producer) == ProducerReply(OK, *after)
    assert len(broker.markers(OUT_0)) == 1 + written_before_crash
    await broker.service.close()


@pytest.mark.usefixtures("durability")
async def test_a_partition_out_of_reach_is_tried_until_it_is_back(broker: Broker) -> None:
    producer = await broker.begin()
    log = broker.topics.logs.pop(OUT_1)
    assert (await broker.end(producer)).error is OK
    await eventually(lambda: bool(broker.markers(OUT_0)))
    await asyncio.sleep(0.03)
    assert broker.transaction.state is PREPARE_COMMIT
    broker.topics.logs[OUT_1] = log
    await broker.reaches(COMPLETE_COMMIT)
    assert len(broker.markers(OUT_0)) == len(broker.markers(OUT_1)) == 1


@pytest.mark.usefixtures("durability")
async def test_a_deleted_topic_is_left_out(broker: Broker) -> None:
    broker.topics.add("gone", 1)
    producer = await broker.begin(OUT_0, TopicPartition("gone", 0))
    broker.topics.remove("gone")
    assert (await broker.end(producer)).error is OK
    await broker.reaches(COMPLETE_COMMIT)
    assert broker.markers(OUT_0)


@pytest.mark.usefixtures("durability")
async def test_an_error_that_should_not_be_is_retried_as_well() -> None:
    broker = Broker()
    channel = broker.hold_markers()
    channel.gate.set()
    await broker.service.start()
    await broker.service.ensure_loaded()
    producer = await broker.begin()
    channel.answers = [{OUT_0: ErrorCode.CORRUPT_MESSAGE, OUT_1: OK}, {}]
    assert (await broker.end(producer)).error is OK
    await broker.reaches(COMPLETE_COMMIT)
    assert [set(marker.partitions) for marker in channel.sent] == [{OUT_0, OUT_1}, {OUT_0}, {OUT_0}]
    await broker.service.close()


@pytest.mark.usefixtures("durability")
@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
async def test_a_deposed_coordinator_ends_nothing(error: ErrorCode) -> None:
    broker = Broker()
    channel = broker.hold_markers()
    channel.gate.set()
    channel.answers = [{OUT_0: error, OUT_1: OK}]
    await broker.service.start()
    await broker.service.ensure_loaded()
    producer = await broker.begin()
    after = producer_of(await broker.end(producer))
    await eventually(lambda: not channel.answers)
    assert await broker.service.add_partitions(ID, after, (OUT_0,), version=V2) is CONCURRENT
    assert broker.transaction.state is PREPARE_COMMIT
    assert len(channel.sent) == 1
    await broker.restart()
    await broker.reaches(COMPLETE_COMMIT)
    await broker.service.close()


async def test_a_failed_disk_takes_the_coordinator_partition_offline(broker: Broker) -> None:
    producer = await broker.begin()
    broker.state_log().disk_failed = True
    assert (await broker.end(producer)).error is ErrorCode.NOT_COORDINATOR
    assert await broker.service.add_partitions(ID, producer, (OUT_0,), version=V2) is ErrorCode.NOT_COORDINATOR
    assert broker.service.find(ID) is ErrorCode.NOT_COORDINATOR
    assert not broker.markers(OUT_0)
    broker.state_log().disk_failed = False
    await broker.restart()
    assert (await broker.end(producer)).error is OK


async def test_a_disk_that_fails_after_the_markers_leaves_the_transaction_to_the_next_load() -> None:
    with in_page_cache():
        broker = Broker()
        await broker.service.start()
        producer = await broker.begin()
        after = producer_of(await broker.end(producer))
        waiting = asyncio.ensure_future(broker.service.add_partitions(ID, after, (OUT_0,), version=V2))
        broker.state_log().disk_failed = True
        assert await waiting is ErrorCode.NOT_COORDINATOR
        assert broker.markers(OUT_0)
        broker.state_log().disk_failed = False
        await broker.restart()
        await broker.reaches(COMPLETE_COMMIT)
        assert len(broker.markers(OUT_0)) == 2
        await broker.service.close()


async def test_a_refused_append_changes_nothing(broker: Broker) -> None:
    producer = await broker.begin()
    broker.state_log().refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await broker.end(producer)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.transaction.state is ONGOING
    broker.state_log().refusal = OK
    assert (await broker.end(producer)).error is OK


MANY = tuple(TopicPartition("many", partition) for partition in range(10 * MARKERS_PER_SLICE))


async def many_prepared(broker: Broker) -> Producer:
    """A transaction of many partitions that was just committed; no marker has been written yet."""
    broker.topics.add("many", len(MANY))
    await broker.service.start()
    await broker.service.ensure_loaded()
    after = producer_of(await broker.end(await broker.begin(*MANY)))
    assert broker.transaction.state is PREPARE_COMMIT
    return after


def marked_count(broker: Broker) -> int:
    return sum(len(broker.topics.logs[partition].markers) for partition in MANY if partition in broker.topics.logs)


@pytest.mark.usefixtures("durability")
async def test_a_transaction_of_many_partitions_lets_others_be_served_while_it_ends() -> None:
    broker = Broker()
    after = await many_prepared(broker)
    most_in_a_turn = before = 0
    async with asyncio.timeout(10):
        while before < len(MANY):
            await asyncio.sleep(0)
            now = marked_count(broker)
            most_in_a_turn, before = max(most_in_a_turn, now - before), now
    # A turn has room for three slices. What is seen from look to look may be parts of two turns.
    assert most_in_a_turn <= 2 * 3 * MARKERS_PER_SLICE < len(MANY)
    await broker.reaches(COMPLETE_COMMIT)
    assert all(broker.markers(partition) == [(after, True)] for partition in MANY)
    await broker.service.close()


async def test_transactions_of_some_partitions_count_as_several_in_a_turn() -> None:
    with in_page_cache():
        broker = Broker()
        partitions = MANY[:MARKERS_PER_SLICE]
        broker.topics.add("many", len(MANY))
        await broker.service.start()
        ids = [f"together-{number}" for number in range(COMPLETIONS_PER_TURN)]
        for transactional_id in ids:
            producer = producer_of(await broker.service.init_producer_id(transactional_id, timeout_ms=60_000))
            assert await broker.service.add_partitions(transactional_id, producer, partitions, version=V2) is OK
            ending = broker.service.end_transaction(transactional_id, producer, committed=True, version=V2)
            assert (await ending).error is OK
        await asyncio.sleep(0)
        assert 0 < marked_count(broker) <= 3 * len(partitions)
        await eventually(lambda: {found.state for found in broker.service.transactions()} == {COMPLETE_COMMIT})
        await broker.service.close()


async def test_a_transaction_of_many_partitions_is_complete_when_all_its_markers_are_durable() -> None:
    broker = Broker()
    await many_prepared(broker)
    gate = broker.topics.logs[MANY[5]].flush_gate
    gate.clear()
    await eventually(lambda: marked_count(broker) == len(MANY))
    for _ in range(50):
        await asyncio.sleep(0)
    assert broker.transaction.state is PREPARE_COMMIT
    gate.set()
    await broker.reaches(COMPLETE_COMMIT)
    await broker.service.close()


@pytest.mark.usefixtures("durability")
async def test_a_topic_may_be_deleted_between_the_slices_of_its_markers() -> None:
    broker = Broker()
    await many_prepared(broker)
    await eventually(lambda: marked_count(broker) > 0)
    assert marked_count(broker) < len(MANY)
    broker.topics.remove("many")
    await broker.reaches(COMPLETE_COMMIT)
    await broker.service.close()


@pytest.mark.usefixtures("durability")
async def test_no_slice_of_markers_leaves_after_the_partition_was_taken_offline() -> None:
    broker = Broker()
    await many_prepared(broker)
    await eventually(lambda: marked_count(broker) > 0)
    sent_count = marked_count(broker)
    assert sent_count < len(MANY)
    runtime = broker.service._runtime
    runtime._take_offline(runtime.partition(partition_for_key(ID, INTERNAL_PARTITION_COUNT)), StorageError("gone"))
    for _ in range(50):
        await asyncio.sleep(0)
    assert marked_count(broker) == sent_count
    assert not broker.service._completions
    await broker.service.close()


@pytest.mark.usefixtures("durability")
async def test_no_slice_of_markers_follows_one_that_a_newer_coordinator_has_fenced() -> None:
    broker = Broker()
    channel = broker.hold_markers()
    channel.gate.set()
    channel.answers = [dict.fromkeys(MANY[:MARKERS_PER_SLICE], ErrorCode.TRANSACTION_COORDINATOR_FENCED)]
    await many_prepared(broker)
    await eventually(lambda: not broker.service._completions)
    assert len(channel.sent) < 4
    assert broker.transaction.state is PREPARE_COMMIT
    await broker.service.close()


@pytest.mark.usefixtures("durability")
async def test_a_completion_that_its_log_refuses_is_appended_later_without_a_reload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(completion, "FIRST_RETRY_PAUSE_S", 0.001)
    broker = Broker(add_partitions_to_txn_retry_backoff_max_ms=10_000)  # as long as a busy machine takes
    channel = broker.hold_markers()
    await broker.service.start()
    producer = await broker.begin()
    after = producer_of(await broker.end(producer))
    await eventually(lambda: bool(channel.sent))
    waiting = asyncio.ensure_future(_added(broker, after, OUT_0))
    with capture_logs() as lines:
        refused = broker.state_log().batches.copy()
        broker.state_log().refusal = ErrorCode.MESSAGE_TOO_LARGE
        channel.gate.set()
        await eventually(lambda: any(line["event"] == "transaction_completion_refused" for line in lines))
        await asyncio.sleep(0.02)
        assert broker.transaction.state is PREPARE_COMMIT
        assert broker.state_log().batches == refused
        broker.state_log().refusal = OK
        assert await waiting is OK
    events = [line["event"] for line in lines]
    assert events.count("transaction_completion_refused") == events.count("transaction_completion_appended") == 1
    assert len(channel.sent) == 1, "the markers were written already"
    await broker.service.close()


@pytest.mark.usefixtures("durability")
async def test_a_completion_that_is_refused_ends_with_the_ownership_of_its_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(completion, "FIRST_RETRY_PAUSE_S", 0.001)
    broker = Broker()
    channel = broker.hold_markers()
    await broker.service.start()
    await broker.end(await broker.begin())
    await eventually(lambda: bool(channel.sent))
    broker.state_log().refusal = ErrorCode.MESSAGE_TOO_LARGE
    with capture_logs() as lines:
        channel.gate.set()
        await eventually(lambda: any(line["event"] == "transaction_completion_refused" for line in lines))
    broker.service._state_topic.reload(broker.state_log())  # type: ignore[arg-type]
    broker.state_log().refusal = OK
    await broker.service.ensure_loaded()
    await broker.reaches(COMPLETE_COMMIT)
    assert len(channel.sent) == 2, "the next load sends the markers again"
    await broker.service.close()


async def test_partitions_that_refuse_their_markers_are_logged_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "FIRST_RETRY_PAUSE_S", 0.0001)
    broker = Broker()
    channel = broker.hold_markers()
    channel.gate.set()
    channel.answers = [{OUT_0: ErrorCode.KAFKA_STORAGE_ERROR, OUT_1: ErrorCode.KAFKA_STORAGE_ERROR}] * 12
    await broker.service.start()
    producer = await broker.begin()
    with capture_logs() as lines:
        await broker.end(producer)
        await broker.reaches(COMPLETE_COMMIT)
    refusals = [line for line in lines if line["event"] == "marker_refused"]
    assert [(line["attempt"], line["partition"], line["partitions"]) for line in refusals] == [(1, 0, 2), (10, 0, 2)]
    await broker.service.close()


async def test_a_partition_whose_log_is_opened_after_a_start_is_no_warning_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(completion, "FIRST_RETRY_PAUSE_S", 0.0001)
    broker = Broker()
    channel = broker.hold_markers()
    channel.gate.set()
    channel.answers = [{OUT_0: ErrorCode.NOT_LEADER_OR_FOLLOWER, OUT_1: ErrorCode.NONE}] * 12
    await broker.service.start()
    producer = await broker.begin()
    with capture_logs() as lines:
        await broker.end(producer)
        await broker.reaches(COMPLETE_COMMIT)
    refusals = [line for line in lines if line["event"] == "marker_refused"]
    assert [(line["attempt"], line["log_level"]) for line in refusals] == [(1, "info"), (10, "warning")]
    await broker.service.close()


async def test_offsets_join_by_the_partition_of_their_group(broker: Broker) -> None:
    producer = producer_of(await broker.service.init_producer_id(ID, timeout_ms=60_000))
    assert await broker.service.add_offsets(ID, producer, "group-1") is OK
    offsets = TopicPartition(CONSUMER_OFFSETS_TOPIC, partition_for_key("group-1", INTERNAL_PARTITION_COUNT))
    assert broker.transaction.partitions == {offsets}
    assert (await broker.end(producer, version=V1)).error is OK
    await broker.reaches(COMPLETE_COMMIT)
    assert broker.topics.logs[offsets].markers[0].marker == EndTransactionMarker(True, 0)


async def test_a_producer_that_is_refused_does_not_create_the_topic_of_offsets(broker: Broker) -> None:
    add = broker.service.add_offsets
    assert await add(ID, Producer(7, 0), "group-1") is ErrorCode.NOT_COORDINATOR
    producer = producer_of(await broker.service.init_producer_id(ID, timeout_ms=60_000))
    records = broker.state_log().batches.copy()
    for refused, error in (
        (add("", producer, "group-1"), ErrorCode.INVALID_REQUEST),
        (add("stranger", producer, "group-1"), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (add(ID, Producer(producer.producer_id + 1, 0), "group-1"), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (add(ID, Producer(producer.producer_id, 9), "group-1"), ErrorCode.PRODUCER_FENCED),
    ):
        assert await refused is error
    assert broker.topics.metadata.get(CONSUMER_OFFSETS_TOPIC) is None
    assert broker.state_log().batches == records, "nothing is written to ask"
    assert await add(ID, producer, "group-1") is OK
    assert broker.topics.metadata.get(CONSUMER_OFFSETS_TOPIC) is not None


async def test_offsets_that_wait_for_markers_wait_before_their_topic_is_created() -> None:
    broker = Broker(add_partitions_to_txn_retry_backoff_max_ms=20)
    channel = broker.hold_markers()
    await broker.service.start()
    producer = await broker.begin(version=V1)
    assert (await broker.end(producer, version=V1)).error is OK
    assert await broker.service.add_offsets(ID, producer, "group-1") is CONCURRENT
    assert broker.topics.metadata.get(CONSUMER_OFFSETS_TOPIC) is None
    channel.gate.set()
    await broker.reaches(COMPLETE_COMMIT)
    assert await broker.service.add_offsets(ID, producer, "group-1") is OK
    await broker.service.close()


async def test_verification_adds_or_only_asks(broker: Broker) -> None:
    verifier = TransactionVerifier(broker.service)

    def verify(producer: Producer, *, add: bool) -> Awaitable[dict[TopicPartition, ErrorCode]]:
        return verifier.verify(
            transactional_id=ID,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            topic_partitions=(OUT_0,),
            add=add,
        )

    stranger = Producer(999, 0)
    assert await verify(stranger, add=False) == {OUT_0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    producer = producer_of(await broker.service.init_producer_id(ID, timeout_ms=60_000))
    assert await verify(producer, add=False) == {OUT_0: ErrorCode.TRANSACTION_ABORTABLE}
    assert await verify(producer, add=True) == {OUT_0: OK}
    assert await verify(producer, add=False) == {OUT_0: OK}
    assert await verify(stranger, add=True) == {OUT_0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}


async def test_what_would_be_verified_at_once_can_be_confirmed(broker: Broker) -> None:
    verifier = TransactionVerifier(broker.service)
    assert not verifier.is_confirmed(ID, 1, 0, OUT_0), "there is no coordinator yet"
    producer = producer_of(await broker.service.init_producer_id(ID, timeout_ms=60_000))
    assert not verifier.is_confirmed(ID, *producer, OUT_0)
    assert await broker.service.add_partitions(ID, producer, (OUT_0,), version=V1) is OK
    assert verifier.is_confirmed(ID, *producer, OUT_0)
    assert not verifier.is_confirmed(ID, producer.producer_id, producer.producer_epoch + 1, OUT_0)
    assert not verifier.is_confirmed(ID, 999, producer.producer_epoch, OUT_0)
    assert not verifier.is_confirmed(ID, *producer, OUT_1)
    assert not verifier.is_confirmed("", *producer, OUT_0)
    assert (await broker.end(producer, version=V1)).error is OK
    assert not verifier.is_confirmed(ID, *producer, OUT_0)


async def _added(broker: Broker, producer: Producer, partition: TopicPartition) -> ErrorCode:
    return await broker.service.add_partitions(ID, producer, (partition,), version=V2)


async def test_nothing_is_confirmed_from_what_is_not_durable(broker: Broker) -> None:
    verifier = TransactionVerifier(broker.service)
    producer = await broker.begin()
    assert verifier.is_confirmed(ID, *producer, OUT_0)
    gate = broker.state_log().flush_gate
    gate.clear()
    adding = asyncio.ensure_future(_added(broker, producer, OUT_2))
    await asyncio.sleep(0)
    assert not verifier.is_confirmed(ID, *producer, OUT_0)
    assert not verifier.is_confirmed(ID, *producer, OUT_2)
    gate.set()
    assert await adding is OK
    assert verifier.is_confirmed(ID, *producer, OUT_2)
    broker.service._state_topic.topic_deleted()
    assert not verifier.is_confirmed(ID, *producer, OUT_0)


async def test_init_producer_id_refuses_what_makes_no_sense(broker: Broker) -> None:
    init = broker.service.init_producer_id
    assert (await init("", timeout_ms=1)).error is ErrorCode.INVALID_REQUEST
    assert (await init(ID, timeout_ms=1, producer_id=7)).error is ErrorCode.INVALID_REQUEST
    assert (await init(ID, timeout_ms=1, producer_epoch=7)).error is ErrorCode.INVALID_REQUEST
    assert (await init(ID, timeout_ms=0)).error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert (await init(ID, timeout_ms=900_001)).error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    refused = await init(ID, timeout_ms=1, two_phase_commit=True)
    assert refused.error is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert not broker.service.is_available


async def test_without_a_transactional_id_every_producer_gets_an_id_and_nothing_is_stored(broker: Broker) -> None:
    replies = [await broker.service.init_producer_id(None, timeout_ms=2**31 - 1) for _ in range(3)]
    assert [reply.producer for reply in replies] == [(0, 0), (1, 0), (2, 0)]
    assert not broker.service.is_available


async def test_a_two_phase_commit_transaction_gets_no_time_out() -> None:
    broker = Broker(transaction_two_phase_commit_enable=True)
    await broker.service.start()
    await broker.service.ensure_loaded()
    assert (await broker.service.init_producer_id(ID, timeout_ms=0, two_phase_commit=True)).error is OK
    assert broker.transaction.timeout_ms == 2**31 - 1
    await broker.service.close()


async def test_before_the_first_producer_there_is_no_coordinator(broker: Broker) -> None:
    assert (await broker.end(Producer(1, 0))).error is ErrorCode.NOT_COORDINATOR
    assert await broker.service.verify_partitions(ID, Producer(1, 0), (OUT_0,)) == {OUT_0: ErrorCode.NOT_COORDINATOR}
    await broker.service.ensure_available()
    assert (await broker.end(Producer(1, 0))).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize(
    ("error", "epochs"),
    [
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, [0, 1, 3, 7]),
        (ErrorCode.INVALID_PRODUCER_EPOCH, [0, 0, 0, 0]),
    ],
)
async def test_a_lone_coordinator_that_an_administrator_has_fenced_reloads_in_a_higher_epoch(
    error: ErrorCode, epochs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_reload, "FIRST_PAUSE_S", 0.001)
    broker = Broker()
    channel = broker.hold_markers()
    channel.gate.set()
    channel.answers = [{OUT_0: error}] * 3
    await broker.service.start()
    producer = await broker.begin(OUT_0)
    after = producer_of(await broker.end(producer))
    await eventually(lambda: not channel.answers)
    await broker.service.ensure_loaded()
    await eventually(lambda: len(channel.sent) == 4)
    await broker.reaches(COMPLETE_COMMIT)
    assert [marker.coordinator_epoch for marker in channel.sent] == epochs
    assert await broker.service.add_partitions(ID, after, (OUT_0,), version=V2) is OK
    await broker.service.close()


async def test_a_state_that_is_never_stored_takes_the_partition_offline(broker: Broker) -> None:
    await broker.begin()
    value = TransactionLogValue(producer_id=7, transaction_status=6)
    record = CoordinatorRecord(encode_transaction_log_key("dead"), encode_transaction_log_value(value))
    broker.state_log().append_records([record], now_ms=0)
    await broker.restart()
    await broker.service.ensure_loaded()
    assert broker.service.find(ID) is ErrorCode.NOT_COORDINATOR
