"""The page about two-phase commits shows the examples that are run, and names what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fencepost import two_phase

ROOT = Path(__file__).resolve().parents[2]
PAGE, OPERATING, APPENDIX = (
    (ROOT / "docs" / name).read_text(encoding="utf-8")
    for name in ("two-phase.md", "two-phase-operating.md", "two-phase-appendix.md")
)


@pytest.mark.parametrize("name", ["order_service.py", "order_service_postgres.py"])
def test_the_programs_of_the_page_are_those_that_are_tested(name: str) -> None:
    program = (ROOT / "docs" / "examples" / "two_phase" / name).read_text(encoding="utf-8")
    shown = re.search(rf"```python\n# {name}\n(.*?)```", PAGE, re.DOTALL)
    assert shown is not None
    assert program.split('"""\n\n', 1)[1] == shown[1]


def test_each_figure_of_what_it_costs_is_one_of_the_whole_table() -> None:
    short = re.findall(
        r"^\|.* \| [\d,]+ \|.*$", PAGE.partition("## What it costs\n")[2].partition("\n## ")[0], re.MULTILINE
    )
    assert len(short) == 5
    for row in short:
        figures = row.partition(" | ")[2]  # without the database, which the whole table names in an earlier row
        assert f" {figures}" in APPENDIX, row


def test_the_lines_in_java_are_those_of_the_service_that_is_tested() -> None:
    service = (ROOT / "docs" / "examples" / "two_phase_java" / "OrderService.java").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```java\n(.*?)```", PAGE, re.DOTALL)
    lines = [line.strip() for line in service.splitlines()]
    wanted = [line.strip() for line in shown.splitlines()]
    assert wanted in [lines[first : first + len(wanted)] for first in range(len(lines))]


def test_every_exception_and_every_call_is_on_one_of_the_pages() -> None:
    text = PAGE + OPERATING + APPENDIX
    missing = [name for name in two_phase.__all__ if f"`{name}" not in text and f"{name}(" not in text]
    assert set(missing) <= {"InDoubt", "Outcome", "TwoPhaseError", "SqliteLog", "recover_async"}, missing
