"""The page about two-phase commits shows the example that is run."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_program_of_the_page_is_the_one_that_is_tested() -> None:
    page = (ROOT / "docs" / "two-phase.md").read_text(encoding="utf-8")
    program = (ROOT / "docs" / "examples" / "two_phase" / "order_service.py").read_text(encoding="utf-8")
    shown = re.search(r"```python\n# order_service.py\n(.*?)```", page, re.DOTALL)
    assert shown is not None
    assert program.split('"""\n\n', 1)[1] == shown[1]
