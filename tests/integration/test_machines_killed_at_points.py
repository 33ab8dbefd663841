"""A broker of a cluster of machines dies at a named point of its work: whatever was acknowledged is there, once.

Three brokers, a real PostgreSQL and a real S3 server; clients transact all the time. After each death the others go on,
the broker comes back, and rows and objects must fit together.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.clients_of_processes import SETTINGS, Transactions, create, leaders, read
from tests.support.conditions import noted, until
from tests.support.killed_at_point import POINTS
from tests.support.machines import Machine, Machines
from tests.support.object_server import ObjectServer, object_server
from tests.support.postgres import postgres_server

SMALL = {
    **SETTINGS,
    "auto.create.topics.enable": "false",  # a producer asks for its topic after that was deleted
    "fencepost.cluster.inline.max.bytes": "2048",
    "fencepost.cluster.tail.max.bytes": str(1024 * 1024),
    "log.segment.bytes": str(1024 * 1024),
    "transaction.state.log.segment.bytes": str(64 * 1024),
    "offsets.topic.segment.bytes": str(64 * 1024),
}
BULK_PARTITIONS = 6
BULK_VALUE = b"x" * 20_000
PAUSE_S = 0.02
IN_TIME_S = 120.0
QUICK = (
    "when the rows of a sealed segment are swapped",
    "within a take-over, once the fence is raised",
)


class Cluster:
    """The brokers, each of which dies where it is ordered to."""

    def __init__(self, machines: Machines, order: Path, objects: ObjectServer) -> None:
        self.machines = machines
        self.objects = objects
        self._order = order

    @property
    def bootstrap(self) -> str:
        return self.machines.bootstrap

    def order(self, point: str, passed: int = 0) -> None:
        """Let the first broker die that comes to a point, after it was passed so often."""
        coming = self._order.with_suffix(".coming")
        coming.write_text(f"{point}|{passed}")
        coming.rename(self._order)

    def dead(self) -> list[Machine]:
        return [machine for machine in self.machines.machines.values() if not machine.is_running]

    def alive(self) -> str:
        """The addresses of those that live."""
        return ",".join(machine.bootstrap for machine in self.machines.machines.values() if machine.is_running)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "fencepost", "cluster", *arguments],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("machines")
    order = directory / "order"
    with (
        postgres_server(is_durable=True) as database,
        object_server(directory / "objects") as objects,
    ):
        program = ("-m", "tests.support.killed_at_point", str(order))
        with Machines(
            database.cluster_url(), objects.make_bucket(), directory, settings=SMALL, program=program
        ) as machines:
            create(machines.bootstrap, "orders")
            yield Cluster(machines, order, objects)


def create_bulk(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, BULK_PARTITIONS, 1)])[topic].result(IN_TIME_S)


class Bulk:
    """A producer of large records to all partitions of a topic, until it is stopped. acknowledged: their numbers."""

    _numbers = count()

    def __init__(self, bootstrap: str, *, topic: str) -> None:
        self.topic = topic
        self.sent: set[int] = set()
        self.acknowledged: set[int] = set()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "compression.type": "none",
                "message.timeout.ms": 60_000,
                "log_level": 0,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(PAUSE_S):
            number = next(self._numbers)
            self.sent.add(number)
            try:
                self._producer.produce(
                    self.topic,
                    b"%d " % number + BULK_VALUE,
                    partition=number % BULK_PARTITIONS,
                    on_delivery=partial(self._delivered, number),
                )
            except BufferError:
                self.sent.discard(number)
            except KafkaException:
                return  # the topic is gone
            self._producer.poll(0)

    def _delivered(self, number: int, error: object, _: Message) -> None:
        if error is None:
            self.acknowledged.add(number)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._producer.flush(IN_TIME_S)

    def check(self, bootstrap: str) -> None:
        found = [number for number in numbers(bootstrap, self.topic) if number in self.sent]
        assert len(found) == len(set(found)), "a record is there twice"
        assert self.acknowledged <= set(found), self.acknowledged - set(found)


def numbers(bootstrap: str, topic: str) -> list[int]:
    """The numbers of all records of a topic, read from its beginning."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader-of-bulk",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 4_000_000,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(BULK_PARTITIONS)])
    found: list[int] = []
    ended: set[int] = set()

    def read_some() -> bool:
        while messages := consumer.consume(1_000, timeout=0.2):
            ended.update(one.partition() for one in messages if one.error())
            found.extend(int(one.value().split(b" ", 1)[0]) for one in messages if not one.error())
        return len(ended) == BULK_PARTITIONS

    try:
        until(read_some, timeout_s=IN_TIME_S)
    finally:
        consumer.close()
    return found


# What makes a broker come to a point


def nothing_more(_: Cluster, __: str) -> None:
    """Transactions and large records come all the time."""


def lose_one(cluster: Cluster, _: str) -> None:
    cluster.machines[1].kill()


def move_some(cluster: Cluster, _: str) -> None:
    found = leaders(cluster.bootstrap)
    for partition in (found.index(1), found.index(2)):
        target = {1: 2, 2: 3, 3: 1}[found[partition]]
        cluster.command("move", "orders", str(partition), "--to", str(target), "-b", cluster.bootstrap)


def read_remote_segments(cluster: Cluster, topic: str) -> None:
    """Others lead the partitions of a lost broker, and have none of their sealed segments here."""
    threading.Thread(target=lambda: ignoring(lambda: numbers(cluster.alive(), topic))).start()


def ignoring(work: Callable[[], object]) -> None:
    try:
        work()
    except (AssertionError, KafkaException):
        return


