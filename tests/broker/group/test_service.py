"""The group service over logs in memory: loading, waiting, broken connections, lost disks, deleted topics,
transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast
from uuid import uuid4

import pytest

from fencepost.broker.coordination import runtime
from fencepost.broker.coordination.runtime import partition_for_key
from fencepost.broker.group.offsets.commits import Committer, OffsetToCommit
from fencepost.broker.group.refusals import HeartbeatRefusal
from fencepost.broker.group.service import GroupService
from fencepost.broker.kernel.topic_partition import CONSUMER_OFFSETS_TOPIC, TopicPartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_admin import DescribedGroup
from fencepost.protocol.messages.group_membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    MemberIdentity,
    SyncGroupRequest,
)
from tests.support.group_broker import GroupBroker
from tests.support.memory_topics import INTERNAL_PARTITION_COUNT, MemoryLog

ORDERS = TopicPartition("orders", 0)
STRANGER = Committer()
PARTITION = partition_for_key("g", INTERNAL_PARTITION_COUNT)


@pytest.fixture
async def broker() -> AsyncIterator[GroupBroker]:
    async with GroupBroker() as made:
        yield made


async def commit(
    broker: GroupBroker, offset: int, *, group_id: str = "g", committer: Committer = STRANGER
) -> ErrorCode:
    errors = await broker.groups.commit_offsets(
        group_id,
        committer,
        [OffsetToCommit(ORDERS, broker.topic_id("orders"), offset, -1, "")],
        retention_time_ms=-1,
    )
    return errors if isinstance(errors, ErrorCode) else errors[0]


async def commit_in_transaction(broker: GroupBroker, offset: int, *, error: ErrorCode = ErrorCode.NONE) -> ErrorCode:
    async def verify(topic_partition: TopicPartition) -> ErrorCode:
        assert topic_partition == TopicPartition(CONSUMER_OFFSETS_TOPIC, PARTITION)
        return error

    errors = await broker.groups.commit_offsets_in_transaction(
        "g",
        Committer(),
        [OffsetToCommit(ORDERS, broker.topic_id("orders"), offset, -1, "")],
        transactional_id="tx",
        producer_id=7,
        producer_epoch=3,
        is_transaction_version_2=True,
        verify=verify,
    )
    return errors if isinstance(errors, ErrorCode) else errors[0]


async def committed(broker: GroupBroker, *, require_stable: bool = True) -> int | ErrorCode:
    fetched = await broker.groups.fetch_offsets("g", [ORDERS], require_stable=require_stable)
    assert isinstance(fetched, list)
    return fetched[0].offset if fetched[0].error is ErrorCode.NONE else fetched[0].error


def offsets_log(broker: GroupBroker) -> MemoryLog:
    return broker.topics.logs[TopicPartition(CONSUMER_OFFSETS_TOPIC, PARTITION)]


def end_transaction(broker: GroupBroker, *, is_committed: bool) -> None:
    offsets_log(broker).append_marker(
        producer_id=7, producer_epoch=4, committed=is_committed, coordinator_epoch=0, transaction_version=2, now_ms=0
    )


# Life


async def test_before_the_topic_exists_requests_are_sent_elsewhere_and_there_are_no_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fencepost.broker.coordination.runtime.MAX_LOAD_WAIT_S", 0.0)
    broker = GroupBroker()
    await broker.start(create=False)
    assert await commit(broker, 5) is ErrorCode.NOT_COORDINATOR
    assert await broker.groups.fetch_offsets("g", None, require_stable=True) is ErrorCode.NOT_COORDINATOR
    assert await broker.groups.list_groups() == []
    await broker.topics.ensure_internal(CONSUMER_OFFSETS_TOPIC)
    async with broker.groups._runtime._load_turn:  # as if other partitions were being loaded
        assert await commit(broker, 5) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await broker.groups.list_groups() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await broker.groups.ensure_loaded()
    assert await commit(broker, 5) is ErrorCode.NONE
    await broker.groups.close()


async def test_heartbeats_are_fine_while_their_group_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.broker.coordination.runtime.MAX_LOAD_WAIT_S", 0.0)
    broker = GroupBroker()
    await broker.start(create=False)
    await broker.topics.ensure_internal(CONSUMER_OFFSETS_TOPIC)
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    async with broker.groups._runtime._load_turn:  # as if other partitions were being loaded
        assert await broker.groups.heartbeat(request) is ErrorCode.NONE
    await broker.groups.ensure_loaded()
    assert await broker.groups.heartbeat(request) is ErrorCode.UNKNOWN_MEMBER_ID
    await broker.groups.close()


async def test_offsets_and_members_survive_a_restart(broker: GroupBroker) -> None:
    member_id = await broker.stable_member()
    assert await commit(broker, 5, committer=Committer(1, member_id)) is ErrorCode.NONE
    await broker.restart()
    assert await committed(broker) == 5
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    assert await broker.groups.heartbeat(request) is ErrorCode.NONE


async def test_one_commit_is_one_batch(broker: GroupBroker) -> None:
    offsets = [
        OffsetToCommit(TopicPartition("orders", partition), bytes(16), 1, -1, "") for partition in (0, 1, 0, 1, 0)
    ]
    await broker.groups.commit_offsets("g", Committer(), offsets, retention_time_ms=-1)
    assert len(offsets_log(broker).batches) == 1
    assert offsets_log(broker).log_end_offset == 5


# Durability


async def test_a_commit_is_answered_when_it_is_durable(broker: GroupBroker) -> None:
    gate = offsets_log(broker).flush_gate
    gate.clear()
    writing = asyncio.create_task(commit(broker, 5))
    reading = asyncio.create_task(committed(broker))
    await asyncio.sleep(0.01)
    assert not writing.done()
    assert not reading.done(), "what is read must not be lost either"
    gate.set()
    assert await writing is ErrorCode.NONE
    assert await reading == 5


async def test_a_disk_that_fails_is_reported_to_writers_and_waiters(broker: GroupBroker) -> None:
    await broker.stable_member()
    waiting = asyncio.create_task(broker.join(version=3))
    await asyncio.sleep(0)
    offsets_log(broker).disk_failed = True
    assert await commit_in_transaction(broker, 5) is ErrorCode.NOT_COORDINATOR
    assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
    assert await broker.groups.list_groups() == []


async def test_a_commit_that_the_log_refuses_changes_nothing(broker: GroupBroker) -> None:
    assert await commit(broker, 5) is ErrorCode.NONE
    offsets_log(broker).refusal = ErrorCode.MESSAGE_TOO_LARGE
    assert await commit(broker, 6) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert await committed(broker) == 5


async def test_many_offsets_are_deleted_in_several_batches_and_each_has_its_error(broker: GroupBroker) -> None:
    topic_id = broker.topic_id("orders")
    partitions = [TopicPartition("orders", number) for number in range(2_500)]
    for begin in range(0, len(partitions), 500):
        offsets = [OffsetToCommit(at, topic_id, 1, -1, "") for at in partitions[begin : begin + 500]]
        await broker.groups.commit_offsets("g", STRANGER, offsets, retention_time_ms=-1)
    batch_count = len(offsets_log(broker).batches)
    assert await broker.groups.delete_offsets("g", partitions) == [ErrorCode.NONE] * 2_500
    assert len(offsets_log(broker).batches) > batch_count + 1
    assert await broker.groups.delete_offsets("g", partitions) is ErrorCode.GROUP_ID_NOT_FOUND


async def test_offsets_of_a_deleted_topic_go_even_if_the_log_refuses_that_at_first(
    broker: GroupBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "FIRST_REFUSED_WORK_PAUSE_S", 0.001)
    await commit(broker, 5)
    offsets_log(broker).refusal = ErrorCode.KAFKA_STORAGE_ERROR
    deleted = broker.topics.metadata.get("orders")
    assert deleted is not None
    broker.topics.metadata.remove("orders")
    broker.groups._topic_deleted(deleted)
    await asyncio.sleep(0.02)
    assert await committed(broker) == 5
    offsets_log(broker).refusal = ErrorCode.NONE
    async with asyncio.timeout(60):
        await asyncio.gather(*broker.groups._tasks)
    assert await committed(broker) == -1


# Waiting


async def test_followers_get_their_assignment_even_if_the_leader_disconnects_before_its_own(
    broker: GroupBroker,
) -> None:
    first = await broker.join()
    joining = asyncio.create_task(broker.join())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    again = await broker.join(member_id=first.member_id)
    second = await joining
    assert again.generation_id == second.generation_id == 2
    following = asyncio.create_task(
        broker.groups.sync_group(SyncGroupRequest(group_id="g", generation_id=2, member_id=second.member_id))
    )
    await asyncio.sleep(0)
    gate = offsets_log(broker).flush_gate
    gate.clear()
    leading = asyncio.create_task(
        broker.groups.sync_group(SyncGroupRequest(group_id="g", generation_id=2, member_id=first.member_id))
    )
    await asyncio.sleep(0.01)
    leading.cancel()
    await asyncio.sleep(0)
    assert not following.done()
    gate.set()
    assert (await following).error_code == ErrorCode.NONE


async def test_a_member_whose_connection_breaks_while_it_joins_does_not_hold_the_others_up(broker: GroupBroker) -> None:
    member_id = await broker.stable_member()
    joining = asyncio.create_task(broker.join(version=3))
    await asyncio.sleep(0.01)
    joining.cancel()
    await asyncio.gather(joining, return_exceptions=True)
    await asyncio.sleep(0)
    joined = await broker.join(member_id=member_id)
    assert [member.member_id for member in joined.members] == [member_id]


async def test_an_assignment_that_is_too_large_sends_everybody_back_to_join(broker: GroupBroker) -> None:
    first = await broker.join()
    joining = asyncio.create_task(broker.join())
    await asyncio.sleep(0.01)
    await broker.join(member_id=first.member_id)
    second = await joining
    following = asyncio.create_task(
        broker.groups.sync_group(SyncGroupRequest(group_id="g", generation_id=2, member_id=second.member_id))
    )
    await asyncio.sleep(0)
    offsets_log(broker).refusal = ErrorCode.MESSAGE_TOO_LARGE
    request = SyncGroupRequest(group_id="g", generation_id=2, member_id=first.member_id)
    assert (await broker.groups.sync_group(request)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert (await following).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    heartbeat = HeartbeatRequest(group_id="g", generation_id=2, member_id=second.member_id)
    assert await broker.groups.heartbeat(heartbeat) is ErrorCode.REBALANCE_IN_PROGRESS


async def test_a_silent_member_is_removed_by_the_timer(broker: GroupBroker) -> None:
    member_id = await broker.stable_member()
    broker.clock.time_ms += 9_990
    await broker.groups.heartbeat(HeartbeatRequest(group_id="g", generation_id=1, member_id="made-up"))
    await broker.restart()  # timers are those of the loop, so let the new ones be short
    broker.clock.time_ms += 10_000
    (partition,) = [each for each in broker.groups._runtime.partitions() if each.index == PARTITION]
    broker.groups._runtime._deadline_reached(partition)
    await asyncio.sleep(0.01)
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    assert await broker.groups.heartbeat(request) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_leaving_is_answered_member_by_member(broker: GroupBroker) -> None:
    member_id = await broker.stable_member()
    response = await broker.groups.leave_group(
        "g", [MemberIdentity(member_id=member_id), MemberIdentity(member_id="m")]
    )
    assert [member.error_code for member in response.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]


async def test_closing_ends_requests_that_wait() -> None:
    broker = GroupBroker()
    await broker.start()
    await broker.stable_member()
    waiting = asyncio.create_task(broker.join(version=3))
    await asyncio.sleep(0.01)
    await broker.groups.close()
    assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR


async def test_every_new_member_gets_an_id_of_its_own() -> None:
    broker = GroupBroker()
    broker.groups = GroupService(
        cast("Any", broker.topics),
        broker.settings,
        broker.clock,
        new_member_id_suffix=lambda: str(uuid4()),
        group_configs=broker.group_configs,
    )
    await broker.start()
    request = JoinGroupRequest(group_id="g", session_timeout_ms=10_000, protocol_type="consumer")
    request.protocols = [JoinGroupRequestProtocol(name="range")]
    ids = {(await broker.call(request)).member_id for _ in range(3)}
    assert len(ids) == 3
    assert all(member_id.startswith("app-") for member_id in ids)
    await broker.groups.close()


# Deleted topics


async def test_offsets_go_with_their_topic(broker: GroupBroker) -> None:
    await commit(broker, 5)
    broker.topics.remove("orders")
    await asyncio.sleep(0.01)
    assert await committed(broker) == -1
    assert await broker.groups.list_groups() == []


async def test_offsets_of_a_topic_deleted_just_before_a_crash_go_at_the_next_start(broker: GroupBroker) -> None:
    await commit(broker, 5)
    broker.topics.on_deleted.clear()
    broker.topics.remove("orders")
    broker.topics.on_deleted.append(broker.groups._topic_deleted)
    assert await committed(broker) == 5
    await broker.restart()
    assert await committed(broker) == -1


async def test_offsets_do_not_pass_on_to_a_new_topic_of_the_same_name(broker: GroupBroker) -> None:
    await commit(broker, 5)
    broker.topics.remove("orders")
    recreated = broker.topics.add("orders", 2)
    object.__setattr__(recreated, "topic_id", b"another id here.")
    assert await commit(broker, 6, group_id="other") is ErrorCode.NONE
    await asyncio.sleep(0.01)
    assert await committed(broker) == -1
    fetched = await broker.groups.fetch_offsets("other", None, require_stable=True)
    assert isinstance(fetched, list)
    assert [offset.offset for offset in fetched] == [6]


# Transactions


@pytest.mark.parametrize(("is_committed", "offset"), [(True, 9), (False, 5)])
async def test_a_marker_in_the_log_decides_about_offsets(broker: GroupBroker, is_committed: bool, offset: int) -> None:
    await commit(broker, 5)
    assert await commit_in_transaction(broker, 9) is ErrorCode.NONE
    assert await committed(broker) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert await committed(broker, require_stable=False) == 5
    end_transaction(broker, is_committed=is_committed)
    assert await committed(broker) == offset
    await broker.restart()
    assert await committed(broker) == offset


async def test_a_transaction_ends_after_a_restart(broker: GroupBroker) -> None:
    await commit_in_transaction(broker, 9)
    await broker.restart()
    assert await committed(broker) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    end_transaction(broker, is_committed=True)
    assert await committed(broker) == 9


async def test_a_transaction_is_verified_only_when_the_log_asks_for_it(broker: GroupBroker) -> None:
    guard = object()
    offsets_log(broker).verification = guard
    assert await commit_in_transaction(broker, 9, error=ErrorCode.TRANSACTION_ABORTABLE) is (
        ErrorCode.TRANSACTION_ABORTABLE
    )
    assert offsets_log(broker).batches == []
    assert await commit_in_transaction(broker, 9) is ErrorCode.NONE
    assert offsets_log(broker).guards == [guard]
    offsets_log(broker).verification = None
    assert await commit_in_transaction(broker, 9, error=ErrorCode.TRANSACTION_ABORTABLE) is ErrorCode.NONE
    offsets_log(broker).verification = ErrorCode.INVALID_PRODUCER_EPOCH
    assert await commit_in_transaction(broker, 9) is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE])
async def test_the_logs_check_of_the_producer_is_the_reply(broker: GroupBroker, error: ErrorCode) -> None:
    offsets_log(broker).refusal = error
    assert await commit_in_transaction(broker, 9) is error
    assert await committed(broker) == -1


# Administration


async def test_a_group_is_described_listed_and_deleted(broker: GroupBroker) -> None:
    await commit(broker, 5)
    listed = await broker.groups.list_groups()
    assert isinstance(listed, list)
    assert [group.group_id for group in listed] == ["g"]
    described = await broker.groups.describe_group("g")
    assert isinstance(described, DescribedGroup)
    assert described.group_state == "Empty"
    unknown = await broker.groups.describe_group("unknown")
    assert isinstance(unknown, HeartbeatRefusal)
    assert unknown.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert await broker.groups.delete_group("g") is ErrorCode.NONE
    assert await broker.groups.delete_group("g") is ErrorCode.GROUP_ID_NOT_FOUND
