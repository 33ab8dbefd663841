"""ConsumerGroupHeartbeat and ConsumerGroupDescribe as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
    ConsumerGroupHeartbeatTopicPartitions,
)
from tests.protocol.messages.golden import TOPIC_ID, assert_bytes


def test_a_heartbeat_that_changes_nothing_is_short() -> None:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3)
    assert_bytes(request, 0, "02 67 02 6d 00 00 00 03 00 00 ff ff ff ff 00 00 00 00")


def test_a_subscription_may_be_a_regular_expression_from_version_1_on() -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", rebalance_timeout_ms=5, subscribed_topic_regex="t.*", topic_partitions=[]
    )
    assert_bytes(request, 1, "02 67 02 6d 00 00 00 00 00 00 00 00 00 05 00 04 74 2e 2a 00 01 00")


def test_an_assignment_names_topics_by_id() -> None:
    reply = ConsumerGroupHeartbeatResponse(
        member_id="m",
        member_epoch=1,
        heartbeat_interval_ms=5000,
        assignment=ConsumerGroupHeartbeatResponseAssignment(
            topic_partitions=[ConsumerGroupHeartbeatTopicPartitions(topic_id=TOPIC_ID, partitions=[0, 1])]
        ),
    )
    assert_bytes(
        reply,
        0,
        "00 00 00 00 00 00 00 02 6d 00 00 00 01 00 00 13 88 01 02 00 01 02 03 04 05 06 07 08 09 0a 0b 0c",
        "0d 0e 0f 03 00 00 00 00 00 00 00 01 00 00 00",
    )
