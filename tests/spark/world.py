"""What the tests of the sink stand on: a broker behind a wire, Spark as a process, topics, and the verdict."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import confluent_kafka as ck
import psutil
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient

from fencepost.history.checker import check_file
from fencepost.history.writer import HistoryWriter
from fencepost.protocol.api_keys import ApiKey
from fencepost.soak.free_port import free_port, free_ports
from fencepost.spark.decision_topic import LEADER_MOVES, PAUSE_S
from fencepost.two_phase import Coordinator
from scripts.apache_kafka import ApacheKafka
from tests.spark.program import ANSWER
from tests.spark.wire import Passing, Wire, keys_of
from tests.support.broker_process import ROOT, BrokerProcess
from tests.support.broker_processes import BrokerProcesses
from tests.support.machines import Machines
from tests.support.object_server import object_server
from tests.support.postgres import postgres_server

PARTITIONS = 2
TIMEOUT_S = 30.0
BATCH_ROWS = 20
HISTORY = "history.jsonl"
RECORDED = "-target"  # what the names of topics end with whose records are in the history
END_TIMEOUT_S = 15.0
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}


class Broker(Protocol):
    """A broker process behind the wire."""

    def kill(self) -> None: ...

    def start(self) -> object: ...


class KilledKafka(ApacheKafka):
    """An Apache Kafka that can be killed, and started again on its data."""

    def kill(self) -> None:
        """kill -9, once no marker is on its way.

        At its next start, Apache Kafka 4.3 may count a transaction as complete whose markers it has not written.
        """
        assert self.process is not None
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
        with contextlib.closing(admin):
            give_up_at_s = time.monotonic() + TIMEOUT_S
            while any(admin.list_transactions(state_filters=["PrepareCommit", "PrepareAbort"]).values()):
                assert time.monotonic() < give_up_at_s, "Apache Kafka does not write its markers"
        self.process.kill()
        self.process.wait()


class KilledInTurns(BrokerProcesses):
    """A broker of several processes, of which one after the other is killed, and started again by the parent."""

    def kill(self) -> None:
        for node_id in self.node_ids:
            self.replace(node_id)

    def start(self) -> BrokerProcess:
        return self if self.is_running else super().start()

    def replace(self, node_id: int) -> None:
        """kill -9 of a node's process, and wait until another one serves the node."""
        self.wait_for_another(node_id, than=self.kill_node(node_id))
        self.wait_for_answer(node_id)

    def __exit__(self, *_exception: object) -> None:
        super().kill()


class LostInTurns(Machines):
    """Brokers on several machines, of which one after the other is lost, and comes back with nothing on its disk."""

    @property
    def node_ids(self) -> list[int]:
        return list(self.machines)

    def kill(self) -> None:
        for node_id in self.machines:
            self.replace(node_id)

    def start(self) -> object:
        return self


@contextmanager
def fencepost_behind(wire_port: int, folder: Path) -> Iterator[tuple[Broker, int]]:
    with BrokerProcess(folder / "fencepost", settings=_behind(wire_port)) as broker:
        yield broker, broker.port
        assert_sound(broker)


@contextmanager
def processes_behind(wire_port: int, folder: Path) -> Iterator[tuple[Broker, int]]:
    with KilledInTurns(folder / "fencepost", NODES["processes"], settings=_behind(wire_port)) as broker:
        yield broker, broker.port
        assert_sound(broker)


@contextmanager
def machines_behind(wire_port: int, folder: Path) -> Iterator[tuple[Broker, int]]:
    count = NODES["machines"]
    port = free_ports(count)
    with postgres_server(is_durable=True) as database, object_server(folder / "objects") as objects:
        made = LostInTurns(database.cluster_url(), objects.make_bucket(), folder, count)
        for index, machine in enumerate(made.machines.values()):
            machine.port = port + index
            machine.settings |= _behind(wire_port + index)
        with made as broker:
            yield broker, port
            for machine in broker.machines.values():
                assert_sound(machine)


def _behind(wire_port: int) -> dict[str, str]:
    return {**SETTINGS, "advertised.listeners": f"PLAINTEXT://127.0.0.1:{wire_port}"}


def assert_sound(broker: BrokerProcess) -> None:
    assert broker.is_running
    assert "Traceback" not in broker.output


