"""Lines of a history: what is read and what is put aside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fencepost.history.checker import check_history


def line(operation: str, outcome: str, **fields: Any) -> bytes:
    return json.dumps({"time_ms": 1, "client": "c", "operation": operation, "type": outcome, **fields}).encode() + b"\n"


def send(value: str, call: int) -> bytes:
    return line("send", "invoke", call=call, topic="t", partition=0, value=value)


def test_an_unfinished_last_line_is_put_aside(tmp_path: Path) -> None:
    report = check_history([send("a", 1), send("b", 2)[:-20]])
    assert report.counts["torn_lines"] == 1
    assert report.counts["records_sent"] == 1


def test_a_line_that_follows_an_unfinished_one_of_another_process_counts() -> None:
    report = check_history([send("a", 1)[:30] + send("b", 2), send("c", 3)])
    assert report.counts["torn_lines"] == 1
    assert report.counts["records_sent"] == 2


def test_blank_lines_count_as_lines_only() -> None:
    assert check_history([b"\n", send("a", 1)]).counts["lines"] == 2
