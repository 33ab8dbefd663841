"""Check of a history for all anomalies that this package finds, and its report."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from fencepost.history.cycles import find_read_cycles, find_write_cycles
from fencepost.history.findings import Anomaly, AnomalyFinding
from fencepost.history.inputs import Inputs
from fencepost.history.loader import load_history
from fencepost.history.model import History, TransactionOutcome
from fencepost.history.offsets import GroupOffsets
from fencepost.history.order import find_inconsistent_offsets, find_reordered_sends, find_second_places
from fencepost.history.reads import find_backward_polls, find_foreign_reads, find_wrong_reads
from fencepost.history.visibility import Missing, find_missing_records

FINDINGS_LIMIT = 10


@dataclass(slots=True)
class CheckReport:
    """Figures and anomalies of a history.

    anomaly_counts: all anomalies of each kind that occurs; `findings` has the first ones of each kind.
    permitted:      the first of the write cycles that Kafka permits; permitted_count counts all of them.
    """

    counts: dict[str, int]
    anomaly_counts: Counter[Anomaly] = field(default_factory=Counter)
    findings: list[AnomalyFinding] = field(default_factory=list)
    permitted: list[AnomalyFinding] = field(default_factory=list)
    permitted_count: int = 0

    @property
    def is_valid(self) -> bool:
        """Whether there are no anomalies."""
        return not self.anomaly_counts

    def text(self) -> str:
        """Format the report for people."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in self.counts.items())
        for finding in self.findings:
            yield ""
            yield from _finding_lines(finding)
        if self.permitted:
            yield ""
            yield (
                f"No anomaly, because Kafka permits it among transactions under way together: "
                f"{self.permitted_count} tangles of write cycles (G0), for example"
            )
            yield from _finding_lines(self.permitted[0])
        yield ""
        if self.is_valid:
            yield "No anomaly found."
        else:
            total = self.anomaly_counts.total()
            yield "1 anomaly found:" if total == 1 else f"{total:,} anomalies found:"
            for anomaly, count in sorted(self.anomaly_counts.items(), key=lambda entry: entry[0].value):
                shown = sum(finding.anomaly is anomaly for finding in self.findings)
                yield f"  {count:>9,}  {anomaly.value}" + (f" (the first {shown} shown)" if shown < count else "")

    def as_json(self) -> str:
        """Format the report for programs: one object."""
        return json.dumps(
            {
                "valid": self.is_valid,
                "counts": self.counts,
                "anomaly_counts": {anomaly.value: count for anomaly, count in self.anomaly_counts.items()},
                "anomalies": [_finding_object(finding) for finding in self.findings],
                "permitted_count": self.permitted_count,
                "permitted": [_finding_object(finding) for finding in self.permitted],
            },
            indent=2,
            ensure_ascii=False,
        )


def _finding_lines(finding: AnomalyFinding) -> Iterator[str]:
    yield f"{finding.anomaly.value}: {finding.summary}"
    for line, statement in finding.proofs:
        yield f"  line {line:<8} {statement}"


def _finding_object(finding: AnomalyFinding) -> dict[str, object]:
    proofs = [{"line": line, "statement": statement} for line, statement in finding.proofs]
    return {"anomaly": finding.anomaly.value, "summary": finding.summary, "proofs": proofs}


def check_file(
    path: str | os.PathLike[str], *, forbid_write_cycles: bool = False, findings_limit: int = FINDINGS_LIMIT
) -> CheckReport:
    """Check a file as `check_history` does. Raises OSError if it cannot be read."""
    with open(path, "rb") as file:
        return check_history(file, forbid_write_cycles=forbid_write_cycles, findings_limit=findings_limit)


def check_history(
    lines: Iterable[bytes], *, forbid_write_cycles: bool = False, findings_limit: int = FINDINGS_LIMIT
) -> CheckReport:
    """Read a history and look for anomalies.

    lines:               lines of a file opened in binary mode.
    forbid_write_cycles: whether G0 is an anomaly: if transactions never overlap, or a system
                         promises more than Kafka.
    findings_limit:      the most findings of each kind that are kept; all are counted.
    Raises MalformedHistoryError at a line that docs/history.md does not allow.
    """
    history = load_history(lines)
    offsets = GroupOffsets(history)
    offsets.note_evidence()
    report = CheckReport(_counts(history))
    for finding in _findings(history, offsets):
        _add(report, finding, findings_limit)
    for finding in find_write_cycles(history):
        if forbid_write_cycles:
            _add(report, finding, findings_limit)
        else:
            report.permitted_count += 1
            report.permitted = report.permitted or [finding]
    return report


def _add(report: CheckReport, finding: AnomalyFinding, findings_limit: int) -> None:
    report.anomaly_counts[finding.anomaly] += 1
    if report.anomaly_counts[finding.anomaly] <= findings_limit:
        report.findings.append(finding)


def _findings(history: History, offsets: GroupOffsets) -> Iterator[AnomalyFinding]:
    """All anomalies; those that explain others come first."""
    yield from find_inconsistent_offsets(history)
    yield from find_second_places(history)
    read_cycles = find_read_cycles(history)
    yield from read_cycles.findings
    yield from find_wrong_reads(history, read_cycles.explained)
    yield from find_foreign_reads(history)
    yield from find_backward_polls(history)
    yield from find_reordered_sends(history)
    missing = Missing()
    yield from find_missing_records(history, missing)
    yield from offsets.find_wrong_fetches(missing.transactions)
    inputs = Inputs(history)
    yield from inputs.find_processed_twice()
    yield from inputs.find_never_processed(offsets, missing)
    yield from offsets.find_regressions(inputs.twice)


def _counts(history: History) -> dict[str, int]:
    outcomes = Counter(transaction.outcome for transaction in history.transactions)
    evident = sum(
        transaction.outcome is TransactionOutcome.UNKNOWN and transaction.is_committed
        for transaction in history.transactions
    )
    return {
        "lines": history.line_count,
        "operations": history.operation_count,
        "records_sent": len(history.sends),
        "transactions": len(history.transactions),
        "transactions_committed": outcomes[TransactionOutcome.COMMITTED] + evident,
        "transactions_aborted": outcomes[TransactionOutcome.ABORTED],
        "transactions_never_ended": outcomes[TransactionOutcome.OPEN],
        "transactions_of_unknown_outcome": outcomes[TransactionOutcome.UNKNOWN] - evident,
        "torn_lines": history.torn_line_count,
    }
