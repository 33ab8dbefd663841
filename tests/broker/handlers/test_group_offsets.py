"""OffsetCommit and TxnOffsetCommit, as each version says it on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fencepost.broker.coordination.runtime import partition_for_key
from fencepost.broker.handlers import group_offsets
from fencepost.broker.kernel.topic_partition import CONSUMER_OFFSETS_TOPIC, TopicPartition
from fencepost.broker.requests.api import NoConnection, RequestContext
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fencepost.protocol.schema import ZERO_UUID
from tests.support.group_broker import GroupBroker
from tests.support.memory_topics import INTERNAL_PARTITION_COUNT, MemoryLog, in_page_cache
from tests.support.offset_requests import NO_OFFSET, commit_request, fetch_request, fetched

OFFSETS_PARTITION = TopicPartition(CONSUMER_OFFSETS_TOPIC, partition_for_key("g", INTERNAL_PARTITION_COUNT))


@pytest.fixture
async def broker() -> AsyncIterator[GroupBroker]:
    async with GroupBroker() as made:
        yield made


# OffsetCommit


@pytest.mark.parametrize("version", range(2, 11))
async def test_offsets_are_committed_in_every_version(broker: GroupBroker, version: int) -> None:
    response = await broker.call(
        commit_request(broker, version, ("orders", 0), ("orders", 1), ("payments", 0)), version
    )
    assert [topic.topic_id if version >= 10 else topic.name for topic in response.topics] == (
        [broker.topic_id("orders"), broker.topic_id("payments")] if version >= 10 else ["orders", "payments"]
    )
    assert [p.error_code for topic in response.topics for p in topic.partitions] == [ErrorCode.NONE] * 3
    assert [p.partition_index for topic in response.topics for p in topic.partitions] == [0, 1, 0]


@pytest.mark.parametrize("version", [2, 7, 9, 10])
async def test_partitions_that_do_not_exist_are_refused_alone(broker: GroupBroker, version: int) -> None:
    request = commit_request(broker, version, ("orders", 0), ("orders", 2), ("orders", -1), ("nothing", 0))
    response = await broker.call(request, version)
    assert [p.error_code for topic in response.topics for p in topic.partitions] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


async def test_a_topic_of_which_nothing_is_committed_is_not_answered_if_it_exists(broker: GroupBroker) -> None:
    request = commit_request(broker, 9, ("orders", 0))
    request.topics.insert(0, OffsetCommitRequestTopic(name="payments", partitions=[]))
    request.topics.insert(0, OffsetCommitRequestTopic(name="nothing", partitions=[]))
    response = await broker.call(request, 9)
    assert [(topic.name, len(topic.partitions)) for topic in response.topics] == [("nothing", 0), ("orders", 1)]
    del request.topics[0], request.topics[1]
    assert (await broker.call(request, 9)).topics == []


@pytest.mark.parametrize(("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
async def test_a_generation_of_an_unknown_group_is_refused(broker: GroupBroker, version: int, error: ErrorCode) -> None:
    request = commit_request(
        broker, version, ("orders", 0), ("nothing", 0), generation_id_or_member_epoch=3, member_id="m"
    )
    response = await broker.call(request, version)
    assert [p.error_code for topic in response.topics for p in topic.partitions] == [
        error,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


async def test_partitions_and_groups_of_another_coordinator_are_all_refused(broker: GroupBroker) -> None:
    lost = GroupBroker()
    await lost.start(create=False)
    response = await lost.call(commit_request(lost, 9), 9)
    assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    response = await lost.call(fetch_request(lost, 9), 9)
    assert response.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    response = await lost.call(fetch_request(lost, 5), 5)
    assert response.error_code == ErrorCode.NOT_COORDINATOR
    await lost.groups.close()


# TxnOffsetCommit


def txn_request(
    *partitions: int, topic: str = "orders", topic_id: bytes = ZERO_UUID, **fields: object
) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="g",
        producer_id=7,
        producer_epoch=3,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                topic_id=topic_id,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=9, committed_metadata=""
                    )
                    for partition in partitions or (0,)
                ],
            )
        ],
        **fields,  # type: ignore[arg-type]  # fields of the request
    )


def errors(response: object) -> list[int]:
    return [p.error_code for topic in response.topics for p in topic.partitions]  # type: ignore[attr-defined]


def end_transaction(broker: GroupBroker, *, committed: bool) -> None:
    broker.topics.logs[OFFSETS_PARTITION].append_marker(
        producer_id=7, producer_epoch=4, committed=committed, coordinator_epoch=0, transaction_version=2, now_ms=0
    )


@pytest.mark.parametrize("version", range(7))
async def test_offsets_of_a_transaction_are_unstable_until_it_ends(broker: GroupBroker, version: int) -> None:
    await broker.call(commit_request(broker, 9), 9)
    assert errors(await broker.call(txn_request(0, 5, topic_id=broker.topic_id("orders")), version)) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    topic = broker.topic_id("orders")
    unstable = fetched(await broker.call(fetch_request(broker, 10, stable=True), 10), 10)
    assert unstable[topic, 0] == (*NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert fetched(await broker.call(fetch_request(broker, 10), 10), 10)[topic, 0][0] == 5
    end_transaction(broker, committed=True)
    assert fetched(await broker.call(fetch_request(broker, 10, stable=True), 10), 10)[topic, 0][0] == 9


@pytest.mark.parametrize(("version", "add"), [(0, False), (4, False), (5, True)])
async def test_since_version_5_the_commit_adds_its_partition_to_the_transaction(
    broker: GroupBroker, version: int, add: bool
) -> None:
    broker.topics.logs[OFFSETS_PARTITION].verification = object()
    await broker.call(txn_request(), version)
    assert broker.verifier.calls == [
        {
            "topic_partitions": (OFFSETS_PARTITION,),
            "transactional_id": "tx",
            "producer_id": 7,
            "producer_epoch": 3,
            "add": add,
        }
    ]


@pytest.mark.parametrize(
    ("version", "coordinators", "answered"),
    [
        (3, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (4, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (5, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (5, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (5, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (5, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
        (2, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (1, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
async def test_errors_of_the_transaction_coordinator_are_mapped_for_the_client(
    broker: GroupBroker, version: int, coordinators: ErrorCode, answered: ErrorCode
) -> None:
    broker.topics.logs[OFFSETS_PARTITION].verification = object()
    broker.verifier.error = coordinators
    assert errors(await broker.call(txn_request(0, 1), version)) == [answered, answered]
    assert broker.topics.logs[OFFSETS_PARTITION].batches == []


async def test_members_of_old_versions_are_not_checked(broker: GroupBroker) -> None:
    await broker.stable_member()
    assert errors(await broker.call(txn_request(), 2)) == [ErrorCode.NONE]
    assert errors(await broker.call(txn_request(), 3)) == [ErrorCode.NONE]
    stale = txn_request(generation_id_or_member_epoch=9, member_id="m")
    assert errors(await broker.call(stale, 3)) == [ErrorCode.UNKNOWN_MEMBER_ID]


async def test_a_transactional_commit_needs_a_group(broker: GroupBroker) -> None:
    request = txn_request()
    request.group_id = ""
    assert errors(await broker.call(request, 5)) == [ErrorCode.INVALID_GROUP_ID]


async def test_a_request_for_missing_partitions_only_reaches_no_coordinator(broker: GroupBroker) -> None:
    response = await broker.call(txn_request(0, topic="nothing"), 5)
    assert errors(response) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert broker.verifier.calls == []


async def test_version_6_names_topics_by_id(broker: GroupBroker) -> None:
    topic_id = broker.topic_id("orders")
    response = await broker.call(txn_request(0, 5, topic_id=topic_id), 6)
    assert errors(response) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [(topic.name, topic.topic_id) for topic in response.topics] == [("", topic_id)]
    for unknown in (ZERO_UUID, bytes(15) + b"\x09"):
        response = await broker.call(txn_request(0, topic_id=unknown), 6)
        assert errors(response) == [ErrorCode.UNKNOWN_TOPIC_ID]
        assert [topic.topic_id for topic in response.topics] == [unknown]


@pytest.mark.parametrize(("version", "error"), [(5, ErrorCode.ILLEGAL_GENERATION), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
async def test_version_6_says_that_a_members_group_does_not_exist(
    broker: GroupBroker, version: int, error: ErrorCode
) -> None:
    request = txn_request(topic_id=broker.topic_id("orders"), generation_id_or_member_epoch=3, member_id="m")
    assert errors(await broker.call(request, version)) == [error]


async def test_a_request_of_version_6_that_fails_names_topics_by_id(broker: GroupBroker) -> None:
    topic_id = broker.topic_id("orders")
    failed = broker.failed(txn_request(topic_id=topic_id), ErrorCode.NOT_COORDINATOR, 6)
    assert [(topic.topic_id, topic.partitions[0].error_code) for topic in failed.topics] == [
        (topic_id, ErrorCode.NOT_COORDINATOR)
    ]


# Many offsets

MANY_COUNT = 4 * group_offsets.OFFSETS_PER_SLICE + 7


def many_offsets(api: str) -> OffsetCommitRequest | TxnOffsetCommitRequest:
    """A commit of an offset that is the partition's number in every partition of `many`, and of one that is not."""
    indexes = range(MANY_COUNT + 1)
    if api == "OffsetCommit":
        return OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=-1,
            topics=[
                OffsetCommitRequestTopic(
                    name="many",
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=index, committed_offset=index) for index in indexes
                    ],
                )
            ],
        )
    return TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="g",
        producer_id=5,
        producer_epoch=0,
        generation_id_or_member_epoch=-1,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="many",
                partitions=[
                    TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=index) for index in indexes
                ],
            )
        ],
    )


