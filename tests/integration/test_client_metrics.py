"""Clients that push metrics of themselves, unmodified: librdkafka and Kafka's own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from fencepost.client.blocking import BlockingConnection
from fencepost.client.plans import Address
from fencepost.client.session import ClientOptions
from fencepost.protocol.messages.alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from fencepost.soak.free_port import free_port
from fencepost.soak.kafka_jars import KAFKA_CLIENTS_VERSION, kafka_class_path
from scripts.apache_kafka import KAFKA_VERSION
from tests.compat.harness import NotHereError
from tests.compat.jvm import class_path
from tests.recording.client_metrics import ANSWERS, TELEMETRY_MAX_BYTES, answers_of
from tests.support import conditions
from tests.support.broker_process import BrokerProcess
from tests.support.missing_tools import missing

CLIENT_METRICS = 16
CLIENT_METRICS_TOOL = "org.apache.kafka.tools.ClientMetricsCommand"
CONFIGS_TOOL = "org.apache.kafka.tools.ConfigCommand"
PROGRAM = Path(__file__).parent / "java" / "ClientMetrics.java"
TIMEOUT_S = 120
until = partial(conditions.until, timeout_s=TIMEOUT_S)


class Observed(BrokerProcess):
    """A broker with an HTTP listener, and the metrics of its clients."""

    def __init__(self, data_directory: Path) -> None:
        self.http = f"127.0.0.1:{free_port()}"
        super().__init__(data_directory, settings={"fencepost.http.listener": self.http, "num.partitions": "1"})

    def series(self, client_id: str) -> dict[str, float]:
        """The series of a client by metric and attributes, and the instance id that they name."""
        text = httpx.get(f"http://{self.http}/metrics", timeout=TIMEOUT_S).text
        names = ("metric", "attributes", "client_instance_id")
        return {
            " ".join(sample.labels[name] for name in names): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "fencepost_client_metric" and sample.labels["client_id"] == client_id
        }

    def subscribe(self, name: str, **configs: str) -> None:
        changes = [IncrementalAlterableConfig(key.replace("_", "."), 0, value) for key, value in configs.items()]
        connection = BlockingConnection(Address(self.host, self.port), ClientOptions())
        try:
            resource = IncrementalAlterConfigsResource(CLIENT_METRICS, name, changes)
            (result,) = connection.send(IncrementalAlterConfigsRequest([resource])).responses
        finally:
            connection.close()
        assert result.error_code == 0, result.error_message


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    with Observed(tmp_path_factory.mktemp("observed") / "data") as process:
        yield process
        assert process.is_running, process.output
        assert "Traceback" not in process.output, process.output


def test_librdkafka_pushes_what_it_is_asked_for_until_it_is_closed(
    observed: Observed, unique: Callable[[str], str]
) -> None:
    name = unique("librdkafka")
    prefix = "org.apache.kafka.producer."
    observed.subscribe(
        name,
        metrics=prefix,
        interval_ms="500",
        match=f"client_id={name},client_software_name=librdkafka|confluent-kafka-python",
    )
    producer = Producer({"bootstrap.servers": observed.bootstrap, "client.id": name, "enable.metrics.push": True})
    for number in range(10):
        producer.produce(name, str(number).encode())
    assert producer.flush(TIMEOUT_S) == 0
    found = until(lambda: observed.series(name))
    assert all(key.startswith(prefix) for key in found), found
    assert len({key.rpartition(" ")[2] for key in found}) == 1
    del producer
    until(lambda: not observed.series(name))


def test_the_answers_are_those_of_apache_kafka(tmp_path: Path) -> None:
    settings = {"fencepost.http.listener": "127.0.0.1:0", "telemetry.max.bytes": str(TELEMETRY_MAX_BYTES)}
    with BrokerProcess(tmp_path / "data", settings=settings) as process:
        assert answers_of(process.port) == json.loads(ANSWERS.read_text(encoding="utf-8"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", [KAFKA_CLIENTS_VERSION, "3.9.2"])
def test_javas_clients_push_metrics_under_their_instance_ids_until_they_are_closed(
    observed: Observed, unique: Callable[[str], str], version: str
) -> None:
    name = unique("java")
    with subprocess.Popen(
        [
            "java",
            "-cp",
            kafka_class_path("kafka-clients", version),
            str(PROGRAM),
            observed.bootstrap,
            name,
            unique("topic"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        lines: list[str] = []
        while not lines or not lines[-1].startswith("consumer "):
            line = program.stdout.readline()
            assert line, lines
            lines.append(line.strip())
        assert f"listed {name}" in lines
        source = "DYNAMIC_CLIENT_METRICS_CONFIG"
        assert [line for line in lines if line.startswith("config ")] == [
            f"config interval.ms=500 {source}",
            f"config match=client_software_name=apache-kafka-java,client_id={name}-.* {source}",
            f"config metrics=* {source}",
        ]
        instances = dict(line.split(" ") for line in lines[-2:])
        for kind, instance in instances.items():
            found = until(partial(observed.series, f"{name}-{kind}"))
            assert any(key.startswith(f"org.apache.kafka.{kind}.") for key in found), found
            assert {key.rpartition(" ")[2] for key in found} == {instance}
        program.stdin.write("\n")
        program.stdin.flush()
        assert program.wait(TIMEOUT_S) == 0
    until(lambda: not observed.series(f"{name}-producer") and not observed.series(f"{name}-consumer"))


def test_kafkas_tools_set_show_and_remove_subscriptions(observed: Observed, unique: Callable[[str], str]) -> None:
    name = unique("tools")
    altered = tool(
        observed, CLIENT_METRICS_TOOL, "--alter", "--name", name, "--metrics", "org.a,org.b", "--interval", "500"
    )
    assert f"Altered client metrics config for {name}." in altered
    shown = tool(observed, CONFIGS_TOOL, "--describe", "--client-metrics", name)
    assert "metrics=org.a,org.b" in shown
    assert "interval.ms=500" in shown
    assert "Deleted" in tool(observed, CLIENT_METRICS_TOOL, "--delete", "--name", name)
    assert name not in tool(observed, CLIENT_METRICS_TOOL, "--list")


def tool(broker: BrokerProcess, program: str, *arguments: str) -> str:
    """Run one of Kafka's tools, without its script."""
    try:
        jars = class_path(("kafka-tools", KAFKA_VERSION))
    except NotHereError as error:
        missing(str(error))
    command = ["java", "-cp", jars, program, "--bootstrap-server", broker.bootstrap, *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout
