"""Clients of the check's broker, and what the checks do with them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.python_checks import Check, FailedError, Thread

TIMEOUT_S = 30.0
COMMITTED = "read_committed"
UNCOMMITTED = "read_uncommitted"


def settings(check: Check, **more: object) -> dict[str, Any]:
    """librdkafka's defaults, but for the pace at which it comes back, and silent. `a_b` stands for `a.b`."""
    return {
        "bootstrap.servers": check.bootstrap,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 200,
        "retry.backoff.ms": 50,
        "log_level": 0,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def new_producer(check: Check, **more: object) -> Any:
    return ck.Producer(settings(check, **more))


def new_consumer(check: Check, group: str, **more: object) -> Any:
    """A consumer that starts at the beginning and commits only explicitly."""
    usual = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    return ck.Consumer(settings(check, **{**usual, **more}))


def new_admin(check: Check) -> Any:
    return AdminClient(settings(check))


def create_topic(check: Check, kind: str, partitions: int) -> str:
    """A topic of the check's own, once it is known."""
    topic = check.name(kind)
    admin = new_admin(check)
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT_S)

    def known() -> bool:
        described = admin.list_topics(topic, TIMEOUT_S).topics[topic]
        return described.error is None and len(described.partitions) == partitions

    check.until("the topic is known", known)
    return topic


def produce(producer: Any, topic: str, values: Iterable[str], partition: int = 0) -> list[int]:
    """Write values to a partition and wait. Returns their offsets; raises KafkaException when one is refused."""
    delivered: list[tuple[Any, Any]] = []

    def on_delivery(error: Any, message: Any) -> None:
        delivered.append((error, message))

    for value in values:
        producer.produce(topic, value.encode(), partition=partition, on_delivery=on_delivery)
    if producer.flush(TIMEOUT_S):
        raise FailedError("records are left in the producer")
    for error, _ in delivered:
        if error is not None:
            raise ck.KafkaException(error)
    return [message.offset() for _, message in delivered]


def read(check: Check, consumer: Any, count: int) -> list[Any]:
    """The next messages, exactly as many as asked for, in the order in which they came."""
    messages: list[Any] = []
    for _ in check.turns(f"reading {count} records"):
        message = consumer.poll(0.1)
        if message is not None:
            if message.error():
                raise ck.KafkaException(message.error())
            messages.append(message)
        if len(messages) >= count:
            break
    return messages


def read_all(check: Check, topic: str, partition: int = 0, isolation: str = COMMITTED) -> list[str]:
    """The values in a partition from its start to its end, as this isolation level sees both."""
    consumer = new_consumer(check, check.name("reader"), isolation_level=isolation, enable_partition_eof=True)
    consumer.assign([ck.TopicPartition(topic, partition, 0)])
    values: list[str] = []
    try:
        for _ in check.turns("reading a partition"):
            message = consumer.poll(0.1)
            if message is None:
                continue
            if message.error() and message.error().code() == ck.KafkaError._PARTITION_EOF:
                break
            if message.error():
                raise ck.KafkaException(message.error())
            values.append(message.value().decode())
        return values
    finally:
        consumer.close()


def error_of(call: Callable[[], object]) -> str:
    """The name of the error that a call raises, "none" when it does not."""
    try:
        call()
    except ck.KafkaException as raised:
        return str(raised.args[0].name())
    return "none"


class Member:
    """A member of a group that polls in a thread, commits what it was given, and knows what it holds."""

    def __init__(self, check: Check, group: str, topics: Sequence[str], **more: object) -> None:
        self.consumer = new_consumer(check, group, **more)
        self.consumer.subscribe(list(topics))
        self.values: list[str] = []
        self.held: set[int] = set()
        self._leaving = threading.Event()
        self._thread = Thread(self._poll)

    def _poll(self) -> None:
        while not self._leaving.is_set():
            messages = [message for message in self.consumer.consume(50, 0.05) if not message.error()]
            self.values += [message.value().decode() for message in messages]
            if messages:
                try:
                    self.consumer.commit(asynchronous=False)
                except ck.KafkaException:
                    pass  # what a member that was cut off could not commit is read again by another
            self.held = {partition.partition for partition in self.consumer.assignment()}
        self.consumer.close()

    def leave(self) -> None:
        self._leaving.set()
        self._thread.join()


def numbers(start: int, end: int) -> list[str]:
    return [str(number) for number in range(start, end)]
