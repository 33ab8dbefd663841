"""Every figure of `scripts/bench.py` runs from end to end on a broker process, with sizes that take seconds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.benchmarks.command import main
from scripts.benchmarks.table import FIGURES

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("name", FIGURES)
def test_the_figure_is_measured(name: str, tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    arguments = ["--small", "--rounds", "1", "--only", name, "--json", str(output), "--cache", str(tmp_path / "cache")]
    assert main(arguments) == 0
    written = json.loads(output.read_text())
    assert written["machine"]["cores"] >= 1
    results = written["results"]
    assert {result["figure"] for result in results} == {name}
    assert all(len(result["values"]) == 1 and result["unit"] for result in results)
    assert {target.quantity for target in FIGURES[name].targets} <= {result["quantity"] for result in results}
