"""What administrators do with records, directories, quotas and the like, with the admin clients of kafka-python and
confluent-kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from kafka import TopicPartition as KafkaPythonPartition
from kafka.admin import KafkaAdminClient

from tests.support.broker_process import BrokerProcess

TIMEOUT_S = 20


@pytest.fixture
def kafka_python(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


@pytest.fixture
def confluent(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def create(admin: AdminClient, topic: str, partitions: int = 1, **configs: str) -> None:
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(TIMEOUT_S)


def produce(broker: BrokerProcess, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def earliest(admin: AdminClient, topic: str) -> int:
    wanted = TopicPartition(topic, 0)
    found = admin.list_offsets({wanted: OffsetSpec.earliest()})
    offset: int = found[wanted].result(TIMEOUT_S).offset
    return offset


# DeleteRecords


def test_records_are_deleted_and_stay_so_over_a_crash(own_broker: BrokerProcess, unique: Callable[[str], str]) -> None:
    topic = unique("deleted")
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap})
    create(admin, topic)
    produce(own_broker, topic, 10)
    (done,) = admin.delete_records([TopicPartition(topic, 0, 4)]).values()
    assert done.result(TIMEOUT_S).low_watermark == 4
    assert earliest(admin, topic) == 4
    own_broker.kill()
    own_broker.start()
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap})
    assert earliest(admin, topic) == 4
    (refused,) = admin.delete_records([TopicPartition(topic, 0, 11)]).values()
    with pytest.raises(KafkaException) as raised:
        refused.result(TIMEOUT_S)
    assert raised.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_kafka_python_deletes_records(
    broker: BrokerProcess, kafka_python: KafkaAdminClient, confluent: AdminClient, unique: Callable[[str], str]
) -> None:
    topic = unique("deleted")
    create(confluent, topic)
    produce(broker, topic, 10)
    kafka_python.delete_records({KafkaPythonPartition(topic, 0): 7})
    assert earliest(confluent, topic) == 7
