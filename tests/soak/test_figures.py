"""Figures of a soak come from the lines of its history."""

from __future__ import annotations

import json
from pathlib import Path

from fencepost.soak.figures import figures_of


def test_lines_are_counted_by_operation_and_outcome(tmp_path: Path) -> None:
    lines = [
        {"client": "a", "operation": "begin", "type": "ok"},
        {"client": "a", "operation": "send", "type": "invoke"},
        {"client": "a", "operation": "send", "type": "ok"},
        {"client": "a", "operation": "commit", "type": "invoke"},
        {"client": "a", "operation": "commit", "type": "ok"},
        {"client": "b", "operation": "begin", "type": "ok"},
        {"client": "b", "operation": "abort", "type": "ok"},
        {"client": "b", "operation": "begin", "type": "ok"},
        {"client": "b", "operation": "poll", "type": "ok", "records": [[], []]},
    ]
    path = tmp_path / "history"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"client": "b", "oper', encoding="utf-8")
    figures = figures_of(path)
    assert (figures.operations, figures.sent, figures.read, figures.begun) == (6, 1, 2, 3)
    assert dict(figures.committed) == {"a": 1}
    assert figures.aborted == 1


def test_a_transaction_without_an_outcome_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text('{"client": "a", "operation": "begin", "type": "ok"}\n', encoding="utf-8")
    assert figures_of(path).unknown == 1
