"""`log repair --json` names each repair, each problem that is left, and the files that are kept."""

from __future__ import annotations

import json

import pytest

from fencepost.broker.inspection.findings import Finding, Severity
from fencepost.broker.inspection.problems import DirectoryProblem, Kind
from fencepost.broker.inspection.putting_back import Move
from fencepost.broker.inspection.repair import RepairedPartition
from fencepost.broker.inspection.repair_plan import Plan
from fencepost.broker.inspection.verification import Report
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.cli.repair_documents import Repaired, is_right, repair_document
from tests.support.json_outputs import check_output

DAMAGE = DirectoryProblem(Kind.DAMAGE, "/data/orders-0/0.log", "a wrong checksum", 10, 30, 5, 7)
TAIL = DirectoryProblem(Kind.TAIL, "/data/orders-0/0.log", "half a batch", 30, 40)
PLACE = TopicPartition("orders", 0)


def of_directory(severity: Severity) -> Finding:
    return Finding(severity, None, "/data/metadata.sqlite", "it is older than its copy", "the copy is taken")


def repaired(*, left: list[tuple[DirectoryProblem, str]], failed: str | None = None) -> RepairedPartition:
    return RepairedPartition(PLACE, Plan(repaired=[DAMAGE], left=left, lost_offsets=2), ["/data/0.log.lost-10"], failed)


def test_a_document_has_its_schema_and_all_that_was_done() -> None:
    report = Report(
        "/data", False, findings=[of_directory(Severity.NOTE), of_directory(Severity.DAMAGE)], moves=[Move("/a", "/b")]
    )
    document = repair_document("/data", [(report, [repaired(left=[(TAIL, "the start does it")])])], is_dry_run=True)
    check_output("log repair", json.dumps(document))
    (partition,) = document["partitions"]
    assert partition["repaired"][0]["bytes"] == 20
    assert partition["left"][0]["reason"] == "the start does it"
    assert (partition["lost_offsets"], partition["kept"]) == (2, ["/data/0.log.lost-10"])
    assert document["moved"] == [{"from": "/a", "to": "/b"}]
    assert len(document["left"]) == 1
    assert document["dry_run"]


def test_several_nodes_are_several_documents_in_one() -> None:
    done: list[Repaired] = [(Report(f"/data/{name}", True), []) for name in ("node-1", "node-2")]
    document = repair_document("/data", done, is_dry_run=False)
    check_output("log repair", json.dumps(document))
    assert [node["data_directory"] for node in document["nodes"]] == ["/data/node-1", "/data/node-2"]
    assert document["healthy"]


@pytest.mark.parametrize(
    ("findings", "partition", "expected"),
    [
        ([], repaired(left=[]), True),
        ([], repaired(left=[(TAIL, "the start does it")]), True),
        ([], repaired(left=[(DAMAGE, "it would lose records")]), False),
        ([], repaired(left=[], failed="no space"), False),
        ([of_directory(Severity.NOTE), of_directory(Severity.REBUILT)], repaired(left=[]), True),
        ([of_directory(Severity.DAMAGE)], repaired(left=[]), False),
    ],
)
def test_damage_that_is_left_is_not_right(
    findings: list[Finding], partition: RepairedPartition, expected: bool
) -> None:
    assert is_right(Report("/data", True, findings=findings), [partition]) is expected
