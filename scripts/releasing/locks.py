"""Whether the lock files fit pyproject.toml: a pin satisfies each requirement, and the parts have the same pins.

Needs no network. A pin that nothing requires any more is not found; `./scripts/lock` removes it.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ALL = "requirements.lock"
ALONE = frozenset({ALL, "requirements/release.lock", "requirements/site.lock"})
"""Those whose pins may be others than those of `ALL`."""


def inputs(script: str) -> dict[str, list[str]]:
    """The words behind each lock file in `scripts/lock`."""
    found = {}
    for kind, name, words in re.findall(r"^(compile|part) (\S+) (.+)$", script, re.MULTILINE):
        found[name if kind == "compile" else f"requirements/{name}.lock"] = words.split()
    return found


def requirements(project: dict[str, Any], words: list[str]) -> list[Requirement]:
    """What a lock file made with these words has to satisfy."""
    extras: dict[str, list[str]] = project["project"]["optional-dependencies"]
    lines: list[str] = [*project["project"]["dependencies"]] if "pyproject.toml" in words else []
    for word, name in zip(words, [*words[1:], ""], strict=True):
        if word == "--group":
            lines += project["dependency-groups"][name]
        elif word == "--extra":
            lines += extras[name]
        elif word == "--all-extras":
            lines += [line for extra in extras.values() for line in extra]
    named = [Requirement(line) for line in lines]
    own = [extra for one in named if one.name == project["project"]["name"] for extra in one.extras]
    return [
        *(one for one in named if one.name != project["project"]["name"]),
        *(Requirement(line) for extra in own for line in extras[extra]),
    ]


def pins(lock: str) -> set[tuple[str, str]]:
    """Names and versions; a name may have several, for different systems."""
    return {
        (canonicalize_name(name), version) for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", lock, re.MULTILINE)
    }


def faults(root: Path) -> list[str]:
    """A sentence for each."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    everything = pins((root / ALL).read_text(encoding="utf-8"))
    found = []
    for name, words in inputs((root / "scripts" / "lock").read_text(encoding="utf-8")).items():
        locked = pins((root / name).read_text(encoding="utf-8"))
        for one in requirements(project, words):
            versions = [version for pinned, version in locked if pinned == canonicalize_name(one.name)]
            if not any(one.specifier.contains(version, prereleases=True) for version in versions):
                found.append(f"{name} has no version of {one}: run ./scripts/lock")
        if name not in ALONE:
            found += [f"{name} has {'=='.join(pin)}, and {ALL} has not" for pin in sorted(locked - everything)]
    return found
