"""Many consumers that read a topic from its beginning at the same time, in one process."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

RECORD_BYTES = 10_000
REPLAY_TIMEOUT_S = 240.0


def fill(bootstrap: str, topic: str, *, partitions: int, records: int, segment_bytes: int) -> None:
    """Create a topic, and write the same number of records to each partition, one partition after the other."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    created = admin.create_topics([NewTopic(topic, partitions, 1, config={"segment.bytes": str(segment_bytes)})])
    created[topic].result()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 500_000})
    for partition in range(partitions):
        for number in range(records):
            value = b"%d " % number * (RECORD_BYTES // len(b"%d " % number))
            while True:
                try:
                    producer.produce(topic, value, partition=partition)
                    break
                except BufferError:
                    producer.poll(0.1)
    assert producer.flush(120) == 0


def replay(
    bootstrap: str, topic: str, *, partitions: int, records: int, consumers: int, meanwhile: Callable[[], None]
) -> float:
    """Have each consumer read one partition from its beginning to its end; return the seconds until all are done.

    Raises AssertionError if one misses a record, gets one twice, or another one's. meanwhile: called again and again.
    """
    readers = []
    for number in range(consumers):
        reader = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"replay-{number}",
                "enable.auto.commit": False,
                "queued.max.messages.kbytes": 2_048,
            }
        )
        reader.assign([TopicPartition(topic, number % partitions, 0)])
        readers.append(reader)
    began_s = time.monotonic()
    following = [0] * consumers
    try:
        while any(offset < records for offset in following):
            assert time.monotonic() - began_s < REPLAY_TIMEOUT_S, f"consumers are at {following}"
            for number, reader in enumerate(readers):
                for message in reader.consume(100, timeout=0):
                    assert message.error() is None, message.error()
                    assert message.offset() == following[number]
                    value = message.value()
                    assert value is not None
                    assert value.startswith(b"%d " % following[number])
                    following[number] += 1
            meanwhile()
        return time.monotonic() - began_s
    finally:
        for reader in readers:
            reader.close()
