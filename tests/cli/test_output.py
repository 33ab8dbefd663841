"""Tables and JSON: what programs read does not change with a terminal's width."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fencepost.cli.output import format_time, print_rows, progress

COLUMNS = ["topic", "high_watermark", "partitions"]
ROWS: list[dict[str, Any]] = [
    {"topic": "orders", "high_watermark": 12, "partitions": ["a-0", "a-1"]},
    {"topic": "x" * 300, "high_watermark": None, "partitions": []},
]


def test_every_row_is_one_line_for_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(COLUMNS, ROWS, as_json=False)
    heading, first, second = capsys.readouterr().out.splitlines()
    assert heading.split("   ")[0] == "topic"
    assert first.split() == ["orders", "12", "a-0,", "a-1"]
    assert second.split() == ["x" * 300, "-", "-"]
    assert heading.index("high watermark") + len("high watermark") == first.index("12") + 2


def test_json_has_every_column_of_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(COLUMNS, ROWS, as_json=True)
    assert json.loads(capsys.readouterr().out) == ROWS
    print_rows(COLUMNS, [], as_json=True)
    assert json.loads(capsys.readouterr().out) == []


def test_nothing_is_said_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(COLUMNS, [], as_json=False, empty="no topics yet")
    assert capsys.readouterr().out == "no topics yet\n"


def test_times_are_shown_with_milliseconds() -> None:
    shown = format_time(1_700_000_000_123)
    assert shown is not None
    assert ".123" in shown
    assert format_time(-1) is None


def test_progress_keeps_off_what_is_not_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("writing", total=None) as bar:
        bar.advance(1)
    assert capsys.readouterr() == ("", "")
