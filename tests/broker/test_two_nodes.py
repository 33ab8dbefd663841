"""Coordinator and partition leader on different nodes: transactions over real sockets, with what can go wrong between
the two.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.kernel.topic_partition import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.broker.transaction.metadata import Producer
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import DescribeClusterRequest
from fencepost.protocol.messages.coordinators import FindCoordinatorRequest
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.group_admin import ListGroupsRequest
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.markers import WriteTxnMarkersRequest
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.transaction_admin import ListTransactionsRequest
from fencepost.protocol.messages.transactions import AddPartitionsToTxnRequest
from tests.broker.supervision.planting import until
from tests.support.cluster import COORDINATOR, DATA, GROUP, NODE_IDS, TOPIC, Cluster, running_cluster

ID = "tx"
DATA_0, DATA_1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
STATES = [TopicPartition(TRANSACTION_STATE_TOPIC, index) for index in range(2)]
OFFSETS = [TopicPartition(CONSUMER_OFFSETS_TOPIC, index) for index in range(2)]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with running_cluster(tmp_path) as cluster:
        yield cluster


# Transactions that cross


@pytest.mark.parametrize("committed", [True, False])
async def test_a_version_2_transaction_is_opened_and_ended_across_nodes(cluster: Cluster, committed: bool) -> None:
    producer = await cluster.init(ID)
    assert await cluster.produce(ID, producer, DATA_0, b"a", version=12) == 0
    assert await cluster.produce(ID, producer, DATA_1, b"b", version=12) == 0
    assert await cluster.fetch(DATA_0) == (0, [])
    assert cluster.state(ID) == "ONGOING"
    ended = await cluster.end(ID, producer, committed=committed, version=5)
    assert (ended.error_code, ended.producer_epoch) == (0, producer.producer_epoch + 1)
    await until(lambda: cluster.state(ID) == ("COMPLETE_COMMIT" if committed else "COMPLETE_ABORT"))
    assert await cluster.fetch(DATA_0) == (0, [b"a"] if committed else [])
    assert await cluster.fetch(DATA_1) == (0, [b"b"] if committed else [])
    questions = cluster.peers[DATA].sent_of(AddPartitionsToTxnRequest)
    assert [question.transactions[0].verify_only for question in questions] == [False, False]
    (markers,) = cluster.peers[COORDINATOR].sent_of(WriteTxnMarkersRequest)
    (marker,) = markers.markers
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [(TOPIC, [0, 1])]
    assert (marker.producer_epoch, marker.transaction_version) == (producer.producer_epoch + 1, 2)


async def test_a_version_1_transaction_is_verified_and_ended_across_nodes(cluster: Cluster) -> None:
    producer = await cluster.init(ID)
    assert await cluster.produce(ID, producer, DATA_0, b"early", version=9) == ErrorCode.INVALID_TXN_STATE
    assert await cluster.add_partitions(ID, producer, DATA_0) == 0
    assert await cluster.produce(ID, producer, DATA_0, b"a", version=9) == 0
    assert await cluster.produce(ID, producer, DATA_0, b"b", version=9, base_sequence=1) == 0
    assert (await cluster.end(ID, producer, committed=True, version=1)).error_code == 0
    assert await cluster.values(DATA_0, 2) == [b"a", b"b"]
    questions = cluster.peers[DATA].sent_of(AddPartitionsToTxnRequest)
    assert [question.transactions[0].verify_only for question in questions] == [True, True], "the last needed none"


@pytest.mark.parametrize(("version", "committed"), [(3, True), (3, False), (5, True), (5, False)])
async def test_offsets_are_committed_in_a_transaction_that_lives_on_another_node(
    cluster: Cluster, version: int, committed: bool
) -> None:
    producer = await cluster.init(ID)
    if version == 3:
        assert await cluster.commit_offset(ID, producer, 7, version=3) == ErrorCode.INVALID_TXN_STATE
        assert await cluster.add_offsets(ID, producer) == 0
    assert await cluster.commit_offset(ID, producer, 42, version=version) == 0
    assert await cluster.committed_offset() == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    ended = await cluster.end(ID, producer, committed=committed, version=5 if version == 5 else 1)
    assert ended.error_code == 0
    await until(lambda: cluster.state(ID).startswith("COMPLETE"))
    assert await cluster.committed_offset() == (0, 42 if committed else -1)


async def test_a_fenced_producer_is_refused_by_the_leader_that_asks_another_node(cluster: Cluster) -> None:
    zombie = await cluster.init(ID)
    await cluster.init(ID)
    assert await cluster.produce(ID, zombie, DATA_0, b"z", version=12) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await cluster.commit_offset(ID, zombie, 1, version=5) == ErrorCode.INVALID_PRODUCER_EPOCH
    unknown = Producer(zombie.producer_id + 1, 0)
    assert await cluster.produce(ID, unknown, DATA_0, b"u", version=12) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


# Where things are


async def test_every_node_reports_the_same_leaders_and_coordinators(cluster: Cluster) -> None:
    addresses = {node_id: (address.host, address.port) for node_id, address in cluster.table.alive.items()}
    for node_id in NODE_IDS:
        metadata = await cluster.send(node_id, MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 9)
        assert {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers} == addresses
        assert [partition.leader_id for partition in metadata.topics[0].partitions] == [DATA, DATA]
        assert [partition.replica_nodes for partition in metadata.topics[0].partitions] == [[DATA], [DATA]]
        described = await cluster.send(node_id, DescribeClusterRequest(), 0)
        assert {broker.broker_id: (broker.host, broker.port) for broker in described.brokers} == addresses
        for key, key_type, coordinator in ((ID, 1, COORDINATOR), (GROUP, 0, DATA)):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            (found,) = (await cluster.send(node_id, request, 4)).coordinators
            assert (found.error_code, found.node_id, (found.host, found.port)) == (
                0,
                coordinator,
                addresses[coordinator],
            )


async def test_lists_are_refused_while_one_of_their_partitions_has_no_leader(cluster: Cluster) -> None:
    """A client asks all nodes, and would take what they list for all that there is."""

    async def errors() -> list[tuple[int, int]]:
        asked = (ListTransactionsRequest(), 0), (ListGroupsRequest(), 4)
        return [
            tuple([(await cluster.send(node_id, request, version)).error_code for request, version in asked])
            for node_id in NODE_IDS
        ]

    await cluster.init(ID)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await errors() == [(0, 0)] * 2
    cluster.table.place(STATES[0], None)
    assert await errors() == [(loading, 0)] * 2
    cluster.table.place(STATES[0], COORDINATOR)
    cluster.table.place(OFFSETS[1], None)
    services = cluster.node(COORDINATOR).services
    await until(lambda: services.topics.log(STATES[0]) is not None and not services.transactions.is_loading)
    assert await errors() == [(0, loading)] * 2


@pytest.mark.parametrize(
    ("moving", "request_", "version"),
    [(STATES[0], ListTransactionsRequest(), 0), (OFFSETS[0], ListGroupsRequest(), 4)],
    ids=["transactions", "groups"],
)
async def test_a_node_looks_for_moves_before_it_lists(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, moving: TopicPartition, request_: Any, version: int
) -> None:
    async def follow() -> None:
        cluster.table.place(moving, None)

    monkeypatch.setattr(cluster.node(DATA).services.topics._store, "follow", follow)
    await cluster.init(ID)
    listed = await cluster.send(DATA, request_, version)
    assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_a_list_is_refused_while_a_partition_arrives(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await cluster.init(ID)
    topics = cluster.node(COORDINATOR).services.topics
    monkeypatch.setattr(topics, "_admit_arriving", asyncio.Event().wait)
    cluster.table.place(STATES[0], None)
    cluster.table.place(STATES[0], COORDINATOR)
    arriving, elsewhere = [
        (await cluster.send(node_id, ListTransactionsRequest(), 0)).error_code for node_id in (COORDINATOR, DATA)
    ]
    assert (arriving, elsewhere) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE)


async def test_a_node_refuses_what_another_one_leads(cluster: Cluster) -> None:
    producer = await cluster.init(ID)
    elsewhere = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await cluster.produce(ID, producer, DATA_0, b"a", version=12, node_id=COORDINATOR) == elsewhere
    assert await cluster.fetch(DATA_0, node_id=COORDINATOR) == (elsewhere, [])
    nowhere = TopicPartition(TOPIC, 2)
    assert await cluster.fetch(nowhere, node_id=COORDINATOR) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    listing = ListOffsetsRequest(
        topics=[ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
    )
    listed = await cluster.send(COORDINATOR, listing, 7)
    assert listed.topics[0].partitions[0].error_code == elsewhere
    not_coordinator = ErrorCode.NOT_COORDINATOR
    assert (await cluster.end(ID, producer, committed=True, version=5, node_id=DATA)).error_code == not_coordinator
    assert await cluster.committed_offset(COORDINATOR) == (not_coordinator, -1)
    assert await cluster.commit_offset(ID, producer, 1, version=5, node_id=COORDINATOR) == not_coordinator


async def test_topics_created_grown_and_deleted_on_one_node_are_so_on_the_other(cluster: Cluster) -> None:
    topics = cluster.node(COORDINATOR).services.topics
    others = cluster.node(DATA).services.topics
    assert (await topics.create("new", 1, {}))[0] is ErrorCode.NONE
    await until(lambda: others.log(TopicPartition("new", 0)) is not None)
    assert topics.log(TopicPartition("new", 0)) is None
    assert (await topics.add_partitions("new", 2))[0] is ErrorCode.NONE
    await until(lambda: others.log(TopicPartition("new", 1)) is not None)
    await topics.alter_configs("new", {"max.message.bytes": "1000"})
    await until(lambda: others.log_config("new").max_message_bytes == 1000)
    assert await topics.delete("new") is ErrorCode.NONE
    await until(lambda: others.metadata.get("new") is None)
    assert others.log(TopicPartition("new", 0)) is None
    assert not (cluster.directory / str(DATA) / "new-0").exists()


# Between the two


@pytest.mark.parametrize("what", ["request", "response"])
async def test_markers_are_sent_again_when_the_connection_breaks(cluster: Cluster, what: str) -> None:
    producer = await cluster.init(ID)
    assert await cluster.produce(ID, producer, DATA_0, b"a", version=12) == 0
    cluster.peers[COORDINATOR].lose_once(WriteTxnMarkersRequest, what)
    ended = await cluster.end(ID, producer, committed=True, version=5)
    assert ended.error_code == 0
    await until(lambda: cluster.state(ID) == "COMPLETE_COMMIT")
    assert len(cluster.peers[COORDINATOR].sent_of(WriteTxnMarkersRequest)) == 2
    producer = Producer(ended.producer_id, ended.producer_epoch)
    assert await cluster.produce(ID, producer, DATA_0, b"b", version=12) == 0
    assert (await cluster.end(ID, producer, committed=False, version=5)).error_code == 0
    await until(lambda: cluster.state(ID) == "COMPLETE_ABORT")
    assert await cluster.fetch(DATA_0) == (0, [b"a"])


@pytest.mark.parametrize(("version", "what"), [(9, "request"), (9, "response"), (12, "request"), (12, "response")])
async def test_a_verification_that_got_lost_is_retriable_for_every_client(
    cluster: Cluster, version: int, what: str
) -> None:
    producer = await cluster.init(ID)
    if version == 9:
        assert await cluster.add_partitions(ID, producer, DATA_0) == 0
    cluster.peers[DATA].lose_once(AddPartitionsToTxnRequest, what)
    assert await cluster.produce(ID, producer, DATA_0, b"a", version=version) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert await cluster.produce(ID, producer, DATA_0, b"a", version=version) == 0
    assert (await cluster.end(ID, producer, committed=True, version=5 if version == 12 else 1)).error_code == 0
    assert await cluster.values(DATA_0, 1) == [b"a"]
    cluster.peers[DATA].lose_once(AddPartitionsToTxnRequest, what)
    if version == 12:
        producer = Producer(producer.producer_id, producer.producer_epoch + 1)
        lost = await cluster.commit_offset(ID, producer, 1, version=5)
        assert lost == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await cluster.commit_offset(ID, producer, 1, version=5) == 0


async def test_transactions_go_on_while_connections_between_nodes_are_cut_over_and_over(cluster: Cluster) -> None:
    async def transact(transactional_id: str, partition: TopicPartition, count: int) -> None:
        producer = await cluster.init(transactional_id)
        for number in range(count):
            value = f"{transactional_id} {number}".encode()
            while await cluster.produce(transactional_id, producer, partition, value, version=12):  # noqa: ASYNC110
                await asyncio.sleep(0.001)  # as a client does between two tries
            ended = await cluster.end(transactional_id, producer, committed=number % 3 != 2, version=5)
            assert ended.error_code == 0
            producer = Producer(ended.producer_id, ended.producer_epoch)

    for peers in cluster.peers.values():
        peers.lose_every(3)
    await asyncio.gather(transact("x", DATA_0, 9), transact("y", DATA_1, 9))
    for name, partition in (("x", DATA_0), ("y", DATA_1)):
        await until(lambda name=name: cluster.state(name).startswith("COMPLETE"))  # type: ignore[misc]
        expected = [f"{name} {number}".encode() for number in range(9) if number % 3 != 2]
        assert await cluster.fetch(partition) == (0, expected)


async def test_a_node_that_restarts_elsewhere_is_found_again(cluster: Cluster) -> None:
    producer = await cluster.init(ID)
    assert await cluster.produce(ID, producer, DATA_0, b"a", version=12) == 0
    await cluster.stop(DATA)
    assert (await cluster.end(ID, producer, committed=True, version=5)).error_code == 0
    assert cluster.state(ID) == "PREPARE_COMMIT"
    await cluster.start(DATA)
    assert await cluster.values(DATA_0, 1) == [b"a"]
    await until(lambda: cluster.state(ID) == "COMPLETE_COMMIT")


async def test_a_coordinator_that_restarts_finishes_what_it_had_prepared_on_another_node(cluster: Cluster) -> None:
    producer = await cluster.init(ID)
    assert await cluster.produce(ID, producer, DATA_0, b"a", version=12) == 0
    cluster.peers[COORDINATOR].hold_markers()
    assert (await cluster.end(ID, producer, committed=True, version=5)).error_code == 0
    await cluster.stop(COORDINATOR)
    assert await cluster.fetch(DATA_0) == (0, [])
    await cluster.start(COORDINATOR)
    assert await cluster.values(DATA_0, 1) == [b"a"]


# Partitions without a leader, and such that move


async def test_markers_wait_for_a_partition_without_a_leader_and_for_no_other(cluster: Cluster) -> None:
    producer = await cluster.init(ID)
    for partition in (DATA_0, DATA_1):
        assert await cluster.produce(ID, producer, partition, b"a", version=12) == 0
    cluster.table.place(DATA_1, None)
    metadata = await cluster.send(COORDINATOR, MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 9)
    assert [(found.error_code, found.leader_id) for found in metadata.topics[0].partitions] == [
        (0, DATA),
        (ErrorCode.LEADER_NOT_AVAILABLE, -1),
    ]
    assert (await cluster.end(ID, producer, committed=True, version=5)).error_code == 0
    assert await cluster.values(DATA_0, 1) == [b"a"], "the partition that has a leader need not wait"
    assert cluster.state(ID) == "PREPARE_COMMIT"
    assert await cluster.fetch(DATA_1) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
    cluster.table.place(DATA_1, DATA)
    assert await cluster.values(DATA_1, 1) == [b"a"]
    await until(lambda: cluster.state(ID) == "COMPLETE_COMMIT")


async def test_a_topic_deleted_while_its_markers_wait_is_left_out(cluster: Cluster) -> None:
    producer = await cluster.init(ID)
    other = TopicPartition("other", 0)
    for partition in (DATA_0, other):
        assert await cluster.produce(ID, producer, partition, b"a", version=12) == 0
    cluster.table.place(other, None)
    assert (await cluster.end(ID, producer, committed=True, version=5)).error_code == 0
    await cluster.values(DATA_0, 1)
    assert cluster.state(ID) == "PREPARE_COMMIT"
    assert await cluster.node(DATA).services.topics.delete("other") is ErrorCode.NONE
    await until(lambda: cluster.state(ID) == "COMPLETE_COMMIT")
    assert not (cluster.directory / str(DATA) / "other-0").exists(), "also of a partition that it no longer led"


async def test_an_open_transaction_moves_with_its_partition(cluster: Cluster) -> None:
    producer = await cluster.init(ID)
    assert await cluster.produce(ID, producer, DATA_0, b"a", version=12) == 0
    await cluster.move(DATA_0, DATA, COORDINATOR)
    assert await cluster.produce(ID, producer, DATA_0, b"old leader", version=12) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    duplicate = await cluster.produce(ID, producer, DATA_0, b"a", version=12, node_id=COORDINATOR)
    assert duplicate == 0
    assert await cluster.produce(ID, producer, DATA_0, b"b", version=12, base_sequence=1, node_id=COORDINATOR) == 0
    assert (await cluster.end(ID, producer, committed=True, version=5)).error_code == 0
    assert await cluster.values(DATA_0, 2, node_id=COORDINATOR) == [b"a", b"b"]
    assert cluster.peers[COORDINATOR].sent_of(WriteTxnMarkersRequest) == []
    await cluster.move(DATA_0, COORDINATOR, DATA)
    assert await cluster.values(DATA_0, 2) == [b"a", b"b"]


async def test_a_waiting_fetch_is_answered_when_its_partition_moves_away(cluster: Cluster) -> None:
    request = FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        topics=[FetchTopic(topic=TOPIC, partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])],
    )
    waiting = asyncio.create_task(cluster.send(DATA, request, 12))
    log = cluster.node(DATA).services.topics.log(DATA_0)
    assert log is not None
    await until(lambda: len(log.watchers._callbacks) == 1)
    cluster.table.place(DATA_0, COORDINATOR)
    answer = (await waiting).responses[0].partitions[0]
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_pending_offsets_move_with_their_partition(cluster: Cluster) -> None:
    producer = await cluster.init(ID)
    assert await cluster.commit_offset(ID, producer, 42, version=5) == 0
    for partition in OFFSETS:
        await cluster.move(partition, DATA, COORDINATOR)
    await cluster.node(COORDINATOR).services.groups.ensure_loaded()
    assert await cluster.committed_offset(DATA) == (ErrorCode.NOT_COORDINATOR, -1)
    assert await cluster.committed_offset(COORDINATOR) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert (await cluster.end(ID, producer, committed=True, version=5)).error_code == 0
    await until(lambda: cluster.state(ID) == "COMPLETE_COMMIT")
    assert await cluster.committed_offset(COORDINATOR) == (0, 42)


async def test_a_coordinator_that_takes_over_finishes_in_a_higher_epoch(cluster: Cluster) -> None:
    producer = await cluster.init(ID)
    assert await cluster.produce(ID, producer, DATA_0, b"a", version=12) == 0
    cluster.peers[COORDINATOR].hold_markers()
    assert (await cluster.end(ID, producer, committed=True, version=5)).error_code == 0
    for partition in STATES:
        await cluster.move(partition, COORDINATOR, DATA)
    assert await cluster.values(DATA_0, 1) == [b"a"]
    await until(lambda: cluster.state(ID, DATA) == "COMPLETE_COMMIT")
    assert cluster.state(ID) == "NOT_COORDINATOR"
    log = cluster.node(DATA).services.topics.log(DATA_0)
    assert log is not None
    (state,) = log.active_producers(0)
    assert state.coordinator_epoch == 2, "without a leader, then elsewhere: two changes"


async def test_markers_of_a_deposed_coordinator_are_refused_and_it_gives_up(cluster: Cluster) -> None:
    producer = await cluster.init(ID)
    assert await cluster.produce(ID, producer, DATA_0, b"a", version=12) == 0
    gate = cluster.peers[COORDINATOR].hold_markers()
    assert (await cluster.end(ID, producer, committed=True, version=5)).error_code == 0
    cluster.views[COORDINATOR].pause_updates()  # cut off: it takes itself for the coordinator still
    for partition in STATES:
        cluster.copy_directory(partition, COORDINATOR, DATA)
        cluster.table.place(partition, DATA)
    await until(lambda: cluster.state(ID, DATA) == "COMPLETE_COMMIT")
    log = cluster.node(DATA).services.topics.log(DATA_0)
    assert log is not None
    end_offset = log.log_end_offset
    gate.set()
    await until(lambda: not cluster.node(COORDINATOR).services.transactions._completions)
    assert cluster.state(ID) == "PREPARE_COMMIT", "it has not completed what is no longer its own"
    assert log.log_end_offset == end_offset
    cluster.views[COORDINATOR].catch_up()
    assert cluster.state(ID) == "NOT_COORDINATOR"
    assert await cluster.values(DATA_0, 1) == [b"a"]


async def test_the_same_coordinator_elected_again_loads_anew_in_a_higher_epoch(cluster: Cluster) -> None:
    producer = await cluster.init(ID)
    assert await cluster.produce(ID, producer, DATA_0, b"a", version=12) == 0
    gate = cluster.peers[COORDINATOR].hold_markers()
    assert (await cluster.end(ID, producer, committed=False, version=5)).error_code == 0
    for partition in STATES:
        cluster.table.place(partition, COORDINATOR)
    gate.set()
    await until(lambda: cluster.state(ID) == "COMPLETE_ABORT")
    epochs = {request.markers[0].coordinator_epoch for request in cluster.peers[COORDINATOR].sent[-1:]}
    assert epochs == {1}


async def test_a_verified_write_is_refused_when_its_partition_was_led_anew_meanwhile(cluster: Cluster) -> None:
    producer = await cluster.init(ID)
    assert await cluster.add_partitions(ID, producer, DATA_0) == 0
    entered, gate = asyncio.Event(), asyncio.Event()

    async def interfere(_: object, proceed: Callable[[], Awaitable[object]]) -> object:
        entered.set()
        await gate.wait()
        return await proceed()

    cluster.peers[DATA].interfere = interfere
    writing = asyncio.create_task(cluster.produce(ID, producer, DATA_0, b"a", version=9))
    await entered.wait()
    cluster.table.place(DATA_0, DATA)
    gate.set()
    assert await writing == ErrorCode.INVALID_TXN_STATE


# Producer ids of others


@pytest.mark.parametrize("version", [9, 12])
@pytest.mark.parametrize("is_moved", [False, True])
async def test_nobody_writes_into_the_open_transaction_of_another_transactional_id(
    cluster: Cluster, version: int, is_moved: bool
) -> None:
    owner, stranger = await cluster.init(ID), await cluster.init("stranger")
    leader = DATA
    await cluster.add_partitions(ID, owner, DATA_0)
    assert await cluster.produce(ID, owner, DATA_0, b"a", version=version) == 0
    await cluster.add_partitions("stranger", stranger, DATA_0)
    if is_moved:  # what the old leader knew of the owner is gone
        leader = COORDINATOR
        await cluster.move(DATA_0, DATA, COORDINATOR)
    for epoch, sequence in ((0, 1), (0, 0), (32_000, 0)):
        forged = Producer(owner.producer_id, epoch)
        error = await cluster.produce(
            "stranger", forged, DATA_0, b"forged", version=version, base_sequence=sequence, node_id=leader
        )
        assert error == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    for sequence, value in enumerate((b"b", b"c"), 1):
        error = await cluster.produce(ID, owner, DATA_0, value, version=version, base_sequence=sequence, node_id=leader)
        assert error == 0
    assert (await cluster.end(ID, owner, committed=True, version=5 if version == 12 else 3)).error_code == 0
    assert await cluster.values(DATA_0, 3, node_id=leader) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("version", [9, 12])
async def test_a_stranger_that_names_a_producer_id_first_does_not_hold_its_owner_up(
    cluster: Cluster, version: int
) -> None:
    owner, stranger = await cluster.init(ID), await cluster.init("stranger")
    await cluster.add_partitions("stranger", stranger, DATA_0)
    for epoch, sequence in ((0, 0), (32_000, 0)):
        forged = Producer(owner.producer_id, epoch)
        error = await cluster.produce("stranger", forged, DATA_0, b"x", version=version, base_sequence=sequence)
        assert error == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    await cluster.add_partitions(ID, owner, DATA_0)
    for sequence in range(3):
        assert await cluster.produce(ID, owner, DATA_0, b"v", version=version, base_sequence=sequence) == 0


async def test_a_batch_outside_transactions_does_not_fence_the_owner_of_its_producer_id(cluster: Cluster) -> None:
    owner = await cluster.init(ID)

    async def forge(node_id: int) -> set[int]:
        forged = [Producer(owner.producer_id, epoch) for epoch in (owner.producer_epoch, 32_000)]
        return {
            await cluster.produce(None, one, DATA_0, b"forged", version=9, base_sequence=sequence, node_id=node_id)
            for one in forged
            for sequence in (0, 1)
            if (one.producer_epoch, sequence) != (32_000, 1)
        }

    await cluster.move(DATA_0, DATA, COORDINATOR)  # which knows its ids before they have written
    assert await forge(COORDINATOR) <= {ErrorCode.INVALID_TXN_STATE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
    assert await cluster.produce(ID, owner, DATA_0, b"a", version=12, node_id=COORDINATOR) == 0
    assert (await cluster.end(ID, owner, committed=True, version=5)).error_code == 0
    assert await cluster.values(DATA_0, 1, node_id=COORDINATOR) == [b"a"]
    await cluster.move(DATA_0, COORDINATOR, DATA)  # which knows it from the log
    owner = Producer(owner.producer_id, owner.producer_epoch + 1)
    assert await forge(DATA) <= {ErrorCode.INVALID_TXN_STATE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
    assert await cluster.produce(ID, owner, DATA_0, b"b", version=12) == 0
    assert (await cluster.end(ID, owner, committed=True, version=5)).error_code == 0
    assert await cluster.values(DATA_0, 2) == [b"a", b"b"]


@pytest.mark.parametrize("version", [3, 5])
async def test_nobody_commits_offsets_in_the_open_transaction_of_another_transactional_id(
    cluster: Cluster, version: int
) -> None:
    owner = await cluster.init(ID)
    await cluster.init("stranger")
    await cluster.add_offsets(ID, owner)
    assert await cluster.commit_offset(ID, owner, 5, version=version) == 0
    assert await cluster.commit_offset("stranger", owner, 77, version=version) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await cluster.commit_offset(ID, owner, 6, version=version) == 0
    assert (await cluster.end(ID, owner, committed=True, version=5)).error_code == 0
    await until(lambda: cluster.state(ID) == "COMPLETE_COMMIT")
    assert await cluster.committed_offset() == (0, 6)
