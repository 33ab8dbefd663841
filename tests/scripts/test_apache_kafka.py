"""The version of Apache Kafka that the project compares itself with is named in one place."""

from __future__ import annotations

import re
from pathlib import Path

from fencepost.soak.kafka_jars import KAFKA_CLIENTS_VERSION
from scripts.apache_kafka import KAFKA_VERSION, ROOT

PINNED = re.compile(r'"(4\.\d+\.\d+)"')
ELSEWHERE = {
    "scripts/apache_kafka.py": {KAFKA_VERSION},
    "fencepost/soak/kafka_jars.py": {KAFKA_VERSION},  # what is installed cannot import a script
    "tests/compat/jvm.py": {"4.3.0"},  # an older client that is tested
    "tests/compat/kafka_python_tests/__main__.py": {"4.0.0", "4.3.0"},  # brokers that kafka-python's tests know
    "tests/scripts/test_environment.py": {"4.3.0"},  # of another project
}


def test_no_file_pins_another_version_than_the_reference_and_the_tested_clients() -> None:
    found = {
        str(path.relative_to(ROOT)): set(PINNED.findall(path.read_text(encoding="utf-8")))
        for folder in ("fencepost", "scripts", "tests")
        for path in (ROOT / folder).rglob("*.py")
        if path != Path(__file__)
    }
    assert {name: versions for name, versions in found.items() if versions} == ELSEWHERE


def test_the_jars_of_the_soak_are_those_of_the_reference() -> None:
    assert KAFKA_CLIENTS_VERSION == KAFKA_VERSION
