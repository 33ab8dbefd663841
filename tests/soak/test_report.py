"""The report of a soak, for people and for programs."""

from __future__ import annotations

import io
import json

from rich.console import Console

from fencepost.soak.report import Doubts, SoakReport


def shown(report: SoakReport) -> str:
    out = io.StringIO()
    report.show(Console(file=out, width=120))
    return out.getvalue()


def test_a_soak_without_anomalies_and_findings_is_good() -> None:
    report = SoakReport(minutes=2, seed=7, directory="/somewhere", committed={"java": 1_200})
    assert report.is_good
    text = shown(report)
    assert "Soak of 2 minutes, seed 7" in text
    assert "1,200 (java 1,200)" in text
    assert "Nothing was lost" in text


def test_each_finding_and_anomaly_is_named() -> None:
    report = SoakReport(minutes=2, seed=7, directory="/somewhere", findings=["[b]no start"])
    report.anomalies, report.anomaly_texts = {"lost write": 1}, ["a record is lost"]
    assert not report.is_good
    text = shown(report)
    assert "WRONG: [b]no start" in text
    assert "WRONG: a record is lost" in text
    assert "Nothing was lost" not in text


def test_faults_are_those_of_the_kind_of_broker() -> None:
    alone = shown(SoakReport(minutes=1, seed=1, directory="d"))
    machines = shown(SoakReport(minutes=1, seed=1, directory="d", machine_count=3))
    processes = shown(SoakReport(minutes=1, seed=1, directory="d", process_count=2))
    assert "broker: kill -9" in alone
    assert "broker: kill -9 " not in machines.replace("one broker: kill -9", "").replace("all brokers: kill -9", "")
    assert "PostgreSQL: SIGSTOP" in machines
    assert "one process: kill -9" in processes


def test_programs_get_the_same_as_an_object() -> None:
    report = SoakReport(minutes=2, seed=7, directory="/somewhere", aborted=3)
    assert json.loads(json.dumps(report.as_object()))["good"] is True
    assert report.as_object()["aborted"] == 3


def test_services_have_a_time_in_doubt_and_faults_of_their_database() -> None:
    doubts = Doubts.of([0.001, 0.002, 4.0], [4.0])
    report = SoakReport(minutes=1, seed=1, directory="d", doubts=doubts, raised={"LockNotAvailable": 3})
    text = shown(report)
    assert str(doubts) == "median 2.0 ms, longest 4.0 s; 1 left to another session, median 4.00 s"
    assert "median 2.0 ms, longest 4.0 s" in text
    assert "standby promoted" in text
    assert "services got: LockNotAvailable" in text
    assert "operations in the history" not in text
    assert json.loads(json.dumps(report.as_object()))["doubts"]["longest_s"] == 4.0
    assert str(Doubts.of([], [])) == "median 0.0 ms, longest 0.0 s"
