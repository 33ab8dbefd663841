"""Names of partitions."""

from __future__ import annotations

from fencepost.broker.kernel.topic_partition import INTERNAL_TOPICS, TopicPartition


def test_a_partition_is_written_like_its_directory() -> None:
    assert str(TopicPartition("orders-eu", 3)) == "orders-eu-3"


def test_partitions_sort_by_number_and_not_as_text() -> None:
    assert sorted([TopicPartition("t", 10), TopicPartition("t", 9)]) == [
        TopicPartition("t", 9),
        TopicPartition("t", 10),
    ]


def test_internal_topics_are_those_of_the_three_coordinators() -> None:
    assert {"__transaction_state", "__consumer_offsets", "__share_group_state"} == INTERNAL_TOPICS
