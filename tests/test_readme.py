"""README.md: its example of a broker inside a Python process runs as it is printed; its figures were measured."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
PERFORMANCE = README.parent / "docs" / "performance.md"
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_the_example_of_a_broker_inside_a_process_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = PYTHON_BLOCK.findall(README.read_text(encoding="utf-8"))
    (example,) = [block for block in blocks if "from fencepost import Broker" in block]
    path = tmp_path / "example.py"
    path.write_text(example, encoding="utf-8")

    names = runpy.run_path(str(path))

    assert capsys.readouterr().out == f"{names['broker'].bootstrap_servers}\n"
    assert not names["broker"].is_running


def test_its_first_figures_are_those_that_were_measured() -> None:
    shown = re.search(r"one process, (\d+) MiB, ([\d.]+) s to start", README.read_text(encoding="utf-8"))
    measured = re.search(
        r"([\d.]+) s to the first answer .*? ([\d.]+) MiB idle", PERFORMANCE.read_text(encoding="utf-8")
    )
    assert shown is not None
    assert measured is not None
    assert (int(shown[1]), float(shown[2])) == (round(float(measured[2])), round(float(measured[1]), 1))


def test_it_fits_into_a_few_screens() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) < 140
