"""Runs one Apache Kafka node beside the checkout: the oracle that recorded frames and comparisons come from.

Never needed by ./scripts/test or ./scripts/demo. The jars are resolved by their Maven coordinates into .cache/kafka,
with a Maven repository of the checkout's own: the user's is neither read nor filled. Needs Java 17 and Maven on PATH.

    scripts/apache_kafka.py fetch
    scripts/apache_kafka.py start --port 9092 --data DIR
"""

from __future__ import annotations

import argparse
import base64
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fencepost.soak.free_port import free_port

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache"
KAFKA_VERSION = "4.4.0"
SCALA_VERSION = "2.13"
DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"

# The broker and what it needs, and a logger that keeps warnings.
POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>fencepost.oracle</groupId>
  <artifactId>apache-kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_{scala}</artifactId><version>{kafka}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 20.0


class KafkaUnavailableError(RuntimeError):
    """Apache Kafka could not be fetched or did not start; the message says what to look at."""


@contextmanager
def maven_repository() -> Iterator[Path]:
    """The folder of the checkout's Maven repository. Other processes wait meanwhile: it is not made for two writers."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "maven.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield CACHE / "maven"


def fetch_jars(version: str = KAFKA_VERSION) -> Path:
    """Returns the folder with Kafka's jars, resolving them with Maven when they are missing."""
    jars = CACHE / "kafka" / version
    if (jars / ".complete").exists():
        return jars
    with maven_repository() as repository:
        if not (jars / ".complete").exists():
            _resolve_jars(version, jars, repository)
            (jars / ".complete").touch()
    return jars


def _resolve_jars(version: str, jars: Path, repository: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailableError("Apache Kafka is fetched with Maven, and no mvn is on PATH")
    project = CACHE / "kafka" / f"project-{version}"
    project.mkdir(parents=True, exist_ok=True)
    (project / "pom.xml").write_text(POM.format(scala=SCALA_VERSION, kafka=version))
    command = [
        maven,
        "--batch-mode",
        "--quiet",
        f"-Dmaven.repo.local={repository}",
        "--file",
        str(project / "pom.xml"),
        f"{DEPENDENCY_PLUGIN}:copy-dependencies",
        f"-DoutputDirectory={jars}",
        "-DincludeScope=runtime",
    ]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        raise KafkaUnavailableError(
            f"Maven could not resolve Apache Kafka {version}:\n{finished.stdout}{finished.stderr}"
        )


@dataclass
class ApacheKafka:
    """One KRaft node, broker and controller in one process; a context manager.

    advertised_port: what Metadata tells clients to connect to; another port than `port` when a recording proxy stands
                     in front.
    properties:      settings that override the ones below, under Kafka's names.
    protocol:        of the listener for clients; its settings are among the properties.
    java_options:    of the virtual machine that the node runs in.
    """

    data_directory: Path
    port: int
    advertised_port: int | None = None
    version: str = KAFKA_VERSION
    properties: Mapping[str, str] = field(default_factory=dict)
    java_options: Sequence[str] = ("-Xms256m", "-Xmx1g")
    protocol: str = "PLAINTEXT"
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log_path(self) -> Path:
        return self.data_directory / "kafka.log"

    def start(self) -> None:
        """Formats the storage when it is new, starts the node and returns once it accepts connections."""
        command = self.prepare()
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self._wait_until_ready()

    def prepare(self) -> list[str]:
        """Formats the storage when it is new; returns the command that runs the node."""
        jars = fetch_jars(self.version)
        self.data_directory.mkdir(parents=True, exist_ok=True)
        properties_path = self.data_directory / "server.properties"
        properties_path.write_text("".join(f"{name}={value}\n" for name, value in self._settings().items()))
        java = ["java", *self.java_options, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{jars}/*"]
        if not (self.data_directory / "logs" / "meta.properties").exists():
            cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            formatting = [
                *java,
                "kafka.tools.StorageTool",
                "format",
                f"--cluster-id={cluster_id}",
                "-c",
                str(properties_path),
            ]
            finished = subprocess.run(formatting, capture_output=True, text=True, check=False)
            if finished.returncode != 0:
                raise KafkaUnavailableError(f"StorageTool failed:\n{finished.stdout}{finished.stderr}")
        return [*java, "kafka.Kafka", str(properties_path)]

    def stop(self) -> None:
        """Asks the node to stop; kills it when it does not within STOP_TIMEOUT_S."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None

    def kill(self) -> None:
        """kill -9. `start` starts it again on its data."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def _settings(self) -> dict[str, str]:
        controller_port = free_port()
        advertised_port = self.advertised_port or self.port
        node_id = self.properties.get("node.id", "1")
        return {
            "process.roles": "broker,controller",
            "node.id": node_id,
            "controller.quorum.voters": f"{node_id}@127.0.0.1:{controller_port}",
            "listeners": f"{self.protocol}://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"{self.protocol}://127.0.0.1:{advertised_port}",
            "listener.security.protocol.map": f"{self.protocol}:{self.protocol},CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": self.protocol,
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data_directory / "logs"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "5",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "5",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self.properties,
        }

    def _wait_until_ready(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise KafkaUnavailableError(f"Apache Kafka ended while starting; see {self.log_path}")
            with socket.socket() as probe:
                probe.settimeout(1.0)
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        self.stop()
        raise KafkaUnavailableError(
            f"Apache Kafka did not accept connections within {START_TIMEOUT_S:.0f} s; see {self.log_path}"
        )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="resolve the jars and print their folder")
    start = commands.add_parser("start", help="run one node until interrupted")
    start.add_argument("--port", type=int, default=9092)
    start.add_argument("--data", type=Path, required=True, help="folder for the node's data, properties and log")
    options = parser.parse_args(arguments)
    try:
        if options.command == "fetch":
            print(fetch_jars())
            return 0
        # SIGTERM unwinds like Ctrl-C, so that the node is stopped too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        with ApacheKafka(options.data.resolve(), options.port) as kafka:
            print(f"Apache Kafka {kafka.version} ready at {kafka.bootstrap_servers} (pid {os.getpid()})", flush=True)
            assert kafka.process is not None
            return kafka.process.wait()
    except KeyboardInterrupt:
        return 0
    except KafkaUnavailableError as failure:
        print(f"apache_kafka: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
