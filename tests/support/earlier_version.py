"""An earlier version of the product, from the history of the checkout, which runs beside that of the working tree."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.support.broker_process import ROOT

COMMIT = "f0e613bf"
"""The last one of format 3 of a cluster's tables."""
FORMAT = 3
PROGRAM = """\
import runpy

runpy.run_module("fencepost", run_name="__main__", alter_sys=True)
"""


def earlier_program(
    directory: Path, commit: str = COMMIT, packages: tuple[str, ...] = ("fencepost",)
) -> tuple[str, ...]:
    """Extract a version; return what Python runs with the arguments of `fencepost`. Skips a test without history."""
    command = ["git", "-C", str(ROOT), "archive", commit, *packages]
    archive = subprocess.run(command, capture_output=True, check=False)
    if archive.returncode != 0:
        pytest.skip(f"the history of this checkout has no commit {commit}: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(directory, filter="data")
    # Python looks for packages in the directory of its program first.
    program = directory / "earlier.py"
    program.write_text(PROGRAM)
    return (str(program),)
