"""Every request takes one way, whether it repeats an earlier one of its connection or not.

For every API whose requests are cached, in every version: what it answers and stores for requests that are found in the
cache is what it answers and stores for those that are decoded, in success and in every kind of failure. Rights and
counting see all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.broker.handlers import APIS, CloseConnection, RequestContext
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.requests.api import Restriction
from fencepost.broker.requests.routes import Api
from fencepost.broker.security.authorizer import Rights
from fencepost.broker.security.principal import ANONYMOUS
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.fetch import FetchRequest, ReplicaState
from fencepost.protocol.messages.group_membership import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
)
from fencepost.protocol.messages.produce import ProduceRequest
from fencepost.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
)
from fencepost.protocol.shape import ReplyForm
from tests.broker.produce.test_produce_runs import batch as equal_batch
from tests.broker.produce.test_produce_runs import connected, frames_with
from tests.support.equal_brokers import CLIENT_ID, EqualBrokers, equal_brokers
from tests.support.equal_requests import (
    TIMES,
    TRANSACTIONAL_ID,
    add,
    commit,
    end,
    errors,
    expect,
    fetch,
    in_transaction,
    new_producer,
    one_of_each,
    produce,
)
from tests.support.handler_context import batch

PAGE_CACHE, DURABLE = 2**63 - 1, 1
LONG_MS = 60_000

Scenario = Callable[[EqualBrokers, int], Awaitable[None]]


# Scenarios: each sends requests several times, with what is expected of both brokers


async def produces(brokers: EqualBrokers, version: int) -> None:
    for number in range(TIMES):
        for acks in (-1, 1, 0):
            request = produce(brokers, version, batch(b"x" * 90 * number), batch(b"y"), acks=acks)
            response = await brokers.send(request, version)
            assert response is None if acks == 0 else errors(response) == {0}
    for sequence in range(TIMES):
        sent = batch(b"v", producer_id=4_000, producer_epoch=1, base_sequence=sequence)
        for _ in range(2):  # the second is a duplicate
            await expect(brokers, produce(brokers, version, sent), version, 0)
    await expect(
        brokers,
        produce(brokers, version, batch(producer_id=4_000, producer_epoch=1, base_sequence=9)),
        version,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    )
    await expect(
        brokers,
        produce(brokers, version, batch(producer_id=4_000, producer_epoch=0, base_sequence=TIMES)),
        version,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    )
    damaged = bytearray(batch(b"damaged"))
    damaged[-2] ^= 1
    await expect(brokers, produce(brokers, version, bytes(damaged)), version, ErrorCode.CORRUPT_MESSAGE)
    await expect(brokers, produce(brokers, version, batch()[:-1]), version, ErrorCode.INVALID_RECORD)
    await expect(brokers, produce(brokers, version, batch(), acks=7), version, ErrorCode.INVALID_REQUIRED_ACKS)
    unknown: dict[str, Any] = {"topic_id": b"no such topic id"} if version >= 13 else {"topic": "missing"}
    error = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await expect(brokers, produce(brokers, version, batch(), **unknown), version, error)
    await expect(brokers, produce(brokers, version, batch(), first=7), version, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for _ in range(TIMES):
        # Without a reply, an error ends the connection.
        assert isinstance(await brokers.send(produce(brokers, version, batch(), first=7, acks=0), version), str)
        await brokers.send(produce(brokers, version, batch()), version)


async def produces_in_transactions(brokers: EqualBrokers, version: int) -> None:
    producer = await new_producer(brokers)

    def sent(sequence: int) -> ProduceRequest:
        records = in_transaction(producer, sequence)
        return produce(brokers, version, records, records, transactional_id=TRANSACTIONAL_ID)

    if version >= 12:
        for _ in range(TIMES):
            for sequence in range(TIMES):
                assert errors(await brokers.send(sent(sequence), version)) == {0}
            ended = await brokers.send(end(producer), 5)
            assert ended.error_code == 0
            producer = ended.producer_id, ended.producer_epoch
            await brokers.settle()
    else:
        not_begun = ErrorCode.TRANSACTION_ABORTABLE if version == 11 else ErrorCode.INVALID_TXN_STATE
        await expect(brokers, sent(0), version, not_begun)
        for round_number in range(TIMES):
            assert errors(await brokers.send(add(producer, 3, 0, 1), 3)) == {0}
            for sequence in range(TIMES):
                assert errors(await brokers.send(sent(sequence + TIMES * round_number), version)) == {0}
            assert errors(await brokers.send(end(producer, committed=round_number != 1), 4)) == {0}
            await brokers.settle()
    fenced, producer = producer, await new_producer(brokers)
    assert errors(await brokers.send(add(producer, 3, 0, 1), 3)) == {0}
    assert errors(await brokers.send(sent(0), version)) == {0}
    producer = fenced
    await expect(brokers, sent(0), version, ErrorCode.INVALID_PRODUCER_EPOCH)
    records = in_transaction(producer, 5)
    await expect(brokers, produce(brokers, version, records), version, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


async def produces_to_a_topic_that_is_created_again(brokers: EqualBrokers, version: int) -> None:
    request = produce(brokers, version, batch(b"a"), batch(b"b"))
    await expect(brokers, request, version, 0)
    await brokers.delete("orders")
    gone = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await expect(brokers, request, version, gone)
    await brokers.create("orders")
    await expect(brokers, request, version, gone if version >= 13 else 0)
    await expect(brokers, produce(brokers, version, batch(b"a"), batch(b"b")), version, 0)
    await has_fewer_partitions(brokers, lambda: produce(brokers, version, batch(), first=2), version)


async def has_fewer_partitions(brokers: EqualBrokers, request: Callable[[], Any], version: int) -> None:
    """A topic is created again without the partition of a request. What happens to other topics does not matter."""
    await brokers.create("others")
    await expect(brokers, request(), version, 0)
    await brokers.delete("orders")
    await brokers.create("orders", 2)
    await expect(brokers, request(), version, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def produces_to_logs_that_fail(brokers: EqualBrokers, version: int) -> None:
    requests = [produce(brokers, version, batch(), topic=topic) for topic in ("orders", "returns")]
    for request in requests:
        await expect(brokers, request, version, 0)
    await brokers.lose("orders")
    await expect(brokers, requests[0], version, ErrorCode.KAFKA_STORAGE_ERROR)
    await expect(brokers, requests[1], version, 0)


async def produces_beyond_a_quota(brokers: EqualBrokers, version: int) -> None:
    request = produce(brokers, version, batch(bytes(1_000)))
    await expect(brokers, request, version, 0)
    await brokers.set_quotas(producer_byte_rate=100.0, request_percentage=0.5)
    await throttled(brokers, [request, produce(brokers, version, batch(bytes(1_000)), acks=0)], version)


async def throttled(brokers: EqualBrokers, requests: list[Any], version: int) -> None:
    """Send requests of a client with a quota, which is used up."""
    throttles = []
    for _ in range(2 * TIMES):
        for request in requests:
            response = await brokers.send(request, version)
            if response is not None:
                throttles.append(response.throttle_time_ms)
            await brokers.advance(700)
    muted = brokers.warm.throttled_s
    assert muted
    if any(throttles):
        assert {round(throttle_ms / 1_000, 3) for throttle_ms in throttles if throttle_ms} <= {
            round(one, 3) for one in muted
        }
    await brokers.set_quotas(producer_byte_rate=1e12, consumer_byte_rate=1e12, request_percentage=1e12)
    for request in requests:
        await brokers.send(request, version)
    assert brokers.warm.throttled_s == muted


async def fetches(brokers: EqualBrokers, version: int) -> None:
    producer = await new_producer(brokers)
    for size in (10, 900, 3_000):
        for partition in (0, 1):
            await brokers.send(produce(brokers, 12, batch(b"x" * size), first=partition), 12)
    for offset in (0, 1, 2, 3):
        await expect(brokers, fetch(brokers, version, 0, offset=offset), version, 0)
        await expect(brokers, fetch(brokers, version, 1, 0, 2, offset=0), version, 0)
    await expect(brokers, fetch(brokers, version, 0, 1, max_bytes=1), version, 0)
    await expect(brokers, fetch(brokers, version, 0, offset=-1), version, ErrorCode.OFFSET_OUT_OF_RANGE)
    await expect(brokers, fetch(brokers, version, 0, offset=99), version, ErrorCode.OFFSET_OUT_OF_RANGE)
    await expect(brokers, fetch(brokers, version, 7), version, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    await expect(brokers, fetch(brokers, version, 0, isolation_level=9), version, ErrorCode.INVALID_REQUEST)
    unknown: dict[str, Any] = {"topic_id": b"no such topic id"} if version >= 13 else {"topic": "missing"}
    error = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await expect(brokers, fetch(brokers, version, 0, **unknown), version, error)
    if version >= 9:
        await expect(brokers, fetch(brokers, version, 0, leader_epoch=9), version, ErrorCode.UNKNOWN_LEADER_EPOCH)
    for committed in (True, False):
        assert errors(await brokers.send(add(producer, 3, 0), 3)) == {0}
        records = in_transaction(producer, 0 if committed else 1)
        await brokers.send(produce(brokers, 11, records, transactional_id=TRANSACTIONAL_ID), 11)
        assert errors(await brokers.send(end(producer, committed=committed), 4)) == {0}
        await brokers.settle()
        for isolation_level in (0, 1):
            await expect(brokers, fetch(brokers, version, 0, isolation_level=isolation_level), version, 0)
    end_offset = brokers.warm.log("orders").log_end_offset
    await expect(brokers, fetch(brokers, version, 0, offset=end_offset, max_wait_ms=1), version, 0)
    follower: dict[str, Any] = {"replica_state": ReplicaState(3)} if version >= 15 else {"replica_id": 3}
    unlike_others = [fetch(brokers, version, 0, **follower)]
    for last_fetched_epoch in (0, 3) if version >= 12 else ():
        diverging = fetch(brokers, version, 0, offset=1)
        diverging.topics[0].partitions[0].last_fetched_epoch = last_fetched_epoch
        unlike_others.append(diverging)
    for request in unlike_others * TIMES:
        await brokers.send(request, version)
    if version >= 9:
        led = fetch(brokers, version, 0, leader_epoch=brokers.warm.log("orders").leader_epoch)
        await expect(brokers, led, version, 0)
        for side in brokers.sides:
            side.log("orders").lead(side.log("orders").leader_epoch + 1)
        await expect(brokers, led, version, ErrorCode.FENCED_LEADER_EPOCH)


async def fetches_that_wait(brokers: EqualBrokers, version: int) -> None:
    async def written(value: bytes) -> None:
        await brokers.send(produce(brokers, 12, batch(value), batch(value)), 12)
        await brokers.settle()

    await written(b"first")
    end_offset = 1
    for _ in range(TIMES):
        for partitions in ((0,), (0, 1)):
            request = fetch(brokers, version, *partitions, max_wait_ms=LONG_MS, min_bytes=200)
            for partition in request.topics[0].partitions:
                partition.fetch_offset = end_offset
            waiting = await brokers.begin(request, version)
            await written(b"x" * 300)
            assert isinstance(await waiting, bytes)
            end_offset += 1
    waiting = await brokers.begin(fetch(brokers, version, 0, offset=end_offset, max_wait_ms=LONG_MS), version)
    await brokers.delete("orders")
    assert isinstance(await waiting, bytes)
    await brokers.create("orders")


async def fetches_that_wait_for_transactions(brokers: EqualBrokers, version: int) -> None:
    producer = await new_producer(brokers)
    for sequence in range(TIMES):
        end_offset = brokers.warm.log("orders").log_end_offset
        request = fetch(brokers, version, 0, offset=end_offset, isolation_level=1, max_wait_ms=LONG_MS)
        waiting = await brokers.begin(request, version)
        assert errors(await brokers.send(add(producer, 3, 0), 3)) == {0}
        records = in_transaction(producer, sequence)
        await brokers.send(produce(brokers, 11, records, transactional_id=TRANSACTIONAL_ID), 11)
        assert not waiting.done()
        assert errors(await brokers.send(end(producer, committed=sequence != 1), 4)) == {0}
        await brokers.settle()
        assert isinstance(await waiting, bytes)
    waiting = await brokers.begin(fetch(brokers, version, 1, max_wait_ms=LONG_MS), version)
    await brokers.lose("orders")
    assert isinstance(await waiting, bytes)


async def fetches_in_sessions(brokers: EqualBrokers, version: int) -> None:
    if version < 7:
        return
    for _ in range(2):
        opened = await brokers.send(fetch(brokers, version, 0, 1, session_epoch=0), version)
        assert opened.session_id > 0
        session = {"session_id": opened.session_id}
        for epoch in range(1, 6):
            await brokers.send(produce(brokers, 12, batch(b"x" * 400 * epoch), first=epoch % 2), 12)
            response = await brokers.send(fetch(brokers, version, session_epoch=epoch, **session), version)
            assert (response.error_code, response.session_id, len(response.responses)) == (0, opened.session_id, 1)
        for epoch in (5, 9):
            request = fetch(brokers, version, session_epoch=epoch, **session)
            await expect(brokers, request, version, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        request = fetch(brokers, version, session_epoch=3, session_id=12_345)
        await expect(brokers, request, version, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)


async def fetches_from_a_topic_that_is_created_again(brokers: EqualBrokers, version: int) -> None:
    await brokers.send(produce(brokers, 12, batch(b"old"), batch(b"old")), 12)
    request = fetch(brokers, version, 0, 1)
    await expect(brokers, request, version, 0)
    await brokers.delete("orders")
    gone = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await expect(brokers, request, version, gone)
    await brokers.create("orders")
    await brokers.send(produce(brokers, 12, batch(b"new"), batch(b"new")), 12)
    await expect(brokers, request, version, gone if version >= 13 else 0)
    await expect(brokers, fetch(brokers, version, 0, 1), version, 0)
    await has_fewer_partitions(brokers, lambda: fetch(brokers, version, 2), version)


async def fetches_from_logs_that_fail(brokers: EqualBrokers, version: int) -> None:
    await brokers.send(produce(brokers, 12, batch(b"a")), 12)
    await expect(brokers, fetch(brokers, version, 0), version, 0)
    await brokers.lose("orders")
    await expect(brokers, fetch(brokers, version, 0), version, ErrorCode.KAFKA_STORAGE_ERROR)


async def fetches_beyond_a_quota(brokers: EqualBrokers, version: int) -> None:
    await brokers.send(produce(brokers, 12, batch(bytes(3_000)), batch(b"small")), 12)
    requests = [fetch(brokers, version, 0), fetch(brokers, version, 1)]
    for request in requests:
        await expect(brokers, request, version, 0)
    await brokers.set_quotas(consumer_byte_rate=200.0, request_percentage=0.5)
    await throttled(brokers, requests, version)


async def commits(brokers: EqualBrokers, version: int) -> None:
    for offset in (0, 2**63 - 1, 5):
        await expect(brokers, commit(brokers, version, offset, 0, 2), version, 0)
    await expect(brokers, commit(brokers, version, 1, 7), version, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    unknown: dict[str, Any] = {"topic_id": b"no such topic id"} if version >= 10 else {"topic": "missing"}
    error = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await expect(brokers, commit(brokers, version, 1, 0, **unknown), version, error)
    stranger: dict[str, Any] = {"member_id": "stranger", "generation_id_or_member_epoch": 1}
    for _ in range(TIMES):
        response = await brokers.send(commit(brokers, version, 1, 0, **stranger), version)
        assert errors(response) != {0}


async def commits_of_members(brokers: EqualBrokers, version: int) -> None:
    joining = JoinGroupRequest(
        group_id="classic",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"metadata")],
    )
    joined = await brokers.send(joining, 9)
    joining.member_id = joined.member_id
    for generation in range(1, 4):
        joining.protocols[0].metadata = bytes(generation)
        joined = await brokers.send(joining, 9)
        assert joined.error_code == 0
        synced = await brokers.send(
            SyncGroupRequest(
                group_id="classic",
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"assigned")],
            ),
            2,
        )
        assert synced.error_code == 0
        member: dict[str, Any] = {"group_id": "classic", "member_id": joined.member_id}
        for offset in range(TIMES):
            request = commit(
                brokers, version, offset, 0, 1, generation_id_or_member_epoch=joined.generation_id, **member
            )
            await expect(brokers, request, version, 0)
        request = commit(brokers, version, 9, 0, generation_id_or_member_epoch=joined.generation_id - 1, **member)
        await expect(brokers, request, version, ErrorCode.ILLEGAL_GENERATION)
        request = commit(
            brokers,
            version,
            9,
            0,
            generation_id_or_member_epoch=joined.generation_id,
            group_id="classic",
            member_id="x",
        )
        await expect(brokers, request, version, ErrorCode.UNKNOWN_MEMBER_ID)


async def commits_of_members_of_the_consumer_protocol(brokers: EqualBrokers, version: int) -> None:
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id="consumers",
        member_id="member",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    joined = await brokers.send(heartbeat, 1)
    assert joined.error_code == 0
    member: dict[str, Any] = {"group_id": "consumers", "member_id": "member"}
    for epoch in (joined.member_epoch, joined.member_epoch + 1, joined.member_epoch - 1):
        for offset in range(TIMES):
            request = commit(brokers, version, offset, 0, generation_id_or_member_epoch=epoch, **member)
            responses = [await brokers.send(request, version) for _ in range(TIMES)]
            assert len({frozenset(errors(response)) for response in responses}) == 1
            if epoch == joined.member_epoch and version >= 9:
                assert errors(responses[0]) == {0}
            elif version >= 9:
                assert errors(responses[0]) == {ErrorCode.STALE_MEMBER_EPOCH}


async def commits_for_a_topic_that_is_created_again(brokers: EqualBrokers, version: int) -> None:
    request = commit(brokers, version, 5, 0, 1)
    await expect(brokers, request, version, 0)
    await brokers.delete("orders")
    gone = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await expect(brokers, request, version, gone)
    await brokers.create("orders")
    await expect(brokers, request, version, gone if version >= 10 else 0)
    await expect(brokers, commit(brokers, version, 6, 0, 1), version, 0)
    await has_fewer_partitions(brokers, lambda: commit(brokers, version, 7, 2), version)


async def commits_to_logs_that_fail(brokers: EqualBrokers, version: int) -> None:
    await expect(brokers, commit(brokers, version, 5, 0), version, 0)
    await brokers.lose("__consumer_offsets")
    for offset in range(TIMES):
        response = await brokers.send(commit(brokers, version, offset, 0), version)
        assert errors(response) <= {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}


async def commits_beyond_a_quota(brokers: EqualBrokers, version: int) -> None:
    await expect(brokers, commit(brokers, version, 5, 0), version, 0)
    await brokers.set_quotas(request_percentage=0.1)
    await throttled(brokers, [commit(brokers, version, 5, 0)], version)


async def adds(brokers: EqualBrokers, version: int) -> None:
    producer = await new_producer(brokers)
    for committed in (True, False, True):
        await expect(brokers, add(producer, version, 0, 2), version, 0)
        await expect(brokers, add(producer, version, 1, topic="returns"), version, 0)
        assert errors(await brokers.send(end(producer, committed=committed), 4)) == {0}
        await brokers.settle()
    await expect(brokers, add(producer, version, topic="missing", *[0]), version, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # noqa: B026
    await expect(brokers, add((producer[0] + 1, 0), version, 0), version, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    fenced = producer
    await new_producer(brokers)
    for _ in range(TIMES):
        response = await brokers.send(add(fenced, version, 0, 2), version)
        assert errors(response) <= {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}


async def adds_of_a_topic_that_is_created_again(brokers: EqualBrokers, version: int) -> None:
    producer = await new_producer(brokers)
    await expect(brokers, add(producer, version, 0, 2), version, 0)
    await brokers.delete("orders")
    await expect(brokers, add(producer, version, 0, 2), version, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    await brokers.create("orders")
    await expect(brokers, add(producer, version, 0, 2), version, 0)
    await has_fewer_partitions(brokers, lambda: add(producer, version, 2), version)


async def adds_to_logs_that_fail(brokers: EqualBrokers, version: int) -> None:
    producer = await new_producer(brokers)
    await expect(brokers, add(producer, version, 0, 2), version, 0)
    await lose_transactions(brokers)
    for _ in range(TIMES):
        response = await brokers.send(add(producer, version, 1), version)
        assert errors(response) <= {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}


async def lose_transactions(brokers: EqualBrokers) -> None:
    for side in brokers.sides:
        side.log("__transaction_state").give_up(StorageError("the disk is gone"))


async def adds_beyond_a_quota(brokers: EqualBrokers, version: int) -> None:
    producer = await new_producer(brokers)
    await expect(brokers, add(producer, version, 0), version, 0)
    await brokers.set_quotas(request_percentage=0.1)
    await throttled(brokers, [add(producer, version, 0)], version)


async def ends(brokers: EqualBrokers, version: int) -> None:
    producer = await new_producer(brokers)
    for number in range(2 * TIMES):
        assert errors(await brokers.send(add(producer, 3, 0, 1), 3)) == {0}
        response = await brokers.send(end(producer, committed=number % 3 != 1), version)
        assert errors(response) == {0}
        await brokers.settle()
        assert errors(await brokers.send(end(producer, committed=number % 3 != 1), version)) == {0}, "it is a retry"
        if version >= 5:
            producer = response.producer_id, response.producer_epoch
    await expect(brokers, end(producer, transactional_id="unknown"), version, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    fenced, producer = producer, await new_producer(brokers)
    for _ in range(TIMES):
        response = await brokers.send(end(fenced), version)
        assert errors(response) <= {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
    for _ in range(TIMES):
        await brokers.send(end(producer), version)


async def ends_in_logs_that_fail(brokers: EqualBrokers, version: int) -> None:
    producer = await new_producer(brokers)
    assert errors(await brokers.send(add(producer, 3, 0), 3)) == {0}
    await brokers.send(end(producer, transactional_id="unknown"), version)
    await lose_transactions(brokers)
    for _ in range(TIMES):
        response = await brokers.send(end(producer), version)
        assert errors(response) <= {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}


async def ends_beyond_a_quota(brokers: EqualBrokers, version: int) -> None:
    producer = await new_producer(brokers)
    assert errors(await brokers.send(add(producer, 3, 0), 3)) == {0}
    await brokers.set_quotas(request_percentage=0.1)
    await throttled(brokers, [end(producer, transactional_id="unknown")], version)


SCENARIOS: dict[ApiKey, list[Scenario]] = {
    ApiKey.PRODUCE: [
        produces,
        produces_in_transactions,
        produces_to_a_topic_that_is_created_again,
        produces_to_logs_that_fail,
        produces_beyond_a_quota,
    ],
    ApiKey.FETCH: [
        fetches,
        fetches_that_wait,
        fetches_that_wait_for_transactions,
        fetches_in_sessions,
        fetches_from_a_topic_that_is_created_again,
        fetches_from_logs_that_fail,
        fetches_beyond_a_quota,
    ],
    ApiKey.OFFSET_COMMIT: [
        commits,
        commits_of_members,
        commits_of_members_of_the_consumer_protocol,
        commits_for_a_topic_that_is_created_again,
        commits_to_logs_that_fail,
        commits_beyond_a_quota,
    ],
    ApiKey.ADD_PARTITIONS_TO_TXN: [
        adds,
        adds_of_a_topic_that_is_created_again,
        adds_to_logs_that_fail,
        adds_beyond_a_quota,
    ],
    ApiKey.END_TXN: [ends, ends_in_logs_that_fail, ends_beyond_a_quota],
}


def test_every_api_that_repeats_has_scenarios() -> None:
    assert SCENARIOS.keys() == {key for key, api in APIS.items() if api.repeats is not None}


def every_scenario() -> list[Any]:
    """The first of an API in all versions; the others in its first, last and each third one: codecs differ there, and
    with long tests in all.
    """
    return [
        pytest.param(
            scenario,
            version,
            id=f"{scenario.__name__}-{version}",
            marks=[] if scenario is scenarios[0] or is_chosen(APIS[key], version, place) else [pytest.mark.long],
        )
        for key, scenarios in SCENARIOS.items()
        for version in range(APIS[key].minimum_version, APIS[key].maximum_version + 1)
        for place, scenario in enumerate(scenarios)
    ]


def is_chosen(api: Api, version: int, place: int) -> bool:
    return version in (api.minimum_version, api.maximum_version) or (version + place) % 3 == 0


@pytest.fixture
def steady_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock of the quotas takes some time: as much for both brokers."""
    looks = count(1)
    monkeypatch.setattr(
        "fencepost.broker.quotas.client_quotas.time", SimpleNamespace(perf_counter_ns=lambda: next(looks) * 40_000_000)
    )


