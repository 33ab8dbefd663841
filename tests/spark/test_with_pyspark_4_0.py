"""The sink with the oldest PySpark that it is for: its tests run once more, in an environment that has PySpark 4.0."""

from __future__ import annotations

import site
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.clients import CLIENTS
from tests.compat.harness import NotHereError
from tests.support.broker_process import ROOT
from tests.support.missing_tools import missing

pytestmark = pytest.mark.long


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python with the packages of the client `spark-4.0`, and for all else those of this environment."""
    try:
        of_client = Path(CLIENTS["spark-4.0"].command()[0])
    except NotHereError as reason:
        missing(str(reason))
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    (of_pyspark,) = of_client.parents[1].glob("lib/python*/site-packages")
    # The earlier folder counts where both have a package.
    (packages / "packages.pth").write_text("".join(f"{folder}\n" for folder in (of_pyspark, *site.getsitepackages())))
    return environment / "bin" / "python"


@pytest.mark.timeout(2_400)
def test_the_sink_does_the_same_with_pyspark_4_0(python: Path, tmp_path: Path) -> None:
    version = subprocess.run(
        [python, "-c", "import pyspark; print(pyspark.__version__)"], check=True, capture_output=True, text=True
    ).stdout
    assert version.startswith("4.0.")
    tests = subprocess.run(
        [
            *(python, "-m", "pytest", "-v", "-m", "spark", "tests/spark"),
            *("-p", "no:cacheprovider", f"--basetemp={tmp_path / 'tests'}"),
        ],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert tests.returncode == 0, tests.stdout[-20_000:]
    assert " passed" in tests.stdout
    assert "skipped" not in tests.stdout
