"""Partitions that are assigned to several brokers: one replica, led by the first that lives."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.metadata.shared_sqlite import prepare_shared
from fencepost.broker.metadata.sqlite import FILE_NAME
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
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
from tests.broker.cluster.processes.members import Members
from tests.broker.supervision.planting import until

NAMES = [TopicPartition("assigned", number) for number in range(3)]
INVALID = ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.fixture
async def members(tmp_path: Path) -> AsyncIterator[Members]:
    """Nodes 1 and 2, which accept any factor, and node 3, which is gone."""
    await prepare_shared(str(tmp_path / FILE_NAME))
    made = Members(tmp_path)
    made.any_factor = True
    for node_id in (1, 2, 3):
        await made.start(node_id)
    await made.stop(3)
    await until(lambda: {one.node_id for one in made.members[1].placement.nodes() if one.is_alive} == {1, 2})
    yield made
    for node_id in list(made.nodes):
        await made.stop(node_id)


async def create(members: Members, replicas: list[list[int]]) -> tuple[int, str | None]:
    assigned = [CreatableReplicaAssignment(number, brokers) for number, brokers in enumerate(replicas)]
    (result,) = (await members.ask(1, CreateTopicsRequest([CreatableTopic("assigned", -1, -1, assigned)]), 7)).topics
    return result.error_code, result.error_message


async def move(members: Members, replicas: list[int]) -> tuple[int, str | None]:
    wanted = ReassignableTopic("assigned", [ReassignablePartition(0, replicas)])
    reply = await members.ask(1, AlterPartitionReassignmentsRequest(topics=[wanted]), 1)
    (answer,) = reply.responses[0].partitions
    return answer.error_code, answer.error_message


async def test_the_first_named_broker_that_lives_leads(members: Members) -> None:
    assert await create(members, [[2, 1], [3, 1]]) == (ErrorCode.NONE, None)
    grown = CreatePartitionsTopic("assigned", 3, [CreatePartitionsAssignment([3, 2])])
    (result,) = (await members.ask(1, CreatePartitionsRequest([grown]), 3)).results
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
    await until(lambda: [members.leader_id(name) for name in NAMES] == [2, 1, 2])
    assert await move(members, [3, 1, 2]) == (ErrorCode.NONE, None)
    await until(lambda: members.leader_id(NAMES[0]) == 1)


@pytest.mark.parametrize(
    ("replicas", "reason"),
    [
        ([], "an empty replica list."),
        ([1, 7], "broker 7, but no such broker is registered."),
        ([1, 2, 1], "the broker 1 more than once."),
        ([3], "fenced or in controlled shutdown."),
    ],
)
async def test_what_kafka_refuses_is_refused_in_its_words(members: Members, replicas: list[int], reason: str) -> None:
    error, message = await create(members, [replicas])
    assert error == INVALID
    assert message is not None
    assert message.endswith(reason)
    assert await create(members, [[1]]) == (ErrorCode.NONE, None)
    assert await move(members, replicas) == (INVALID, message)


async def test_partitions_of_a_request_have_equally_many_replicas(members: Members) -> None:
    error, message = await create(members, [[1, 2], [1]])
    assert error == INVALID
    assert message is not None
    assert message.endswith(
        "1 replica(s), but this is not consistent with previous partitions, which have 2 replica(s)."
    )
