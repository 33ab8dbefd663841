"""A broker whose data directory is restored to an earlier moment, under clients that live on or have kept positions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from tests.support.conditions import until
from tests.support.restored_broker import KEPT, LOST, NEW, RestoredBroker, restored_broker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

POSITION = 30  # amid the lost ones


def of_librdkafka(bootstrap: str, topic: str, position: int, count: int, *, partition: int = 0) -> list[str]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "outside", "auto.offset.reset": "error"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, partition, position)])
    found: list[str] = []

    def has_all() -> bool:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message.value().decode())
        return len(found) == count

    until(has_all)
    consumer.close()
    return found


def of_kafka_python(bootstrap: str, topic: str, position: int, count: int) -> list[str]:
    partition = KafkaPythonPartition(topic, 0)
    with closing(KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="none")) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, position)
        return [record.value.decode() for _, record in zip(range(count), consumer, strict=False)]


def of_aiokafka(bootstrap: str, topic: str, position: int, count: int) -> list[str]:
    async def read() -> list[str]:
        partition = AiokafkaPartition(topic, 0)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="none", isolation_level="read_committed"
        )
        await consumer.start()
        try:
            consumer.assign([partition])
            consumer.seek(partition, position)
            return [(await consumer.getone()).value.decode() for _ in range(count)]
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(read(), 120))


CLIENTS = [of_librdkafka, of_kafka_python, of_aiokafka]


@pytest.mark.parametrize("arguments", [(), ("--processes", "2")])
def test_no_position_of_the_lost_history_leaves_out_a_new_record(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with restored_broker(tmp_path, *arguments) as restored:
        restored.copy()
        restored.write(LOST)
        restored.write(LOST, "empty")
        restored.lose_and_restore()
        restored.write(NEW)
        restored.write(NEW, "empty")
        bootstrap = restored.broker.bootstrap
        for read in CLIENTS:
            assert read(bootstrap, "orders", POSITION, len(NEW)) == NEW
            assert read(bootstrap, "orders", len(KEPT), len(NEW)) == NEW
            assert read(bootstrap, "orders", 0, len(KEPT) + len(NEW)) == KEPT + NEW
            assert read(bootstrap, "empty", 7, len(NEW)) == NEW


class Living:
    """A member of a group that lives on while its broker is restored. read: returns the values that have come."""

    def __init__(self, read: Callable[[], list[str]], commit: Callable[[], object]) -> None:
        self._read = read
        self.commit = commit
        self.values: list[str] = []

    def has(self, values: list[str]) -> bool:
        self.values += self._read()
        return set(values) <= set(self.values)


def living_librdkafka(bootstrap: str) -> Living:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "of-librdkafka",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])

    def read() -> list[str]:
        message = consumer.poll(0.1)
        return [message.value().decode()] if message is not None and message.error() is None else []

    return Living(read, lambda: consumer.commit(asynchronous=False))


def living_kafka_python(bootstrap: str) -> Living:
    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=bootstrap,
        group_id="of-kafka-python",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )

    def read() -> list[str]:
        # Not a short time: if it ends while the member joins, kafka-python 3.0.12 may never join.
        return [record.value.decode() for records in consumer.poll(30_000).values() for record in records]

    return Living(read, consumer.commit)


@pytest.mark.parametrize("make", [living_librdkafka, living_kafka_python])
def test_a_consumer_that_lives_on_leaves_out_no_new_record(tmp_path: Path, make: Callable[[str], Living]) -> None:
    with restored_broker(tmp_path) as restored:
        restored.copy()
        member = make(restored.broker.bootstrap)
        restored.write(LOST)
        until(lambda: member.has(LOST))
        member.commit()
        restored.lose_and_restore()
        restored.write(NEW)
        until(lambda: member.has(NEW))
        # Its group has begun anew: what it had not committed since may come again.
        assert list(dict.fromkeys(value for value in member.values if value in NEW)) == NEW


def test_sessions_and_producer_ids_of_the_lost_history_write_nothing(tmp_path: Path) -> None:
    with restored_broker(tmp_path) as restored:
        session(restored).commit_transaction(60)
        restored.copy()
        zombies = [session(restored) for _ in range(3)]
        restored.lose_and_restore()
        owner = session(restored)
        for zombie in zombies:
            zombie.produce("orders", "of a zombie", partition=0)
            with pytest.raises(KafkaException):
                zombie.commit_transaction(60)
        owner.produce("orders", "of the owner", partition=0)
        owner.commit_transaction(60)
        restored.write(["last"])
        found = of_aiokafka(restored.broker.bootstrap, "orders", 0, len(KEPT) + 2)
        assert found == [*KEPT, "of the owner", "last"]


def session(restored: RestoredBroker) -> Producer:
    producer = Producer({"bootstrap.servers": restored.broker.bootstrap, "transactional.id": "till"})
    producer.init_transactions(60)
    producer.begin_transaction()
    return producer
