"""Nodes whose logs an engine keeps: take-overs within transactions, zombies, engines that are away, leases."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.cluster.tail import tail_log
from fencepost.broker.cluster.tail.tail_store import PartitionToRestore, RestoredRemoteLog
from fencepost.broker.coordination import runtime
from fencepost.broker.hosting import topics
from fencepost.broker.hosting.peers import PeerUnreachable
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory import log_closing
from fencepost.broker.storage.disk import NoRoomError, StorageError
from fencepost.broker.storage.local_disk import LocalFile
from fencepost.protocol.errors import NO_PROBLEM, ErrorCode
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.group_membership import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
)
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.metadata import MetadataRequest
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.cluster.processes.members import ask
from tests.broker.supervision.planting import until
from tests.support.captured_events import capture_logs
from tests.support.cluster import COORDINATOR, DATA, TOPIC
from tests.support.engine_cluster import EngineCluster, running_engine_cluster
from tests.support.handler_context import NOW_MS, batch
from tests.support.simulated_engine import EngineFaults, EngineSession, SimulatedEngine

ID = "tx"
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
DATA_0, DATA_1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EngineCluster]:
    async with running_engine_cluster(tmp_path, SimulatedEngine()) as cluster:
        yield cluster


def produce(value: bytes, timeout_ms: int = 5_000, acks: int = -1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=batch(value))
    return ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])]
    )


def error_of(response: Any) -> ErrorCode:
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


# Take-overs


@pytest.mark.parametrize("lost", [COORDINATOR, DATA])
async def test_a_transaction_survives_the_loss_of_its_coordinator_or_its_leader(
    cluster: EngineCluster, lost: int
) -> None:
    heir = COORDINATOR + DATA - lost
    before = await cluster.init(ID)
    assert await cluster.produce(ID, before, DATA_0, b"committed", version=12) == 0
    ended = await cluster.end(ID, before, committed=True, version=5)
    assert ended.error_code == 0
    await until(lambda: cluster.state(ID) == "COMPLETE_COMMIT")
    producer = before._replace(producer_epoch=ended.producer_epoch)
    assert await cluster.produce(ID, producer, DATA_0, b"in the middle", version=12) == 0
    cluster.freeze(lost)
    cluster.members[lost].session.is_cut_off = True
    await cluster.take_over(lost, heir)
    coordinator, data = (heir, DATA) if lost == COORDINATOR else (COORDINATOR, heir)
    await cluster.nodes[heir].services.transactions.ensure_loaded()
    assert await cluster.produce(ID, producer, DATA_1, b"after", version=12, node_id=data) == 0
    assert (await cluster.end(ID, producer, committed=True, version=5, node_id=coordinator)).error_code == 0
    assert await cluster.values(DATA_0, 2, node_id=data) == [b"committed", b"in the middle"]
    assert await cluster.values(DATA_1, 1, node_id=data) == [b"after"]


async def test_a_zombie_acknowledges_nothing_and_resigns(cluster: EngineCluster) -> None:
    assert error_of(await cluster.send(DATA, produce(b"before"), 9)) is ErrorCode.NONE
    cluster.freeze(DATA)
    await cluster.take_over(DATA, COORDINATOR)
    answer = await cluster.send(DATA, produce(b"by the zombie"), 9)
    assert error_of(answer) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.members[DATA].resigned_for == "another node has taken over"
    assert error_of(await cluster.send(COORDINATOR, produce(b"after"), 9)) is ErrorCode.NONE
    assert await cluster.values(DATA_0, 2, node_id=COORDINATOR) == [b"before", b"after"]
    assert all(not log.is_offline for log in cluster.nodes[DATA].services.topics.directory.logs())


async def test_a_node_that_comes_back_starts_from_the_engine_alone(cluster: EngineCluster) -> None:
    assert error_of(await cluster.send(DATA, produce(b"one"), 9)) is ErrorCode.NONE
    await cluster.stop(DATA)
    await cluster.take_over(DATA, COORDINATOR)
    assert error_of(await cluster.send(COORDINATOR, produce(b"two"), 9)) is ErrorCode.NONE
    await cluster.start(DATA)
    cluster.table.place(DATA_0, DATA)
    await until(lambda: cluster.nodes[DATA].services.topics.log(DATA_0) is not None)
    assert await cluster.values(DATA_0, 2) == [b"one", b"two"]
    assert error_of(await cluster.send(DATA, produce(b"three"), 9)) is ErrorCode.NONE


async def test_what_a_full_disk_does_not_let_a_node_restore_is_served_once_there_is_room(
    cluster: EngineCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "FIRST_READMISSION_PAUSE_S", 0.02)
    assert error_of(await cluster.send(DATA, produce(b"before"), 9)) is ErrorCode.NONE
    beginning = f"{cluster.scratch(COORDINATOR)}/{TOPIC}-0/"
    heir = cluster.nodes[COORDINATOR].services.topics
    with capture_logs() as lines:
        with monkeypatch.context() as full:
            full.setattr(LocalFile, "append", refusing(LocalFile.append, lambda path: path.startswith(beginning)))
            cluster.freeze(DATA)
            cluster.engine.raise_fence(DATA)
            cluster.table.place(DATA_0, COORDINATOR)
            await until(lambda: [line["event"] for line in lines].count("partition_admission_failed") > 1)
            assert heir.log(DATA_0) is None
            assert error_of(await cluster.send(COORDINATOR, produce(b"not yet"), 9)) is NOT_LEADER
        await until(lambda: heir.log(DATA_0) is not None)
    failed = next(line for line in lines if line["event"] == "partition_admission_failed")
    assert "free space" in failed["remedy"]
    assert "tried again by itself" in failed["remedy"]
    assert error_of(await cluster.send(COORDINATOR, produce(b"after"), 9)) is ErrorCode.NONE
    assert await cluster.values(DATA_0, 2, node_id=COORDINATOR) == [b"before", b"after"]


async def test_added_partitions_that_a_full_disk_refuses_are_served_once_there_is_room(
    cluster: EngineCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "FIRST_READMISSION_PAUSE_S", 0.02)
    hosted = cluster.nodes[DATA].services.topics
    assert await hosted.create("small", 1, {}) == NO_PROBLEM
    with monkeypatch.context() as full:
        beginning = f"{cluster.scratch(DATA)}/small-1/"
        full.setattr(LocalFile, "append", refusing(LocalFile.append, lambda path: path.startswith(beginning)))
        assert await hosted.add_partitions("small", 2) == NO_PROBLEM
        assert hosted.log(TopicPartition("small", 1)) is None
    await until(lambda: hosted.log(TopicPartition("small", 1)) is not None)


async def test_while_an_object_of_one_partition_is_away_others_are_led_and_topics_change(
    cluster: EngineCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "FIRST_READMISSION_PAUSE_S", 0.02)
    heir = cluster.nodes[COORDINATOR].services.topics
    restore = EngineSession.restore
    away = {DATA_0}

    async def restore_what_is_there(
        session: EngineSession, wanted: Mapping[TopicPartition, PartitionToRestore]
    ) -> Mapping[TopicPartition, RestoredRemoteLog | StorageError]:
        found = dict(await restore(session, wanted))
        return found | {name: StorageError("its object cannot be had now") for name in wanted.keys() & away}

    monkeypatch.setattr(EngineSession, "restore", restore_what_is_there)
    with capture_logs() as lines:
        cluster.freeze(DATA)
        cluster.engine.raise_fence(DATA)
        for name in (DATA_0, DATA_1):
            cluster.table.place(name, COORDINATOR)
        await until(lambda: [line["event"] for line in lines].count("partition_admission_failed") > 1)
        assert heir.log(DATA_0) is None
        assert heir.log(DATA_1) is not None
        async with asyncio.timeout(10):
            assert await heir.create("small", 1, {}) == NO_PROBLEM
            assert await heir.alter_configs("small", {"retention.ms": "1000"}) == NO_PROBLEM
            assert await heir.delete("small") is ErrorCode.NONE
        away.clear()
        await until(lambda: heir.log(DATA_0) is not None)
    reasons = {line["reason"] for line in lines if line["event"] == "partition_admission_failed"}
    assert reasons == {"its object cannot be had now"}


def refusing(append: Callable[..., Any], is_refused: Callable[[str], bool]) -> Callable[..., Any]:
    """Appends to files, of which some find the disk full."""

    def refuse(file: LocalFile, *contents: Any) -> Any:
        if is_refused(file.path):
            raise NoRoomError(errno.ENOSPC, "No space left on device", file.path)
        return append(file, *contents)

    return refuse


# An engine that is away


async def test_a_produce_waits_as_long_as_its_client_allows_and_the_records_stay(cluster: EngineCluster) -> None:
    cluster.engine.begin_fail_over()
    late = await cluster.send(DATA, produce(b"late", timeout_ms=50), 9)
    assert error_of(late) is ErrorCode.REQUEST_TIMED_OUT
    patient = asyncio.ensure_future(cluster.send(DATA, produce(b"patient"), 9))
    await asyncio.sleep(0.05)
    assert not patient.done()
    cluster.engine.end_fail_over()
    assert error_of(await patient) is ErrorCode.NONE
    assert await cluster.values(DATA_0, 2) == [b"late", b"patient"]


async def test_a_coordinator_does_not_let_its_clients_wait_for_an_engine_that_stays_away(
    cluster: EngineCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is undone: the client's retry finds what it had asked for."""
    monkeypatch.setattr(runtime, "LONGEST_COMMIT_WAIT_S", 0.05)
    producer = await cluster.init(ID)
    assert await cluster.produce(ID, producer, DATA_0, b"one", version=12) == 0
    cluster.engine.begin_fail_over()
    ended = await cluster.end(ID, producer, committed=True, version=5)
    assert ended.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    cluster.engine.end_fail_over()
    await until(lambda: cluster.state(ID) == "COMPLETE_COMMIT")
    assert (await cluster.end(ID, producer, committed=True, version=5)).error_code == 0
    assert await cluster.values(DATA_0, 1) == [b"one"]


