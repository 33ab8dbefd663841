"""Transactions: whole or absent, for readers that ask for it; one producer at a time."""

from __future__ import annotations

from functools import partial
from typing import Any

import confluent_kafka as ck

from tests.compat.confluent_kafka.kafka import (
    COMMITTED,
    TIMEOUT_S,
    UNCOMMITTED,
    create_topic,
    error_of,
    new_consumer,
    new_producer,
    numbers,
    produce,
    read,
    read_all,
)
from tests.compat.python_checks import Check


def transactional_producer(check: Check, **more: object) -> Any:
    producer = new_producer(check, transactional_id=check.name("transaction"), **more)
    producer.init_transactions(TIMEOUT_S)
    return producer


def transaction_commit_and_abort(check: Check) -> None:
    topic = create_topic(check, "topic", 2)
    producer = transactional_producer(check)
    for number in range(20):
        producer.begin_transaction()
        for partition in range(2):
            produce(producer, topic, [str(number)], partition)
        if number % 3:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)
    for partition in range(2):
        committed = [str(number) for number in range(20) if number % 3]
        check.comes_to("committed records", partial(read_all, check, topic, partition, COMMITTED), committed)
        check.comes_to("all records", partial(read_all, check, topic, partition, UNCOMMITTED), numbers(0, 20))
    consumer = new_consumer(check, check.name("group"))
    watermarks = consumer.get_watermark_offsets(ck.TopicPartition(topic, 0), TIMEOUT_S)
    check.equal("a marker for each transaction", watermarks, (0, 40))
    consumer.close()


def transaction_isolation(check: Check) -> None:
    topic = create_topic(check, "topic", 1)
    plain, producer = new_producer(check), transactional_producer(check)
    produce(plain, topic, ["before"])
    producer.begin_transaction()
    produce(producer, topic, ["within"])
    produce(plain, topic, ["after"])
    check.equal("committed while open", read_all(check, topic), ["before"])
    check.equal("all while open", read_all(check, topic, isolation=UNCOMMITTED), ["before", "within", "after"])
    consumer = new_consumer(check, check.name("group"))
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    check.equal("first record", read(check, consumer, 1)[0].value(), b"before")
    producer.abort_transaction(TIMEOUT_S)
    check.equal("what comes after the abort", read(check, consumer, 1)[0].value(), b"after")
    consumer.close()


def transaction_consume_transform_produce(check: Check) -> None:
    source, sink, group = create_topic(check, "source", 1), create_topic(check, "sink", 1), check.name("group")
    produce(new_producer(check), source, numbers(0, 30))
    producer = transactional_producer(check)

    def transform(count: int, *, commit: bool) -> None:
        consumer = new_consumer(check, group)
        consumer.subscribe([source])
        messages = read(check, consumer, count)
        producer.begin_transaction()
        produce(producer, sink, [message.value().decode() for message in messages])
        position = ck.TopicPartition(source, 0, messages[-1].offset() + 1)
        producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), TIMEOUT_S)
        if commit:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)
        consumer.close()

    transform(10, commit=True)
    transform(10, commit=False)
    transform(15, commit=True)
    transform(5, commit=True)
    check.comes_to("each record once", lambda: read_all(check, sink), numbers(0, 30))
    consumer = new_consumer(check, group)
    [committed] = consumer.committed([ck.TopicPartition(source, 0)], TIMEOUT_S)
    check.equal("committed offset", committed.offset, 30)
    consumer.close()


def transaction_fencing(check: Check) -> None:
    topic = create_topic(check, "topic", 1)
    first = transactional_producer(check)
    first.begin_transaction()
    produce(first, topic, ["first"])
    second = transactional_producer(check)
    second.begin_transaction()
    produce(second, topic, ["second"])
    check.equal("error of the fenced producer", error_of(lambda: first.commit_transaction(TIMEOUT_S)), "_FENCED")
    second.commit_transaction(TIMEOUT_S)
    check.comes_to("records", lambda: read_all(check, topic), ["second"])
    check.comes_to("all records", lambda: read_all(check, topic, isolation=UNCOMMITTED), ["first", "second"])


def transaction_zombie(check: Check) -> None:
    topic = create_topic(check, "topic", 1)
    zombie = transactional_producer(check, transaction_timeout_ms=1_000)
    zombie.begin_transaction()
    produce(zombie, topic, ["left behind"])
    produce(new_producer(check), topic, ["after"])
    # A read_committed reader comes to this record only when the broker has aborted the transaction.
    check.until("the broker aborts the transaction", lambda: read_all(check, topic) == ["after"])
    check.fact("error of the zombie", error_of(lambda: zombie.commit_transaction(TIMEOUT_S)))
    check.equal("the zombie cannot commit", check.facts["error of the zombie"] != "none", True)
    check.equal("records", read_all(check, topic), ["after"])
