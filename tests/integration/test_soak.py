"""A short soak: that it runs, really disturbs, finds nothing wrong, and would say so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOAK = [sys.executable, "-m", "fencepost", "soak"]


def soak(directory: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    done = subprocess.run(
        [*SOAK, "--directory", str(directory), "--json", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=560,
        check=False,
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


@pytest.mark.long  # `./scripts/test` soaks for minutes anyway
@pytest.mark.timeout(600)
def test_clients_of_every_kind_come_through_a_few_seconds_of_crashes(tmp_path: Path) -> None:
    exit_code, report, said = soak(
        tmp_path / "soak", "--minutes", "0.1", "--seed", "5", "--fault-interval", "0.5", "--rate", "60"
    )
    assert exit_code == 0, said
    assert report["anomalies"] == {}
    assert report["findings"] == []
    assert all(count > 0 for count in report["committed"].values())
    assert {"kafka-python", "confluent"} <= set(report["committed"])
    assert report["aborted"] > 0
    assert report["aborted_records"] > 0
    assert sum(report["faults"].values()) >= 5
    assert report["recoveries_s"]
    assert {path.name for path in (tmp_path / "soak").iterdir()} >= {
        *("history.jsonl", "nemesis.log", "broker.log", "data", "clients")
    }


@pytest.mark.long  # `./scripts/test` soaks for minutes anyway
@pytest.mark.timeout(600)
def test_clients_come_through_faults_of_single_processes_of_a_broker(tmp_path: Path) -> None:
    exit_code, report, said = soak(
        tmp_path / "soak",
        *("--processes", "3", "--minutes", "0.2", "--seed", "3", "--fault-interval", "0.6", "--rate", "60"),
        *("--clients", "kafka-python,confluent"),
    )
    assert exit_code == 0, said
    assert report["anomalies"] == {}
    assert report["findings"] == []
    assert report["process_count"] == 3
    assert sum(count for fault, count in report["faults"].items() if fault.startswith("process_")) >= 3
    log = (tmp_path / "soak" / "broker.log").read_text()
    assert "node_taken_over" in log
    assert (tmp_path / "soak" / "data" / "node.3").is_dir()


@pytest.mark.long  # `./scripts/test` soaks for minutes anyway
@pytest.mark.timeout(600)
def test_clients_come_through_faults_of_machines_and_of_the_stores_that_they_share(tmp_path: Path) -> None:
    exit_code, report, said = soak(
        tmp_path / "soak",
        *("--machines", "3", "--minutes", "0.3", "--seed", "8", "--fault-interval", "0.8", "--rate", "60"),
        *("--clients", "kafka-python,confluent"),
    )
    assert exit_code == 0, said
    assert report["anomalies"] == {}
    assert report["findings"] == []
    assert report["machine_count"] == 3
    assert sum(count for fault, count in report["faults"].items() if fault.startswith("machine_")) >= 2
    assert any(fault.startswith(("database_", "objects_", "connection_")) for fault in report["faults"])
    assert {path.name for path in (tmp_path / "soak").iterdir()} >= {"broker-3.log", "postgres-second.log", "objects"}


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_soak_of_machines_goes_on_in_a_second_piece(tmp_path: Path) -> None:
    always = "--minutes", "0.1", "--machines", "3", "--fault-interval", "0.8"
    exit_code, first, said = soak(
        tmp_path / "soak", *always, "--seed", "8", "--rate", "60", "--clients", "kafka-python,confluent"
    )
    assert exit_code == 0, said
    exit_code, report, said = soak(tmp_path / "soak", *always, "--continue")
    assert exit_code == 0, said
    assert (report["anomalies"], report["findings"]) == ({}, [])
    assert (report["seed"], report["pieces_count"]) == (8, 2)
    assert report["minutes"] == pytest.approx(0.2)
    assert report["duration_s"] > first["duration_s"]
    assert all(report["faults"][fault] >= count for fault, count in first["faults"].items())
    assert sum(report["committed"].values()) > sum(first["committed"].values())
    assert report["visible_records"] > first["visible_records"] > 0
    kept = report["holdings"]
    assert kept[:1] == first["holdings"]
    assert all(one["rows"]["partitions"] == 20 and one["local_bytes"] > 0 for one in kept)
    assert all(len(one["resident_bytes"]) == 3 and min(one["resident_bytes"]) > 0 for one in kept)


def test_machines_and_processes_exclude_each_other(tmp_path: Path) -> None:
    exit_code, _, said = soak(tmp_path / "soak", "--minutes", "0.1", "--machines", "3", "--processes", "2")
    assert exit_code == 2
    assert "--machines and --processes exclude each other" in said


def test_a_directory_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    exit_code, _, said = soak(tmp_path, "--minutes", "0.1")
    assert exit_code == 2
    assert "is not empty" in " ".join(said.split())  # a long path wraps the line
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_clients_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    exit_code, _, said = soak(tmp_path / "soak", "--minutes", "0.1", "--clients", "sarama")
    assert exit_code == 2
    assert "no such client: sarama" in said


@pytest.mark.long  # `./scripts/test` soaks such services anyway
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "brokers", [(), ("--processes", "3"), ("--machines", "3")], ids=["one", "processes", "machines"]
)
def test_services_come_through_the_end_of_their_database(tmp_path: Path, brokers: tuple[str, ...]) -> None:
    exit_code, report, said = soak(
        tmp_path / "soak",
        *("--two-phase", *brokers, "--minutes", "0.3", "--seed", "4", "--fault-interval", "1", "--rate", "60"),
    )
    assert exit_code == 0, said
    assert report["findings"] == []
    assert sum(report["committed"].values()) > 200
    assert all(count > 0 for count in report["committed"].values())
    assert report["doubts"]["count"] >= sum(report["committed"].values())
    assert {"postgres_promotions", "commit_cuts_before", "commit_cuts_after", "commit_cuts_half", "locks"} <= set(
        report["faults"]
    )
