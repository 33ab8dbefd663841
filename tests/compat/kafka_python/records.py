"""What is written comes back as it was, whatever carried it."""

from __future__ import annotations

import random
from typing import Any

from kafka import TopicPartition

from tests.compat.kafka_python.kafka import (
    TIMEOUT_S,
    UNCOMMITTED,
    VERSION,
    create_topic,
    error_of,
    new_consumer,
    new_producer,
    numbers,
    produce,
    read,
    read_all,
    write,
)
from tests.compat.python_checks import START_MS, Check


def produce_and_consume(check: Check) -> None:
    topic = create_topic(check, "topic", 3)
    producer = new_producer(check)
    count = 300
    written: list[tuple[object, ...]] = []
    sent: list[Any] = []
    for number in range(count):
        key = {0: None, 1: b""}.get(number % 30, b"key-%d" % number)
        value = None if number % 30 == 2 else str(number).encode()
        headers = [("number", b"%d" % number), ("empty", b""), ("number", b"twice")]
        written.append((key, value, headers, START_MS + number, 0))
        sent.append(
            producer.send(topic, value, key, headers=headers, partition=number % 3, timestamp_ms=START_MS + number)
        )
    producer.flush(TIMEOUT_S)
    offsets = [future.get(TIMEOUT_S).offset for future in sent]
    check.equal("offsets of the acknowledgements", offsets, [number // 3 for number in range(count)])
    producer.close()
    consumer = new_consumer(check)
    consumer.assign([TopicPartition(topic, partition) for partition in range(3)])
    next_offsets = [0, 0, 0]
    for record in read(check, consumer, count):
        check.equal("offset", record.offset, next_offsets[record.partition])
        next_offsets[record.partition] += 1
        got = (record.key, record.value, list(record.headers), record.timestamp, record.timestamp_type)
        check.equal("record", got, written[record.offset * 3 + record.partition])
    consumer.close()
    check.equal("records by partition", next_offsets, [100, 100, 100])


def compression(check: Check) -> None:
    topic = create_topic(check, "topic", 1)
    chance = random.Random(1)
    written: list[str] = []
    for codec in (None, "gzip", "snappy", "lz4", "zstd"):
        values = [f"{codec} {chance.random()} " * chance.randint(1, 200) for _ in range(20)]
        write(check, topic, values, compression_type=codec)
        written += values
    check.equal("records", read_all(check, topic), written)


def acks(check: Check) -> None:
    topic = create_topic(check, "topic", 1)
    written: list[str] = []
    # Release 2.3 loses records sent with acks=0, to Apache Kafka as well.
    for level in ("all", 1, 0) if VERSION >= 3 else ("all", 1):
        values = [f"{level}-{number}" for number in range(10)]
        write(check, topic, values, acks=level, enable_idempotence=False)
        written += values
    # Nothing says when the last ones, which nobody acknowledges, are there.
    check.until("all records are there", lambda: read_all(check, topic) == written)


def record_too_large(check: Check) -> None:
    topic = create_topic(check, "topic", 1)
    producer = new_producer(check, max_request_size=8_000_000, batch_size=4_000_000, enable_idempotence=False)
    produce(producer, topic, ["x" * 1_000_000])
    refused = error_of(lambda: produce(producer, topic, ["x" * 1_100_000]))
    check.equal("error of a batch above message.max.bytes", refused, "MessageSizeTooLargeError")
    produce(producer, topic, ["after"])
    producer.close()
    values = read_all(check, topic)
    check.equal("sizes of the records", [len(value) for value in values], [1_000_000, 5])


def offsets_by_time(check: Check) -> None:
    topic = create_topic(check, "topic", 1)
    producer = new_producer(check)
    for after_ms in (1_000, 3_000, 2_000, 5_000):
        producer.send(topic, b"x", timestamp_ms=START_MS + after_ms).get(TIMEOUT_S)
    producer.close()
    consumer = new_consumer(check)
    whole = TopicPartition(topic, 0)
    found: list[object] = []
    for after_ms in (1_000, 1_001, 3_001, 5_001):
        at = consumer.offsets_for_times({whole: START_MS + after_ms})[whole]
        found.append(None if at is None else (at.offset, at.timestamp - START_MS))
    check.equal("offsets by time", found, [(0, 1_000), (1, 3_000), (3, 5_000), None])
    check.equal("start", consumer.beginning_offsets([whole]), {whole: 0})
    check.equal("end", consumer.end_offsets([whole]), {whole: 4})
    consumer.close()


def fetch_from_offsets(check: Check) -> None:
    topic = create_topic(check, "topic", 1)
    write(check, topic, numbers(0, 50))
    whole = TopicPartition(topic, 0)
    consumer = new_consumer(check)
    consumer.assign([whole])
    for offset, first in ((17, b"17"), (49, b"49"), (999, b"0")):
        consumer.seek(whole, offset)
        check.equal(f"first record from {offset}", read(check, consumer, 1)[0].value, first)
    consumer.seek_to_end(whole)
    check.equal("position at the end", consumer.position(whole), 50)
    consumer.seek_to_beginning(whole)
    check.equal("first record from the beginning", read(check, consumer, 1)[0].value, b"0")
    consumer.close()


def auto_creation(check: Check) -> None:
    topic = check.name("topic")
    write(check, topic, ["created"])
    check.equal("records", read_all(check, topic), ["created"])
    consumer = new_consumer(check, allow_auto_create_topics=False)
    check.equal("partitions of a missing topic", consumer.partitions_for_topic(check.name("missing")) or set(), set())
    check.equal("topics", check.name("missing") in consumer.topics(), False)
    consumer.close()


def idempotent(check: Check) -> None:
    topic = create_topic(check, "topic", 2)
    producer = new_producer(check, enable_idempotence=True)
    for partition in range(2):
        for start in range(0, 500, 100):
            offsets = produce(producer, topic, numbers(start, start + 100), partition)
            check.equal("offsets", offsets, list(range(start, start + 100)))
    producer.close()
    for partition in range(2):
        check.equal("records", read_all(check, topic, partition, UNCOMMITTED), numbers(0, 500))