def offsets_log_of(broker: GroupBroker) -> MemoryLog:
    return broker.topics.logs[OFFSETS_PARTITION]


@pytest.mark.parametrize("api", ["OffsetCommit", "TxnOffsetCommit"])
async def test_many_offsets_are_committed_while_others_are_served(api: str) -> None:
    with in_page_cache():
        async with GroupBroker() as broker:
            broker.topics.add("many", MANY_COUNT)
            batches = offsets_log_of(broker).batches
            committing = broker.start_call(many_offsets(api), 9 if api == "OffsetCommit" else 5)
            most_in_a_turn = before = 0
            while not committing.done():
                await asyncio.sleep(0)
                most_in_a_turn, before = max(most_in_a_turn, len(batches) - before), len(batches)
            assert most_in_a_turn == 1
            assert before == 5
            errors = [partition.error_code for partition in (await committing).topics[0].partitions]
            assert errors == [0] * MANY_COUNT + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            if api == "TxnOffsetCommit":
                return
            fetched = await broker.call(
                OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 9
            )
            offsets = [partition.committed_offset for partition in fetched.groups[0].topics[0].partitions]
            assert offsets == list(range(MANY_COUNT))
            deleted = await broker.call(
                OffsetDeleteRequest(
                    group_id="g",
                    topics=[
                        OffsetDeleteRequestTopic(
                            name="many",
                            partitions=[
                                OffsetDeleteRequestPartition(partition_index=index) for index in range(MANY_COUNT)
                            ],
                        )
                    ],
                ),
                0,
            )
            assert {partition.error_code for partition in deleted.topics[0].partitions} == {0}
            fetched = await broker.call(
                OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 9
            )
            assert fetched.groups[0].topics == []


