"""The soak where a client library is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WITHOUT = "import sys; sys.modules['confluent_kafka'] = None; from fencepost.cli.main import main; main()"


def run(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, "soak", *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


def test_a_missing_library_is_named_with_what_to_install(tmp_path: Path) -> None:
    directory = tmp_path / "soak"
    code, _, error = run("--minutes", "0.1", "--directory", str(directory))
    assert (code, error) == (
        2,
        "the soak needs confluent_kafka, which is not installed: pip install 'fencepost[soak]'\n",
    )
    assert not directory.exists()


def test_its_help_needs_no_client() -> None:
    code, output, _ = run("--help")
    assert code == 0
    assert "--minutes" in output
