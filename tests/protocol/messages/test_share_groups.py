"""ShareGroupHeartbeat and ShareGroupDescribe as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.share_groups import (
    ShareGroupHeartbeatAssignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    ShareGroupHeartbeatTopicPartitions,
)
from tests.protocol.messages.golden import TOPIC_ID, assert_bytes


def test_a_member_joins_with_its_topics() -> None:
    request = ShareGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_names=["t"])
    assert_bytes(request, 1, "02 67 02 6d 00 00 00 00 00 02 02 74 00")


def test_a_heartbeat_without_an_assignment_leaves_it_as_it_is() -> None:
    reply = ShareGroupHeartbeatResponse(member_id="m", member_epoch=2, heartbeat_interval_ms=5000, assignment=None)
    assert_bytes(reply, 1, "00 00 00 00 00 00 00 02 6d 00 00 00 02 00 00 13 88 ff 00")


def test_an_assignment_names_topics_by_id() -> None:
    reply = ShareGroupHeartbeatResponse(
        member_epoch=2,
        assignment=ShareGroupHeartbeatAssignment(
            topic_partitions=[ShareGroupHeartbeatTopicPartitions(topic_id=TOPIC_ID, partitions=[0])]
        ),
    )
    assert_bytes(
        reply,
        1,
        "00 00 00 00 00 00 00 00 00 00 00 02 00 00 00 00 01 02 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d",
        "0e 0f 02 00 00 00 00 00 00 00",
    )
