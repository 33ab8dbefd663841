"""The lock files: what is pinned in each, with the hashes."""

from __future__ import annotations

import re
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
EVERYTHING = ROOT / "requirements.lock"
ALONE = ("release", "site")
"""The parts that are no part of the whole: their tools are in no environment of a checkout."""
PARTS = {path.stem: path for path in sorted((ROOT / "requirements").glob("*.lock"))}


def requirements(path: Path) -> dict[str, str]:
    """Each requirement of a lock file, without its hashes, with the text of its hashes."""
    joined = re.sub(r" *\\\n +", " ", path.read_text(encoding="utf-8"))
    lines = [line for line in joined.splitlines() if line and not line.startswith("#")]
    return {line.partition(" --hash")[0].strip(): line.partition(" --hash")[2] for line in lines}


def pins(part: str) -> dict[str, str]:
    """The version of each package that a part pins, without markers; the newest where there are several."""
    pinned = sorted(requirement.partition(";")[0].strip() for requirement in requirements(PARTS[part]))
    return {name: version for name, _, version in (pin.partition("==") for pin in pinned)}


def pinned_on_linux(part: str) -> set[str]:
    """The names of the packages that a part pins for Linux, whose images are built from it."""
    return {
        one.name
        for one in map(Requirement, requirements(PARTS[part]))
        if one.marker is None or one.marker.evaluate({"sys_platform": "linux", "os_name": "posix"})
    }
