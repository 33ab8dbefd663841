"""Groups of all kinds over a broker of several processes: members, coordinators, partitions are on different ones."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages.coordinators import FindCoordinatorRequest
from fencepost.soak.kafka_jars import KAFKA_CLIENTS_VERSION, kafka_class_path, kafka_clients_class_path
from tests.differences.connection import Connection
from tests.integration.test_share_groups import SETTINGS as OF_SHARE_GROUPS
from tests.support.broker_processes import BrokerProcesses
from tests.support.clients_of_processes import retried
from tests.support.conditions import PATIENCE_S, noted, until

pytestmark = pytest.mark.integration

JAVA = Path(__file__).parent / "java"
SETTINGS = {
    "transaction.state.log.num.partitions": "6",
    "offsets.topic.num.partitions": "6",
    "share.coordinator.state.topic.num.partitions": "6",
    "fencepost.processes.silence.max.ms": "60000",  # a busy machine is no reason to kill a process
    **OF_SHARE_GROUPS,
}
PARTITIONS = 12


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcesses]:
    with BrokerProcesses(tmp_path / "data", 3, settings=SETTINGS) as broker:
        yield broker


def create(broker: BrokerProcesses, topic: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()


def set_group_config(broker: BrokerProcesses, group: str, **values: str) -> None:
    set_group_config_at(broker.bootstrap, group, **values)


def set_group_config_at(bootstrap: str, group: str, **values: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in values.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result()


class JavaProgram:
    """A Java program beside the test. lines: what it has printed so far. troubles: what it has told its operators."""

    def __init__(self, name: str, *arguments: str, class_path: str | None = None) -> None:
        command = ["java", "-cp", class_path or kafka_clients_class_path(), str(JAVA / name), *arguments]
        self._troubles = tempfile.TemporaryFile()  # noqa: SIM115  # `end` closes it
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._troubles, text=True)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    @property
    def troubles(self) -> str:
        """The end of it."""
        size = os.fstat(self._troubles.fileno()).st_size
        return os.pread(self._troubles.fileno(), 20_000, max(0, size - 20_000)).decode(errors="replace")

    def has_said(self, line: str) -> bool:
        assert self.process.poll() is None, "it has ended"
        return line in list(self.lines)

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
        self._troubles.close()
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.mark.timeout(400)
def test_a_share_group_loses_no_record_when_any_of_the_processes_is_killed(broker: BrokerProcesses) -> None:
    """Each process leads some of the partitions, keeps some of their state, and one coordinates the group.

    A process may end after it stored an acceptance and before it answered: the group's lag counts those records.
    """
    records = 6_000
    create(broker, "work")
    set_group_config(broker, "workers", share_auto_offset_reset="earliest")
    write(broker, "work", range(records))
    program = JavaProgram("SharedWork.java", broker.bootstrap, "work", "workers", "2", str(records))
    try:
        with noted(lambda: "\n".join([*program.lines, program.troubles, broker.output])):
            for node_id in broker.node_ids:
                until(lambda: program.value("accepted") > node_id * 1_200, timeout_s=120)  # noqa: B023  # called at once
                broker.wait_for_another(node_id, than=broker.kill_node(node_id))
            program.wait()
    finally:
        program.end()
    assert program.lines[-1] == f"done: delivered {records}, again 0", "\n".join([*program.lines, broker.output])
    assert not [line for line in program.lines if line.startswith("failure")], program.lines
    assert broker.terminate() == 0
    assert "Traceback" not in broker.output, broker.output


@pytest.mark.timeout(900)
def test_a_streams_application_counts_exactly_once_when_its_coordinators_process_is_killed(
    broker: BrokerProcesses, tmp_path: Path
) -> None:
    """Its group, its transactions, its changelog and its topics are spread over all processes."""
    for topic in ("work", "counts"):
        create(broker, topic, 3)
    values, rounds = 40, 5
    write_words(broker, values)
    program = JavaProgram(
        "StreamsCounts.java",
        broker.bootstrap,
        "counters",
        "work",
        "counts",
        str(tmp_path / "state"),
        class_path=kafka_class_path("kafka-streams", KAFKA_CLIENTS_VERSION),
    )
    reader = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    reader.assign([TopicPartition("counts", number, 0) for number in range(3)])
    counts: list[tuple[str, int]] = []

    def has_counted(number: int) -> bool:
        counts.extend((one.key().decode(), int(one.value())) for one in reader.consume(100, 0.2) if not one.error())
        return len(counts) >= values * number

    try:
        with noted(lambda: "\n".join([f"{len(counts)} counts", *program.lines, program.troubles, broker.output])):
            until(lambda: program.has_said("state RUNNING"), timeout_s=300)  # it is compiled first
            until(lambda: has_counted(1), timeout_s=120)
            for number in range(2, rounds + 1):
                node_id = coordinators_node(broker, "counters")
                killed = broker.kill_node(node_id)
                write_words(broker, values)
                until(lambda: has_counted(number), timeout_s=120)  # noqa: B023  # called at once
                broker.wait_for_another(node_id, than=killed)
            has_counted(rounds)
    finally:
        program.end()
        reader.close()
    wanted = [(f"word-{word}", count) for word in range(values) for count in range(1, rounds + 1)]
    assert sorted(counts) == sorted(wanted)
    assert "Traceback" not in broker.output, broker.output


def write_words(broker: BrokerProcesses, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for word in range(count):
        producer.produce("work", f"word-{word}")
    assert producer.flush(PATIENCE_S) == 0


def coordinators_node(broker: BrokerProcesses, group: str) -> int:
    """The node that coordinates a group of any kind."""
    found = until(lambda: [node for node in map(partial(_coordinator, broker, group), broker.node_ids) if node])
    return found[0]


def _coordinator(broker: BrokerProcesses, group: str, asked: int) -> int:
    """What a node says; 0 while it does not."""
    try:
        with Connection(broker.host, broker.port + asked - 1) as connection:
            connection.send(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
            (found,) = connection.receive(ApiKey.FIND_COORDINATOR, 4).coordinators
    except OSError:
        return 0
    return int(found.node_id) if found.error_code == 0 else 0


class Members:
    """Consumers of one group, each on a thread of its own, that commit after each poll, again until it is confirmed.

    found: the values that were read. problems: refusals of commits that nothing explains.
    """

    def __init__(self, broker: BrokerProcesses, group: str, **settings: object) -> None:
        self.found: set[str] = set()
        self.problems: list[str] = []
        self.assignments: dict[int, int] = {}
        self._settings = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def add(self, *topics: str, **settings: object) -> None:
        number = len(self._threads)
        thread = threading.Thread(target=self._run, args=(number, topics, settings))
        self._threads.append(thread)
        thread.start()

    def _run(self, number: int, topics: tuple[str, ...], settings: dict[str, object]) -> None:
        consumer = Consumer({**self._settings, **{name.replace("_", "."): value for name, value in settings.items()}})
        read: dict[tuple[str, int], int] = {}  # and not committed yet: where to go on

        def forget(_: Consumer, partitions: list[TopicPartition]) -> None:
            """The next member that has these partitions reads it again."""
            for one in partitions:
                read.pop((one.topic, one.partition), None)

        consumer.subscribe(list(topics), on_revoke=forget, on_lost=forget)
        while not self._stopping.is_set():
            message = consumer.poll(0.1)
            self.assignments[number] = len(consumer.assignment())
            if message is not None and not message.error():
                self.found.add(message.value().decode())
                read[message.topic(), message.partition()] = message.offset() + 1
            if not read:
                continue
            try:
                offsets = [TopicPartition(*place, offset) for place, offset in read.items()]
                consumer.commit(offsets=offsets, asynchronous=False)
                read.clear()
            except KafkaException as error:
                # The coordinator moves, or the group rebalances.
                if error.args[0].name() not in TEMPORARY:
                    self.problems.append(str(error))
        consumer.close()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()


TEMPORARY = {
    "NOT_COORDINATOR",
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "REBALANCE_IN_PROGRESS",
    "ILLEGAL_GENERATION",
    "UNKNOWN_MEMBER_ID",
    "STALE_MEMBER_EPOCH",
    "_ASSIGNMENT_LOST",
    "_STATE",
    "_TRANSPORT",
    "_TIMED_OUT",
    "_WAIT_COORD",
    "_DESTROY",
}


def write(broker: BrokerProcesses, topic: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    errors: set[object] = set()
    for number in values:
        producer.produce(topic, str(number), partition=number % PARTITIONS, on_delivery=lambda e, _: errors.add(e))
    assert producer.flush(PATIENCE_S) == 0
    assert errors == {None}


def coordinator_of(broker: BrokerProcesses, group: str) -> int:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    return int(retried(lambda: admin.describe_consumer_groups([group])[group].result().coordinator.id))


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "settings",
    [
        {"partition.assignment.strategy": "range"},
        {"partition.assignment.strategy": "cooperative-sticky"},
        {"group.protocol": "consumer"},
    ],
    ids=["classic", "cooperative", "consumer"],
)
def test_a_group_goes_on_when_its_coordinator_is_killed_in_a_rebalance(
    broker: BrokerProcesses, settings: dict[str, str]
) -> None:
    create(broker, "orders")
    write(broker, "orders", range(600))
    if "group.protocol" not in settings:
        settings = {**settings, "session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}
    members = Members(broker, "group", **settings)
    try:
        with noted(lambda: f"{len(members.found)} {members.assignments} {broker.output}"):
            members.add("orders", group_instance_id="first")
            members.add("orders")
            until(lambda: len(members.found) > 100)
            members.add("orders")
            time.sleep(0.05)  # chance decides which step of the rebalance it hits
            for _ in range(2):
                node_id = coordinator_of(broker, "group")
                killed = broker.kill_node(node_id)
                before = len(members.found)
                until(lambda: len(members.found) > min(before + 100, 599))  # noqa: B023  # called at once
                broker.wait_for_another(node_id, than=killed)
            write(broker, "orders", range(600, 900))
            until(lambda: len(members.found) == 900)
            until(lambda: sum(members.assignments.values()) == PARTITIONS and all(members.assignments.values()))
            until(lambda: committed_offsets(broker, "group") == [75] * PARTITIONS)
    finally:
        members.stop()
    assert not members.problems
    assert committed_offsets(broker, "group") == [75] * PARTITIONS
    assert "Traceback" not in broker.output, broker.output


def committed_offsets(broker: BrokerProcesses, group: str) -> list[int]:
    """Of all partitions of `orders`."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    wanted = [TopicPartition("orders", number) for number in range(PARTITIONS)]
    try:
        return [one.offset for one in retried(lambda: consumer.committed(wanted, timeout=PATIENCE_S))]
    finally:
        consumer.close()


