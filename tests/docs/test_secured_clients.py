"""The settings that the pages about clients show for TLS and passwords are those that a secured broker takes.

Each page has one program, one command or one file of settings, marked as "needs a secured broker". It is run here as it
stands, with the address of the broker, and has written one record afterwards.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.apache_kafka import KAFKA_VERSION
from tests.compat.brokers import Fencepost, fencepost
from tests.compat.clients import CLIENTS
from tests.compat.harness import NotHereError
from tests.compat.jvm import class_path
from tests.compat.secured import ADMIN, ADMIN_PASSWORD, Security
from tests.docs.code_blocks import DOCS, Block, blocks

LIMIT_S = 120
TOPIC, VALUE = "orders", "3 apples"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Fencepost]:
    """A secured broker with a topic that alice may write to."""
    with fencepost(CLIENTS["confluent_kafka-secured"], tmp_path) as running:
        security = secured(running)
        for asked in (f"topic {TOPIC}", f"allow User:alice WRITE topic {TOPIC}"):
            assert security.answer(asked) == "done"
        yield running


@pytest.fixture
def place(tmp_path: Path, broker: Fencepost) -> Path:
    """The folder of a reader, with the certificate of the authority."""
    folder = tmp_path / "place"
    folder.mkdir()
    shutil.copy(secured(broker).folder / "authority.pem", folder / "ca.pem")
    return folder


def secured(broker: Fencepost) -> Security:
    assert broker.security is not None
    return broker.security


def block_of(page: str) -> Block:
    (block,) = (
        block
        for block in blocks((DOCS / "clients" / f"{page}.md").read_text(encoding="utf-8"))
        if block.not_run == "needs a secured broker"
    )
    return block


def save(page: str, place: Path, broker: Fencepost) -> str:
    """Save the file of a page as a reader does, with the broker's address. Returns its name."""
    block = block_of(page)
    assert block.file_name is not None
    (place / block.file_name).write_text(addressed(block.text, broker))
    return block.file_name


def addressed(text: str, broker: Fencepost) -> str:
    assert "broker.example:9093" in text or "bootstrap" not in text
    return text.replace("broker.example:9093", secured(broker).bootstrap)


def run(command: list[str], place: Path, *, standard_input: str = "", path: str = "") -> None:
    environment = {**os.environ, "GOTOOLCHAIN": "local", "PATH": path or os.environ["PATH"]}
    finished = subprocess.run(
        command,
        cwd=place,
        env=environment,
        input=standard_input,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr


def has_written(broker: Fencepost) -> None:
    """An administrator reads the one record."""
    import confluent_kafka as ck

    consumer = ck.Consumer(
        {
            "bootstrap.servers": secured(broker).address("SASL_PLAINTEXT"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": ADMIN,
            "sasl.password": ADMIN_PASSWORD,
            "group.id": "unused",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([ck.TopicPartition(TOPIC, 0, 0)])
    values = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        values.append(message.value().decode())
    consumer.close()
    assert values == [VALUE]


@pytest.mark.integration
@pytest.mark.parametrize("page", ["confluent-kafka", "kafka-python", "aiokafka"])
def test_a_client_in_python_writes(page: str, broker: Fencepost, place: Path) -> None:
    run([sys.executable, save(page, place, broker)], place)
    has_written(broker)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_spark_writes(broker: Fencepost, place: Path) -> None:
    run([sys.executable, save("spark", place, broker)], place)
    has_written(broker)


@pytest.mark.compat
@pytest.mark.timeout(1_200)
def test_kcat_writes(broker: Fencepost, place: Path) -> None:
    client = CLIENTS["kcat"]
    try:
        command = client.command()
    except NotHereError as missing:
        pytest.skip(str(missing))
    path = next((word.partition("=")[2] for word in command if word.startswith("PATH=")), "")
    run(["sh", "-c", addressed(block_of("kcat").text, broker)], place, path=path)
    has_written(broker)


@pytest.mark.compat
@pytest.mark.timeout(1_200)
def test_node_writes(broker: Fencepost, place: Path) -> None:
    client = CLIENTS["kafkajs"]
    try:
        client.command()
    except NotHereError as missing:
        pytest.skip(str(missing))
    (place / "node_modules").symlink_to(client.cache / "node_modules")
    run(["node", save("node", place, broker)], place)
    has_written(broker)


@pytest.mark.compat
@pytest.mark.timeout(1_200)
def test_go_writes(broker: Fencepost, place: Path) -> None:
    client = CLIENTS["franz-go"]
    try:
        client.command()
    except NotHereError as missing:
        pytest.skip(str(missing))
    module = (client.folder / "go.mod").read_text()
    (place / "go.mod").write_text(module.replace("../go-checks", str(client.folder.parent / "go-checks")))
    shutil.copy(client.folder / "go.sum", place)
    run(["go", "run", save("go", place, broker)], place)
    has_written(broker)


@pytest.mark.compat
@pytest.mark.timeout(1_200)
def test_a_tool_in_java_writes(broker: Fencepost, place: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("java is not on PATH")
    try:
        jars = class_path(("kafka-tools", KAFKA_VERSION))
    except NotHereError as missing:
        pytest.skip(str(missing))
    producer = ["java", "-cp", jars, "org.apache.kafka.tools.ConsoleProducer", "--topic", TOPIC]
    settings = save("java", place, broker)
    where = ["--bootstrap-server", secured(broker).bootstrap, "--command-config", settings]
    run([*producer, *where], place, standard_input=f"{VALUE}\n")
    has_written(broker)
