"""A producer, a transactional producer and a member of a group that never stop, with a Python client's defaults.

    python -m tests.compat.steady confluent_kafka|kafka_python BOOTSTRAP TOPIC PARTITIONS FEED

Each line is the part ("produce", "transact", "consume"), a partition and when what has arrived was sent, in
milliseconds of Unix time. A transaction writes to all partitions, and its line has the partition -1.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import confluent_kafka as ck
import kafka
import kafka.errors

PAUSE_S = 0.25
_printing = threading.Lock()


class Work(NamedTuple):
    """The arguments of the program."""

    bootstrap: str
    topic: str
    partitions: int
    feed: str


def say(part: str, partition: int, sent_ms: int | bytes) -> None:
    sent = sent_ms.decode() if isinstance(sent_ms, bytes) else sent_ms
    with _printing:
        sys.stdout.write(f"{part} {partition} {sent}\n")
        sys.stdout.flush()


def complain(part: str, error: object) -> None:
    sys.stderr.write(f"{part} {error!r}\n")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# librdkafka


def produce(work: Work) -> None:
    producer = ck.Producer({"bootstrap.servers": work.bootstrap})

    def delivered(sent_ms: int, error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is not None:
            complain("produce", error)
        else:
            say("produce", message.partition() or 0, sent_ms)

    while True:
        for number in range(work.partitions):
            sent_ms = now_ms()
            producer.produce(work.topic, str(sent_ms), partition=number, on_delivery=partial(delivered, sent_ms))
        until_s = time.monotonic() + PAUSE_S
        while time.monotonic() < until_s:
            producer.poll(0.05)


def _transactional(work: Work) -> ck.Producer:
    while True:
        producer = ck.Producer({"bootstrap.servers": work.bootstrap, "transactional.id": work.topic})
        try:
            producer.init_transactions()
        except ck.KafkaException as error:
            complain("transact", error)
        else:
            return producer


def _retried(call: Callable[[], None]) -> None:
    while True:
        try:
            return call()
        except ck.KafkaException as error:
            if not error.args[0].retriable():
                raise
            complain("transact", error)


def transact(work: Work) -> None:
    producer = _transactional(work)
    while True:
        began_ms = now_ms()
        try:
            producer.begin_transaction()
            for number in range(work.partitions):
                producer.produce(work.topic, str(began_ms), partition=number)
            _retried(producer.commit_transaction)
        except ck.KafkaException as error:
            complain("transact", error)
            try:
                _retried(producer.abort_transaction)
            except ck.KafkaException as fatal:
                complain("transact", fatal)
                producer = _transactional(work)
        else:
            say("transact", -1, began_ms)
        time.sleep(PAUSE_S)


def consume(work: Work) -> None:
    consumer = ck.Consumer({"bootstrap.servers": work.bootstrap, "group.id": work.topic})
    consumer.subscribe([work.feed])
    while True:
        message = consumer.poll(0.2)
        if message is None:
            continue
        if (error := message.error()) is not None:
            complain("consume", error)
        else:
            say("consume", message.partition() or 0, message.value() or b"")


# kafka-python


def produce_with_kafka_python(work: Work) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=work.bootstrap.split(","))

    def delivered(number: int, sent_ms: int, _: Any) -> None:
        say("produce", number, sent_ms)

    while True:
        for number in range(work.partitions):
            sent_ms = now_ms()
            try:
                sent = producer.send(work.topic, str(sent_ms).encode(), partition=number)
            except kafka.errors.KafkaError as error:
                complain("produce", error)
                continue
            sent.add_callback(partial(delivered, number, sent_ms))
            sent.add_errback(partial(complain, "produce"))
        time.sleep(PAUSE_S)


def _transactional_of_kafka_python(work: Work) -> kafka.KafkaProducer:
    while True:
        try:
            producer = kafka.KafkaProducer(bootstrap_servers=work.bootstrap.split(","), transactional_id=work.topic)
        except kafka.errors.KafkaError as error:  # none of the servers that it tried has answered in time
            complain("transact", error)
            continue
        try:
            producer.init_transactions()
        except kafka.errors.KafkaError as error:
            complain("transact", error)
            producer.close(timeout=0)
        else:
            return producer


def transact_with_kafka_python(work: Work) -> None:
    producer = _transactional_of_kafka_python(work)
    while True:
        began_ms = now_ms()
        try:
            producer.begin_transaction()
            for number in range(work.partitions):
                producer.send(work.topic, str(began_ms).encode(), partition=number)
            producer.commit_transaction()
        except kafka.errors.KafkaError as error:
            complain("transact", error)
            try:
                producer.abort_transaction()
            except kafka.errors.KafkaError as fatal:
                complain("transact", fatal)
                producer.close(timeout=0)
                producer = _transactional_of_kafka_python(work)
        else:
            say("transact", -1, began_ms)
        time.sleep(PAUSE_S)


def consume_with_kafka_python(work: Work) -> None:
    consumer = kafka.KafkaConsumer(work.feed, bootstrap_servers=work.bootstrap.split(","), group_id=work.topic)
    while True:
        for records in consumer.poll(timeout_ms=200).values():
            for record in records:
                say("consume", record.partition, record.value)


PARTS: dict[str, tuple[Callable[[Work], None], ...]] = {
    "confluent_kafka": (produce, transact, consume),
    "kafka_python": (produce_with_kafka_python, transact_with_kafka_python, consume_with_kafka_python),
}


def main(client: str, bootstrap: str, topic: str, partitions: str, feed: str) -> None:
    work = Work(bootstrap, topic, int(partitions), feed)
    for part in PARTS[client]:
        threading.Thread(target=part, args=(work,)).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
