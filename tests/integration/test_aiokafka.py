"""aiokafka, unmodified: it uses the oldest version of every transactional request."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from fencepost import Broker


async def read(broker: Broker, topic: str, count: int, isolation_level: str) -> list[bytes]:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level=isolation_level,
        group_id=None,
    )
    await consumer.start()
    values: list[bytes] = []
    async with asyncio.timeout(60):
        while len(values) < count:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                values.extend(record.value for record in records)
    await consumer.stop()
    return values


async def test_records_go_through(fencepost: Broker) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=fencepost.bootstrap_servers, enable_idempotence=True)
    await producer.start()
    for number in range(100):
        await producer.send_and_wait("orders", str(number).encode())
    await producer.stop()
    values = await read(fencepost, "orders", 100, "read_committed")
    assert sorted(values, key=int) == [str(number).encode() for number in range(100)]


async def test_transactions_commit_and_abort(fencepost: Broker) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=fencepost.bootstrap_servers, transactional_id="writer")
    await producer.start()
    for value, commit in ((b"a", True), (b"b", False), (b"c", True)):
        await producer.begin_transaction()
        await producer.send_and_wait("orders", value, partition=0)
        if commit:
            await producer.commit_transaction()
        else:
            await producer.abort_transaction()
    await producer.stop()
    assert await read(fencepost, "orders", 2, "read_committed") == [b"a", b"c"]
    assert await read(fencepost, "orders", 3, "read_uncommitted") == [b"a", b"b", b"c"]


async def test_offsets_are_committed_within_a_transaction(fencepost: Broker) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=fencepost.bootstrap_servers, transactional_id="writer")
    await producer.start()
    async with producer.transaction():
        await producer.send_and_wait("orders", b"x", partition=0)
        await producer.send_offsets_to_transaction({TopicPartition("orders", 0): 1}, "billing")
    await producer.stop()
    consumer = AIOKafkaConsumer(bootstrap_servers=fencepost.bootstrap_servers, group_id="billing")
    consumer.assign([TopicPartition("orders", 0)])
    await consumer.start()
    committed = None
    async with asyncio.timeout(60):
        while committed is None:  # the marker follows the end
            committed = await consumer.committed(TopicPartition("orders", 0))
    assert committed == 1
    await consumer.stop()
