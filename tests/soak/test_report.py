"""The report of a soak, for people and for programs."""

from __future__ import annotations

import io
import json

from rich.console import Console

from fencepost.soak.holdings import NO_MEMORY, Holdings
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


def test_the_report_has_the_pieces_with_what_the_cluster_has_kept_at_the_end_of_each() -> None:
    first = Holdings(0, 0, {"tail": 9, "deletions": 0}, 2_500_000, [61_000_000, NO_MEMORY])
    second = Holdings(12, 7_900_000, {"tail": 40, "segments": 4}, 3_000_000, [62_000_000, 63_000_000])
    text = shown(
        SoakReport(
            minutes=10,
            seed=1,
            directory="d",
            machine_count=3,
            pieces_count=2,
            duration_s=900.0,
            holdings=[first.as_object(), second.as_object()],
        )
    )
    assert "Soak of 10 minutes in 2 pieces, seed 1" in text
    assert "2; 15.0 minutes" in text
    assert "tail 9 " in text
    assert "61 " in text
    assert "tail 40, segments 4" in text
    assert "62 63" in text
    assert "deletions" not in text


def test_a_soak_in_one_piece_says_nothing_of_pieces() -> None:
    assert "piece" not in shown(SoakReport(minutes=1, seed=1, directory="d"))
