"""The drill of docs/cluster.md: a cluster is backed up while clients write, lost with all its stores, and restored."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from fencepost.broker.cluster.objects.location import ObjectLocation
from tests.docs.code_blocks import DOCS, blocks
from tests.docs.test_pages_run import executable
from tests.integration.test_restored_directory import of_librdkafka
from tests.support.clients_of_processes import PARTITIONS, SETTINGS, Transactions, create, leaders, read, retried, write
from tests.support.conditions import noted, until
from tests.support.machines import Machines
from tests.support.object_server import ObjectServer, object_server
from tests.support.postgres import PostgresServer, postgres_server, programs_of_postgres

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

BACKUP, RESTORE = (
    block.text for block in blocks((DOCS / "cluster.md").read_text(encoding="utf-8")) if "aws s3 sync" in block.text
)
SMALL = {
    # Some of all that a cluster keeps: rows, large flushes, and sealed segments.
    "log.segment.bytes": "1048576",
    "fencepost.cluster.inline.max.bytes": "20000",
}
LARGE = [f"{number}-{200_000 * 'x'}" for number in range(12)]
"""Values of records that make segments full."""
S3 = """\
#!{python}
# In place of `aws s3 sync FROM TO`: buckets are directories here.
import os, pathlib, shutil, sys
source, target = (
    one.replace("s3://" + os.environ["BUCKET"], os.environ["OBJECT_DIRECTORY"])
    for one in sys.argv[3:] if not one.startswith("--")
)
assert sys.argv[1:3] == ["s3", "sync"], sys.argv
shutil.copytree(source, target, dirs_exist_ok=True)
"""


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    with postgres_server(is_durable=True) as server:
        yield server


@pytest.fixture
def objects(tmp_path: Path) -> Iterator[ObjectServer]:
    with object_server(tmp_path / "objects") as server:
        yield server


class Operator:
    """Runs what the page says, with its variables set."""

    def __init__(self, place: Path, database: PostgresServer, objects: ObjectServer, location: ObjectLocation) -> None:
        tools = place / "tools"
        tools.mkdir()
        executable(tools / "aws", S3.format(python=sys.executable))
        executable(tools / "fencepost", f'#!/bin/sh\nexec {sys.executable} -m fencepost "$@"\n')
        self._place = place
        self._environment = {
            **os.environ,
            "PATH": f"{tools}:{programs_of_postgres()}:{os.environ['PATH']}",
            "BUCKET": location.bucket,
            "OBJECT_DIRECTORY": str(objects.directory / location.bucket),
            "FENCEPOST_CLUSTER_URL": database.uri,
            "FENCEPOST_CLUSTER_OBJECTS": f"s3://{location.bucket}?endpoint={objects.endpoint}",
        }

    def run(self, commands: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=self._place,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def do(self, commands: str) -> str:
        done = self.run(commands)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def check(self) -> dict[str, Any]:
        """What `cluster check` finds; it fails where there is a problem."""
        found: dict[str, Any] = json.loads(self.do("fencepost cluster check --json"))
        return found


class Dump:
    """A dump of the database and a copy of the bucket, made while clients write; then all of both is lost."""

    def __init__(self, operator: Operator, database: PostgresServer, objects: ObjectServer) -> None:
        self._operator = operator
        self._objects = objects

    def begin(self) -> None:
        """Nothing has to be there before."""

    def take(self) -> None:
        self._operator.do(BACKUP)

    def lose_and_restore(self, location: ObjectLocation) -> None:
        lose_everything(self._operator, self._objects, location)
        self._operator.do(RESTORE)


class PointInTime:
    """PostgreSQL's base backup and archive, from before clients write; the bucket stays as it is."""

    def __init__(self, operator: Operator, database: PostgresServer, objects: ObjectServer) -> None:
        self._operator = operator
        self._database = database

    def begin(self) -> None:
        self._database.begin_archive()

    def take(self) -> None:
        self._database.name_moment("before the loss")

    def lose_and_restore(self, location: ObjectLocation) -> None:
        self._database.archive_rest()
        self._database.restore_to("before the loss")
        checked = self._operator.run("fencepost cluster check")
        assert checked.returncode == 1
        assert "was restored to an earlier moment (recovery_target_name" in checked.stdout
        self._operator.do("\n".join(RESTORE.strip().splitlines()[-2:]))


@pytest.mark.parametrize("how", [Dump, pytest.param(PointInTime, marks=pytest.mark.long)])
def test_a_cluster_that_lost_everything_goes_on_from_its_backup(
    how: type[Dump | PointInTime],
    database: PostgresServer,
    objects: ObjectServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not checked")
    location = objects.make_bucket()
    operator = Operator(tmp_path, database, objects, location)
    backup = how(operator, database, objects)
    backup.begin()
    with Machines(database.uri, location, tmp_path, settings=SETTINGS | SMALL) as machines:
        create(machines.bootstrap, "orders")
        until(lambda: set(leaders(machines.bootstrap)) == {1, 2, 3})
        commit_offset(machines.bootstrap, 1)
        transactions = Transactions(machines.bootstrap, 4, {"transaction.timeout.ms": 10_000})
        write(machines.bootstrap, ["early"])
        fill_segments(machines.bootstrap)
        until(lambda: operator.check()["segments"] > 0, timeout_s=90)
        until(lambda: len(transactions.committed) > 50)
        committed_before = set(transactions.committed)

        backup.take()

        count = len(transactions.committed)
        until(lambda: len(transactions.committed) > count + 50)
        transactions.stop()
        write(machines.bootstrap, ["late"])
        commit_offset(machines.bootstrap, 2)
        lost_end = end_of(machines.bootstrap)
        # Of the history that will be lost: sessions of a transactional id in higher and higher epochs.
        zombies = [session(machines.bootstrap) for _ in range(3)]
        reader = follow(machines.bootstrap)
        for machine in machines.machines.values():
            machine.kill()

        backup.lose_and_restore(location)
        restored = operator.check()
        assert restored["problems"] == []
        assert restored["segments"] > 0
        for machine in machines.machines.values():
            machine.start()
        with noted(lambda: machines.output):
            check_restored(machines, transactions, committed_before)
            check_positions(machines, lost_end)
            check_clients_go_on(machines, zombies, reader)
        assert "partition_went_offline" not in machines.output
    assert operator.check()["problems"] == []


def fill_segments(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in LARGE:
        producer.produce("orders", value, partition=0)
        producer.flush(60)


def lose_everything(operator: Operator, objects: ObjectServer, location: ObjectLocation) -> None:
    operator.do('psql --quiet --command "DROP SCHEMA fencepost CASCADE" "$FENCEPOST_CLUSTER_URL"')
    bucket = objects.directory / location.bucket
    for path in bucket.iterdir():
        if path.is_dir() and not path.name.startswith("."):
            shutil.rmtree(path)
    assert not list(bucket.rglob("*.log"))


def check_restored(machines: Machines, transactions: Transactions, committed_before: set[str]) -> None:
    """All that was acknowledged before the backup is there, and each transaction whole."""
    until(lambda: set(leaders(machines.bootstrap)) == {1, 2, 3}, timeout_s=60)
    found = read(machines.bootstrap)
    assert sorted(found["early"]) == list(range(PARTITIONS))
    assert [found[value] for value in LARGE] == [[0]] * len(LARGE)
    assert "late" not in found
    of_transactions = {value: places for value, places in found.items() if value not in {"early", *LARGE}}
    assert committed_before <= of_transactions.keys()
    assert {len(places) for places in of_transactions.values()} == {3}
    assert not transactions.aborted & of_transactions.keys()
    assert len(of_transactions) < len(transactions.committed), "the backup was not made while clients wrote"
    assert committed_offset(machines.bootstrap) == 1


def end_of(bootstrap: str) -> int:
    """The end of partition 2."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "outside"})
    _, end_offset = consumer.get_watermark_offsets(TopicPartition("orders", 2), timeout=60)
    consumer.close()
    return int(end_offset)


def check_positions(machines: Machines, lost_end: int) -> None:
    """A reader at the end of the lost history misses none of the records that get far beyond it."""
    new = [f"new-{number}" for number in range(2 * lost_end)]
    producer = Producer({"bootstrap.servers": machines.bootstrap})
    for value in new:
        producer.produce("orders", value, partition=2)
    assert producer.flush(60) == 0
    assert of_librdkafka(machines.bootstrap, "orders", lost_end, len(new), partition=2) == new


def check_clients_go_on(machines: Machines, zombies: list[Producer], reader: Consumer) -> None:
    """Those that start anew, and those that live since before the loss; sessions of the lost history are fenced."""
    write(machines.bootstrap, ["again"])
    values = set()

    def has_read_it() -> bool:
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            values.add(message.value())
        return b"again" in values

    until(has_read_it, timeout_s=60)
    reader.close()
    producer = session(machines.bootstrap)
    for zombie in zombies:
        with pytest.raises(KafkaException):
            transact(zombie, "of a zombie")
    transact(producer, "of the owner")
    transactions = Transactions(machines.bootstrap, 4, prefix="after-")
    until(lambda: len(transactions.committed) > 50)
    transactions.stop()
    found = read(machines.bootstrap)
    transactions.check(found)
    assert found["of the owner"] == [0]
    assert "of a zombie" not in found


def session(bootstrap: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "till"})
    producer.init_transactions(60)
    return producer


def transact(producer: Producer, value: str) -> None:
    producer.begin_transaction()
    producer.produce("orders", value, partition=0)
    producer.commit_transaction(60)


def follow(bootstrap: str) -> Consumer:
    """A consumer that has read partition 1 to its end, with leader epochs and offsets that will be lost."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "follower",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition("orders", 1, 0)])

    def has_read_all() -> bool:
        message = consumer.poll(0.2)
        return message is not None and message.error() is None and message.value() == b"late"

    until(has_read_all)
    return consumer


def commit_offset(bootstrap: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    consumer.close()


def committed_offset(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing"})
    (found,) = retried(lambda: consumer.committed([TopicPartition("orders", 0)], timeout=60))
    consumer.close()
    return int(found.offset)


def test_brokers_that_run_while_their_database_goes_back_begin_again_from_what_is_there(
    database: PostgresServer, objects: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not checked")
    location = objects.make_bucket()
    operator = Operator(tmp_path, database, objects, location)
    database.begin_archive()
    with Machines(database.uri, location, tmp_path, settings=SETTINGS | SMALL) as machines:
        with noted(lambda: machines.output):
            create(machines.bootstrap, "orders")
            until(lambda: set(leaders(machines.bootstrap)) == {1, 2, 3})
            write(machines.bootstrap, ["early"])
            database.name_moment("before")
            write(machines.bootstrap, ["late"])
            database.archive_rest()
            database.restore_to("before")
            write(machines.bootstrap, ["again"])
            found = read(machines.bootstrap)
        assert sorted(found["early"]) == sorted(found["again"]) == list(range(PARTITIONS))
        assert "late" not in found
        assert "database_went_back" in machines.output
        assert "partition_went_offline" not in machines.output
        assert all(machine.is_running for machine in machines.machines.values())
        (problem,) = json.loads(operator.run("fencepost cluster check --json").stdout)["problems"]
        assert "run `fencepost cluster restored`" in problem
