"""Programs of six clients that never stop, and how long each of them waits after a fault.

Each program has three parts: a producer, a transactional producer, and a member of a group, all with their defaults.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import Producer

from fencepost.soak.kafka_jars import kafka_clients_class_path
from tests.compat.builds import build_node
from tests.compat.clients import CLIENTS
from tests.compat.harness import CLIENTS_FOLDER, call, fetch
from tests.compat.jvm import JVM_OPTIONS
from tests.support.clients_of_processes import create
from tests.support.conditions import noted, until

PARTITIONS = 6
PARTS = ("produce", "transact", "consume")
ALL = -1
"""The partition of a transaction, which writes to all of them."""
FEED = "feed"
QUICK = {"socket.timeout.ms": 1_000, "reconnect.backoff.max.ms": 200, "message.timeout.ms": 30_000}
"""Of the producer that feeds the consumers: what they wait for is not that one."""

Command = Callable[[Path], Sequence[str]]


def _java(_: Path) -> Sequence[str]:
    program = Path(__file__).parents[1] / "integration" / "java" / "Steady.java"
    return ["java", *JVM_OPTIONS, "-cp", kafka_clients_class_path(), str(program)]


def _python(client: str) -> Command:
    return lambda _: [sys.executable, "-m", "tests.compat.steady", client]


def _go(client: str, kind: str) -> Command:
    def build(directory: Path) -> Sequence[str]:
        folder, program = CLIENTS_FOLDER / client, directory / f"{client}-{kind}"
        environment = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
        fetch(["go", "mod", "download"], cwd=folder, environment=environment)
        call(["go", "build", "-buildvcs=false", "-o", str(program), f"./{kind}"], cwd=folder, environment=environment)
        return [str(program)]

    return build


def _kafkajs(kind: str) -> Command:
    def build(_: Path) -> Sequence[str]:
        *node, main = build_node(CLIENTS["kafkajs"])
        return [*node, str(Path(main).parent / f"{kind}.mjs")]

    return build


COMMANDS: Mapping[str, Command] = {
    "librdkafka": _python("confluent_kafka"),
    "Java": _java,
    "franz-go": _go("franz-go", "steady"),
    "sarama": _go("sarama", "steady"),
    "KafkaJS": _kafkajs("steady"),
    "kafka-python": _python("kafka_python"),
}
READERS_IN_RACKS: Mapping[str, Command] = {
    "franz-go": _go("franz-go", "near"),
    "sarama": _go("sarama", "near"),
    "KafkaJS": _kafkajs("near"),
    "kafka-python": lambda _: [sys.executable, "-m", "tests.compat.near"],
}
"""Programs with the arguments BOOTSTRAP TOPIC RACK, which print the first six bytes of each committed record."""


class SteadyClient:
    """One program. What its parts had done, and when, is kept for the newest of each partition."""

    def __init__(self, name: str, command: Sequence[str], directory: Path) -> None:
        self.name = name
        self._errors = directory / f"{name}.errors"
        self._arrived: dict[str, dict[int, list[tuple[float, float]]]] = {part: {} for part in PARTS}
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                command, cwd=CLIENTS_FOLDER.parents[1], stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def errors(self) -> str:
        return f"== {self.name} ==\n{self._errors.read_text(errors='replace')[-4_000:]}"

    def went_on_s(self, part: str, moment_s: float) -> float | None:
        """How many seconds after a moment (time.time()) a part had done its work for all partitions, with what was sent
        after the moment; None: it has not yet."""
        assert self._process.poll() is None, self.errors
        arrived = self._arrived[part]
        ends = [
            next((end_s for sent_s, end_s in list(arrived.get(partition, ())) if sent_s > moment_s), None)
            for partition in ((ALL,) if part == "transact" else range(PARTITIONS))
        ]
        known = [end_s for end_s in ends if end_s is not None]
        return max(known) - moment_s if len(known) == len(ends) else None

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            part, partition, sent_ms = line.split()
            self._arrived[part].setdefault(int(partition), []).append((int(sent_ms) / 1000, time.time()))


class Feed:
    """A producer that writes to all partitions of a topic, twice a second."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **QUICK})
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(0.5):
            for number in range(PARTITIONS):
                self._producer.produce(FEED, str(time.time_ns() // 1_000_000), partition=number)
            self._producer.poll(0)


@contextmanager
def steady_clients(bootstrap: str, names: Sequence[str], directory: Path) -> Iterator[Sequence[SteadyClient]]:
    """Run the programs of clients, each with a topic of its own, until the block ends. All are at work by then."""
    create(bootstrap, FEED, PARTITIONS)
    with ExitStack() as stopping:
        feed = Feed(bootstrap)
        stopping.callback(feed.stop)
        clients = []
        for name in names:
            topic = f"of-{name}"
            create(bootstrap, topic, PARTITIONS)
            command = [*COMMANDS[name](directory), bootstrap, topic, str(PARTITIONS), FEED]
            clients.append(SteadyClient(name, command, directory))
            stopping.callback(clients[-1].stop)
        with noted(lambda: "\n".join(one.errors for one in clients)):
            wait_until_all_go_on(clients, time.time(), timeout_s=180)
            yield clients


def waited_s(clients: Sequence[SteadyClient], moment_s: float) -> Mapping[str, Mapping[str, float | None]]:
    """How long after a moment each part of each client went on; None: it has not yet."""
    return {one.name: {part: one.went_on_s(part, moment_s) for part in PARTS} for one in clients}


def wait_until_all_go_on(
    clients: Sequence[SteadyClient], moment_s: float, *, timeout_s: float
) -> Mapping[str, Mapping[str, float]]:
    """How long after a moment each part of each client went on."""
    with noted(lambda: f"{waited_s(clients, moment_s)}"):
        until(
            lambda: all(None not in parts.values() for parts in waited_s(clients, moment_s).values()),
            timeout_s=timeout_s,
        )
    found = waited_s(clients, moment_s)
    return {name: {part: wait_s or 0.0 for part, wait_s in parts.items()} for name, parts in found.items()}
