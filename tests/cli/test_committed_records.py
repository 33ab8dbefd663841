"""Commands read the committed records of topics, up to the end that they have now."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Producer

from fencepost.cli.committed_records import reader, records_of


def write(servers: str, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 2, timestamp=1_000 * (number + 1))
    assert producer.flush(60) == 0


def values_of(servers: str, *topics: str, from_ms: int | None = None) -> list[str]:
    with reader(servers) as consumer:
        assert set(topics) <= consumer.topics()
        return sorted(record.value.decode() for record in records_of(consumer, topics, from_ms=from_ms))


def test_all_partitions_of_all_topics_are_read_once(fencepost: Any) -> None:
    first, second = fencepost.topic("first", partitions=2), fencepost.topic("second", partitions=2)
    write(fencepost.bootstrap_servers, first, "a", "b", "c")
    write(fencepost.bootstrap_servers, second, "d")
    assert values_of(fencepost.bootstrap_servers, first, second) == ["a", "b", "c", "d"]


def test_records_older_than_a_time_are_left_out(fencepost: Any) -> None:
    topic = fencepost.topic("old", partitions=2)
    write(fencepost.bootstrap_servers, topic, "a", "b", "c", "d")
    assert values_of(fencepost.bootstrap_servers, topic, from_ms=3_000) == ["c", "d"]


def test_a_topic_without_records_ends_at_once(fencepost: Any) -> None:
    assert values_of(fencepost.bootstrap_servers, fencepost.topic("empty")) == []


def test_records_that_come_meanwhile_and_open_ones_are_left_out(fencepost: Any) -> None:
    topic = fencepost.topic("growing", partitions=2)
    write(fencepost.bootstrap_servers, topic, "a", "b")
    open_one = Producer({"bootstrap.servers": fencepost.bootstrap_servers, "transactional.id": "open"})
    open_one.init_transactions(60)
    open_one.begin_transaction()
    open_one.produce(topic, "open", partition=0)
    open_one.flush(60)
    with reader(fencepost.bootstrap_servers) as consumer:
        assert topic in consumer.topics()
        found: list[str] = []
        for record in records_of(consumer, [topic]):
            if not found:
                write(fencepost.bootstrap_servers, topic, "late", "late")
            found.append(record.value.decode())
    assert sorted(found) == ["a", "b"]
    open_one.abort_transaction(60)
