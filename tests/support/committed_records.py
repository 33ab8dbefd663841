"""The records of a topic that a read_committed reader sees, by kafka-python."""

from __future__ import annotations

from typing import Any

from kafka import KafkaConsumer, TopicPartition


def committed_records(bootstrap: str, topic: str) -> list[Any]:
    """The committed records of partition 0, up to the first open transaction; none if there is no such topic."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", allow_auto_create_topics=False
    )
    try:
        place = TopicPartition(topic, 0)
        if not consumer.partitions_for_topic(topic):
            return []
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end = consumer.end_offsets([place])[place]
        found: list[Any] = []
        while consumer.position(place) < end:
            for records in consumer.poll(timeout_ms=100).values():
                found += records
        return found
    finally:
        consumer.close()
