"""aiokafka, unmodified: it uses the oldest version of every transactional request."""

from __future__ import annotations

from collections.abc import Callable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.support.broker_process import BrokerProcess

Unique = Callable[[str], str]


async def read(broker: BrokerProcess, topic: str, count: int, isolation_level: str) -> list[bytes]:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        isolation_level=isolation_level,
        group_id=None,
    )
    await consumer.start()
    values: list[bytes] = []
    for _ in range(50):
        for records in (await consumer.getmany(timeout_ms=200)).values():
            values.extend(record.value for record in records)
        if len(values) >= count:
            break
    await consumer.stop()
    return values


async def test_records_go_through(broker: BrokerProcess, unique: Unique) -> None:
    topic = unique("aiokafka")
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True)
    await producer.start()
    for number in range(100):
        await producer.send_and_wait(topic, str(number).encode())
    await producer.stop()
    values = await read(broker, topic, 100, "read_committed")
    assert sorted(values, key=int) == [str(number).encode() for number in range(100)]


async def test_transactions_commit_and_abort(broker: BrokerProcess, unique: Unique) -> None:
    topic = unique("aiokafka")
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=unique("writer"))
    await producer.start()
    for value, commit in ((b"a", True), (b"b", False), (b"c", True)):
        await producer.begin_transaction()
        await producer.send_and_wait(topic, value, partition=0)
        if commit:
            await producer.commit_transaction()
        else:
            await producer.abort_transaction()
    await producer.stop()
    assert await read(broker, topic, 2, "read_committed") == [b"a", b"c"]
    assert await read(broker, topic, 3, "read_uncommitted") == [b"a", b"b", b"c"]


async def test_offsets_are_committed_within_a_transaction(broker: BrokerProcess, unique: Unique) -> None:
    source, group = unique("source"), unique("group")
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=unique("writer"))
    await producer.start()
    async with producer.transaction():
        await producer.send_and_wait(source, b"x", partition=0)
        await producer.send_offsets_to_transaction({TopicPartition(source, 0): 1}, group)
    await producer.stop()
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group)
    consumer.assign([TopicPartition(source, 0)])
    await consumer.start()
    assert await consumer.committed(TopicPartition(source, 0)) == 1
    await consumer.stop()
