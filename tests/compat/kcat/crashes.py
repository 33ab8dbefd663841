"""The broker ends, in one way or another, and comes back; and two hundred at once."""

from __future__ import annotations

import time
from functools import partial

from tests.compat.kcat.groups import Member
from tests.compat.kcat.tool import (
    PARTITION_COUNT,
    UNCOMMITTED,
    Running,
    create_topic,
    numbers,
    offset,
    produce,
    read_all,
    succeed,
)
from tests.compat.kcat.transactions import Writer, numbers_in
from tests.compat.python_checks import Check, Thread, together


def crash_while_producing(check: Check) -> None:
    _produce_through(check, "kill")


def stop_while_producing(check: Check) -> None:
    _produce_through(check, "terminate")


def _produce_through(check: Check, how: str) -> None:
    """An idempotent producer writes while the broker is restarted; each record is there once, in order."""
    topic = create_topic(check)
    arguments = ("-P", "-E", "-t", topic, "-p", "0")
    with Running(check, *arguments, config=["enable.idempotence=true", "linger.ms=1"]) as producer:
        count = 0

        def write() -> None:
            nonlocal count
            producer.write(*[f"{number} {'x' * 100}" for number in range(count, count + 10)])
            count += 10
            time.sleep(0.002)

        for _ in range(100):
            write()
        check.until("some are there", lambda: offset(check, topic, 0, -1) > 0)
        restart = Thread(lambda: check.restart(how))
        while restart.is_running:
            write()
        restart.join()
        for _ in range(100):
            write()
        check.equal("exit code", producer.end_of_input(), 0)
    written = [value.split(" ")[0] for value in read_all(check, topic, 0, UNCOMMITTED)]
    check.equal("records", written, numbers(0, count))


def crash_in_transaction(check: Check) -> None:
    topic = create_topic(check)
    for start, how in ((0, "kill"), (3, "terminate")):
        with Writer(check, topic) as writer:
            writer.write_padded(*numbers(start, start + 2))
            written = partial(numbers_in, check, topic, UNCOMMITTED)
            check.comes_to("written", written, numbers(0, start + 1))
            check.restart(how)
            check.equal("committed", numbers_in(check, topic), numbers(0, start))
            writer.write_padded(str(start + 2))
            check.equal("exit code", writer.end_of_input(), 0)
        check.equal("committed", numbers_in(check, topic), numbers(0, start + 3))


def crash_while_consuming(check: Check) -> None:
    topic, group = create_topic(check), check.name("group")
    with Member(check, group, [topic]) as first, Member(check, group, [topic]) as second:
        members = [first, second]
        check.until("two members share", lambda: sorted(len(member.held) for member in members) == [1, 2])
        count = 0

        def write() -> None:
            nonlocal count
            for partition in range(PARTITION_COUNT):
                produce(check, topic, numbers(count, count + 20), partition)
                count += 20
            wanted = set(numbers(0, count))
            # What was read but not yet committed when the broker went may come again; nothing is left out.
            check.until("all is read", lambda: {value for member in members for value in member.values} == wanted)

        for how in ("kill", "terminate"):
            write()
            check.restart(how)
        write()
        check.equal("exit codes", [member.interrupt() for member in members], [0, 0])
    left = succeed(check, "-G", group, "-e", "-q", topic, config=["auto.offset.reset=earliest"])
    check.equal("all is committed", left, "")


def many_clients(check: Check) -> None:
    """100 idempotent producers and the 100 members of one group work at once, on a partition or two each."""
    pairs, each = 100, 10
    topics = [create_topic(check, f"topic{number}") for number in range(-(-pairs // PARTITION_COUNT))]
    partitions = [(topic, partition) for topic in topics for partition in range(PARTITION_COUNT)]
    group = check.name("group")
    config = ["partition.assignment.strategy=roundrobin"]
    members = [Member(check, group, topics, config) for _ in range(pairs)]
    try:

        def write(topic: str, partition: int) -> None:
            records = [f"{topic}:{partition}:{number}" for number in range(each)]
            produce(check, topic, records, partition, config=["enable.idempotence=true"])
            check.equal("end", offset(check, topic, partition, -1), each)

        together([lambda where=where: write(*where) for where in partitions])  # type: ignore[misc]
        check.until("every member holds something", lambda: all(member.held for member in members))
        held = sorted(partition for member in members for partition in member.held)
        check.equal("each partition is held once", held, sorted(partitions))
        written = {f"{topic}:{partition}:{number}" for topic, partition in partitions for number in range(each)}
        # A record that was read just before its partition went to another member may be read twice; none is left out.
        check.until("all is read", lambda: {value for member in members for value in member.values} == written)
        codes: set[int] = set()
        together([lambda member=member: codes.add(member.interrupt()) for member in members])  # type: ignore[misc]
        check.equal("exit codes", codes, {0})
    finally:
        for member in members:
            if member.process.poll() is None:
                member.kill()
