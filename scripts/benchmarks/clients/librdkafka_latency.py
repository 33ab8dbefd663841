"""From `produce` in one client to the record in another one's hands, with librdkafka."""

from __future__ import annotations

import struct
import time
from collections.abc import Generator
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

_STAMP = struct.Struct(">q")
WARM_UP_RECORDS = 200
TIMEOUT_S = 60.0
AT_ONCE = {"linger.ms": 0, "socket.nagle.disable": True, "acks": "all"}
END = b"end"


def one_at_a_time(*, bootstrap: str, topic: str, record_bytes: int, records: int) -> Generator[Any]:
    """Milliseconds of each record; the next is produced when the one before has been consumed."""
    producer = Producer({"bootstrap.servers": bootstrap, **AT_ONCE})
    consumer = _consumer_at_end(bootstrap, topic)
    value = b"x" * record_bytes

    def pass_one() -> float:
        began_at_s = time.monotonic()
        producer.produce(topic, value, partition=0)
        _value_of(consumer.poll(TIMEOUT_S))
        return time.monotonic() - began_at_s

    for _ in range(WARM_UP_RECORDS):
        pass_one()
    yield None
    latencies_ms = []
    for _ in range(records):
        latencies_ms.append(pass_one() * 1e3)
        producer.poll(0)
    yield {"latencies_ms": latencies_ms}
    consumer.close()


def steady_producer(
    *, bootstrap: str, topic: str, record_bytes: int, bytes_per_s: int, duration_s: float
) -> Generator[Any]:
    """Records at a steady rate, in a burst every 2 ms, each with the time at which it was due to leave."""
    interval_s = 0.002
    per_burst = max(1, round(bytes_per_s * interval_s / record_bytes))
    producer = Producer({"bootstrap.servers": bootstrap, **AT_ONCE, "queue.buffering.max.kbytes": 512 * 1024})
    producer.list_topics(topic, timeout=TIMEOUT_S)
    filling = b"x" * (record_bytes - _STAMP.size)
    yield None
    due_at_s = time.monotonic()
    end_at_s = due_at_s + duration_s
    sent_count = 0
    while due_at_s < end_at_s:
        pause_s = due_at_s - time.monotonic()
        if pause_s > 0:
            time.sleep(pause_s)
        value = _STAMP.pack(int(due_at_s * 1e9)) + filling
        sent_count += producer.produce_batch(topic, [{"value": value} for _ in range(per_burst)], partition=0)
        due_at_s += interval_s
    # What the brokers could not take in time is late in the consumer's figures: the stamp is when it was due.
    remaining = producer.flush(TIMEOUT_S)
    producer.produce(topic, END, partition=0)
    remaining += producer.flush(TIMEOUT_S)
    if remaining:
        raise TimeoutError("not everything was acknowledged")
    yield {"records": sent_count}


def steady_consumer(*, bootstrap: str, topic: str, skipped_s: float) -> Generator[Any]:
    """Milliseconds of each record of a steady producer, without those of its first seconds."""
    consumer = _consumer_at_end(bootstrap, topic)
    yield None
    latencies_ms: list[float] = []
    first_at_s = 0.0
    while True:
        value = _value_of(consumer.poll(TIMEOUT_S))
        now_s = time.monotonic()
        if value == END:
            break
        due_at_s = _STAMP.unpack_from(value)[0] / 1e9
        first_at_s = first_at_s or due_at_s
        if due_at_s - first_at_s >= skipped_s:
            latencies_ms.append((now_s - due_at_s) * 1e3)
    yield {"latencies_ms": latencies_ms}
    consumer.close()


def _consumer_at_end(bootstrap: str, topic: str) -> Consumer:
    """Reads partition 0 from its end on."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-latency",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 500,
            "fetch.min.bytes": 1,
        }
    )
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)
    consumer.assign([TopicPartition(topic, 0, end)])
    return consumer


def _value_of(message: Message | None) -> bytes:
    if message is None:
        raise TimeoutError("a record did not arrive")
    if message.error() is not None:
        raise KafkaException(message.error())
    value: bytes = message.value()
    return value
