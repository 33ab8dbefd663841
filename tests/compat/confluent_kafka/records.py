"""What is written comes back as it was, whatever carried it."""

from __future__ import annotations

import random

import confluent_kafka as ck

from tests.compat.confluent_kafka.kafka import (
    TIMEOUT_S,
    UNCOMMITTED,
    create_topic,
    error_of,
    new_consumer,
    new_producer,
    numbers,
    produce,
    read,
    read_all,
)
from tests.compat.python_checks import START_MS, Check


def produce_and_consume(check: Check) -> None:
    topic = create_topic(check, "topic", 3)
    producer = new_producer(check)
    count = 300
    offsets: dict[int, int] = {}
    written: list[object] = []
    for number in range(count):
        key = {0: None, 1: b""}.get(number % 30, b"key-%d" % number)
        value = None if number % 30 == 2 else str(number).encode()
        headers = [("number", b"%d" % number), ("null", None), ("empty", b""), ("number", b"twice")]
        written.append((key, value, headers, (ck.TIMESTAMP_CREATE_TIME, START_MS + number)))
        producer.produce(
            topic,
            value,
            key,
            partition=number % 3,
            headers=headers,
            timestamp=START_MS + number,
            on_delivery=lambda _error, message, number=number: offsets.update({number: message.offset()}),
        )
    check.equal("records left in the producer", producer.flush(TIMEOUT_S), 0)
    check.equal("offsets of the acknowledgements", offsets, {number: number // 3 for number in range(count)})
    consumer = new_consumer(check, check.name("group"))
    consumer.assign([ck.TopicPartition(topic, partition, 0) for partition in range(3)])
    next_offsets = [0, 0, 0]
    for message in read(check, consumer, count):
        partition, offset = message.partition(), message.offset()
        check.equal("offset", offset, next_offsets[partition])
        next_offsets[partition] += 1
        got = (message.key(), message.value(), message.headers(), message.timestamp())
        check.equal("record", got, written[offset * 3 + partition])
    consumer.close()
    check.equal("records by partition", next_offsets, [100, 100, 100])


def compression(check: Check) -> None:
    topic = create_topic(check, "topic", 1)
    chance = random.Random(1)
    written: list[str] = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        values = [f"{codec} {chance.random()} " * chance.randint(1, 200) for _ in range(20)]
        produce(new_producer(check, compression_type=codec), topic, values)
        written += values
    check.equal("records", read_all(check, topic), written)


def acks(check: Check) -> None:
    topic = create_topic(check, "topic", 1)
    written: list[str] = []
    for level in ("all", "1", "0"):
        values = [f"{level}-{number}" for number in range(10)]
        offsets = produce(new_producer(check, acks=level), topic, values)
        if level != "0":
            check.equal("offsets", offsets, list(range(len(written), len(written) + 10)))
        written += values
    # Nothing says when the last ones, which nobody acknowledges, are there.
    check.until("all records are there", lambda: read_all(check, topic) == written)


def record_too_large(check: Check) -> None:
    topic = create_topic(check, "topic", 1)
    producer = new_producer(check, message_max_bytes=8_000_000)
    produce(producer, topic, ["x" * 1_000_000])
    refused = error_of(lambda: produce(producer, topic, ["x" * 1_100_000]))
    check.equal("error of a batch above message.max.bytes", refused, "MSG_SIZE_TOO_LARGE")
    produce(producer, topic, ["after"])
    values = read_all(check, topic)
    check.equal("sizes of the records", [len(value) for value in values], [1_000_000, 5])


def offsets_by_time(check: Check) -> None:
    topic = create_topic(check, "topic", 1)
    producer = new_producer(check)
    for after_ms in (1_000, 3_000, 2_000, 5_000):
        producer.produce(topic, b"x", timestamp=START_MS + after_ms)
        producer.flush(TIMEOUT_S)
    consumer = new_consumer(check, check.name("group"))
    found = []
    for after_ms in (1_000, 1_001, 3_001, 5_001):
        [partition] = consumer.offsets_for_times([ck.TopicPartition(topic, 0, START_MS + after_ms)], TIMEOUT_S)
        found.append(partition.offset)
    check.equal("offsets by time", found, [0, 1, 3, ck.OFFSET_END])
    watermarks = consumer.get_watermark_offsets(ck.TopicPartition(topic, 0), TIMEOUT_S)
    check.equal("start and end", watermarks, (0, 4))
    consumer.close()


def fetch_from_offsets(check: Check) -> None:
    topic = create_topic(check, "topic", 1)
    producer = new_producer(check)
    produce(producer, topic, numbers(0, 50))
    consumer = new_consumer(check, check.name("group"))
    for offset, first in ((17, b"17"), (ck.OFFSET_BEGINNING, b"0"), (999, b"0")):
        consumer.assign([ck.TopicPartition(topic, 0, offset)])
        check.equal(f"first record from {offset}", read(check, consumer, 1)[0].value(), first)
    consumer.seek(ck.TopicPartition(topic, 0, 49))
    check.equal("record after a seek", read(check, consumer, 1)[0].value(), b"49")
    consumer.close()


def auto_creation(check: Check) -> None:
    topic = check.name("topic")
    consumer = new_consumer(check, check.name("group"), allow_auto_create_topics=False)
    consumer.subscribe([topic])
    for _ in check.turns("an error about the missing topic"):
        message = consumer.poll(0.1)
        if message is not None:
            check.equal("error of a missing topic", message.error().name(), "UNKNOWN_TOPIC_OR_PART")
            break
    consumer.close()
    produce(new_producer(check), topic, ["created"])
    check.equal("records", read_all(check, topic), ["created"])


def idempotent(check: Check) -> None:
    topic = create_topic(check, "topic", 2)
    producer = new_producer(check, enable_idempotence=True)
    for partition in range(2):
        for start in range(0, 500, 100):
            offsets = produce(producer, topic, numbers(start, start + 100), partition)
            check.equal("offsets", offsets, list(range(start, start + 100)))
    for partition in range(2):
        check.equal("records", read_all(check, topic, partition, UNCOMMITTED), numbers(0, 500))
