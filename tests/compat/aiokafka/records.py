"""What is written comes back as it was, whatever carried it."""

from __future__ import annotations

import random

from aiokafka import TopicPartition

from tests.compat.aiokafka.kafka import (
    UNCOMMITTED,
    administering,
    consuming,
    create_topic,
    error_of,
    numbers,
    produce,
    producing,
    read,
    read_all,
    until,
    write,
)
from tests.compat.python_checks import START_MS, Check


async def produce_and_consume(check: Check) -> None:
    topic = await create_topic(check, "topic", 3)
    count = 300
    written: list[tuple[object, ...]] = []
    async with producing(check) as producer:
        sent = []
        for number in range(count):
            key = {0: None, 1: b""}.get(number % 30, b"key-%d" % number)
            value = None if number % 30 == 2 else str(number).encode()
            headers = [("number", b"%d" % number), ("empty", b""), ("number", b"twice")]
            written.append((key, value, headers, START_MS + number, 0))
            place = {"partition": number % 3, "timestamp_ms": START_MS + number}
            sent.append(await producer.send(topic, value, key, headers=headers, **place))
        offsets = [(await future).offset for future in sent]
    check.equal("offsets of the acknowledgements", offsets, [number // 3 for number in range(count)])
    next_offsets = [0, 0, 0]
    async with consuming(check) as consumer:
        consumer.assign([TopicPartition(topic, partition) for partition in range(3)])
        for record in await read(consumer, count):
            check.equal("offset", record.offset, next_offsets[record.partition])
            next_offsets[record.partition] += 1
            got = (record.key, record.value, list(record.headers), record.timestamp, record.timestamp_type)
            check.equal("record", got, written[record.offset * 3 + record.partition])
    check.equal("records by partition", next_offsets, [100, 100, 100])


async def compression(check: Check) -> None:
    topic = await create_topic(check, "topic", 1)
    chance = random.Random(1)
    written: list[str] = []
    for codec in (None, "gzip", "snappy", "lz4", "zstd"):
        values = [f"{codec} {chance.random()} " * chance.randint(1, 200) for _ in range(20)]
        await write(check, topic, values, compression_type=codec)
        written += values
    check.equal("records", await read_all(check, topic), written)


async def acks(check: Check) -> None:
    topic = await create_topic(check, "topic", 1)
    written: list[str] = []
    for level in ("all", 1, 0):
        values = [f"{level}-{number}" for number in range(10)]
        async with producing(check, acks=level) as producer:
            for value in values:
                await producer.send_and_wait(topic, value.encode(), partition=0)
        written += values

    async def all_there() -> bool:
        return await read_all(check, topic) == written

    # Nothing says when the last ones, which nobody acknowledges, are there.
    await until("all records are there", all_there)


async def record_too_large(check: Check) -> None:
    topic = await create_topic(check, "topic", 1)
    async with producing(check, max_request_size=8_000_000, max_batch_size=4_000_000) as producer:
        await produce(producer, topic, ["x" * 1_000_000])
        refused = await error_of(produce(producer, topic, ["x" * 1_100_000]))
        check.equal("error of a batch above message.max.bytes", refused, "MessageSizeTooLargeError")
        await produce(producer, topic, ["after"])
    values = await read_all(check, topic)
    check.equal("sizes of the records", [len(value) for value in values], [1_000_000, 5])


async def offsets_by_time(check: Check) -> None:
    topic = await create_topic(check, "topic", 1)
    async with producing(check) as producer:
        for after_ms in (1_000, 3_000, 2_000, 5_000):
            await producer.send_and_wait(topic, b"x", timestamp_ms=START_MS + after_ms)
    whole = TopicPartition(topic, 0)
    found: list[object] = []
    async with consuming(check) as consumer:
        consumer.assign([whole])
        for after_ms in (1_000, 1_001, 3_001, 5_001):
            at = (await consumer.offsets_for_times({whole: START_MS + after_ms}))[whole]
            found.append(None if at is None else (at.offset, at.timestamp - START_MS))
        check.equal("start", await consumer.beginning_offsets([whole]), {whole: 0})
        check.equal("end", await consumer.end_offsets([whole]), {whole: 4})
    check.equal("offsets by time", found, [(0, 1_000), (1, 3_000), (3, 5_000), None])


async def fetch_from_offsets(check: Check) -> None:
    topic = await create_topic(check, "topic", 1)
    await write(check, topic, numbers(0, 50))
    whole = TopicPartition(topic, 0)
    async with consuming(check) as consumer:
        consumer.assign([whole])
        for offset, first in ((17, b"17"), (49, b"49"), (999, b"0")):
            consumer.seek(whole, offset)
            check.equal(f"first record from {offset}", (await read(consumer, 1))[0].value, first)
        await consumer.seek_to_end(whole)
        check.equal("position at the end", await consumer.position(whole), 50)


async def auto_creation(check: Check) -> None:
    topic = check.name("topic")
    await write(check, topic, ["created"])
    check.equal("records", await read_all(check, topic), ["created"])
    async with administering(check) as admin:
        check.equal("partitions", len((await admin.describe_topics([topic]))[0]["partitions"]), 1)


async def idempotent(check: Check) -> None:
    topic = await create_topic(check, "topic", 2)
    async with producing(check, enable_idempotence=True) as producer:
        for partition in range(2):
            for start in range(0, 500, 100):
                offsets = await produce(producer, topic, numbers(start, start + 100), partition)
                check.equal("offsets", offsets, list(range(start, start + 100)))
    for partition in range(2):
        check.equal("records", await read_all(check, topic, partition, UNCOMMITTED), numbers(0, 500))
