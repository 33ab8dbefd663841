"""Producing and consuming as fast as librdkafka can."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

CHUNK_RECORDS = 1_000
PAYLOADS_COUNT = 200
BATCH_OVERHEAD_BYTES = 1_000
MOST_QUEUED = 100_000
"""librdkafka's default of `queued.min.messages`."""
TIMEOUT_S = 120.0


def produce(
    *,
    bootstrap: str,
    topic: str,
    partitions: int,
    record_bytes: int,
    batch_bytes: int,
    compression: str,
    connections: int,
    records: int,
    settings: Mapping[str, Any] | None = None,
) -> Generator[Any]:
    """Seconds until `records` records are acknowledged by all replicas, given in turns to the producers.

    Batches are as full as `batch_bytes` allows, up to 5 ms after the first record. An idempotent producer writes one
    record before the clock runs: then it has its producer id.

    settings: further ones of librdkafka.
    """
    all_settings = {
        "bootstrap.servers": bootstrap,
        "acks": "all",
        "linger.ms": 5,
        "batch.size": batch_bytes,
        "batch.num.messages": 1_000_000,
        "message.max.bytes": max(1_000_000, batch_bytes + BATCH_OVERHEAD_BYTES),
        "queue.buffering.max.messages": 0,
        "queue.buffering.max.kbytes": 256 * 1024,
        "compression.type": compression,
        "socket.nagle.disable": True,
        **(settings or {}),
    }
    producers = [Producer(all_settings) for _ in range(connections)]
    for producer in producers:
        producer.list_topics(topic, timeout=TIMEOUT_S)
        if all_settings.get("enable.idempotence"):
            _queue(producer, topic, [{"value": b"first"}])
            _flush(producer)
    payloads = [payload(number, record_bytes) for number in range(PAYLOADS_COUNT)]
    # A dictionary for each: librdkafka's binding leaves in it why a message was not queued.
    messages = [{"value": payloads[number % PAYLOADS_COUNT]} for number in range(CHUNK_RECORDS)]
    yield None
    began_at_s = time.monotonic()
    for number, start in enumerate(range(0, records, CHUNK_RECORDS)):
        producer = producers[number % connections]
        _queue(producer, topic, messages[: min(CHUNK_RECORDS, records - start)])
    for producer in producers:
        _flush(producer)
    duration_s = time.monotonic() - began_at_s
    # Without a callback for each record, which would be all that is measured, this tells whether one was lost.
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench-offsets"})
    ends = [reader.get_watermark_offsets(TopicPartition(topic, n), timeout=TIMEOUT_S)[1] for n in range(partitions)]
    reader.close()
    if sum(ends) < records:
        raise RuntimeError(f"{records - sum(ends):,} of {records:,} records were not written")
    yield {"duration_s": duration_s}


def _flush(producer: Producer) -> None:
    """Raises TimeoutError."""
    if producer.flush(TIMEOUT_S):
        raise TimeoutError("not everything was acknowledged")


def _queue(producer: Producer, topic: str, messages: list[dict[str, Any]]) -> None:
    """Hand over messages; where the queue is full, what did not fit follows as soon as there is room."""
    while messages:
        if producer.produce_batch(topic, messages) == len(messages):
            return
        remaining = []
        for message in messages:
            error = message.pop("_error", None)
            if error is not None:
                if error.code() != KafkaError._QUEUE_FULL:  # noqa: SLF001  # librdkafka's name for it
                    raise KafkaException(error)
                remaining.append(message)
        messages = remaining
        producer.poll(0.001)


def payload(number: int, record_bytes: int) -> bytes:
    """One record's value: about half of it compresses away, like text does."""
    varied = os.urandom(max(4, record_bytes // 4)).hex().encode()
    return (b"%08d" % number + varied + b"x" * record_bytes)[:record_bytes]


def consume(
    *, bootstrap: str, topic: str, partitions: int, connections: int, records: int, fetch_bytes: int
) -> Generator[Any]:
    """Seconds until the consumers have read `records` records of the topic, each its own share."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "bench-consume",
        "enable.auto.commit": False,
        "fetch.message.max.bytes": fetch_bytes,
        "fetch.max.bytes": max(fetch_bytes, 50 * 2**20),
        "receive.message.max.bytes": 2**30,
        "queued.max.messages.kbytes": 256 * 1024,
        # A consumer fetches on behind its share: with librdkafka's own 100,000, twenty consumers of 15,000 records each
        # would fetch seven times as much as they count, the more the faster the broker is.
        "queued.min.messages": min(MOST_QUEUED, max(1, records // connections)),
        "fetch.queue.backoff.ms": 0,
        # The first fetch may ask for the one partition that is known by then, and wait for records that are not there.
        "fetch.wait.max.ms": 10,
        "auto.offset.reset": "error",
    }
    consumers = [Consumer(settings) for _ in range(connections)]
    for consumer in consumers:
        consumer.list_topics(topic, timeout=TIMEOUT_S)
    shares = _shares(consumers[0], topic, partitions, connections)
    yield None
    began_at_s = time.monotonic()
    deadline_s = began_at_s + TIMEOUT_S
    for consumer, share in zip(consumers, shares, strict=True):
        consumer.assign([TopicPartition(topic, partition, start) for partition, start, _ in share])
    wanted = [sum(count for _, _, count in share) for share in shares]
    wanted[-1] -= sum(wanted) - records
    read_count = 0
    waiting = {number for number, count in enumerate(wanted) if count > 0}
    while waiting:
        for number in list(waiting):
            # Several consumers take turns in one thread: what has arrived for one is taken, without a wait.
            messages = consumers[number].consume(10_000, 0.1 if len(waiting) == 1 else 0.005)
            for message in messages[:1]:
                if message.error() is not None:
                    raise KafkaException(message.error())
            read_count += min(len(messages), wanted[number])
            wanted[number] -= len(messages)
            if wanted[number] <= 0:
                waiting.discard(number)
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{read_count:,} of {records:,} records were read")
    yield {"duration_s": time.monotonic() - began_at_s}
    for consumer in consumers:
        consumer.close()


def _shares(consumer: Consumer, topic: str, partitions: int, connections: int) -> list[list[tuple[int, int, int]]]:
    """For each consumer (partition, first offset, records): whole partitions, or parts where there are too few."""
    shares: list[list[tuple[int, int, int]]] = [[] for _ in range(connections)]
    parts = -(-connections // partitions)
    for partition in range(partitions):
        start, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=TIMEOUT_S)
        step = -(-(end - start) // parts)
        for part in range(parts):
            first = start + part * step
            shares[(partition * parts + part) % connections].append((partition, first, max(0, min(step, end - first))))
    return shares
