"""confluent-kafka (librdkafka), unmodified: it speaks transactions version 1 with the oldest request versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

from tests.support.broker_process import BrokerProcess

Unique = Callable[[str], str]


def create(broker: BrokerProcess, topic: str, partitions: int = 3) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)
    return admin


def read(broker: BrokerProcess, topics: list[str], count: int, **options: Any) -> list[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"reader-of-{topics[0]}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **options,
        }
    )
    consumer.subscribe(topics)
    messages: list[Any] = []
    idle_polls = 0
    # One more idle poll than needed shows that there is nothing too many.
    while idle_polls < (1 if len(messages) >= count else 300):
        message = consumer.poll(0.2)
        if message is None:
            idle_polls += 1
            continue
        idle_polls = 0
        assert message.error() is None, message.error()
        messages.append(message)
    consumer.close()
    return messages


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_stored_and_read_back(broker: BrokerProcess, unique: Unique, codec: str) -> None:
    topic = unique("codec")
    create(broker, topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 20})
    for number in range(200):
        producer.produce(topic, key=str(number), value=b"v" * 100)
    assert producer.flush(60) == 0
    assert len(read(broker, [topic], 200)) == 200


def test_an_idempotent_producer_writes_each_message_once(broker: BrokerProcess, unique: Unique) -> None:
    topic = unique("idempotent")
    create(broker, topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(1_000):
        producer.produce(topic, value=str(number))
    assert producer.flush(60) == 0
    assert [int(message.value()) for message in read(broker, [topic], 1_000)] == list(range(1_000))


def test_consume_transform_produce_moves_offsets_and_records_together(broker: BrokerProcess, unique: Unique) -> None:
    source, target, group = unique("source"), unique("target"), unique("group")
    create(broker, source, 1)
    create(broker, target, 2)
    feeder = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(30):
        feeder.produce(source, value=str(number))
    assert feeder.flush(60) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([source])
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": unique("writer")})
    producer.init_transactions(60)
    done = 0
    while done < 30:
        batch = [message for message in consumer.consume(10, 1.0) if message.error() is None]
        if not batch:
            continue
        producer.begin_transaction()
        for message in batch:
            producer.produce(target, key=message.value(), value=b"out-" + message.value())
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 60
        )
        producer.commit_transaction(60)
        done += len(batch)
    (committed,) = consumer.committed([TopicPartition(source, 0)], 60)
    consumer.close()
    assert committed.offset == 30
    written = read(broker, [target], 30, **{"isolation.level": "read_committed"})
    assert sorted(int(message.value()[4:]) for message in written) == list(range(30))


def test_an_aborted_transaction_stays_hidden_and_the_next_one_commits(broker: BrokerProcess, unique: Unique) -> None:
    topic = unique("aborted")
    create(broker, topic, 3)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": unique("writer")})
    producer.init_transactions(60)
    for value, commit in ((b"no", False), (b"yes", True)):
        producer.begin_transaction()
        for partition in range(3):
            producer.produce(topic, value=value, partition=partition)
        producer.flush(60)
        if commit:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    committed = read(broker, [topic], 3, **{"isolation.level": "read_committed"})
    assert [message.value() for message in committed] == [b"yes"] * 3
    everything = read(broker, [topic], 6, **{"isolation.level": "read_uncommitted", "group.id": unique("all")})
    assert sorted(message.value() for message in everything) == [b"no"] * 3 + [b"yes"] * 3


def test_many_small_transactions_run_one_after_another_without_a_retriable_error(
    broker: BrokerProcess, unique: Unique
) -> None:
    topic = unique("rapid")
    create(broker, topic, 3)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": unique("writer")})
    producer.init_transactions(60)
    for number in range(200):
        producer.begin_transaction()
        for partition in range(3):
            producer.produce(topic, value=str(number), partition=partition)
        producer.commit_transaction(60)
    assert len(read(broker, [topic], 600, **{"isolation.level": "read_committed"})) == 600


def test_a_fenced_producer_gets_the_fenced_error(broker: BrokerProcess, unique: Unique) -> None:
    topic, transactional_id = unique("fenced"), unique("writer")
    create(broker, topic, 1)
    zombie = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id})
    zombie.init_transactions(60)
    zombie.begin_transaction()
    zombie.produce(topic, value=b"zombie")
    zombie.flush(60)
    successor = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id})
    successor.init_transactions(60)
    with pytest.raises(KafkaException) as raised:
        zombie.commit_transaction(60)
    assert raised.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)  # its public name
    assert raised.value.args[0].fatal()


def test_administration(broker: BrokerProcess, unique: Unique) -> None:
    topic = unique("administered")
    admin = create(broker, topic, 1)
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(60)
    assert len(admin.list_topics(topic, timeout=60).topics[topic].partitions) == 4
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    configs = admin.describe_configs([resource])[resource].result(60)
    assert configs["cleanup.policy"].value == "delete"
    assert len(admin.describe_cluster().result(60).nodes) == 1
    admin.delete_topics([topic])[topic].result(60)
    assert topic not in admin.list_topics(timeout=60).topics
