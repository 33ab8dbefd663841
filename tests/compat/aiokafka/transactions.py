"""Transactions, in the first version of each request: whole or absent; one producer at a time."""

from __future__ import annotations

from functools import partial
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition

from tests.compat.aiokafka.kafka import (
    COMMITTED,
    UNCOMMITTED,
    comes_to,
    consuming,
    create_topic,
    error_of,
    numbers,
    produce,
    producing,
    read,
    read_all,
    until,
    write,
)
from tests.compat.python_checks import Check


def transactional(check: Check) -> dict[str, Any]:
    return {"transactional_id": check.name("transaction")}


async def transaction_commit_and_abort(check: Check) -> None:
    topic = await create_topic(check, "topic", 2)
    async with producing(check, **transactional(check)) as producer:
        for number in range(20):
            await producer.begin_transaction()
            for partition in range(2):
                await produce(producer, topic, [str(number)], partition)
            if number % 3:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
    for partition in range(2):
        committed = [str(number) for number in range(20) if number % 3]
        await comes_to(check, "committed records", partial(read_all, check, topic, partition, COMMITTED), committed)
        await comes_to(check, "all records", partial(read_all, check, topic, partition, UNCOMMITTED), numbers(0, 20))
    whole = TopicPartition(topic, 0)
    async with consuming(check) as consumer:
        consumer.assign([whole])
        check.equal("a marker for each transaction", await consumer.end_offsets([whole]), {whole: 40})


async def transaction_isolation(check: Check) -> None:
    topic = await create_topic(check, "topic", 1)
    await write(check, topic, ["before"])
    async with producing(check, **transactional(check)) as producer:
        await producer.begin_transaction()
        await produce(producer, topic, ["within"])
        await write(check, topic, ["after"])
        everything = await read_all(check, topic, isolation=UNCOMMITTED)
        check.equal("all while open", everything, ["before", "within", "after"])
        async with consuming(check, isolation_level=COMMITTED) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            check.equal("first record", (await read(consumer, 1))[0].value, b"before")
            early = await consumer.getmany(timeout_ms=300)
            check.equal("what is committed while the transaction is open", early, {})
            await producer.abort_transaction()
            check.equal("what comes after the abort", (await read(consumer, 1))[0].value, b"after")


async def transaction_consume_transform_produce(check: Check) -> None:
    source, sink = await create_topic(check, "source", 1), await create_topic(check, "sink", 1)
    group, whole = check.name("group"), TopicPartition(source, 0)
    await write(check, source, numbers(0, 30))
    async with producing(check, **transactional(check)) as producer:
        for count, commit in ((10, True), (10, False), (15, True), (5, True)):
            async with consuming(check, source, group_id=group, isolation_level=COMMITTED) as consumer:
                records = await read(consumer, count)
                await producer.begin_transaction()
                await produce(producer, sink, [record.value.decode() for record in records])
                await producer.send_offsets_to_transaction({whole: records[-1].offset + 1}, group)
                if commit:
                    await producer.commit_transaction()
                    position = records[-1].offset + 1
                    await comes_to(check, "committed offset", partial(consumer.committed, whole), position)
                else:
                    await producer.abort_transaction()
    await comes_to(check, "each record once", lambda: read_all(check, sink), numbers(0, 30))
    async with consuming(check, group_id=group) as consumer:
        consumer.assign([whole])
        check.equal("committed offset", await consumer.committed(whole), 30)


async def transaction_fencing(check: Check) -> None:
    topic = await create_topic(check, "topic", 1)
    first = AIOKafkaProducer(bootstrap_servers=check.bootstrap, **transactional(check))
    await first.start()
    await first.begin_transaction()
    await produce(first, topic, ["first"])
    async with producing(check, **transactional(check)) as second:
        await second.begin_transaction()
        await produce(second, topic, ["second"])
        check.equal("error of the fenced producer", await error_of(first.commit_transaction()), "ProducerFenced")
        await second.commit_transaction()
    await comes_to(check, "records", lambda: read_all(check, topic), ["second"])
    await comes_to(check, "all records", lambda: read_all(check, topic, isolation=UNCOMMITTED), ["first", "second"])
    await error_of(first.stop())


async def transaction_zombie(check: Check) -> None:
    topic = await create_topic(check, "topic", 1)
    zombie = AIOKafkaProducer(bootstrap_servers=check.bootstrap, transaction_timeout_ms=1_000, **transactional(check))
    await zombie.start()
    await zombie.begin_transaction()
    await produce(zombie, topic, ["left behind"])
    await write(check, topic, ["after"])

    async def is_aborted() -> bool:
        return await read_all(check, topic) == ["after"]

    # A read_committed reader comes to this record only when the broker has aborted the transaction.
    await until("the broker aborts the transaction", is_aborted)
    error = await error_of(zombie.commit_transaction())
    check.fact("error of the zombie", error)
    check.equal("the zombie cannot commit", error != "none", True)
    check.equal("records", await read_all(check, topic), ["after"])
    await error_of(zombie.stop())