@contextmanager
def kafka_behind(wire_port: int, folder: Path) -> Iterator[tuple[Broker, int]]:
    node = KilledKafka(folder / "apache-kafka", free_port(), advertised_port=wire_port, properties=SETTINGS)
    with node:
        yield node, node.port


BROKERS = {
    "fencepost": fencepost_behind,
    "processes": processes_behind,
    "machines": machines_behind,
    "kafka": kafka_behind,
}
NODES = {"fencepost": 1, "processes": 3, "machines": 3, "kafka": 1}


class Spark:
    """The program of `program.py`: a context manager that starts it, and leaves nothing of it.

    settings: Spark's own, beside those of the program.
    """

    def __init__(self, master: str, log_path: Path, settings: Mapping[str, str] | None = None) -> None:
        submit = [f"--conf {name}={value}" for name, value in (settings or {}).items()]
        self._log_path = log_path
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.program", master],
                cwd=ROOT,
                env={**os.environ, "PYSPARK_SUBMIT_ARGS": " ".join([*submit, "pyspark-shell"])},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._answer()

    def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        """Send a command, and return its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                answer: dict[str, Any] = json.loads(line.removeprefix(ANSWER))
                return answer
        raise AssertionError(f"the program ended:\n{self._log_path.read_text()[-6_000:]}")

    def kill(self) -> None:
        """kill -9 of all its processes, as when its machine is lost."""
        processes = self.processes()
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._ended(processes)

    def kill_virtual_machine(self) -> None:
        """kill -9 of the driver's JVM alone. Its Python workers live on, for as long as they like."""
        psutil.Process(self.ask("processes")["driver"]).kill()

    def kill_executor(self) -> None:
        """kill -9 of one executor of a `local-cluster`."""
        psutil.Process(self.ask("processes")["executors"][0]).kill()

    def decommission_executor(self) -> psutil.Process:
        """Send the signal by which a machine announces its end to an executor of a `local-cluster`; return it."""
        executor = psutil.Process(self.ask("processes")["executors"][0])
        executor.send_signal(signal.SIGPWR)
        return executor

    def processes(self) -> list[psutil.Process]:
        """All of its processes: the program's, the virtual machines', the Python workers'."""
        with contextlib.suppress(psutil.NoSuchProcess):
            front = psutil.Process(self._process.pid)
            return [front, *front.children(recursive=True)]
        return []

    def _ended(self, processes: Sequence[psutil.Process]) -> None:
        _, alive = psutil.wait_procs(processes, timeout=END_TIMEOUT_S)
        for process in alive:
            process.kill()
        self._process.wait()
        for end in (self._process.stdin, self._process.stdout):
            if end is not None:
                with contextlib.suppress(BrokenPipeError):
                    end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.kill()


class Point:
    """Where a query is held: at the `nth` request (or reply) of an API that is `about` something of its sink, once the
    sink has decided `decided` batches.

    about: "task" for the transactions of tasks, "check" for questions about them, "driver" for the driver's; or what a
    transaction of the driver writes: "decision", "done", "aborted".
    """

    def __init__(
        self, sink: str, about: str, api: ApiKey, *, decided: int = 1, is_reply: bool = False, nth: int = 1
    ) -> None:
        self._sink = sink
        self._wanted = (about, api, is_reply, decided)
        self._nth = nth
        self._is_task = re.compile(rf"{re.escape(sink)}-[0-9a-f]{{8}}-\d+-\d+").fullmatch
        self._writes = "nothing"  # what the driver's transaction has written
        self._decisions = 0
        self._count = 0

    def __call__(self, passing: Passing) -> bool:
        about = self._about(passing)
        is_wanted = self._wanted in ((name, passing.api, passing.is_reply, self._decisions) for name in about)
        self._count += is_wanted
        if "decision" in about and passing.api is ApiKey.END_TXN and passing.is_reply and passing.request.committed:
            self._decisions += passing.reply.error_code == 0
        return is_wanted and self._count >= self._nth

    def _about(self, passing: Passing) -> tuple[str, ...]:
        if passing.api is ApiKey.DESCRIBE_TRANSACTIONS:
            return ("check",) if any(map(self._is_task, passing.request.transactional_ids)) else ()
        if self._is_task(passing.transactional_id):
            return ("task",)
        if passing.transactional_id != f"{self._sink}-driver":
            return ()
        if passing.api is ApiKey.PRODUCE:
            keys = keys_of(passing.request, f"fencepost-sink-{self._sink}")
            names = {self._sink: "decision", f"{self._sink}/done": "done", f"{self._sink}/aborted": "aborted"}
            self._writes = next((names.get(key, "another mark") for key in keys), self._writes)
        return ("driver", self._writes)


