"""A reader with a rack, which prints the first six bytes of each committed record of partition 0: kafka-python.

python -m tests.compat.near BOOTSTRAP TOPIC RACK
"""

from __future__ import annotations

import sys

from kafka import KafkaConsumer, TopicPartition


def main() -> None:
    bootstrap, topic, rack = sys.argv[1:]
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        client_rack=rack,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        enable_auto_commit=False,
    )
    consumer.assign([TopicPartition(topic, 0)])
    for record in consumer:
        sys.stdout.write(f"{record.value[:6].decode()}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
