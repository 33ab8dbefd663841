"""From one broker to a cluster of machines and back, with all that it has, under clients that live through it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from fencepost.history.writer import HistoryWriter
from fencepost.soak.client_process import Surroundings
from fencepost.soak.client_processes import Crew
from fencepost.soak.final_read import Examiner, wait_until_settled
from fencepost.soak.plan import Plan
from fencepost.two_phase import Coordinator, Token, confluent_producer, prepare
from tests.support.broker_process import BrokerFailedError, BrokerProcess
from tests.support.clients_of_processes import retried
from tests.support.conditions import until
from tests.support.machines import Machines
from tests.support.moved_broker import MovedBroker, cluster_command, command_line, moved
from tests.support.object_server import ObjectServer
from tests.support.postgres import PostgresServer

PATIENCE_S = 240.0


class History:
    """Clients of two libraries that transact through all moves, and the record of what they did and saw."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.plan = Plan(seed=7, kinds=("confluent", "kafka-python"), rate=40)
        self._bootstrap = bootstrap
        self._path = directory / "history.jsonl"
        self._history = HistoryWriter.open(self._path)
        logs = directory / "clients"
        logs.mkdir()
        self.crew = Crew(Surroundings(self.plan, bootstrap, self._path, logs, None))

    def create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        for made in admin.create_topics([NewTopic(*one, 1) for one in self.plan.topics().items()]).values():
            made.result(30)

    def work(self) -> None:
        """Wait until each transactional client has committed again."""
        since_s = time.monotonic()
        while self.crew.idle_since(since_s):
            self.crew.look()  # librdkafka may wait for ever when all brokers end at once: such a client is replaced
            assert time.monotonic() - since_s < PATIENCE_S, self.crew.idle_since(since_s)
            time.sleep(0.05)

    def finish(self) -> None:
        """Stop the clients, and record what can be read at last."""
        self.crew.stop(60)
        assert wait_until_settled(self._bootstrap) == []
        examiner = Examiner(self._bootstrap, self.plan.partitions())
        assert examiner.unstable_partitions() == []
        client = self._history.client("final-read", isolation_level="read_committed")
        assert examiner.record_everything(client).records_count > 0
        examiner.record_offsets(client, self.plan.kinds)

    def check(self) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "fencepost", "history", "check", str(self._path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_clients_live_through_every_move_also_after_kills_and_lose_nothing(
    database: PostgresServer, objects: ObjectServer, tmp_path: Path
) -> None:
    broker = MovedBroker(tmp_path)
    history = History(broker.bootstrap, tmp_path)
    bucket = objects.make_bucket()
    first, second = database.cluster_url(), database.cluster_url()
    try:
        with broker.alone(tmp_path / "data"):
            history.create_topics()
            history.work()
        moved(first, bucket, "import", str(tmp_path / "data"))
        with broker.on_machines(first, bucket, is_killed=True):
            history.work()
        moved(first, bucket, "export", "--all", str(tmp_path / "out"))
        with broker.alone(tmp_path / "out", is_killed=True):
            history.work()
        with broker.in_processes(tmp_path / "out", is_killed=True):
            history.work()
        moved(second, bucket, "import", str(tmp_path / "out"))
        with broker.on_machines(second, bucket):
            history.work()
            history.finish()
    finally:
        history.crew.kill_all()
    history.check()


PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="secret"'
SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN} user_admin="secret";',
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "transaction.two.phase.commit.enable": "true",
    "fencepost.two.phase.transactional.ids": "prepared*",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
LEFT_TIMEOUT_MS = 12_000
SHOP = "shop"


