"""kafka-python 3, unmodified: producing, consuming, groups, transactions, administration."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    InvalidReplicationFactorError,
    InvalidTopicError,
    ProducerFencedError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.consumer import IsolationLevel, OffsetSpec
from kafka.structs import OffsetAndMetadata

from tests.support.broker_process import BrokerProcess

Unique = Callable[[str], str]
# Not older: retention would delete the records under the test.
AN_HOUR_AGO_MS = int(time.time() * 1000) - 3_600_000


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


def produce(broker: BrokerProcess, topic: str, values: list[bytes], **options: Any) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, **options)
    futures = [producer.send(topic, value) for value in values]
    for future in futures:
        future.get(timeout=60)
    producer.close()


def consume(broker: BrokerProcess, topic: str, count: int, *, isolation_level: str = "read_committed") -> list[Any]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        isolation_level=isolation_level,
        consumer_timeout_ms=60_000,
        group_id=None,
    )
    records = []
    for record in consumer:
        records.append(record)
        if len(records) >= count:
            break
    consumer.close()
    return records


def end_offsets(admin: Any, topic: str, partitions: int, isolation: IsolationLevel) -> int:
    specs = {TopicPartition(topic, partition): OffsetSpec.LATEST for partition in range(partitions)}
    return sum(found.offset for found in admin.list_partition_offsets(specs, isolation_level=isolation).values())


@pytest.mark.parametrize("codec", [None, "gzip", "lz4"])
def test_records_come_back_with_keys_headers_and_timestamps(
    broker: BrokerProcess, unique: Unique, codec: str | None
) -> None:
    topic = unique("round-trip")
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, compression_type=codec)
    metadata = producer.send(
        topic, value=b"value", key=b"key", headers=[("trace", b"1")], timestamp_ms=AN_HOUR_AGO_MS, partition=1
    ).get(timeout=60)
    producer.close()
    assert (metadata.partition, metadata.offset) == (1, 0)
    (record,) = consume(broker, topic, 1)
    assert (record.key, record.value, record.timestamp) == (b"key", b"value", AN_HOUR_AGO_MS)
    assert record.headers == [("trace", b"1")] or record.headers == (("trace", b"1"),)


def test_order_is_kept_within_a_partition(broker: BrokerProcess, unique: Unique) -> None:
    topic = unique("order")
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=2)
    for number in range(5_000):
        producer.send(topic, str(number).encode(), partition=number % 3)
    producer.flush()
    producer.close()
    records = consume(broker, topic, 5_000)
    for partition in range(3):
        values = [int(record.value) for record in records if record.partition == partition]
        assert values == list(range(partition, 5_000, 3))


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_acknowledgement_is_served(broker: BrokerProcess, unique: Unique, acks: int | str) -> None:
    topic = unique("acks")
    produce(broker, topic, [b"a", b"b"], acks=acks, enable_idempotence=acks == "all")
    assert {record.value for record in consume(broker, topic, 2)} == {b"a", b"b"}


def test_a_committed_transaction_is_read_and_an_aborted_one_is_not(
    broker: BrokerProcess, unique: Unique, admin: Any
) -> None:
    topic = unique("transactions")
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=unique("writer"))
    producer.init_transactions()
    for outcome in ("commit", "abort", "commit"):
        producer.begin_transaction()
        for partition in range(3):
            producer.send(topic, outcome.encode(), partition=partition)
        producer.flush()
        if outcome == "commit":
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()
    produce(broker, topic, [b"last"])
    committed = consume(broker, topic, 7)
    assert sorted(record.value for record in committed) == [b"commit"] * 6 + [b"last"]
    everything = consume(broker, topic, 10, isolation_level="read_uncommitted")
    assert sorted(record.value for record in everything) == [b"abort"] * 3 + [b"commit"] * 6 + [b"last"]


def test_an_open_transaction_holds_back_read_committed_readers(
    broker: BrokerProcess, unique: Unique, admin: Any
) -> None:
    topic = unique("open")
    admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=unique("writer"))
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"pending").get(timeout=60)
    produce(broker, topic, [b"after"])
    assert end_offsets(admin, topic, 1, IsolationLevel.READ_UNCOMMITTED) == 2
    assert end_offsets(admin, topic, 1, IsolationLevel.READ_COMMITTED) == 0
    producer.commit_transaction()
    producer.close()
    assert [record.value for record in consume(broker, topic, 2)] == [b"pending", b"after"]
    # Two records and the marker between them and the end.
    assert end_offsets(admin, topic, 1, IsolationLevel.READ_COMMITTED) == 3


def test_a_second_producer_with_the_same_id_fences_the_first(broker: BrokerProcess, unique: Unique) -> None:
    topic, transactional_id = unique("fencing"), unique("writer")
    zombie = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=transactional_id)
    zombie.init_transactions()
    zombie.begin_transaction()
    zombie.send(topic, b"zombie", partition=0).get(timeout=60)
    successor = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=transactional_id)
    successor.init_transactions()
    with pytest.raises(ProducerFencedError):
        zombie.commit_transaction()
    zombie.close()
    successor.begin_transaction()
    successor.send(topic, b"successor", partition=0).get(timeout=60)
    successor.commit_transaction()
    successor.close()
    assert [record.value for record in consume(broker, topic, 1)] == [b"successor"]


def test_offsets_in_a_transaction_follow_its_outcome(broker: BrokerProcess, unique: Unique, admin: Any) -> None:
    source, group = unique("source"), unique("group")
    produce(broker, source, [b"x"] * 10)
    partition = TopicPartition(source, 0)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=unique("writer"))
    producer.init_transactions()

    def committed() -> int:
        found: int = admin.list_group_offsets({group: [partition]})[group][partition].offset
        return found

    for offset, commit in ((3, True), (7, False)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction({partition: OffsetAndMetadata(offset, "", -1)}, group)
        if commit:
            producer.commit_transaction()
            wait_until(lambda: committed() == 3)  # the marker follows the end
        else:
            producer.abort_transaction()
    producer.begin_transaction()  # the one before has its marker by the time that this one writes
    producer.send(source, b"y", partition=0).get(timeout=60)
    producer.commit_transaction()
    producer.close()
    assert committed() == 3


def test_two_members_of_a_group_share_the_partitions_and_take_over_from_each_other(
    broker: BrokerProcess, unique: Unique, admin: Any
) -> None:
    topic, group = unique("shared"), unique("group")
    admin.create_topics({topic: {"num_partitions": 4, "replication_factor": 1}})
    with PollingMember(broker, topic, group) as first:
        with PollingMember(broker, topic, group) as second:
            wait_until(lambda: (first.partition_count, second.partition_count) == (2, 2))
        wait_until(lambda: first.partition_count == 4)
    listed = {entry["group_id"]: entry["group_state"] for entry in admin.list_groups()}
    assert listed[group] == "Empty"
    assert dict(admin.delete_groups([group])) == {group: "OK"}


class PollingMember:
    """A group member that polls in its own thread, as an application does.

    Each poll is longer than a rebalance: when one ends in the middle of a join, kafka-python forgets the assignment
    that comes then, and stops its heartbeats.
    """

    def __init__(self, broker: BrokerProcess, topic: str, group: str) -> None:
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
        )
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._poll)

    @property
    def partition_count(self) -> int:
        return len(self._consumer.assignment())

    def _poll(self) -> None:
        while not self._stopped.is_set():
            self._consumer.poll(timeout_ms=2_000)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._consumer.close()


def wait_until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_a_group_goes_on_where_it_committed(broker: BrokerProcess, unique: Unique) -> None:
    topic, group = unique("resumed"), unique("group")
    produce(broker, topic, [str(number).encode() for number in range(10)])
    seen: list[bytes] = []
    for _ in range(2):
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=5,
            consumer_timeout_ms=60_000,
        )
        for _, record in zip(range(5), consumer, strict=False):
            seen.append(record.value)
        consumer.commit()
        consumer.close()
    assert sorted(seen, key=int) == [str(number).encode() for number in range(10)]


def test_topics_are_created_described_grown_and_deleted(broker: BrokerProcess, unique: Unique, admin: Any) -> None:
    topic = unique("managed")
    admin.create_topics(
        {topic: {"num_partitions": 2, "replication_factor": 1, "configs": {"cleanup.policy": "compact"}}}
    )
    (described,) = admin.describe_topics([topic])
    assert [partition["partition_index"] for partition in described["partitions"]] == [0, 1]
    admin.create_partitions({topic: 5})
    assert len(admin.describe_topics([topic])[0]["partitions"]) == 5
    configs = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    assert "compact" in str(configs)
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()


def test_refusals_carry_kafkas_errors(broker: BrokerProcess, unique: Unique, admin: Any) -> None:
    with pytest.raises(InvalidReplicationFactorError):
        admin.create_topics({unique("replicated"): {"num_partitions": 1, "replication_factor": 3}})
    with pytest.raises(InvalidTopicError):
        admin.create_topics({"no spaces please": {"num_partitions": 1, "replication_factor": 1}})
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([unique("missing")])


def test_transactions_can_be_listed_and_described(broker: BrokerProcess, unique: Unique, admin: Any) -> None:
    topic, transactional_id = unique("inspected"), unique("writer")
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=transactional_id)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"open", partition=0).get(timeout=60)
    description = admin.describe_transactions([transactional_id])[transactional_id]
    assert description.state.value == "Ongoing"
    assert description.topic_partitions == {TopicPartition(topic, 0)}
    (producers,) = admin.describe_producers([TopicPartition(topic, 0)]).values()
    assert [entry.producer_id for entry in producers.active_producers] == [description.producer_id]
    assert producers.active_producers[0].current_transaction_start_offset == 0
    producer.commit_transaction()
    producer.close()
    listed = {
        entry.transactional_id: entry.state.value for entries in admin.list_transactions().values() for entry in entries
    }
    assert listed[transactional_id] in {"PrepareCommit", "CompleteCommit"}


def test_offsets_are_found_by_timestamp(broker: BrokerProcess, unique: Unique) -> None:
    topic = unique("timestamps")
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number in range(20):
        producer.send(topic, b"x", partition=0, timestamp_ms=AN_HOUR_AGO_MS + number * 1_000).get(timeout=60)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None)
    partition = TopicPartition(topic, 0)
    found = consumer.offsets_for_times({partition: AN_HOUR_AGO_MS + 6_500})
    assert found[partition].offset == 7
    assert consumer.offsets_for_times({partition: AN_HOUR_AGO_MS + 30_000_000})[partition] is None
    assert consumer.beginning_offsets([partition])[partition] == 0
    assert consumer.end_offsets([partition])[partition] == 20
    consumer.close()
