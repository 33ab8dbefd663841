"""Machines that vanish without a word: no packet comes from them, and nobody is sent a reset."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.clients_of_processes import SETTINGS, leaders, retried
from tests.support.conditions import noted, until
from tests.support.missing_tools import require_tool
from tests.support.network import PEER, require_network_namespaces
from tests.support.postgres import PostgresServer
from tests.support.remote_machines import RemoteMachines, remote_machines
from tests.support.steady_clients import COMMANDS, steady_clients, wait_until_all_go_on

ESTABLISHED = "01"
"""The state of a connection in /proc/net/tcp."""
LOST = 2
LEASE_S = 3.0
NEEDED_TOOLS = {"Java": "java", "franz-go": "go", "sarama": "go", "KafkaJS": "node"}


@contextmanager
def cluster(database: PostgresServer, directory: Path) -> Iterator[RemoteMachines]:
    require_network_namespaces()
    with remote_machines(database, directory, settings=dict(SETTINGS)) as found, noted(lambda: found.machines.output):
        yield found


@pytest.fixture
def remote(database: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteMachines]:
    """Three brokers on machines of their own."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not checked")
    with cluster(database, tmp_path) as found:
        yield found


@pytest.mark.parametrize(
    ("names", "limit_s"),
    [
        # Their own time-outs are 60 s and 30 s. A member waits for its coordinator, and for what it fetches from.
        pytest.param(["librdkafka", "Java"], 150, id="librdkafka-and-java"),
        pytest.param(["franz-go", "sarama"], 300, id="go", marks=pytest.mark.long),
        pytest.param(["kafka-python"], 150, id="kafka-python", marks=pytest.mark.long),
        pytest.param(["KafkaJS"], 900, id="kafkajs", marks=[pytest.mark.long, pytest.mark.timeout(1_800)]),
    ],
)
def test_clients_go_on_by_their_defaults_when_a_machine_vanishes(
    remote: RemoteMachines, tmp_path: Path, names: list[str], limit_s: float
) -> None:
    for name in names:
        if name in NEEDED_TOOLS:
            require_tool(NEEDED_TOOLS[name])
    assert set(names) <= COMMANDS.keys()
    with steady_clients(remote.machines.bootstrap, names, tmp_path) as clients:
        lost_s = time.time()
        remote.network.lose(LOST)
        try:
            waits = wait_until_all_go_on(clients, lost_s, timeout_s=limit_s)
        finally:
            remote.network.find(LOST)
    assert waits.keys() == set(names)


def test_the_others_lead_and_coordinate_what_a_vanished_machine_did(remote: RemoteMachines) -> None:
    others = {number: machine for number, machine in remote.machines.machines.items() if number != LOST}
    create(remote.machines[1].bootstrap, "orders")
    remote.network.lose(LOST)
    for machine in others.values():
        until(lambda: set(leaders(machine.bootstrap)) == others.keys(), timeout_s=60)  # noqa: B023  # called at once
    # Each broker coordinated some of these.
    bootstrap = remote.machines[1].bootstrap
    for number in range(6):
        settings = {"bootstrap.servers": bootstrap, "transactional.id": f"id-{number}"}
        producer = Producer(settings)
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("orders", b"after", partition=number)
        producer.commit_transaction(30)
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"group-{number}"})
        position = TopicPartition("orders", number, 1)
        retried(partial(consumer.commit, offsets=[position], asynchronous=False))
        (committed,) = retried(partial(consumer.committed, [position], timeout=30))
        assert committed.offset == 1
        consumer.close()


def test_a_broker_that_only_the_stores_reach_keeps_its_lease_and_hands_over_when_it_stops(
    remote: RemoteMachines,
) -> None:
    bootstrap = remote.machines[1].bootstrap
    create(bootstrap, "orders")
    until(lambda: LOST in leaders(bootstrap))
    before = leaders(bootstrap)
    remote.network.lose(LOST, [PEER])
    since_s = time.monotonic()
    while time.monotonic() < since_s + 2 * LEASE_S:
        assert leaders(bootstrap) == before
        time.sleep(0.5)
    remote.machines[LOST].terminate()
    assert re.search(r"handed_over_to_stop .*partitions_left=0", remote.machines[LOST].output)
    until(lambda: LOST not in leaders(bootstrap), timeout_s=60)
    producer = Producer({"bootstrap.servers": bootstrap})
    failures: list[object] = []
    for number in range(6):
        producer.produce("orders", b"after", partition=number, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(60) == 0
    assert failures == [None] * 6


def test_a_broker_gives_up_its_connections_to_a_database_that_vanishes(remote: RemoteMachines) -> None:
    broker = remote.machines[1]
    create(broker.bootstrap, "before")
    assert connections(remote, broker.process_id) >= 5
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "socket.timeout.ms": 60_000})
    with remote.network.without_stores():
        # A change that is under way, whose connection would otherwise be kept for a quarter of an hour.
        changing = threading.Thread(target=lambda: create(broker.bootstrap, "meanwhile"))
        changing.start()
        # A lease of 3 s, and what the system takes to notice that it has passed.
        until(lambda: connections(remote, broker.process_id) == 0, timeout_s=20)
    changing.join()
    until(lambda: {"before", "meanwhile"} <= admin.list_topics(timeout=10).topics.keys(), timeout_s=60)


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = NewTopic(topic, 6, 1)
    until(lambda: _is_created(lambda: admin.create_topics([wanted])[topic].result(60)), timeout_s=120)


def _is_created(creation: Callable[[], object]) -> bool:
    try:
        creation()
    except KafkaException as error:
        return bool(error.args[0].name() == "TOPIC_ALREADY_EXISTS")
    return True


def connections(remote: RemoteMachines, process_id: int) -> int:
    """How many connections to the database a broker's machine has, by its own system."""
    lines = Path(f"/proc/{process_id}/net/tcp").read_text().splitlines()[1:]
    found = [line.split() for line in lines]
    return sum(fields[2].endswith(f":{remote.postgres_port:04X}") and fields[3] == ESTABLISHED for fields in found)
