"""Partitions of a session whose client knows all there is are not read again, and nobody can tell by the answers.

Two brokers go through the same; one reads every partition at every fetch.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.partition_log import LogRead, PartitionLog
from fencepost.broker.requests.fetch_sessions import FetchedPartition, FetchSessionCache
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from tests.support.handler_context import NOW_MS, HandlerBroker, batch, finished, open_broker
from tests.support.markers import end_in_log

VERSION = 12
PARTITIONS_COUNT = 4
LONG_MS = 60_000
STEPS_COUNT = 200


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path) as opened:
        await opened.create_topic("orders", PARTITIONS_COUNT)
        yield opened


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[TopicPartition]:
    """The partitions that are read, from now on."""
    found: list[TopicPartition] = []
    read = PartitionLog.read

    def noted(log: PartitionLog, *arguments: Any, **options: Any) -> LogRead:
        found.append(log.topic_partition)
        return read(log, *arguments, **options)

    monkeypatch.setattr(PartitionLog, "read", noted)
    return found


@contextmanager
def reading_all() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FetchedPartition, "is_up_to_date", lambda *_: False)
        yield


async def append(broker: HandlerBroker, partition: int, *values: bytes, **build: Any) -> None:
    log = broker.log("orders", partition)
    assert log.append(memoryview(batch(*values, **build)), now_ms=NOW_MS).error is ErrorCode.NONE
    await log.flushed()


def fetch(offsets: dict[int, int], session: tuple[int, int] = (0, 0), **fields: Any) -> FetchRequest:
    leader_epoch = fields.pop("leader_epoch", -1)
    partitions = [
        FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=1_000, current_leader_epoch=leader_epoch
        )
        for partition, offset in offsets.items()
    ]
    return FetchRequest(
        **{
            "min_bytes": 1,
            "session_id": session[0],
            "session_epoch": session[1],
            "topics": [FetchTopic(topic="orders", partitions=partitions)] if partitions else [],
            **fields,
        }
    )


async def test_only_what_moved_is_read(broker: HandlerBroker, reads: list[TopicPartition]) -> None:
    opened = await broker.call(fetch(dict.fromkeys(range(PARTITIONS_COUNT), 0)), VERSION)
    reads.clear()
    session = opened.session_id
    assert (await broker.call(fetch({}, (session, 1)), VERSION)).responses == []
    assert reads == []
    await append(broker, 2, b"a")
    response = await broker.call(fetch({}, (session, 2)), VERSION)
    assert [found.partition_index for found in response.responses[0].partitions] == [2]
    assert reads == [TopicPartition("orders", 2)]
    assert (await broker.call(fetch({2: 1}, (session, 3)), VERSION)).responses == []
    reads.clear()
    await broker.call(fetch({}, (session, 4)), VERSION)
    assert reads == []


async def test_records_that_the_client_did_not_move_on_from_are_sent_again(broker: HandlerBroker) -> None:
    await append(broker, 0, b"a")
    opened = await broker.call(fetch({0: 0}), VERSION)
    for epoch in (1, 2):
        again = await broker.call(fetch({}, (opened.session_id, epoch)), VERSION)
        assert again.responses[0].partitions[0].records


async def test_a_fetch_waits_for_partitions_that_it_did_not_read(broker: HandlerBroker) -> None:
    opened = await broker.call(fetch(dict.fromkeys(range(PARTITIONS_COUNT), 0)), VERSION)
    outcome = broker.start(fetch({}, (opened.session_id, 1), max_wait_ms=LONG_MS), VERSION)
    waiting = asyncio.ensure_future(finished(outcome))
    await asyncio.sleep(0)
    await append(broker, 3, b"a")
    response = await waiting
    assert [found.partition_index for found in response.responses[0].partitions] == [3]


class Consumer:
    """Fetches by chance, in one session after another. offsets: of what it fetches."""

    def __init__(self, choose: random.Random) -> None:
        self._choose = choose
        self.session = (0, 0)
        self.offsets: dict[int, int] = {}

    def request(self, broker: HandlerBroker) -> FetchRequest:
        choose = self._choose
        if not choose.randrange(25):
            self.session = (0, 0)
        if self.session == (0, 0):
            self.offsets = dict.fromkeys(choose.sample(range(PARTITIONS_COUNT + 1), 3), 0)
        changed = dict(self.offsets) if self.session == (0, 0) else {}
        forgotten = []
        for partition in range(PARTITIONS_COUNT + 1):
            match choose.randrange(12):
                case 0 | 1 | 2 if partition < PARTITIONS_COUNT:
                    changed[partition] = broker.log("orders", partition).log_end_offset
                case 3:
                    changed[partition] = choose.randrange(3)
                case 4 if partition in self.offsets and self.session != (0, 0):
                    forgotten.append(partition)
        self.offsets |= changed
        for partition in forgotten:
            self.offsets.pop(partition, None)
        return fetch(
            changed,
            self.session,
            isolation_level=choose.choice((0, 1, 1, 1)),
            max_wait_ms=choose.choice((0, LONG_MS)),
            max_bytes=choose.choice((10_000_000, 500)),
            leader_epoch=choose.choice((-1,) * 6 + (0, 1)),
            forgotten_topics_data=[ForgottenTopic(topic="orders", partitions=forgotten)] if forgotten else [],
        )

    def answered(self, response: FetchResponse) -> None:
        if response.session_id == 0:
            self.session = (0, 0)
        else:
            self.session = (response.session_id, 1 if self.session == (0, 0) else self.session[1] + 1)


async def transaction(broker: HandlerBroker, partition: int, producer_id: int, *, committed: bool) -> None:
    log = broker.log("orders", partition)
    guard: Any = log.begin_verification(producer_id, 0, 0, transaction_version_2=False)
    sent = batch(b"t", producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.append(memoryview(sent), now_ms=NOW_MS, guard=guard)
    end_in_log(log, producer_id, committed=committed)
    await log.flushed()


@pytest.mark.parametrize("flush_messages", [1, 2**31 - 1], ids=["durable", "page cache"])
@pytest.mark.parametrize("seed", range(6))
async def test_quiet_partitions_are_answered_as_if_they_were_read(
    tmp_path: Path, seed: int, flush_messages: int, reads: list[TopicPartition]
) -> None:
    choose = random.Random(seed)
    consumer = Consumer(choose)
    async with AsyncExitStack() as stack:
        brokers = []
        for name in ("a", "b"):
            settings = {"log_flush_interval_messages": flush_messages}
            broker = await stack.enter_async_context(open_broker(tmp_path / name, **settings))
            broker.services.fetch_sessions = FetchSessionCache(10, random.Random(seed))
            await broker.create_topic("orders", PARTITIONS_COUNT)
            brokers.append(broker)
        reads_by_broker = [0, 0]
        for number in range(STEPS_COUNT):
            step, partition, committed = (
                choose.randrange(20),
                choose.randrange(PARTITIONS_COUNT),
                choose.random() < 0.5,
            )
            for broker in brokers:
                log = broker.log("orders", partition)
                if step == 0:
                    await broker.topics.delete("orders")
                    await broker.create_topic("orders", PARTITIONS_COUNT)
                elif step == 1:
                    await broker.topics.delete_records({TopicPartition("orders", partition): log.high_watermark})
                elif step == 2:
                    log.lead(log.leader_epoch + 1)
                elif step == 3:
                    await transaction(broker, partition, 10 + number, committed=committed)
                elif step < 7:
                    await append(broker, partition, b"x" * 200)
            request = consumer.request(brokers[0])
            outcomes = []
            for index, broker in enumerate(brokers):
                reads.clear()
                if index:
                    with reading_all():
                        outcomes.append(broker.start(request, VERSION))
                else:
                    outcomes.append(broker.start(request, VERSION))
                reads_by_broker[index] += len(reads)
            waiting = [asyncio.ensure_future(finished(outcome)) for outcome in outcomes]
            for _ in range(3):
                await asyncio.sleep(0)
            assert waiting[0].done() == waiting[1].done()
            if not waiting[0].done():
                for broker in brokers:
                    for moved in consumer.offsets:
                        if moved < PARTITIONS_COUNT:
                            await append(broker, moved, b"y" * 100)
            responses = [await one for one in waiting]
            assert responses[0] == responses[1]
            consumer.answered(responses[0])
        assert reads_by_broker[0] < reads_by_broker[1]
