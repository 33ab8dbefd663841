"""The page about two-phase commits shows the examples that are run, and names what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fencepost import two_phase

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "two-phase.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["order_service.py", "order_service_postgres.py"])
def test_the_programs_of_the_page_are_those_that_are_tested(name: str) -> None:
    program = (ROOT / "docs" / "examples" / "two_phase" / name).read_text(encoding="utf-8")
    shown = re.search(rf"```python\n# {name}\n(.*?)```", PAGE, re.DOTALL)
    assert shown is not None
    assert program.split('"""\n\n', 1)[1] == shown[1]


def test_the_lines_in_java_are_those_of_the_service_that_is_tested() -> None:
    service = (ROOT / "docs" / "examples" / "two_phase_java" / "OrderService.java").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```java\n(.*?)```", PAGE, re.DOTALL)
    lines = [line.strip() for line in service.splitlines()]
    wanted = [line.strip() for line in shown.splitlines()]
    assert wanted in [lines[first : first + len(wanted)] for first in range(len(lines))]


def test_every_exception_and_every_call_is_on_the_page() -> None:
    missing = [name for name in two_phase.__all__ if f"`{name}" not in PAGE and f"{name}(" not in PAGE]
    assert set(missing) <= {"InDoubt", "Outcome", "TwoPhaseError", "SqliteLog", "recover_async"}, missing
