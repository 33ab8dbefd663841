"""A broker that may open few files, and clients that want all: connections are refused, no partition suffers."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from tests.support.broker_process import BrokerProcess

PARTITIONS_COUNT = 100
CLIENTS_COUNT = 400


@pytest.fixture(params=[100, 256])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data")
    process.descriptor_limit = request.param
    try:
        yield process.start()
    finally:
        process.kill()


def end_offsets(broker: BrokerProcess, topic: str, partitions_count: int) -> set[int]:
    with contextlib.closing(KafkaConsumer(bootstrap_servers=broker.bootstrap)) as consumer:
        partitions = [TopicPartition(topic, partition) for partition in range(partitions_count)]
        return set(consumer.end_offsets(partitions).values())


def test_too_many_clients_are_refused_and_the_others_go_on_as_if_they_were_not_there(broker: BrokerProcess) -> None:
    with (
        contextlib.closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin,
        contextlib.closing(KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all")) as producer,
        contextlib.ExitStack() as crowd,
    ):

        def send_to_all(topic: str, partitions_count: int) -> None:
            sent = [producer.send(topic, b"content", partition=partition) for partition in range(partitions_count)]
            for future in sent:
                future.get(60)

        admin.create_topics([NewTopic("orders", PARTITIONS_COUNT, 1)])
        send_to_all("orders", PARTITIONS_COUNT)
        for _ in range(CLIENTS_COUNT):
            client = socket.create_connection((broker.host, broker.port), timeout=60)
            crowd.callback(client.close)
        broker.wait_for_output("connection_refused.*limit of open files.*ulimit -n")
        send_to_all("orders", PARTITIONS_COUNT)
        admin.create_topics([NewTopic("later", 10, 1)])
        send_to_all("later", 10)
    assert broker.terminate() == 0
    broker.start()
    assert end_offsets(broker, "orders", PARTITIONS_COUNT) == {2}
    assert end_offsets(broker, "later", 10) == {1}
    assert "went_offline" not in broker.output
    assert "Too many open files" not in broker.output
    assert "clean=False" not in broker.output


def test_many_partitions_are_stopped_cleanly_and_opened_again(broker: BrokerProcess) -> None:
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        admin.create_topics([NewTopic(f"topic-{number}", PARTITIONS_COUNT, 1) for number in range(5)])
    with contextlib.closing(KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all")) as producer:
        for number in range(5):
            for partition in range(PARTITIONS_COUNT):
                producer.send(f"topic-{number}", b"content", partition=partition)
        producer.flush()
    broker.restart_after_kill()
    assert broker.terminate() == 0
    broker.start()
    for number in range(5):
        assert end_offsets(broker, f"topic-{number}", PARTITIONS_COUNT) == {1}
    assert "went_offline" not in broker.output
    assert "Too many open files" not in broker.output
