"""The files of a release, the one-file program among them, built and tried once for all tests of a checkout's state."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

from tests.support.missing_tools import missing, require_tool

ROOT = Path(__file__).resolve().parents[2]
BUILDS = ROOT / ".cache" / "program"
PARTS = (
    *("fencepost", "scripts/program", "scripts/release", "scripts/releasing", "requirements", "pyproject.toml"),
    *("CHANGELOG.md", "README.md", ".github/workflows/release.yml"),
)
BUILD_LIMIT_S = 900
NOT_YET = ("the working tree differs from its commit", "CHANGELOG.md has lines under Unreleased")
"""Refusals of a checkout between releases."""


def release_files() -> Path:
    """The folder of a release's files, by a dry run of `scripts/release`. Skips without its tools."""
    return _built()[0]


def release_output() -> str:
    """All that the dry run has said."""
    return _built()[1].read_text(encoding="utf-8")


def _built() -> tuple[Path, Path]:
    for tool in ("cc", "strip", "git"):
        require_tool(tool)
    found = subprocess.run(["cc", "-print-file-name=libzstd.a"], capture_output=True, text=True, check=True).stdout
    if not Path(found.strip()).is_absolute():
        missing("libzstd.a is not installed: .ci/run installs it")
    BUILDS.mkdir(parents=True, exist_ok=True)
    with (BUILDS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = BUILDS / _fingerprint()
        output = folder.with_suffix(".log")
        if not output.exists():
            for old in [*BUILDS.glob("*/*"), *BUILDS.glob("*.log")]:
                old.unlink()
            variables = {
                "FENCEPOST_DIST": str(folder),
                "FENCEPOST_LEVEL": "1",
                "FENCEPOST_PYTHON": sys.executable,
                "FENCEPOST_IMAGE_ENGINE": "none",
            }
            built = subprocess.run(
                [str(ROOT / "scripts" / "release"), "--dry-run"],
                env=os.environ | variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=BUILD_LIMIT_S,
            )
            _, _, refusals = built.stdout.partition("built and tried, but a release would be refused:\n")
            unexpected = [line for line in refusals.splitlines() if not any(reason in line for reason in NOT_YET)]
            assert not unexpected, built.stdout
            assert built.returncode == (1 if refusals else 0), built.stdout
            output.write_text(built.stdout, encoding="utf-8")
    return folder, output


def program_of(release: Path) -> Path:
    """The program among a release's files."""
    (program,) = (path for path in release.glob("fencepost-*-linux-*") if path.suffix != ".json")
    return program


def _fingerprint() -> str:
    digest = hashlib.sha256(sys.version.encode())
    for part in PARTS:
        path = ROOT / part
        for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if each.is_file() and each.suffix != ".pyc":
                digest.update(f"{each.relative_to(ROOT)}\0".encode() + each.read_bytes())
    return digest.hexdigest()[:16]
