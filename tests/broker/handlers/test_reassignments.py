"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments where every partition has one replica."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from tests.support.handler_context import NODE_ID, HandlerBroker, open_broker

PREFERRED, UNCLEAN = 0, 1


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path) as opened:
        await opened.create_topic("orders", 2)
        yield opened


Elected = dict[tuple[str, int], tuple[ErrorCode, str | None]]


async def elect(
    broker: HandlerBroker, named: dict[str, list[int]] | None, election_type: int = PREFERRED, version: int = 2
) -> tuple[ErrorCode, Elected]:
    wanted = None if named is None else [TopicPartitions(topic=name, partitions=named[name]) for name in named]
    request = ElectLeadersRequest(election_type=election_type, topic_partitions=wanted, timeout_ms=1000)
    response = await broker.call(request, version)
    return ErrorCode(response.error_code), {
        (topic.topic, result.partition_id): (ErrorCode(result.error_code), result.error_message)
        for topic in response.replica_election_results
        for result in topic.partition_result
    }


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_partition_that_has_its_leader_needs_no_election(broker: HandlerBroker, version: int) -> None:
    _, elected = await elect(broker, {"orders": [0, 9], "nowhere": [0]}, version=version)
    assert elected == {
        ("orders", 0): (ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."),
        ("orders", 9): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as orders-9"),
        ("nowhere", 0): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as nowhere"),
    }


async def test_of_all_partitions_only_those_show_that_have_no_leader(broker: HandlerBroker) -> None:
    assert await elect(broker, None) == (ErrorCode.NONE, {})
    broker.log("orders", 1).give_up(StorageError("a bad sector"))
    _, elected = await elect(broker, None)
    assert [(name, outcome[0]) for name, outcome in elected.items()] == [
        (("orders", 1), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    ]
    _, elected = await elect(broker, {"orders": [1]}, UNCLEAN)
    assert elected["orders", 1][0] is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


async def test_an_unknown_kind_of_election_is_refused_everywhere(broker: HandlerBroker) -> None:
    error, elected = await elect(broker, {"orders": [0]}, 5)
    assert error is ErrorCode.INVALID_REQUEST
    assert elected == {("orders", 0): (ErrorCode.INVALID_REQUEST, "Unknown election type 5")}


async def reassign(
    broker: HandlerBroker, topic: str, partition: int, replicas: list[int] | None, version: int = 1
) -> tuple[ErrorCode, str | None]:
    wanted = ReassignablePartition(partition_index=partition, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=[wanted])])
    response = await broker.call(request, version)
    assert (response.error_code, response.error_message) == (0, None)
    (answered,) = response.responses
    (answer,) = answered.partitions
    assert (answered.name, answer.partition_index) == (topic, partition)
    return ErrorCode(answer.error_code), answer.error_message


@pytest.mark.parametrize("version", [0, 1])
async def test_a_partition_may_be_moved_to_where_it_is(broker: HandlerBroker, version: int) -> None:
    assert await reassign(broker, "orders", 0, [NODE_ID], version) == (ErrorCode.NONE, None)


@pytest.mark.parametrize(
    ("replicas", "error", "message"),
    [
        ([2], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes broker 2, but no such broker is registered."),
        ([NODE_ID, NODE_ID], ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"includes the broker {NODE_ID} more than once."),
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes an empty replica list."),
    ],
)
async def test_nowhere_else_in_kafkas_words(
    broker: HandlerBroker, replicas: list[int], error: ErrorCode, message: str
) -> None:
    assert await reassign(broker, "orders", 0, replicas) == (error, f"The manual partition assignment {message}")


async def test_there_is_nothing_to_cancel(broker: HandlerBroker) -> None:
    assert await reassign(broker, "orders", 0, None) == (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)


async def test_partitions_that_do_not_exist_cannot_be_moved(broker: HandlerBroker) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await reassign(broker, "orders", 9, [NODE_ID]) == (unknown, "Unable to find partition orders:9.")
    assert await reassign(broker, "nowhere", 0, None) == (unknown, "Unable to find a topic named nowhere.")


async def test_a_request_without_moves_is_not_refused_for_the_replication_factor(broker: HandlerBroker) -> None:
    nothing = AlterPartitionReassignmentsRequest(allow_replication_factor_change=False)
    assert (await broker.call(nothing)).allow_replication_factor_change
    something = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=False, topics=[ReassignableTopic("orders", [])]
    )
    assert not (await broker.call(something)).allow_replication_factor_change
