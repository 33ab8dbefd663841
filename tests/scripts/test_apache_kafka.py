"""The version of Apache Kafka that the project compares itself with is named in one place, and pages and programs speak
of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from fencepost.soak.kafka_jars import KAFKA_CLIENTS_VERSION
from scripts.apache_kafka import KAFKA_VERSION, ROOT

PINNED = re.compile(r'"(4\.\d+\.\d+)"')
PINNED_ELSEWHERE = {
    "scripts/apache_kafka.py": {KAFKA_VERSION},
    "fencepost/soak/kafka_jars.py": {KAFKA_VERSION},  # what is installed cannot import a script
    "tests/broker/telemetry/test_subscriptions.py": {"4.4.0"},  # a client's own word
    "tests/compat/jvm.py": {"4.3.0"},  # an older client that is tested
    "tests/compat/kafka_python_tests/__main__.py": {"4.0.0", "4.3.0"},  # brokers that kafka-python's tests know
    "tests/docs/test_moving_page.py": {"4.3.1"},  # MirrorMaker, which follows later
    "tests/scripts/test_newer_clients.py": {"4.3.0", "4.4.0"},  # invented answers
    "tests/scripts/test_environment.py": {"4.4.0"},  # of PySpark
}
SPARK = {"fencepost/spark", "tests/spark"}
"""Folders whose versions are Spark's."""

MENTIONED = re.compile(r"\b[Kk]afka(?:-clients)? (4\.\d+)")
MENTIONED_ELSEWHERE = {
    "docs/clients/java.md": {"4.3"},  # an older client that is tested
    "docs/command-line.md": {"4.1"},  # commits by topic ids begin there
    "docs/comparison.md": {"4.1", "4.2", "4.3"},  # what began there, and what others are compared with
    "docs/groups.md": {"4.1"},  # commits by topic ids begin there
    "fencepost/broker/group/consumer/group.py": {"4.0"},  # records of old
    "fencepost/broker/group/streams/records.py": {"4.1"},  # records of old
    "fencepost/cli/apis.py": {"4.0"},  # brokers before it
    "fencepost/cli/group_descriptions.py": {"4.0"},  # brokers before it
    "fencepost/cli/other_brokers.py": {"4.1"},  # commits by topic ids begin there
    "fencepost/protocol/api_keys.py": {"4.0"},  # what it removed
    "fencepost/protocol/stored/consumer_groups.py": {"4.0"},  # records of old
    "fencepost/protocol/stored/streams_groups.py": {"4.1"},  # records of old
    "tests/compat/java-4.4/FINDINGS.md": {"4.3"},  # both answer the same
    "tests/compat/java-4.3/FINDINGS.md": {"4.3"},  # an older client that is tested
    "tests/compat/java-4.3/Main.java": {"4.3"},  # an older client that is tested
    "tests/compat/streams/StreamsGroups.java": {"4.3"},  # where it was seen
    "tests/protocol/test_errors.py": {"4.3"},  # what kio was generated from
    "tests/protocol/test_transcription.py": {"4.3"},  # what kafka-python and kio know
    "tests/spark/world.py": {"4.3"},  # where it was seen
}


def texts(*suffixes: str) -> Iterator[tuple[str, str]]:
    """Path and content of the project's files with these suffixes, without the change log and this file."""
    for folder in ("docs", "fencepost", "scripts", "tests"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in suffixes and path.is_file() and path != Path(__file__):
                yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    yield "README.md", (ROOT / "README.md").read_text(encoding="utf-8")


def test_no_file_pins_another_version_than_the_reference_and_the_tested_clients() -> None:
    found = {
        name: set(PINNED.findall(text))
        for name, text in texts(".py")
        if not any(name.startswith(f"{folder}/") for folder in SPARK)
    }
    assert {name: versions for name, versions in found.items() if versions} == PINNED_ELSEWHERE


def test_pages_and_programs_speak_of_the_reference_except_where_they_mean_an_older_version() -> None:
    reference = KAFKA_VERSION.rpartition(".")[0]
    found = {name: set(MENTIONED.findall(text)) - {reference} for name, text in texts(".py", ".md", ".java")}
    assert {name: versions for name, versions in found.items() if versions} == MENTIONED_ELSEWHERE


def test_the_jars_of_the_soak_are_those_of_the_reference() -> None:
    assert KAFKA_CLIENTS_VERSION == KAFKA_VERSION
