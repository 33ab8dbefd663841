"""Where partitions stand, and what is unknown of those that do not answer."""

from __future__ import annotations

from fencepost.console.reading.topics import PartitionState, TopicState
from fencepost.diagnosis.lag import Offsets


def test_offsets_are_known_whole_or_not_at_all() -> None:
    state = PartitionState("orders", 0, 1, 0, start=2, high_watermark=9, last_stable_offset=6)
    assert state.offsets == Offsets(log_start_offset=2, last_stable_offset=6, high_watermark=9)
    assert (state.behind, state.records) == (3, 7)
    unknown = PartitionState("orders", 0, 1, 0, start=2, high_watermark=9)
    assert (unknown.offsets, unknown.behind) == (None, 0)


def test_a_topic_sums_up_the_partitions_that_answer() -> None:
    topic = TopicState("orders", is_internal=False)
    topic.partitions = [
        PartitionState("orders", 0, 1, 0, start=2, high_watermark=9, last_stable_offset=6, size_bytes=70),
        PartitionState("orders", 1, -1, -1, error="LEADER_NOT_AVAILABLE"),
    ]
    assert (topic.records, topic.behind, topic.size_bytes) == (7, 3, 70)
    assert [one.name for one in topic.offline] == ["orders-1"]