TRIGGERS: dict[str, Callable[[Cluster, str], None]] = {
    "take-over": lose_one,
    "restored": lose_one,
    "move": move_some,
    "brought": read_remote_segments,
    "put in its place": read_remote_segments,
}
PASSED = {"between two files of a segment": 1}
OF_DELETIONS = [point for point in POINTS if "deletion" in point]
POINTS_OF_WORK = [point for point in POINTS if point not in OF_DELETIONS]


def trigger_of(point: str) -> Callable[[Cluster, str], None]:
    return next((trigger for word, trigger in TRIGGERS.items() if word in point), nothing_more)


def check_point(cluster: Cluster, point: str) -> None:
    """Let a broker die at a point, and check all that was acknowledged before, meanwhile and afterwards."""
    trigger = trigger_of(point)
    # A client that loses all its connections within moments may wait for ever for new ones.
    of_clients = {"metadata.recovery.strategy": "none"}
    transactions = Transactions(cluster.bootstrap, 3, of_clients, prefix=f"{point}: ")
    topic = f"bulk-{'-'.join(re.findall('[a-z]+', point))}"
    create_bulk(cluster.bootstrap, topic)
    bulk = Bulk(cluster.bootstrap, topic=topic)
    try:
        with noted(lambda: cluster.machines.output[-60_000:]):
            commit_some(transactions)
            if trigger is read_remote_segments:
                sealed = output_count(cluster, "segment_sealed")
                until(lambda: output_count(cluster, "segment_sealed") > sealed + 3, timeout_s=IN_TIME_S)
                lose_one(cluster, topic)
                until(lambda: 1 not in leaders(cluster.alive()), timeout_s=IN_TIME_S)
            expected = len(cluster.dead()) + (2 if trigger is lose_one else 1)
            cluster.order(point, PASSED.get(point, 0))
            trigger(cluster, topic)
            until(lambda: len(cluster.dead()) == expected, timeout_s=IN_TIME_S)
            dead = {machine.settings["node.id"] for machine in cluster.dead()}
            until(lambda: not dead & set(map(str, leaders(cluster.alive()))), timeout_s=IN_TIME_S)
            commit_some(transactions)
            for machine in cluster.dead():
                machine.kill()  # what it wrote is in its log by then
                machine.start()
            until(lambda: set(leaders(cluster.bootstrap)) == {1, 2, 3}, timeout_s=IN_TIME_S)
            commit_some(transactions)
    finally:
        transactions.stop()
        bulk.stop()
    transactions.check(read(cluster.bootstrap))
    bulk.check(cluster.bootstrap)
    checked(cluster)


def commit_some(transactions: Transactions) -> None:
    before = len(transactions.committed)
    until(lambda: len(transactions.committed) > before + 10, timeout_s=IN_TIME_S)


def output_count(cluster: Cluster, event: str) -> int:
    return cluster.machines.output.count(event)


def checked(cluster: Cluster) -> None:
    """Rows and objects fit together, as `fencepost cluster check` says.

    The brokers are frozen meanwhile: garbage is removed at once here, and a check reads the rows before the objects.
    """
    for machine in cluster.machines.machines.values():
        machine.freeze()
    try:
        done = cluster.command("check", *cluster.machines.stores)
    finally:
        for machine in cluster.machines.machines.values():
            machine.wake()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "partition_went_offline" not in cluster.machines.output


def is_there(cluster: Cluster, topic: str) -> bool:
    """Whether a topic exists, once all brokers say the same."""
    answers: set[bool] = set()

    def do_all_agree() -> bool:
        answers.clear()
        for machine in cluster.machines.machines.values():
            admin = AdminClient({"bootstrap.servers": machine.bootstrap})
            answers.add(topic in admin.list_topics(timeout=IN_TIME_S).topics)
        return len(answers) == 1

    until(do_all_agree, timeout_s=IN_TIME_S)
    return answers.pop()


def has_garbage(cluster: Cluster) -> bool:
    return bool(json.loads(cluster.command("check", *cluster.machines.stores, "--json").stdout)["garbage"])


@pytest.mark.integration
@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", QUICK)
def test_nothing_is_lost_when_a_broker_dies(cluster: Cluster, point: str) -> None:
    check_point(cluster, point)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", [point for point in POINTS_OF_WORK if point not in QUICK])
def test_nothing_is_lost_wherever_a_broker_dies(cluster: Cluster, point: str) -> None:
    check_point(cluster, point)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", OF_DELETIONS)
def test_a_topic_is_deleted_whole_or_not_at_all(cluster: Cluster, point: str) -> None:
    topic = f"gone-{'-'.join(re.findall('[a-z]+', point))}"
    create_bulk(cluster.bootstrap, topic)
    bulk = Bulk(cluster.bootstrap, topic=topic)
    until(lambda: len(bulk.acknowledged) > 60, timeout_s=IN_TIME_S)
    bulk.stop()
    cluster.order(point)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    deleting = admin.delete_topics([topic], operation_timeout=30)[topic]
    until(cluster.dead, timeout_s=IN_TIME_S)
    ignoring(lambda: deleting.result(IN_TIME_S))  # the client may have asked another broker meanwhile
    dead = {machine.settings["node.id"] for machine in cluster.dead()}
    until(lambda: not dead & set(map(str, leaders(cluster.alive()))), timeout_s=IN_TIME_S)
    for machine in cluster.dead():
        machine.kill()
        machine.start()
    if is_there(cluster, topic):
        bulk.check(cluster.bootstrap)
        again = AdminClient({"bootstrap.servers": cluster.bootstrap})
        again.delete_topics([topic])[topic].result(IN_TIME_S)
    until(lambda: not has_garbage(cluster), timeout_s=IN_TIME_S)
    checked(cluster)
    create_bulk(cluster.bootstrap, topic)
    assert numbers(cluster.bootstrap, topic) == []
