"""The broker ends, in one way or another, and comes back; and two hundred clients at once."""

from __future__ import annotations

import time

from tests.compat.confluent_kafka.groups import CLASSIC
from tests.compat.confluent_kafka.kafka import (
    TIMEOUT_S,
    UNCOMMITTED,
    Member,
    create_topic,
    new_producer,
    numbers,
    produce,
    read_all,
)
from tests.compat.confluent_kafka.transactions import transactional_producer
from tests.compat.python_checks import Check, Thread, together


def crash_while_producing(check: Check) -> None:
    _produce_through(check, "kill")


def stop_while_producing(check: Check) -> None:
    _produce_through(check, "terminate")


def _produce_through(check: Check, how: str) -> None:
    """An idempotent producer writes while the broker is restarted; each record is there once, in order."""
    topic = create_topic(check, "topic", 2)
    producer = new_producer(check, enable_idempotence=True)
    refused: list[object] = []

    def on_delivery(error: object, _message: object) -> None:
        if error is not None:
            refused.append(error)

    def write(count: int) -> None:
        for partition in range(2):
            producer.produce(topic, str(count).encode(), partition=partition, on_delivery=on_delivery)
        producer.poll(0)
        time.sleep(0.0005)

    count = 0
    while count < 200:
        write(count)
        count += 1
    restart = Thread(lambda: check.restart(how))
    while restart.is_running:
        write(count)
        count += 1
    restart.join()
    for _ in range(200):
        write(count)
        count += 1
    check.equal("records left in the producer", producer.flush(TIMEOUT_S), 0)
    check.equal("records that were refused", refused, [])
    for partition in range(2):
        check.equal("records", read_all(check, topic, partition, UNCOMMITTED), numbers(0, count))


def crash_in_transaction(check: Check) -> None:
    topic = create_topic(check, "topic", 2)
    producer = transactional_producer(check, transaction_timeout_ms=600_000)  # restarts take a while
    producer.begin_transaction()
    produce(producer, topic, ["before"], 0)
    check.restart("kill")
    produce(producer, topic, ["after"], 1)
    producer.commit_transaction(TIMEOUT_S)
    producer.begin_transaction()
    produce(producer, topic, ["aborted"], 0)
    check.restart("terminate")
    producer.abort_transaction(TIMEOUT_S)
    check.comes_to("record from before the crash", lambda: read_all(check, topic, 0), ["before"])
    check.comes_to("record from after the crash", lambda: read_all(check, topic, 1), ["after"])


def crash_while_consuming(check: Check) -> None:
    topic, group = create_topic(check, "topic", 2), check.name("group")
    producer = new_producer(check)
    members = [Member(check, group, [topic], **CLASSIC) for _ in range(2)]
    check.until("two members share", lambda: all(len(member.held) == 1 for member in members))
    for start, how in ((0, "kill"), (40, "terminate")):
        for partition in range(2):
            produce(producer, topic, numbers(start + 20 * partition, start + 20 * partition + 20), partition)
        check.until("all is read", lambda start=start: sum(len(member.values) for member in members) >= start + 40)  # type: ignore[misc]
        check.restart(how)
    produce(producer, topic, ["80"], 0)
    check.until("all is read", lambda: "80" in members[0].values + members[1].values)
    together([member.leave for member in members])
    read = members[0].values + members[1].values
    # What was read but not yet committed when the broker went may come again.
    check.equal("each record was read", sorted(set(read)), sorted(numbers(0, 81)))


def many_clients(check: Check) -> None:
    """100 idempotent producers and the 100 members of one group work at once, a partition each."""
    pairs, each = 100, 10
    topic, group = create_topic(check, "topic", pairs), check.name("group")
    members = [Member(check, group, [topic], **CLASSIC) for _ in range(pairs)]

    def write(partition: int) -> None:
        producer = new_producer(check, enable_idempotence=True)
        for number in range(each):
            check.equal("offset", produce(producer, topic, [f"{partition}:{number}"], partition), [number])

    together([lambda partition=partition: write(partition) for partition in range(pairs)])  # type: ignore[misc]
    check.until("every member holds one partition", lambda: all(len(member.held) == 1 for member in members))
    written = {f"{partition}:{number}" for partition in range(pairs) for number in range(each)}
    # A record that was read just before its partition went to another member may be read twice; none is left out.
    check.until("all is read", lambda: {value for member in members for value in member.values} == written)
    together([member.leave for member in members])
