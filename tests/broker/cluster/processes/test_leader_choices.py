"""What administrators see of several nodes, and choose: over the wire, on whichever node they ask."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import Any

import pytest

from fencepost.broker.cluster.processes import process_member
from fencepost.broker.kernel.events import events_to
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.process import serve
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from fencepost.protocol.messages.cluster import (
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponsePartition,
    TopicRequest,
)
from fencepost.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from fencepost.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)
from tests.broker.cluster.processes.members import NAMES, Members, orders_on_two
from tests.broker.supervision.planting import logged, plants, raising, unforeseen, until
from tests.support.captured_events import capture_logs

SET, DELETE = 0, 1
BROKER = 4


async def move(
    members: Members, through: int, name: TopicPartition, replicas: list[int] | None
) -> tuple[ErrorCode, str | None]:
    wanted = ReassignableTopic(name.topic, [ReassignablePartition(name.partition, replicas)])
    reply = await members.ask(through, AlterPartitionReassignmentsRequest(topics=[wanted]), 1)
    (answer,) = reply.responses[0].partitions
    return ErrorCode(answer.error_code), answer.error_message


async def described(members: Members, through: int, name: TopicPartition) -> DescribeTopicPartitionsResponsePartition:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name.topic)])
    reply = await members.ask(through, request, 0)
    found: DescribeTopicPartitionsResponsePartition = reply.topics[0].partitions[name.partition]
    return found


async def drain(members: Members, node_id: int, *, over: bool = False, name: str | None = None) -> tuple[int, Any]:
    config = IncrementalAlterableConfig("fencepost.drain", DELETE if over else SET, None if over else "true")
    resource = IncrementalAlterConfigsResource(BROKER, str(node_id) if name is None else name, [config])
    reply = await members.ask(node_id, IncrementalAlterConfigsRequest([resource]), 1)
    (result,) = reply.responses
    return result.error_code, result.error_message


def led_by(members: Members, node_id: int) -> list[TopicPartition]:
    return [name for name in NAMES if members.leader_id(name) == node_id]


async def test_a_partition_is_led_by_the_node_that_was_chosen_until_the_choice_is_given_back(members: Members) -> None:
    await orders_on_two(members)
    name = led_by(members, 1)[0]
    assert (await described(members, 2, name)).chosen_leader == -1
    assert await move(members, 2, name, [2]) == (ErrorCode.NONE, None)
    await until(lambda: members.leader_id(name) == 2)
    for node_id in members.nodes:
        partition = await described(members, node_id, name)
        assert (partition.leader_id, partition.chosen_leader, partition.next_leader) == (2, 2, -1)
        assert partition.replica_nodes == [2]
    assert await move(members, 1, name, None) == (ErrorCode.NONE, None)
    await until(lambda: members.leader_id(name) == 1)
    assert (await move(members, 1, name, None))[0] is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


async def test_moves_that_are_due_are_listed_until_they_are_done(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    await orders_on_two(members)
    name, other = led_by(members, 1)[:2]
    member = members.members[1]
    monkeypatch.setattr(member.placement, "due_moves", lambda *_: [])  # it does not get to it
    await move(members, 1, name, [2])
    await until(lambda: members.members[2].placement.choice(name).chosen == 2)
    for topics in (None, [ListPartitionReassignmentsTopics("orders", [name.partition, other.partition])]):
        reply = await members.ask(2, ListPartitionReassignmentsRequest(topics=topics), 0)
        (topic,) = reply.topics
        (ongoing,) = topic.partitions
        assert (topic.name, ongoing.partition_index) == name
        assert (ongoing.replicas, ongoing.adding_replicas, ongoing.removing_replicas) == ([2, 1], [2], [1])
    assert (await described(members, 2, name)).next_leader == 2
    monkeypatch.undo()
    await move(members, 1, name, [2])
    await until(lambda: members.leader_id(name) == 2)
    assert (await members.ask(1, ListPartitionReassignmentsRequest(), 0)).topics == []


async def test_what_cannot_be_chosen_is_refused_with_the_reason(members: Members) -> None:
    await orders_on_two(members)
    name = led_by(members, 1)[0]
    invalid = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    unknown = "The manual partition assignment includes broker 7, but no such broker is registered."
    assert await move(members, 1, name, [7]) == (invalid, unknown)
    assert (await move(members, 1, name, [1, 2]))[0] is invalid
    assert (await move(members, 1, TopicPartition("orders", 99), [1]))[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await drain(members, 2)
    await until(lambda: state(members, 2) == "leaving")
    error, message = await move(members, 1, name, [2])
    assert error is invalid
    assert message is not None
    assert "Broker 2 is being drained" in message


async def test_a_choice_that_cannot_be_stored_is_answered_with_the_disks_error(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    await orders_on_two(members)
    monkeypatch.setattr(members.members[1].placement._store, "choose", raising(StorageError("a bad sector")))
    assert await move(members, 1, NAMES[0], [2]) == (ErrorCode.KAFKA_STORAGE_ERROR, "a bad sector")


async def test_a_choice_is_in_the_audit_log(members: Members) -> None:
    await orders_on_two(members)
    lines: list[Any] = []
    with events_to(lambda logger, level, event: lines.append(event) if event["event"] == "changed" else None):
        await move(members, 1, NAMES[0], [2])
        await move(members, 1, NAMES[0], None)
        await move(members, 1, NAMES[0], [7])
    assert [(line["api"], line["resource_name"], line["leaders"]) for line in lines] == [
        ("AlterPartitionReassignments", "orders", ["0: 2"]),
        ("AlterPartitionReassignments", "orders", ["0: any"]),
    ]


async def test_a_topic_is_led_by_the_nodes_that_it_is_assigned_to(members: Members) -> None:
    await orders_on_two(members)

    async def create(name: str, brokers: list[list[int]]) -> tuple[int, str | None]:
        assigned = [CreatableReplicaAssignment(number, replicas) for number, replicas in enumerate(brokers)]
        topic = CreatableTopic(name, -1, -1, assigned)
        (result,) = (await members.ask(1, CreateTopicsRequest([topic]), 7)).topics
        return result.error_code, result.error_message

    assert await create("assigned", [[2], [1], [2]]) == (0, None)
    await until(lambda: members.nodes[2].services.topics.metadata.get("assigned") is not None)
    grown = CreatePartitionsTopic("assigned", 5, [CreatePartitionsAssignment([1]), CreatePartitionsAssignment([2])])
    (result,) = (await members.ask(2, CreatePartitionsRequest([grown]), 3)).results
    assert (result.error_code, result.error_message) == (0, None)
    names = [TopicPartition("assigned", number) for number in range(5)]
    await until(lambda: [members.leader_id(name) for name in names] == [2, 1, 2, 1, 2])
    for brokers, reason in (([[7]], "broker 7, but no such broker is registered"), ([[1, 2]], "one replica here")):
        error, message = await create("refused", brokers)
        assert error == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert message is not None
        assert reason in message
    (result,) = (await members.ask(1, CreateTopicsRequest([CreatableTopic("refused", 1, 2)]), 7)).topics
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "one replica here" in result.error_message


async def test_a_node_that_is_drained_leads_nothing_until_it_is_resumed_and_keeps_that_over_a_restart(
    members: Members,
) -> None:
    await orders_on_two(members)
    assert led_by(members, 2)
    assert await drain(members, 2) == (0, None)
    await until(lambda: len(led_by(members, 1)) == len(NAMES))
    await members.stop(2)
    await members.start(2)
    await until(lambda: state(members, 2) == "leaving")
    await asyncio.sleep(0.1)
    assert len(led_by(members, 1)) == len(NAMES)
    await members.write(b"b")
    assert await drain(members, 2, over=True) == (0, None)
    await until(lambda: led_by(members, 2))
    await until(lambda: not members.members[1].placement.due_moves())
    await members.all_served()
    assert members.ends() == [2] * len(NAMES)


def state(members: Members, node_id: int) -> str:
    nodes = members.members[1].placement.nodes()
    return next(node.state for node in nodes if node.node_id == node_id)


async def test_a_drained_node_leads_if_no_other_is_there(members: Members) -> None:
    await orders_on_two(members)
    await drain(members, 2)
    await until(lambda: not led_by(members, 2))
    await members.stop(1)
    await members.all_served()
    assert len(led_by(members, 2)) == len(NAMES)


async def test_all_brokers_cannot_be_drained(members: Members) -> None:
    await orders_on_two(members)
    error, message = await drain(members, 1, name="")
    assert error == ErrorCode.INVALID_REQUEST
    assert "name one of them" in message


async def test_every_node_shows_the_states_and_listeners_of_all(members: Members) -> None:
    began_ms = time.time_ns() // 1_000_000
    await orders_on_two(members)
    listeners = {
        node_id: [("OTHER", *node.addresses[1][1:]), ("PLAINTEXT", *node.addresses[0][1:])]
        for node_id, node in members.nodes.items()
    }
    await drain(members, 2)
    await until(lambda: state(members, 2) == "leaving")
    for node_id in members.nodes:
        reply = await members.ask(node_id, DescribeClusterRequest(), 2)
        brokers = {broker.broker_id: broker for broker in reply.brokers}
        assert {each: broker.state for each, broker in brokers.items()} == {1: "alive", 2: "leaving"}
        assert all(began_ms <= broker.since_ms <= time.time_ns() // 1_000_000 for broker in brokers.values())
        found = {each: [(one.name, one.host, one.port) for one in broker.listeners] for each, broker in brokers.items()}
        assert found == listeners
    await members.stop(2)
    await until(lambda: state(members, 2) == "gone")
    assert [broker.broker_id for broker in (await members.ask(1, DescribeClusterRequest(), 2)).brokers] == [1]
    reply = await members.ask(1, DescribeClusterRequest(include_fenced_brokers=True), 2)
    assert [(broker.broker_id, broker.is_fenced, broker.state) for broker in reply.brokers] == [
        (1, False, "alive"),
        (2, True, "gone"),
    ]


async def test_a_node_that_stops_hands_over_first(members: Members) -> None:
    await orders_on_two(members)
    with capture_logs() as lines:
        await members.nodes[2].hand_all_over()
    assert members.members[2].placement.known.table.led_by(2) == []
    assert [line["partitions_left"] for line in lines if line["event"] == "handed_over_to_stop"] == [0]
    await members.all_served()
    assert len(led_by(members, 1)) == len(NAMES)


async def test_the_last_node_and_one_whose_time_is_up_stop_with_what_they_lead(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    await orders_on_two(members)
    monkeypatch.setattr(members.members[2].placement, "due_moves", lambda *_: [])  # it does not get to it
    node = members.nodes[2]
    node.settings = dataclasses.replace(node.settings, fencepost_shutdown_handover_ms=50)
    await members.nodes[2].hand_all_over()
    assert led_by(members, 2)
    await members.stop(2)
    await members.all_served()
    await members.nodes[1].hand_all_over()
    assert len(led_by(members, 1)) == len(NAMES)


@plants(serve.HAND_OVER)
@unforeseen
async def test_a_process_stops_also_if_handing_over_fails(
    error: BaseException, members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await members.start(1)
    stopping = asyncio.Event()
    monkeypatch.setattr(node, "hand_all_over", raising(error))
    with logged(serve.HAND_OVER) as lines:
        serve.HAND_OVER.start(serve._hand_over_and_stop(node, stopping))
        await until(lambda: stopping.is_set() and lines)


async def test_a_partition_whose_log_is_being_opened_moves_when_it_is_served_and_others_do_not_wait(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are open in a step that nobody else could end."""
    await orders_on_two(members)
    name, other = led_by(members, 1)[:2]
    topics, may_open = members.nodes[2].services.topics, asyncio.Event()
    serve = topics.directory.serve

    async def slowly(*about: Any) -> Any:
        await may_open.wait()
        return await serve(*about)

    monkeypatch.setattr(topics.directory, "serve", slowly)
    store = members.members[1].placement._store
    placement = members.members[2].placement
    await store.choose({name: 2})
    await until(lambda: placement.is_local(name))
    mine = led_by(members, 2)[0]
    await store.choose({name: 1, mine: 1})
    await until(lambda: mine in led_by(members, 1))
    await asyncio.sleep(2 * process_member.INTERVAL_S)
    assert placement.is_local(name), "it moved while it was being opened"
    may_open.set()
    await until(lambda: {name, other, mine} <= set(led_by(members, 1)))
