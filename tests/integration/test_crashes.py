"""kill -9 of the broker with real files and clients: what was acknowledged stays, transactions end as decided."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer

from fencepost.testing.process import ProcessBroker
from tests.support.broker_process import BrokerFailedError, BrokerProcess
from tests.support.stable_offsets import until_stable


def create(broker: BrokerProcess, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)


def read(
    broker: BrokerProcess, topic: str, *, isolation_level: str = "read_committed", partitions: int = 1
) -> list[bytes]:
    """Everything up to the end of the topic's partitions, as this isolation level sees it. No transaction is open."""
    until_stable({"bootstrap.servers": broker.bootstrap}, topic, partitions)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": isolation_level,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    values: list[bytes] = []
    ended: set[int] = set()
    deadline = time.monotonic() + 60
    while len(ended) < partitions:
        assert time.monotonic() < deadline, f"end of {topic} never reached"
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error() is not None:
            ended.add(message.partition())
        else:
            values.append(message.value())
    consumer.close()
    return values


def test_nothing_acknowledged_is_lost_when_the_broker_is_killed_while_producers_write(
    own_broker: BrokerProcess,
) -> None:
    create(own_broker, "events", 3)
    acknowledged: list[bytes] = []
    producer = Producer({"bootstrap.servers": own_broker.bootstrap, "enable.idempotence": True, "linger.ms": 1})

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            acknowledged.append(message.value())

    stop = threading.Event()

    def crash_three_times() -> None:
        for _ in range(3):
            time.sleep(0.5)
            own_broker.restart_after_kill()
        stop.set()

    crashes = threading.Thread(target=crash_three_times)
    crashes.start()
    number = 0
    while not stop.is_set():
        producer.produce("events", value=str(number), partition=number % 3, on_delivery=delivered)
        number += 1
        producer.poll(0.001)
    crashes.join()
    assert producer.flush(60) == 0
    written = read(own_broker, "events", partitions=3)
    assert len(acknowledged) == number
    # Each exactly once, although batches were sent again after every crash.
    assert sorted(written, key=int) == [str(value).encode() for value in range(number)]


