"""A broker of several processes under real clients: what one process loses the others take over, and it comes back."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.support.broker_process import BrokerFailedError, BrokerProcess
from tests.support.broker_processes import BrokerProcesses
from tests.support.clients_of_processes import PARTITIONS, SETTINGS, Transactions, create, leaders, read, retried, write
from tests.support.conditions import PATIENCE_S, noted, until

pytestmark = pytest.mark.integration


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcesses]:
    with BrokerProcesses(tmp_path / "data", 3, settings=SETTINGS) as broker:
        create(broker.bootstrap, "orders")
        yield broker


def test_transactions_lose_nothing_when_any_of_the_processes_is_killed(broker: BrokerProcesses) -> None:
    until(lambda: set(leaders(broker.bootstrap)) == {1, 2, 3})
    transactions = Transactions(broker.bootstrap, 4)
    try:
        with noted(lambda: broker.output):
            for node_id in broker.node_ids:
                before = len(transactions.committed)
                until(lambda: len(transactions.committed) > before + 50)  # noqa: B023  # called at once
                killed = broker.kill_node(node_id)
                before = len(transactions.committed)
                until(lambda: len(transactions.committed) > before + 50)  # noqa: B023  # called at once
                broker.wait_for_another(node_id, than=killed)
                until(lambda: node_id in leaders(broker.bootstrap))  # noqa: B023  # called at once
    finally:
        transactions.stop()
    transactions.check(read(broker.bootstrap))
    assert len(transactions.aborted) > 10
    assert broker.terminate() == 0


def test_a_process_that_hangs_is_killed_and_replaced(tmp_path: Path) -> None:
    settings = {**SETTINGS, "fencepost.processes.silence.max.ms": "10000"}
    with BrokerProcesses(tmp_path / "data", 3, settings=settings) as broker:
        create(broker.bootstrap, "orders")
        write(broker.bootstrap, ["before"])
        frozen = broker.freeze_node(2)
        broker.wait_for_another(2, than=frozen)
        assert not broker.is_alive(frozen)
        write(broker.bootstrap, ["after"])
        until(lambda: set(leaders(broker.bootstrap)) == {1, 2, 3})
        found = read(broker.bootstrap)
    assert {value: sorted(partitions) for value, partitions in found.items()} == {
        "before": list(range(PARTITIONS)),
        "after": list(range(PARTITIONS)),
    }


def test_the_parents_death_leaves_no_process_and_the_next_start_has_everything(broker: BrokerProcesses) -> None:
    write(broker.bootstrap, ["a"])
    processes = [broker.process_of(node_id) for node_id in broker.node_ids]
    broker.kill()
    until(lambda: not any(map(broker.is_alive, processes)))
    broker.start()
    write(broker.bootstrap, ["b"])
    assert {value: len(partitions) for value, partitions in read(broker.bootstrap).items()} == {
        "a": PARTITIONS,
        "b": PARTITIONS,
    }


def test_a_group_keeps_its_offsets_when_the_process_of_its_coordinator_is_killed(broker: BrokerProcesses) -> None:
    write(broker.bootstrap, ["a"])
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "group", "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    count = 0
    deadline = time.monotonic() + PATIENCE_S
    while count < PARTITIONS:
        assert time.monotonic() < deadline
        message = consumer.poll(0.5)
        count += message is not None and not message.error()
    consumer.commit(asynchronous=False)
    for node_id in broker.node_ids:
        broker.wait_for_another(node_id, than=broker.kill_node(node_id))
        wanted = [TopicPartition("orders", partition) for partition in range(PARTITIONS)]
        found = retried(lambda: consumer.committed(wanted, timeout=PATIENCE_S))  # noqa: B023  # called at once
        assert [one.offset for one in found] == [1] * PARTITIONS
        retried(lambda: consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False))
    consumer.close()


def test_configs_that_one_process_is_given_are_in_force_on_all(broker: BrokerProcesses) -> None:
    first = AdminClient({"bootstrap.servers": broker.address(1)})
    entry = ConfigEntry("consumer.session.timeout.ms", "50000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, "group", incremental_configs=[entry])
    (altered,) = first.incremental_alter_configs([resource]).values()
    altered.result()

    def session_timeout(node_id: int) -> str:
        admin = AdminClient({"bootstrap.servers": broker.address(node_id)})
        (described,) = admin.describe_configs([ConfigResource(ResourceType.GROUP, "group")]).values()
        return str(described.result()["consumer.session.timeout.ms"].value)

    until(lambda: {session_timeout(node_id) for node_id in broker.node_ids} == {"50000"})


def test_a_directory_of_one_process_is_divided_and_then_refused_by_one_process(tmp_path: Path) -> None:
    alone = BrokerProcess(tmp_path / "data", settings=SETTINGS)
    with alone:
        create(alone.bootstrap, "orders")
        write(alone.bootstrap, ["a"])
        transactions = Transactions(alone.bootstrap, 2)
        until(lambda: len(transactions.committed) > 20)
        transactions.stop()
        assert alone.terminate() == 0
    with BrokerProcesses(tmp_path / "data", 2, settings=SETTINGS) as broker:
        until(lambda: set(leaders(broker.bootstrap)) == {1, 2})
        write(broker.bootstrap, ["b"])
        found = read(broker.bootstrap)
        assert (len(found["a"]), len(found["b"])) == (PARTITIONS, PARTITIONS)
        transactions.check(found)
        broker.terminate()
    with pytest.raises(BrokerFailedError, match="belongs to a broker of several processes"):
        alone.start()


@pytest.mark.parametrize("count", [2, 1])
def test_fewer_processes_lead_what_more_have_left(broker: BrokerProcesses, count: int) -> None:
    write(broker.bootstrap, ["a"])
    broker.terminate()
    broker.count, broker.arguments = count, ("--processes", str(count))
    broker.start()
    # What the node that is ready first has taken over comes back to the others a little later.
    until(lambda: set(leaders(broker.bootstrap)) == set(broker.node_ids))
    write(broker.bootstrap, ["b"])
    assert {value: len(partitions) for value, partitions in read(broker.bootstrap).items()} == {
        "a": PARTITIONS,
        "b": PARTITIONS,
    }


def test_two_brokers_do_not_share_a_directory(broker: BrokerProcesses) -> None:
    for other in (
        BrokerProcesses(broker.data_directory, 2, settings=SETTINGS),
        BrokerProcess(broker.data_directory, settings=SETTINGS),
    ):
        with pytest.raises(BrokerFailedError, match=r"in use by another broker|belongs to a broker of several"):
            other.start()


def test_a_process_that_cannot_start_ends_the_whole_broker_with_its_reason(tmp_path: Path) -> None:
    wrong = {
        **SETTINGS,
        "super.users": "alice",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    }
    broker = BrokerProcesses(tmp_path / "data", 2, settings=wrong)
    with pytest.raises(BrokerFailedError, match=r"ended with 1:(.|\n)*super\.users"):
        broker.start()


def test_the_ready_line_names_the_addresses_that_are_bound_and_those_that_clients_are_given(tmp_path: Path) -> None:
    settings = {**SETTINGS, "advertised.listeners": "PLAINTEXT://example.org:9092"}
    with BrokerProcesses(tmp_path / "data", 2, settings=settings) as broker:
        bound = ", ".join(broker.address(node_id) for node_id in broker.node_ids)
        assert f"is ready: {bound}, advertised as example.org:9092, example.org:9093 (" in broker.output


def test_ports_that_would_meet_are_refused(tmp_path: Path) -> None:
    port = BrokerProcesses(tmp_path / "data", 1).port
    listeners = f"PLAINTEXT://127.0.0.1:{port},PLAINTEXT2://127.0.0.1:{port + 1}"
    config = tmp_path / "server.properties"
    config.write_text(f"listeners={listeners}\n")
    broker = BrokerProcess(tmp_path / "data", config=config, arguments=("--processes", "2"))
    with pytest.raises(BrokerFailedError, match="choose ports that are 2 apart"):
        broker.start()


def test_the_number_of_processes_is_a_setting_like_others(tmp_path: Path) -> None:
    broker = BrokerProcesses(tmp_path / "data", 2, settings=SETTINGS)
    broker.arguments, broker.settings["fencepost.processes"] = (), "2"
    with broker:
        create(broker.bootstrap, "orders")
        until(lambda: set(leaders(broker.bootstrap)) == {1, 2})


def test_a_broker_that_is_stopped_while_its_processes_import_ends_without_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fencepost", "serve", "--processes", "2", "--listener", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--data-dir", str(tmp_path / "data")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as broker:
        assert broker.stdout is not None
        lines = [broker.stdout.readline() for _ in range(2)]
        broker.terminate()
        output = "".join([*lines, *broker.stdout])
    assert output.count("process_started") == 2, output
    assert "Traceback" not in output
    assert broker.returncode == 0, output
