"""Brokers that share a PostgreSQL and a bucket, under real clients: kills, zombies, a database that goes away."""

from __future__ import annotations

import statistics
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from fencepost.soak.free_port import free_port
from tests.broker.metrics.test_broker_families import values_of
from tests.differences.connection import Connection
from tests.support.clients_of_processes import PARTITIONS, SETTINGS, Transactions, create, leaders, read, retried, write
from tests.support.conditions import noted, until
from tests.support.connected_nodes import ConnectedNodes, refused_right_after_creation
from tests.support.lost_brokers import Clients, freeze_in_turn, kill_in_turn
from tests.support.machines import Machines
from tests.support.object_server import ObjectServer
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.integration


def test_transactions_lose_nothing_when_any_machine_is_killed_and_comes_back(machines: Machines) -> None:
    transactions = Transactions(machines.bootstrap, 4)
    try:
        with noted(lambda: machines.output):
            for node_id in (1, 2, 3):
                commit_some(transactions)
                machines[node_id].kill()
                until(lambda: node_id not in leaders(machines.bootstrap))  # noqa: B023  # called at once
                commit_some(transactions)
                machines[node_id].start()
                until(lambda: node_id in leaders(machines.bootstrap))  # noqa: B023  # called at once
    finally:
        transactions.stop()
    transactions.check(read(machines.bootstrap))
    assert len(transactions.aborted) > 10


def test_a_zombie_that_wakes_up_after_its_lease_changes_nothing(machines: Machines) -> None:
    # A frozen broker does not close its connections: its clients have to give up first.
    with (
        Clients(machines.bootstrap, "clients", {"socket.timeout.ms": 4_000}) as clients,
        noted(lambda: machines.output),
    ):
        assert [one.node_id for one in freeze_in_turn(machines, [clients], 3)] == [1, 2, 3]
    clients.check(read(machines.bootstrap))
    assert "partition_went_offline" not in machines.output
    assert "did not answer within" not in machines.output, "a broker waited for the frozen one, not for its lease alone"