async def test_a_join_that_waits_for_others_is_answered_though_the_engine_stays_away(
    cluster: EngineCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = cluster.nodes[DATA]
    await cluster.send(DATA, OFFSET_FETCH, 9)
    groups = node.services.groups
    index = groups._partition_index("group")
    other = next(f"other-{n}" for n in range(100) if groups._partition_index(f"other-{n}") == index)

    async def send(request: Any, version: int) -> Any:
        """Over a connection of its own: a request that waits holds up those behind it."""
        return await ask(node.address.host, node.address.port, request, version)

    joining = JoinGroupRequest(
        group_id="group",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        group_instance_id="one",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    joined = asyncio.ensure_future(send(joining, 5))
    await until(lambda: groups._runtime.partition(index).parked)
    monkeypatch.setattr(runtime, "LONGEST_COMMIT_WAIT_S", 0.05)
    cluster.engine.begin_fail_over()
    offsets = OffsetCommitRequestTopic(name=TOPIC, partitions=[OffsetCommitRequestPartition(committed_offset=0)])
    committed = await send(OffsetCommitRequest(group_id=other, topics=[offsets]), 7)
    assert committed.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not joined.done()
    leaving = LeaveGroupRequest(group_id="group", members=[MemberIdentity(group_instance_id="one")])
    left = await send(leaving, 3)
    assert left.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await joined).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    cluster.engine.end_fail_over()
    await until(lambda: groups._runtime.durable_shard(index))
    assert (await send(leaving, 3)).members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID, "it had left"


async def test_a_stop_does_not_wait_for_an_engine_that_stays_away(
    cluster: EngineCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_closing, "LONGEST_LAST_FLUSH_S", 0.1)
    cluster.engine.begin_fail_over()
    unanswered = asyncio.ensure_future(cluster.send(DATA, produce(b"lost"), 9))
    await until(lambda: cluster.members[DATA].shared_log.is_waiting)
    await cluster.stop(DATA)
    assert "last_flush_not_committed" in caplog.text
    assert (await asyncio.gather(unanswered, return_exceptions=True))[0] is not None
    cluster.engine.end_fail_over()


async def test_a_stop_commits_what_no_reply_waited_for(cluster: EngineCluster) -> None:
    log = cluster.nodes[DATA].services.topics.log(DATA_0)
    assert log is not None
    assert log.append(memoryview(batch(b"one")), now_ms=NOW_MS).error is ErrorCode.NONE
    await cluster.stop(DATA)
    await cluster.take_over(DATA, COORDINATOR)
    assert await cluster.values(DATA_0, 1, node_id=COORDINATOR) == [b"one"]


async def test_many_produces_that_arrive_together_keep_to_their_time(cluster: EngineCluster) -> None:
    await cluster.send(DATA, produce(b"0"), 9)
    cluster.engine.begin_fail_over()
    answers = await asyncio.gather(*(cluster.send(DATA, produce(b"%d" % n, timeout_ms=100), 9) for n in range(20)))
    assert {error_of(answer) for answer in answers} == {ErrorCode.REQUEST_TIMED_OUT}
    cluster.engine.end_fail_over()
    assert len(await cluster.values(DATA_0, 21)) == 21


async def test_clients_that_send_more_than_is_committed_have_to_wait(
    cluster: EngineCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_log, "MOST_UNFLUSHED_BYTES", 5_000)
    cluster.engine.begin_fail_over()
    log = cluster.nodes[DATA].services.topics.log(DATA_0)
    assert log is not None
    sent = [asyncio.ensure_future(cluster.send(DATA, produce(b"x" * 1_000), 9)) for _ in range(30)]
    await until(lambda: log.log_end_offset >= 5)
    await asyncio.sleep(0.1)
    assert log.log_end_offset < 15
    cluster.engine.end_fail_over()
    assert {error_of(answer) for answer in await asyncio.gather(*sent)} == {ErrorCode.NONE}
    assert log.high_watermark == 30


async def test_transactions_go_through_an_engine_that_loses_connections(tmp_path: Path) -> None:
    engine = SimulatedEngine(random.Random(5))
    async with running_engine_cluster(tmp_path, engine) as cluster:
        engine.faults = EngineFaults(0.001, lost_replies=0.2, refusals=0.2)
        producer = await cluster.init(ID)
        for number in range(10):
            while error := await cluster.produce(ID, producer, DATA_0, b"%d" % number, version=12):
                assert error == ErrorCode.CONCURRENT_TRANSACTIONS, "the one before is being completed"
            ended = await cluster.end(ID, producer, committed=number % 3 != 0, version=5)
            assert ended.error_code == 0
            producer = producer._replace(producer_epoch=ended.producer_epoch)
        wanted = [b"%d" % number for number in range(10) if number % 3]
        assert await cluster.values(DATA_0, len(wanted)) == wanted


# Leases

FETCH = FetchRequest(
    topics=[FetchTopic(topic=TOPIC, partitions=[FetchPartition(partition=0, partition_max_bytes=1_000)])]
)
LIST_OFFSETS = ListOffsetsRequest(
    replica_id=-1,
    topics=[ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])],
)
OFFSET_FETCH = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="group")])