@pytest.mark.timeout(240)
def test_offsets_in_transactions_are_exactly_once_when_processes_are_killed(broker: BrokerProcesses) -> None:
    """The group's coordinator, the transaction's, and the leaders of both topics are spread over all processes."""
    for topic in ("orders", "copies"):
        create(broker, topic)
    write(broker, "orders", range(900))
    stopping = threading.Event()

    def copy() -> None:
        while not stopping.is_set():
            consumer = Consumer(
                {
                    "bootstrap.servers": broker.bootstrap,
                    "group.id": "copiers",
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    "isolation.level": "read_committed",
                    "session.timeout.ms": "6000",
                }
            )
            producer = Producer(
                {
                    "bootstrap.servers": broker.bootstrap,
                    "transactional.id": "copier",
                    # All processes are killed within two seconds. A client that lost all its connections at once begins
                    # anew with its bootstrap servers; after that, librdkafka 2.16 may wait for ever in
                    # send_offsets_to_transaction (its issue 5511).
                    "metadata.recovery.strategy": "none",
                }
            )
            try:
                producer.init_transactions(PATIENCE_S)
                consumer.subscribe(["orders"])
                while not stopping.is_set():
                    messages = [one for one in consumer.consume(20, 0.5) if not one.error()]
                    if not messages:
                        continue
                    producer.begin_transaction()
                    for message in messages:
                        producer.produce("copies", message.value(), partition=message.partition())
                    positions = consumer.position(consumer.assignment())
                    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), PATIENCE_S)
                    producer.commit_transaction(PATIENCE_S)
            except KafkaException:
                continue  # another producer of this id goes on where the last committed transaction ended
            finally:
                consumer.close()

    thread = threading.Thread(target=copy)
    thread.start()
    reader = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    reader.assign([TopicPartition("copies", number, 0) for number in range(PARTITIONS)])
    copies: list[int] = []

    def read_until(count: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while len(copies) < count:
            assert time.monotonic() < deadline, f"{len(copies)} {broker.output}"
            copies.extend(int(one.value()) for one in reader.consume(100, 0.2) if not one.error())

    try:
        for node_id in broker.node_ids:
            read_until(200 * node_id)
            broker.wait_for_another(node_id, than=broker.kill_node(node_id))
        read_until(900)
        copies.extend(int(one.value()) for one in reader.consume(100, 1) if not one.error())
    finally:
        stopping.set()
        thread.join()
        reader.close()
    assert sorted(copies) == list(range(900))
    assert "Traceback" not in broker.output, broker.output


def test_groups_are_administered_through_any_process(broker: BrokerProcesses) -> None:
    create(broker, "orders")
    write(broker, "orders", range(PARTITIONS))
    groups = groups_of_all_partitions(int(SETTINGS["offsets.topic.num.partitions"]))
    for group in groups:
        consumer = Consumer({"bootstrap.servers": broker.address(1), "group.id": group})
        offsets = [TopicPartition("orders", number, 1) for number in range(PARTITIONS)]
        retried(lambda: consumer.commit(offsets=offsets, asynchronous=False))  # noqa: B023  # called at once
        consumer.close()
    # Each node leads as many partitions of the groups' topic as any other.
    until(lambda: {coordinator_of(broker, group) for group in groups} == {1, 2, 3})
    for node_id in broker.node_ids:
        admin = AdminClient({"bootstrap.servers": broker.address(node_id)})
        listed = admin.list_consumer_groups().result()
        assert {one.group_id for one in listed.valid} == set(groups)
        assert not listed.errors
        described = admin.describe_consumer_groups(groups)
        assert {described[group].result().state.name for group in groups} == {"EMPTY"}
        asked = ConsumerGroupTopicPartitions(groups[node_id], [TopicPartition("orders", 0, 0)])
        admin.alter_consumer_group_offsets([asked])[groups[node_id]].result()
        asked = ConsumerGroupTopicPartitions(groups[node_id], [TopicPartition("orders", 0)])
        (found,) = admin.list_consumer_group_offsets([asked])[groups[node_id]].result().topic_partitions
        assert found.offset == 0
    admin = AdminClient({"bootstrap.servers": broker.address(2)})
    for deleted in admin.delete_consumer_groups(groups).values():
        deleted.result()
    until(lambda: not admin.list_consumer_groups().result().valid)


def groups_of_all_partitions(count: int) -> list[str]:
    """Names of two groups for each partition of the topic that keeps them, which Kafka chooses by Java's hash."""
    found: dict[int, list[str]] = {partition: [] for partition in range(count)}
    for number in range(100 * count):
        name = f"group-{number}"
        of_partition = found[java_hash(name) % count]
        if len(of_partition) < 2:
            of_partition.append(name)
    assert all(len(names) == 2 for names in found.values())
    return [name for names in found.values() for name in names]


def java_hash(text: str) -> int:
    """The absolute value of a Java string's `hashCode`, which is an integer of 32 bits with a sign."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value if value < 2**31 else 2**32 - value


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_pattern_finds_topics_that_another_process_has_created(broker: BrokerProcesses, protocol: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address(1),
            "group.id": "by-pattern",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
        }
    )
    consumer.subscribe(["^orders-.*"])
    found: set[str] = set()

    def has_found(value: str) -> bool:
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            found.add(message.value().decode())
        return value in found

    for node_id in broker.node_ids:
        admin = AdminClient({"bootstrap.servers": broker.address(node_id)})
        topic = f"orders-{node_id}"
        admin.create_topics([NewTopic(topic, 3, 1)])[topic].result()
        producer = Producer({"bootstrap.servers": broker.address(node_id)})
        producer.produce(topic, str(node_id))
        assert producer.flush(PATIENCE_S) == 0
        until(lambda: has_found(str(node_id)))  # noqa: B023  # called at once
    consumer.close()


def test_what_changes_while_a_process_hangs_or_is_away_counts_there_when_it_is_back(broker: BrokerProcesses) -> None:
    def session_timeout(node_id: int) -> str:
        admin = AdminClient({"bootstrap.servers": broker.address(node_id), "log_level": 0})
        (described,) = admin.describe_configs([ConfigResource(ResourceType.GROUP, "group")]).values()
        return str(described.result()["consumer.session.timeout.ms"].value)

    frozen = broker.freeze_node(2)
    try:
        set_group_config_at(broker.address(1), "group", consumer_session_timeout_ms="50000")
    finally:
        os.kill(frozen, signal.SIGCONT)
    until(lambda: {session_timeout(node_id) for node_id in broker.node_ids} == {"50000"})
    killed = broker.kill_node(3)
    set_group_config_at(broker.address(1), "group", consumer_session_timeout_ms="55000")
    broker.wait_for_another(3, than=killed)
    until(lambda: {retried(lambda: session_timeout(n)) for n in broker.node_ids} == {"55000"})  # noqa: B023
