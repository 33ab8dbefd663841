"""Clients of a broker of several processes, for tests: they write to all partitions, transact, and read it all back."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.conditions import PATIENCE_S, until
from tests.support.stable_offsets import until_stable

PARTITIONS = 30
"""As many as make it certain that each of three nodes leads some."""
SETTINGS = {
    "transaction.state.log.num.partitions": "6",
    "offsets.topic.num.partitions": "6",
    "fencepost.node.settling.ms": "0",
    "fencepost.processes.silence.max.ms": "60000",
}
"""A process is silent for a while on a busy machine: only a test of hanging ones has them killed sooner."""
NO_LEADER = -1
PASSING = {
    "NOT_COORDINATOR",
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "_TRANSPORT",
    "_TIMED_OUT",
}
T = TypeVar("T")


def retried(request: Callable[[], T]) -> T:
    """Make a request again that this client does not repeat by itself: its coordinator has moved meanwhile."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return request()
        except KafkaException as error:
            if error.args[0].name() not in PASSING or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def create(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
    for address in bootstrap.split(","):
        until(lambda: _is_known(leaders(address, topic), partitions))  # noqa: B023  # called at once


def _is_known(found: list[int], partitions: int) -> bool:
    return len(found) == partitions and NO_LEADER not in found


def leaders(bootstrap: str, topic: str = "orders") -> list[int]:
    """Who leads each partition; NO_LEADER for those that nobody leads. Waits for a broker that says it."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            partitions = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
        except KafkaException:
            # The broker that was asked has died meanwhile: this client does not ask another one by itself.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
            continue
        return [partitions[number].leader for number in sorted(partitions)]


def write(bootstrap: str, values: list[str]) -> None:
    """Write each value to each partition, and wait until all are acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    errors: list[object] = []
    for value in values:
        for partition in range(PARTITIONS):
            producer.produce("orders", value, partition=partition, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert set(errors) == {None}


def read(bootstrap: str) -> dict[str, list[int]]:
    """The values of all committed records, each with the partitions that it is in. Nobody may write any more."""
    until_stable({"bootstrap.servers": bootstrap}, "orders", PARTITIONS)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("orders", partition, 0) for partition in range(PARTITIONS)])
    found: dict[str, list[int]] = {}
    ended: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"not read to the end: {set(range(PARTITIONS)) - ended}"
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error():
            ended.add(message.partition())
        else:
            found.setdefault(message.value().decode(), []).append(message.partition())
    consumer.close()
    return found


class Transactions:
    """Producers that commit four of five transactions, each with a value in three partitions, until they are stopped.

    settings: of the producers, beside what they need. prefix, ids: what all values and ids begin with.
    committed, aborted: the values of transactions whose end was confirmed. unknown: of those whose end was not.
    ends: when each end was confirmed, by the producer's number; time.monotonic().
    """

    def __init__(
        self,
        bootstrap: str,
        count: int,
        settings: Mapping[str, object] | None = None,
        *,
        prefix: str = "",
        ids: str = "id",
    ) -> None:
        self._settings = settings or {}
        self._prefix = prefix
        self._ids = ids
        self.committed: set[str] = set()
        self.aborted: set[str] = set()
        self.unknown: set[str] = set()
        self.ends: dict[int, list[float]] = {number: [] for number in range(count)}
        self._bootstrap = bootstrap
        self._stopping = threading.Event()
        self._give_up_at_s = float("inf")
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End all producers. None leaves a transaction open, if brokers answer."""
        self._give_up_at_s = time.monotonic() + PATIENCE_S
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        chance, count = random.Random(number), 0
        while time.monotonic() < self._give_up_at_s:
            producer = Producer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "transactional.id": f"{self._ids}-{number}",
                    "log_level": 0,
                    **self._settings,
                }
            )
            try:
                producer.init_transactions(PATIENCE_S)
                while not self._stopping.is_set():
                    count += 1
                    self._one(producer, f"{self._prefix}{number}-{count}", chance, is_committed=count % 5 != 0)
                    self.ends[number].append(time.monotonic())
            except KafkaException:
                continue  # another producer of this id goes on, or at least ends what this one has left
            return

    def _one(self, producer: Producer, value: str, chance: random.Random, *, is_committed: bool) -> None:
        producer.begin_transaction()
        for partition in chance.sample(range(PARTITIONS), 3):
            producer.produce("orders", value, partition=partition)
        if is_committed:
            self.unknown.add(value)
            producer.commit_transaction(PATIENCE_S)
            self.unknown.remove(value)
            self.committed.add(value)
        else:
            producer.abort_transaction(PATIENCE_S)
            self.aborted.add(value)

    def check(self, found: dict[str, list[int]]) -> None:
        for value in self.committed:
            assert len(set(found.get(value, []))) == len(found[value]) == 3, value
        assert not self.aborted & found.keys()
        for value in self.unknown:
            assert len(found.get(value, [])) in (0, 3), value
