"""Groups of all kinds over a broker of several processes: members, coordinators, partitions are on different ones."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from fencepost.soak.kafka_jars import kafka_clients_class_path
from tests.support.broker_processes import BrokerProcesses

pytestmark = pytest.mark.integration

JAVA = Path(__file__).parent / "java"
SETTINGS = {
    "transaction.state.log.num.partitions": "6",
    "offsets.topic.num.partitions": "6",
    "share.coordinator.state.topic.num.partitions": "6",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
}
PARTITIONS = 12
PATIENCE_S = 60.0


def until(condition: Callable[[], object], *, timeout_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcesses]:
    with BrokerProcesses(tmp_path / "data", 3, settings=SETTINGS) as broker:
        yield broker


def create(broker: BrokerProcesses, topic: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()


def set_group_config(broker: BrokerProcesses, group: str, **values: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in values.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result()


class JavaProgram:
    """A Java program beside the test. lines: what it has printed so far."""

    def __init__(self, name: str, *arguments: str) -> None:
        command = ["java", "-cp", kafka_clients_class_path(), str(JAVA / name), *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def value(self, name: str) -> int:
        """The last number that the program has printed after a name; 0 before the first."""
        found = [line for line in list(self.lines) if line.startswith(f"{name} ")]
        return int(found[-1].split()[-1]) if found else 0

    def wait(self) -> None:
        self._reader.join()
        assert self.process.wait() == 0

    def end(self) -> None:
        self.process.kill()
        self._reader.join()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.mark.timeout(300)
def test_a_share_group_loses_no_record_when_any_of_the_processes_is_killed(broker: BrokerProcesses) -> None:
    """Each process leads some of the partitions, keeps some of their state, and one coordinates the group."""
    records = 6_000
    create(broker, "work")
    set_group_config(broker, "workers", share_auto_offset_reset="earliest")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    errors: set[object] = set()
    for number in range(records):
        producer.produce("work", str(number), partition=number % PARTITIONS, on_delivery=lambda e, _: errors.add(e))
    assert producer.flush(PATIENCE_S) == 0
    assert errors == {None}
    program = JavaProgram("SharedWork.java", broker.bootstrap, "work", "workers", "2", str(records))
    try:
        for node_id in broker.node_ids:
            until(lambda: program.value("accepted") > node_id * 1_200)  # noqa: B023  # called at once
            broker.wait_for_another(node_id, than=broker.kill_node(node_id))
        program.wait()
    except AssertionError:
        raise AssertionError("\n".join([*program.lines, broker.output])) from None
    finally:
        program.end()
    assert program.lines[-1] == f"done: accepted {records}, again 0", "\n".join([*program.lines, broker.output])
    assert not [line for line in program.lines if line.startswith("failure")], program.lines
    assert broker.terminate() == 0
    assert "Traceback" not in broker.output, broker.output
