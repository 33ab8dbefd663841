"""The command that tells which clients have a newer version: each registry's answer is read, and none is guessed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from scripts.newer_clients import CannotAskError, main, newer, newest_tested, ordered, run
from scripts.tested_versions_page import Pin

PIP = "kafka-python (3.1.0)\nAvailable versions: 3.1.0, 3.0.12\n"
GO = "github.com/IBM/sarama v1.9.0 v1.61.1 v1.62.0 v1.63.0-rc.1\n"
CARGO = "rdkafka #kafka\nRust wrapper for librdkafka\nversion: 0.40.0 (latest 0.41.0)\nlicense: MIT\n"
MAVEN = """The following dependencies in Dependencies have newer versions:
  org.apache.flink:flink-connector-kafka ............ 5.0.0-2.2 -> 5.1.0-2.2
  org.apache.kafka:kafka-clients ........................... 4.3.0 -> 4.4.0
"""
PINS = [
    Pin("PyPI", "kafka-python", "2.3.3", "old.txt"),
    Pin("PyPI", "kafka-python", "3.0.12", "requirements.lock"),
    Pin("npm", "kafkajs", "2.2.4", "package.json"),
    Pin("Go", "github.com/IBM/sarama", "v1.61.1", "go.mod"),
    Pin("crates.io", "rdkafka", "0.39.0", "Cargo.toml"),
    Pin("Maven", "kafka-clients", "4.3.0", "jvm.py"),
    Pin("Maven", "org.apache.flink:flink-connector-kafka", "5.0.0-2.2", "ivy.xml"),
    Pin("Maven", "kafka-streams", "4.4.0", "jvm.py"),
]


def answers(command: Sequence[str]) -> str:
    """The answers of tools, as recorded."""
    if command[0] == "mvn":
        (output,) = [Path(part.partition("=")[2]) for part in command if part.startswith("-Dversions.outputFile=")]
        project = Path(command[command.index("-f") + 1]).read_text()
        assert "<groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId>" in project
        assert "<groupId>org.apache.flink</groupId><artifactId>flink-connector-kafka</artifactId>" in project
        output.write_text(MAVEN)
        return ""
    return {"npm": "2.2.4\n", "go": GO, "cargo": CARGO}.get(command[0], PIP)


def test_the_newest_tested_version_of_each_client_is_compared_with_its_registry() -> None:
    found, unknown = newer(PINS, answers)
    assert {(pin.package, pin.version, version) for pin, version in found} == {
        ("kafka-python", "3.0.12", "3.1.0"),
        ("github.com/IBM/sarama", "v1.61.1", "v1.62.0"),
        ("rdkafka", "0.39.0", "0.40.0"),
        ("kafka-clients", "4.3.0", "4.4.0"),
        ("org.apache.flink:flink-connector-kafka", "5.0.0-2.2", "5.1.0-2.2"),
    }
    assert unknown == []


@pytest.mark.parametrize("tool", ["npm", "go", "cargo", "mvn"])
def test_a_registry_that_does_not_answer_is_named_and_the_others_are_compared(tool: str) -> None:
    def without(command: Sequence[str]) -> str:
        if command[0] == tool:
            raise CannotAskError(f"{tool} is not installed")
        return answers(command)

    found, (sentence,) = newer(PINS, without)
    assert sentence.endswith(f"could not be asked: {tool} is not installed")
    assert "3.1.0" in {version for _, version in found}


def test_an_answer_without_a_version_is_no_answer() -> None:
    _, unknown = newer(PINS[:3], lambda _: "ERROR: no matching distribution\n")
    assert [sentence.split()[0] for sentence in unknown] == ["PyPI", "npm"]


def test_a_tool_that_is_missing_or_fails_is_named_with_its_last_words() -> None:
    with pytest.raises(CannotAskError, match="fencepost-no-such-tool is not installed"):
        run(["fencepost-no-such-tool"])
    with pytest.raises(CannotAskError, match="ended with 3: gone"):
        run(["sh", "-c", "echo first >&2; echo gone >&2; exit 3"])


def test_versions_sort_as_numbers() -> None:
    assert ordered("v1.9.0") < ordered("v1.61.1")
    assert ordered("4.0.1-2.0") < ordered("5.0.0-2.2") < ordered("5.0.0-2.10")
    assert newest_tested(PINS)["PyPI", "kafka-python"].version == "3.0.12"


@pytest.mark.parametrize(
    ("found", "unknown", "status"), [([], [], 0), ([(PINS[1], "3.1.0")], [], 1), ([(PINS[1], "3.1.0")], ["npm"], 2)]
)
def test_the_exit_code_says_whether_something_is_newer(
    found: list[tuple[Pin, str]],
    unknown: list[str],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("scripts.newer_clients.newer", lambda *_: (found, unknown))
    assert main() == status
    printed = capsys.readouterr()
    assert ("kafka-python: 3.1.0 is newer than 3.0.12, which requirements.lock pins" in printed.out) is bool(found)
    assert printed.err.split() == unknown
