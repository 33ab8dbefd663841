"""The records of streams groups in `__consumer_offsets`, byte for byte as Apache Kafka 4.4 writes them."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.stored.streams_groups import (
    STREAMS_GROUP_RECORDS,
    StreamsCurrentTaskIds,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from fencepost.protocol.streams_topology import (
    StreamsCopartitionGroup,
    StreamsEndpoint,
    StreamsKeyValue,
    StreamsSubtopology,
    StreamsTaskIds,
    StreamsTopicInfo,
)

RECORDS: list[tuple[Any, str, Any, str]] = [
    (
        StreamsGroupMetadataKey("g"),
        "0011000167",
        StreamsGroupMetadataValue(3, 5, 1, [StreamsKeyValue("num.standby.replicas", "1")]),
        "000000000003000000000000000502000400000001011902156e756d2e7374616e6462792e7265706c69636173023100",
    ),
    (
        StreamsGroupMemberMetadataKey("g", "m"),
        "001300016700016d",
        StreamsGroupMemberMetadataValue(
            instance_id="",
            rack_id="r",
            client_id="c",
            client_host="/h",
            rebalance_timeout_ms=9,
            topology_epoch=2,
            process_id="p",
            user_endpoint=StreamsEndpoint("e", 60000),
            client_tags=[StreamsKeyValue("k", "v")],
        ),
        "00000102720263032f6800000009000000020270010265ea600002026b02760000",
    ),
    (
        StreamsGroupTargetAssignmentMetadataKey("g"),
        "0014000167",
        StreamsGroupTargetAssignmentMetadataValue(3, 7),
        "0000000000030100080000000000000007",
    ),
    (
        StreamsGroupTargetAssignmentMemberKey("g", "m"),
        "001500016700016d",
        StreamsGroupTargetAssignmentMemberValue([StreamsTaskIds("0", [0, 1])], [StreamsTaskIds("1", [2])]),
        "0000020230030000000000000001000202310200000002000100",
    ),
    (
        StreamsGroupCurrentMemberAssignmentKey("g", "m"),
        "001600016700016d",
        StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=3,
            previous_member_epoch=2,
            state=1,
            active_tasks=[StreamsCurrentTaskIds("0", [0, 1], [2, 3])],
            standby_tasks_pending_revocation=[StreamsCurrentTaskIds("1", [2])],
        ),
        "00000000000300000002010202300300000000000000010100090300000002000000030101010202310200000002000100",
    ),
    (
        StreamsGroupTopologyKey("g"),
        "0017000167",
        StreamsGroupTopologyValue(
            1,
            [
                StreamsSubtopology(
                    subtopology_id="0",
                    source_topics=["a"],
                    source_topic_regex=["x.*"],
                    state_changelog_topics=[StreamsTopicInfo("l")],
                    repartition_sink_topics=["s"],
                    repartition_source_topics=[StreamsTopicInfo("r", 4, 1, [StreamsKeyValue("k", "v")])],
                    copartition_groups=[StreamsCopartitionGroup([0], [], [0])],
                )
            ],
        ),
        (
            "0000000000010202300202610204782e2a02026c000000000000010002027302027200000004000102026b0276000002020000010200"
            "00000000"
        ),
    ),
]


@pytest.mark.parametrize(("key", "key_bytes", "value", "value_bytes"), RECORDS, ids=lambda part: type(part).__name__)
def test_records_of_streams_groups_have_the_bytes_of_kafka(
    key: Any, key_bytes: str, value: Any, value_bytes: str
) -> None:
    assert STREAMS_GROUP_RECORDS.encode_key(key).hex() == key_bytes
    assert STREAMS_GROUP_RECORDS.encode_value(value).hex() == value_bytes
    assert STREAMS_GROUP_RECORDS.decode_key(bytes.fromhex(key_bytes)) == key
    assert STREAMS_GROUP_RECORDS.decode_value(key, bytes.fromhex(value_bytes)) == value


def test_keys_of_other_kinds_are_left_to_others() -> None:
    assert STREAMS_GROUP_RECORDS.decode_key(b"\x00\x0b\x00\x01g") is None


def test_values_of_the_future_are_refused() -> None:
    with pytest.raises(DecodeError, match="version 1"):
        STREAMS_GROUP_RECORDS.decode_value(StreamsGroupMetadataKey("g"), b"\x00\x01")


def test_a_key_that_ends_early_is_undecodable() -> None:
    with pytest.raises(DecodeError):
        STREAMS_GROUP_RECORDS.decode_key(b"\x00\x11\x00\x05g")
