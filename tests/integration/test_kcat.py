"""kcat, the command-line client, when the machine has it. In CI it must."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.missing_tools import require_tool

Unique = Callable[[str], str]


@pytest.fixture(autouse=True, scope="module")
def installed() -> None:
    require_tool("kcat")


def kcat(broker: BrokerProcess, *arguments: str, stdin: str = "") -> str:
    return subprocess.run(
        ["kcat", "-b", broker.bootstrap, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout


def test_lines_are_written_and_read(broker: BrokerProcess, unique: Unique) -> None:
    topic = unique("kcat")
    kcat(broker, "-P", "-t", topic, "-K:", stdin="a:1\nb:2\nc:3\n")
    printed = kcat(broker, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%k=%s\n")
    assert sorted(printed.split()) == ["a=1", "b=2", "c=3"]


def test_metadata_is_listed(broker: BrokerProcess, unique: Unique) -> None:
    topic = unique("kcat")
    kcat(broker, "-P", "-t", topic, stdin="x\n")
    metadata = json.loads(kcat(broker, "-L", "-J"))
    assert [node["name"] for node in metadata["brokers"]] == [broker.bootstrap]
    assert topic in {entry["topic"] for entry in metadata["topics"]}
