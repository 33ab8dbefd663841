"""Clients of the check's broker, and what the checks do with them; for kafka-python 2.3 and 3."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaConnectionError, KafkaError

from tests.compat.python_checks import Check, Thread

# What the client tells of connections that broke is not a failure: the checks say what is.
logging.getLogger("kafka").setLevel(logging.CRITICAL)

TIMEOUT_S = 30.0
VERSION = int(kafka.__version__.split(".")[0])
COMMITTED = "read_committed"
UNCOMMITTED = "read_uncommitted"
# The client's defaults, but for the pace at which it comes back.
PACE = {"reconnect_backoff_ms": 50, "reconnect_backoff_max_ms": 200, "retry_backoff_ms": 50}
CLASSIC = {"heartbeat_interval_ms": 200, "session_timeout_ms": 10_000}


def new_producer(check: Check, **more: object) -> Any:
    """A producer with the client's own `acks`, which is 1 in release 2.3."""
    return KafkaProducer(bootstrap_servers=check.bootstrap, **{**PACE, **more})


def new_consumer(check: Check, *topics: str, **more: object) -> Any:
    """A consumer that starts at the beginning and commits only explicitly."""
    usual = {**PACE, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = KafkaConsumer(*topics, bootstrap_servers=check.bootstrap, **{**usual, **more})
    know(consumer, topics)
    return consumer


def know(consumer: Any, topics: Iterable[str]) -> None:
    """Have a consumer learn of its topics before it joins its group.

    Release 3.0.12 forgets to finish a rebalance when it learns of them while it joins, and `poll` ends just then.
    """
    for topic in topics:
        consumer.partitions_for_topic(topic)


def new_admin(check: Check) -> Any:
    return KafkaAdminClient(bootstrap_servers=check.bootstrap, **PACE)


def create_topic(check: Check, kind: str, partitions: int) -> str:
    """A topic of the check's own, once it is known."""
    topic = check.name(kind)
    admin = new_admin(check)
    admin.create_topics([NewTopic(topic, partitions, 1)])
    check.until("the topic is known", lambda: len(admin.describe_topics([topic])[0]["partitions"]) == partitions)
    admin.close()
    return topic


def produce(producer: Any, topic: str, values: Iterable[str], partition: int = 0) -> list[int]:
    """Write values to a partition and wait. Returns their offsets; raises KafkaError when one is refused."""
    sent = [producer.send(topic, value.encode(), partition=partition) for value in values]
    producer.flush(TIMEOUT_S)
    return [future.get(TIMEOUT_S).offset for future in sent]


def write(check: Check, topic: str, values: Iterable[str], partition: int = 0, **more: object) -> list[int]:
    """`produce` with a producer for just that."""
    producer = new_producer(check, **more)
    try:
        return produce(producer, topic, values, partition)
    finally:
        producer.close()


def read(check: Check, consumer: Any, count: int) -> list[Any]:
    """The next records, exactly as many as asked for, by partition in their order."""
    records: list[Any] = []
    for _ in check.turns(f"reading {count} records"):
        for batch in consumer.poll(100, max_records=count - len(records)).values():
            records += batch
        if len(records) >= count:
            break
    return records


def read_all(check: Check, topic: str, partition: int = 0, isolation: str = COMMITTED) -> list[str]:
    """The values in a partition from its start to its end, as this isolation level sees both."""
    consumer = new_consumer(check, isolation_level=isolation)
    whole = TopicPartition(topic, partition)
    consumer.assign([whole])
    values: list[str] = []
    end = consumer.end_offsets([whole])[whole]
    for _ in check.turns("reading a partition"):
        if consumer.position(whole) >= end:
            break
        values += [record.value.decode() for record in consumer.poll(100).get(whole, [])]
    consumer.close()
    return values


def error_of(call: Callable[[], object]) -> str:
    """The name of the class of the error that a call raises, "none" when it does not."""
    try:
        call()
    except KafkaError as raised:
        return type(raised).__name__
    return "none"


class Member:
    """A member of a group that polls in a thread, commits what it was given, and knows what it holds."""

    def __init__(
        self, check: Check, group: str, topics: Sequence[str], pattern: str | None = None, **more: object
    ) -> None:
        self.consumer = new_consumer(check, group_id=group, **{**CLASSIC, **more})
        if pattern is None:
            self.consumer.subscribe(list(topics))
            know(self.consumer, topics)
        else:
            self.consumer.subscribe(pattern=pattern)
        self.values: list[str] = []
        self.held: set[int] = set()
        self._leaving = threading.Event()
        self._thread = Thread(self._poll)

    def _poll(self) -> None:
        while not self._leaving.is_set():
            try:
                batches = self.consumer.poll(50)
            except KafkaConnectionError:  # of several nodes none could be reached; the next call tries again
                continue
            for batch in batches.values():
                self.values += [record.value.decode() for record in batch]
            if batches:
                # What a member that was cut off could not commit is read again by another.
                with suppress(KafkaError):
                    self.consumer.commit()
            self.held = {partition.partition for partition in self.consumer.assignment()}
        self.consumer.close()

    def leave(self) -> None:
        self._leaving.set()
        self._thread.join()


def numbers(start: int, end: int) -> list[str]:
    return [str(number) for number in range(start, end)]
