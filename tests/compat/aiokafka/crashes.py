"""The broker ends, in one way or another, and comes back; and two hundred clients at once."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.compat.aiokafka.kafka import (
    UNCOMMITTED,
    Member,
    comes_to,
    create_topic,
    numbers,
    produce,
    producing,
    read_all,
    until,
    write,
)
from tests.compat.aiokafka.transactions import transactional
from tests.compat.python_checks import Check


async def crash_while_producing(check: Check) -> None:
    await _produce_through(check, "kill")


async def stop_while_producing(check: Check) -> None:
    await _produce_through(check, "terminate")


async def _produce_through(check: Check, how: str) -> None:
    """An idempotent producer writes while the broker is restarted; each record is there once, in order."""
    topic = await create_topic(check, "topic", 2)
    async with producing(check, enable_idempotence=True) as producer:
        sent: list[Any] = []

        async def write_next() -> None:
            number = len(sent) // 2
            for partition in range(2):
                sent.append(await producer.send(topic, str(number).encode(), partition=partition))  # noqa: PERF401
            await asyncio.sleep(0.001)

        while len(sent) < 200:
            await write_next()
        restart = asyncio.create_task(asyncio.to_thread(check.restart, how))
        while not restart.done():
            await write_next()
        await restart
        for _ in range(100):
            await write_next()
        offsets = [(await future).offset for future in sent]
    check.equal("offsets of the acknowledgements", offsets, [number // 2 for number in range(len(sent))])
    for partition in range(2):
        values = await read_all(check, topic, partition, UNCOMMITTED)
        check.equal("records", values, numbers(0, len(sent) // 2))


async def crash_in_transaction(check: Check) -> None:
    topic = await create_topic(check, "topic", 2)
    async with producing(check, **transactional(check)) as producer:
        await producer.begin_transaction()
        await produce(producer, topic, ["before"], 0)
        await asyncio.to_thread(check.restart, "kill")
        await produce(producer, topic, ["after"], 1)
        await producer.commit_transaction()
        await producer.begin_transaction()
        await produce(producer, topic, ["aborted"], 0)
        await asyncio.to_thread(check.restart, "terminate")
        await producer.abort_transaction()
    await comes_to(check, "record from before the crash", lambda: read_all(check, topic, 0), ["before"])
    await comes_to(check, "record from after the crash", lambda: read_all(check, topic, 1), ["after"])


async def crash_while_consuming(check: Check) -> None:
    topic, group = await create_topic(check, "topic", 2), check.name("group")
    members = [Member(check, group, [topic]) for _ in range(2)]
    await until("two members share", lambda: all(len(member.held) == 1 for member in members))
    written = 0
    for how in ("kill", "terminate"):
        for partition in range(2):
            await write(check, topic, numbers(written, written + 20), partition)
            written += 20
        expected = set(numbers(0, written))
        await until("all is read", lambda expected=expected: _values(members) == expected)
        await asyncio.to_thread(check.restart, how)
    await write(check, topic, [str(written)])
    # What was read but not yet committed when the broker went may come again; nothing is left out.
    await until("all is read", lambda: _values(members) == set(numbers(0, written + 1)))
    await asyncio.gather(*(member.leave() for member in members))


async def many_clients(check: Check) -> None:
    """100 idempotent producers and the 100 members of one group work at once, a partition each."""
    pairs, each = 100, 10
    topic, group = await create_topic(check, "topic", pairs), check.name("group")
    members = [Member(check, group, [topic]) for _ in range(pairs)]

    async def write_partition(partition: int) -> None:
        async with producing(check, enable_idempotence=True) as producer:
            for number in range(each):
                offsets = await produce(producer, topic, [f"{partition}:{number}"], partition)
                check.equal("offset", offsets, [number])

    await asyncio.gather(*(write_partition(partition) for partition in range(pairs)))
    await until("every member holds one partition", lambda: all(len(member.held) == 1 for member in members))
    written = {f"{partition}:{number}" for partition in range(pairs) for number in range(each)}
    # A record that was read just before its partition went to another member may be read twice; none is left out.
    await until("all is read", lambda: _values(members) == written)
    await asyncio.gather(*(member.leave() for member in members))


def _values(members: list[Member]) -> set[str]:
    return {value for member in members for value in member.values}
