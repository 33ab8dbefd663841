"""Names in a log directory: those of partitions, of deleted logs and of other files."""

from __future__ import annotations

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.directory_files import (
    LONGEST_NAME_BYTES,
    deleted_directory,
    is_deleted_directory,
    partition_directories,
)

TOPIC_ID = bytes(range(16))


def test_directories_of_partitions_are_found_among_other_names() -> None:
    names = ["orders-0", "a-b-12", "orders", "orders-", "-1", "orders-01", "orders-x", ".lock", "meta.properties"]
    assert partition_directories(names) == [TopicPartition("orders", 0), TopicPartition("a-b", 12)]


def test_the_directory_of_a_deleted_log_is_no_partitions() -> None:
    name = deleted_directory(TopicPartition("orders", 3), TOPIC_ID)
    assert name == f"orders-3.{TOPIC_ID.hex()}-delete"
    assert is_deleted_directory(name)
    assert not is_deleted_directory("orders-3")
    assert partition_directories([name, f"orders-3.{TOPIC_ID.hex()}-delete-1"]) == [
        TopicPartition(f"orders-3.{TOPIC_ID.hex()}-delete", 1)
    ]


def test_the_longest_topic_still_gets_a_name_that_a_file_system_takes() -> None:
    name = deleted_directory(TopicPartition("t" * 249, 10_000), TOPIC_ID)
    assert len(name) == LONGEST_NAME_BYTES
    assert is_deleted_directory(name)
