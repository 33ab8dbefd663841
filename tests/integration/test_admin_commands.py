"""The commands of administrators: offsets of groups, sizes of topics, trimming, settings, disks; the measurement."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from confluent_kafka import Producer

from tests.support.broker_process import ROOT, BrokerProcess

Run = Callable[..., Result]
Unique = Callable[[str], str]


def shown(run: Run, *arguments: str) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def group(broker: BrokerProcess, run: Run, unique: Unique) -> str:
    """A group, and a topic of the same name, with ten records of the times 1000 to 1009, read to the end."""
    name = unique("moved")
    run("topics", "create", name, "-p", "1", "--config", "retention.ms=-1")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        producer.produce(name, str(number).encode(), partition=0, timestamp=1000 + number)
    assert producer.flush(60) == 0
    assert run("groups", "reset-offsets", name, name, "--to", "latest").exit_code == 0
    return name


@pytest.mark.parametrize(
    ("options", "offset"),
    [
        (("--to", "earliest"), 0),
        (("--to-offset", "4"), 4),
        (("--to-offset", "400"), 10),
        (("--shift-by", "-3"), 7),
        (("--shift-by", "-30"), 0),
        (("--to-time", "1006"), 6),
        (("--to-time", "2030-01-01T00:00:00Z"), 10),
    ],
)
def test_a_group_is_moved_and_a_dry_run_moves_nothing(
    run: Run, group: str, options: tuple[str, ...], offset: int
) -> None:
    expected = [{"topic": group, "partition": 0, "offset": offset, "before": 10}]
    assert shown(run, "groups", "reset-offsets", group, group, *options, "--dry-run") == expected
    assert shown(run, "groups", "describe", group)[0]["committed_offset"] == 10
    assert shown(run, "groups", "reset-offsets", group, group, *options) == expected
    assert shown(run, "groups", "describe", group)[0]["committed_offset"] == offset


def test_a_group_is_moved_as_a_file_says(run: Run, group: str, tmp_path: Path) -> None:
    exported = tmp_path / "offsets"
    exported.write_text(f"{group},0,3\n")
    assert shown(run, "groups", "reset-offsets", group, "--from-file", str(exported))[0]["offset"] == 3
    exported.write_text(run("groups", "reset-offsets", group, group, "--to-offset", "5", "--dry-run", "--json").stdout)
    assert shown(run, "groups", "reset-offsets", group, "--from-file", str(exported))[0]["offset"] == 5
    for content, message in (
        (f"{group},0\n", "row 1: expected topic,partition,offset"),
        (f"{group},0,-1\n", f"row 1: {group}-0 is negative"),
        (f"{group},0,1\n{group},0,2\n", f"row 2: {group}-0 is there twice"),
        (f"{group},7,1\n", "has no partition 7; it has 1"),
        ("", "has no offsets"),
    ):
        exported.write_text(content)
        refused = run("groups", "reset-offsets", group, "--from-file", str(exported))
        assert refused.exit_code == 1
        assert message in refused.stderr


def test_offsets_are_deleted(run: Run, group: str) -> None:
    assert run("groups", "delete-offsets", group, group, "--yes").stdout == (
        f"deleted offsets of 1 partition of {group} in {group}\n"
    )
    again = run("groups", "delete-offsets", group, group, "--yes")
    assert again.exit_code == 1
    assert "has no offset for" in again.stderr or f"there is no group '{group}'" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("g", "t"), "say once where to"),
        (("g", "t", "--to", "latest", "--shift-by", "1"), "say once where to"),
        (("g", "--to", "latest"), "name the topic, or a file"),
    ],
)
def test_a_reset_must_say_what_and_where_to(run: Run, arguments: tuple[str, ...], message: str) -> None:
    result = run("groups", "reset-offsets", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_group_is_watched_until_ctrl_c(broker: BrokerProcess, group: str) -> None:
    command = [sys.executable, "-m", "fencepost", "groups", "describe", group, "--watch", "--interval", "0.1"]
    with subprocess.Popen(
        [*command, "--bootstrap", broker.bootstrap], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        headlines = 0
        while headlines < 3:
            line = watching.stdout.readline()
            assert line
            headlines += line.startswith(f"{group}: ")
        watching.send_signal(signal.SIGINT)
        _, said = watching.communicate(timeout=60)
    assert "Traceback" not in said
    assert watching.returncode == 130


def test_topics_are_shown_with_what_they_hold(run: Run, group: str) -> None:
    listed = {row["topic"]: row for row in shown(run, "topics", "list")}
    assert (listed[group]["records"], listed[group]["offline"]) == (10, 0)
    assert listed[group]["size_bytes"] > 10
    (partition,) = shown(run, "topics", "describe", group)
    assert (partition["leader"], partition["replicas"], partition["in_sync"]) == (
        partition["replicas"][0],
        partition["in_sync"],
        partition["replicas"],
    )
    assert partition["size_bytes"] == listed[group]["size_bytes"]
    assert partition["newest_record"].startswith("19")
    headline = run("topics", "describe", group).stdout.splitlines()[0]
    assert headline.startswith(f"{group}: topic id ")
    assert headline.endswith("1 partition, settings: retention.ms=-1")


def test_the_oldest_records_are_deleted(run: Run, group: str) -> None:
    assert run("topics", "trim", group, "--before-offset", "3", input="n\n").exit_code == 2
    assert run("topics", "trim", group, "--yes").exit_code == 2
    assert shown(run, "topics", "trim", group, "--before-offset", "3", "--yes") == [
        {"partition": 0, "log_start_offset": 3, "deleted_offsets": 3}
    ]
    assert shown(run, "topics", "trim", group, "--before-offset", "2", "--yes")[0]["deleted_offsets"] == 0
    assert shown(run, "topics", "trim", group, "--before-time", "1006", "--yes")[0]["log_start_offset"] == 6
    assert run("consume", group, "--from-beginning", "-e").stdout.split() == ["6", "7", "8", "9"]
    assert shown(run, "topics", "trim", group, "--everything", "--yes")[0]["log_start_offset"] == 10
    assert "there is no topic 'missing'" in run("topics", "trim", "missing", "--everything", "--yes").stderr


def test_settings_of_brokers_groups_and_loggers_are_shown_and_changed(run: Run, unique: Unique) -> None:
    broker = str(shown(run, "cluster", "info")["brokers"][0]["broker"])
    everything = {row["name"]: row for row in shown(run, "configs", "broker", broker, "--all")}
    assert everything["log.retention.ms"]["source"] == "default" or everything["log.retention.ms"]["value"]
    changed = shown(run, "configs", "broker", "all", "--set", "log.retention.ms=86400000")
    assert ("log.retention.ms", "86400000") in [(row["name"], row["value"]) for row in changed]
    assert run("configs", "broker", "all", "--delete", "log.retention.ms").exit_code == 0
    group = unique("group")
    changed = shown(run, "configs", "group", group, "--set", "consumer.session.timeout.ms=50000")
    assert [(row["name"], row["value"], row["source"]) for row in changed] == [
        ("consumer.session.timeout.ms", "50000", "group")
    ]
    loggers = {row["name"]: row["value"] for row in shown(run, "configs", "logger", broker)}
    name = min(loggers)
    assert run("configs", "logger", broker, "--set", f"{name}=DEBUG").exit_code == 0
    assert {row["name"]: row["value"] for row in shown(run, "configs", "logger", broker)}[name] == "DEBUG"
    assert run("configs", "logger", broker, "--set", f"{name}={loggers[name]}").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("broker", "one"), 2, "'one' is no broker id; `fencepost cluster info` shows them"),
        (("broker", "999"), 1, "the cluster has no broker 999"),
        (("topic", "missing"), 1, "UNKNOWN_TOPIC_OR_PARTITION"),
        (("broker", "all", "--set", "log.retention.ms=soon"), 1, "Invalid value soon for configuration"),
        (("group", "g", "--set", "a=1", "--delete", "a"), 2, "--set and --delete both name a"),
    ],
)
def test_errors_about_settings_take_one_line(run: Run, arguments: tuple[str, ...], code: int, message: str) -> None:
    result = run("configs", *arguments)
    assert result.exit_code == code
    assert message in result.stderr.splitlines()[-1]


def test_the_cluster_shows_disks_and_features(run: Run) -> None:
    described = shown(run, "cluster", "info")
    (disk,) = described["disks"]
    assert disk["volume_bytes"] > disk["free_bytes"] > 0
    assert disk["error"] is None
    levels = {row["feature"]: row["level"] for row in described["features"]}
    assert levels["transaction.version"] == 2
    assert "transaction.version" in run("cluster", "info").stdout


def test_the_measurement_reports_and_leaves_nothing(run: Run) -> None:
    figures = shown(run, "bench", "--records", "500", "--size", "50", "-p", "2")
    assert figures["records"] == 500
    assert 0 < figures["acknowledged_p50_ms"] <= figures["acknowledged_p99_ms"]
    assert figures["acknowledged_p50_ms"] <= figures["end_to_end_p50_ms"]
    assert figures["written_records_per_s"] > 0
    assert figures["read_records_per_s"] > 0
    assert "records/s" in run("bench", "--records", "10").stdout
    assert "fencepost-bench" not in run("topics", "list").stdout