def test_a_machine_shows_what_its_engine_does(
    database: PostgresServer, objects: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not checked")
    port = free_port()
    settings = SETTINGS | {"fencepost.http.listener": f"127.0.0.1:{port}"}
    with Machines(database.cluster_url(), objects.make_bucket(), tmp_path, 1, settings=settings) as machines:
        create(machines.bootstrap, "orders")
        write(machines.bootstrap, ["a"])
        producer = Producer({"bootstrap.servers": machines.bootstrap, "message.max.bytes": 2_000_000})
        producer.produce("orders", b"x" * 900_000, partition=0)
        assert producer.flush(60) == 0
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            values = values_of(answer.read().decode())
    shown = {name.removeprefix("fencepost_engine_"): value for name, value in values.items() if "_engine_" in name}
    assert shown['flushes_total{kind="rows"}'] >= 1
    assert shown['flushes_total{kind="objects"}'] >= 1
    assert shown['flushed_bytes_total{kind="objects"}'] > 900_000
    assert shown['object_requests_total{operation="put",outcome="done"}'] >= 1
    assert shown["flushed_rows_total"] >= PARTITIONS
    assert 0 <= shown["lease_left_seconds"] < 3
    assert shown.keys() >= {"unflushed_bytes", "flush_waiting", "tail_bytes", "resignations_total", "take_overs_total"}
    assert values["fencepost_flush_seconds_count"] >= 2


def test_a_database_that_restarts_interrupts_nothing_for_good(machines: Machines, database: PostgresServer) -> None:
    transactions = Transactions(machines.bootstrap, 4)
    try:
        with noted(lambda: machines.output):
            commit_some(transactions)
            database.restart()
            commit_some(transactions)
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


def test_large_batches_are_there_after_two_of_three_machines_were_killed(
    machines: Machines, objects: ObjectServer
) -> None:
    """Flushes of this size go as objects, of which the rows name parts."""
    producer = Producer(
        {"bootstrap.servers": machines.bootstrap, "linger.ms": 50, "batch.size": 900_000, "compression.type": "none"}
    )
    acknowledged: list[Message] = []
    for number in range(60):
        value = f"{number}-".encode() + b"x" * 200_000
        producer.produce("orders", value, partition=number % 6, on_delivery=lambda _, one: acknowledged.append(one))
    assert producer.flush(60) == 0
    assert [one.error() for one in acknowledged if one.error()] == []
    assert any("/tail/" in path for method, path in objects.requests if method == "PUT")
    for node_id in (1, 2):
        machines[node_id].kill()
    until(lambda: set(leaders(machines[3].bootstrap)) == {3})
    found = {value.partition("-")[0] for value in read(machines[3].bootstrap)}
    assert found == {str(number) for number in range(60)}


# Else librdkafka waits up to 10 s before it looks again for what a lost broker led.
IMPATIENT = {"reconnect.backoff.max.ms": 500}


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("fault", ["kill", "freeze"])
def test_the_next_acknowledgement_comes_soon_after_each_of_twenty_losses(machines: Machines, fault: str) -> None:
    settings = IMPATIENT if fault == "kill" else {**IMPATIENT, "socket.timeout.ms": 4_000}
    with Clients(machines.bootstrap, "clients", settings) as clients, noted(lambda: machines.output):
        rounds = (
            kill_in_turn(machines, [clients], 20)
            if fault == "kill"
            else freeze_in_turn(machines, [clients], 20, frozen_s=30)
        )
        waits = [one.waits[clients.name] for one in rounds]
    clients.check(read(machines.bootstrap))
    assert "did not answer within" not in machines.output
    # A lease of 3 s and what clients take to find the next leaders; several times that where many programs want to run.
    assert statistics.median(one.acknowledged_s for one in waits) < 15, waits


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
    committed = retried(lambda: consumer.committed(offsets, timeout=60))
    assert {one.offset for one in committed} == {2}
    consumer.close()
    producer = Producer({"bootstrap.servers": machines[3].bootstrap})
    producer.produce("orders", b"after", partition=0)
    assert producer.flush(60) == 0


def commit_some(transactions: Transactions) -> None:
    before = len(transactions.committed)
    until(lambda: len(transactions.committed) > before + 30, timeout_s=60)


def test_a_topic_is_written_and_read_at_the_leader_that_any_machine_names_as_soon_as_its_creation_returns(
    machines: Machines,
) -> None:
    with ExitStack() as cleanup:
        connections = []
        for node_id in (1, 2, 3):
            host, _, port = machines[node_id].bootstrap.rpartition(":")
            connections.append(cleanup.enter_context(Connection(host, int(port))))
        assert refused_right_after_creation(ConnectedNodes(connections), 60) == []


def test_a_manual_assignment_may_name_as_many_machines_as_are_alive(machines: Machines) -> None:
    admin = AdminClient({"bootstrap.servers": machines.bootstrap})
    assigned = NewTopic("assigned", 3, replica_assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    admin.create_topics([assigned])["assigned"].result()
    until(lambda: leaders(machines.bootstrap, "assigned") == [1, 2, 3])

    def replicas() -> list[list[int]]:
        partitions = admin.list_topics("assigned", timeout=60).topics["assigned"].partitions
        return [partitions[number].replicas for number in range(3)]

    # Another broker may answer, which learns of a move later.
    until(lambda: replicas() == [[1], [2], [3]])
    grown = NewPartitions("assigned", 4, replica_assignment=[[2, 1, 3]])
    admin.create_partitions([grown])["assigned"].result()
    until(lambda: leaders(machines.bootstrap, "assigned") == [1, 2, 3, 2])
    with pytest.raises(KafkaException, match="no such broker is registered"):
        admin.create_topics([NewTopic("refused", 1, replica_assignment=[[1, 2, 9]])])["refused"].result()
    machines[1].kill()
    until(lambda: 1 not in leaders(machines[2].bootstrap))
    admin = AdminClient({"bootstrap.servers": machines[2].bootstrap})
    with pytest.raises(KafkaException, match="larger than the number of brokers, which is 2"):
        admin.create_topics([NewTopic("refused", 1, replica_assignment=[[1, 2, 3]])])["refused"].result()
    admin.create_topics([NewTopic("of-two", 1, replica_assignment=[[1, 3]])])["of-two"].result()
    until(lambda: leaders(machines[2].bootstrap, "of-two") == [3])
