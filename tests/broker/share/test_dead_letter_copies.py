"""Dead letters of a whole node: copied once whatever happens between the steps, and never archived uncopied."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.log_types import Isolation
from fencepost.broker.share import dead_letter_copies
from fencepost.broker.share.dead_letter_logs import DeadLetterLogs, NoDeadLetterTopic
from fencepost.broker.share.shard import SharePartitionKey
from fencepost.broker.share.share_partitions import ServedSharePartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record import Record
from fencepost.protocol.record_batch import build_batch, iterate_batches, read_records
from tests.broker.supervision.planting import until
from tests.support.share_broker import NOW_MS, ShareBroker, lent, running_share_broker

REJECT, RELEASE = 3, 2
DLQ = "dlq.orders"
CONFIGS = {"errors_deadletterqueue_topic_name": DLQ}
COPIED = {**CONFIGS, "errors_deadletterqueue_copy_record_enable": "true"}
ENABLED: dict[str, str | None] = {"errors.deadletterqueue.group.enable": "true"}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_copies, "LONGEST_PAUSE_S", 0.05)


async def create(
    broker: ShareBroker, name: str = DLQ, partition_count: int = 1, configs: dict[str, str] | None = None
) -> None:
    error, message = await broker.node.services.topics.create(name, partition_count, {**ENABLED, **(configs or {})})
    assert error is ErrorCode.NONE, message


async def prepared(broker: ShareBroker, configs: Mapping[str, str], record_count: int = 3) -> int:
    """The epoch of a member that may read `orders`, from the first record on."""
    await broker.create("orders")
    await broker.configure("g", share_auto_offset_reset="earliest", **configs)
    epoch = await broker.join("m", ["orders"])
    if record_count:
        await broker.produce("orders", record_count)
    return epoch


def letters(broker: ShareBroker, name: str = DLQ, partition: int = 0) -> list[Record]:
    log = broker.node.services.topics.log(TopicPartition(name, partition))
    if log is None:
        return []
    found: list[Record] = []
    while not found or found[-1].offset < log.log_end_offset - 1:  # a read ends with its segment
        read = log.read(found[-1].offset + 1 if found else 0, 1 << 24, isolation=Isolation.READ_UNCOMMITTED)
        if not read.records:
            break
        found += [record for batch in iterate_batches(read.records) for record in read_records(batch)]
    return found


def originals(broker: ShareBroker, name: str = DLQ) -> list[int]:
    """The offsets from which the dead letters come."""
    return [int(dict(record.headers)["__dlq.errors.offset"] or b"-1") for record in letters(broker, name)]


def served(broker: ShareBroker) -> ServedSharePartition:
    key = SharePartitionKey("g", broker.topic_id("orders"), 0)
    found = broker.node.services.shares.share_partitions.loaded(key)
    assert found is not None
    return found


async def copied(broker: ShareBroker) -> None:
    await until(lambda: not served(broker).has_undeliverable)


async def reject(broker: ShareBroker, first_offset: int, last_offset: int, epoch: int = 1) -> None:
    (topic,) = (await broker.acknowledge("m", epoch, (first_offset, last_offset, [REJECT]))).responses
    assert topic.partitions[0].error_code == ErrorCode.NONE


async def test_a_rejected_record_is_copied_with_kafkas_headers_and_not_delivered_again(tmp_path: Path) -> None:
    async with running_share_broker(tmp_path) as broker:
        await create(broker)
        await prepared(broker, CONFIGS)
        assert lent(await broker.fetch("m", 0)) == [(0, 2, 1)]
        await reject(broker, 1, 1)
        await copied(broker)
        (letter,) = letters(broker)
        assert (letter.key, letter.value) == (None, None)
        assert letter.headers == (
            ("__dlq.errors.topic", b"orders"),
            ("__dlq.errors.partition", b"0"),
            ("__dlq.errors.offset", b"1"),
            ("__dlq.errors.group", b"g"),
            ("__dlq.errors.delivery.count", b"1"),
            ("__dlq.errors.message", b"Offset rejected by client."),
        )
        await broker.acknowledge("m", 2, (0, 0, [RELEASE]), (2, 2, [RELEASE]))
        assert [one[:2] for one in lent(await broker.fetch("m", 3))] == [(0, 0), (2, 2)]
        assert broker.node.services.shares.dead_letters.counts["g"].copied == 1


async def test_a_record_that_was_delivered_as_often_as_allowed_is_copied_with_its_key_and_value(tmp_path: Path) -> None:
    async with running_share_broker(tmp_path) as broker:
        await create(broker)
        await prepared(broker, {**COPIED, "share_delivery_count_limit": "2"}, 1)
        assert lent(await broker.fetch("m", 0)) == [(0, 0, 1)]
        assert lent(await broker.fetch("m", 1, (0, 0, [RELEASE]))) == [(0, 0, 2)]
        broker.clock.time_ms += 60_000
        served(broker)._expire_locks()
        await copied(broker)
        (letter,) = letters(broker)
        assert letter.value == b"value"
        headers = dict(letter.headers)
        assert headers["__dlq.errors.delivery.count"] == b"2"
        assert headers["__dlq.errors.message"] == b"Offset delivery count exceeded the threshold."


async def test_a_group_without_a_dead_letter_topic_archives_at_once(tmp_path: Path) -> None:
    async with running_share_broker(tmp_path) as broker:
        await prepared(broker, {})
        await broker.fetch("m", 0)
        await reject(broker, 0, 2)
        assert not served(broker).has_undeliverable
        assert served(broker).dead_letters is None


async def test_the_partition_of_a_dead_letter_follows_from_that_of_its_record(tmp_path: Path) -> None:
    async with running_share_broker(tmp_path) as broker:
        await create(broker, partition_count=3)
        logs = broker.node.services.shares.dead_letters._logs
        assert [(await logs.target(DLQ, number)).partition for number in (0, 2, 3, 7)] == [0, 2, 0, 1]


# Crashes


def crash(
    monkeypatch: pytest.MonkeyPatch, of: type, name: str, *, passed_count: int, is_after: bool
) -> Callable[[], bool]:
    """Let the copying end at a call, as if its process were killed there. Returns whether it has."""
    original = getattr(of, name)
    calls = 0

    def passes() -> bool:
        nonlocal calls
        calls += 1
        return calls == passed_count + 1

    async def crashing_later(*arguments: Any) -> Any:
        is_here = passes()
        if is_here and not is_after:
            raise asyncio.CancelledError
        outcome = await original(*arguments)
        if is_here:
            raise asyncio.CancelledError
        return outcome

    def crashing(*arguments: Any) -> Any:
        is_here = passes()
        if is_here and not is_after:
            raise asyncio.CancelledError
        outcome = original(*arguments)
        if is_here:
            raise asyncio.CancelledError
        return outcome

    monkeypatch.setattr(of, name, crashing_later if inspect.iscoroutinefunction(original) else crashing)
    return lambda: calls > passed_count


async def ended(broker: ShareBroker, has_crashed: Callable[[], bool]) -> None:
    """Wait until the copying has ended at its crash."""
    await until(lambda: has_crashed() and not broker.node.services.shares.dead_letters._tasks)


STEPS = {
    "the decision is stored": (ServedSharePartition, "store_copy", 0),
    "the decision is durable": (ServedSharePartition, "copy_durable", 0),
    "the batch is appended": (DeadLetterLogs, "append", 0),
    "the completion is stored": (ServedSharePartition, "store_copy", 1),
}


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS)
async def test_a_crash_at_any_step_neither_loses_a_dead_letter_nor_copies_it_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, is_after: bool
) -> None:
    of, name, passed_count = STEPS[step]
    async with running_share_broker(tmp_path) as broker:
        await create(broker)
        await prepared(broker, COPIED)
        assert lent(await broker.fetch("m", 0)) == [(0, 2, 1)]
        with monkeypatch.context() as patched:
            has_crashed = crash(patched, of, name, passed_count=passed_count, is_after=is_after)
            await reject(broker, 0, 2)
            await ended(broker, has_crashed)
    async with running_share_broker(tmp_path) as broker:
        await broker.heartbeat("m", 0, ["orders"])
        assert lent(await broker.fetch("m", 0)) == []
        await copied(broker)
        assert originals(broker) == [0, 1, 2]
        # The sequences go on behind the copy.
        await broker.produce("orders", 1)
        assert lent(await broker.fetch("m", 1)) == [(3, 3, 1)]
        await reject(broker, 3, 3, epoch=2)
        await copied(broker)
        assert originals(broker) == [0, 1, 2, 3]


async def test_a_copy_that_is_continued_after_years_is_not_made_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its batch and its completion nobody runs the broker."""
    async with running_share_broker(tmp_path) as broker:
        await create(broker, configs={"retention.ms": "-1"})
        await prepared(broker, COPIED)
        await broker.fetch("m", 0)
        with monkeypatch.context() as patched:
            has_crashed = crash(patched, DeadLetterLogs, "append", passed_count=0, is_after=True)
            await reject(broker, 0, 2)
            await ended(broker, has_crashed)
    three_years_ms = 3 * 365 * 86_400_000
    async with running_share_broker(tmp_path, start_ms=NOW_MS + three_years_ms) as broker:
        broker.clock.time_ms += three_years_ms  # a log that is read anew counts as active
        log = broker.node.services.topics.log(TopicPartition(DLQ, 0))
        assert log is not None
        log.producer_work.expire(broker.clock.time_ms, log.config.producer_id_expiration_ms, log)
        await broker.heartbeat("m", 0, ["orders"])
        await broker.fetch("m", 0)
        await copied(broker)
        assert originals(broker) == [0, 1, 2]


