"""The result of `fencepost log repair` as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.broker.inspection.problems import DirectoryProblem
    from fencepost.broker.inspection.repair import RepairedPartition
    from fencepost.broker.inspection.verification import Report

Repaired = tuple["Report", Sequence["RepairedPartition"]]


def is_right(report: Report, repaired: Sequence[RepairedPartition]) -> bool:
    """Whether no damage is left but that of which the next start makes good files again."""
    from fencepost.broker.inspection.findings import Severity

    of_directory = (found for found in report.findings if found.partition is None)
    return all(one.is_right for one in repaired) and all(
        found.severity in (Severity.NOTE, Severity.REBUILT) for found in of_directory
    )


def repair_document(path: str, done: Sequence[Repaired], *, is_dry_run: bool) -> dict[str, Any]:
    """The whole document. path: the data directory, which has several nodes if there are several results."""
    nodes = [_node(*one, is_dry_run=is_dry_run) for one in done]
    if len(nodes) == 1:
        return nodes[0]
    return {"data_directory": path, "healthy": all(node["healthy"] for node in nodes), "nodes": nodes}


def _node(report: Report, repaired: Sequence[RepairedPartition], *, is_dry_run: bool) -> dict[str, Any]:
    from fencepost.broker.inspection.findings import Severity

    return {
        "data_directory": report.data_directory,
        "dry_run": is_dry_run,
        "healthy": is_right(report, repaired),
        "moved": [{"from": move.source, "to": move.target} for move in report.moves],
        "metadata": [found.as_row() for found in report.of_metadata],
        "partitions": [_partition(one) for one in repaired],
        "left": [
            found.as_row()
            for found in report.findings
            if found.partition is None and found.severity is not Severity.NOTE
        ],
    }


def _partition(one: RepairedPartition) -> dict[str, Any]:
    return {
        "partition": str(one.name),
        "repaired": [_problem(problem) for problem in one.plan.repaired],
        "left": [{**_problem(problem), "reason": reason} for problem, reason in one.plan.left],
        "lost_offsets": one.plan.lost_offsets,
        "kept": one.kept,
        "error": one.failed,
    }


def _problem(problem: DirectoryProblem) -> dict[str, Any]:
    return {
        "path": problem.path,
        "position": problem.position,
        "bytes": problem.size_bytes,
        "first_offset": problem.first_offset,
        "end_offset": problem.end_offset,
        "what": problem.what,
    }
