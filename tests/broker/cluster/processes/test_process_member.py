"""Nodes that share a data directory: directories of partitions follow their leaders, and nothing begins anew."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.cluster.leases import lease_store
from fencepost.broker.cluster.leases.lease_store import LeaseStore
from fencepost.broker.cluster.leases.lease_table import NodeEvent, PartitionLease
from fencepost.broker.cluster.processes import process_member
from fencepost.broker.cluster.processes.node_directories import checkpointed, lease_lock, node_directory
from fencepost.broker.cluster.processes.process_member import KEEPING
from fencepost.broker.handlers.configs import ResourceType
from fencepost.broker.hosting import store_poll as store_poll
from fencepost.broker.hosting import topics
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel import supervision
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.directory_files import RECOVERY_POINT_FILE
from fencepost.broker.log.directory.last_leader_state import LastLeaderState
from fencepost.broker.log.files.checkpoints import encode_offsets
from fencepost.broker.log.files.offset_checkpoint import LOG_START_FILE
from fencepost.broker.log.files.partition_files import PartitionFiles
from fencepost.broker.metadata import shared_sqlite
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.metadata.sqlite import FILE_NAME
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.protocol.errors import NO_PROBLEM, ErrorCode
from fencepost.protocol.messages.cluster import DescribeTopicPartitionsRequest, TopicRequest
from fencepost.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.cluster.processes.members import NAMES, Members, ask, orders_on_two
from tests.broker.supervision.planting import logged, plants, raising, unforeseen, until
from tests.support.captured_events import capture_logs
from tests.support.handler_context import NOW_MS, batch


async def test_what_a_node_leaves_another_takes_over_with_its_records(members: Members) -> None:
    await orders_on_two(members)
    assert {members.leader_id(name) for name in NAMES} == {1, 2}
    await members.stop(1)
    await members.all_served()
    assert members.ends() == [1] * 8
    await members.write(b"b")
    assert all(members.has_directory(2, name) for name in NAMES)
    assert not any(members.has_directory(1, name) for name in NAMES)
    await members.start(1)
    await until(lambda: any(members.leader_id(name) == 1 for name in NAMES))
    await until(lambda: not members.members[2].placement.due_moves())
    await members.all_served()
    assert members.ends() == [2] * 8


async def test_what_could_not_be_served_is_served_once_the_disk_lets_it(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "FIRST_READMISSION_PAUSE_S", 0.05)
    await orders_on_two(members)
    left = [name for name in NAMES if members.leader_id(name) == 1]
    rename = LocalDisk.rename

    def refused(disk: LocalDisk, source: str, target: str) -> None:
        if "/node.1/orders-" in source:
            raise StorageError(errno.ENOSPC, "no space left")
        rename(disk, source, target)

    with capture_logs() as lines:
        with monkeypatch.context() as full:
            full.setattr(LocalDisk, "rename", refused)
            await members.stop(1)
            await until(lambda: [line["event"] for line in lines].count("partition_admission_failed") > 2 * len(left))
            assert [members.leader_id(name) for name in left] == [None] * len(left)
        await members.all_served()
    assert members.ends() == [1] * 8
    await members.write(b"b")


async def test_a_planned_move_leaves_nothing_to_recover(members: Members) -> None:
    await orders_on_two(members)
    name = next(name for name in NAMES if members.leader_id(name) == 1)
    with capture_logs() as lines:
        await members.members[2].placement.choose({name: 2})
        await until(lambda: members.leader_id(name) == 2)
    log = members.log(name)
    assert log is not None
    assert (log.high_watermark, log.leader_epoch) == (1, 1)
    assert "log_recovered" not in {line["event"] for line in lines}
    assert members.members[2].placement.last_state(name) == (1, 0, True)


async def test_moves_under_load_lose_nothing_and_leave_no_log_damaged(members: Members) -> None:
    """A writer keeps the log that it has found, as a request does that waits for something else before it appends."""
    await orders_on_two(members)
    acknowledged = dict.fromkeys(NAMES, 1)
    is_over = False

    async def write(name: TopicPartition) -> None:
        while not is_over:
            log = members.log(name)
            await asyncio.sleep(0)
            with contextlib.suppress(StorageError):
                while log is not None and not is_over:
                    log.append(memoryview(batch(b"x")), now_ms=NOW_MS)
                    await log.flushed()
                    acknowledged[name] += 1
            await asyncio.sleep(0.001)

    writers = [asyncio.create_task(write(name)) for name in NAMES]
    try:
        with capture_logs() as lines:
            for node_id in (1, 2, 1):
                before = dict(acknowledged)
                await members.members[1].placement.choose(dict.fromkeys(NAMES, node_id))
                await until(lambda: {members.leader_id(name) for name in NAMES} == {node_id})  # noqa: B023  # at once
                await until(lambda: all(acknowledged[name] > before[name] for name in NAMES))  # noqa: B023
    finally:
        is_over = True
        await asyncio.wait(writers, timeout=10)
    assert {line["event"] for line in lines} <= {
        "partitions_handed_over",
        "partition_directory_brought",
        "partition_led",
    }
    for name, count in acknowledged.items():
        log = members.log(name)
        assert log is not None
        assert log.log_end_offset >= count


async def test_deleted_records_stay_deleted_where_the_partition_goes(members: Members) -> None:
    await orders_on_two(members)
    await members.write(b"b")
    led = [name for name in NAMES if members.leader_id(name) == 1]
    await members.nodes[1].services.topics.delete_records(dict.fromkeys(led, 1))
    await members.stop(1)
    await members.all_served()
    assert [log.log_start_offset for name in led if (log := members.log(name)) is not None] == [1] * len(led)


async def test_a_directory_that_is_lost_is_not_begun_anew(members: Members) -> None:
    await orders_on_two(members)
    name = next(name for name in NAMES if members.leader_id(name) == 1)
    await members.stop(1)
    await until(lambda: members.leader_id(name) == 2)
    await members.stop(2)
    shutil.rmtree(f"{node_directory(members.directory, 2)}/{name}")
    with capture_logs() as lines:
        await members.start(2)
    (line,) = [line for line in lines if line["event"] == "partition_directory_missing"]
    assert TopicPartition(line["topic"], line["partition"]) == name
    assert members.leader_id(name) is None
    assert not members.has_directory(2, name)
    assert members.ends().count(1) == 7


async def test_what_each_node_has_created_is_recorded(members: Members) -> None:
    await orders_on_two(members)
    for member in members.members.values():
        placement = member.placement
        await until(lambda: all(placement.is_created(name) for name in NAMES))  # noqa: B023  # awaited at once


async def test_what_no_node_has_created_is_created_by_the_next_leader(members: Members) -> None:
    await orders_on_two(members)
    await members.stop(1)
    await members.all_served()
    await members.stop(2)
    store = LeaseStore(f"{members.directory}/{FILE_NAME}")
    await store.open()
    await store.create_topic(TopicMetadata("late", b"l" * 16, 1))  # no node is there to create its directory
    await store.close()
    node = await members.start(2)
    assert node.services.topics.log(TopicPartition("late", 0)) is not None
    assert members.ends() == [1] * 8


async def test_a_directory_of_an_earlier_topic_is_not_taken_for_the_new_one(members: Members) -> None:
    await orders_on_two(members)
    await members.stop(1)
    await members.all_served()
    name = NAMES[0]
    directories = [node_directory(members.directory, node_id) for node_id in (1, 2)]
    shutil.copytree(f"{directories[1]}/{name}", f"{directories[0]}/{name}")
    await members.nodes[2].services.topics.delete("orders")
    await members.nodes[2].services.topics.create("orders", len(NAMES), {})
    await members.all_served()
    assert members.ends() == [0] * 8
    assert members.has_directory(1, name)


def topic_id_of(topics: Topics) -> bytes:
    topic = topics.metadata.get("orders")
    assert topic is not None
    return topic.topic_id


async def test_a_node_that_is_busy_serves_nothing_of_a_topic_that_was_deleted_and_created_again(
    members: Members,
) -> None:
    await orders_on_two(members)
    one, two = (members.nodes[node_id].services.topics for node_id in (1, 2))
    async with two._changing:  # as long as an admission waits for the store of the logs
        assert await one.delete("orders") is ErrorCode.NONE
        assert await one.create("orders", len(NAMES), {}) == NO_PROBLEM
        created = one.metadata.get("orders")
        assert created is not None
        await until(lambda: {two.placement.topic_id(name) for name in NAMES} == {created.topic_id})
        led = [name for name in NAMES if two.placement.is_local(name)]
        assert led
        for name in led:
            assert two.log(name) is None
            assert two.error_of_absent_log(name) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await members.all_served()
    assert members.ends() == [0] * len(NAMES)
    assert {log.topic_id for name in NAMES if (log := members.log(name)) is not None} == {created.topic_id}


async def test_offsets_of_a_topic_that_was_created_again_are_refused_or_kept_by_a_busy_coordinator(
    members: Members,
) -> None:
    await orders_on_two(members)
    await members.nodes[1].services.topics.ensure_internal("__consumer_offsets")
    offsets = TopicPartition("__consumer_offsets", 0)
    await until(lambda: members.leader_id(offsets) is not None)
    busy_id = members.leader_id(offsets)
    assert busy_id is not None
    two, one = members.nodes[busy_id].services, members.nodes[3 - busy_id].services
    await until(lambda: two.groups.is_available and not two.groups.is_loading)
    group_id = next(name for name in map(str, range(99)) if two.groups._partition_index(name) == 0)
    request = OffsetCommitRequest(
        group_id=group_id,
        topics=[OffsetCommitRequestTopic(name="orders", partitions=[OffsetCommitRequestPartition(0, 5)])],
    )
    async with two.topics._changing:  # as long as an admission waits for the store of the logs
        assert await one.topics.delete("orders") is ErrorCode.NONE
        assert await one.topics.create("orders", len(NAMES), {}) == NO_PROBLEM
        await until(lambda: two.topics.placement.topic_id(NAMES[0]) == topic_id_of(one.topics))
        answer = (await members.ask(busy_id, request, 8)).topics[0].partitions[0]
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await until(lambda: two.topics.metadata.get("orders") is not None)
    answer = (await members.ask(busy_id, request, 8)).topics[0].partitions[0]
    assert answer.error_code == ErrorCode.NONE
    await until(lambda: not two.groups._tasks)
    fetched = await two.groups.fetch_offsets(group_id, [NAMES[0]], require_stable=True)
    assert isinstance(fetched, list)
    assert [one.offset for one in fetched] == [5]


async def test_a_log_that_is_made_while_its_topic_is_created_again_is_not_served(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = (await members.start(1)).services.topics
    two = (await members.start(2)).services.topics
    arrivals = one._hosted._arrivals
    assert arrivals is not None
    created = arrivals.created

    async def created_again(topic_ids: Mapping[TopicPartition, bytes]) -> None:
        monkeypatch.setattr(arrivals, "created", created)
        await until(lambda: two.metadata.get("orders") is not None)
        assert await two.delete("orders") is ErrorCode.NONE
        assert await two.create("orders", len(NAMES), {}) == NO_PROBLEM
        await until(lambda: {one.placement.topic_id(name) for name in NAMES} == {topic_id_of(two)})
        await created(topic_ids)

    monkeypatch.setattr(arrivals, "created", created_again)
    assert await one.create("orders", len(NAMES), {}) == NO_PROBLEM
    await members.all_served()
    assert {log.topic_id for name in NAMES if (log := members.log(name)) is not None} == {topic_id_of(two)}


DESCRIPTIONS: Mapping[str, tuple[Any, int]] = {
    "all topics": (MetadataRequest(topics=None, allow_auto_topic_creation=False), 9),
    "by name": (MetadataRequest(topics=[MetadataRequestTopic(name="orders")], allow_auto_topic_creation=False), 9),
    "pages of all topics": (DescribeTopicPartitionsRequest(), 0),
    "pages by name": (DescribeTopicPartitionsRequest(topics=[TopicRequest(name="orders")]), 0),
    "configs": (
        DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=ResourceType.TOPIC, resource_name="orders")]
        ),
        4,
    ),
}


@pytest.mark.parametrize(("asked", "version"), DESCRIPTIONS.values(), ids=DESCRIPTIONS)
async def test_a_node_describes_a_topic_as_soon_as_another_has_created_it(
    members: Members, monkeypatch: pytest.MonkeyPatch, asked: Any, version: int
) -> None:
    monkeypatch.setattr(shared_sqlite, "POLL_INTERVAL_S", 60.0)
    monkeypatch.setattr(store_poll, "LONGEST_WAIT_S", 60.0)  # a busy machine may need longer than a request waits
    one = await members.start(1)
    await members.start(2)
    await one.services.topics.create("orders", len(NAMES), {})
    reply = await members.ask(2, asked, version)
    if isinstance(asked, DescribeConfigsRequest):
        assert [(result.error_code, result.resource_name) for result in reply.results] == [(ErrorCode.NONE, "orders")]
    else:
        assert [(topic.name, len(topic.partitions)) for topic in reply.topics] == [("orders", len(NAMES))]


async def test_a_leader_knows_its_partition_as_soon_as_another_node_has_created_the_topic(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_sqlite, "POLL_INTERVAL_S", 60.0)
    monkeypatch.setattr(store_poll, "LONGEST_WAIT_S", 60.0)  # a busy machine may need longer than a request waits
    one = await members.start(1)
    await members.start(2)
    await one.services.topics.create("orders", len(NAMES), {})
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(len(NAMES))]
    asked = ListOffsetsRequest(topics=[ListOffsetsTopic(name="orders", partitions=partitions)])
    (topic,) = (await members.ask(2, asked, 7)).topics
    errors = {partition.error_code for partition in topic.partitions}
    assert errors <= {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER}


OFFSETS = {
    "committed": (
        OffsetCommitRequest(
            group_id="group",
            topics=[OffsetCommitRequestTopic("orders", partitions=[OffsetCommitRequestPartition(0, 3)])],
        ),
        8,
    ),
    "committed in a transaction": (
        TxnOffsetCommitRequest(
            transactional_id="transaction",
            group_id="group",
            topics=[TxnOffsetCommitRequestTopic("orders", partitions=[TxnOffsetCommitRequestPartition(0, 3)])],
        ),
        3,
    ),
    "deleted": (
        OffsetDeleteRequest("group", [OffsetDeleteRequestTopic("orders", [OffsetDeleteRequestPartition(0)])]),
        0,
    ),
}


@pytest.mark.parametrize(("asked", "version"), OFFSETS.values(), ids=OFFSETS)
async def test_a_node_looks_for_a_topic_before_it_refuses_offsets_of_it(
    members: Members, monkeypatch: pytest.MonkeyPatch, asked: Any, version: int
) -> None:
    monkeypatch.setattr(shared_sqlite, "POLL_INTERVAL_S", 60.0)
    one = await members.start(1)
    two = await members.start(2)
    await one.services.topics.create("orders", len(NAMES), {})
    assert two.services.topics.metadata.get("orders") is None
    reply = await members.ask(2, asked, version)
    errors = {partition.error_code for topic in reply.topics for partition in topic.partitions}
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION not in errors
    assert two.services.topics.metadata.get("orders") is not None


async def test_every_node_names_the_same_leaders_on_the_listener_that_is_asked(members: Members) -> None:
    await orders_on_two(members)
    nodes = members.nodes.items()
    addresses = {
        index: {node_id: (node.addresses[index].host, node.addresses[index].port) for node_id, node in nodes}
        for index in (0, 1)
    }
    leaders = [members.leader_id(name) for name in NAMES]
    request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
    for index, by_id in addresses.items():
        for node_id in members.nodes:
            answer = await ask(*addresses[index][node_id], request, 9)
            assert {broker.node_id: (broker.host, broker.port) for broker in answer.brokers} == by_id
            assert [partition.leader_id for partition in answer.topics[0].partitions] == leaders


async def test_a_second_process_of_one_node_is_refused(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_member, "LONGEST_WAIT_FOR_LEASE_S", 0.05)
    await members.start(1)
    with pytest.raises(StorageError, match=r"node\.1 is in use by another process"):
        await Members(Path(members.directory)).start(1)


@plants(KEEPING)
@unforeseen
async def test_take_overs_go_on_after_an_unforeseen_failure(
    error: BaseException, members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "FIRST_RETRY_PAUSE_S", 0.001)
    await orders_on_two(members)
    member = members.members[2]
    with logged(KEEPING) as lines:
        monkeypatch.setattr(member, "_absent", raising(error, times=1, then=member._absent))
        await until(lambda: lines)
        await members.stop(1)
        await members.all_served()


async def test_a_lease_stays_locked_until_its_take_over_is_stored_also_if_the_node_that_takes_over_stops(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the lost node could start, and lose its partitions to a change that was decided before."""
    await orders_on_two(members)
    may_store, is_storing, store_event = threading.Event(), threading.Event(), lease_store.store_event

    def slowly(database: Any, node_id: int, event: NodeEvent, **options: Any) -> bool:
        if event is NodeEvent.LOST:
            is_storing.set()
            may_store.wait()
        return store_event(database, node_id, event, **options)

    monkeypatch.setattr(lease_store, "store_event", slowly)
    await members.stop(1)
    await until(is_storing.is_set)
    resting = asyncio.create_task(members.members[2].rest())
    try:
        _, late = await asyncio.wait((resting,), timeout=0.1)
        assert late, "it does not wait for its take-over"
        with lease_lock(LocalDisk(), members.directory, 1) as is_free:
            assert not is_free
    finally:
        may_store.set()
    await resting
    with lease_lock(LocalDisk(), members.directory, 1) as is_free:
        assert is_free
    await members.members[2].placement.refresh()
    assert members.members[2].placement.known.table.led_by(1) == []


