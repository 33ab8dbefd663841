"""README.md: its example of a broker inside a Python process runs as it is printed."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_the_example_of_a_broker_inside_a_process_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = PYTHON_BLOCK.findall(README.read_text(encoding="utf-8"))
    (example,) = [block for block in blocks if "from fencepost import Broker" in block]
    path = tmp_path / "example.py"
    path.write_text(example, encoding="utf-8")

    names = runpy.run_path(str(path))

    assert capsys.readouterr().out == f"{names['broker'].bootstrap_servers}\n"
    assert not names["broker"].is_running
