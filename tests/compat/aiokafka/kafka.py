"""Clients of the check's broker, and what the checks do with them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from tests.compat.python_checks import LIMIT_S, Check, FailedError

# What the client tells of connections that broke is not a failure: the checks say what is.
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)

COMMITTED = "read_committed"
UNCOMMITTED = "read_uncommitted"


@asynccontextmanager
async def producing(check: Check, **more: object) -> AsyncIterator[Any]:
    """A producer with the client's own `acks`, which is 1 unless it is idempotent."""
    producer = AIOKafkaProducer(bootstrap_servers=check.bootstrap, **more)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def consuming(check: Check, *topics: str, **more: object) -> AsyncIterator[Any]:
    """A consumer that starts at the beginning and commits only explicitly."""
    usual = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 200}
    consumer = AIOKafkaConsumer(*topics, bootstrap_servers=check.bootstrap, **{**usual, **more})
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


@asynccontextmanager
async def administering(check: Check) -> AsyncIterator[Any]:
    admin = AIOKafkaAdminClient(bootstrap_servers=check.bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def until(what: str, holds: Callable[[], Awaitable[bool]] | Callable[[], bool]) -> None:
    """Ask again until the condition holds. Raises FailedError when that takes too long."""
    deadline = time.monotonic() + LIMIT_S / 2
    while True:
        held = holds()
        if held if isinstance(held, bool) else await held:
            return
        if time.monotonic() > deadline:
            raise FailedError(f"{what}: did not come about")
        await asyncio.sleep(0.02)


async def comes_to(check: Check, what: str, get: Callable[[], Awaitable[object]], want: object) -> None:
    """Ask again until the answer is the one that is wanted; end the check when that takes too long."""
    got = await get()
    for _ in check.patience():
        if got == want:
            return
        await asyncio.sleep(0.02)
        got = await get()
    check.equal(what, got, want)


async def create_topic(check: Check, kind: str, partitions: int) -> str:
    """A topic of the check's own, once it is known."""
    topic = check.name(kind)
    async with administering(check) as admin:
        await admin.create_topics([NewTopic(topic, partitions, 1)])

        async def known() -> bool:
            [described] = await admin.describe_topics([topic])
            return len(described["partitions"]) == partitions

        await until("the topic is known", known)
    return topic


async def produce(producer: Any, topic: str, values: Iterable[str], partition: int = 0) -> list[int]:
    """Write values to a partition and wait. Returns their offsets; raises KafkaError when one is refused."""
    sent = [await producer.send(topic, value.encode(), partition=partition) for value in values]
    return [(await future).offset for future in sent]


async def write(check: Check, topic: str, values: Iterable[str], partition: int = 0, **more: object) -> list[int]:
    """`produce` with a producer for just that."""
    async with producing(check, **more) as producer:
        return await produce(producer, topic, values, partition)


async def read(consumer: Any, count: int) -> list[Any]:
    """The next records, exactly as many as asked for, by partition in their order."""
    records: list[Any] = []

    async def enough() -> bool:
        for batch in (await consumer.getmany(timeout_ms=100, max_records=count - len(records))).values():
            records.extend(batch)
        return len(records) >= count

    await until(f"reading {count} records", enough)
    return records


async def read_all(check: Check, topic: str, partition: int = 0, isolation: str = COMMITTED) -> list[str]:
    """The values in a partition from its start to its end, as this isolation level sees both."""
    whole = TopicPartition(topic, partition)
    values: list[str] = []
    async with consuming(check, isolation_level=isolation) as consumer:
        consumer.assign([whole])
        end = (await consumer.end_offsets([whole]))[whole]
        await consumer.seek_to_beginning(whole)

        async def at_the_end() -> bool:
            if await consumer.position(whole) >= end:
                return True
            for batch in (await consumer.getmany(timeout_ms=100)).values():
                values.extend(record.value.decode() for record in batch)
            return False

        await until("reading a partition", at_the_end)
    return values


async def error_of(call: Awaitable[object]) -> str:
    """The name of the class of the error that a call raises, "none" when it does not."""
    try:
        await call
    except KafkaError as raised:
        return type(raised).__name__
    return "none"


class Member:
    """A member of a group that polls in a task, commits what it was given, and knows what it holds."""

    def __init__(self, check: Check, group: str, topics: Sequence[str], **more: object) -> None:
        self.values: list[str] = []
        self.held: set[int] = set()
        self._leaving = False
        self._task = asyncio.create_task(self._poll(check, group, topics, more))

    async def _poll(self, check: Check, group: str, topics: Sequence[str], more: dict[str, object]) -> None:
        async with consuming(check, *topics, group_id=group, **more) as consumer:
            while not self._leaving:
                batches = await consumer.getmany(timeout_ms=50)
                for batch in batches.values():
                    self.values += [record.value.decode() for record in batch]
                if batches:
                    try:
                        await consumer.commit()
                    except KafkaError:
                        pass  # what a member that was cut off could not commit is read again by another
                self.held = {partition.partition for partition in consumer.assignment()}

    async def leave(self) -> None:
        self._leaving = True
        await self._task


def numbers(start: int, end: int) -> list[str]:
    return [str(number) for number in range(start, end)]