@pytest.mark.usefixtures("steady_time")
@pytest.mark.parametrize(("scenario", "version"), every_scenario())
async def test_cached_requests_are_answered_and_stored_like_decoded_ones(
    tmp_path: Path, scenario: Scenario, version: int
) -> None:
    flush_messages = DURABLE if version % 2 else PAGE_CACHE
    async with equal_brokers(tmp_path, log_flush_interval_messages=flush_messages) as brokers:
        await scenario(brokers, version)
        assert brokers.known_count >= 2 or (scenario is fetches_in_sessions and version < 7)


# Rights and counting


class Gate:
    """Refuses requests as a whole with `error`, and keeps those that it has judged."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, Any]] = []
        self.error = ErrorCode.NONE

    def restriction(self, api: Api, context: RequestContext, request: Any) -> Restriction | None:
        detail = detail_of(request)
        self.asked.append((api.name, context.correlation_id, detail))
        return None if self.error is ErrorCode.NONE else Refused(api, request, self.error)

    def may(self, *_: Any) -> bool:
        return True

    def keep(self, context: RequestContext) -> None:
        """Keep nothing: each request is judged."""

    def is_kept(self, context: RequestContext) -> bool:
        return False

    def rights_of(self, context: RequestContext) -> Rights:
        raise AssertionError("no handler of these requests asks for all rights")


class Refused:
    """A request that is refused as a whole."""

    def __init__(self, api: Api, request: Any, error: ErrorCode) -> None:
        self.api = api
        self.request = request
        self.error = error

    def answer(self, context: RequestContext) -> Any:
        if self.api.key == ApiKey.PRODUCE and self.request.acks == 0:
            raise CloseConnection("it may not be written")
        return self.api.failed(self.request, self.error, context.api_version)


def detail_of(request: Any) -> Any:
    """A field of a request that varies, or one that does not where none does."""
    match request:
        case ProduceRequest():
            return bytes(request.topic_data[0].partition_data[0].records or b"")
        case FetchRequest():
            return request.topics[0].partitions[0].fetch_offset
        case OffsetCommitRequest():
            return request.topics[0].partitions[0].committed_offset
        case AddPartitionsToTxnRequest():
            return request.v3_and_below_producer_id
    return request.producer_epoch


class Observer:
    """Keeps the replies that it sees."""

    then: Any = None

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int]] = []

    def begun(self, api: Api, context: RequestContext, request: Any) -> None:
        context.observation = api.name

    def waits(self, context: RequestContext) -> None:
        assert context.observation, "it has begun"

    def answered(self, api: Api, context: RequestContext, requests_count: int, answer: Any) -> None:
        assert context.observation == api.name
        self.seen.append((api.name, context.correlation_id, requests_count))

    @property
    def requests_count(self) -> int:
        return sum(requests_count for _, _, requests_count in self.seen)


async def test_the_gate_judges_every_request_once_with_what_it_says(tmp_path: Path) -> None:
    async with equal_brokers(tmp_path, log_flush_interval_messages=PAGE_CACHE) as brokers:
        requests = await one_of_each(brokers)
        gates = [Gate(), Gate()]
        for side, gate in zip(brokers.sides, gates, strict=True):
            side.node.services.gate = gate
        expected = []
        for _ in range(TIMES):
            for request, version, name, detail in requests:
                await brokers.send(request, version)
                await brokers.settle()
                expected.append((name, brokers._correlation_id, detail))
        assert gates[0].asked == gates[1].asked == expected
        assert brokers.known_count >= len(requests) * (TIMES - 1)


async def test_what_the_gate_refuses_is_not_carried_out_and_answered_alike(tmp_path: Path) -> None:
    async with equal_brokers(tmp_path, log_flush_interval_messages=PAGE_CACHE) as brokers:
        requests = await one_of_each(brokers)
        gate = Gate()
        for side in brokers.sides:
            side.node.services.gate = gate
        for _ in range(2):
            for request, version, _, _ in requests:
                await brokers.send(request, version)
                await brokers.settle()
        stored = brokers.warm.stored()
        for error in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
            gate.error = error
            for request, version, _, _ in requests:
                response = await brokers.send(request, version)
                if request.api_key == ApiKey.PRODUCE and request.acks == 0:
                    assert response == "it may not be written"
                else:
                    assert errors(response) == {error}
        await brokers.assert_equal()
        assert brokers.warm.stored() == stored
        gate.error = ErrorCode.NONE
        assert errors(await brokers.send(requests[0][0], 12)) == {0}


async def test_a_gate_that_fails_is_answered_as_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with equal_brokers(tmp_path, log_flush_interval_messages=PAGE_CACHE) as brokers:
        request = produce(brokers, 12, batch())
        await expect(brokers, request, 12, 0)

        def fail(*_: object) -> None:
            raise KeyError("a defect")

        monkeypatch.setattr(Gate, "restriction", fail)
        for side in brokers.sides:
            side.node.services.gate = Gate()
        await expect(brokers, request, 12, ErrorCode.UNKNOWN_SERVER_ERROR)


async def test_the_observer_sees_every_reply_once(tmp_path: Path) -> None:
    async with equal_brokers(tmp_path, log_flush_interval_messages=PAGE_CACHE) as brokers:
        requests = await one_of_each(brokers)
        observers = [Observer(), Observer()]
        for side, observer in zip(brokers.sides, observers, strict=True):
            side.node.services.observer = observer
        expected = []
        for _ in range(TIMES):
            for request, version, name, _ in requests:
                await brokers.send(request, version)
                await brokers.settle()
                expected.append((name, brokers._correlation_id, 1))
        assert observers[0].seen == observers[1].seen == expected


@pytest.mark.parametrize("planted", [(PartitionLog, "append"), (ReplyForm, "write"), (ReplyForm, "__init__")])
async def test_the_observer_sees_the_reply_of_a_request_that_fails_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: tuple[type, str]
) -> None:
    async with equal_brokers(tmp_path, log_flush_interval_messages=PAGE_CACHE) as brokers:
        await brokers.set_quotas(producer_byte_rate=1e12)
        observer = brokers.warm.node.services.observer = Observer()
        client = brokers.warm.client
        request = produce(brokers, 12, batch())
        sent_count = 3 if planted[1] == "write" else 1
        for _ in range(sent_count):
            await client.send(brokers.frame(request, 12))
        charged: list[tuple[str, tuple[str, str], float]] = []
        charge: Callable[..., int] = type(brokers.warm.node.services.client_quotas).charge

        def noted(quotas: Any, key: str, client: tuple[str, str], amount: float) -> int:
            charged.append((key, client, amount))
            return charge(quotas, key, client, amount)

        monkeypatch.setattr(type(brokers.warm.node.services.client_quotas), "charge", noted)

        def fail(*_: object, **__: object) -> None:
            raise KeyError("a defect")

        with monkeypatch.context() as broken:
            broken.setattr(*planted, fail)
            frame = brokers.frame(request, 12)
            assert isinstance(await client.send(frame), bytes)
        assert observer.seen == [("Produce", 1 + number, 1) for number in range(sent_count + 1)]
        assert charged == [("producer_byte_rate", (ANONYMOUS, CLIENT_ID), len(frame) - 4)]
        # What the other broker has not got.
        for _ in range(sent_count):
            await brokers.sides[1].client.send(frame)
        if planted[1] != "append":
            await brokers.sides[1].client.send(frame)


async def test_a_run_is_judged_and_counted_with_its_number_of_requests(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        gate = client.broker.services.gate = Gate()
        observer = client.broker.services.observer = Observer()
        await client.burst(frames_with([equal_batch()] * 2))
        asked_count = len(gate.asked)
        assert (asked_count, observer.requests_count) == (2, 2)
        await client.burst(frames_with([equal_batch()] * 16))
        assert client.dispatcher.run_counts == [16]
        assert [name for name, _, _ in gate.asked[asked_count:]] == ["Produce"]
        assert observer.seen[2:] == [("Produce", 0, 16)]
        mixed = [equal_batch()] * 6 + [equal_batch(b"another length")] * 6
        replies = await client.burst(frames_with(mixed))
        assert len(replies) == 12
        assert observer.requests_count == 2 + 16 + 12


async def test_a_run_that_the_gate_refuses_is_refused_one_by_one(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        gate = client.broker.services.gate = Gate()
        observer = client.broker.services.observer = Observer()
        await client.burst(frames_with([equal_batch()] * 2))
        end_offset = client.broker.log("orders").log_end_offset
        gate.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        replies = await client.burst(frames_with([equal_batch()] * 16))
        alone = [(await client.burst([frame]))[0] for frame in frames_with([equal_batch()] * 16)]
        assert replies == alone
        assert client.broker.log("orders").log_end_offset == end_offset
        assert client.dispatcher.run_counts == []
        assert observer.requests_count == 2 + 32
        correlation_ids = {correlation_id for _, correlation_id, _ in gate.asked}
        assert correlation_ids == set(range(16))


async def test_a_gate_may_close_the_connection_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected(tmp_path) as client:
        client.broker.services.gate = Gate()
        await client.burst(frames_with([equal_batch()] * 2))

        def close(*_: object) -> None:
            raise CloseConnection("the client has lost its rights")

        monkeypatch.setattr(Gate, "restriction", close)
        assert await client.burst(frames_with([equal_batch()] * 8)) == []
        assert client.refusals == ["the client has lost its rights"]


async def test_replies_of_runs_that_wait_for_the_disk_are_counted(tmp_path: Path) -> None:
    async with connected(tmp_path, log_flush_interval_messages=DURABLE) as client:
        observer = client.broker.services.observer = Observer()
        await client.burst(frames_with([equal_batch()] * 2))
        for _ in range(3):
            await client.burst(frames_with([equal_batch()] * 8))
            await asyncio.sleep(0)
        assert observer.requests_count == 2 + 24
        assert sum(client.dispatcher.run_counts) == 24
