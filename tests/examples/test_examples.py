"""The example projects of docs/examples, each copied and run as its user would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
FOLDERS = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
PROJECTS = [name for name in FOLDERS if list((EXAMPLES / name).glob("test_*.py"))]
"""Without those in other languages: tests/compat runs them."""
TIMEOUT_S = 280


def of(project: str) -> pytest.MarkDecorator:
    """The marker of a project."""
    return pytest.mark.long if project == "pyspark" else pytest.mark.integration


@pytest.mark.timeout(300)
@pytest.mark.parametrize("project", [pytest.param(name, marks=of(name)) for name in PROJECTS])
def test_the_tests_of_an_example_pass(project: str, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / project, tmp_path / project)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"],
        cwd=tmp_path / project,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_there_is_an_example_for_each_client_and_for_two_phase_commits() -> None:
    clients = ["aiokafka", "confluent_kafka", "faststream", "faust", "kafka_python", "pyspark"]
    databases = ["asyncpg", "django", "psycopg_pool", "sqlalchemy"]
    assert [*clients, "two_phase", *(f"two_phase_{name}" for name in databases)] == PROJECTS
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"({name})" in listed for name in FOLDERS)
    assert sorted({*FOLDERS} - {*PROJECTS}) == [
        *(f"testing_{language}" for language in ("go", "java", "node", "rust")),
        *("two_phase_go", "two_phase_java"),
    ]