async def test_a_refusal_between_two_slices_is_the_answer_for_the_rest() -> None:
    async with GroupBroker() as broker:
        broker.topics.add("many", MANY_COUNT)
        log = offsets_log_of(broker)
        log.flush_gate.clear()
        committing = broker.start_call(many_offsets("OffsetCommit"), 9)
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(log.batches) == 1, "the second slice waits until the first one is durable"
        log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        log.flush_gate.set()
        errors = [partition.error_code for partition in (await committing).topics[0].partitions][:-1]
        done_count = group_offsets.OFFSETS_PER_SLICE
        refused = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * (MANY_COUNT - done_count)
        assert errors == [0] * done_count + refused


@pytest.mark.parametrize(("count", "holds"), [(1, False), (MANY_COUNT, True)])
async def test_no_other_request_of_the_connection_overtakes_a_commit_of_many_offsets(count: int, holds: bool) -> None:
    async with GroupBroker() as broker:
        broker.topics.add("many", MANY_COUNT)
        request = many_offsets("OffsetCommit")
        assert isinstance(request, OffsetCommitRequest)
        del request.topics[0].partitions[count:]
        context = RequestContext(broker.services(), 9, 1, "app", NoConnection())
        committing = asyncio.ensure_future(group_offsets.handle_offset_commit(context, request))
        await asyncio.sleep(0)
        assert not committing.done()
        assert context.blocks_connection is holds
        await committing