def test_a_transaction_open_at_a_crash_goes_on_after_it(fencepost_process: ProcessBroker) -> None:
    fencepost_process.topic("events", partitions=2)
    producer = Producer({"bootstrap.servers": fencepost_process.bootstrap_servers, "transactional.id": "writer"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("events", value=b"before", partition=0)
    producer.flush(60)
    fencepost_process.kill()
    fencepost_process.start()
    producer.produce("events", value=b"after", partition=1)
    producer.commit_transaction(60)
    assert [record.value for record in fencepost_process.records("events", count=2)] == [b"before", b"after"]


def test_a_transaction_left_behind_is_aborted_when_its_time_is_up_and_readers_go_on(
    fencepost_process: ProcessBroker,
) -> None:
    fencepost_process.topic("events")
    zombie = KafkaProducer(
        bootstrap_servers=fencepost_process.bootstrap_servers,
        transactional_id="writer",
        transaction_timeout_ms=900_000,
    )
    zombie.init_transactions()
    zombie.begin_transaction()
    zombie.send("events", b"left behind").get(timeout=60)
    fencepost_process.kill()
    fencepost_process.start()
    fencepost_process.produce("events", b"after")
    assert fencepost_process.records("events") == []
    fencepost_process.advance(minutes=16)
    assert fencepost_process.transaction("writer").state == "CompleteAbort"
    zombie.close(timeout=0)
    assert [record.value for record in fencepost_process.records("events")] == [b"after"]
    everything = fencepost_process.records("events", isolation="read_uncommitted")
    assert [record.value for record in everything] == [b"left behind", b"after"]


def test_committed_and_aborted_transactions_look_the_same_after_a_crash(own_broker: BrokerProcess) -> None:
    create(own_broker, "events", 2)
    producer = Producer({"bootstrap.servers": own_broker.bootstrap, "transactional.id": "writer"})
    producer.init_transactions(60)
    for number in range(20):
        producer.begin_transaction()
        for partition in range(2):
            producer.produce("events", value=str(number), partition=partition)
        producer.flush(60)
        if number % 3:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    before = read(own_broker, "events", partitions=2)
    own_broker.restart_after_kill()
    assert sorted(read(own_broker, "events", partitions=2)) == sorted(before)
    assert sorted({int(value) for value in before}) == [number for number in range(20) if number % 3]


def test_transactions_that_race_with_crashes_are_whole_or_absent(own_broker: BrokerProcess) -> None:
    create(own_broker, "events", 3)
    producer = Producer(
        {"bootstrap.servers": own_broker.bootstrap, "transactional.id": "writer", "transaction.timeout.ms": 30_000}
    )
    producer.init_transactions(60)
    stop = threading.Event()

    def crash_three_times() -> None:
        for _ in range(3):
            time.sleep(0.4)
            own_broker.restart_after_kill()
        stop.set()

    crashes = threading.Thread(target=crash_three_times)
    crashes.start()
    number = 0
    while not stop.is_set():
        producer.begin_transaction()
        for partition in range(3):
            producer.produce("events", value=str(number), partition=partition)
        producer.commit_transaction(60)
        number += 1
    crashes.join()
    values = sorted(int(value) for value in read(own_broker, "events", partitions=3))
    assert values == sorted(list(range(number)) * 3)


def test_group_offsets_survive_a_crash(own_broker: BrokerProcess) -> None:
    create(own_broker, "events")
    consumer = Consumer({"bootstrap.servers": own_broker.bootstrap, "group.id": "group", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("events", 0, 42)], asynchronous=False)
    consumer.close()
    own_broker.restart_after_kill()
    consumer = Consumer({"bootstrap.servers": own_broker.bootstrap, "group.id": "group"})
    (committed,) = consumer.committed([TopicPartition("events", 0)], 60)
    consumer.close()
    assert committed.offset == 42


def test_sigterm_stops_cleanly_and_the_next_start_recovers_nothing(own_broker: BrokerProcess) -> None:
    create(own_broker, "events")
    producer = Producer({"bootstrap.servers": own_broker.bootstrap})
    producer.produce("events", value=b"x")
    assert producer.flush(60) == 0
    assert own_broker.terminate() == 0
    assert (own_broker.data_directory / ".kafka_cleanshutdown").exists()
    own_broker.start()
    assert read(own_broker, "events") == [b"x"]


def test_a_second_broker_on_the_same_directory_is_refused(own_broker: BrokerProcess) -> None:
    second = BrokerProcess(own_broker.data_directory)
    with pytest.raises(BrokerFailedError) as raised:
        second.start()
    message = str(raised.value)
    assert "in use" in message
    assert str(own_broker.data_directory) in message
    assert "Traceback" not in message.split("ended with", 1)[1]
    assert own_broker.is_running


def test_a_torn_tail_is_cut_and_the_rest_is_kept(own_broker: BrokerProcess) -> None:
    create(own_broker, "events")
    producer = Producer({"bootstrap.servers": own_broker.bootstrap})
    for number in range(10):
        producer.produce("events", value=str(number))
        assert producer.flush(60) == 0
    own_broker.kill()
    segment = own_broker.data_directory / "events-0" / f"{0:020}.log"
    segment.write_bytes(segment.read_bytes()[:-7])
    own_broker.start()
    assert read(own_broker, "events") == [str(number).encode() for number in range(9)]


def test_a_broker_that_is_stopped_and_continued_serves_again(fencepost_process: ProcessBroker) -> None:
    fencepost_process.topic("events")
    producer = Producer({"bootstrap.servers": fencepost_process.bootstrap_servers})
    fencepost_process.freeze()
    producer.produce("events", value=b"x")
    producer.poll(0.5)
    fencepost_process.thaw()
    assert producer.flush(60) == 0
    assert [record.value for record in fencepost_process.records("events")] == [b"x"]


def test_an_unreadable_metadata_file_without_a_copy_stops_the_start_with_its_name(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    create(broker, "events")
    assert broker.terminate() == 0
    database = broker.data_directory / "metadata.sqlite"
    for path in (database, broker.data_directory / "metadata.sqlite.copy"):
        path.write_bytes(b"this is not a database" * 100)
    with pytest.raises(BrokerFailedError) as raised:
        broker.start()
    assert database.name in str(raised.value)
    assert "Traceback" not in str(raised.value)