class Shop:
    """All kinds of state of a secured broker, and clients that hold some of it over a move."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.bootstrap = bootstrap
        self.admin_login = self.login("PLAIN", "admin", "secret")
        self.bob_login = self.login("SCRAM-SHA-256", "bob", "bobs")
        self.admin = AdminClient(self.admin_login)
        self.values: list[bytes] = []
        self._open: list[Producer] = []
        self._tokens: list[Token] = []
        self._properties = directory / "admin.properties"
        self._properties.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN};\n"
        )

    def login(self, mechanism: str, user: str, password: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }

    def open(self) -> None:
        """Make topics, a user with rights and a quota, and a group that has read some."""
        topics = [
            NewTopic("orders", 1, 1),
            NewTopic("table", 1, 1, config={"cleanup.policy": "compact", "segment.bytes": "1048576"}),
            NewTopic("empty", 3, 1),
            NewTopic("trimmed", 1, 1),
        ]
        for made in self.admin.create_topics(topics).values():
            made.result(30)
        user = UserScramCredentialUpsertion("bob", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"bobs")
        self.admin.alter_user_scram_credentials([user])["bob"].result(30)
        for resource, name in ((ResourceType.TOPIC, "orders"), (ResourceType.GROUP, "reader")):
            may_read = AclBinding(
                *(resource, name, ResourcePatternType.LITERAL, "User:bob", "*"),
                *(AclOperation.READ, AclPermissionType.ALLOW),
            )
            self.admin.create_acls([may_read])[may_read].result(30)
        self.run("quotas", "set", "--user", "bob", "--producer-byte-rate", "12345")
        producer = Producer(self.admin_login)
        for number in range(10):
            self.values.append(b"order %d" % number)
            producer.produce("orders", self.values[-1])
            producer.produce("trimmed", b"%d" % number)
            producer.produce("table", b"%d" % number, key=b"key %d" % (number % 3))
        assert producer.flush(60) == 0
        self.admin.delete_records([TopicPartition("trimmed", 0, 5)])[TopicPartition("trimmed", 0)].result(30)
        self.commit(4)

    def run(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "fencepost", *arguments, "--command-config", str(self._properties)]
        done = subprocess.run(
            [*command, "-b", self.bootstrap], capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def commit(self, offset: int) -> None:
        consumer = Consumer({**self.admin_login, "group.id": SHOP})
        consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
        consumer.close()

    def begin(self, label: str) -> None:
        """Leave three transactions: one that its producer ends later, one for its time-out, and a prepared one."""
        for name, options in (
            ("kept", {"transaction.timeout.ms": 600_000}),
            ("left", {"transaction.timeout.ms": LEFT_TIMEOUT_MS}),
        ):
            producer = Producer({**self.admin_login, "transactional.id": f"{name} {label}", **options})
            producer.init_transactions(60)
            producer.begin_transaction()
            producer.produce("orders", f"{name} {label}")
            assert producer.flush(60) == 0
            self._open.append(producer)
        prepared = confluent_producer({**self.admin_login, "transactional.id": f"prepared {label}"})
        prepared.init_transactions(60)
        prepared.begin_transaction()
        prepared.produce("orders", f"prepared {label}")
        self._tokens.append(prepare(prepared, timeout_s=60))
        self._open.append(prepared)

    def end(self, label: str) -> None:
        """End those that `begin` left before a move."""
        kept, _left, _prepared = self._open[-3:]
        kept.commit_transaction(120)
        login = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "admin",
            "sasl_plain_password": "secret",
        }
        with Coordinator(self.bootstrap, **login) as coordinator:
            coordinator.complete(self._tokens[-1], commit=True, timeout_s=120)
        self.values += [f"kept {label}".encode(), f"prepared {label}".encode()]

    def read(self, topic: str, login: dict[str, Any], is_enough: Callable[[list[Message]], bool]) -> list[Message]:
        """The first committed records of a topic's only partition. Raises KafkaException."""
        consumer = Consumer(
            {**login, "group.id": "reader", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[Message] = []
        deadline_s = time.monotonic() + 120
        while not is_enough(found):
            assert time.monotonic() < deadline_s, [one.value() for one in found]
            message = consumer.poll(1)
            if message is not None and message.error() is not None:
                if not message.error().retriable():
                    consumer.close()
                    raise KafkaException(message.error())
            elif message is not None:
                found.append(message)
        consumer.close()
        return found

    def check(self) -> None:
        """All is there, and in force."""
        orders = self.read("orders", self.admin_login, lambda found: len(found) == len(self.values))
        assert [one.value() for one in orders] == self.values
        trimmed = self.read("trimmed", self.admin_login, lambda found: len(found) == 5)
        assert [one.value() for one in trimmed] == [b"%d" % n for n in range(5, 10)]
        table = {b"key 0": b"9", b"key 1": b"7", b"key 2": b"8"}  # compacted by now, or not yet
        self.read("table", self.admin_login, lambda found: {one.key(): one.value() for one in found} == table)
        assert len(self.admin.list_topics("empty", timeout=60).topics["empty"].partitions) == 3
        consumer = Consumer({**self.admin_login, "group.id": SHOP})
        committed = retried(lambda: consumer.committed([TopicPartition("orders", 0)], 60))
        assert [one.offset for one in committed] == [4]
        consumer.close()
        assert "compact" in self.run("topics", "describe", "table")
        assert "12345" in self.run("quotas", "list")
        assert self.read("orders", self.bob_login, bool)[0].value() == self.values[0]
        refused: list[Any] = []
        producer = Producer(self.bob_login)
        producer.produce("orders", b"not allowed", on_delivery=lambda error, _: refused.append(error.name()))
        producer.flush(60)
        assert refused == ["TOPIC_AUTHORIZATION_FAILED"]


def topic_ids(shop: Shop) -> dict[str, str]:
    described = shop.admin.describe_topics(TopicCollection(["orders", "table", "empty", "trimmed"]))
    return {name: str(one.result(60).topic_id) for name, one in described.items()}


def test_all_kinds_of_state_are_in_force_after_each_move(
    database: PostgresServer, objects: ObjectServer, tmp_path: Path
) -> None:
    broker = MovedBroker(tmp_path, SECURED, protocol="SASL_PLAINTEXT")
    shop = Shop(broker.bootstrap, tmp_path)
    bucket = objects.make_bucket()
    first, second = database.cluster_url(), database.cluster_url()
    with broker.alone(tmp_path / "data"):
        shop.open()
        ids = topic_ids(shop)
        shop.begin("in")
    moved(first, bucket, "import", str(tmp_path / "data"))
    with broker.on_machines(first, bucket):
        shop.end("in")
        shop.check()
        assert topic_ids(shop) == ids
        shop.begin("out")
    moved(first, bucket, "export", "--all", str(tmp_path / "out"))
    with broker.alone(tmp_path / "out"):
        shop.end("out")
        shop.check()
        assert topic_ids(shop) == ids
    moved(second, bucket, "import", str(tmp_path / "out"))
    with broker.on_machines(second, bucket):
        shop.check()
        assert topic_ids(shop) == ids
        states = shop.run("transactions", "list")
        assert "Ongoing" not in states, states


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A data directory whose import takes seconds: many partitions with a record each."""
    broker = MovedBroker(tmp_path)
    with broker.alone(tmp_path / "data"):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("many", PARTITIONS, 1)])["many"].result(60)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for partition in range(PARTITIONS):
            producer.produce("many", b"%d" % partition, partition=partition)
        assert producer.flush(60) == 0
    return tmp_path / "data"


PARTITIONS = 200
KILLS = 4


def values_of(bootstrap: str) -> set[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition("many", partition, 0) for partition in range(PARTITIONS)])
    found: set[bytes] = set()
    deadline_s = time.monotonic() + 120
    while len(found) < PARTITIONS:
        assert time.monotonic() < deadline_s, len(found)
        found |= {one.value() for one in consumer.consume(PARTITIONS, 1) if one.error() is None}
    consumer.close()
    return found


def kill_in_the_middle(command: list[str], is_in_the_middle: Any) -> None:
    """kill -9 of a command once a condition holds."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: is_in_the_middle() or process.poll() is not None)
    assert process.poll() is None, "it ended too soon"
    process.kill()
    process.wait()


def test_imports_and_exports_that_are_killed_serve_nothing_and_are_completed(
    database: PostgresServer, objects: ObjectServer, tmp_path: Path, filled: Path
) -> None:
    broker = MovedBroker(tmp_path)
    bucket = objects.make_bucket()
    url = database.cluster_url()
    chance = random.Random(5)

    def stored() -> int:
        return len(objects.files(bucket))

    for _ in range(KILLS):
        wanted = stored() + chance.randrange(1, 4 * PARTITIONS // KILLS // 2)
        kill_in_the_middle(command_line(url, bucket, "import", str(filled)), lambda: stored() >= wanted)  # noqa: B023
        machine = Machines(url, bucket, tmp_path, 1)[1]
        with pytest.raises(BrokerFailedError, match="is not complete: run `fencepost cluster import` again"):
            machine.start()
        assert "is not complete" in cluster_command(url, bucket, "check").stderr
    moved(url, bucket, "import", str(filled))
    expected = {b"%d" % partition for partition in range(PARTITIONS)}
    with broker.on_machines(url, bucket):
        assert values_of(broker.bootstrap) == expected
    out = tmp_path / "out"
    for _ in range(KILLS):
        wanted = chance.randrange(1, PARTITIONS)
        kill_in_the_middle(
            command_line(url, bucket, "export", "--all", str(out)),
            lambda: sum(name.endswith(".log") for _, _, names in os.walk(out) for name in names) >= wanted,  # noqa: B023
        )
        assert not (out / "metadata.sqlite").exists()
        with pytest.raises(BrokerFailedError, match="was interrupted: run `fencepost cluster export` again"):
            BrokerProcess(out).start()
    moved(url, bucket, "export", "--all", str(out))
    with broker.alone(out):
        assert values_of(broker.bootstrap) == expected
