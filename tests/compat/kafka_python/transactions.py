"""Transactions: whole or absent, for readers that ask for it; one producer at a time."""

from __future__ import annotations

from functools import partial
from typing import Any

from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from tests.compat.kafka_python.kafka import (
    COMMITTED,
    UNCOMMITTED,
    VERSION,
    create_topic,
    error_of,
    new_consumer,
    new_producer,
    numbers,
    produce,
    read,
    read_all,
    write,
)
from tests.compat.python_checks import Check


def transactional_producer(check: Check, **more: object) -> Any:
    producer = new_producer(check, transactional_id=check.name("transaction"), **more)
    producer.init_transactions()
    return producer


def transaction_commit_and_abort(check: Check) -> None:
    topic = create_topic(check, "topic", 2)
    producer = transactional_producer(check)
    for number in range(20):
        producer.begin_transaction()
        for partition in range(2):
            produce(producer, topic, [str(number)], partition)
        if number % 3:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()
    for partition in range(2):
        committed = [str(number) for number in range(20) if number % 3]
        check.comes_to("committed records", partial(read_all, check, topic, partition, COMMITTED), committed)
        check.comes_to("all records", partial(read_all, check, topic, partition, UNCOMMITTED), numbers(0, 20))
    consumer = new_consumer(check)
    whole = TopicPartition(topic, 0)
    check.equal("a marker for each transaction", consumer.end_offsets([whole]), {whole: 40})
    consumer.close()


def transaction_isolation(check: Check) -> None:
    topic = create_topic(check, "topic", 1)
    producer = transactional_producer(check)
    write(check, topic, ["before"])
    producer.begin_transaction()
    produce(producer, topic, ["within"])
    write(check, topic, ["after"])
    check.equal("committed while open", read_all(check, topic), ["before"])
    check.equal("all while open", read_all(check, topic, isolation=UNCOMMITTED), ["before", "within", "after"])
    consumer = new_consumer(check, isolation_level=COMMITTED)
    consumer.assign([TopicPartition(topic, 0)])
    check.equal("first record", read(check, consumer, 1)[0].value, b"before")
    producer.abort_transaction()
    check.equal("what comes after the abort", read(check, consumer, 1)[0].value, b"after")
    consumer.close()
    producer.close()


def transaction_consume_transform_produce(check: Check) -> None:
    source, sink, group = create_topic(check, "source", 1), create_topic(check, "sink", 1), check.name("group")
    write(check, source, numbers(0, 30))
    producer = transactional_producer(check)
    whole = TopicPartition(source, 0)

    def transform(count: int, *, commit: bool) -> None:
        consumer = new_consumer(check, source, group_id=group, isolation_level=COMMITTED)
        records = read(check, consumer, count)
        producer.begin_transaction()
        produce(producer, sink, [record.value.decode() for record in records])
        position = {whole: OffsetAndMetadata(records[-1].offset + 1, "", -1)}
        producer.send_offsets_to_transaction(position, consumer.group_metadata() if VERSION >= 3 else group)
        if commit:
            producer.commit_transaction()
            check.comes_to("committed offset", lambda: consumer.committed(whole), records[-1].offset + 1)
        else:
            producer.abort_transaction()
        consumer.close()

    transform(10, commit=True)
    transform(10, commit=False)
    transform(15, commit=True)
    transform(5, commit=True)
    producer.close()
    check.comes_to("each record once", lambda: read_all(check, sink), numbers(0, 30))
    consumer = new_consumer(check, group_id=group)
    check.equal("committed offset", consumer.committed(whole), 30)
    consumer.close()


def transaction_fencing(check: Check) -> None:
    topic = create_topic(check, "topic", 1)
    first = transactional_producer(check)
    first.begin_transaction()
    produce(first, topic, ["first"])
    second = transactional_producer(check)
    second.begin_transaction()
    produce(second, topic, ["second"])
    error = error_of(first.commit_transaction)
    check.fact("error of the fenced producer", error)
    check.equal("the first producer is fenced", error in {"ProducerFencedError", "InvalidProducerEpochError"}, True)
    second.commit_transaction()
    check.comes_to("records", lambda: read_all(check, topic), ["second"])
    check.comes_to("all records", lambda: read_all(check, topic, isolation=UNCOMMITTED), ["first", "second"])
    second.close()
    first.close(timeout=1)


def transaction_zombie(check: Check) -> None:
    topic = create_topic(check, "topic", 1)
    zombie = transactional_producer(check, transaction_timeout_ms=1_000)
    zombie.begin_transaction()
    produce(zombie, topic, ["left behind"])
    write(check, topic, ["after"])
    # A read_committed reader comes to this record only when the broker has aborted the transaction.
    check.until("the broker aborts the transaction", lambda: read_all(check, topic) == ["after"])
    error = error_of(zombie.commit_transaction)
    check.fact("error of the zombie", error)
    check.equal("the zombie cannot commit", error != "none", True)
    check.equal("records", read_all(check, topic), ["after"])
    zombie.close(timeout=1)