@pytest.mark.parametrize(("request_", "version"), [(FETCH, 12), (LIST_OFFSETS, 5), (OFFSET_FETCH, 9)])
async def test_what_is_answered_from_memory_needs_the_lease(
    cluster: EngineCluster, request_: Any, version: int
) -> None:
    await cluster.send(DATA, request_, version)
    cluster.members[DATA].has_lease = False
    with pytest.raises(PeerUnreachable):
        await cluster.send(DATA, request_, version)
    assert len((await cluster.send(DATA, MetadataRequest(topics=None), 9)).topics) == 4
    cluster.members[DATA].has_lease = True
    await cluster.send(DATA, request_, version)


async def test_a_fetch_that_waits_is_not_answered_after_the_lease(cluster: EngineCluster) -> None:
    waiting = FetchRequest(max_wait_ms=200, min_bytes=1, topics=FETCH.topics)
    answer = asyncio.ensure_future(cluster.send(DATA, waiting, 12))
    await asyncio.sleep(0.02)
    cluster.members[DATA].has_lease = False
    with pytest.raises(PeerUnreachable):
        await answer


async def test_a_committed_write_is_acknowledged_whatever_the_lease(cluster: EngineCluster) -> None:
    cluster.members[DATA].has_lease = False
    assert error_of(await cluster.send(DATA, produce(b"one"), 9)) is ErrorCode.NONE


# Settings


async def test_acknowledgements_wait_for_the_engine_whatever_the_topic_asks_for(
    cluster: EngineCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.nodes[DATA].services.topics.create("hasty", 1, {"flush.messages": "1000"})
    assert "flush_interval_ignored topic='hasty'" in caplog.text
    log = cluster.nodes[DATA].services.topics.log(TopicPartition("hasty", 0))
    assert log is not None
    assert log.config.is_durable
