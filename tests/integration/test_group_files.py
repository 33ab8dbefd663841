"""Offsets as a file between Fencepost, Apache Kafka and Kafka's own tool."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from fencepost.cli.commands import fencepost
from fencepost.soak.free_port import free_port
from scripts.apache_kafka import KAFKA_VERSION, ApacheKafka
from tests.compat.harness import NotHereError
from tests.compat.jvm import class_path
from tests.support.broker_process import BrokerProcess
from tests.support.missing_tools import missing, require_apache_kafka

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require_apache_kafka()
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), free_port()) as running:
        yield running.bootstrap_servers


def groups(bootstrap: str, *arguments: str) -> Result:
    result = CliRunner().invoke(fencepost, ["groups", *arguments], env={"FENCEPOST_BOOTSTRAP": bootstrap})
    assert result.exit_code == 0, result.output
    return result


def committed(bootstrap: str, group: str) -> list[tuple[str, int, int]]:
    rows: list[dict[str, Any]] = json.loads(groups(bootstrap, "describe", group, "--json").stdout)
    return [(row["topic"], row["partition"], row["committed_offset"]) for row in rows]


def fill(bootstrap: str, topic: str) -> None:
    arguments = ["topics", "create", topic, "-p", "2", "--if-not-exists", "-b", bootstrap]
    assert CliRunner().invoke(fencepost, arguments).exit_code == 0
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(20):
        producer.produce(topic, str(number), partition=number % 2)
    assert producer.flush(60) == 0


def kafka_tool(bootstrap: str, *arguments: str) -> str:
    try:
        jars = class_path(("kafka-tools", KAFKA_VERSION))
    except NotHereError as error:
        missing(str(error))
    command = ["java", "-cp", jars, TOOL, "--bootstrap-server", bootstrap, *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def test_offsets_move_between_brokers_and_back(broker: BrokerProcess, kafka: str, tmp_path: Path) -> None:
    topic, path = "transferred", tmp_path / "groups.jsonl"
    for bootstrap in (broker.bootstrap, kafka):
        fill(bootstrap, topic)
    for first, second, offset in ((broker.bootstrap, kafka, 3), (kafka, broker.bootstrap, 7)):
        groups(first, "reset-offsets", "shop", topic, "--to-offset", str(offset))
        path.write_text(groups(first, "export", "shop").stdout)
        groups(second, "import", str(path), "--any-topic-id", "--yes")
        assert committed(second, "shop") == [(topic, 0, offset), (topic, 1, offset)]
        groups(first, "reset-offsets", "shop", topic, "--to", "latest")
        groups(first, "import", str(path), "--yes")
        assert committed(first, "shop") == [(topic, 0, offset), (topic, 1, offset)]


def test_kafkas_tool_reads_our_csv_and_we_read_its(kafka: str, tmp_path: Path) -> None:
    topic, path = "csv", tmp_path / "offsets.csv"
    fill(kafka, topic)
    for group, offset in (("one", 4), ("two, or more", 5)):
        groups(kafka, "reset-offsets", group, topic, "--to-offset", str(offset))
    path.write_text(groups(kafka, "export", "one", "two, or more", "--csv").stdout)
    for group in ("one", "two, or more"):
        groups(kafka, "reset-offsets", group, topic, "--to", "latest")
    both = ("--group", "one", "--group", "two, or more")
    kafka_tool(kafka, *both, "--reset-offsets", "--from-file", str(path), "--execute")
    assert committed(kafka, "one") == [(topic, 0, 4), (topic, 1, 4)]
    assert committed(kafka, "two, or more") == [(topic, 0, 5), (topic, 1, 5)]

    its = kafka_tool(kafka, *both, "--reset-offsets", "--to-current", "--all-topics", "--export")
    path.write_text(its)
    groups(kafka, "reset-offsets", "one", topic, "--to", "earliest")
    groups(kafka, "import", str(path), "--yes")
    assert committed(kafka, "one") == [(topic, 0, 4), (topic, 1, 4)]


def test_groups_of_apache_kafka_are_listed_with_their_lag(kafka: str) -> None:
    fill(kafka, "lagging")
    groups(kafka, "reset-offsets", "behind", "lagging", "--to-offset", "6")
    (row,) = json.loads(groups(kafka, "list", "--pattern", "behind", "--json").stdout)
    assert (row["partitions"], row["lag"], row["read_committed_lag"], row["members"]) == (2, 8, 8, 0)
