"""Brokers that share a PostgreSQL and a bucket, under real clients: kills, zombies, a database that goes away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.clients_of_processes import PARTITIONS, SETTINGS, Transactions, create, leaders, read, until, write
from tests.support.machines import Machines
from tests.support.object_server import ObjectServer, object_server
from tests.support.postgres import PostgresServer, postgres_server

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresServer]:
    with postgres_server(is_durable=True) as server:
        yield server


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with object_server(tmp_path_factory.mktemp("objects")) as server:
        yield server


@pytest.fixture
def machines(
    database: PostgresServer, objects: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Machines]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not checked")
    with Machines(database.cluster_url(), objects.make_bucket(), tmp_path, settings=SETTINGS) as machines:
        create(machines.bootstrap, "orders")
        until(lambda: set(leaders(machines.bootstrap)) == {1, 2, 3})
        yield machines


def test_transactions_lose_nothing_when_any_machine_is_killed_and_comes_back(machines: Machines) -> None:
    transactions = Transactions(machines.bootstrap, 4)
    try:
        for node_id in (1, 2, 3):
            commit_some(transactions)
            machines[node_id].kill()
            killed_s = time.monotonic()
            until(lambda: node_id not in leaders(machines.bootstrap))  # noqa: B023  # called at once
            assert time.monotonic() - killed_s < 20
            commit_some(transactions)
            machines[node_id].start()
            until(lambda: node_id in leaders(machines.bootstrap))  # noqa: B023  # called at once
    except AssertionError:
        raise AssertionError(machines.output) from None
    finally:
        transactions.stop()
    transactions.check(read(machines.bootstrap))
    assert len(transactions.aborted) > 10


def test_a_zombie_that_wakes_up_after_its_lease_changes_nothing(machines: Machines) -> None:
    # A frozen broker does not close its connections: its clients have to give up first.
    transactions = Transactions(machines.bootstrap, 4, {"socket.timeout.ms": 4_000})
    try:
        for node_id in (1, 2, 3):
            commit_some(transactions)
            machines[node_id].freeze()
            until(lambda: node_id not in leaders(other_bootstrap(machines, node_id)))  # noqa: B023  # called at once
            commit_some(transactions)
            machines[node_id].wake()
            until(lambda: "node_resigned" in machines[node_id].output)  # noqa: B023  # called at once
            until(lambda: node_id in leaders(other_bootstrap(machines, node_id)))  # noqa: B023  # called at once
    except AssertionError:
        raise AssertionError(machines.output) from None
    finally:
        transactions.stop()
    transactions.check(read(machines.bootstrap))
    assert "partition_went_offline" not in machines.output


def test_a_database_that_restarts_interrupts_nothing_for_good(machines: Machines, database: PostgresServer) -> None:
    transactions = Transactions(machines.bootstrap, 4)
    try:
        commit_some(transactions)
        database.restart()
        commit_some(transactions)
    except AssertionError:
        raise AssertionError(machines.output) from None
    finally:
        transactions.stop()
    transactions.check(read(machines.bootstrap))
    assert "partition_went_offline" not in machines.output


def test_all_records_are_there_after_all_machines_were_killed(machines: Machines) -> None:
    write(machines.bootstrap, ["a", "b"])
    for machine in machines.machines.values():
        machine.kill()
    for machine in machines.machines.values():
        machine.start()
    until(lambda: set(leaders(machines.bootstrap)) == {1, 2, 3})
    found = read(machines.bootstrap)
    assert {value: sorted(partitions) for value, partitions in found.items()} == {
        "a": list(range(PARTITIONS)),
        "b": list(range(PARTITIONS)),
    }


def test_a_group_goes_on_from_its_committed_offsets_on_another_machine(machines: Machines) -> None:
    write(machines.bootstrap, [str(number) for number in range(3)])
    offsets = [TopicPartition("orders", partition, 2) for partition in range(PARTITIONS)]
    consumer = Consumer({"bootstrap.servers": machines.bootstrap, "group.id": "billing"})
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    for node_id in (1, 2):
        machines[node_id].kill()
    until(lambda: set(leaders(machines[3].bootstrap)) == {3})
    consumer = Consumer({"bootstrap.servers": machines[3].bootstrap, "group.id": "billing"})
    committed = consumer.committed(offsets, timeout=30)
    assert {one.offset for one in committed} == {2}
    consumer.close()
    producer = Producer({"bootstrap.servers": machines[3].bootstrap})
    producer.produce("orders", b"after", partition=0)
    assert producer.flush(30) == 0


def commit_some(transactions: Transactions) -> None:
    before = len(transactions.committed)
    until(lambda: len(transactions.committed) > before + 30, timeout_s=60)


def other_bootstrap(machines: Machines, node_id: int) -> str:
    return ",".join(one.bootstrap for number, one in machines.machines.items() if number != node_id)
