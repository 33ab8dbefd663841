"""A topology of Kafka Streams as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.streams_groups import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatTopology
from fencepost.protocol.schema import decode, encode
from fencepost.protocol.streams_topology import (
    StreamsCopartitionGroup,
    StreamsEndpoint,
    StreamsKeyValue,
    StreamsSubtopology,
    StreamsTopicInfo,
)

SUBTOPOLOGY = StreamsSubtopology(
    subtopology_id="0",
    source_topics=["in"],
    source_topic_regex=["in-.*"],
    state_changelog_topics=[StreamsTopicInfo("store-changelog", 0, 0, [StreamsKeyValue("cleanup.policy", "compact")])],
    repartition_sink_topics=["by-key"],
    repartition_source_topics=[StreamsTopicInfo("by-key", 4, 1)],
    copartition_groups=[StreamsCopartitionGroup([0], [], [0])],
)


def test_a_subtopology_is_read_as_it_was_sent() -> None:
    topology = StreamsGroupHeartbeatTopology(epoch=1, subtopologies=[SUBTOPOLOGY])
    request = StreamsGroupHeartbeatRequest(group_id="g", topology=topology)
    decoded = decode(StreamsGroupHeartbeatRequest, bytes(encode(request, 0)), 0)
    assert decoded.topology == topology


def test_a_port_above_32767_has_no_sign() -> None:
    request = StreamsGroupHeartbeatRequest(group_id="g", user_endpoint=StreamsEndpoint("h", 65_535))
    encoded = bytes(encode(request, 0))
    assert bytes.fromhex("02 68 ffff 00") in encoded
    assert decode(StreamsGroupHeartbeatRequest, encoded, 0).user_endpoint == StreamsEndpoint("h", 65_535)
