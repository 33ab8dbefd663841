"""What the Python clients are made to do while the proxy records: administration, produce, consume, groups,
transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiokafka
import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin
import kafka
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.structs import OffsetAndMetadata, TopicPartition

RECORDS = 12
TIMEOUT_S = 20.0


def kafka_python(bootstrap_servers: str) -> None:
    topic, copies, group_id = "kafka-python", "kafka-python-copies", "kafka-python-group"
    administration = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    administration.create_topics([NewTopic(topic, 2, 1), NewTopic(copies, 1, 1)])
    administration.wait_for_topics([topic, copies])
    for compression in (None, "gzip", "lz4"):
        with_codec = kafka.KafkaProducer(
            bootstrap_servers=bootstrap_servers, compression_type=compression, linger_ms=20
        )
        for index in range(RECORDS):
            with_codec.send(
                topic, key=b"key%d" % index, value=b"value " * 20, headers=[("codec", str(compression).encode())]
            )
        with_codec.close()
    unacknowledged = kafka.KafkaProducer(bootstrap_servers=bootstrap_servers, acks=0, enable_idempotence=False)
    unacknowledged.send(topic, b"fire and forget")
    unacknowledged.close()

    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id=group_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    transactional = kafka.KafkaProducer(
        bootstrap_servers=bootstrap_servers, transactional_id="kafka-python-transactions"
    )
    transactional.init_transactions()
    read = 0
    while read < 3 * RECORDS:
        polled = consumer.poll(timeout_ms=500)
        if not polled:
            continue
        transactional.begin_transaction()
        offsets = {}
        for partition, records in polled.items():
            for record in records:
                transactional.send(copies, key=record.key, value=record.value)
            offsets[partition] = OffsetAndMetadata(records[-1].offset + 1, "", -1)
            read += len(records)
        transactional.send_offsets_to_transaction(offsets, consumer.group_metadata())
        transactional.commit_transaction()
    consumer.commit()
    transactional.begin_transaction()
    transactional.send(copies, value=b"never to be seen")
    transactional.flush()
    transactional.abort_transaction()
    transactional.close()
    consumer.offsets_for_times({TopicPartition(topic, 0): 0})
    consumer.end_offsets([TopicPartition(copies, 0)])

    administration.list_transactions()
    administration.describe_transactions(["kafka-python-transactions"])
    administration.describe_producers([TopicPartition(copies, 0)])
    administration.describe_cluster()
    administration.describe_topics([topic])
    administration.describe_groups([group_id])
    administration.list_groups()
    administration.list_group_offsets([group_id])
    consumer.close()
    administration.delete_groups([group_id])
    administration.create_partitions({topic: 3})
    administration.delete_topics([copies])
    administration.close()


def confluent(bootstrap_servers: str) -> None:
    topic, copies, group_id = "confluent", "confluent-copies", "confluent-group"
    configuration = {"bootstrap.servers": bootstrap_servers}
    administration = confluent_kafka.admin.AdminClient(configuration)
    new_topics = [
        confluent_kafka.admin.NewTopic(name, num_partitions=2, replication_factor=1) for name in (topic, copies)
    ]
    for created in administration.create_topics(new_topics).values():
        created.result(TIMEOUT_S)
    for codec in ("none", "zstd", "snappy"):
        producer = confluent_kafka.Producer(
            {**configuration, "compression.type": codec, "enable.idempotence": codec != "snappy"}
        )
        for index in range(RECORDS):
            producer.produce(topic, key=f"key{index}", value=b"value " * 20, headers=[("codec", codec.encode())])
        producer.flush(TIMEOUT_S)
    consumer = confluent_kafka.Consumer(
        {**configuration, "group.id": group_id, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe([topic])
    transactional = confluent_kafka.Producer({**configuration, "transactional.id": "confluent-transactions"})
    transactional.init_transactions(TIMEOUT_S)
    read = 0
    while read < 3 * RECORDS:
        messages = consumer.consume(num_messages=RECORDS, timeout=0.5)
        if not messages:
            continue
        transactional.begin_transaction()
        for message in messages:
            transactional.produce(copies, key=message.key(), value=message.value())
        transactional.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), TIMEOUT_S
        )
        transactional.commit_transaction(TIMEOUT_S)
        read += len(messages)
    consumer.commit(asynchronous=False)
    transactional.begin_transaction()
    transactional.produce(copies, value=b"never to be seen")
    transactional.flush(TIMEOUT_S)
    transactional.abort_transaction(TIMEOUT_S)
    consumer.offsets_for_times([confluent_kafka.TopicPartition(topic, 0, 0)], TIMEOUT_S)
    resource = confluent_kafka.admin.ConfigResource(confluent_kafka.admin.ResourceType.TOPIC, topic)
    for described in administration.describe_configs([resource]).values():
        described.result(TIMEOUT_S)
    administration.list_topics(timeout=TIMEOUT_S)
    administration.list_consumer_groups().result(TIMEOUT_S)
    for group in administration.describe_consumer_groups([group_id]).values():
        group.result(TIMEOUT_S)
    consumer.close()
    for removed in administration.delete_consumer_groups([group_id]).values():
        removed.result(TIMEOUT_S)
    for deleted in administration.delete_topics([copies]).values():
        deleted.result(TIMEOUT_S)


def confluent_members(bootstrap_servers: str) -> None:
    """Two members of a group of the consumer protocol, by name and by pattern: rebalance, commit, leave."""
    topic, group_id = "confluent-shared", "confluent-members"
    configuration = {"bootstrap.servers": bootstrap_servers}
    administration = confluent_kafka.admin.AdminClient(configuration)
    for created in administration.create_topics([confluent_kafka.admin.NewTopic(topic, 4, 1)]).values():
        created.result(TIMEOUT_S)
    members = []
    for subscription in (topic, "^confluent-sh.*"):
        consumer = confluent_kafka.Consumer(
            {**configuration, "group.id": group_id, "group.protocol": "consumer", "enable.auto.commit": False}
        )
        consumer.subscribe([subscription])
        members.append(consumer)
        while not all(member.assignment() for member in members):
            for member in members:
                member.poll(0.2)
    for member in members:
        offsets = [confluent_kafka.TopicPartition(topic, owned.partition, 1) for owned in member.assignment()]
        member.commit(offsets=offsets, asynchronous=False)
        member.committed(offsets, TIMEOUT_S)
    for group in administration.describe_consumer_groups([group_id]).values():
        group.result(TIMEOUT_S)
    for member in members:
        member.close()


def aiokafka_(bootstrap_servers: str) -> None:
    asyncio.run(_aiokafka(bootstrap_servers))


async def _aiokafka(bootstrap_servers: str) -> None:
    topic, copies, group_id = "aiokafka", "aiokafka-copies", "aiokafka-group"
    administration = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await administration.start()
    await administration.create_topics([aiokafka.admin.NewTopic(name, 2, 1) for name in (topic, copies)])
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers, enable_idempotence=True, compression_type="gzip"
    )
    await producer.start()
    for index in range(RECORDS):
        await producer.send(topic, key=b"key%d" % index, value=b"value " * 20)
    await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id=group_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    await consumer.start()
    transactional = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers, transactional_id="aiokafka-transactions"
    )
    await transactional.start()
    read = 0
    while read < RECORDS:
        polled = await consumer.getmany(timeout_ms=500)
        if not polled:
            continue
        async with transactional.transaction():
            for records in polled.values():
                for record in records:
                    await transactional.send(copies, key=record.key, value=record.value)
                read += len(records)
            offsets = {partition: records[-1].offset + 1 for partition, records in polled.items()}
            await transactional.send_offsets_to_transaction(offsets, group_id)
    await transactional.begin_transaction()
    await transactional.send_and_wait(copies, b"never to be seen")
    await transactional.abort_transaction()
    await transactional.stop()
    await consumer.commit()
    await consumer.stop()
    await administration.list_consumer_groups()
    await administration.describe_consumer_groups([group_id])
    await administration.list_consumer_group_offsets(group_id)
    await administration.delete_topics([copies])
    await administration.close()


CLIENTS: list[tuple[str, Callable[[str], None]]] = [
    (f"kafka-python {kafka.__version__}", kafka_python),
    (f"confluent-kafka {confluent_kafka.__version__}", confluent),
    (f"confluent-kafka {confluent_kafka.__version__}", confluent_members),
    (f"aiokafka {aiokafka.__version__}", aiokafka_),
]