async def test_a_copy_that_was_decided_without_originals_is_continued_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its records would fit, all of them would not, nor into the memory."""
    async with running_share_broker(tmp_path) as broker:
        await create(broker)
        await prepared(broker, CONFIGS, 0)
        log = broker.node.services.topics.log(TopicPartition("orders", 0))
        assert log is not None
        for _ in range(4):
            large = Record(0, broker.clock.time_ms, None, b"v" * 400_000, ())
            log.append(memoryview(build_batch([large])), now_ms=broker.clock.time_ms)
        await log.flushed()
        for epoch in range(4):
            await broker.fetch("m", epoch, max_bytes=5_000_000)
        with monkeypatch.context() as patched:
            has_crashed = crash(patched, DeadLetterLogs, "append", passed_count=0, is_after=False)
            await reject(broker, 0, 3, epoch=4)
            await ended(broker, has_crashed)
        await broker.configure("g", errors_deadletterqueue_copy_record_enable="true")
        served(broker).continue_copies()
        await copied(broker)
        assert originals(broker) == [0, 1, 2, 3]
        assert [record.value for record in letters(broker)] == [None] * 4


async def test_large_records_are_copied_a_few_at_a_time(tmp_path: Path) -> None:
    async with running_share_broker(tmp_path) as broker:
        await create(broker, configs={"max.message.bytes": "50000000"})
        await prepared(broker, COPIED, 0)
        log = broker.node.services.topics.log(TopicPartition("orders", 0))
        assert log is not None
        for _ in range(6):
            large = Record(0, broker.clock.time_ms, None, b"v" * 900_000, ())
            log.append(memoryview(build_batch([large])), now_ms=broker.clock.time_ms)
        await log.flushed()
        for epoch in range(6):
            await broker.fetch("m", epoch, max_bytes=5_000_000)
        await reject(broker, 0, 5, epoch=6)
        await copied(broker)
        assert originals(broker) == list(range(6))
        found = broker.node.services.topics.log(TopicPartition(DLQ, 0))
        assert found is not None
        read = found.read(0, 1 << 24, isolation=Isolation.READ_UNCOMMITTED)
        assert [batch.header.last_offset_delta + 1 for batch in iterate_batches(read.records)] == [2, 2, 2]


async def test_a_batch_whose_answer_was_lost_is_not_appended_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = DeadLetterLogs.append
    calls = 0

    async def unanswered(*arguments: Any) -> ErrorCode:
        nonlocal calls
        calls += 1
        error = await original(*arguments)
        return ErrorCode.LEADER_NOT_AVAILABLE if calls <= 2 else error

    monkeypatch.setattr(DeadLetterLogs, "append", unanswered)
    async with running_share_broker(tmp_path) as broker:
        await create(broker)
        await prepared(broker, CONFIGS)
        await broker.fetch("m", 0)
        await reject(broker, 0, 2)
        await copied(broker)
        assert originals(broker) == [0, 1, 2]
        counts = broker.node.services.shares.dead_letters.counts["g"]
        assert (counts.copied, counts.failed) == (3, 2)


async def test_a_completion_that_is_lost_is_repeated_after_the_state_was_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_share_broker(tmp_path) as broker:
        await create(broker)
        await prepared(broker, CONFIGS)
        await broker.fetch("m", 0)
        shares = broker.node.services.shares
        lost = served(broker)
        write, durable = shares.persister.write, shares.persister.durable
        is_lost = False

        def losing(*arguments: Any, **named: Any) -> ErrorCode:
            nonlocal is_lost
            if not is_lost and any(copy.first_offset < 0 for copy in named.get("dead_letters", ())):
                is_lost = True
                return ErrorCode.NONE
            return write(*arguments, **named)

        async def refusing(key: SharePartitionKey) -> ErrorCode:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE if is_lost and not lost.is_dropped else await durable(key)

        monkeypatch.setattr(shares.persister, "write", losing)
        monkeypatch.setattr(shares.persister, "durable", refusing)
        await reject(broker, 0, 2)
        await until(lambda: lost.is_dropped)
        shares.waiting_copies.continue_copies(lost.key)
        await until(lambda: shares.coordinator.waiting() == [])
        assert originals(broker) == [0, 1, 2]


async def test_dead_letters_survive_the_member_that_left_at_once(tmp_path: Path) -> None:
    async with running_share_broker(tmp_path) as broker:
        await prepared(broker, CONFIGS)
        await broker.fetch("m", 0)
        await reject(broker, 0, 2)
        broker.connection.close()
        await create(broker)
        await copied(broker)
        assert originals(broker) == [0, 1, 2]


async def test_a_log_that_has_lost_earlier_batches_gets_the_records_under_a_new_producer_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = DeadLetterLogs.append
    producer_ids = []

    async def lost_once(logs: DeadLetterLogs, target: Any, batch: bytearray) -> ErrorCode:
        (header,) = [one.header for one in iterate_batches(memoryview(batch))]
        producer_ids.append(header.producer_id)
        if len(producer_ids) == 1:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return await original(logs, target, batch)

    monkeypatch.setattr(DeadLetterLogs, "append", lost_once)
    async with running_share_broker(tmp_path) as broker:
        await create(broker)
        await prepared(broker, CONFIGS)
        await broker.fetch("m", 0)
        await reject(broker, 0, 2)
        await copied(broker)
        assert originals(broker) == [0, 1, 2]
        assert len(set(producer_ids)) == 2


# The dead-letter topic


async def test_records_wait_for_a_missing_topic_and_are_copied_when_it_is_created(tmp_path: Path) -> None:
    async with running_share_broker(tmp_path) as broker:
        await prepared(broker, CONFIGS)
        await broker.fetch("m", 0)
        await reject(broker, 0, 2)
        counts = broker.node.services.shares.dead_letters.counts
        await until(lambda: "g" in counts and counts["g"].failed > 1)
        assert served(broker).has_undeliverable
        await create(broker)
        await copied(broker)
        assert originals(broker) == [0, 1, 2]


async def test_waiting_records_are_archived_when_the_group_has_no_dead_letter_topic_any_more(tmp_path: Path) -> None:
    async with running_share_broker(tmp_path) as broker:
        await prepared(broker, CONFIGS)
        await broker.fetch("m", 0)
        await reject(broker, 0, 2)
        await broker.configure("g", errors_deadletterqueue_topic_name="")
        await copied(broker)
        await broker.produce("orders", 1)
        assert lent(await broker.fetch("m", 2)) == [(3, 3, 1)]


async def test_a_missing_topic_is_created_if_the_broker_may(tmp_path: Path) -> None:
    settings = {"errors_deadletterqueue_auto_create_topics_enable": True}
    async with running_share_broker(tmp_path, **settings) as broker:
        await prepared(broker, CONFIGS)
        await broker.fetch("m", 0)
        await reject(broker, 0, 2)
        await copied(broker)
        assert originals(broker) == [0, 1, 2]
        topic = broker.node.services.topics.metadata.get(DLQ)
        assert topic is not None
        assert topic.configs == {**ENABLED, "message.timestamp.type": "CreateTime"}


async def test_a_topic_that_was_deleted_before_the_batch_came_gets_the_records_under_its_new_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_share_broker(tmp_path) as broker:
        await create(broker)
        await prepared(broker, CONFIGS)
        await broker.fetch("m", 0)
        with monkeypatch.context() as patched:
            has_crashed = crash(patched, DeadLetterLogs, "append", passed_count=0, is_after=True)
            await reject(broker, 0, 2)
            await ended(broker, has_crashed)
        await broker.node.services.topics.delete(DLQ)
        await create(broker)
        served(broker).continue_copies()
        await copied(broker)
        assert originals(broker) == [0, 1, 2]


async def test_a_record_that_is_too_large_for_the_topic_leaves_its_headers_there(tmp_path: Path) -> None:
    async with running_share_broker(tmp_path) as broker:
        await create(broker, configs={"max.message.bytes": "600"})
        await prepared(broker, COPIED, 3)
        log = broker.node.services.topics.log(TopicPartition("orders", 0))
        assert log is not None
        large = Record(0, broker.clock.time_ms, None, b"v" * 1_000, ())
        log.append(memoryview(build_batch([large])), now_ms=broker.clock.time_ms)
        await log.flushed()
        await broker.fetch("m", 0)
        await reject(broker, 0, 3)
        await copied(broker)
        assert originals(broker) == [0, 1, 2, 3]
        assert [record.value for record in letters(broker)] == [b"value"] * 3 + [None]


async def test_a_topic_whose_bound_was_lowered_after_the_decision_gets_the_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_share_broker(tmp_path) as broker:
        await create(broker)
        await prepared(broker, COPIED, 1)
        log = broker.node.services.topics.log(TopicPartition("orders", 0))
        assert log is not None
        large = Record(0, broker.clock.time_ms, None, b"v" * 1_000, ())
        log.append(memoryview(build_batch([large])), now_ms=broker.clock.time_ms)
        await log.flushed()
        await broker.fetch("m", 0)
        with monkeypatch.context() as patched:
            has_crashed = crash(patched, DeadLetterLogs, "append", passed_count=0, is_after=False)
            await reject(broker, 0, 1)
            await ended(broker, has_crashed)
        await broker.node.services.topics.alter_configs(DLQ, {**ENABLED, "max.message.bytes": "600"})
        served(broker).continue_copies()
        await copied(broker)
        assert originals(broker) == [0, 1]
        assert [record.value for record in letters(broker)] == [None, None]


async def test_a_record_that_retention_has_deleted_leaves_its_headers(tmp_path: Path) -> None:
    async with running_share_broker(tmp_path) as broker:
        await prepared(broker, COPIED)
        await broker.fetch("m", 0)
        await reject(broker, 0, 2)
        await broker.node.services.topics.delete_records({TopicPartition("orders", 0): 3})
        await broker.produce("orders", 1)
        assert lent(await broker.fetch("m", 2)) in ([], [(3, 3, 1)])
        await create(broker)
        await copied(broker)
        assert originals(broker) == [0, 1, 2]
        assert [record.value for record in letters(broker)] == [None] * 3


@pytest.mark.parametrize(
    ("name", "configs", "reason"),
    [
        ("dlq.a", {"errors.deadletterqueue.group.enable": "false"}, "errors.deadletterqueue.group.enable=false"),
        ("other", {}, "does not begin with dlq."),
        ("__dlq", {}, "begins with __"),
    ],
)
async def test_a_topic_that_may_not_have_dead_letters_gets_none(
    tmp_path: Path, name: str, configs: dict[str, str], reason: str
) -> None:
    async with running_share_broker(tmp_path) as broker:
        await create(broker, name, configs=configs)
        logs = broker.node.services.shares.dead_letters._logs
        with pytest.raises(NoDeadLetterTopic, match=reason):
            await logs.target(name, 0)


async def test_many_records_are_copied_in_several_batches_in_order(tmp_path: Path) -> None:
    async with running_share_broker(tmp_path) as broker:
        await create(broker)
        await prepared(broker, CONFIGS, 1_200)
        assert lent(await broker.fetch("m", 0, max_records=1_200)) != []
        await reject(broker, 0, 1_199)
        await copied(broker)
        assert originals(broker) == list(range(1_200))


async def test_two_groups_share_a_topic_and_each_copies_its_records_once(tmp_path: Path) -> None:
    async with running_share_broker(tmp_path) as broker:
        await create(broker)
        await prepared(broker, CONFIGS)
        await broker.configure("h", share_auto_offset_reset="earliest", **CONFIGS)
        await broker.join("n", ["orders"], "h")
        await broker.fetch("m", 0)
        await broker.fetch("n", 0, group_id="h")
        await reject(broker, 0, 2)
        await broker.acknowledge("n", 1, (1, 2, [REJECT]), group_id="h")
        await until(lambda: len(letters(broker)) == 5)
        await until(lambda: not broker.node.services.shares.dead_letters._tasks)
        found = [
            (dict(one.headers)["__dlq.errors.group"], dict(one.headers)["__dlq.errors.offset"])
            for one in letters(broker)
        ]
        assert sorted(found) == [(b"g", b"0"), (b"g", b"1"), (b"g", b"2"), (b"h", b"1"), (b"h", b"2")]


async def test_a_group_that_reads_its_own_dead_letter_topic_copies_each_rejection_once(tmp_path: Path) -> None:
    async with running_share_broker(tmp_path) as broker:
        await create(broker)
        await prepared(broker, COPIED, 1)
        await broker.fetch("m", 0)
        await reject(broker, 0, 0)
        await copied(broker)
        await broker.join("own", [DLQ])
        assert lent(await broker.fetch("own", 0, topic=DLQ)) == [(0, 0, 1)]
        await broker.acknowledge("own", 1, (0, 0, [REJECT]), topic=DLQ)
        await until(lambda: len(letters(broker)) == 2)
        await until(lambda: not broker.node.services.shares.dead_letters._tasks)
        again = letters(broker)[1]
        assert (again.value, len(again.headers)) == (b"value", 12)
        assert again.headers[6:9] == (
            ("__dlq.errors.topic", DLQ.encode()),
            ("__dlq.errors.partition", b"0"),
            ("__dlq.errors.offset", b"0"),
        )


async def test_a_record_of_a_megabyte_is_copied_whole_into_a_topic_with_the_usual_bound(tmp_path: Path) -> None:
    async with running_share_broker(tmp_path) as broker:
        await create(broker)
        await prepared(broker, COPIED, 0)
        log = broker.node.services.topics.log(TopicPartition("orders", 0))
        assert log is not None
        for size_bytes in (1_000_000, 1_048_450):
            large = Record(0, broker.clock.time_ms, None, b"v" * size_bytes, ())
            assert log.append(memoryview(build_batch([large])), now_ms=broker.clock.time_ms).error is ErrorCode.NONE
        await log.flushed()
        for epoch in range(2):
            await broker.fetch("m", epoch, max_bytes=5_000_000)
        await reject(broker, 0, 1, epoch=2)
        await copied(broker)
        # With the headers the second one is larger than max.message.bytes.
        assert [len(record.value or b"") for record in letters(broker)] == [1_000_000, 0]
