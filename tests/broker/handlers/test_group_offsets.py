"""OffsetCommit, OffsetFetch, OffsetDelete and TxnOffsetCommit, as each version says it on the wire."""

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
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.group_broker import GroupBroker
from tests.support.memory_topics import INTERNAL_PARTITION_COUNT, MemoryLog, in_page_cache

OFFSETS_PARTITION = TopicPartition(CONSUMER_OFFSETS_TOPIC, partition_for_key("g", INTERNAL_PARTITION_COUNT))
UNKNOWN_ID = b"no topic has it."
NO_OFFSET = (-1, -1, "")


@pytest.fixture
async def broker() -> AsyncIterator[GroupBroker]:
    async with GroupBroker() as made:
        yield made


def commit_request(
    broker: GroupBroker, version: int, *partitions: tuple[str, int], **fields: object
) -> OffsetCommitRequest:
    """Offset 5 for each; by id from version 10 on. A topic that does not exist has an id that no topic has."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for name, partition in partitions or (("orders", 0),):
        metadata = broker.topics.metadata.get(name)
        topic = topics.setdefault(
            name,
            OffsetCommitRequestTopic(
                name=name if version < 10 else "",
                topic_id=bytes(16) if version < 10 else UNKNOWN_ID if metadata is None else metadata.topic_id,
                partitions=[],
            ),
        )
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=5,
                committed_leader_epoch=3 if version >= 6 else -1,
                committed_metadata="note",
            )
        )
    return OffsetCommitRequest(group_id="g", topics=list(topics.values()), **fields)  # type: ignore[arg-type]


def fetch_request(
    broker: GroupBroker, version: int, *, all_topics: bool = False, stable: bool = False
) -> OffsetFetchRequest:
    """Partitions 0 and 1 of orders, or all topics (from version 2 on)."""
    require_stable = stable if version >= 7 else False
    if version < 8:
        topics = None if all_topics else [OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 1])]
        return OffsetFetchRequest(group_id="g", topics=topics, require_stable=require_stable)
    by_id = version >= 10
    wanted = OffsetFetchRequestTopics(
        name="" if by_id else "orders",
        topic_id=broker.topic_id("orders") if by_id else bytes(16),
        partition_indexes=[0, 1],
    )
    group = OffsetFetchRequestGroup(group_id="g", topics=None if all_topics else [wanted])
    return OffsetFetchRequest(groups=[group], require_stable=require_stable)


def fetched(response: object, version: int) -> dict[tuple[object, int], tuple[int, int, str | None, int]]:
    """(topic name or id, partition) to (offset, leader epoch, metadata, error)."""
    topics = response.topics if version < 8 else response.groups[0].topics  # type: ignore[attr-defined]
    return {
        (topic.topic_id if version >= 10 else topic.name, partition.partition_index): (
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.metadata,
            partition.error_code,
        )
        for topic in topics
        for partition in topic.partitions
    }


# OffsetCommit and OffsetFetch


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


@pytest.mark.parametrize("version", range(1, 11))
async def test_offsets_are_fetched_in_every_version(broker: GroupBroker, version: int) -> None:
    await broker.call(commit_request(broker, 9), 9)
    response = await broker.call(fetch_request(broker, version), version)
    topic = broker.topic_id("orders") if version >= 10 else "orders"
    assert fetched(response, version) == {
        (topic, 0): (5, 3 if version >= 5 else -1, "note", ErrorCode.NONE),
        (topic, 1): (*NO_OFFSET, ErrorCode.NONE),
    }


@pytest.mark.parametrize("version", range(2, 11))
async def test_null_topics_are_all_topics(broker: GroupBroker, version: int) -> None:
    await broker.call(commit_request(broker, 9, ("payments", 0), ("orders", 1), ("orders", 0)), 9)
    response = await broker.call(fetch_request(broker, version, all_topics=True), version)
    assert [name if version < 10 else name[:6] for name, _ in fetched(response, version)] == (  # type: ignore[index]
        ["orders", "orders", "payments"] if version < 10 else [b"orders", b"orders", b"paymen"]
    )
    assert [partition for _, partition in fetched(response, version)] == [0, 1, 0]


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


async def test_a_fetch_by_an_id_that_no_topic_has_is_refused_for_that_topic(broker: GroupBroker) -> None:
    await broker.call(commit_request(broker, 9), 9)
    request = fetch_request(broker, 10)
    topics = request.groups[0].topics
    assert topics is not None
    topics.insert(0, OffsetFetchRequestTopics(topic_id=UNKNOWN_ID, partition_indexes=[4]))
    response = await broker.call(request, 10)
    assert fetched(response, 10)[UNKNOWN_ID, 4] == (*NO_OFFSET, ErrorCode.UNKNOWN_TOPIC_ID)
    assert fetched(response, 10)[broker.topic_id("orders"), 0][0] == 5


async def test_many_groups_are_fetched_in_one_request(broker: GroupBroker) -> None:
    for group_id in ("a", "b"):
        commit = commit_request(broker, 9)
        commit.group_id = group_id
        await broker.call(commit, 9)
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in ("a", "b", "unknown")]
    )
    response = await broker.call(request, 9)
    assert [(group.group_id, group.error_code, len(group.topics)) for group in response.groups] == [
        ("a", ErrorCode.NONE, 1),
        ("b", ErrorCode.NONE, 1),
        ("unknown", ErrorCode.NONE, 0),
    ]


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


async def test_missing_metadata_comes_back_as_empty(broker: GroupBroker) -> None:
    request = commit_request(broker, 5)
    request.topics[0].partitions[0].committed_metadata = None
    await broker.call(request, 5)
    assert fetched(await broker.call(fetch_request(broker, 5), 5), 5)["orders", 0] == (5, -1, "", ErrorCode.NONE)


@pytest.mark.parametrize("version", range(1, 11))
async def test_a_fetch_that_fails_as_a_whole_says_so_where_its_version_does(broker: GroupBroker, version: int) -> None:
    response = broker.failed(fetch_request(broker, version), ErrorCode.NOT_COORDINATOR, version)
    if version >= 8:
        assert [group.error_code for group in response.groups] == [ErrorCode.NOT_COORDINATOR]
    elif version >= 2:
        assert (response.error_code, response.topics) == (ErrorCode.NOT_COORDINATOR, [])
    else:
        assert set(fetched(response, version).values()) == {(*NO_OFFSET, ErrorCode.NOT_COORDINATOR)}


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


def txn_request(*partitions: int, topic: str = "orders", **fields: object) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="g",
        producer_id=7,
        producer_epoch=3,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
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


@pytest.mark.parametrize("version", range(6))
async def test_offsets_of_a_transaction_are_unstable_until_it_ends(broker: GroupBroker, version: int) -> None:
    await broker.call(commit_request(broker, 9), 9)
    assert errors(await broker.call(txn_request(0, 5), version)) == [
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
    stale = txn_request(generation_id=9, member_id="m")
    assert errors(await broker.call(stale, 3)) == [ErrorCode.UNKNOWN_MEMBER_ID]


async def test_a_transactional_commit_needs_a_group(broker: GroupBroker) -> None:
    request = txn_request()
    request.group_id = ""
    assert errors(await broker.call(request)) == [ErrorCode.INVALID_GROUP_ID]


async def test_a_request_for_missing_partitions_only_reaches_no_coordinator(broker: GroupBroker) -> None:
    response = await broker.call(txn_request(0, topic="nothing"))
    assert errors(response) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert broker.verifier.calls == []


# OffsetDelete


def delete_request(*partitions: tuple[str, int], group_id: str = "g") -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=partition)])
            for name, partition in partitions
        ],
    )


async def test_offsets_are_deleted_partition_by_partition(broker: GroupBroker) -> None:
    await broker.call(commit_request(broker, 9, ("orders", 0), ("payments", 0)), 9)
    response = await broker.call(delete_request(("orders", 0), ("orders", 9), ("nothing", 0)))
    assert response.error_code == ErrorCode.NONE
    found = {(topic.name, one.partition_index): one.error_code for topic in response.topics for one in topic.partitions}
    assert found == {
        ("orders", 0): ErrorCode.NONE,
        ("orders", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nothing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    left = fetched(await broker.call(fetch_request(broker, 9, all_topics=True), 9), 9)
    assert set(left) == {("payments", 0)}


async def test_partitions_that_do_not_exist_are_answered_first_when_offsets_are_deleted(broker: GroupBroker) -> None:
    await broker.call(commit_request(broker, 9, ("orders", 0)), 9)
    partitions = [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(9)]
    topics = [OffsetDeleteRequestTopic("payments", partitions[:1]), OffsetDeleteRequestTopic("orders", partitions)]
    response = await broker.call(OffsetDeleteRequest("g", topics))
    assert [(topic.name, [one.partition_index for one in topic.partitions]) for topic in response.topics] == [
        ("orders", [9, 0]),
        ("payments", [0]),
    ]


async def test_of_topics_without_partitions_only_unknown_ones_are_answered(broker: GroupBroker) -> None:
    await broker.call(commit_request(broker, 9, ("orders", 0)), 9)
    topics = [OffsetDeleteRequestTopic("orders", []), OffsetDeleteRequestTopic("nothing", [])]
    response = await broker.call(OffsetDeleteRequest("g", topics))
    assert [(topic.name, topic.partitions) for topic in response.topics] == [("nothing", [])]


async def test_offsets_of_an_unknown_group_cannot_be_deleted(broker: GroupBroker) -> None:
    response = await broker.call(delete_request(("orders", 0), group_id="unknown"))
    assert (response.error_code, response.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


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
        generation_id=-1,
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
