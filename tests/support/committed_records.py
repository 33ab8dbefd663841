"""The records of a topic that a read_committed reader sees, by kafka-python."""

from __future__ import annotations

import time
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaConnectionError

from tests.support.conditions import PATIENCE_S


def committed_records(bootstrap: str, topic: str, partition: int = 0) -> list[Any]:
    """The committed records of a partition, up to the first open transaction; none if there is no such topic."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", allow_auto_create_topics=False
    )
    try:
        place = TopicPartition(topic, partition)
        if not _partitions(consumer, topic):
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


def _partitions(consumer: KafkaConsumer, topic: str) -> Any:
    """Ask again where the client has chosen a broker that is not there: it does not, for lists of topics."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return consumer.partitions_for_topic(topic)
        except KafkaConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