class Flow(NamedTuple):
    """One query's topics, files and sink, all named alike. expected: the values that it has to write, sorted."""

    name: str
    expected: list[str]
    fields: dict[str, Any]

    @property
    def sink(self) -> str:
        return str(self.fields["options"]["sink"])

    @property
    def target(self) -> str:
        return str(self.fields["target"])


def numbers(batches: int, rows: int = BATCH_ROWS) -> list[str]:
    """What a query writes that only copies. rows: of each batch."""
    return sorted(str(number) for number in range(batches * rows))


def counts(batches: int) -> list[str]:
    """What the query `counting` writes: in each batch one update for each remainder of ten."""
    return sorted(f"{key}:{BATCH_ROWS // 10 * (batch + 1)}" for batch in range(batches) for key in range(10))


class World:
    """A broker behind a wire, with topics for queries, and what is checked of them."""

    def __init__(self, kind: str, folder: Path, broker: Broker, wire: Wire, history: HistoryWriter) -> None:
        self.kind = kind
        self.folder = folder
        self.broker = broker
        self.wire = wire
        self.history = history
        self._flows: list[Flow] = []

    def flow(
        self,
        name: str,
        *,
        batches: int = 2,
        rows: int = BATCH_ROWS,
        expected: list[str] | None = None,
        is_recorded: bool = True,
        **fields: Any,
    ) -> Flow:
        """Topics for a query, with numbers in the source for a number of batches. fields: of `Query`.

        rows: of each batch.
        is_recorded: whether the history has it. Not where a task runs twice: both send the same values.
        """
        source, target = f"{name}-source", f"{name}{RECORDED if is_recorded else '-copies'}"
        client = AdminClient({"bootstrap.servers": self.wire.bootstrap, "log_level": 0})
        topics = [NewTopic(topic, PARTITIONS, 1) for topic in (source, target)]
        for created in client.create_topics(topics).values():
            created.result(TIMEOUT_S)
        settings = {"log_level": 0, "queue.buffering.max.messages": batches * rows + 1}
        producer = ck.Producer({"bootstrap.servers": self.wire.bootstrap, **settings})
        for number in range(batches * rows):
            producer.produce(source, str(number), str(number), number % PARTITIONS)
        assert producer.flush(TIMEOUT_S) == 0
        made = Flow(
            name,
            numbers(batches, rows) if expected is None else expected,
            {
                "name": name,
                "bootstrap": self.wire.bootstrap,
                "source": source,
                "target": target,
                "checkpoint": str(self.folder / "checkpoints" / name),
                "per_batch": rows,
                **fields,
                "options": {"sink": name, **fields.get("options", {})},
            },
        )
        self._flows.append(made)
        return made

    def spark(self, master: str = "local[12,3]", **settings: str) -> Spark:
        """settings: Spark's own, with `_` for the dots of their names."""
        named = {name.replace("_", "."): value for name, value in settings.items()}
        return Spark(master, self.folder / "spark.log", named)

    def attempts(self, flow: Flow) -> Counter[tuple[str, int]]:
        """How many transactions there were for each partition of each batch, by the batch's nonce and the partition."""
        task = re.compile(rf"{re.escape(flow.sink)}-([0-9a-f]{{8}})-(\d+)-\d+")
        admin = KafkaAdminClient(bootstrap_servers=self.wire.bootstrap)
        with contextlib.closing(admin):
            listed = [one.transactional_id for found in admin.list_transactions().values() for one in found]
        return Counter((found[1], int(found[2])) for found in map(task.fullmatch, listed) if found)

    def values(self, flow: Flow) -> list[str]:
        """The committed values in the target, without their marks, sorted."""
        return sorted(value.partition("#")[0] for _, _, _, value in self.read(flow.target)[1])

    def open_transactions(self, flow: Flow | None = None) -> list[str]:
        """The transactional ids of the sink's open transactions; for None, of all."""
        pattern = ".*" if flow is None else f"{re.escape(flow.sink)}-.*"
        with Coordinator(self.wire.bootstrap) as coordinator:
            return [found.token.transactional_id for found in coordinator.in_doubt(pattern)]

    def decided_tasks(self, flow: Flow) -> list[int]:
        """The number of transactions in each of the sink's decisions that are not compacted away."""
        return [len(found["tokens"]) for found in self._ledger(flow) if "tokens" in found]

    def batches(self, flow: Flow) -> int:
        """How many batches the sink has decided, if Spark has counted them from 0."""
        return 1 + max((found["batch"] for found in self._ledger(flow) if "tokens" in found), default=-1)

    def completions_ms(self, flow: Flow) -> list[int]:
        """How long the commits of each of these decisions took."""
        return [found["complete_ms"] for found in self._ledger(flow) if "complete_ms" in found]

    def _ledger(self, flow: Flow) -> list[dict[str, Any]]:
        return [json.loads(value) for *_, value in self.read(f"fencepost-sink-{flow.sink}", 1)[1]]

    def assert_exactly_once(self, spark: Spark) -> None:
        """Every value is in its target once, by Spark's own reader and by another one; no transaction is open; and the
        history is valid."""
        counted = spark.ask("count", bootstrap=self.wire.bootstrap, topics=[flow.target for flow in self._flows])
        for flow in self._flows:
            assert self.values(flow) == flow.expected, flow.name
            assert counted[flow.target] == [len(flow.expected)] * 2, flow.name
            assert self.open_transactions(flow) == [], flow.name
        self.assert_history_is_valid()

    def assert_history_is_valid(self) -> None:
        """No committed record is missing, none that was aborted was seen, no transaction is torn."""
        reader = self.history.client("reader", isolation_level="read_committed")
        path = self.folder / HISTORY
        sent = path.read_bytes()
        for flow in self._flows:
            if not flow.target.endswith(RECORDED):
                continue
            assert f'"topic":"{flow.target}"'.encode() in sent, f"nothing was recorded of {flow.name}"
            ranges, records = self.read(flow.target)
            reader.final_read(ranges).ok(records)
        report = check_file(path)
        assert report.is_valid, report.text()

    def read(
        self, topic: str, partitions: int = PARTITIONS
    ) -> tuple[list[tuple[str, int, int, int]], list[tuple[str, int, int, str]]]:
        """(ranges, records) of a topic, read committed."""
        consumer = ck.Consumer(
            {
                "bootstrap.servers": self.wire.bootstrap,
                "group.id": "not used",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        ranges, records = [], []
        with contextlib.closing(consumer):
            for partition in range(partitions):
                low, high = _watermarks(consumer, ck.TopicPartition(topic, partition))
                ranges.append((topic, partition, low, high))
            consumer.assign([ck.TopicPartition(topic, partition, 0) for partition in range(partitions)])
            at_end: set[int] = set()
            give_up_at_s = time.monotonic() + TIMEOUT_S
            while len(at_end) < partitions:
                assert time.monotonic() < give_up_at_s, f"{topic} could not be read to its end"
                message = consumer.poll(1)
                if message is None:
                    continue
                if message.error() is None:
                    records.append((topic, message.partition(), message.offset(), message.value().decode()))
                elif message.error().code() == ck.KafkaError._PARTITION_EOF:
                    at_end.add(message.partition())
        return ranges, records


def _watermarks(consumer: ck.Consumer, partition: ck.TopicPartition) -> tuple[int, int]:
    """The client does not ask again by itself while the partition moves to another leader."""
    give_up_at_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            low, high = consumer.get_watermark_offsets(partition, timeout=TIMEOUT_S)
        except ck.KafkaException as error:
            if error.args[0].name() not in LEADER_MOVES or time.monotonic() > give_up_at_s:
                raise
            time.sleep(PAUSE_S)
        else:
            return low, high


@contextmanager
def world(kind: str, folder: Path) -> Iterator[World]:
    """A world around a broker of a kind: a name of `BROKERS`."""
    history = HistoryWriter.open(folder / HISTORY)
    wire_port = free_ports(NODES[kind])
    with (
        BROKERS[kind](wire_port, folder) as (broker, port),
        Wire(range(wire_port, wire_port + NODES[kind]), port, history, lambda topic: topic.endswith(RECORDED)) as wire,
    ):
        yield World(kind, folder, broker, wire, history)
        assert wire.failures == []
    history.close()
