"""The broker ends, in one way or another, and comes back; and many clients at once."""

from __future__ import annotations

import time
from typing import Any

from tests.compat.kafka_python.kafka import (
    TIMEOUT_S,
    UNCOMMITTED,
    Member,
    create_topic,
    new_producer,
    numbers,
    produce,
    read_all,
    write,
)
from tests.compat.kafka_python.transactions import transactional_producer
from tests.compat.python_checks import Check, Thread, together


def crash_while_producing(check: Check) -> None:
    _produce_through(check, "kill")


def stop_while_producing(check: Check) -> None:
    _produce_through(check, "terminate")


def _produce_through(check: Check, how: str) -> None:
    """An idempotent producer writes while the broker is restarted; each record is there once, in order."""
    topic = create_topic(check, "topic", 2)
    producer = new_producer(check, enable_idempotence=True)
    sent: list[Any] = []

    def write_next() -> None:
        number = len(sent) // 2
        sent.extend(producer.send(topic, str(number).encode(), partition=partition) for partition in range(2))
        time.sleep(0.001)

    while len(sent) < 200:
        write_next()
    restart = Thread(lambda: check.restart(how))
    while restart.is_running:
        write_next()
    restart.join()
    for _ in range(100):
        write_next()
    producer.flush(TIMEOUT_S)
    offsets = [future.get(TIMEOUT_S).offset for future in sent]
    check.equal("offsets of the acknowledgements", offsets, [number // 2 for number in range(len(sent))])
    producer.close()
    for partition in range(2):
        check.equal("records", read_all(check, topic, partition, UNCOMMITTED), numbers(0, len(sent) // 2))


def crash_in_transaction(check: Check) -> None:
    topic = create_topic(check, "topic", 2)
    producer = transactional_producer(check)
    producer.begin_transaction()
    produce(producer, topic, ["before"], 0)
    check.restart("kill")
    produce(producer, topic, ["after"], 1)
    producer.commit_transaction()
    producer.begin_transaction()
    produce(producer, topic, ["aborted"], 0)
    check.restart("terminate")
    producer.abort_transaction()
    producer.close()
    check.comes_to("record from before the crash", lambda: read_all(check, topic, 0), ["before"])
    check.comes_to("record from after the crash", lambda: read_all(check, topic, 1), ["after"])


def crash_while_consuming(check: Check) -> None:
    topic, group = create_topic(check, "topic", 2), check.name("group")
    members = [Member(check, group, [topic]) for _ in range(2)]
    check.until("two members share", lambda: all(len(member.held) == 1 for member in members))
    written = 0
    for how in ("kill", "terminate"):
        for partition in range(2):
            write(check, topic, numbers(written, written + 20), partition)
            written += 20
        expected = set(numbers(0, written))
        check.until("all is read", lambda expected=expected: _values(members) == expected)  # type: ignore[misc]
        check.restart(how)
    write(check, topic, [str(written)])
    # What was read but not yet committed when the broker went may come again; nothing is left out.
    check.until("all is read", lambda: _values(members) == set(numbers(0, written + 1)))
    together([member.leave for member in members])


def many_clients(check: Check) -> None:
    """100 producers and the 100 members of one group work at once, a partition each."""
    pairs, each = 100, 10
    topic, group = create_topic(check, "topic", pairs), check.name("group")
    members = [Member(check, group, [topic]) for _ in range(pairs)]

    def fill(partition: int) -> None:
        offsets = write(check, topic, [f"{partition}:{number}" for number in range(each)], partition)
        check.equal("offsets", offsets, list(range(each)))

    together([lambda partition=partition: fill(partition) for partition in range(pairs)])  # type: ignore[misc]
    check.until("every member holds one partition", lambda: all(len(member.held) == 1 for member in members))
    written = {f"{partition}:{number}" for partition in range(pairs) for number in range(each)}
    # A record that was read just before its partition went to another member may be read twice; none is left out.
    check.until("all is read", lambda: _values(members) == written)
    together([member.leave for member in members])


def _values(members: list[Member]) -> set[str]:
    return {value for member in members for value in member.values}
