"""StreamsGroupHeartbeat and StreamsGroupDescribe as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupHeartbeatTopology,
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from fencepost.protocol.streams_topology import (
    StreamsSubtopology,
    StreamsTaskIds,
    StreamsTopologyDescription,
    StreamsTopologyDescriptionNode,
    StreamsTopologyDescriptionSubtopology,
)
from tests.protocol.messages.golden import assert_bytes


def test_a_heartbeat_that_changes_nothing_has_nulls() -> None:
    request = StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3)
    assert_bytes(request, 0, "02 67 02 6d 00 00 00 03 00 00 00 00 00 00 ff ff ff ff ff 00 00 00 00 ff 00 00 00 00 00")


def test_a_member_joins_with_its_topology() -> None:
    request = StreamsGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        topology=StreamsGroupHeartbeatTopology(
            epoch=1, subtopologies=[StreamsSubtopology(subtopology_id="0", source_topics=["t"])]
        ),
        process_id="p",
    )
    assert_bytes(
        request,
        0,
        "02 67 02 6d 00 00 00 00 00 00 00 00 00 00 ff ff ff ff 01 00 00 00 01 02 02 30 02 02 74 01 01 01",
        "01 01 00 00 00 00 00 02 70 ff 00 00 00 00 00",
    )


def test_tasks_are_assigned_by_subtopology() -> None:
    reply = StreamsGroupHeartbeatResponse(
        member_id="m",
        member_epoch=1,
        heartbeat_interval_ms=5000,
        status=None,
        active_tasks=[StreamsTaskIds(subtopology_id="0", partitions=[0, 1])],
        standby_tasks=[],
        warmup_tasks=[],
    )
    assert_bytes(
        reply,
        0,
        "00 00 00 00 00 00 00 02 6d 00 00 00 01 00 00 13 88 00 00 00 00 00 00 00 00 00 02 02 30 03 00 00",
        "00 00 00 00 00 01 00 01 01 00 00 00 00 00 00",
    )


def test_version_1_of_the_reply_has_a_long_lag_and_may_want_a_description() -> None:
    reply = StreamsGroupHeartbeatResponse(
        member_id="m", acceptable_recovery_lag=9, task_offset_interval_ms=7, topology_description_required=True
    )
    assert_bytes(
        reply,
        1,
        "00 00 00 00 00 00 00 02 6d 00 00 00 00 00 00 00 00 00 00 00 07 00 00 00 00 00 00 00 09 01 00 00",
        "00 01 00 00 00 00 00 00",
    )


def test_a_topology_is_described_by_its_nodes() -> None:
    node = StreamsTopologyDescriptionNode("n", 3, [], "t", ["s"], ["o"])
    part = StreamsTopologyDescriptionSubtopology("0", [node])
    request = StreamsGroupTopologyDescriptionUpdateRequest("g", "m", 1, StreamsTopologyDescription([part]))
    assert_bytes(
        request,
        0,
        "02 67 02 6d 00 00 00 01 02 02 30 02 02 6e 03 01 02 74 02 02 73 02 02 6f 00 00 01 00 00",
    )
