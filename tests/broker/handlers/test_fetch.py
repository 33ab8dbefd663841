"""Fetch: what is returned, in which budget, and when a fetch that found too little is answered."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.handlers.fetch import fetch_failed
from fencepost.broker.hosting.placement import NodeAddress, SingleNodePlacement
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.log_types import Isolation
from fencepost.broker.requests.near_reads import NearReads
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalFile
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from fencepost.protocol.record_batch import iterate_batches, read_records
from fencepost.protocol.schema import encode_chunks
from tests.support.handler_context import NODE_ID, NOW_MS, HandlerBroker, batch, finished, open_broker
from tests.support.markers import end_in_log

SESSIONLESS = 6
BY_NAME = 12
BY_ID = 18
LONG_MS = 60_000


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path) as opened:
        await opened.create_topic("orders", 3)
        yield opened


def fetch(
    *partitions: tuple[int, int],
    topic: str = "orders",
    topic_id: bytes = bytes(16),
    committed: bool = False,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 10_000_000,
    partition_max_bytes: int = 1_000_000,
    session: tuple[int, int] = (0, -1),
    leader_epoch: int = -1,
) -> FetchRequest:
    """partitions: (partition, offset). session: (session id, epoch)."""
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=int(committed),
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            FetchTopic(
                topic=topic,
                topic_id=topic_id,
                partitions=[
                    FetchPartition(
                        partition=partition,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                        current_leader_epoch=leader_epoch,
                    )
                    for partition, offset in partitions
                ],
            )
        ]
        if partitions
        else [],
    )


def append(broker: HandlerBroker, partition: int, *values: bytes, **build: Any) -> bytes:
    """Append a batch without waiting for the disk; returns it."""
    sent = batch(*values, **build)
    result = broker.log("orders", partition).append(memoryview(sent), now_ms=NOW_MS)
    assert result.error is ErrorCode.NONE
    return sent


async def written(broker: HandlerBroker, partition: int, *values: bytes, **build: Any) -> bytes:
    sent = append(broker, partition, *values, **build)
    await broker.log("orders", partition).flushed()
    return sent


async def open_transaction(broker: HandlerBroker, partition: int, producer_id: int, *values: bytes) -> None:
    log = broker.log("orders", partition)
    guard = log.begin_verification(producer_id, 0, 0, transaction_version_2=False)
    sent = batch(*values, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
    result = log.append(memoryview(sent), now_ms=NOW_MS, guard=guard)  # type: ignore[arg-type]
    assert result.error is ErrorCode.NONE
    await log.flushed()


async def end_transaction(broker: HandlerBroker, partition: int, producer_id: int, *, committed: bool) -> None:
    log = broker.log("orders", partition)
    end_in_log(log, producer_id, committed=committed)
    await log.flushed()


def answers(response: FetchResponse) -> list[PartitionData]:
    return [answer for topic in response.responses for answer in topic.partitions]


def values(answer: PartitionData) -> list[bytes | None]:
    return [
        record.value
        for found in iterate_batches(answer.records or b"")
        if not found.header.is_control
        for record in read_records(found)
    ]


async def only_answer(broker: HandlerBroker, request: FetchRequest, version: int = BY_NAME) -> PartitionData:
    (answer,) = answers(await broker.call(request, version))
    return answer


def watcher_count(broker: HandlerBroker, partition: int = 0) -> int:
    return len(broker.log("orders", partition).watchers._callbacks)


# Records


async def test_batches_come_back_as_they_were_sent(broker: HandlerBroker) -> None:
    sent = await written(broker, 0, b"a", b"b") + await written(broker, 0, b"c")
    answer = await only_answer(broker, fetch((0, 0)))
    assert values(answer) == [b"a", b"b", b"c"]
    assert len(answer.records or b"") == len(sent)
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (3, 3, 0)
    assert (answer.error_code, answer.preferred_read_replica) == (0, -1)


async def test_records_leave_without_being_copied(broker: HandlerBroker) -> None:
    await written(broker, 0, b"x" * 50_000)
    response = broker.start(fetch((0, 0)), BY_NAME)
    records = response.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert any(chunk is records for chunk in encode_chunks(response, BY_NAME))


async def test_records_are_freed_with_the_response(broker: HandlerBroker) -> None:
    await written(broker, 0, b"x" * 50_000)
    response = broker.start(fetch((0, 0)), BY_NAME)
    records = weakref.ref(response.responses[0].partitions[0].records)
    gc.disable()
    try:
        del response
        assert records() is None
    finally:
        gc.enable()


async def test_offset_inside_a_batch_returns_the_whole_batch(broker: HandlerBroker) -> None:
    await written(broker, 0, b"a", b"b", b"c")
    assert values(await only_answer(broker, fetch((0, 1)))) == [b"a", b"b", b"c"]


async def test_records_that_are_not_durable_yet_are_not_returned(broker: HandlerBroker) -> None:
    await written(broker, 0, b"durable")
    append(broker, 0, b"in the page cache")
    answer = await only_answer(broker, fetch((0, 0)))
    assert (values(answer), answer.high_watermark) == ([b"durable"], 1)


async def test_no_records_are_empty_bytes_and_never_null(broker: HandlerBroker) -> None:
    response = await broker.call(fetch((0, 0), (9, 0)), BY_NAME)
    assert [answer.records for answer in answers(response)] == [b"", b""]


@pytest.mark.parametrize("version", range(4, 13))
async def test_every_version_by_name_is_served(broker: HandlerBroker, version: int) -> None:
    await written(broker, 0, b"a")
    response = await broker.call(fetch((0, 0)), version)
    assert response.responses[0].topic == "orders"
    assert values(response.responses[0].partitions[0]) == [b"a"]


@pytest.mark.parametrize("version", range(13, 19))
async def test_every_version_by_topic_id_is_served(broker: HandlerBroker, version: int) -> None:
    await written(broker, 0, b"a")
    topic_id = broker.topic_id("orders")
    response = await broker.call(fetch((0, 0), topic_id=topic_id), version)
    assert response.responses[0].topic_id == topic_id
    assert values(response.responses[0].partitions[0]) == [b"a"]


# Isolation


async def test_read_uncommitted_sees_open_and_aborted_records_and_no_list(broker: HandlerBroker) -> None:
    await open_transaction(broker, 0, 5, b"aborted")
    await end_transaction(broker, 0, 5, committed=False)
    await open_transaction(broker, 0, 6, b"open")
    answer = await only_answer(broker, fetch((0, 0)))
    assert values(answer) == [b"aborted", b"open"]
    assert answer.aborted_transactions is None
    assert (answer.high_watermark, answer.last_stable_offset) == (3, 2)


async def test_read_committed_stops_at_the_first_open_transaction(broker: HandlerBroker) -> None:
    await written(broker, 0, b"stable")
    await open_transaction(broker, 0, 5, b"open")
    answer = await only_answer(broker, fetch((0, 0), committed=True))
    assert values(answer) == [b"stable"]
    assert (answer.high_watermark, answer.last_stable_offset) == (2, 1)


async def test_read_committed_has_an_empty_list_when_nothing_was_aborted(broker: HandlerBroker) -> None:
    await open_transaction(broker, 0, 5, b"committed")
    await end_transaction(broker, 0, 5, committed=True)
    answer = await only_answer(broker, fetch((0, 0), committed=True))
    assert (values(answer), answer.aborted_transactions) == ([b"committed"], [])


async def test_read_committed_lists_aborted_transactions_and_returns_their_marker(broker: HandlerBroker) -> None:
    await open_transaction(broker, 0, 5, b"aborted")
    await end_transaction(broker, 0, 5, committed=False)
    answer = await only_answer(broker, fetch((0, 0), committed=True))
    assert [(aborted.producer_id, aborted.first_offset) for aborted in answer.aborted_transactions or []] == [(5, 0)]
    assert [found.header.is_control for found in iterate_batches(answer.records or b"")] == [False, True]


async def test_unknown_isolation_level_is_refused(broker: HandlerBroker) -> None:
    request = fetch((0, 0))
    request.isolation_level = 2
    response = await broker.call(request, BY_NAME)
    assert response.error_code == ErrorCode.INVALID_REQUEST


# The budget


async def test_first_batch_is_whole_even_above_every_limit(broker: HandlerBroker) -> None:
    for partition in (0, 1):
        await written(broker, partition, b"x" * 1000)
    response = await broker.call(fetch((0, 0), (1, 0), max_bytes=10, partition_max_bytes=10), BY_NAME)
    assert [len(values(answer)) for answer in answers(response)] == [1, 0]


async def test_partition_limit_holds_for_later_batches(broker: HandlerBroker) -> None:
    one = len(await written(broker, 0, b"x" * 1000))
    await written(broker, 0, b"y" * 1000)
    answer = await only_answer(broker, fetch((0, 0), partition_max_bytes=one + 500))
    assert len(answer.records or b"") == one


async def test_later_partitions_share_the_rest_of_the_response(broker: HandlerBroker) -> None:
    size = 0
    for partition in (0, 1, 2):
        size = len(await written(broker, partition, b"x" * 1000))
    response = await broker.call(fetch((2, 0), (0, 0), (1, 0), max_bytes=2 * size), BY_NAME)
    assert [(answer.partition_index, len(values(answer))) for answer in answers(response)] == [(2, 1), (0, 1), (1, 0)]


async def test_the_cut_off_part_of_a_batch_uses_up_the_response_as_if_it_had_been_sent(broker: HandlerBroker) -> None:
    size = len(await written(broker, 0, b"x" * 1000))
    await written(broker, 0, b"y" * 1000)
    await written(broker, 1, b"z")
    response = await broker.call(fetch((0, 0), (1, 0), max_bytes=size + 500), BY_NAME)
    assert [len(values(answer)) for answer in answers(response)] == [1, 0]


async def test_unreadable_records_use_up_nothing_of_the_response(broker: HandlerBroker) -> None:
    size = len(await written(broker, 0, b"x" * 1000))
    await open_transaction(broker, 0, 5, b"open")
    await written(broker, 1, b"z")
    response = await broker.call(fetch((0, 0), (1, 0), committed=True, max_bytes=size + 500), BY_NAME)
    assert [len(values(answer)) for answer in answers(response)] == [1, 1]


async def test_read_committed_has_no_list_where_the_first_batch_does_not_fit(broker: HandlerBroker) -> None:
    size = len(await written(broker, 0, b"x" * 1000))
    await written(broker, 1, b"y" * 1000)
    response = await broker.call(fetch((0, 0), (1, 0), committed=True, max_bytes=size + 500), BY_NAME)
    assert [answer.aborted_transactions for answer in answers(response)] == [[], None]


async def test_empty_partition_does_not_use_up_the_right_to_a_whole_first_batch(broker: HandlerBroker) -> None:
    await written(broker, 1, b"x" * 1000)
    response = await broker.call(fetch((0, 0), (1, 0), max_bytes=10), BY_NAME)
    assert [len(values(answer)) for answer in answers(response)] == [0, 1]


async def test_broker_bounds_the_sizes_that_a_client_requests(tmp_path: Path) -> None:
    async with open_broker(tmp_path, fetch_max_bytes=1500) as broker:
        await broker.create_topic("orders", 3)
        for partition in (0, 1):
            await written(broker, partition, b"x" * 1000)
        response = await broker.call(fetch((0, 0), (1, 0)), BY_NAME)
        assert [len(values(answer)) for answer in answers(response)] == [1, 0]


# What is refused


@pytest.mark.parametrize("offset", [-1, 2, 1000])
async def test_offset_outside_of_the_log_is_out_of_range(broker: HandlerBroker, offset: int) -> None:
    await written(broker, 0, b"a")
    answer = await only_answer(broker, fetch((0, offset)))
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (-1, -1, -1)


async def test_unknown_partition_does_not_hold_up_the_others(broker: HandlerBroker) -> None:
    await written(broker, 0, b"a")
    response = await broker.call(fetch((9, 0), (0, 0)), BY_NAME)
    assert [answer.error_code for answer in answers(response)] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert values(answers(response)[0]) == [b"a"]


async def test_partitions_that_are_not_there_come_last_in_a_response_and_in_its_session(broker: HandlerBroker) -> None:
    request = fetch((7, 0), (0, 9), (1, 0), topic_id=broker.topic_id("orders"), session=(0, 0))
    request.topics.insert(0, FetchTopic(topic_id=b"?" * 16, partitions=[FetchPartition(4)]))
    response = await broker.call(request, BY_ID)
    assert [answer.partition_index for answer in answers(response)] == [0, 1, 4, 7]
    again = await broker.call(fetch(session=(response.session_id, 1)), BY_ID)
    assert [answer.partition_index for answer in answers(again)] == [0, 4, 7]


async def test_unknown_topic_id_is_an_error_of_its_partitions(broker: HandlerBroker) -> None:
    answer = await only_answer(broker, fetch((0, 0), topic_id=b"no such topic id"), BY_ID)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_leader_epoch_of_the_client_is_checked(broker: HandlerBroker) -> None:
    log = broker.log("orders")
    log.leader_epoch = 5
    found = {
        epoch: (await only_answer(broker, fetch((0, 0), leader_epoch=epoch))).error_code for epoch in (-1, 4, 5, 6)
    }
    assert found == {-1: 0, 4: ErrorCode.FENCED_LEADER_EPOCH, 5: 0, 6: ErrorCode.UNKNOWN_LEADER_EPOCH}


async def test_error_is_answered_at_once(broker: HandlerBroker) -> None:
    outcome = broker.start(fetch((0, 0), (9, 0), max_wait_ms=LONG_MS), BY_NAME)
    assert isinstance(outcome, FetchResponse)


def test_failed_reply_holds_the_partitions_where_their_names_are_known() -> None:
    request = fetch((0, 0), (1, 0))
    by_name = fetch_failed(request, ErrorCode.UNKNOWN_SERVER_ERROR, BY_NAME)
    assert [(answer.error_code, answer.records) for answer in answers(by_name)] == [(-1, b""), (-1, b"")]
    by_id = fetch_failed(request, ErrorCode.UNKNOWN_SERVER_ERROR, BY_ID)
    assert (by_id.error_code, by_id.responses) == (-1, [])


# Waiting


async def test_fetch_waits_until_records_are_durable(broker: HandlerBroker) -> None:
    waiting = asyncio.ensure_future(broker.start(fetch((0, 0), (1, 0), max_wait_ms=LONG_MS), BY_NAME))
    await asyncio.sleep(0)
    append(broker, 1, b"a")
    response = await waiting
    assert [values(answer) for answer in answers(response)] == [[], [b"a"]]
    assert (watcher_count(broker, 0), watcher_count(broker, 1)) == (0, 0)


async def test_fetch_that_starts_to_wait_late_still_sees_what_came_before(broker: HandlerBroker) -> None:
    outcome = broker.start(fetch((0, 0), max_wait_ms=LONG_MS), BY_NAME)
    await written(broker, 0, b"a")
    assert values(answers(await finished(outcome))[0]) == [b"a"]


async def test_fetch_is_answered_empty_when_its_wait_is_over(broker: HandlerBroker) -> None:
    answer = await only_answer(broker, fetch((0, 0), max_wait_ms=10))
    assert (answer.error_code, answer.records) == (0, b"")
    assert watcher_count(broker) == 0


async def test_fetch_waits_for_its_minimum_of_bytes(broker: HandlerBroker) -> None:
    size = len(await written(broker, 0, b"a"))
    waiting = asyncio.ensure_future(
        broker.start(fetch((0, 0), (1, 0), max_wait_ms=LONG_MS, min_bytes=3 * size), BY_NAME)
    )
    await written(broker, 1, b"b")
    await asyncio.sleep(0)
    assert not waiting.done()
    await written(broker, 0, b"c")
    assert [values(answer) for answer in answers(await waiting)] == [[b"a", b"c"], [b"b"]]


async def test_minimum_beyond_the_budget_does_not_wait_for_ever(broker: HandlerBroker) -> None:
    size = len(await written(broker, 0, b"a"))
    outcome = broker.start(fetch((0, 0), max_wait_ms=LONG_MS, min_bytes=10_000, max_bytes=size), BY_NAME)
    assert isinstance(outcome, FetchResponse)


async def test_minimum_is_reached_by_the_cut_off_part_of_a_batch(broker: HandlerBroker) -> None:
    size = len(await written(broker, 0, b"a" * 1000))
    await written(broker, 0, b"b" * 1000)
    wanted = fetch((0, 0), max_wait_ms=LONG_MS, min_bytes=size + 500, partition_max_bytes=size + 500)
    assert isinstance(broker.start(wanted, BY_NAME), FetchResponse)


async def test_committed_fetch_waits_for_the_marker(broker: HandlerBroker) -> None:
    await open_transaction(broker, 0, 5, b"a")
    waiting = asyncio.ensure_future(broker.start(fetch((0, 0), committed=True, max_wait_ms=LONG_MS), BY_NAME))
    await written(broker, 0, b"behind the open transaction")
    await asyncio.sleep(0)
    assert not waiting.done()
    await end_transaction(broker, 0, 5, committed=True)
    assert values(answers(await waiting)[0]) == [b"a", b"behind the open transaction"]


async def test_deleted_topic_ends_the_wait(broker: HandlerBroker) -> None:
    waiting = asyncio.ensure_future(broker.start(fetch((0, 0), max_wait_ms=LONG_MS), BY_NAME))
    await asyncio.sleep(0)
    assert await broker.topics.delete("orders") is ErrorCode.NONE
    (answer,) = answers(await waiting)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_fetch_that_is_cancelled_leaves_no_watcher(broker: HandlerBroker) -> None:
    waiting = asyncio.ensure_future(broker.start(fetch((0, 0), (1, 0), max_wait_ms=LONG_MS), BY_NAME))
    await asyncio.sleep(0)
    assert watcher_count(broker) == 1
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (watcher_count(broker, 0), watcher_count(broker, 1)) == (0, 0)


async def test_fetch_of_nothing_is_answered_at_once(broker: HandlerBroker) -> None:
    outcome = broker.start(fetch(max_wait_ms=LONG_MS), BY_NAME)
    assert isinstance(outcome, FetchResponse)
    assert outcome.responses == []


# Sessions


async def session(broker: HandlerBroker, *partitions: tuple[int, int], version: int = BY_NAME, **by: Any) -> int:
    response = await broker.call(fetch(*partitions, session=(0, 0), **by), version)
    assert response.error_code == 0
    session_id: int = response.session_id
    assert session_id != 0
    return session_id


async def test_incremental_fetch_returns_only_partitions_with_news(broker: HandlerBroker) -> None:
    session_id = await session(broker, (0, 0), (1, 0), (2, 0))
    await written(broker, 1, b"a")
    response = await broker.call(fetch(session=(session_id, 1)), BY_NAME)
    assert response.session_id == session_id
    assert [(answer.partition_index, values(answer)) for answer in answers(response)] == [(1, [b"a"])]


async def test_incremental_fetch_without_news_is_empty_after_its_wait(broker: HandlerBroker) -> None:
    session_id = await session(broker, (0, 0))
    response = await broker.call(fetch(session=(session_id, 1), max_wait_ms=5), BY_NAME)
    assert (response.error_code, response.session_id, response.responses) == (0, session_id, [])


async def test_incremental_fetch_continues_from_the_newly_requested_offset(broker: HandlerBroker) -> None:
    session_id = await session(broker, (0, 0))
    await written(broker, 0, b"a")
    await broker.call(fetch(session=(session_id, 1)), BY_NAME)
    await written(broker, 0, b"b")
    response = await broker.call(fetch((0, 1), session=(session_id, 2)), BY_NAME)
    assert values(answers(response)[0]) == [b"b"]


async def test_session_errors_refuse_the_whole_response(broker: HandlerBroker) -> None:
    session_id = await session(broker, (0, 0))
    unknown = await broker.call(fetch(session=(session_id ^ 1, 1)), BY_NAME)
    assert (unknown.error_code, unknown.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    repeated = await broker.call(fetch(session=(session_id, 7)), BY_NAME)
    assert repeated.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    mixed = await broker.call(fetch(session=(session_id, 1)), BY_ID)
    assert mixed.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


async def test_versions_without_sessions_open_none(broker: HandlerBroker) -> None:
    await broker.call(fetch((0, 0)), SESSIONLESS)
    assert len(broker.services.fetch_sessions) == 0


async def test_topic_recreated_within_a_session_has_another_id(broker: HandlerBroker) -> None:
    session_id = await session(broker, (0, 0), version=BY_ID, topic_id=broker.topic_id("orders"))
    await broker.topics.delete("orders")
    gone = await broker.call(fetch(session=(session_id, 1)), BY_ID)
    assert [answer.error_code for answer in answers(gone)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    await broker.create_topic("orders", 3)
    recreated = await broker.call(fetch(session=(session_id, 2)), BY_ID)
    assert [answer.error_code for answer in answers(recreated)] == [ErrorCode.INCONSISTENT_TOPIC_ID]


async def test_topic_recreated_smaller_within_a_session_does_not_have_its_other_partitions(
    broker: HandlerBroker,
) -> None:
    session_id = await session(broker, (2, 0), version=BY_ID, topic_id=broker.topic_id("orders"))
    await broker.topics.delete("orders")
    await broker.create_topic("orders", 2)
    response = await broker.call(fetch(session=(session_id, 1)), BY_ID)
    assert [answer.error_code for answer in answers(response)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_offline_partition_is_a_storage_error(broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    log = broker.log("orders")

    def fail(*_: object) -> None:
        raise StorageError("the disk is gone")

    monkeypatch.setattr(LocalFile, "append", fail)
    with pytest.raises(StorageError):
        log.append(memoryview(batch()), now_ms=NOW_MS)
    answer = await only_answer(broker, fetch((0, 0)))
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR


class OtherRack(SingleNodePlacement):
    """Node 2, in rack b, is the only other one."""

    def other_nodes(self) -> list[NodeAddress]:
        return [NodeAddress(2, "elsewhere", 9092, rack="b")]


class SealedBelow:
    """Replicas that have the offsets below 2."""

    def sealed_bound(self, topic_partition: TopicPartition, isolation: Isolation) -> int:
        return 2

    def find(self, topic_partition: TopicPartition, topic_id: bytes, offset: int, isolation: Isolation) -> None:
        return None


def from_rack(rack: str, *partitions: tuple[int, int], **how: Any) -> FetchRequest:
    request = fetch(*partitions, **how)
    request.rack_id = rack
    return request


@pytest.fixture
def racks(broker: HandlerBroker) -> HandlerBroker:
    placement = OtherRack(NodeAddress(NODE_ID, "", 9092))
    broker.services.near_reads = NearReads(NODE_ID, "a", placement, SealedBelow())
    return broker


async def test_a_consumer_of_another_rack_is_sent_there_at_once_for_what_is_sealed(racks: HandlerBroker) -> None:
    await written(racks, 0, b"one", b"two", b"three")
    sent = await only_answer(racks, from_rack("b", (0, 0), max_wait_ms=LONG_MS), BY_NAME)
    assert (sent.error_code, sent.preferred_read_replica, sent.records) == (0, 2, b"")
    assert (sent.high_watermark, sent.last_stable_offset, sent.log_start_offset) == (3, 3, 0)
    for rack, offset in (("b", 2), ("a", 0), ("", 0)):
        here = await only_answer(racks, from_rack(rack, (0, offset)), BY_NAME)
        assert here.preferred_read_replica == -1
        assert here.records


async def test_a_consumer_that_comes_back_without_records_gets_them_from_the_leader(racks: HandlerBroker) -> None:
    await written(racks, 0, b"one")
    assert (await only_answer(racks, from_rack("b", (0, 0)), BY_NAME)).preferred_read_replica == 2
    assert (await only_answer(racks, from_rack("b", (0, 0)), BY_NAME)).records


async def test_a_session_gets_the_broker_of_its_rack_although_nothing_else_is_new(racks: HandlerBroker) -> None:
    await written(racks, 0, b"one")
    opened = await racks.call(from_rack("a", (0, 0), session=(0, 0)), BY_NAME)
    assert opened.responses[0].partitions[0].records
    request = from_rack("b", (0, 0), session=(opened.session_id, 1))
    (topic,) = (await racks.call(request, BY_NAME)).responses
    assert [one.preferred_read_replica for one in topic.partitions] == [2]


async def test_a_session_that_has_read_a_replica_to_its_end_is_sent_to_the_leader(
    racks: HandlerBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(racks, 0, b"one", b"two")
    replica = racks.log("orders", 0)
    replica.is_replica = True
    absent = ErrorCode.NOT_LEADER_OR_FOLLOWER
    monkeypatch.setattr(racks.topics, "log", lambda _: None)
    monkeypatch.setattr(racks.topics, "error_of_absent_log", lambda _: absent)
    monkeypatch.setattr(
        racks.services.near_reads,
        "replica",
        lambda _rack, wanted, *_: replica if wanted.fetch_offset < 2 else None,
    )
    opened = await racks.call(from_rack("a", (0, 0), session=(0, 0)), BY_NAME)
    assert opened.responses[0].partitions[0].records
    request = from_rack("a", (0, 2), session=(opened.session_id, 1), max_wait_ms=LONG_MS)
    (topic,) = (await racks.call(request, BY_NAME)).responses
    assert [(one.error_code, one.preferred_read_replica) for one in topic.partitions] == [(0, NODE_ID)]


async def test_a_replica_that_cannot_be_read_sends_its_consumers_to_the_leader(
    racks: HandlerBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(racks, 0, b"one", b"two")
    replica = racks.log("orders", 0)
    replica.is_replica = True
    replica.offline_reason = "an object is missing"
    monkeypatch.setattr(racks.topics, "log", lambda _: None)
    monkeypatch.setattr(racks.topics, "error_of_absent_log", lambda _: ErrorCode.NOT_LEADER_OR_FOLLOWER)
    monkeypatch.setattr(racks.services.near_reads, "replica", lambda *_: replica)
    answer = await only_answer(racks, from_rack("a", (0, 0), max_wait_ms=LONG_MS), BY_NAME)
    assert (answer.error_code, answer.preferred_read_replica) == (0, NODE_ID)


@pytest.mark.parametrize(
    ("leader_epoch", "error"), [(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER), (0, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
async def test_a_fetch_with_a_replica_id_is_refused_by_its_leader_epoch(
    broker: HandlerBroker, leader_epoch: int, error: ErrorCode
) -> None:
    request = fetch((0, 0), leader_epoch=leader_epoch)
    request.replica_id = 2
    response = await broker.call(request, 12)
    assert response.responses[0].partitions[0].error_code == error
