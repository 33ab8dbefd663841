"""ElectLeaders and requests for reassignments as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.protocol.messages.golden import assert_bytes


def test_all_partitions_are_elected_by_null() -> None:
    request = ElectLeadersRequest(election_type=1, topic_partitions=None, timeout_ms=5)
    assert_bytes(request, 2, "01 00 00 00 00 05 00")


def test_a_reassignment_is_ended_by_null() -> None:
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=5,
        topics=[ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=None)])],
    )
    assert_bytes(request, 0, "00 00 00 05 02 02 74 02 00 00 00 00 00 00 00 00")


def test_a_reassignment_shows_what_it_adds_and_removes() -> None:
    reply = ListPartitionReassignmentsResponse(
        error_message=None,
        topics=[
            OngoingTopicReassignment(
                name="t",
                partitions=[
                    OngoingPartitionReassignment(
                        partition_index=0, replicas=[1, 2], adding_replicas=[2], removing_replicas=[1]
                    )
                ],
            )
        ],
    )
    assert_bytes(
        reply,
        0,
        "00 00 00 00 00 00 00 02 02 74 02 00 00 00 00 03 00 00 00 01 00 00 00 02 02 00 00 00 02 02 00 00",
        "00 01 00 00 00",
    )
