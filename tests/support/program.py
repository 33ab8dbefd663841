"""The one-file program of a release, built once for all tests of a checkout's state."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.support.missing_tools import missing, require_tool

ROOT = Path(__file__).resolve().parents[2]
BUILDS = ROOT / ".cache" / "program"
PARTS = ("fencepost", "scripts/program", "scripts/release", "requirements", "pyproject.toml", "CHANGELOG.md")
BUILD_LIMIT_S = 900


def release_files() -> Path:
    """The folder of a release's files, built by `scripts/release` if no test has before. Skips without its tools."""
    for tool in ("cc", "strip", "git"):
        require_tool(tool)
    found = subprocess.run(["cc", "-print-file-name=libzstd.a"], capture_output=True, text=True, check=True).stdout
    if not Path(found.strip()).is_absolute():
        missing("libzstd.a is not installed: .ci/run installs it")
    BUILDS.mkdir(parents=True, exist_ok=True)
    with (BUILDS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = BUILDS / _fingerprint()
        if not (folder / "SHA256SUMS").exists():
            for old in BUILDS.glob("*/*"):
                old.unlink()
            version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
            built = subprocess.run(
                [str(ROOT / "scripts" / "release"), f"v{version}"],
                env=os.environ
                | {"FENCEPOST_DIST": str(folder), "FENCEPOST_LEVEL": "1", "FENCEPOST_PYTHON": sys.executable},
                capture_output=True,
                text=True,
                check=False,
                timeout=BUILD_LIMIT_S,
            )
            assert built.returncode == 0, built.stdout + built.stderr
    return folder


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
