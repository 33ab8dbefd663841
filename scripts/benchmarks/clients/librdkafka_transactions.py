"""Transactions with librdkafka, which speaks their version 1: partitions are added by a request of the client's own."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

VALUE = b"x" * 100
WARM_UP_S = 0.5
TIMEOUT_S = 60.0


def transactions(
    *, bootstrap: str, topic: str, partitions: int, per_transaction: int, producers: int, duration_s: float
) -> Generator[Any]:
    """Transactions of one record to each of `per_transaction` partitions, one after another, by each producer.

    Reports how many were committed within the time, and milliseconds of each commit.
    """
    clients = [_transactional(bootstrap, f"bench-{topic}-{number}") for number in range(producers)]
    for client in clients:
        client.init_transactions(TIMEOUT_S)
    _work(clients, topic, partitions, per_transaction, WARM_UP_S)
    yield None
    began_at_s = time.monotonic()
    commits_ms = _work(clients, topic, partitions, per_transaction, duration_s)
    yield {"duration_s": time.monotonic() - began_at_s, "commits_ms": commits_ms}


def _work(clients: list[Producer], topic: str, partitions: int, per_transaction: int, duration_s: float) -> list[float]:
    """What each producer measured, one thread each."""
    commits_ms: list[list[float]] = [[] for _ in clients]
    failures: list[BaseException] = []
    deadline_s = time.monotonic() + duration_s

    def work(number: int) -> None:
        client, measured = clients[number], commits_ms[number]
        mine = [(number * per_transaction + n) % partitions for n in range(per_transaction)]
        try:
            while time.monotonic() < deadline_s:
                client.begin_transaction()
                for partition in mine:
                    client.produce(topic, VALUE, partition=partition)
                began_at_s = time.monotonic()
                client.commit_transaction(TIMEOUT_S)
                measured.append((time.monotonic() - began_at_s) * 1e3)
        except KafkaException as failure:
            failures.append(failure)

    if len(clients) == 1:
        work(0)
    else:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(len(clients))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    return [one for measured in commits_ms for one in measured]


def loops(*, bootstrap: str, source: str, target: str, loops: int, per_loop: int) -> Generator[Any]:
    """Consume, transform, produce: loops of a number of records each, which commit offsets with the produced records.

    The source holds enough records in partition 0.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"bench-{target}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    producer = _transactional(bootstrap, f"bench-{target}")
    producer.init_transactions(TIMEOUT_S)
    consumer.assign([TopicPartition(source, 0, 0)])

    def pass_one() -> None:
        messages = consumer.consume(per_loop, TIMEOUT_S)
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
        if len(messages) < per_loop:
            raise TimeoutError("the source has too few records")
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value().upper(), partition=0)
        position = [TopicPartition(source, 0, messages[-1].offset() + 1)]
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), TIMEOUT_S)
        producer.commit_transaction(TIMEOUT_S)

    for _ in range(max(1, loops // 10)):
        pass_one()
    yield None
    began_at_s = time.monotonic()
    for _ in range(loops):
        pass_one()
    yield {"duration_s": time.monotonic() - began_at_s}
    consumer.close()


def _transactional(bootstrap: str, transactional_id: str) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0})