async def test_what_a_node_knew_of_an_earlier_topic_is_not_applied_to_a_new_one_of_that_name(members: Members) -> None:
    """A node was away while the topic was deleted and created anew, and its checkpoint is older."""
    await orders_on_two(members)
    await members.write(b"b")
    led = [name for name in NAMES if members.leader_id(name) == 1]
    await members.nodes[1].services.topics.delete_records(dict.fromkeys(led, 2))
    await members.stop(1)
    await members.all_served()
    topics = members.nodes[2].services.topics
    await topics.delete("orders")
    await topics.create("orders", len(NAMES), {})
    await members.write(b"c")
    await members.start(1)
    await members.members[2].placement._store.choose(dict.fromkeys(led, 1))
    await until(lambda: {members.leader_id(name) for name in led} == {1})
    logs = [log for name in led if (log := members.log(name)) is not None]
    assert {(log.log_start_offset, log.log_end_offset, log.is_offline) for log in logs} == {(0, 1, False)}


def test_a_checkpoint_counts_for_a_directory_of_that_topic_that_is_there(tmp_path: Path) -> None:
    disk, directory = LocalDisk(), str(tmp_path)
    here, of_another, elsewhere = NAMES[:3]
    (tmp_path / RECOVERY_POINT_FILE).write_bytes(encode_offsets({here: 7, of_another: 8, elsewhere: 9}))
    (tmp_path / LOG_START_FILE).write_bytes(encode_offsets({here: 3, of_another: 4, elsewhere: 5}))
    for name, topic_id in ((here, b"n" * 16), (of_another, b"o" * 16)):
        (tmp_path / str(name)).mkdir()
        PartitionFiles(disk, f"{directory}/{name}").write_topic_id(topic_id).close()
    leases = {name: PartitionLease(b"n" * 16, 1) for name in NAMES}
    assert checkpointed(disk, directory, leases) == {here: LastLeaderState(7, 3)}
    assert checkpointed(disk, directory, {}) == {}
